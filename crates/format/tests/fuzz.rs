//! Decoders take any bytes: they say what is wrong, or give what was there, and never panic.
//!
//! Random bytes hardly ever get past a checksum, so most are given the right one first.

use picaflor_format::{
    BLOCK, blocks, checkpoint,
    cluster::{self, decode_table},
    frame::{self, ChunkKey, Manifest},
    hot,
    journal::{self, Record},
    superblock::Superblock,
    zone::{HOT_SLOT, Map},
};
use proptest::prelude::*;

/// CRC-32C, bit by bit: the test's own, so that it does not share a mistake.
fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| (crc >> 1) ^ (0x82f6_3b78 & 0u32.wrapping_sub(crc & 1)))
    })
}

/// Makes bytes look like an intact record.
fn seal(bytes: &mut [u8], magic: &[u8; 4]) {
    let crc = crc32c(&bytes[8..]);
    bytes[..4].copy_from_slice(magic);
    bytes[4..8].copy_from_slice(&crc.to_le_bytes());
}

fn all(bytes: &[u8]) {
    let _ = Superblock::decode(bytes);
    let _ = frame::Header::decode(bytes);
    if let Ok(header) = frame::Header::verify(bytes) {
        let _ = header.key(bytes);
        assert!(header.body_start() + header.body_len as usize <= bytes.len());
    }
    let _ = Manifest::decode(bytes).map(|manifest| manifest.chunks());
    let _ = ChunkKey::decode(bytes);
    let _ = cluster::Header::decode(bytes);
    let _ = decode_table(bytes);
    let _ = journal::decode_page(bytes);
    let _ = checkpoint::decode_cluster(bytes);
    let _ = checkpoint::Directory::decode(bytes);
    let mut rest = bytes;
    while let Ok((_, after)) = checkpoint::next_piece(rest) {
        assert!(after.len() < rest.len());
        rest = after;
    }
    let _ = hot::decode(bytes);
    let _ = blocks::Header::decode(bytes, 1, 2);
    let _ = blocks::Header::claims(bytes, 1, 2);
    let _ = blocks::Home::decode(bytes);
    let _ = blocks::Image::decode(bytes);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_bytes(bytes in proptest::collection::vec(any::<u8>(), 0..9000)) {
        all(&bytes);
    }

    #[test]
    fn any_bytes_with_a_right_checksum(
        mut bytes in proptest::collection::vec(any::<u8>(), BLOCK..=BLOCK),
        small in proptest::collection::vec((0usize..BLOCK, 0u8..4), 0..60),
        magic in 0usize..10,
    ) {
        for (at, value) in small {
            bytes[at] = value;
        }
        let magic = [b"PFsb", b"PFfr", b"PFcl", b"PFtr", b"PFjl", b"PFht", b"PFxx", b"PFbh", b"PFbs", b"PFbi"][magic];
        match magic {
            b"PFtr" => seal(&mut bytes[BLOCK - cluster::TRAILER..], magic),
            b"PFfr" | b"PFcl" | b"PFbh" => seal(&mut bytes[..64], magic),
            _ => seal(&mut bytes, magic),
        }
        all(&bytes);
    }

    #[test]
    fn any_hot_log(count in any::<u32>(), words in proptest::collection::vec(any::<u64>(), 0..50)) {
        let mut bytes = vec![0; HOT_SLOT as usize];
        hot::encode(&mut bytes, 1, 2, &words);
        prop_assert_eq!(hot::decode(&bytes), Ok((1, 2, words)));
        bytes[24..28].copy_from_slice(&count.to_le_bytes());
        seal(&mut bytes, b"PFht");
        let _ = hot::decode(&bytes);
    }

    #[test]
    fn journal_pages_come_back(
        seq in any::<u64>(),
        batch in any::<u16>(),
        kinds in proptest::collection::vec((0u8..3, any::<u128>(), any::<u64>()), 0..300),
    ) {
        let record = |(kind, hash, number): (u8, u128, u64)| match kind {
            0 => Record::Delete { hash, generation: number },
            1 => Record::Reserve { cluster: hash as u32, seq: number },
            _ => {
                let (id, temper, interval) = (hash as u32, number as u8, (number >> 8) as u32);
                Record::Group(journal::Group { id, temper, interval, page: (number >> 40) as u8 })
            }
        };
        let records: Vec<Record> = kinds.into_iter().map(record).collect();
        let mut page = vec![0; BLOCK];
        let taken = journal::encode_page(&mut page, seq, batch, 7, &records);
        let found = journal::decode_page(&page).unwrap();
        prop_assert_eq!((found.seq, found.batch, found.store), (seq, batch, 7));
        prop_assert_eq!(&found.records[..], &records[..taken]);
        prop_assert!(taken == records.len() || taken > 100);
    }

    #[test]
    fn one_flipped_bit_is_noticed(at in 0usize..BLOCK * 8, seq in any::<u64>()) {
        let mut page = vec![0; BLOCK];
        journal::encode_page(&mut page, seq, 0, 7, &[Record::Reserve { cluster: 1, seq }]);
        page[at / 8] ^= 1 << (at % 8);
        prop_assert!(journal::decode_page(&page).is_err());
    }

    #[test]
    fn any_device_has_a_map_or_none(capacity in any::<u64>(), shift in 0u32..32, odd in any::<bool>()) {
        let cluster = (1u32 << shift) + u32::from(odd);
        for capacity in [capacity, capacity >> 20, capacity >> 40] {
            if let Some(map) = Map::new(capacity, cluster) {
                prop_assert!(map.clusters.end() <= capacity && map.journal.end() <= map.clusters.start);
                prop_assert_eq!(map.cluster_of(map.clusters.start), Some(0));
            }
        }
    }
}
