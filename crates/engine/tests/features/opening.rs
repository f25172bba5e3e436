//! A cache that comes back from a crash answers gets before it has merged what it found.

use std::{sync::Arc, time::Duration};

use picaflor::{
    Durability, Miss, Mode, Options, Store, TryGet,
    device::{CountedDevice, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, Rule, kill};

use crate::common::{MIB, body, by_hand, key, read, twins};

const OLD: u64 = 2000;

/// A cache of 2,000 objects at its checkpoint, of which every fifth was replaced since, every seventh was deleted, and
/// to which half as many came; all durable, and then the process died.
fn crashed(options: &Options) {
    let store = Store::open(options.clone()).unwrap();
    (0..OLD).for_each(|i| store.put(&key(i), &body(i, 700)).unwrap());
    store.close().unwrap();
    let store = Store::open(options.clone()).unwrap();
    for i in 0..OLD / 2 * 3 {
        if i >= OLD || i.is_multiple_of(5) {
            store.put(&key(i), &body(i + 1, 900)).unwrap();
        } else if i.is_multiple_of(7) {
            store.delete(&key(i)).unwrap();
        }
    }
    store.flush().unwrap();
    kill(store);
}

fn expected(i: u64) -> Option<Vec<u8>> {
    match i {
        _ if i >= OLD || i.is_multiple_of(5) => Some(body(i + 1, 900)),
        _ if i.is_multiple_of(7) => None,
        _ => Some(body(i, 700)),
    }
}

/// Until it is known what is in the store, memory alone cannot say of a key that it is not.
fn is_over(store: &Store) -> bool {
    matches!(store.try_get(b"nobody's key"), TryGet::Absent(Miss::Absent))
}

#[test]
fn gets_are_answered_before_the_merge_and_see_what_they_would_after_it() {
    let device = CountedDevice::new(Arc::new(MemoryDevice::new(32 * MIB)));
    let options = by_hand(Arc::new(device.clone())).durability(Durability::None);
    crashed(&options);
    let store = Store::open(options.clone()).unwrap();
    for i in 0..OLD / 2 * 3 {
        assert_eq!(read(&store, &key(i)), expected(i), "{i}");
    }
    assert!(!is_over(&store), "gets alone do not end the opening");
    let receipt = &store.receipt().volumes[0];
    assert!(is_over(&store));
    assert_eq!((receipt.dropped.replaced, receipt.dropped.deleted), (OLD / 5, OLD / 7 - OLD / 35));
    assert_eq!(store.stats().objects, receipt.objects);
    for i in 0..OLD / 2 * 3 {
        assert_eq!(read(&store, &key(i)), expected(i), "{i}, merged");
    }
    drop(store);
    // A put, a delete, a flush, or a step of the daemons ends it too.
    let endings: [fn(&Store) -> bool; 4] = [
        |store| store.put(&key(9), &body(9, 700)).is_ok(),
        |store| store.delete(&key(OLD * 2)).is_ok(),
        |store| store.flush().is_ok(),
        |store| store.step().is_ok(),
    ];
    for (number, ending) in endings.into_iter().enumerate() {
        let device = Arc::new(MemoryDevice::new(32 * MIB));
        let options = by_hand(device);
        crashed(&options);
        let store = Store::open(options).unwrap();
        assert!(!is_over(&store));
        assert!(ending(&store) && is_over(&store), "{number}");
        assert_eq!(read(&store, &key(10)), expected(10));
    }
}

#[test]
fn the_first_get_reads_little() {
    let device = CountedDevice::new(Arc::new(MemoryDevice::new(32 * MIB)));
    let options = by_hand(Arc::new(device.clone()));
    crashed(&options);
    let store = Store::open(options).unwrap();
    let before = device.counts().reads;
    assert_eq!(read(&store, &key(OLD + 1)), expected(OLD + 1));
    let first = device.counts().reads - before;
    store.stats();
    let all = device.counts().reads - before;
    // Each object that was replaced costs the merge a read of what is at the checkpoint; a store as small as this one
    // is merged in four parts.
    assert!(all > OLD / 5 && first <= all / 3, "{first} of {all} reads");
}

#[test]
fn what_the_merge_cannot_read_is_a_miss_and_no_older_version() {
    let faulty = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 3));
    let options = by_hand(faulty.clone());
    crashed(&options);
    let store = Store::open(options.clone()).unwrap();
    faulty.add(Rule::rate(Fault::ReadError, 1.0));
    let unread = (0..OLD).filter(|i| i % 5 == 0 && read(&store, &key(*i)).is_none()).count() as u64;
    assert_eq!(unread, OLD / 5);
    faulty.clear_rules();
    for i in (0..OLD).step_by(5) {
        assert_eq!(read(&store, &key(i)), None, "{i}: neither version can be told from the other any more");
    }
    // The rest is not touched by it, but for those whose part of the hashes was merged without the device.
    let found = (OLD..OLD / 2 * 3).filter(|i| read(&store, &key(*i)) == expected(*i)).count() as u64;
    let receipt = &store.receipt().volumes[0];
    assert!(!receipt.dropped.cold_start && receipt.dropped.unread >= OLD / 5, "{receipt:?}");
    // One of them has the place of an old object in the index, and could have been a version of that.
    assert!(found >= OLD / 2 - 1, "{found}");
    // Where something else is put, the newer versions stay as witnesses: a crash must not bring back the older ones.
    (OLD * 2..OLD * 3).for_each(|i| store.put(&key(i), &body(i, 900)).unwrap());
    store.flush().unwrap();
    kill(store);
    let store = Store::open(options).unwrap();
    for i in (0..OLD).step_by(5) {
        let found = read(&store, &key(i));
        assert!(found.is_none() || found == expected(i), "{i}: an older version");
    }
}

#[test]
fn an_entry_that_the_merge_cannot_read_may_be_of_any_key_of_its_place() {
    let (keys, mut missed) = (twins(7), 0);
    for (own, unreadable) in (0..2).flat_map(|own| (1..12).map(move |nth| (own, nth))) {
        let faulty = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 1));
        let options = by_hand(faulty.clone());
        let put = |key: usize, version, len| {
            let store = Store::open(options.clone()).unwrap();
            store.put(&keys[key], &body(version, len)).unwrap();
            store
        };
        put(1 - own, 1, 900).close().unwrap();
        put(own, 1, 700).close().unwrap();
        // Large objects are merged last.
        let store = put(own, 2, 300_000);
        store.put(&keys[own], &body(3, 800)).unwrap();
        store.put(&keys[1 - own], &body(3, 900)).unwrap();
        store.flush().unwrap();
        kill(store);
        let store = Store::open(options).unwrap();
        faulty.add(Rule::nth(Fault::ReadError, unreadable));
        let _ = (store.get(&keys[0]), store.get(&keys[1]));
        faulty.clear_rules();
        for (key, len) in [(own, 800), (1 - own, 900)] {
            let found = read(&store, &keys[key]);
            assert!(
                found.is_none() || found == Some(body(3, len)),
                "{own}, {unreadable}: key {key} is of an older version"
            );
            missed += u64::from(found.is_none());
        }
    }
    assert!(missed > 4, "{missed}");
}

#[test]
fn a_store_merges_before_it_opens() {
    let options = by_hand(Arc::new(MemoryDevice::new(32 * MIB))).mode(Mode::Store);
    crashed(&options);
    let store = Store::open(options).unwrap();
    assert!(is_over(&store));
    assert!((0..OLD / 2 * 3).all(|i| read(&store, &key(i)) == expected(i)));
}

#[test]
fn a_pause_takes_a_checkpoint_so_that_a_crash_leaves_little_to_scan() {
    let options = by_hand(Arc::new(MemoryDevice::new(32 * MIB))).durability(Durability::None);
    let store = Store::open(options.clone()).unwrap();
    let checkpoints = || store.stats().counts.checkpoints;
    let pause = |seconds| {
        options.clock.advance(Duration::from_secs(seconds));
        while store.step().unwrap() {}
    };
    // A sixteenth of the device would be twice as much.
    (0..500).for_each(|i| store.put(&key(i), &body(i, 2000)).unwrap());
    store.flush().unwrap();
    pause(0);
    assert_eq!(checkpoints(), 0);
    pause(5);
    assert_eq!(checkpoints(), 1);
    (0..10).for_each(|_| pause(60));
    assert_eq!(checkpoints(), 1, "nothing was written since");
    kill(store);
    let store = Store::open(options.clone()).unwrap();
    let receipt = store.receipt();
    assert!(receipt.volumes[0].scanned_clusters <= 2, "{receipt}");
}

#[test]
fn what_was_hot_in_the_last_run_is_what_an_opening_warms_however_many_hot_logs_the_one_before_wrote() {
    let options = by_hand(Arc::new(MemoryDevice::new(32 * MIB))).durability(Durability::None);
    crashed(&options);
    // After a crash a close takes two checkpoints, so it writes two hot logs.
    let store = Store::open(options.clone()).unwrap();
    (0..20).chain(0..20).for_each(|i| assert_eq!(read(&store, &key(i)), expected(i)));
    store.close().unwrap();
    let store = Store::open(options.clone()).unwrap();
    assert!(store.receipt().volumes[0].hot > 0);
    // Nothing is asked for in this run, and no daemon steps.
    store.close().unwrap();
    assert_eq!(Store::open(options).unwrap().receipt().volumes[0].hot, 0);
}

/// Of a store that is read alone no checkpoint is taken.
#[test]
fn what_is_hot_is_noted_by_the_clock_and_only_where_something_is_found() {
    const HALF_A_MINUTE: Duration = Duration::from_secs(30);
    let device = CountedDevice::new(Arc::new(MemoryDevice::new(64 * MIB)));
    let options = by_hand(Arc::new(device.clone()));
    let store = Store::open(options.clone()).unwrap();
    (0..4000).for_each(|i| store.put(&key(i), &body(i, 6000)).unwrap());
    store.close().unwrap();
    let store = Store::open(options.clone()).unwrap();
    let reads = |store: &Store, asked: std::ops::Range<u64>| {
        let before = device.counts().reads;
        asked.for_each(|i| assert!(read(store, &key(i)).is_some(), "{i}"));
        device.counts().reads - before
    };
    let rest = |store: &Store| while store.step().unwrap() {};
    rest(&store);
    for i in 0..20 {
        // In the first half nothing is asked for.
        if i >= 10 {
            (0..3).for_each(|_| _ = reads(&store, 500..550));
        }
        let before = device.counts();
        options.clock.advance(HALF_A_MINUTE);
        rest(&store);
        let now = device.counts();
        let written = (now.writes - before.writes, now.write_bytes - before.write_bytes);
        assert_eq!(written, if i < 10 { (0, 0) } else { (1, 64 << 10) }, "{i}");
    }
    kill(store);
    let store = Store::open(options).unwrap();
    rest(&store);
    assert_eq!(reads(&store, 500..550), 0, "the new ones are in memory");
    let cold = reads(&store, 1500..1550);
    assert!(cold > 0, "others are not");
}
