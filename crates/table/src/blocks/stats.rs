//! What the allocator has done and how well the space is used.

use std::sync::atomic::Ordering::Relaxed;

use super::FreeLists;

/// A reading of [`FreeLists::stats`]. While discovery is under way, allocated and free blocks that were not found yet
/// are missing.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub struct BlockStats {
    /// Allocated blocks.
    pub blocks: u64,
    /// Bytes asked for in them.
    pub requested: u64,
    /// Bytes that they take.
    pub allocated: u64,
    /// Bytes from the first block to the tail.
    pub taken: u64,
    /// The most that was ever so.
    pub most: u64,
    /// Free blocks on lists, and their bytes.
    pub free: (u64, u64),
    /// Freed blocks that wait for a sync.
    pub waiting: u64,
    /// Lists that are not empty: longest block in grains, blocks.
    pub lists: Vec<(u32, u64)>,
    /// Bytes of damaged places that are left alone.
    pub alone: u64,
    /// Whether blocks are still being discovered after a failure.
    pub discovering: bool,
    /// Allocations since the opening; those that split a block; those from the tail.
    pub allocations: u64,
    /// Allocations that split a block.
    pub splits: u64,
    /// Allocations from the tail.
    pub from_tail: u64,
    /// Frees since the opening.
    pub frees: u64,
    /// Device writes of blocks and headers, those of homes, the bytes of both, device syncs.
    pub writes: u64,
    /// Device writes of homes.
    pub home_writes: u64,
    /// Bytes written.
    pub write_bytes: u64,
    /// Device syncs.
    pub syncs: u64,
}

impl BlockStats {
    /// Internal fragmentation: allocated over requested (§3.3.1).
    #[must_use]
    pub fn internal(&self) -> f64 {
        ratio(self.allocated, self.requested)
    }

    /// External fragmentation now: taken over allocated.
    #[must_use]
    pub fn external(&self) -> f64 {
        ratio(self.taken, self.allocated)
    }

    /// Total fragmentation: the product of the two.
    #[must_use]
    pub fn total(&self) -> f64 {
        ratio(self.taken, self.requested)
    }
}

/// 1 where there is nothing.
fn ratio(a: u64, b: u64) -> f64 {
    if b == 0 { 1.0 } else { a as f64 / b as f64 }
}

/// Bytes of memory of a block that is on a list or waits: in two ordered maps, half full at worst.
const BYTES_EACH: usize = 160;

impl FreeLists {
    /// Bytes of memory that lists, what waits for a sync, and buffers kept for writes take.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let space = self.space.lock();
        let known = space.lists.len() + space.pending.len() + space.held.len() + space.retired.len();
        (known * BYTES_EACH + self.pool.idle_bytes()) as u64
    }

    /// How the space is used now, and what was done since the opening.
    #[must_use]
    pub fn stats(&self) -> BlockStats {
        let space = self.space.lock();
        let grain = self.shape.grain;
        let count = |value: i64| value.max(0).cast_unsigned();
        BlockStats {
            blocks: count(space.tally.blocks),
            requested: count(space.tally.bytes),
            allocated: count(space.tally.grains) * grain,
            taken: space.taken(&self.shape) * grain,
            most: space.most.max(space.lists.tail).saturating_sub(self.shape.start) * grain,
            free: (space.lists.len() as u64, space.lists.grains() * grain),
            waiting: (space.pending.len() + space.held.len() + space.retired.len()) as u64,
            lists: space.lists.lengths(&self.shape),
            alone: space.alone.values().sum::<u64>() * grain,
            discovering: space.walk.is_some(),
            allocations: space.allocations,
            splits: space.splits,
            from_tail: space.from_tail,
            frees: space.frees,
            writes: self.writes.blocks.load(Relaxed),
            home_writes: self.writes.homes.load(Relaxed),
            write_bytes: self.writes.bytes.load(Relaxed),
            syncs: self.writes.syncs.load(Relaxed),
        }
    }
}
