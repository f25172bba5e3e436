//! Counts of what an allocator asks of its device.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Device operations asked for.
#[derive(Default)]
pub(super) struct Writes {
    pub(super) blocks: AtomicU64,
    pub(super) homes: AtomicU64,
    pub(super) bytes: AtomicU64,
    pub(super) syncs: AtomicU64,
}

impl Writes {
    pub(super) fn count(&self, bytes: usize) {
        self.blocks.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn home(&self, bytes: usize) {
        self.homes.fetch_add(1, Relaxed);
        self.bytes.fetch_add(bytes as u64, Relaxed);
    }

    pub(super) fn synced(&self) {
        self.syncs.fetch_add(1, Relaxed);
    }
}
