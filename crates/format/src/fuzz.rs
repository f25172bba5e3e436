//! What must hold whatever bytes a decoder is given: it never panics, and what it takes for a record is written again
//! and read again as the same record. `scripts/fuzz` looks for bytes that break this, guided by coverage; what it kept
//! lies in `fuzz/corpus` and is replayed here as a test.
//!
//! Hardly any bytes have a right checksum, so each kind of record is also given one with the checksum put right.

use crate::{
    BLOCK, blocks, checkpoint, cluster,
    codec::{self, crc, put, u16_at, u32_at, u64_at},
    frame, graph, hot, htod, journal,
    superblock::Superblock,
    tabled,
    zone::{BEGINNING, HOT, HOT_SLOT, JOURNAL_START, Map},
};

/// One target: its name, and what must not panic.
pub type Target = (&'static str, fn(&[u8]));

/// The targets.
pub const TARGETS: &[Target] = &[
    ("superblock", superblock),
    ("frame", frame),
    ("cluster", cluster),
    ("checkpoint", checkpoint),
    ("journal", journal),
    ("hot", hot),
    ("htod", htod),
    ("blocks", blocks),
    ("graph", graph),
    ("tabled", tabled),
    ("remains", remains),
];

/// The bytes, cut or filled up with zeros to a length.
fn padded(bytes: &[u8], len: usize) -> Vec<u8> {
    let mut out = bytes[..bytes.len().min(len)].to_vec();
    out.resize(len, 0);
    out
}

/// The bytes as an intact record of this kind, as far as the seal goes.
fn sealed(bytes: &[u8], len: usize, magic: &[u8; 4]) -> Vec<u8> {
    let mut out = padded(bytes, len);
    seal(&mut out, magic);
    out
}

fn seal(record: &mut [u8], magic: &[u8; 4]) {
    codec::seal(record, u32::from_le_bytes(*magic));
}

fn superblock(bytes: &[u8]) {
    let _ = Superblock::decode(bytes);
    let Ok(found) = Superblock::decode(&sealed(bytes, BLOCK, b"PFsb")) else { return };
    let mut again = vec![0xff; BLOCK];
    found.encode(&mut again);
    assert_eq!(Superblock::decode(&again), Ok(found));
    if let Some(map) = Map::new(found.capacity, found.cluster) {
        assert!(map.journal.end() <= map.clusters.start && map.clusters.end() <= found.capacity);
        let (kept, zone) = map.in_place();
        assert!(kept <= map.cluster_count() && zone.end() == map.clusters.end());
    }
}

fn frame(bytes: &[u8]) {
    let _ = frame::Header::decode(bytes);
    let mut whole = padded(bytes, bytes.len().max(frame::HEADER));
    seal(&mut whole[..frame::HEADER], b"PFfr");
    let Ok(found) = frame::Header::decode(&whole) else { return };
    let mut again = [0xff; frame::HEADER];
    found.encode(&mut again);
    assert_eq!(frame::Header::decode(&again), Ok(found));
    assert!(found.frame_len() >= frame::HEADER + found.payload_len());
    let end = frame::HEADER + found.payload_len();
    let is_there = end <= whole.len();
    if is_there {
        let sum = crc(&whole[frame::HEADER..end]);
        put(&mut whole, 52, sum.to_le_bytes());
        seal(&mut whole[..frame::HEADER], b"PFfr");
    }
    let verified = frame::Header::verify(&whole);
    assert_eq!(verified.is_ok(), is_there, "{verified:?}");
    if let Ok(found) = verified {
        let (key, metadata) = (found.key(&whole), &whole[found.meta_start()..found.body_start()]);
        let body = &whole[found.body_start()..end];
        assert_eq!(frame::payload_crc(key, metadata, body), found.payload_crc);
        if let Some(manifest) = found.manifest(&whole) {
            let (own, tail) = body.split_at(frame::Manifest::LEN);
            assert!(u64::from(manifest.chunks()) * u64::from(manifest.chunk) + tail.len() as u64 >= manifest.total);
            assert_eq!((&manifest.encode()[..], manifest.tail as usize), (own, tail.len()));
        }
        if let Ok(chunk) = frame::ChunkKey::decode(key) {
            assert_eq!(chunk.encode(), *key);
        }
    }
}

fn cluster(bytes: &[u8]) {
    let _ = cluster::Header::decode(bytes);
    if let Ok(found) = cluster::Header::decode(&sealed(bytes, cluster::HEADER, b"PFcl")) {
        let mut again = [0xff; cluster::HEADER];
        found.encode(&mut again);
        assert_eq!(cluster::Header::decode(&again), Ok(found));
    }
    let _ = cluster::decode_table(bytes);
    let mut tail = padded(bytes, bytes.len().max(cluster::TRAILER));
    let at = tail.len() - cluster::TRAILER;
    // The table's own checksum stands in the trailer, so it is put right first.
    let rows = u32_at(&tail, at + 16) as usize;
    if let Some(start) = tail.len().checked_sub(cluster::table_len(rows)) {
        let sum = crc(&tail[start..at]);
        put(&mut tail, at + 20, sum.to_le_bytes());
    }
    seal(&mut tail[at..], b"PFtr");
    match cluster::decode_table(&tail) {
        Ok(cluster::Table::Rows(last, rows)) => {
            let mut again = vec![0xff; tail.len()];
            cluster::encode_table(&mut again, last, &rows);
            assert_eq!(cluster::decode_table(&again), Ok(cluster::Table::Rows(last, rows)));
        }
        Ok(cluster::Table::Longer(need)) => assert!(need > tail.len()),
        Err(_) => {}
    }
}

fn checkpoint(bytes: &[u8]) {
    let _ = checkpoint::decode_cluster(bytes);
    let mut whole = padded(bytes, bytes.len().max(cluster::HEADER + 8));
    seal(&mut whole[..cluster::HEADER], b"PFcl");
    let len = u32_at(&whole, cluster::HEADER) as usize;
    if let Some(payload) = whole.get(cluster::HEADER + 8..cluster::HEADER + 8 + len) {
        let sum = crc(payload);
        put(&mut whole, cluster::HEADER + 4, sum.to_le_bytes());
    }
    if let Ok((header, payload)) = checkpoint::decode_cluster(&whole) {
        assert_eq!(payload.len(), len);
        let mut again = vec![0xff; whole.len()];
        checkpoint::encode_cluster(&mut again, &header, payload);
        assert_eq!(checkpoint::decode_cluster(&again), Ok((header, payload)));
    }
    if let Ok(found) = checkpoint::Directory::decode(bytes) {
        assert_eq!(found.len(), bytes.len());
        assert_eq!(checkpoint::Directory::decode(&found.encode()), Ok(found));
    }
    let mut rest = bytes;
    while let Ok((piece, after)) = checkpoint::next_piece(rest) {
        let mut again = Vec::new();
        checkpoint::push_piece(&mut again, piece.segment, piece.total, piece.first, &piece.words);
        assert_eq!([&again[..], after].concat(), rest);
        for words in piece.words.as_chunks().0 {
            assert_eq!(checkpoint::PlaceRow::from_words(*words).words(), *words);
        }
        if let Ok((row, behind)) = checkpoint::PinnedRow::next(&piece.words) {
            let mut again = Vec::new();
            row.push(&mut again);
            assert_eq!(again.len() + behind.len(), piece.words.len());
            assert_eq!(checkpoint::PinnedRow::next(&again), Ok((row, &[][..])));
        }
        rest = after;
    }
}

fn journal(bytes: &[u8]) {
    let _ = journal::decode_page(bytes);
    let Ok(found) = journal::decode_page(&sealed(bytes, BLOCK, b"PFjl")) else { return };
    let mut again = vec![0xff; BLOCK];
    let taken = journal::encode_page(&mut again, found.seq, found.batch, found.store, &found.records);
    assert_eq!(taken, found.records.len());
    assert_eq!(journal::decode_page(&again), Ok(found));
}

fn hot(bytes: &[u8]) {
    let Ok((seq, store, locations)) = hot::decode(&sealed(bytes, HOT_SLOT as usize, b"PFht")) else { return };
    let mut again = vec![0xff; HOT_SLOT as usize];
    hot::encode(&mut again, seq, store, &locations);
    assert_eq!(hot::decode(&again), Ok((seq, store, locations)));
}

fn htod(bytes: &[u8]) {
    let _ = htod::Header::decode(bytes);
    if let Ok(found) = htod::Header::decode(&sealed(bytes, BLOCK, b"PFht")) {
        assert_eq!(htod::Header::decode(&found.encode()), Ok(found));
    }
    if let Ok(found) = htod::Entry::decode(bytes) {
        assert_eq!(found.encode(), bytes);
    }
    let mut page = padded(bytes, BLOCK);
    for sector in 0..htod::SECTORS {
        let _ = htod::check_sector(bytes, 1, 2, sector);
        for index in 0..htod::SLOTS {
            let slot = htod::slot(&page, sector, index);
            htod::set_slot(&mut page, sector, index, slot);
            assert_eq!(htod::slot(&page, sector, index), slot);
        }
        htod::seal_sector(&mut page, 1, 2, sector, 3);
        assert_eq!(htod::check_sector(&page, 1, 2, sector), Ok(3));
    }
}

fn blocks(bytes: &[u8]) {
    let (salt, at) = (bytes.len() as u64, 7);
    let _ = blocks::Header::decode(bytes, salt, at);
    let _ = blocks::Header::claims(bytes, salt, at);
    for status in [blocks::Status::Allocated, blocks::Status::Free, blocks::Status::Dead] {
        let mut header = [0; blocks::HEADER];
        let blank = blocks::Header {
            status,
            at,
            size: 1,
            seq: 0,
            rest: 0,
            rest_seq: 0,
            len: 0,
            sum: 0,
            flags: 0,
            list: 0,
            next: 0,
        };
        blank.encode(&mut header, salt);
        // The code bytes stay, or nothing would get past them.
        header[16..].copy_from_slice(&padded(bytes, blocks::HEADER - 16));
        seal(&mut header, b"PFbh");
        if let Ok(found) = blocks::Header::decode(&header, salt, at) {
            assert!(found.status == status && found.size > 0);
            let mut again = [0xff; blocks::HEADER];
            found.encode(&mut again, salt);
            assert_eq!(again, header);
        }
    }
    let _ = blocks::Home::decode(bytes);
    if let Ok(found) = blocks::Home::decode(&sealed(bytes, blocks::HOME, b"PFbs")) {
        let mut again = vec![0xff; blocks::HOME];
        found.encode(&mut again);
        assert_eq!(blocks::Home::decode(&again), Ok(found));
    }
    let _ = blocks::Image::decode(bytes);
    if let Ok(found) = blocks::Image::decode(&sealed(bytes, bytes.len().max(blocks::IMAGE_HEADER), b"PFbi")) {
        assert_eq!(blocks::Image::decode(&found.encode()), Ok(found));
    }
}

fn graph(bytes: &[u8]) {
    if let Ok(count) = graph::items(bytes) {
        let items: Vec<_> = (0..count).map_while(|index| graph::item(bytes, index).ok().map(<[u8]>::to_vec)).collect();
        let again = graph::encode_group(&items);
        assert_eq!(graph::items(&again), Ok(items.len()));
        for (index, item) in items.iter().enumerate() {
            assert_eq!(graph::item(&again, index), Ok(&item[..]));
            graph_item(item);
        }
    }
    graph_item(bytes);
    if let Ok(ids) = graph::take_ids(bytes) {
        assert!(ids.is_sorted_by(|a, b| a < b));
        assert_eq!(graph::take_ids(&graph::encode_ids(&ids)), Ok(ids));
    }
    if let Ok(said) = graph::ImageSaid::decode(bytes)
        && said.version == graph::IMAGE
    {
        assert_eq!(said.encode(), bytes);
    }
}

fn graph_item(item: &[u8]) {
    if let Ok(Some(node)) = graph::Node::decode(item) {
        assert_eq!(graph::Node::decode(&node.encode()), Ok(Some(node)));
    }
    if let Ok(edges) = graph::Edges::decode(item) {
        assert_eq!(graph::Edges::decode(&edges.encode()), Ok(edges));
    }
    if let Ok((of, record)) = graph::decode_copy(item) {
        assert_eq!(graph::decode_copy(&graph::encode_copy(of, record)), Ok((of, record)));
    }
}

fn tabled(bytes: &[u8]) {
    if let Ok(id) = tabled::large_id(bytes) {
        assert_eq!(tabled::large_key(id), *bytes);
    }
    let (key, value) = bytes.split_at(bytes.len().min(4));
    if let Ok(group) = tabled::decode_group(key, value) {
        let (again, settings) = tabled::encode_group(&group);
        assert!(again == *key && settings == *value);
    }
}

/// The first two bytes say where in the beginning of a place the rest lies.
fn remains(bytes: &[u8]) {
    let mut place = vec![0; BEGINNING.len as usize];
    assert!(!crate::has_remains(&place));
    let Some((at, record)) = bytes.split_at_checked(2) else { return };
    let at = usize::from(u16_at(at, 0)) * 4 % place.len();
    let len = record.len().min(place.len() - at);
    place[at..at + len].copy_from_slice(&record[..len]);
    let _ = crate::has_remains(&place[..place.len() - at]);
    let starts = [HOT.start, HOT.start + BLOCK as u64, HOT.start + HOT_SLOT];
    let known = starts.into_iter().chain((JOURNAL_START..BEGINNING.end()).step_by(BLOCK));
    // What is nowhere where a record begins leaves no magic number to be found, and so a blank place.
    let is_blank = known.into_iter().all(|start| u64_at(&place, start as usize) == 0);
    assert!(!is_blank || !crate::has_remains(&place));
}

#[cfg(test)]
#[path = "../../../fuzz/replay.rs"]
mod replay;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    #[test]
    fn the_corpora_find_nothing() {
        super::replay::all(super::TARGETS);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
            super::TARGETS.iter().for_each(|(_, target)| target(&bytes));
        }

        /// Most fields are numbers, and most numbers that mean something are small.
        #[test]
        fn bytes_that_are_mostly_zero(
            small in proptest::collection::vec((0usize..300, 0u8..8), 0..60),
            len in 0usize..300,
        ) {
            let mut bytes = vec![0; 300];
            small.into_iter().for_each(|(at, value)| bytes[at] = value);
            super::TARGETS.iter().for_each(|(_, target)| target(&bytes[..len]));
        }
    }
}
