//! What the live objects of each cluster take: in grains, as their entries say, and to the byte where it was weighed.
//!
//! An entry of the index says the length of its frame to within an eighth, and nothing of the row in the cluster's
//! table. So a cluster is weighed when it leaves memory, and one that an opening found when it is to be emptied: from
//! then on a grain that an entry speaks of stands for so many bytes.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::Relaxed};

use picaflor_format::{cluster, frame::GRAIN};

use crate::base::column::Column;

/// Of a cluster that was not weighed, 1/1024 bytes.
const UNWEIGHED: u64 = (GRAIN as u64) << 10;

/// Part of a cluster for which it is emptied.
const GAIN: u64 = 64;

pub(crate) struct Live {
    grains: Column<AtomicU32>,
    /// Bytes for which a grain stands in each, in 1/1024; 0 where it was not weighed.
    weights: Column<AtomicU32>,
    /// Bytes of a cluster that frames and their rows can take.
    pub(crate) room: u64,
    emptied: AtomicBool,
}

impl Live {
    /// Memory that it takes for each cluster.
    pub(super) const BYTES_PER_CLUSTER: u64 = 2 * size_of::<AtomicU32>() as u64;

    pub(super) fn new(count: u32, cluster_grains: u32) -> Self {
        let zeros = || Column::new(count, AtomicU32::default);
        let room = (cluster_grains as usize * GRAIN - cluster::HEADER - cluster::TRAILER) as u64;
        Self { grains: zeros(), weights: zeros(), room, emptied: AtomicBool::default() }
    }

    pub(super) fn clusters(&self) -> u32 {
        self.grains.len() as u32
    }

    /// So many more, empty.
    pub(super) fn lengthen(&self, by: u32) {
        self.weights.lengthen(by, AtomicU32::default);
        self.grains.lengthen(by, AtomicU32::default);
    }

    pub(crate) fn add(&self, id: u32, grains: u32) {
        self.grains[id].fetch_add(grains, Relaxed);
    }

    pub(crate) fn sub(&self, id: u32, grains: u32) {
        // Saturating: entries that outlived a damaged cluster's table are forgotten one by one, later.
        let sub = |live: u32| Some(live.saturating_sub(grains));
        if self.grains[id].fetch_update(Relaxed, Relaxed, sub).is_ok_and(|live| live <= grains) {
            self.emptied.store(true, Relaxed);
        }
    }

    /// Whether nothing is live any more in one more cluster than when this was asked before.
    pub(super) fn has_emptied(&self) -> bool {
        self.emptied.load(Relaxed) && self.emptied.swap(false, Relaxed)
    }

    pub(crate) fn clear(&self, id: u32) {
        self.grains[id].store(0, Relaxed);
        self.weights[id].store(0, Relaxed);
    }

    /// In grains.
    pub(crate) fn grains(&self, id: u32) -> u32 {
        self.grains[id].load(Relaxed)
    }

    /// Fewest bytes for which a cluster is emptied: a 64th, so that emptying 64 of them makes one free at least.
    pub(crate) fn least_gain(&self) -> u64 {
        self.room / GAIN
    }

    /// The live frames of a cluster take so many bytes, their rows among them, and so many grains by their entries.
    pub(crate) fn weigh(&self, id: u32, bytes: u64, grains: u64) {
        let each = (bytes << 10).checked_div(grains).unwrap_or(UNWEIGHED);
        self.weights[id].store(u32::try_from(each).unwrap_or(u32::MAX), Relaxed);
    }

    /// Whether [`Live::bytes`] is more than a guess.
    pub(crate) fn is_weighed(&self, id: u32) -> bool {
        self.weights[id].load(Relaxed) != 0
    }

    /// Bytes that the live objects of a cluster take.
    pub(crate) fn bytes(&self, id: u32) -> u64 {
        let each = match self.weights[id].load(Relaxed) {
            0 => UNWEIGHED,
            each => u64::from(each),
        };
        ((u64::from(self.grains(id)) * each) >> 10).min(self.room)
    }
}
