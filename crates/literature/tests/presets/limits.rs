//! A full device: who leaves a cache, when a store is full, and that caps hold.

use std::{
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use picaflor::{Departure, Error, Mode, Place, Store, device::Clock};
use picaflor_sim::{Fault, FaultyDevice, On, Rule};

use crate::common::{IN_PLACE, MIB, body, by_hand, key, memory, read};

#[test]
fn a_cache_lets_the_least_recently_used_leave() {
    for preset in IN_PLACE {
        let left: Arc<Mutex<Vec<Vec<u8>>>> = Arc::default();
        let told = Arc::clone(&left);
        let options = by_hand(preset, memory(6 * MIB, 4096)).mode(Mode::Cache).memory(MIB).with(|options| {
            options.eviction_listener = Some(Arc::new(move |key, why| {
                assert_eq!(why, Departure::Evicted);
                told.lock().unwrap().push(key.to_vec());
            }));
        });
        let store = Store::open(options).unwrap();
        for i in 0..4000 {
            store.put(&key(i), &body(i, 4000)).unwrap();
            if i % 10 == 0 {
                store.step().unwrap();
                assert_eq!(read(&store, &key(0)).unwrap(), body(0, 4000), "{preset} {i}");
            }
            let stats = store.stats();
            assert!(stats.memory_used <= stats.memory_limit, "{preset} {i} {stats:?}");
        }
        let left = left.lock().unwrap();
        let there = (0..4000).filter(|i| read(&store, &key(*i)).is_some()).count();
        assert_eq!(left.len() + there, 4000, "{preset}");
        assert!(there > 800, "{preset}: {there}");
        // In the order in which they were put, but for the one that was asked for all the time.
        assert!(left.iter().eq((1..=left.len() as u64).map(key).collect::<Vec<_>>().iter()), "{preset}");
    }
}

#[test]
fn a_cache_of_more_objects_than_memory_can_index_stays_nearly_as_full() {
    let folder = tempfile::tempdir().unwrap();
    let in_clusters = ["picaflor", "hummingbird", "damelo"].map(|preset| (preset, 90_000));
    let in_place = IN_PLACE.into_iter().chain(["multiple-dirs"]).map(|preset| (preset, 12_000));
    for (preset, count) in in_clusters.into_iter().chain(in_place) {
        let options = by_hand(preset, memory(128 * MIB, 512)).mode(Mode::Cache).memory(2 * MIB);
        let options = match preset {
            "multiple-dirs" => options.with(|options| {
                options.places = vec![Place::Path(folder.path().into())];
                options.capacity = 128 * MIB;
            }),
            _ => options,
        };
        let store = Store::open(options).unwrap();
        let mut most = 0;
        for i in 0..count {
            store.put(&key(i), &body(i, 100)).unwrap();
            // One in three is asked for again, and stays longer.
            if i % 3 == 0 {
                read(&store, &key(i / 3 * 2));
            }
            store.step().unwrap();
            let stats = store.stats();
            assert!(stats.memory_used <= stats.memory_limit, "{preset} {i} {stats:?}");
            most = most.max(stats.objects);
            assert!(stats.objects * 10 >= most * 7, "{preset}: {} objects of {most}", stats.objects);
        }
        assert!(most < count * 9 / 10, "{preset}: it was not full");
    }
}

#[test]
fn a_cache_too_small_for_checkpoints_of_many_objects_lets_some_leave_before_it_refuses_one() {
    for preset in IN_PLACE {
        let options = by_hand(preset, memory(8 * MIB, 4096)).mode(Mode::Cache).memory(4 * MIB);
        let store = Store::open(options).unwrap();
        for i in 0..8000 {
            store.put(&key(i), &body(i, 100)).unwrap_or_else(|error| panic!("{preset} {i}: {error}"));
            store.step().unwrap();
        }
        let there = (0..8000).filter(|i| read(&store, &key(*i)).is_some()).count();
        assert!((1000..4000).contains(&there), "{preset}: {there}");
    }
}

#[test]
fn a_store_says_that_it_is_full_and_takes_more_once_something_is_deleted() {
    for preset in IN_PLACE {
        let store = Store::open(by_hand(preset, memory(4 * MIB, 512))).unwrap();
        let mut count = 0;
        let full = loop {
            match store.put(&key(count), &body(count, 3000)) {
                Ok(()) => count += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::Full { .. }), "{preset} {full}");
        assert!(count > 800, "{preset} {count}");
        for i in 0..count {
            assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000), "{preset} {i}");
        }
        for i in (0..count).step_by(2) {
            assert!(store.delete(&key(i)).unwrap());
        }
        for i in (0..count).step_by(2) {
            store.put(&key(i), &body(i + 1, 3000)).unwrap();
        }
        for i in 0..count {
            assert_eq!(read(&store, &key(i)).unwrap(), body(i + u64::from(i % 2 == 0), 3000), "{preset} {i}");
        }
    }
}

#[test]
fn where_no_run_is_long_enough_an_object_is_cut() {
    for preset in IN_PLACE {
        let options = by_hand(preset, memory(4 * MIB, 512));
        let store = Store::open(options.clone()).unwrap();
        let count = (0..).take_while(|i| store.put(&key(*i), &body(*i, 1900)).is_ok()).count() as u64;
        // Every second slot is free: a third of a MiB, four blocks at a time.
        for i in (0..count).step_by(2) {
            store.delete(&key(i)).unwrap();
        }
        store.flush().unwrap();
        let before = store.stats().objects;
        store.put(b"long", &body(1, 60_000)).unwrap();
        assert_eq!(read(&store, b"long").unwrap(), body(1, 60_000), "{preset}");
        store.close().unwrap();
        let store = Store::open(options).unwrap();
        assert_eq!(read(&store, b"long").unwrap(), body(1, 60_000), "{preset}");
        assert_eq!(read(&store, &key(1)).unwrap(), body(1, 1900), "{preset}");
        assert!(store.delete(b"long").unwrap());
        assert_eq!(store.stats().objects, before, "{preset}: no piece stays behind");
    }
}

#[test]
fn many_puts_at_once_stay_within_the_memory_of_a_store_in_tables() {
    let device = FaultyDevice::with_clock(memory(256 * MIB, 512), 1, Clock::real());
    device.add(Rule::since(Fault::Delay(On::Sync, Duration::from_millis(5)), 1));
    let options = by_hand("pmflf-ts", Arc::new(device)).memory(32 * MIB);
    let store = Store::open(options).unwrap();
    let (most, limit) = thread::scope(|scope| {
        let putters: Vec<_> = (0..48)
            .map(|thread| {
                let store = store.clone();
                scope.spawn(move || {
                    (0..4).for_each(|i| store.put(&key(thread * 10 + i), &body(i, 900_000)).unwrap());
                })
            })
            .collect();
        let mut most = 0;
        while putters.iter().any(|putter| !putter.is_finished()) {
            most = most.max(store.stats().memory_used);
            thread::sleep(Duration::from_millis(1));
        }
        (most, store.stats().memory_limit)
    });
    assert!(most > 8 * MIB && most <= limit, "{most} bytes of {limit}");
    (0..48).for_each(|thread| assert_eq!(read(&store, &key(thread * 10 + 3)).unwrap(), body(3, 900_000)));
}
