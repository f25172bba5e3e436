//! First in, first out.

use std::collections::{HashSet, VecDeque};

pub(super) struct Fifo {
    capacity: u64,
    bytes: u64,
    held: HashSet<u64>,
    queue: VecDeque<(u64, u64)>,
}

impl Fifo {
    pub(super) fn new(capacity: u64) -> Self {
        Self { capacity, bytes: 0, held: HashSet::new(), queue: VecDeque::new() }
    }

    /// Whether this object is here; if not, it enters, should it fit at all.
    pub(super) fn get(&mut self, key: u64, size: u64) -> bool {
        if self.held.contains(&key) {
            return true;
        }
        if size <= self.capacity {
            while self.bytes + size > self.capacity
                && let Some((old, bytes)) = self.queue.pop_front()
            {
                self.held.remove(&old);
                self.bytes -= bytes;
            }
            self.held.insert(key);
            self.queue.push_back((key, size));
            self.bytes += size;
        }
        false
    }
}
