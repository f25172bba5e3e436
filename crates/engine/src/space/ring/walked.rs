//! Which clusters a walk over all objects has gone through, and were not granted anew since.

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering::SeqCst},
};

use parking_lot::Mutex;

/// Of all walks that go on.
#[derive(Default)]
pub(crate) struct Walked(Mutex<Vec<Weak<Passed>>>);

/// Of one of them.
#[derive(Default)]
pub(crate) struct Passed(Box<[AtomicU64]>);

impl Walked {
    /// A walk begins over so many clusters, and ends when what is returned is dropped.
    pub(crate) fn begin(&self, clusters: u32) -> Arc<Passed> {
        let passed = Arc::new(Passed((0..clusters.div_ceil(64)).map(|_| AtomicU64::new(0)).collect()));
        let mut walks = self.0.lock();
        walks.retain(|walk| walk.strong_count() > 0);
        walks.push(Arc::downgrade(&passed));
        passed
    }

    /// A cluster is granted.
    pub(crate) fn forget(&self, id: u32) {
        self.0.lock().iter().filter_map(Weak::upgrade).for_each(|passed| passed.set(id, false));
    }
}

impl Passed {
    /// The walk is about to go through a cluster, or did not after all.
    pub(crate) fn set(&self, id: u32, goes: bool) {
        if let Some(word) = self.0.get(id as usize / 64) {
            let bit = 1 << (id % 64);
            if goes {
                word.fetch_or(bit, SeqCst)
            } else {
                word.fetch_and(!bit, SeqCst)
            };
        }
    }

    /// Whether the walk has gone through the cluster, as it has been since.
    pub(crate) fn has(&self, id: u32) -> bool {
        self.0.get(id as usize / 64).is_some_and(|word| word.load(SeqCst) >> (id % 64) & 1 == 1)
    }
}
