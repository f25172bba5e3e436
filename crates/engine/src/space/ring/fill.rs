//! How full the clusters are, and what emptying one would gain.

use std::sync::atomic::Ordering::Relaxed;

use super::{Space, State};

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
    /// Looks at all clusters.
    pub(crate) fn fill(&self) -> Fill {
        let clusters = self.clusters.lock();
        let mut fill = Fill::default();
        for id in 0..self.count() {
            match clusters.states[id as usize] {
                State::Free | State::Checkpoint | State::Retired => {}
                State::Busy => {
                    fill.live += self.live.room;
                    fill.ends += clusters.ends.get(&id).unwrap_or(&0);
                }
                State::Sealed | State::Paged | State::Leaving(_) => fill.live += self.live.bytes(id),
            }
            let gain = self.live.room - self.live.bytes(id);
            fill.ends += if self.live.grains(id) > 0 { gain } else { 0 };
            match clusters.is_old(&self.live, id) {
                true => fill.old = fill.old.max(gain),
                false if clusters.states[id as usize] == State::Sealed => fill.young = fill.young.max(gain),
                false => {}
            }
        }
        for (seen, is) in self.seen.all().into_iter().zip([fill.live, fill.ends, fill.old, fill.young]) {
            seen.store(is, Relaxed);
        }
        self.seen.granted.store(clusters.granted, Relaxed);
        self.seen.is_old.store(false, Relaxed);
        fill
    }

    /// As [`Space::fill`], to within what a 64th of the device makes of it, and what was deleted since.
    pub(crate) fn fill_about(&self) -> Fill {
        if self.seen.is_old.load(Relaxed) {
            return self.fill();
        }
        let [live, ends, old, young] = self.seen.all().map(|seen| seen.load(Relaxed));
        Fill { live, ends, old, young }
    }

    /// A cluster of a run, which is busy, has this many bytes empty behind the end of an object.
    pub(crate) fn note_end(&self, id: u32, empty: u64) {
        self.clusters.lock().ends.insert(id, empty);
    }

    /// Whether another cluster may be left empty but for an object's end: all that is empty so, or was left by deletes,
    /// is no more than a [part](ENDS) of the device then, to within a 64th.
    pub(crate) fn affords_end(&self, empty: u64) -> bool {
        (self.fill_about().ends + empty) * ENDS <= u64::from(self.count()) * self.live.room
    }
}
