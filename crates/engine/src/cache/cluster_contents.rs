//! What lies in each cluster that left memory, where clusters leave the device with all that is in them: the paper's
//! cluster table has a list of the files in each (Shriver et al. 2001, §3.2), so that emptying one takes no read.
//!
//! Invariants: a list is made when its cluster leaves memory, of the entries that lead into it from then on, and is
//! gone once the cluster is emptied; a cluster of an earlier run has none until it was in memory. What the lists take
//! is counted with the index, and none is made once that is three quarters full.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;

/// An object in a cluster: what the index knows of its key, and where its frame begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Content {
    pub(crate) hash: u64,
    pub(crate) offset: u32,
}

/// Memory that a list takes beside its rows: its place in the map, half empty at the worst, and the allocator's.
const LIST_BYTES: u64 = 64;

/// All lists of a volume.
pub(crate) struct ClusterContents {
    of: Mutex<BTreeMap<u32, Box<[Content]>>>,
    /// Of all indexes.
    bytes: Arc<AtomicU64>,
}

impl ClusterContents {
    pub(crate) fn new(bytes: Arc<AtomicU64>) -> Self {
        Self { of: Mutex::default(), bytes }
    }

    fn charge(list: &[Content]) -> u64 {
        size_of_val(list) as u64 + LIST_BYTES
    }

    /// A cluster leaves memory with these, in the place of what was listed for it.
    pub(crate) fn set(&self, cluster: u32, list: Vec<Content>) {
        let list = list.into_boxed_slice();
        self.bytes.fetch_add(Self::charge(&list), Relaxed);
        let old = self.of.lock().insert(cluster, list);
        self.give_back(old.as_deref());
    }

    /// What lies in a cluster, if that is known; from here on it is not.
    pub(crate) fn take(&self, cluster: u32) -> Option<Box<[Content]>> {
        let old = self.of.lock().remove(&cluster);
        self.give_back(old.as_deref());
        old
    }

    fn give_back(&self, old: Option<&[Content]>) {
        self.bytes.fetch_sub(old.map_or(0, Self::charge), Relaxed);
    }
}
