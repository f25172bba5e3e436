//! Leases: as long as a handle is on a large object its chunks stay, whatever is replaced or evicted then; when the
//! last handle has gone nothing is left of what was replaced.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
};

use picaflor_common::KeyHash;
use picaflor_format::frame::{ChunkKey, Manifest};

use super::{draw, finds, holds, shuttle::thread};
use crate::cache::leases::{Leases, Left};

const VERSIONS: u64 = 4;
const CHUNKS: u32 = 3;
const PARENT: KeyHash = KeyHash(9);
/// More than all versions together.
const MOST: u64 = 10_000;

/// One key, whose object has chunks.
#[derive(Default)]
struct Object {
    leases: Arc<Leases>,
    /// The version that a get finds; from 0.
    current: AtomicU64,
    /// By version and number.
    chunks: [[AtomicBool; CHUNKS as usize]; VERSIONS as usize],
}

impl Object {
    fn put(&self, version: u64) {
        self.chunks[version as usize].iter().for_each(|chunk| chunk.store(true, SeqCst));
        self.current.store(version, SeqCst);
    }

    fn drop_chunks(&self, version: u64) {
        for chunk in &self.chunks[version as usize] {
            chunk.store(false, SeqCst);
            thread::yield_now();
        }
    }

    /// The fault: chunks of what is replaced go, whether or not a handle is on it.
    fn write(&self, fault: bool) {
        for version in 1..VERSIONS {
            self.put(version);
            let old = Left { parent: PARENT, manifest: manifest(version - 1), home: 0 };
            match fault {
                true => self.drop_chunks(version - 1),
                false => self.leases.drop_or_leave(old, MOST, || self.drop_chunks(version - 1)),
            }
            thread::yield_now();
        }
    }

    fn read(&self) {
        for _ in 0..VERSIONS {
            let version = self.current.load(SeqCst);
            thread::yield_now();
            let Some(_lease) = self.leases.take(PARENT, manifest(version)) else { continue };
            let chunks = &self.chunks[version as usize];
            if !chunks.iter().all(|chunk| chunk.load(SeqCst)) {
                continue;
            }
            for chunk in chunks {
                thread::yield_now();
                assert!(chunk.load(SeqCst), "a chunk of an object with a handle is gone");
            }
        }
    }

    fn evict(&self) {
        for _ in 0..VERSIONS {
            let (id, number) = (draw(0..VERSIONS), draw(0..CHUNKS.into()) as u32);
            let key = ChunkKey { parent: PARENT.0, id, number }.encode();
            if let Some(_no_new) = self.leases.keep(&key, MOST) {
                thread::yield_now();
                self.chunks[id as usize][number as usize].store(false, SeqCst);
            }
        }
    }

    /// What the daemon does.
    fn tidy(&self) {
        self.leases.drop_over(0, |left| self.drop_chunks(left.manifest.id));
    }
}

fn manifest(version: u64) -> Manifest {
    Manifest { id: version, total: 1000, chunk: 400, tail: 0 }
}

fn model(fault: bool) {
    let object = Arc::new(Object::default());
    object.put(0);
    let spawn = |act: fn(&Object, bool)| {
        let object = Arc::clone(&object);
        thread::spawn(move || act(&object, fault))
    };
    let read: fn(&Object, bool) = |object, _| object.read();
    let all = [
        spawn(Object::write),
        spawn(read),
        spawn(read),
        spawn(|object, _| object.evict()),
        spawn(|object, _| (0..VERSIONS).for_each(|_| object.tidy())),
    ];
    all.into_iter().for_each(|one| one.join().unwrap());
    object.tidy();
    let left = object.chunks[..VERSIONS as usize - 1].iter().flatten().filter(|chunk| chunk.load(SeqCst)).count();
    assert_eq!(left, 0, "chunks of what was replaced that nothing keeps");
    assert!(object.leases.none().is_some() && object.leases.refused() == 0);
}

#[test]
fn leases() {
    holds("leases", || model(false));
}

#[test]
fn canary_leases() {
    finds("canary_leases", "a chunk of an object with a handle is gone", || model(true));
}
