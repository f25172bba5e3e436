//! Groups: love and hate in memory, intervals of their own, settings that survive.

use std::{sync::Arc, time::Duration};

use picaflor::{
    CheckpointInterval, Durability, Priority, Store,
    device::{CountedDevice, MemoryDevice},
};
use picaflor_sim::FaultyDevice;

use crate::common::{MIB, body, by_hand, counted, in_group, key, pass};

/// Gets these and returns how many needed the device.
fn reads(store: &Store, device: &CountedDevice, keys: impl Iterator<Item = u64>, len: usize) -> u64 {
    let before = device.counts();
    for i in keys {
        assert_eq!(store.get(&key(i)).unwrap().unwrap().body().unwrap(), body(i, len), "{i}");
    }
    (device.counts() - before).reads
}

#[test]
fn loved_objects_stay_in_memory_while_a_scan_floods_it() {
    for asked_before in [true, false] {
        let (device, options) = counted(128 * MIB);
        let store = Store::open(options).unwrap();
        store.group(1).love();
        for i in 0..300 {
            store.put_with(&key(i), &body(i, 2000), &in_group(1)).unwrap();
            store.put_with(&key(1000 + i), &body(1000 + i, 2000), &in_group(2)).unwrap();
        }
        if asked_before {
            assert_eq!(reads(&store, &device, (0..300).chain(1000..1300), 2000), 0);
        }
        for i in 10_000..18_000 {
            store.put(&key(i), &body(i, 4000)).unwrap();
        }
        store.flush().unwrap();
        reads(&store, &device, 10_000..18_000, 4000);
        assert_eq!(reads(&store, &device, 0..300, 2000), 0, "loved, asked before: {asked_before}");
        let others = reads(&store, &device, 1000..1300, 2000);
        assert!(others > 100, "the flood pushed out the others: {others}");
        let stats = store.stats();
        assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
    }
}

#[test]
fn love_beyond_the_memory_keeps_the_cap() {
    let (_, options) = counted(128 * MIB);
    let store = Store::open(options).unwrap();
    store.group(1).love();
    for i in 0..6000 {
        store.put_with(&key(i), &body(i, 4000), &in_group(1)).unwrap();
        store.get(&key(i / 2)).unwrap().unwrap();
        let stats = store.stats();
        assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
    }
}

#[test]
fn what_is_loved_or_hated_when_it_is_in_memory_already_stays_longest_or_leaves_first() {
    for last in [Priority::Loved, Priority::Hated] {
        let (device, options) = counted(128 * MIB);
        let store = Store::open(options).unwrap();
        let (changed, others) = (0..400, 1000..1400);
        // What it was before: loved, then hated, is hated.
        store.group(1).set(if last == Priority::Hated { Priority::Loved } else { Priority::Neither });
        for i in changed.clone().chain(others.clone()) {
            let group = if i < 1000 { 1 } else { 2 };
            store.put_with(&key(i), &body(i, 2000), &in_group(group)).unwrap();
        }
        store.flush().unwrap();
        // Both are asked for, so that they are in memory one by one.
        assert_eq!(reads(&store, &device, changed.clone().chain(others.clone()), 2000), 0);
        store.group(1).set(last);
        // More than there is room for.
        let flood = if last == Priority::Loved { 10_000..18_000 } else { 10_000..11_200 };
        for i in flood.clone() {
            store.put(&key(i), &body(i, 4000)).unwrap();
        }
        store.flush().unwrap();
        reads(&store, &device, flood, 4000);
        let (others, changed) = (reads(&store, &device, others, 2000), reads(&store, &device, changed, 2000));
        match last {
            Priority::Loved => assert!(changed == 0 && others > 100, "loved: {changed} of 400 left, others: {others}"),
            _ => assert!(changed > 300 && others < changed, "hated: {changed} of 400 left, others: {others}"),
        }
    }
}

/// Objects of a working set that a scan of another group pushed out of memory.
fn pushed_out(hate: bool) -> (u64, u64) {
    let (device, options) = counted(128 * MIB);
    let store = Store::open(options).unwrap();
    if hate {
        store.group(2).hate();
    }
    for i in 0..400 {
        store.put(&key(i), &body(i, 2000)).unwrap();
    }
    for i in 10_000..14_000 {
        store.put_with(&key(i), &body(i, 4000), &in_group(2)).unwrap();
    }
    for i in 20_000..22_000 {
        store.put(&key(i), &body(i, 4000)).unwrap();
    }
    store.flush().unwrap();
    reads(&store, &device, 0..400, 2000);
    reads(&store, &device, 10_000..14_000, 4000);
    let working_set = reads(&store, &device, 0..400, 2000);
    (working_set, reads(&store, &device, 13_000..14_000, 4000))
}

#[test]
fn hated_objects_leave_first() {
    let (others, hated) = pushed_out(true);
    assert!(others <= 20, "{others} of the 400 others left for hated ones");
    assert!(hated >= 900, "only {hated} of 1,000 hated ones had left");
    let (others, _) = pushed_out(false);
    assert!(others >= 150, "without hate the scan pushes the others out: {others}");
}

#[test]
fn a_group_is_durable_within_its_own_interval() {
    let disk = FaultyDevice::new(Arc::new(MemoryDevice::new(64 * MIB)), 1);
    let bound = Durability::Bounded { time: Duration::from_secs(10), puts: u64::MAX };
    let options = by_hand(Arc::new(disk.clone())).durability(bound);
    let (clock, store) = (options.clock.clone(), Store::open(options.clone()).unwrap());
    store.group(1).set_checkpoint_interval(Some(Duration::from_millis(100)));
    store.group(2).set_checkpoint_interval(None);
    store.flush().unwrap();
    let syncs = |store: &Store| store.stats().counts.device_syncs;
    let before = syncs(&store);
    store.put_with(b"off", b"x", &in_group(2)).unwrap();
    pass(&store, &clock, Duration::from_secs(3600));
    assert_eq!(syncs(&store), before, "no sync for the sake of a group that is off");
    store.put(b"slow", b"x").unwrap();
    pass(&store, &clock, Duration::from_millis(9_900));
    assert_eq!(syncs(&store), before);
    store.put_with(b"fast", b"x", &in_group(1)).unwrap();
    clock.advance(Duration::from_millis(99));
    store.step().unwrap();
    assert_eq!(syncs(&store), before, "not before it is due");
    clock.advance(Duration::from_millis(1));
    store.step().unwrap();
    assert_eq!(syncs(&store), before + 1);
    disk.crash().unwrap();
    drop(store);
    disk.revive().unwrap();
    let store = Store::open(options).unwrap();
    assert!(store.contains(b"fast").unwrap());
}

#[test]
fn settings_survive_closing_and_crashing() {
    let disk = FaultyDevice::new(Arc::new(MemoryDevice::new(64 * MIB)), 2);
    let options = by_hand(Arc::new(disk.clone()));
    let reopen = |crash: bool, store: Store| {
        if crash {
            disk.crash().unwrap();
            drop(store);
            disk.revive().unwrap();
        } else {
            store.close().unwrap();
        }
        Store::open(options.clone()).unwrap()
    };
    let mut store = Store::open(options.clone()).unwrap();
    for (round, crash) in [false, true, false, true, true].into_iter().enumerate() {
        let round = round as u32;
        store.group(1).set([Priority::Loved, Priority::Neither][round as usize % 2]);
        store.group(2).hate();
        store.group(3).set_checkpoint_interval(None);
        store.group(4).set_checkpoint_interval(Some(Duration::from_millis(u64::from(round) + 5)));
        // Nothing else happens: the settings see to their own durability, as deletes do.
        pass(&store, &options.clock, Duration::from_millis(1100));
        store = reopen(crash, store);
        assert_eq!(store.group(1).priority(), [Priority::Loved, Priority::Neither][round as usize % 2], "{round}");
        assert_eq!(store.group(2).priority(), Priority::Hated);
        assert_eq!(store.group(3).checkpoint_interval(), CheckpointInterval::Off);
        let fourth = CheckpointInterval::Every(Duration::from_millis(u64::from(round) + 5));
        assert_eq!(store.group(4).checkpoint_interval(), fourth);
        assert_eq!(
            (store.group(5).priority(), store.group(5).checkpoint_interval()),
            (Priority::Neither, CheckpointInterval::OfStore)
        );
    }
}

#[test]
fn loved_objects_outlive_others_on_the_device() {
    let (_, options) = counted(16 * MIB);
    let store = Store::open(options.memory(2 * MIB)).unwrap();
    store.group(1).love();
    store.group(2).hate();
    for i in 0..200 {
        store.put_with(&key(i), &body(i, 2000), &in_group(1)).unwrap();
        store.put_with(&key(1000 + i), &body(i, 2000), &in_group(2)).unwrap();
        store.get(&key(1000 + i)).unwrap();
    }
    for i in 10_000..20_000 {
        store.put(&key(i), &body(i, 3000)).unwrap();
        store.step().unwrap();
    }
    let left = |range: std::ops::Range<u64>| range.filter(|i| store.contains(&key(*i)).unwrap()).count();
    assert_eq!(left(0..200), 200, "loved objects go round with the ring");
    assert_eq!(left(1000..1200), 0, "hated ones leave, used or not");
}
