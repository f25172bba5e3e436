//! S3-FIFO by the rules that the engine's memory tier follows, which are its code.

use std::{cell::Cell, collections::HashMap};

use picaflor_common::{Standing, Step};

use crate::synth::mix;

/// Uses are counted up to three.
const MOST: u8 = 3;

pub(super) struct S3Fifo {
    capacity: u64,
    bytes: u64,
    /// Size and uses of what is here.
    held: HashMap<u64, (u64, Cell<u8>)>,
    queues: picaflor_common::S3Fifo<u64>,
}

impl S3Fifo {
    pub(super) fn new(capacity: u64, ghosts: u64, enough: u8) -> Self {
        Self { capacity, bytes: 0, held: HashMap::new(), queues: picaflor_common::S3Fifo::new(ghosts, enough) }
    }

    /// Whether this object is here; if not, it enters, should it fit at all.
    pub(super) fn get(&mut self, key: u64, size: u64) -> bool {
        if let Some((_, uses)) = self.held.get(&key) {
            uses.set((uses.get() + 1).min(MOST));
            return true;
        }
        // What the small queue has no room for does not enter. The paper knows one size only; libCacheSim has it so,
        // and where a few objects are as large as the cache it matters more than all else.
        if size >= self.capacity / 10 {
            return false;
        }
        while self.bytes + size > self.capacity {
            let held = &self.held;
            let standing =
                |key: &u64| held.get(key).map_or(Standing::Gone, |(_, uses)| Standing::Here(mix(*key), uses.get()));
            let leave_with = |key: &u64, left: u8| {
                if let Some((_, uses)) = held.get(key) {
                    uses.set(left);
                }
            };
            match self.queues.step(self.capacity, standing, leave_with) {
                Step::Leaves(key) => self.bytes -= self.held.remove(&key).map_or(0, |(size, _)| size),
                Step::Moved => {}
                Step::Empty => break,
            }
        }
        self.bytes += size;
        self.held.insert(key, (size, Cell::new(0)));
        self.queues.insert(mix(key), key, size);
        false
    }
}
