//! What a crash leaves: at the least what was made durable, never what was replaced or deleted.

use std::{sync::Arc, time::Duration};

use picaflor::{
    Durability, Store,
    device::{Device, MemoryDevice},
};
use picaflor_sim::FaultyDevice;

use crate::common::{IN_PLACE, MIB, body, by_hand, key, read};

#[test]
fn what_was_flushed_is_there_and_what_was_deleted_is_not() {
    for preset in IN_PLACE {
        for seed in 0..20 {
            let medium = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(8 * MIB, 512)), seed);
            let options = by_hand(preset, Arc::new(medium.clone()) as Arc<dyn Device>);
            let store = Store::open(options.clone()).unwrap();
            for i in 0..300 {
                store.put(&key(i), &body(i, 1000 + i as usize * 7)).unwrap();
            }
            for i in 0..100 {
                store.put(&key(i), &body(i + 1, 2000)).unwrap();
            }
            for i in 100..150 {
                store.delete(&key(i)).unwrap();
            }
            store.flush().unwrap();
            // From here on nothing is durable: either version may be there.
            for i in 0..50 {
                store.put(&key(i), &body(i + 2, 3000)).unwrap();
            }
            medium.crash().unwrap();
            drop(store);
            medium.revive().unwrap();
            let store = Store::open(options).unwrap();
            for i in 0..300 {
                let found = read(&store, &key(i));
                match i {
                    0..50 => {
                        let found = found.unwrap();
                        assert!(found == body(i + 1, 2000) || found == body(i + 2, 3000), "{preset} {seed} {i}");
                    }
                    50..100 => assert_eq!(found.unwrap(), body(i + 1, 2000), "{preset} {seed} {i}"),
                    100..150 => assert_eq!(found, None, "{preset} {seed} {i}"),
                    _ => assert_eq!(found.unwrap(), body(i, 1000 + i as usize * 7), "{preset} {seed} {i}"),
                }
            }
            assert!(store.check(|_, _| {}).is_clean(), "{preset} {seed}");
        }
    }
}

#[test]
fn an_opening_with_less_memory_finds_what_one_with_more_has_put() {
    for preset in IN_PLACE {
        let medium = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(16 * MIB, 512)), 3);
        let options = by_hand(preset, Arc::new(medium.clone()) as Arc<dyn Device>);
        let store = Store::open(options.clone().memory(32 * MIB)).unwrap();
        for i in 0..8 {
            store.put(&key(i), &body(i, 900_000)).unwrap();
        }
        store.flush().unwrap();
        medium.crash().unwrap();
        drop(store);
        medium.revive().unwrap();
        let store = Store::open(options).unwrap();
        for i in 0..8 {
            assert_eq!(read(&store, &key(i)), Some(body(i, 900_000)), "{preset} {i}");
        }
    }
}

#[test]
fn the_bound_is_kept_on_the_clock_of_the_store() {
    for preset in IN_PLACE {
        let medium = FaultyDevice::new(Arc::new(MemoryDevice::new(8 * MIB)), 3);
        let time = Duration::from_millis(500);
        let options = by_hand(preset, Arc::new(medium.clone()) as Arc<dyn Device>)
            .durability(Durability::Bounded { time, puts: u64::MAX });
        let clock = options.clock.clone();
        let store = Store::open(options.clone()).unwrap();
        store.put(b"early", &body(1, 5000)).unwrap();
        clock.advance(time);
        store.step().unwrap();
        store.put(b"late", &body(2, 5000)).unwrap();
        medium.crash().unwrap();
        drop(store);
        medium.revive().unwrap();
        let store = Store::open(options).unwrap();
        assert_eq!(read(&store, b"early").unwrap(), body(1, 5000), "{preset}");
        assert!(read(&store, b"late").is_none_or(|found| found == body(2, 5000)), "{preset}");
    }
}
