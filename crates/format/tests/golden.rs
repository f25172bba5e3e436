//! One image of every record kind, byte for byte: format version 1 never changes.
//!
//! `golden/v1/*.hex` hold the bytes, rows of zeros left out. `PICAFLOR_GOLDEN=write cargo test -p picaflor-format
//! --test golden` makes them anew; that is right only for a new version, in a folder of its own.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

use std::{fmt::Write, path::PathBuf};

use picaflor_format::{
    BLOCK, Corrupt, blocks,
    checkpoint::{self, Begun, Directory, PinnedRow, PlaceRow},
    cluster::{self, Content, Row, Table, Trailer},
    doubt::Doubt,
    frame::{self, ChunkKey, Kind, Manifest},
    graph, hot, htod,
    journal::{self, Group, Pinned, PinnedBytes, Placed, Record},
    superblock::{self, CheckpointRef, Superblock},
    zone::HOT_SLOT,
};

const ROW: usize = 32;

fn dump(bytes: &[u8]) -> String {
    let mut text = format!("length {}\n", bytes.len());
    for (at, row) in bytes.chunks(ROW).enumerate().filter(|(_, row)| row.iter().any(|byte| *byte != 0)) {
        let hex = row.iter().fold(String::new(), |mut hex, byte| {
            let _ = write!(hex, "{byte:02x}");
            hex
        });
        let _ = writeln!(text, "{:08x} {hex}", at * ROW);
    }
    text
}

fn check(name: &str, bytes: &[u8]) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(format!("{name}.hex"));
    if std::env::var("PICAFLOR_GOLDEN").is_ok_and(|what| what == "write") {
        std::fs::write(&path, dump(bytes)).unwrap();
    }
    let golden = std::fs::read_to_string(&path).unwrap();
    assert!(golden == dump(bytes), "{name} is encoded otherwise than version 1 was");
}

/// As `check`, of a part of a checkpoint with this image in one piece.
fn check_image(name: &str, segment: u32, words: &[u64]) {
    let mut payload = Vec::new();
    checkpoint::push_piece(&mut payload, segment, words.len() as u32, 0, words);
    let header = cluster::Header { seq: 0x78, store: 0x99, id: 13, content: Content::CheckpointPart, class: 0 };
    let mut bytes = vec![0xaa; 64 << 10];
    checkpoint::encode_cluster(&mut bytes, &header, &payload);
    check(name, &bytes);
}

fn superblock_of_three() -> Superblock {
    Superblock {
        seq: 5,
        store: 0x0123_4567_89ab_cdef_0011_2233_4455_6677,
        seed: 0xfeed_beef_0000_0001,
        capacity: 1 << 30,
        cluster: 256 << 10,
        segment_bits: 7,
        volume: (1, 3),
        spread: superblock::Spread::None,
        epoch: 9,
        mode: 1,
        current: Some(CheckpointRef { directory: 17, seq: 99, journal_start: 1234 }),
        previous: None,
        lost: 0b101,
        durable: 0,
        sealed_below: 0,
        doubt: Doubt::default(),
        running: false,
        made_with: 0,
        preset: 0,
        layout: superblock::Layout::Ring,
        threshold: 0,
        long_files: false,
    }
}

fn check_superblock(name: &str, block: Superblock) {
    let mut bytes = vec![0xaa; BLOCK];
    block.encode(&mut bytes);
    assert_eq!(Superblock::decode(&bytes), Ok(block));
    check(name, &bytes);
}

#[test]
fn superblock() {
    check_superblock("superblock", superblock_of_three());
    check_superblock("superblock-preset", Superblock { preset: 12, ..superblock_of_three() });
    check_superblock("superblock-running", Superblock { running: true, ..superblock_of_three() });
    check_superblock("superblock-spread", Superblock { spread: superblock::Spread::Origin, ..superblock_of_three() });
}

#[test]
fn superblock_that_vouches() {
    check_superblock("superblock-durable", Superblock { durable: 0x0009_0000_0077, ..superblock_of_three() });
}

#[test]
fn superblock_that_tells_what_was_sealed() {
    let doubt = Doubt::not_told(9 << 40..10 << 40, [9 << 40, (9 << 40) + 2]);
    check_superblock("superblock-doubt", Superblock { doubt, ..superblock_of_three() });
    check_superblock("superblock-sealed", Superblock { sealed_below: 9 << 40 | 3, ..superblock_of_three() });
}

#[test]
fn superblock_of_slots() {
    let layout = superblock::Layout::SlotsScanned;
    check_superblock("superblock-slots", Superblock { layout, threshold: 16, ..superblock_of_three() });
}

fn header() -> frame::Header {
    frame::Header {
        mark: 0x77,
        generation: 0x0102_0304_0506,
        expires: 1_700_000_000_000,
        body_len: 11,
        meta_len: 4,
        key_len: 3,
        kind: Kind::Whole,
        group: 8,
        server: 0xdead_beef,
        payload_crc: frame::payload_crc(b"key", b"meta", b"hello world"),
    }
}

#[test]
fn object_frame() {
    let mut bytes = vec![0; header().frame_len()];
    header().encode(&mut bytes);
    bytes[frame::HEADER..frame::HEADER + 18].copy_from_slice(b"keymetahello world");
    assert_eq!(frame::Header::verify(&bytes), Ok(header()));
    check("frame", &bytes);
}

#[test]
fn manifest_and_chunk_key() {
    let manifest = Manifest { id: 0xabc, total: 5_000_000, chunk: 65_000, tail: 0 };
    assert_eq!(Manifest::decode(&manifest.encode()), Ok(manifest));
    check("manifest", &manifest.encode());
    // The last bytes of the object may follow.
    let body = [&manifest.encode()[..], b"the end"].concat();
    let with_tail = Manifest { tail: 7, ..manifest };
    assert_eq!(Manifest::decode(&body), Ok(with_tail));
    assert_eq!((with_tail.in_chunks(), manifest.chunks(), with_tail.chunks()), (4_999_993, 77, 77));
    assert!(Manifest::decode(&[0; Manifest::LEN + 7]).is_err() && Manifest::decode(&body[..19]).is_err());
    check("manifest-tail", &body);
    let key = ChunkKey { parent: 0x1122_3344_5566_7788_99aa_bbcc_ddee_ff00, id: 0xabc, number: 76 };
    assert_eq!(ChunkKey::decode(&key.encode()), Ok(key));
    check("chunk-key", &key.encode());
}

#[test]
fn cluster_header_and_table() {
    let header = cluster::Header { seq: 0x77, store: 0x99, id: 12, content: Content::Objects, class: 0x1234 };
    let mut bytes = vec![0; 64 << 10];
    header.encode(&mut bytes);
    assert_eq!(cluster::Header::decode(&bytes), Ok(header));
    let row = |i: u32, kind| Row { hash: u64::from(i) << 40, generation: i.into(), offset: 64 * i, len: 128, kind };
    let rows = vec![row(1, Kind::Whole), row(3, Kind::Manifest), row(5, Kind::Chunk), row(7, Kind::Copy)];
    // Before trailers said whose they are.
    let last = Trailer { seq: 0x77, seal: 41, durable: 40, store: 0, id: 0, page: 0 };
    cluster::encode_table(&mut bytes, last, &rows);
    assert_eq!(cluster::decode_table(&bytes), Ok(Table::Rows(last, rows.clone())));
    check("cluster", &bytes);
    let last = Trailer { store: 0x99, id: 12, ..last };
    cluster::encode_table(&mut bytes, last, &rows);
    assert_eq!(cluster::decode_trailer(&bytes), Ok((last, 4)));
    check("cluster-of-store", &bytes);
    let table = &bytes[bytes.len() - cluster::table_len(4)..bytes.len() - cluster::TRAILER];
    assert!(rows.iter().all(|row| cluster::row_at(table, row.offset) == Some(*row)));
    assert!([0, 128, 512].into_iter().all(|elsewhere| cluster::row_at(table, elsewhere).is_none()));
}

#[test]
fn journal_page() {
    let records = [
        Record::Delete { hash: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, generation: 7 },
        Record::Reserve { cluster: 21, seq: 0x0505 },
        Record::Group(Group { id: 4, priority: 2, interval: 250, page: 0 }),
    ];
    let mut bytes = vec![0xaa; BLOCK];
    assert_eq!(journal::encode_page(&mut bytes, 300, 2, 0x99, &records), 3);
    let page = journal::decode_page(&bytes).unwrap();
    assert_eq!((page.seq, page.batch, page.store), (300, 2, 0x99));
    assert_eq!(page.records, records);
    check("journal", &bytes);
}

/// The image's bytes.
fn golden(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(format!("{name}.hex"));
    let text = std::fs::read_to_string(&path).unwrap();
    let mut lines = text.lines();
    let mut bytes = vec![0; lines.next().unwrap().strip_prefix("length ").unwrap().parse().unwrap()];
    for (at, hex) in lines.map(|line| line.split_once(' ').unwrap()) {
        let at = usize::from_str_radix(at, 16).unwrap();
        for i in 0..hex.len() / 2 {
            bytes[at + i] = u8::from_str_radix(&hex[2 * i..2 * i + 2], 16).unwrap();
        }
    }
    bytes
}

#[test]
fn a_delete_on_all_volumes_which_is_no_longer_written_is_read_as_a_delete() {
    let page = journal::decode_page(&golden("journal-everywhere")).unwrap();
    assert_eq!((page.seq, page.records), (302, vec![Record::Delete { hash: 6, generation: 11 }]));
}

#[test]
fn journal_page_in_place() {
    let placed =
        Placed { hash: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, generation: 9, slot: 0x0102_0304, slots: 11 };
    let records = [Record::Placed(placed), Record::Delete { hash: 5, generation: 10 }];
    let mut bytes = vec![0xaa; BLOCK];
    assert_eq!(journal::encode_page(&mut bytes, 301, 0, 0x99, &records), 2);
    assert_eq!(journal::decode_page(&bytes).unwrap().records, records);
    check("journal-in-place", &bytes);
}

#[test]
fn checkpoint_of_a_table() {
    let header = cluster::Header { seq: 0x79, store: 0x99, id: 3, content: Content::CheckpointPart, class: 0 };
    let row = PlaceRow { hash: 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff, slot: 0x0102_0304, slots: 11, used: 77 };
    let mut payload = Vec::new();
    checkpoint::push_piece(&mut payload, 0, 4, 0, &row.words());
    let mut bytes = vec![0xaa; 64 << 10];
    checkpoint::encode_cluster(&mut bytes, &header, &payload);
    let (piece, _) = checkpoint::next_piece(checkpoint::decode_cluster(&bytes).unwrap().1).unwrap();
    assert_eq!(PlaceRow::from_words(*piece.words.first_chunk().unwrap()), row);
    check("checkpoint-in-place", &bytes);
}

#[test]
fn superblock_in_place() {
    let block = Superblock {
        seq: 1,
        store: 0x99,
        seed: 3,
        capacity: 64 << 20,
        cluster: 256 << 10,
        segment_bits: 4,
        volume: (0, 1),
        spread: superblock::Spread::None,
        epoch: 1,
        mode: 0,
        current: None,
        previous: None,
        lost: 0,
        durable: 0,
        sealed_below: 0,
        doubt: Doubt::default(),
        running: false,
        made_with: 0,
        layout: superblock::Layout::NextFit,
        threshold: 0,
        long_files: false,
        preset: 0,
    };
    check_superblock("superblock-in-place", block);
}

#[test]
fn checkpoint_part_and_directory() {
    let header = cluster::Header { seq: 0x78, store: 0x99, id: 13, content: Content::CheckpointPart, class: 0 };
    let mut payload = Vec::new();
    checkpoint::push_piece(&mut payload, 2, 5, 1, &[0, 1 << 50, 3]);
    let mut bytes = vec![0xaa; 64 << 10];
    checkpoint::encode_cluster(&mut bytes, &header, &payload);
    assert_eq!(checkpoint::decode_cluster(&bytes), Ok((header, &payload[..])));
    check("checkpoint-part", &bytes);
}

#[test]
fn clusters_that_are_divided() {
    let row = Row { hash: 6, generation: 7, offset: 16 << 10, len: 128, kind: Kind::Whole };
    let last = Trailer { seq: 0x77, seal: 41, durable: 40, store: 0x99, id: 12, page: 14 };
    let mut bytes = vec![0; 64 << 10];
    cluster::encode_table(&mut bytes, last, &[row]);
    assert_eq!(cluster::decode_table(&bytes), Ok(Table::Rows(last, vec![row])));
    check("cluster-divided", &bytes);

    let group = Group { id: 4, priority: 2, interval: 250, page: 15 };
    let records = [Record::Group(group), Record::Group(Group { page: 0, ..group })];
    let mut bytes = vec![0xaa; BLOCK];
    assert_eq!(journal::encode_page(&mut bytes, 303, 0, 0x99, &records), 2);
    assert_eq!(journal::decode_page(&bytes).unwrap().records, records);
    check("journal-divided", &bytes);

    let directory = Directory { cursor: 3, open: vec![5], parts: vec![(9, 0x66)], groups: vec![group] };
    assert_eq!(Directory::decode(&directory.encode()), Ok(directory.clone()));
    check("directory-divided", &directory.encode());

    check_image("checkpoint-divided", checkpoint::PAGES, &[u64::from_le_bytes([14, 0, 18, 16, 0, 0, 0, 0])]);
}

#[test]
fn pinned_records() {
    let name = 0x0011_2233_4455_6677_8899_aabb_ccdd_eeff;
    let text = b"a record that is longer than one piece";
    let head = Pinned { name, generation: 9, len: Some(text.len() as u32) };
    let mut records = vec![Record::Pinned(head)];
    records.extend(PinnedBytes::all(text).map(Record::PinnedBytes));
    records.push(Record::Pinned(Pinned { name: 5, generation: 10, len: None }));
    let mut bytes = vec![0xaa; BLOCK];
    assert_eq!(journal::encode_page(&mut bytes, 304, 0, 0x99, &records), 4);
    assert_eq!(journal::decode_page(&bytes).unwrap().records, records);
    check("journal-pinned", &bytes);

    let row = PinnedRow { name, generation: 9, bytes: text.to_vec() };
    let mut words = Vec::new();
    row.push(&mut words);
    assert_eq!(words.len(), PinnedRow::words(text.len()));
    assert_eq!(PinnedRow::next(&words), Ok((row, &[][..])));
    check_image("checkpoint-pinned", checkpoint::PINNED, &words);
}

#[test]
fn what_a_checkpoint_began_with() {
    let begun = Begun { below: 0x79, unfinished: vec![0x70, 0x78], replaced: vec![(6, 9), (u64::MAX, 1)] };
    let words = begun.words();
    assert_eq!(Begun::from_words(&words), Ok(begun.clone()));
    assert!(begun.covers(0x71) && !begun.covers(0x70) && !begun.covers(0x79));
    for cut in [1, 3, words.len() - 1] {
        assert_eq!(Begun::from_words(&words[..cut]), Err(Corrupt::Short), "{cut}");
    }
    check_image("checkpoint-begun", checkpoint::BEGUN, &words);
}

#[test]
fn hot_log() {
    let mut bytes = vec![0xaa; HOT_SLOT as usize];
    hot::encode(&mut bytes, 6, 0x99, &[1, 1 << 47, u64::MAX]);
    assert_eq!(hot::decode(&bytes), Ok((6, 0x99, vec![1, 1 << 47, u64::MAX])));
    check("hot", &bytes);
}

#[test]
fn an_empty_directory_is_read_back() {
    let directory = Directory::default();
    assert_eq!(Directory::decode(&directory.encode()), Ok(directory));
}

#[test]
fn htod() {
    let extents = vec![0x1000_0000_0001, 0x2000_0000_0002];
    let header = htod::Header { seq: 3, table: 2, epoch: 5, pages: 700, keys: 60_000, next_table: 4, extents };
    check("htod-header", &header.encode());
    let mut page = vec![0; BLOCK];
    let slot = htod::Slot::new(0x1000_0000_0042, 0x0123_4567_89ab_cdef, 5 << 40 | 17);
    htod::set_slot(&mut page, 3, 0, Some(htod::Slot { superseded: true, ..slot }));
    htod::set_slot(&mut page, 3, 29, Some(slot));
    htod::seal_sector(&mut page, 2, 699, 3, 5);
    check("htod-page", &page);
    let entry = htod::Entry { table: 2, generation: 5 << 40 | 17, key: b"/index.html", value: b"<html>" };
    check("htod-entry", &entry.encode());
}

#[test]
fn block_header_home_and_image() {
    let header = blocks::Header {
        status: blocks::Status::Allocated,
        at: 77,
        size: 9,
        seq: 5 << 40 | 17,
        rest: 3,
        rest_seq: 5 << 40 | 16,
        len: 4000,
        sum: 0xabcd_ef01,
        flags: 0,
        list: 8,
        next: 1234,
    };
    let mut bytes = vec![0; blocks::HEADER];
    header.encode(&mut bytes, 0x0123_4567_89ab_cdef);
    check("block-header", &bytes);
    let freed = blocks::Header { status: blocks::Status::Free, len: 0, sum: 0, ..header };
    freed.encode(&mut bytes, 0x0123_4567_89ab_cdef);
    check("block-header-free", &bytes);
    let home = blocks::Home {
        generation: 3,
        salt: 0x0123_4567_89ab_cdef,
        epoch: 5,
        capacity: 1 << 30,
        grain: 512,
        method: 2,
        quick: (1, 75),
        tail: (100, 7),
        durable: 6,
        image: Some(blocks::ImageRef { at: 100, bytes: 128 }),
        roots: [1, 2, 3, 4, 5, 6, 7, 8],
        voids: vec![(1, 2), (5, 9)],
        heads: vec![20, 0, 30],
    };
    let mut bytes = vec![0; blocks::HOME];
    home.encode(&mut bytes);
    check("block-home", &bytes);
    let image = blocks::Image {
        generation: 3,
        allocated: (1, 2, 900),
        most: 99,
        free: vec![blocks::ImageFree { at: 20, size: 1, explicit: true, link: (0, 30) }],
        alone: vec![(40, 3)],
    };
    check("block-image", &image.encode());
}

#[test]
fn graph() {
    let node =
        graph::Node { page: true, expiry: 1_000, name: b"/index.html".to_vec(), dependencies: vec![3, 300, 70_000] };
    let large = graph::Edges::Large { bits: 5, count: 9_000 };
    let items = [node.encode(), Vec::new(), graph::Edges::Small(vec![1, 2, 1_000]).encode(), large.encode()];
    check("graph-group", &graph::encode_group(&items));
    let copies = [
        graph::encode_copy(graph::CopyOf::Nodes(7), b"nodes"),
        graph::encode_copy(graph::CopyOf::Edges(7), b"edges"),
        graph::encode_copy(graph::CopyOf::Chunk(70_000, 5, 31), b"chunk"),
    ];
    check("graph-image-part", &graph::encode_group(&copies));
    check("graph-image-said-2", &graph::ImageSaid::new(true, 300).encode());
    // The first version.
    let first = [1, 1, 0, 0, 0, 0x2c, 1, 0, 0];
    check("graph-image-said", &first);
    let said = graph::ImageSaid::decode(&first);
    assert_eq!(said, Ok(graph::ImageSaid { is_believed: true, version: 1, parts: 0 }));
    // From before it had a version.
    let first = [1, 0x2c, 1, 0, 0];
    check("graph-image", &first);
    let said = graph::ImageSaid::decode(&first);
    assert_eq!(said, Ok(graph::ImageSaid { is_believed: true, version: 0, parts: 0 }));
    check("graph-ids", &graph::encode_ids(&[0, 127, 255, u32::MAX]));
}
