//! Which cluster is emptied, and which are set aside for a while.

use std::{collections::BinaryHeap, sync::atomic::Ordering::Relaxed};

use super::{ASIDE, Clusters, Space, State, Victim};

impl Space {
    /// Picks a cluster to empty and marks it as leaving. Never one that a recovery may scan: what reclaim
    /// drops from it must not bring back an older version (`docs/FORMAT.md`, "Reclaim and the scan"). Nor one that
    /// was [set aside](Space::set_aside).
    pub(crate) fn victim(&self, which: Victim) -> Option<u32> {
        let mut clusters = self.clusters.lock();
        let count = self.count();
        let old = |clusters: &Clusters, id: u32| self.is_old(clusters, id);
        let found = match which {
            Victim::Oldest => {
                let start = clusters.hand;
                (start..count).chain(0..start).find(|id| old(&clusters, *id))
            }
            Victim::Emptiest => self.emptiest(&clusters, old, self.least_gain()),
            Victim::HalfEmpty => self.emptiest(&clusters, old, self.room() / 2),
            Victim::LeastRecent => self.least_recent(&mut clusters, old),
            Victim::Aged(second) => {
                let start = clusters.hand;
                let since = |id: u32| self.since.get(id as usize).map_or(u32::MAX, |since| since.load(Relaxed));
                (start..count).chain(0..start).find(|id| since(*id) < second && old(&clusters, *id))
            }
        }?;
        clusters.hand = (found + 1) % count;
        clusters.set(found, State::Leaving(u64::MAX));
        Some(found)
    }

    /// A victim could not be emptied: it is as it was, and others come before it.
    pub(crate) fn set_aside(&self, id: u32, second: u32) {
        let mut clusters = self.clusters.lock();
        clusters.set(id, State::Sealed);
        clusters.aside.insert(id);
        clusters.recall = second.saturating_add(ASIDE);
    }

    /// Makes victims again of those that were set aside, if that was long enough ago. Returns whether there are any.
    pub(crate) fn recall(&self, second: u32) -> bool {
        let mut clusters = self.clusters.lock();
        let recalls = !clusters.aside.is_empty() && second >= clusters.recall;
        if recalls {
            clusters.aside.clear();
        }
        recalls
    }

    /// Clusters that are set aside.
    pub(crate) fn aside(&self) -> u32 {
        self.clusters.lock().aside.len() as u32
    }

    /// The one with the least in it, if emptying it gains so many bytes.
    fn emptiest(&self, clusters: &Clusters, old: impl Fn(&Clusters, u32) -> bool, gain: u64) -> Option<u32> {
        let emptiest = (0..self.count()).filter(|id| old(clusters, *id)).min_by_key(|id| self.live_bytes(*id));
        emptiest.filter(|id| self.live_bytes(*id) + gain <= self.room())
    }

    /// Looks for many at a time: a search goes over all clusters.
    fn least_recent(&self, clusters: &mut Clusters, old: impl Fn(&Clusters, u32) -> bool) -> Option<u32> {
        let next = |clusters: &mut Clusters| {
            while let Some((number, id)) = clusters.idle.pop() {
                if self.used(id) == number && old(clusters, id) {
                    return Some(id);
                }
            }
            None
        };
        next(clusters).or_else(|| {
            let most = (self.count() as usize / 256).clamp(4, 4096);
            // The largest of the smallest is on top. Of those never used since the opening, the hand's go first.
            let mut smallest = BinaryHeap::with_capacity(most + 1);
            let behind_hand = |id: u32| (id + self.count() - clusters.hand) % self.count();
            for id in (0..self.count()).filter(|id| old(clusters, *id)) {
                smallest.push((self.used(id), behind_hand(id), id));
                if smallest.len() > most {
                    smallest.pop();
                }
            }
            let idle = smallest.into_sorted_vec().into_iter().rev().map(|(number, _, id)| (number, id)).collect();
            clusters.idle = idle;
            next(clusters)
        })
    }

    fn used(&self, id: u32) -> u64 {
        self.used.get(id as usize).map_or(0, |used| used.load(Relaxed))
    }
}
