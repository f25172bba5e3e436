//! Which cluster is emptied, and which are set aside for a while.

use std::collections::BinaryHeap;

use super::{ASIDE, Clusters, Space, State, Victim, live::Live, uses::Uses};

/// One search finds one of so many clusters.
const MANY: usize = 256;

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
            Victim::Emptiest => clusters.next_emptiest(&self.0.live, self.0.live.least_gain()),
            Victim::HalfEmpty => clusters.next_emptiest(&self.0.live, self.0.live.room / 2),
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

    /// The clusters that are victims next by this rule, if nothing changes; so many at the most. Of the emptiest, those
    /// in which there is anything.
    pub(crate) fn next(&self, which: Victim, most: usize) -> Vec<u32> {
        let mut clusters = self.0.clusters.lock();
        let (start, count) = (clusters.hand, self.0.count());
        if which == Victim::Emptiest && clusters.emptiest.is_empty() {
            clusters.find_emptiest(&self.0.live, self.0.live.least_gain());
        }
        let is_old = |id: &u32| clusters.is_old(&self.0.live, *id);
        match which {
            Victim::Emptiest => {
                let is_any = |id: &u32| is_old(id) && self.0.live.grains(*id) > 0;
                clusters.emptiest.iter().rev().copied().filter(is_any).take(most).collect()
            }
            _ => (start..count).chain(0..start).filter(is_old).take(most).collect(),
        }
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
    fn next_emptiest(&mut self, live: &Live, gain: u64) -> Option<u32> {
        if live.has_emptied() {
            self.emptiest.clear();
        }
        let fits = |id: u32| live.bytes(id) + gain <= live.room;
        let next = |clusters: &mut Self| {
            while let Some(id) = clusters.emptiest.pop() {
                if clusters.is_old(live, id) && fits(id) {
                    return Some(id);
                }
            }
            None
        };
        next(self).or_else(|| {
            self.find_emptiest(live, gain);
            next(self)
        })
    }

    fn find_emptiest(&mut self, live: &Live, gain: u64) {
        let is_good = |clusters: &Self, id| clusters.is_old(live, id) && live.bytes(id) + gain <= live.room;
        self.emptiest = self.least(is_good, |_, id| live.bytes(id));
    }

    /// The one that was not used for longest.
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
            // Of those never used since the opening, the hand's go first.
            let behind_hand = |clusters: &Self, id: u32| (id + clusters.count() - clusters.hand) % clusters.count();
            let least = self.least(
                |clusters, id| clusters.is_old(live, id),
                |clusters, id| (uses.last(id), behind_hand(clusters, id)),
            );
            self.idle = least.into_iter().map(|id| (uses.last(id), id)).collect();
            next(self)
        })
    }

    /// The clusters with the least of something, the least one last. Many at a time: a search goes over all clusters.
    fn least<T: Ord>(&self, is_good: impl Fn(&Self, u32) -> bool, of: impl Fn(&Self, u32) -> T) -> Vec<u32> {
        let most = (self.states.len() / MANY).clamp(4, 4096);
        // The largest of the smallest is on top.
        let mut smallest = BinaryHeap::with_capacity(most + 1);
        for id in (0..self.count()).filter(|id| is_good(self, *id)) {
            smallest.push((of(self, id), id));
            if smallest.len() > most {
                smallest.pop();
            }
        }
        smallest.into_sorted_vec().into_iter().rev().map(|(_, id)| id).collect()
    }
}
