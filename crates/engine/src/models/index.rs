//! The index: a key that is there is found by every look, wherever it moves, while others come and go and the segment
//! grows.

use std::sync::Arc;

use super::{draw, finds, holds, shuttle::thread};
use crate::index::{Entered, Index, Location};

/// Keys of each writer. All lie in one segment.
const KEYS: u64 = 4;
const WRITERS: u64 = 2;

/// Some have the same place, so that only their locations tell them apart.
fn hash(writer: u64, key: u64) -> u64 {
    let place = (writer * KEYS + key) % (KEYS + 1);
    place.wrapping_mul(0x9e37_79b9) & 0xff_ffff
}

fn grain(writer: u64, key: u64, version: u64) -> u64 {
    (writer * KEYS + key) << 8 | version
}

fn at(writer: u64, key: u64, version: u64) -> Location {
    Location::OnDisk { grain: grain(writer, key, version) }
}

/// Whether a look finds some version of this key.
fn is_seen(index: &Index, writer: u64, key: u64) -> bool {
    let own = grain(writer, key, 0) >> 8;
    let is_own = |location| matches!(location, Location::OnDisk { grain } if grain >> 8 == own);
    index.touch(hash(writer, key)).iter().any(|entry| is_own(entry.location()))
}

fn write(index: &Index, writer: u64, fault: bool) {
    // The version that the index must hold; of the first key there is always one.
    let mut versions = [1; KEYS as usize];
    for step in 2..8 {
        let key = if draw(0..2) == 0 { 0 } else { draw(1..KEYS) };
        let known = &mut versions[key as usize];
        let (hash, new) = (hash(writer, key), at(writer, key, step));
        let old = index.find(hash, at(writer, key, *known));
        assert_eq!(old.is_some(), *known != 0, "version {known} of key {key} of writer {writer}");
        match (old, draw(0..3)) {
            (Some(old), 0) if key != 0 => {
                assert!(index.remove(hash, old).is_some());
                *known = 0;
                continue;
            }
            // The fault: two steps in the place of one.
            (Some(old), _) if fault => {
                index.remove(hash, old);
                index.put(hash, new, 3, None);
            }
            (Some(old), 1) => assert!(index.change(hash, old, |entry| entry.at(new)).is_some()),
            (old, _) => {
                let entered = index.put(hash, new, 3, old);
                assert_eq!(entered, if old.is_some() { Entered::Replaced } else { Entered::Added });
            }
        }
        *known = step;
    }
    for (key, known) in versions.into_iter().enumerate() {
        let found = index.find(hash(writer, key as u64), at(writer, key as u64, known));
        assert_eq!(found.is_some(), known != 0, "key {key} of writer {writer} in the end");
    }
}

fn model(fault: bool) {
    let index = Arc::new(Index::new(1, Arc::default()));
    for writer in 0..WRITERS {
        for key in 0..KEYS {
            index.put(hash(writer, key), at(writer, key, 1), 3, None);
        }
    }
    let writers = (0..WRITERS).map(|writer| {
        let index = Arc::clone(&index);
        thread::spawn(move || write(&index, writer, fault))
    });
    let mut threads: Vec<_> = writers.collect();
    let looks = Arc::clone(&index);
    threads.push(thread::spawn(move || {
        for _ in 0..4 {
            let writer = draw(0..WRITERS);
            assert!(is_seen(&looks, writer, 0), "a key that is there is not found: of writer {writer}");
        }
    }));
    let grows = Arc::clone(&index);
    threads.push(thread::spawn(move || {
        grows.reserve(0, 500);
        let mut seen = 0;
        grows.for_each(|_| seen += 1);
        assert!(seen >= WRITERS, "the first keys are there");
    }));
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let mut left = 0;
    index.for_each(|_| left += 1);
    assert_eq!(left, index.objects());
}

#[test]
fn index() {
    holds("index", || model(false));
}

#[test]
fn canary_index() {
    finds("canary_index", "a key that is there is not found", || model(true));
}
