//! What the live objects of each cluster take: in grains, as their entries say, and to the byte where it was weighed.
//!
//! An entry of the index says the length of its frame to within an eighth, and nothing of the row in the cluster's
//! table. So a cluster is weighed when it leaves memory, and one that an opening found when it is to be emptied: from
//! then on a grain that an entry speaks of stands for so many bytes.

use std::{
    mem,
    sync::atomic::{AtomicU32, Ordering::Relaxed},
};

use parking_lot::Mutex;
use picaflor_format::{cluster, frame::GRAIN};

use crate::base::column::Column;

/// Of a cluster that was not weighed, 1/1024 bytes.
const UNWEIGHED: u64 = (GRAIN as u64) << 10;

/// Part of a cluster for which it is emptied.
const GAIN: u64 = 64;

/// Clusters that [`Live::take_emptied`] tells of at the most: by most rules of eviction it is never called.
const EMPTIED_MAX: usize = 1024;

/// Clusters in which nothing is live any more since this was taken.
#[derive(Default)]
pub(super) struct Emptied {
    pub(super) ids: Vec<u32>,
    /// There are more.
    pub(super) more: bool,
}

pub(crate) struct Live {
    grains: Column<AtomicU32>,
    /// Bytes for which a grain stands in each, in 1/1024; 0 where it was not weighed.
    weights: Column<AtomicU32>,
    /// Bytes of a cluster that frames and their rows can take.
    pub(crate) room: u64,
    emptied: Mutex<Emptied>,
}

impl Live {
    /// Memory that it takes for each cluster.
    pub(super) const BYTES_PER_CLUSTER: u64 = 2 * size_of::<AtomicU32>() as u64;

    pub(super) fn new(count: u32, cluster_grains: u32) -> Self {
        let zeros = || Column::new(count, AtomicU32::default);
        let room = (cluster_grains as usize * GRAIN - cluster::HEADER - cluster::TRAILER) as u64;
        Self { grains: zeros(), weights: zeros(), room, emptied: Mutex::default() }
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
            let mut emptied = self.emptied.lock();
            emptied.more |= emptied.ids.len() == EMPTIED_MAX;
            if !emptied.more {
                emptied.ids.push(id);
            }
        }
    }

    /// Those in which nothing is live any more since this was called before.
    pub(super) fn take_emptied(&self) -> Emptied {
        mem::take(&mut self.emptied.lock())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_emptied_is_told_once_and_not_without_end() {
        let live = Live::new(2000, 4096);
        (0..2000).for_each(|id| live.add(id, 2));
        (0..2000).for_each(|id| live.sub(id, 1));
        assert!(live.take_emptied().ids.is_empty());
        [7, 3].into_iter().for_each(|id| live.sub(id, 1));
        let told = live.take_emptied();
        assert_eq!((told.ids, told.more), (vec![7, 3], false));
        (10..2000).for_each(|id| live.sub(id, 1));
        let told = live.take_emptied();
        assert_eq!((told.ids.len(), told.more), (EMPTIED_MAX, true));
        assert!(live.take_emptied().ids.is_empty());
    }
}
