//! A walk tells of every object that was there from its beginning to its end, whatever moves, is read in, is evicted
//! and is put meanwhile; and what left before a checkpoint stays away.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use picaflor::{
    Error, Options, Place, PutOptions, Store,
    device::{Device, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, Rule, kill};
use rand::Rng;

use crate::common::{MIB, body, by_hand, key, read, rng};

fn on(devices: &[Arc<FaultyDevice>], preset: &str) -> Options {
    let places = devices.iter().map(|device| Place::Device(device.clone() as Arc<dyn Device>)).collect();
    let options = by_hand(Arc::new(MemoryDevice::new(0))).rows(picaflor_literature::ROWS);
    options.as_preset(preset).unwrap().with(|options| options.places = places)
}

fn faulty(count: u64) -> Vec<Arc<FaultyDevice>> {
    (0..count).map(|i| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(12 * MIB)), i))).collect()
}

/// With metadata that say which one it is.
fn put(store: &Store, i: u64) {
    let len = if i.is_multiple_of(97) { 100_000 } else { 500 + i as usize * 37 % 9000 };
    let options = PutOptions::new().metadata(i.to_le_bytes().to_vec()).group((i % 3) as u32);
    let _ = store.put_with(&key(i), &body(i, len), &options);
}

#[test]
fn none_is_missed_while_all_of_them_move() {
    for (preset, volumes) in [("picaflor", 1), ("picaflor", 2), ("hummingbird", 1), ("damelo", 1)] {
        let devices = faulty(volumes);
        let store = Store::open(on(&devices, preset)).unwrap();
        let (mut rng, mut next) = (rng(5), 0);
        let mut stayed = 0;
        for round in 0..6 {
            for _ in 0..1500 {
                put(&store, next);
                next += 1;
                store.step().unwrap();
            }
            let oldest = next.saturating_sub(5000);
            let before: Vec<u64> = (oldest..next).filter(|i| store.contains(&key(*i)).unwrap()).collect();
            let (mut walk, mut told, mut again) = (store.walk().unwrap(), HashSet::new(), HashSet::new());
            while let Some(found) = walk.next_place() {
                for found in found {
                    let i = u64::from_le_bytes(found.metadata[..].try_into().unwrap());
                    assert_eq!(found.key, key(i));
                    told.insert(i);
                }
                // What is asked for is read in, and put again when its cluster is emptied.
                for _ in 0..rng.random_range(0..12) {
                    let i = rng.random_range(oldest..next);
                    read(&store, &key(i));
                }
                match rng.random_range(0..40) {
                    0..14 => {
                        put(&store, next);
                        next += 1;
                    }
                    14 => {
                        let i = rng.random_range(oldest..next);
                        put(&store, i);
                        again.insert(i);
                    }
                    15 => {
                        store.delete(&key(rng.random_range(oldest..next))).unwrap();
                    }
                    _ => {}
                }
                store.step().unwrap();
            }
            assert_eq!(walk.unreadable(), 0, "{preset}, {volumes}, round {round}");
            let still = |i: &&u64| !again.contains(i) && store.contains(&key(**i)).unwrap();
            for i in before.iter().filter(still) {
                assert!(told.contains(i), "{preset}, {volumes}, round {round}: {i} of {next}");
                stayed += 1;
            }
        }
        assert!(stayed > 2000, "{preset}: {stayed}");
        assert!(store.stats().counts.evicted > 2000, "{preset}");
    }
}

#[test]
fn a_listing_misses_none_while_all_of_them_move() {
    for (preset, volumes) in
        [("picaflor", 1), ("picaflor", 2), ("hummingbird", 1), ("damelo", 1), ("buddy", 1), ("stream", 1)]
    {
        let store = Store::open(on(&faulty(volumes), preset)).unwrap();
        let (mut next, mut stayed, mut twice) = (0, 0, 0);
        for round in 0..4 {
            for _ in 0..1500 {
                put(&store, next);
                next += 1;
                store.step().unwrap();
            }
            let before: Vec<u64> = (0..next).filter(|i| store.contains(&key(*i)).unwrap()).collect();
            let (mut keys, mut told) = (store.keys(), HashMap::<_, u32>::new());
            for entry in keys.by_ref() {
                *told.entry(entry.key).or_default() += 1;
                if told.len().is_multiple_of(50) {
                    put(&store, next);
                    next += 1;
                }
                store.step().unwrap();
            }
            assert_eq!(keys.unreadable(), 0, "{preset}, {volumes}, round {round}");
            for i in before.iter().filter(|i| store.contains(&key(**i)).unwrap()) {
                let times = told.get(&key(*i)[..]).copied().unwrap_or_default();
                assert!((1..=2).contains(&times), "{preset}, {volumes}, round {round}: {i} of {next}: {times} times");
                stayed += 1;
                twice += times - 1;
            }
        }
        assert!(stayed > 1000 && twice < stayed / 10, "{preset}: {twice} of {stayed}");
    }
}

/// What lay in a buffer when its cluster's turn was lies in that cluster since.
#[test]
fn a_listing_misses_none_that_is_flushed_meanwhile() {
    for preset in ["picaflor", "hummingbird", "damelo", "buddy", "stream"] {
        for first in (0..300).step_by(20) {
            let store = Store::open(on(&faulty(1), preset)).unwrap();
            (0..300).for_each(|i| put(&store, i));
            let mut keys = store.keys();
            let mut listed: Vec<_> = keys.by_ref().take(first).map(|entry| entry.key).collect();
            store.flush().unwrap();
            store.checkpoint().unwrap();
            listed.extend(keys.map(|entry| entry.key));
            listed.sort();
            let mut all: Vec<_> = (0..300).map(key).collect();
            all.sort();
            assert!(listed == all, "{preset}, after {first}: {} listed", listed.len());
        }
    }
}

#[test]
fn a_place_that_cannot_be_read_is_counted() {
    let devices = faulty(1);
    let store = Store::open(on(&devices, "picaflor")).unwrap();
    (0..3000).for_each(|i| {
        put(&store, i);
        store.step().unwrap();
    });
    let unreadable = || {
        let mut walk = store.walk().unwrap();
        while walk.next_place().is_some() {}
        walk.unreadable()
    };
    assert_eq!(unreadable(), 0);
    devices[0].add(Rule::rate(Fault::ReadError, 1.0));
    assert!(unreadable() > 0);
    devices[0].clear_rules();
    assert_eq!(unreadable(), 0);
}

#[test]
fn a_device_that_a_cache_gave_up_is_left_out() {
    let devices = faulty(2);
    let store = Store::open(on(&devices, "picaflor")).unwrap();
    (0..2000).for_each(|i| {
        put(&store, i);
        store.step().unwrap();
    });
    devices[1].add(Rule::nth(Fault::SyncError, 1));
    devices[1].add(Rule::rate(Fault::ReadError, 1.0));
    let _ = store.flush();
    let (mut walk, mut told) = (store.walk().unwrap(), HashSet::new());
    while let Some(found) = walk.next_place() {
        told.extend(found.into_iter().map(|found| found.key));
    }
    let there: Vec<u64> = (0..2000).filter(|i| store.contains(&key(*i)).unwrap()).collect();
    assert!(walk.unreadable() == 0 && (500..1500).contains(&there.len()), "{}", there.len());
    there.iter().for_each(|i| assert!(told.contains(&key(*i)[..]), "{i}"));
    store.checkpoint().unwrap();
}

#[test]
fn what_left_before_a_checkpoint_stays_away_after_a_crash() {
    let devices = faulty(2);
    let mut returned = [0, 0];
    for is_checkpointed in [false, true] {
        let store = Store::open(on(&devices, "picaflor")).unwrap();
        for i in 0..6000 {
            put(&store, i);
            store.step().unwrap();
        }
        let gone: Vec<u64> = (0..6000).filter(|i| !store.contains(&key(*i)).unwrap()).collect();
        assert!(gone.len() > 1000);
        if is_checkpointed {
            store.checkpoint().unwrap();
        }
        FaultyDevice::crash_all(&devices).unwrap();
        kill(store);
        devices.iter().for_each(|device| device.revive().unwrap());
        let store = Store::open(on(&devices, "picaflor")).unwrap();
        returned[usize::from(is_checkpointed)] = gone.iter().filter(|i| store.contains(&key(**i)).unwrap()).count();
        for i in 0..6000 {
            store.delete(&key(i)).unwrap();
        }
        store.close().unwrap();
    }
    assert!(returned[0] > 0, "or this shows nothing");
    assert_eq!(returned[1], 0);
}

#[test]
fn layouts_without_clusters_say_so() {
    let store = Store::open(on(&faulty(1), "buddy")).unwrap();
    assert!(matches!(store.walk(), Err(Error::Option { name: "preset", .. })));
}
