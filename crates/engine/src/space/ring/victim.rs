//! Which cluster is emptied, and which are set aside for a while; where two queues say which, what they are told.

use std::{collections::BinaryHeap, mem};

use super::{
    ASIDE, Clusters, Queue, Space, State, Victim,
    live::{Emptied, Live},
    uses::Uses,
};

/// One search finds one of so many clusters.
const MANY: usize = 256;

/// A cluster of main is as good as dead with this part of it live.
const DEAD: u64 = 4;
/// One look finds so many dead ones at the most.
const DEAD_MAX: usize = 64;

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
            Victim::Queued => clusters.next_queued(&self.0.live),
            Victim::LeastRecent => clusters.least_recent(&self.0.live, &self.0.uses),
            Victim::Within(first, end) => (first..end).find(|id| old(&clusters, *id)),
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
        if which == Victim::Queued {
            return clusters.next_of_queues(&self.0.live, most);
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

    /// The queue of a cluster.
    pub(crate) fn queue(&self, id: u32) -> Queue {
        self.0.clusters.lock().queues.of(id)
    }

    /// Whether a cluster was sealed later than another.
    pub(crate) fn is_newer(&self, id: u32, than: u32) -> bool {
        let queues = &self.0.clusters.lock().queues;
        (queues.turn(id) & !1).wrapping_sub(queues.turn(than) & !1).cast_signed() > 0
    }

    /// A cluster that was granted is sealed: the newest of this queue.
    pub(crate) fn enqueue(&self, id: u32, queue: Queue) {
        let mut clusters = self.0.clusters.lock();
        let is_held = clusters.states[id as usize].is_held();
        clusters.queues.enqueue(id, queue, is_held);
    }

    /// A victim had so many live bytes, asked for so often since they came to lie there.
    pub(crate) fn learn(&self, id: u32, uses: u64, bytes: u64) {
        self.0.clusters.lock().queues.learn(id, uses, bytes);
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
        // They come before all that were found.
        let Emptied { mut ids, more } = live.take_emptied();
        if more {
            self.emptiest.clear();
        }
        self.emptiest.append(&mut ids);
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

    /// The next victim of the two queues.
    fn next_queued(&mut self, live: &Live) -> Option<u32> {
        loop {
            self.plan(live, 1);
            let id = self.queues.planned.pop_front()?;
            if self.is_old(live, id) {
                return Some(id);
            }
        }
    }

    /// The next victims of them, so many at the most.
    fn next_of_queues(&mut self, live: &Live, most: usize) -> Vec<u32> {
        let mut planned = mem::take(&mut self.queues.planned);
        planned.retain(|id| self.is_old(live, *id));
        self.queues.planned = planned;
        self.plan(live, most);
        self.queues.planned.iter().take(most).copied().collect()
    }

    fn plan(&mut self, live: &Live, victims: usize) {
        while self.queues.planned.len() < victims {
            if self.queues.is_look_due() && self.plan_dead(live) {
                continue;
            }
            let [first, second] =
                if self.queues.is_over() { [Queue::Small, Queue::Main] } else { [Queue::Main, Queue::Small] };
            let is_barren = self.queues.barren[first as usize] == Some(self.floor);
            let found = (!is_barren).then(|| self.oldest_of(live, first)).flatten();
            let found = found.or_else(|| self.oldest_of(live, second));
            // In the end a search anew: what was not old may have left memory since.
            let found = found.or_else(|| is_barren.then(|| self.oldest_of(live, first)).flatten());
            let Some(found) = found else { return };
            self.queues.planned.push_back(found);
        }
    }

    /// Plans to empty clusters in which hardly anything is live. Returns whether there were any.
    fn plan_dead(&mut self, live: &Live) -> bool {
        let is_dead = |id: u32| match self.queues.of(id) {
            Queue::Main => live.bytes(id) <= live.room / DEAD,
            // One that was sealed with little in it is not dead.
            Queue::Small => live.grains(id) == 0,
        };
        let may_leave = |id: &u32| is_dead(*id) && self.is_old(live, *id) && !self.queues.planned.contains(id);
        let dead: Vec<_> = (0..self.count()).filter(may_leave).take(DEAD_MAX).collect();
        if dead.len() == DEAD_MAX {
            self.queues.look_again();
        }
        let any = !dead.is_empty();
        self.queues.planned.extend(dead);
        any
    }

    /// The oldest cluster of a queue that may be a victim and is not planned to be one.
    fn oldest_of(&mut self, live: &Live, queue: Queue) -> Option<u32> {
        let is_good = |clusters: &Self, id: u32| {
            let queues = &clusters.queues;
            queues.of(id) == queue && clusters.is_old(live, id) && !queues.planned.contains(&id)
        };
        let next = |clusters: &mut Self| {
            while let Some((id, turn)) = clusters.queues.oldest[queue as usize].pop() {
                if clusters.queues.turn(id) == turn && is_good(clusters, id) {
                    return Some(id);
                }
            }
            None
        };
        next(self).or_else(|| {
            let oldest = self.least(is_good, |clusters, id| clusters.queues.sealed(id));
            self.queues.barren[queue as usize] = oldest.is_empty().then_some(self.floor);
            self.queues.oldest[queue as usize] = oldest.into_iter().map(|id| (id, self.queues.turn(id))).collect();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::{NextCluster, Site, Victim};

    const COUNT: u32 = 20;

    /// All of them sealed in address order, those that `is_main` says in main; no recovery scans any.
    fn space(is_main: impl Fn(u32) -> bool) -> Space {
        let space = Space::new(COUNT, 4096, (NextCluster::Overwrite, 16), false).with_queues();
        space.set_floor(1);
        (0..COUNT).for_each(|id| assert_eq!(seal(&space, if is_main(id) { Queue::Main } else { Queue::Small }), id));
        space
    }

    fn seal(space: &Space, queue: Queue) -> u32 {
        assert!(space.reserve(0));
        let id = space.grant(State::Busy, Site::Rest).unwrap();
        space.victims().enqueue(id, queue);
        space.set(id, State::Sealed);
        space.told(id, 0);
        space.live.add(id, 4000);
        id
    }

    fn reclaim(space: &Space) -> u32 {
        let id = space.victims().pick(Victim::Queued).unwrap();
        space.live.clear(id);
        space.set(id, State::Free);
        id
    }

    #[test]
    fn the_small_queue_gives_the_victim_while_it_has_more_than_its_share() {
        let space = space(|id| id % 4 != 0);
        let small: Vec<_> = (0..3).map(|_| reclaim(&space)).collect();
        assert_eq!(small, [0, 4, 8], "the oldest, down to a tenth of all");
        assert_eq!((reclaim(&space), reclaim(&space)), (1, 2));
        // What is sealed anew is the newest of its queue, wherever it lies.
        let again: Vec<_> = (0..4).map(|_| seal(&space, Queue::Small)).collect();
        assert_eq!(again, [0, 1, 2, 4]);
        let small: Vec<_> = (0..4).map(|_| reclaim(&space)).collect();
        assert_eq!(small, [12, 16, 0, 1]);
    }

    #[test]
    fn what_was_emptied_is_the_next_victim_and_spares_a_look_at_all() {
        let space = space(|_| true);
        (0..10).for_each(|id| space.live.sub(id, 100 + id));
        assert_eq!(space.victims().pick(Victim::Emptiest), Some(9));
        let found = space.clusters.lock().emptiest.clone();
        [15, 12].into_iter().for_each(|id| space.live.sub(id, 4000));
        assert_eq!([0, 0].map(|_| space.victims().pick(Victim::Emptiest)), [Some(12), Some(15)]);
        assert_eq!(space.clusters.lock().emptiest, found);
    }

    #[test]
    fn what_is_dead_leaves_first() {
        let space = space(|id| id < 10);
        for (id, dead) in [(3, 2000), (5, 4000), (8, 3000), (12, 3999), (15, 4000)] {
            space.live.sub(id, dead);
        }
        let victims: Vec<_> = (0..5).map(|_| reclaim(&space)).collect();
        assert_eq!(victims, [5, 8, 15, 10, 11], "half is not enough, nor is little in the small queue");
    }

    #[test]
    fn where_one_queue_has_no_victim_the_other_gives_it() {
        let space = space(|_| false);
        space.set(0, State::Paged);
        (3..COUNT).for_each(|id| space.told(id, 7));
        assert_eq!((reclaim(&space), reclaim(&space), space.victims().pick(Victim::Queued)), (1, 2, None));
        space.set(0, State::Sealed);
        assert_eq!(reclaim(&space), 0, "it left memory since");
        space.set_floor(8);
        assert_eq!(reclaim(&space), 3);
    }

    #[test]
    fn what_was_told_to_be_a_victim_soon_is_one_first() {
        let space = space(|id| id < 10);
        let told = space.victims().next(Victim::Queued, 3);
        assert_eq!(told, [10, 11, 12]);
        space.set(10, State::Paged);
        let told = space.victims().next(Victim::Queued, 3);
        assert_eq!((reclaim(&space), reclaim(&space), reclaim(&space)), (told[0], told[1], told[2]));
    }

    #[test]
    fn turns_may_begin_anew() {
        let space = space(|_| false);
        space.clusters.lock().queues.begin_near_the_end();
        for _ in 0..5 {
            let id = reclaim(&space);
            assert_eq!(seal(&space, Queue::Small), id);
        }
        assert!(space.victims().is_newer(4, 0) && !space.victims().is_newer(0, 4));
        assert_eq!(reclaim(&space), 5);
    }

    #[test]
    fn all_that_an_opening_finds_is_in_main() {
        let space = space(|_| false);
        space.set_cursor(7);
        assert_eq!((space.victims().queue(3), reclaim(&space), reclaim(&space)), (Queue::Main, 7, 8));
    }
}
