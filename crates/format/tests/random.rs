//! Whatever is written comes back, whatever is damaged is noticed, whatever the size of a device. What decoders make of
//! any bytes at all is in `src/fuzz.rs`.

use picaflor_format::{
    BLOCK,
    journal::{self, Record},
    zone::Map,
};
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

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
                let (id, priority, interval) = (hash as u32, number as u8, (number >> 8) as u32);
                Record::Group(journal::Group { id, priority, interval, page: (number >> 40) as u8 })
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
