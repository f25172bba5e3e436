//! Of what waits in memory, and of what has a place of its own, the log alone tells after a crash which version of a
//! key stands. What leaves without a new version is told there before others have its place, or an older one shows.

use std::{collections::HashMap, sync::Arc};

use picaflor::{
    Mode, Options, PutOptions, Store,
    device::{AlignedBuf, Device, MemoryDevice},
};
use picaflor_common::Hasher;
use picaflor_format::{BLOCK, zone::SLOT};
use picaflor_sim::{Fault, FaultyDevice, Rule, kill};

use crate::common::{IN_PLACE, MIB, body, by_hand, key, memory, read};

/// Bytes of the older version, whose place is too small for the others, and of the newer one.
const OLDER: usize = 300;
const NEWER: usize = 30_000;

/// Keys of what lies before the older version and behind it, so that its place stays too small.
const NEIGHBOURS: [u64; 2] = [90, 91];

/// Rows that tell by a log.
fn told() -> impl Iterator<Item = &'static str> {
    IN_PLACE.into_iter().filter(|preset| *preset != "buddy-scan")
}

fn cache(preset: &str, device: Arc<dyn Device>) -> Options {
    by_hand(preset, device).mode(Mode::Cache)
}

fn place_of(device: &MemoryDevice, body: &[u8]) -> u64 {
    let mut image = AlignedBuf::zeroed(device.capacity() as usize);
    device.read(0, &mut image).unwrap();
    image.windows(body.len()).position(|bytes| bytes == body).expect("it is on the device") as u64
}

fn put(store: &Store, key: &[u8], seed: u64, len: usize) {
    store.put(key, &body(seed, len)).unwrap();
    store.flush().unwrap();
}

/// Puts both versions.
fn put_both(store: &Store, own: &[u8]) {
    put(store, &key(NEIGHBOURS[0]), 90, OLDER);
    put(store, own, 1, OLDER);
    put(store, &key(NEIGHBOURS[1]), 91, OLDER);
    put(store, own, 2, NEWER);
}

/// Puts others until one of them has the place of the newer version, which is `at`. Returns whether one got it.
fn give_its_place_away(store: &Store, device: &MemoryDevice, at: u64) -> bool {
    let is_there = || {
        let mut block = AlignedBuf::zeroed(BLOCK);
        device.read(at / SLOT * SLOT, &mut block).unwrap();
        block[(at % SLOT) as usize..][..100] == body(2, NEWER)[..100]
    };
    for i in 100..800 {
        if !is_there() {
            return true;
        }
        store.put(&key(i), &body(i, NEWER)).unwrap();
        // No checkpoint: it would know nothing of the older version. What lies around that stays.
        NEIGHBOURS.iter().for_each(|i| assert!(store.get(&key(*i)).unwrap().is_some()));
        if i % 8 == 0 {
            store.flush().unwrap();
        }
    }
    false
}

/// Two keys of one place in an index of this size: of its 64 bits the index looks at these.
fn twins() -> [Vec<u8>; 2] {
    let mut seen = HashMap::new();
    for i in 0.. {
        let hash = Hasher::new(7).key(&key(i)).short();
        if let Some(other) = seen.insert((hash >> 62, hash & 0xff_ffff), i) {
            return [key(other), key(i)];
        }
    }
    unreachable!("there are more keys than places")
}

#[test]
fn another_key_of_its_place_in_the_index_brings_no_older_version_back() {
    let [own, other] = twins();
    for preset in told() {
        let device = memory(8 * MIB, 512);
        let options = cache(preset, device.clone());
        let store = Store::open(options.clone()).unwrap();
        put_both(&store, &own);
        let at = place_of(&device, &body(2, NEWER));
        put(&store, &other, 3, OLDER);
        give_its_place_away(&store, &device, at);
        store.flush().unwrap();
        kill(store);
        let store = Store::open(options).unwrap();
        let shown = read(&store, &own).map(|body| body.len());
        assert_ne!(shown, Some(OLDER), "{preset}");
    }
}

#[test]
fn nor_does_one_that_comes_while_the_newer_version_waits_in_a_buffer() {
    let [own, other] = twins();
    let rows = ["lazy-reads-loc", "stream", "picaflor", "hummingbird", "damelo"];
    for (preset, checkpoint) in rows.into_iter().flat_map(|preset| [(preset, false), (preset, true)]) {
        let options = cache(preset, memory(8 * MIB, 512));
        let store = Store::open(options.clone()).unwrap();
        put_both(&store, &own);
        if checkpoint {
            store.checkpoint().unwrap();
        }
        store.put(&own, &body(3, OLDER)).unwrap();
        store.put(&other, &body(4, OLDER)).unwrap();
        store.flush().unwrap();
        kill(store);
        let store = Store::open(options).unwrap();
        let shown = read(&store, &own);
        assert!(shown.is_none_or(|shown| shown == body(3, OLDER)), "{preset}, checkpoint {checkpoint}");
        assert_eq!(read(&store, &other), Some(body(4, OLDER)), "{preset}");
    }
}

#[test]
fn nor_where_the_older_version_lies_in_what_is_looked_at_longer() {
    let [own, other] = twins();
    let group = |group| PutOptions::new().group(group);
    for (preset, in_open) in [("picaflor", true), ("picaflor", false), ("damelo", true), ("damelo", false)] {
        let options = cache(preset, memory(8 * MIB, 512));
        let store = Store::open(options.clone()).unwrap();
        let put = |key: &[u8], seed, len, of| {
            store.put_with(key, &body(seed, len), &group(of)).unwrap();
            store.flush().unwrap();
        };
        // That of the newer version was opened first, is filled, and leaves the log. That of the older one is open
        // longer, or another one that was opened before it.
        put(&key(90), 90, OLDER, 1);
        put(&key(92), 92, OLDER, 3);
        put(&own, 1, OLDER, 2);
        if !in_open {
            put(&key(93), 93, 60_000, 2);
        }
        put(&own, 2, NEWER, 1);
        put(&key(91), 91, 27_000, 1);
        assert_eq!(store.stats().counts.clusters_sealed, 2 - u64::from(in_open), "{preset}, {in_open}");
        put(&other, 3, OLDER, 2);
        // The first checkpoint that comes unasked seals none that is open.
        (200..240).for_each(|i| store.put_with(&key(i), &body(i, NEWER), &group(1)).unwrap());
        while store.stats().counts.checkpoints == 0 {
            assert!(store.step().unwrap(), "{preset}, {in_open}");
        }
        store.flush().unwrap();
        kill(store);
        let store = Store::open(options).unwrap();
        assert!(read(&store, &own).is_none_or(|shown| shown == body(2, NEWER)), "{preset}, {in_open}");
        assert_eq!(read(&store, &other), Some(body(3, OLDER)), "{preset}, {in_open}");
    }
}

#[test]
fn nor_where_an_open_cluster_is_compacted() {
    let [own, other] = twins();
    let group = |group| PutOptions::new().group(group);
    let options = cache("damelo", memory(8 * MIB, 512));
    let store = Store::open(options.clone()).unwrap();
    put(&store, &own, 1, OLDER);
    store.put_with(&own, &body(2, NEWER), &group(1)).unwrap();
    store.put_with(&other, &body(3, OLDER), &group(2)).unwrap();
    // What finds no room has the dead dropped.
    for i in 100..110 {
        store.put_with(&key(i), &body(i, NEWER), &group(1)).unwrap();
        store.delete(&key(i)).unwrap();
    }
    assert!(store.stats().counts.compacted_bytes > 0);
    store.flush().unwrap();
    kill(store);
    let store = Store::open(options).unwrap();
    assert!(read(&store, &own).is_none_or(|shown| shown == body(2, NEWER)));
    assert_eq!(read(&store, &other), Some(body(3, OLDER)));
}

#[test]
fn a_version_that_an_opening_could_not_read_leaves_for_good() {
    for preset in told() {
        let inner = memory(8 * MIB, 512);
        let device = FaultyDevice::new(inner.clone(), 3);
        let options = cache(preset, Arc::new(device.clone()));
        let store = Store::open(options.clone()).unwrap();
        put_both(&store, &key(1));
        let at = place_of(&inner, &body(2, NEWER));
        kill(store);
        device.add(Rule::since(Fault::ReadError, 1).within(at..at + 1));
        let store = Store::open(options.clone()).unwrap();
        assert_eq!(store.receipt().volumes[0].dropped.unread, 2, "{preset}");
        device.clear_rules();
        assert!(give_its_place_away(&store, &inner, at), "{preset}");
        store.flush().unwrap();
        kill(store);
        let shown = read(&Store::open(options).unwrap(), &key(1)).map(|body| body.len());
        assert_eq!(shown, None, "{preset}");
    }
}
