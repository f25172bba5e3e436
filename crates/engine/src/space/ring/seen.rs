//! What was last seen of how full the clusters are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// What was last seen of it.
#[derive(Default)]
pub(super) struct Seen {
    pub(super) live: AtomicU64,
    pub(super) ends: AtomicU64,
    pub(super) old: AtomicU64,
    pub(super) young: AtomicU64,
    /// Clusters granted when it was looked at.
    pub(super) granted: AtomicU64,
    pub(super) is_old: AtomicBool,
}

impl Seen {
    /// Live, ends, old and young.
    pub(super) fn all(&self) -> [&AtomicU64; 4] {
        [&self.live, &self.ends, &self.old, &self.young]
    }

    /// So many clusters were granted; a look at all is worth it for each 64th of them.
    pub(super) fn grows_old(&self, granted: u64, count: u32) {
        if granted.saturating_sub(self.granted.load(Relaxed)) > u64::from(count / 64) {
            self.is_old.store(true, Relaxed);
        }
    }
}
