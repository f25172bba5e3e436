//! The method of Markatos et al. (USITS 1999, §3.1), by which gets become what the disk is asked to do.
//!
//! A first-level LRU in memory answers what it can. What it misses asks a second-level LRU, which stands for the disk's
//! contents: a hit there is a URL-read, a miss is fetched and is a URL-write. Whatever the second level evicts, and the
//! old version of an object that has changed, is a URL-delete.

use serde::Serialize;

use crate::{lru::Lru, trace::Request};

/// What the disk is asked to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operation {
    /// Read this object, which was written before.
    Read(Request),
    /// Write this object, which is not there.
    Write(Request),
    /// Delete the object with this key, which is there.
    Delete(u64),
}

/// Sizes of the two levels (M-I3) and of a slot on the disk (M-I6), in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Levels {
    /// Memory; counts bodies.
    pub memory: u64,
    /// Disk; counts whole slots.
    pub disk: u64,
    /// Bodies on the disk are rounded up to multiples of it.
    pub slot: u64,
}

impl Levels {
    /// Those of the paper's main experiments: 512 MB, 2 GB, 512 bytes.
    pub const MARKATOS: Self = Self { memory: 512 << 20, disk: 2 << 30, slot: 512 };
}

/// What the gets so far became.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Counts {
    /// Gets.
    pub gets: u64,
    /// Answered by the first level.
    pub memory_hits: u64,
    /// URL-reads: answered by the second level.
    pub reads: u64,
    /// URL-writes: answered by neither.
    pub writes: u64,
    /// URL-deletes.
    pub deletes: u64,
    /// Bytes of all slots ever written.
    pub written_bytes: u64,
    /// Gets of objects larger than the second level: neither read nor written.
    pub too_large: u64,
}

impl Counts {
    /// URL-reads, writes and deletes together.
    pub fn operations(&self) -> u64 {
        self.reads + self.writes + self.deletes
    }
}

/// The two levels, and what they did.
pub struct Method {
    levels: Levels,
    first: Lru,
    second: Lru,
    counts: Counts,
}

impl Method {
    /// Two empty levels.
    pub fn new(levels: Levels) -> Self {
        Self { levels, first: Lru::new(levels.memory), second: Lru::new(levels.disk), counts: Counts::default() }
    }

    /// One get. Tells of what it makes the disk do, in order: room is made before it is taken.
    pub fn get(&mut self, request: &Request, mut operation: impl FnMut(Operation)) {
        let Request { key, size, version, .. } = *request;
        self.counts.gets += 1;
        match self.first.touch(key) {
            Some(held) if held == version => {
                self.counts.memory_hits += 1;
                return;
            }
            Some(_) => drop(self.first.remove(key)),
            None => {}
        }
        let held = self.second.touch(key);
        if held.is_some_and(|held| held != version) {
            self.second.remove(key);
            self.counts.deletes += 1;
            operation(Operation::Delete(key));
        }
        if held == Some(version) {
            self.counts.reads += 1;
            operation(Operation::Read(*request));
        } else {
            let slots = size.max(1).next_multiple_of(self.levels.slot);
            let counts = &mut self.counts;
            let entered = self.second.insert(key, slots, version, |key| {
                counts.deletes += 1;
                operation(Operation::Delete(key));
            });
            if entered {
                counts.writes += 1;
                counts.written_bytes += slots;
                operation(Operation::Write(*request));
            } else {
                counts.too_large += 1;
            }
        }
        self.first.insert(key, size, version, |_| {});
    }

    /// What the gets so far became.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    /// Mean bytes of the slots that the second level holds now.
    pub fn mean_slot(&self) -> f64 {
        self.second.bytes() as f64 / self.second.len().max(1) as f64
    }

    /// Objects that the second level holds now.
    pub fn live(&self) -> usize {
        self.second.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gets_become_reads_writes_and_deletes() {
        let mut method = Method::new(Levels { memory: 1000, disk: 2048, slot: 512 });
        let mut all = Vec::new();
        let mut get = |key, size, version| {
            let request = Request { key, size, version, ..Request::default() };
            let mut now = Vec::new();
            method.get(&request, |operation| now.push(operation));
            all.push(now.clone());
            now
        };
        let one = Request { key: 1, size: 600, ..Request::default() };
        assert_eq!(get(1, 600, 0), [Operation::Write(one)]);
        assert_eq!(get(1, 600, 0), [], "memory has it");
        assert_eq!(get(2, 500, 0).len(), 1, "and pushes the first out of memory");
        assert_eq!(get(1, 600, 0), [Operation::Read(one)]);
        // Two slots, one, and now two: one too many, and the second is the oldest.
        assert!(matches!(get(3, 513, 0)[..], [Operation::Delete(2), Operation::Write(_)]));
        assert!(matches!(get(3, 10, 1)[..], [Operation::Delete(3), Operation::Write(_)]), "a new version");
        assert_eq!(get(4, 4000, 0), [], "larger than the disk");
        let counts = method.counts();
        assert_eq!((counts.gets, counts.memory_hits, counts.reads, counts.writes, counts.deletes), (7, 1, 1, 4, 2));
        assert_eq!((counts.operations(), counts.too_large, method.live()), (7, 1, 2));
    }
}
