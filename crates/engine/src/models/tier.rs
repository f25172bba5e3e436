//! The memory tier: no get is answered with a version that was replaced or deleted before it began, and what is held
//! is what is charged, while others fill it and make room.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use parking_lot::Mutex;
use picaflor_format::frame::{HEADER, Header, Kind};

use super::{draw, finds, holds, shuttle::thread};
use crate::{
    base::{frame::Frame, group::Priority, policy::Retention},
    cache::memory::{GONE, Memory},
};

const KEYS: usize = 3;
const ROOM: u64 = 1200;

/// What an index is to the tier: the version of each key, 0 for none.
struct Store {
    memory: Memory,
    current: [Mutex<u64>; KEYS],
    /// One put or delete of a key at a time.
    stripes: [Mutex<()>; KEYS],
    /// The last version of which a put or delete returned, doubled; odd if it was deleted.
    told: [AtomicU64; KEYS],
    next: AtomicU64,
}

fn frame(key: usize, version: u64) -> Arc<Frame> {
    let header = Header {
        mark: 0,
        generation: version,
        expires: 0,
        body_len: 100,
        meta_len: 0,
        key_len: 1,
        kind: Kind::Whole,
        group: 0,
        server: 0,
        payload_crc: 0,
    };
    let mut bytes = vec![0; HEADER + 101];
    header.encode(&mut bytes);
    bytes[HEADER] = key as u8;
    Arc::new(Frame::new(key as u64, header, bytes.into()))
}

impl Store {
    fn priority(&self) -> Priority {
        [Priority::Neither, Priority::Loved, Priority::Hated][draw(0..3) as usize]
    }

    fn put(&self, key: usize) {
        let _stripe = self.stripes[key].lock();
        let version = self.next.fetch_add(1, SeqCst) + 1;
        *self.current[key].lock() = version;
        self.memory.insert(&frame(key, version), self.priority(), || *self.current[key].lock() == version);
        self.told[key].store(2 * version, SeqCst);
    }

    fn delete(&self, key: usize) {
        let _stripe = self.stripes[key].lock();
        let version = self.next.fetch_add(1, SeqCst) + 1;
        *self.current[key].lock() = 0;
        self.memory.remove(key as u64);
        self.told[key].store(2 * version + 1, SeqCst);
    }

    /// The fault: what was read from the device goes in without a look whether it is current still.
    fn get(&self, key: usize, fault: bool) {
        let before = self.told[key].load(SeqCst);
        if let Some(found) = self.memory.get(key as u64, &[key as u8]) {
            let found = found.header.generation;
            let told = before / 2;
            assert!(found >= told && (found != told || before.is_multiple_of(2)), "an old version: {found}, {before}");
            return;
        }
        let version = *self.current[key].lock();
        if version != 0 {
            thread::yield_now();
            let is_current = || fault || *self.current[key].lock() == version;
            self.memory.insert(&frame(key, version), self.priority(), is_current);
        }
    }
}

fn work(store: &Store, fault: bool) {
    for _ in 0..5 {
        let key = draw(0..KEYS as u64) as usize;
        match draw(0..6) {
            0 => store.put(key),
            1 => store.delete(key),
            2 => drop(store.memory.shrink(ROOM / 2)),
            _ => store.get(key, fault),
        }
    }
}

fn model(fault: bool) {
    let retention = [Retention::S3Fifo, Retention::Lru][draw(0..2) as usize];
    let store = Arc::new(Store {
        memory: Memory::new(retention, ROOM),
        current: Default::default(),
        stripes: Default::default(),
        told: Default::default(),
        next: AtomicU64::new(0),
    });
    let empty = store.memory.held();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let store = Arc::clone(&store);
            thread::spawn(move || work(&store, fault))
        })
        .collect();
    threads.into_iter().for_each(|thread| thread.join().unwrap());
    let here: u64 = (0..KEYS as u64).filter_map(|key| store.memory.peek(key)).map(|frame| frame.charge()).sum();
    // What has gone may be in a queue still, and counts until it comes out.
    let is_held = |here: u64| {
        let queued = store.memory.held() - empty - here;
        queued.is_multiple_of(GONE) && queued <= 15 * GONE
    };
    assert!(is_held(here), "charged for what is not held");
    store.memory.shrink(0);
    assert!(store.memory.len() == 0 && is_held(0), "charged for what is not held");
}

#[test]
fn tier() {
    holds("tier", || model(false));
}

#[test]
fn canary_tier() {
    finds("canary_tier", "an old version", || model(true));
}
