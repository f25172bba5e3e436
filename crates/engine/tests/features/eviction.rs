//! Eviction of the default: what stays in a cache that is smaller than what is put.

use std::sync::Arc;

use picaflor::{Store, device::MemoryDevice};

use crate::common::{MIB, body, by_hand, bypass, key};

const LEN: usize = 20_000;

/// A cache of 2,048 clusters, by whose memory little is hit.
fn cache() -> Store {
    Store::open(by_hand(Arc::new(MemoryDevice::new(128 * MIB))).memory(4 * MIB)).unwrap()
}

fn put(store: &Store, i: u64, len: usize) {
    store.put_with(&key(i), &body(i, len), &bypass()).unwrap();
    store.step().unwrap();
}

/// Whether it is found, and whole.
fn is_found(store: &Store, i: u64, len: usize) -> bool {
    let found = store.get(&key(i)).unwrap();
    found.is_some_and(|object| object.body().is_ok_and(|found| found == body(i, len)))
}

#[test]
fn what_is_asked_for_stays_while_what_is_not_goes_by() {
    let store = cache();
    // A quarter of the device, which what is put goes over four times.
    let hot = 32 * MIB / LEN as u64;
    (0..hot).for_each(|i| put(&store, i, LEN));
    let before = store.stats().counts;
    let (rounds, mut hits) = (16, 0);
    for i in 0..rounds * hot {
        if is_found(&store, i % hot, LEN) {
            hits += 1;
        } else {
            put(&store, i % hot, LEN);
        }
        put(&store, hot + i, LEN);
    }
    let counts = store.stats().counts;
    let written = (counts.device_written - before.device_written) as f64 / (counts.put_bytes - before.put_bytes) as f64;
    println!("{hits} of {} hits, {written:.3} bytes written for each byte put", rounds * hot);
    assert!(hits > rounds * hot * 9 / 10, "{hits} of {}", rounds * hot);
    assert!(written < 1.3, "{written}");
}

#[test]
fn what_is_large_stays_whole_or_leaves() {
    let store = cache();
    let len = 1_500_000;
    for round in 0..12u64 {
        for i in 0..60 {
            if i % 3 > 0 || !is_found(&store, i, len) {
                put(&store, if i % 3 > 0 { 1000 + round * 60 + i } else { i }, len);
            }
        }
    }
    let stats = store.stats();
    assert!(stats.counts.evicted > 1000 && stats.counts.reinserted > 100, "{stats:?}");
    assert_eq!(stats.misses["chunk missing"], 0, "{stats:?}");
    let live: u64 = (0..2000).map(|i| if is_found(&store, i, len) { len as u64 } else { 0 }).sum();
    let room = stats.volumes[0].room_bytes;
    println!("{live} bytes of whole objects have {} in {room}", stats.volumes[0].live_bytes);
    assert!(live * 10 > stats.volumes[0].live_bytes * 9, "pieces of what is gone take room");
}

#[test]
fn room_of_what_was_deleted_is_used_again_wherever_it_was() {
    let store = cache();
    let all = 160 * MIB / LEN as u64;
    for i in 0..all {
        put(&store, i, LEN);
        // Most of it is in main.
        assert!(i < 1000 || is_found(&store, i - 1000, LEN));
    }
    let live = |store: &Store| store.stats().volumes[0].live_bytes;
    let before = live(&store);
    (0..all).filter(|i| i % 10 > 0).for_each(|i| assert!(store.delete(&key(i)).is_ok()));
    store.flush().unwrap();
    assert!(live(&store) < before / 5);
    let evicted = store.stats().counts.evicted;
    (all..all + 96 * MIB / LEN as u64).for_each(|i| put(&store, i, LEN));
    println!("{before} bytes lived, {} live, {} were evicted", live(&store), store.stats().counts.evicted - evicted);
    assert!(live(&store) > before * 8 / 10, "{} of {before}", live(&store));
}
