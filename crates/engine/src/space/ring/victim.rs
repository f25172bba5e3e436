//! Which cluster is emptied, and which are set aside for a while.

use std::collections::BinaryHeap;

use super::{ASIDE, Clusters, Space, State, Victim, live::Live, uses::Uses};

/// What is emptied next.
pub(crate) struct Victims<'a>(&'a Space);

impl Space {
    /// What is emptied next.
    pub(crate) fn victims(&self) -> Victims<'_> {
        Victims(self)
    }
}

impl Victims<'_> {
    /// Picks a cluster to empty and marks it as leaving. Never one that a recovery may scan: what reclaim
    /// drops from it must not bring back an older version (`docs/FORMAT.md`, "Reclaim and the scan"). Nor one that
    /// was [set aside](Victims::set_aside).
    pub(crate) fn pick(&self, which: Victim) -> Option<u32> {
        let mut clusters = self.0.clusters.lock();
        let count = self.0.count();
        let old = |clusters: &Clusters, id: u32| clusters.is_old(&self.0.live, id);
        let found = match which {
            Victim::Oldest => {
                let start = clusters.hand;
                (start..count).chain(0..start).find(|id| old(&clusters, *id))
            }
            Victim::Emptiest => clusters.emptiest(&self.0.live, self.0.live.least_gain()),
            Victim::HalfEmpty => clusters.emptiest(&self.0.live, self.0.live.room / 2),
            Victim::LeastRecent => clusters.least_recent(&self.0.live, &self.0.uses),
            Victim::Aged(second) => {
                let start = clusters.hand;
                (start..count).chain(0..start).find(|id| self.0.uses.since(*id) < second && old(&clusters, *id))
            }
        }?;
        clusters.hand = (found + 1) % count;
        clusters.set(found, State::Leaving(u64::MAX));
        Some(found)
    }

    /// The clusters that are victims next, oldest first, if nothing changes; so many at the most.
    pub(crate) fn next(&self, most: usize) -> Vec<u32> {
        let clusters = self.0.clusters.lock();
        let (start, count) = (clusters.hand, self.0.count());
        (start..count).chain(0..start).filter(|id| clusters.is_old(&self.0.live, *id)).take(most).collect()
    }

    /// A victim could not be emptied: it is as it was, and others come before it.
    pub(crate) fn set_aside(&self, id: u32, second: u32) {
        let mut clusters = self.0.clusters.lock();
        clusters.set(id, State::Sealed);
        clusters.aside.insert(id);
        clusters.recall = second.saturating_add(ASIDE);
    }

    /// Makes victims again of those that were set aside, if that was long enough ago. Returns whether there are any.
    pub(crate) fn recall(&self, second: u32) -> bool {
        let mut clusters = self.0.clusters.lock();
        let recalls = !clusters.aside.is_empty() && second >= clusters.recall;
        if recalls {
            clusters.aside.clear();
        }
        recalls
    }

    /// Clusters that are set aside.
    pub(crate) fn aside(&self) -> u32 {
        self.0.clusters.lock().aside.len() as u32
    }
}

impl Clusters {
    /// Whether a cluster may be a victim.
    pub(super) fn is_old(&self, live: &Live, id: u32) -> bool {
        self.states[id as usize] == State::Sealed
            && self.pages[id as usize] < self.floor
            && (!self.aside.contains(&id) || live.grains(id) == 0)
    }

    fn count(&self) -> u32 {
        self.states.len() as u32
    }

    /// The one with the least in it, if emptying it gains so many bytes.
    fn emptiest(&self, live: &Live, gain: u64) -> Option<u32> {
        let emptiest = (0..self.count()).filter(|id| self.is_old(live, *id)).min_by_key(|id| live.bytes(*id));
        emptiest.filter(|id| live.bytes(*id) + gain <= live.room)
    }

    /// Looks for many at a time: a search goes over all clusters.
    fn least_recent(&mut self, live: &Live, uses: &Uses) -> Option<u32> {
        let next = |clusters: &mut Self| {
            while let Some((number, id)) = clusters.idle.pop() {
                if uses.last(id) == number && clusters.is_old(live, id) {
                    return Some(id);
                }
            }
            None
        };
        next(self).or_else(|| {
            let (count, most) = (self.count(), (self.count() as usize / 256).clamp(4, 4096));
            // The largest of the smallest is on top. Of those never used since the opening, the hand's go first.
            let mut smallest = BinaryHeap::with_capacity(most + 1);
            let behind_hand = |id: u32| (id + count - self.hand) % count;
            for id in (0..count).filter(|id| self.is_old(live, *id)) {
                smallest.push((uses.last(id), behind_hand(id), id));
                if smallest.len() > most {
                    smallest.pop();
                }
            }
            self.idle = smallest.into_sorted_vec().into_iter().rev().map(|(number, _, id)| (number, id)).collect();
            next(self)
        })
    }
}
