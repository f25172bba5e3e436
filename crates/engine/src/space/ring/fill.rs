//! How full the clusters are: what the objects in each take, to the byte where it was weighed, and what emptying one
//! would gain.
//!
//! An entry of the index says the length of its frame to within an eighth, and nothing of the row in the cluster's
//! table. So a cluster is weighed when it leaves memory, and one that an opening found when it is to be emptied: from
//! then on a grain that an entry speaks of stands for so many bytes.

use std::sync::atomic::Ordering::Relaxed;

use picaflor_format::{cluster, frame::GRAIN};

use super::{Clusters, Space, State};

/// Of a cluster that was not weighed, 1/1024 bytes.
const UNWEIGHED: u64 = (GRAIN as u64) << 10;

/// Part of a cluster for which it is emptied.
pub(crate) const GAIN: u64 = 64;

/// Part of the device that may be empty behind the ends of objects: less than what a store need not take.
const ENDS: u64 = 20;

/// What there is to gain.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Fill {
    /// Bytes that objects take, those of clusters that are being filled or are in memory for whole.
    pub(crate) live: u64,
    /// Bytes that are empty in clusters in which something lives.
    pub(crate) ends: u64,
    /// Most bytes that emptying a cluster would gain.
    pub(crate) old: u64,
    /// The same of one that is no victim before a checkpoint.
    pub(crate) young: u64,
}

impl Space {
    /// Bytes of a cluster that frames and their rows can take.
    pub(crate) fn room(&self) -> u64 {
        (self.cluster_grains as usize * GRAIN - cluster::HEADER - cluster::TRAILER) as u64
    }

    /// Fewest bytes for which a cluster is emptied: a 64th, so that emptying 64 of them makes one free at least.
    pub(crate) fn least_gain(&self) -> u64 {
        self.room() / GAIN
    }

    /// The live frames of a cluster take so many bytes, their rows among them, and so many grains by their entries.
    pub(crate) fn weigh(&self, id: u32, bytes: u64, grains: u64) {
        let each = (bytes << 10).checked_div(grains).unwrap_or(UNWEIGHED);
        self.weights[id as usize].store(u32::try_from(each).unwrap_or(u32::MAX), Relaxed);
    }

    /// Whether [`Space::live_bytes`] is more than a guess.
    pub(crate) fn is_weighed(&self, id: u32) -> bool {
        self.weights[id as usize].load(Relaxed) != 0
    }

    /// Bytes that the live objects of a cluster take.
    pub(crate) fn live_bytes(&self, id: u32) -> u64 {
        let each = match self.weights[id as usize].load(Relaxed) {
            0 => UNWEIGHED,
            each => u64::from(each),
        };
        ((u64::from(self.live(id)) * each) >> 10).min(self.room())
    }

    /// Looks at all clusters.
    pub(crate) fn fill(&self) -> Fill {
        let clusters = self.clusters.lock();
        let mut fill = Fill::default();
        for id in 0..self.count() {
            match clusters.states[id as usize] {
                State::Free | State::Checkpoint => {}
                State::Busy => {
                    fill.live += self.room();
                    fill.ends += clusters.ends.get(&id).unwrap_or(&0);
                }
                State::Sealed | State::Paged | State::Leaving(_) => fill.live += self.live_bytes(id),
            }
            let gain = self.room() - self.live_bytes(id);
            fill.ends += if self.live(id) > 0 { gain } else { 0 };
            match self.is_old(&clusters, id) {
                true => fill.old = fill.old.max(gain),
                false if clusters.states[id as usize] == State::Sealed => fill.young = fill.young.max(gain),
                false => {}
            }
        }
        self.seen.live.store(fill.live, Relaxed);
        self.seen.ends.store(fill.ends, Relaxed);
        self.seen.granted.store(clusters.granted, Relaxed);
        self.seen.is_old.store(false, Relaxed);
        fill
    }

    /// Bytes that objects take, to within a 64th of the device.
    pub(crate) fn live_about(&self) -> u64 {
        if self.seen.is_old.load(Relaxed) { self.fill().live } else { self.seen.live.load(Relaxed) }
    }

    /// A cluster of a run, which is busy, has this many bytes empty behind the end of an object.
    pub(crate) fn note_end(&self, id: u32, empty: u64) {
        self.clusters.lock().ends.insert(id, empty);
    }

    /// Whether another cluster may be left empty but for an object's end: all that is empty so, or was left by deletes,
    /// is no more than a [part](ENDS) of the device then, to within a 64th.
    pub(crate) fn affords_end(&self, empty: u64) -> bool {
        let ends = if self.seen.is_old.load(Relaxed) { self.fill().ends } else { self.seen.ends.load(Relaxed) };
        (ends + empty) * ENDS <= u64::from(self.count()) * self.room()
    }

    /// Whether a cluster may be a victim.
    pub(super) fn is_old(&self, clusters: &Clusters, id: u32) -> bool {
        clusters.states[id as usize] == State::Sealed
            && clusters.pages[id as usize] < clusters.floor
            && (!clusters.aside.contains(&id) || self.live(id) == 0)
    }
}
