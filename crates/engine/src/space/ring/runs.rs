//! Runs: clean clusters side by side, promised to an object whose length is announced, and clusters that give way to
//! them at once because nothing in them is live.
//!
//! A run comes from the smallest hole that has room for it, and from that hole's end: single clusters are granted from
//! the beginning of the smallest hole near the cursor, so that neither kind cuts what the other needs.
//!
//! Invariants: clusters of a run are *busy* from the promise on; those that are promised and not yet written are at
//! most a [part](RUNS) of all, so that a put that announces much and sends nothing takes little from others.

use std::{
    cmp::Reverse,
    ops::Range,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use super::{Clusters, NextCluster, Space, State};

/// Part of the clusters that may be promised in runs and not yet written.
const RUNS: u32 = 16;
/// Most clusters of one promise.
const LONGEST: u32 = 1024;
/// Holes beside which is looked for what could be moved.
const LOOKED_AT: usize = 8;
/// Clusters behind the cursor among which a single one is looked for where there are runs.
const NEAR: u32 = 1 << 12;
/// Clusters among which the smallest hole is looked for at a time: a look at so many takes as long as a small read.
const WINDOW: u32 = 1 << 16;

/// A cluster that is promised to one chunk. Dropped without having been [filled](Promised::is_filled), it is clean
/// again.
pub(crate) struct Promised {
    space: Arc<Space>,
    pub(crate) id: u32,
    is_filled: AtomicBool,
}

impl Promised {
    /// The chunk is in it.
    pub(crate) fn is_filled(&self) {
        self.is_filled.store(true, Relaxed);
    }
}

impl Drop for Promised {
    fn drop(&mut self) {
        let mut clusters = self.space.clusters.lock();
        clusters.in_runs -= 1;
        if !self.is_filled.load(Relaxed) {
            clusters.set(self.id, State::Free);
        }
    }
}

/// Where runs come from.
pub(crate) struct Runs<'a>(&'a Arc<Space>);

impl Runs<'_> {
    /// Most clusters that one run has; none where clusters are granted by another rule than that of holes.
    pub(crate) fn longest(&self) -> u32 {
        if self.0.next == NextCluster::Overwrite { (self.0.count() / RUNS).min(LONGEST) } else { 0 }
    }

    /// Promises so many clean clusters, leaving `keep` unpromised: side by side, or else, if they need not lie so, in
    /// as few runs as there are holes for.
    pub(crate) fn take(&self, wanted: u32, keep: u32, parts: bool) -> Option<Vec<Promised>> {
        let mut clusters = self.0.clusters.lock();
        if clusters.free < clusters.reserved + keep + wanted {
            return None;
        }
        // Where the one before was found, there are likely to be more.
        let windows = self.0.count().div_ceil(WINDOW);
        let fitting = (0..windows).find_map(|at| {
            let window = (clusters.window + at) % windows;
            let first = window * WINDOW;
            Some((window, smallest(clusters.holes(first..(first + WINDOW).min(self.0.count())), wanted)?))
        });
        let ids = match fitting {
            Some((window, ids)) => {
                clusters.window = window;
                ids.collect()
            }
            None if !parts => return None,
            None => clusters.longest_holes().into_iter().flatten().take(wanted as usize).collect(),
        };
        self.promise(&mut clusters, ids, keep)
    }

    /// Whether so many clusters may be promised now.
    pub(crate) fn may_promise(&self, wanted: u32) -> bool {
        self.0.clusters.lock().in_runs + wanted <= self.0.count() / RUNS
    }

    /// Promises a run for what lies in these clusters and may be moved, if without it so many would be clean there.
    pub(crate) fn take_instead(&self, of: Range<u32>, wanted: u32, keep: u32) -> Option<Vec<Promised>> {
        let mut clusters = self.0.clusters.lock();
        let holes = || clusters.holes(0..self.0.count());
        let before = holes().find(|hole| hole.end == of.start).map_or(of.start, |hole| hole.start);
        let behind = holes().find(|hole| hole.start == of.end).map_or(of.end, |hole| hole.end);
        if behind - before < wanted || !of.clone().all(|id| clusters.is_old(&self.0.live, id)) {
            return None;
        }
        let others = holes().filter(|hole| hole.end < before || hole.start > behind);
        let ids = smallest(others, of.len() as u32)?.collect();
        self.promise(&mut clusters, ids, keep)
    }

    /// Promises these clean clusters, unless too few would be left.
    fn promise(&self, clusters: &mut Clusters, ids: Vec<u32>, keep: u32) -> Option<Vec<Promised>> {
        let wanted = ids.len() as u32;
        let is_enough = clusters.free >= clusters.reserved + keep + wanted;
        if !is_enough || clusters.in_runs + wanted > self.0.count() / RUNS {
            return None;
        }
        for id in &ids {
            clusters.take(*id, State::Busy);
            self.0.grants.note(*id);
        }
        clusters.in_runs += wanted;
        clusters.has_runs = true;
        self.0.seen.grows_old(clusters.granted, self.0.count());
        let promised = |id| Promised { space: Arc::clone(self.0), id, is_filled: AtomicBool::new(false) };
        Some(ids.into_iter().map(promised).collect())
    }

    /// Clusters that may be victims beside the longest holes.
    pub(crate) fn beside_holes(&self) -> Vec<u32> {
        let clusters = self.0.clusters.lock();
        let beside = |hole: Range<u32>| [hole.start.checked_sub(1), Some(hole.end).filter(|id| *id < self.0.count())];
        let beside = clusters.longest_holes().into_iter().take(LOOKED_AT).flat_map(beside).flatten();
        beside.filter(|id| clusters.is_old(&self.0.live, *id)).collect()
    }
}

impl Space {
    pub(crate) fn runs(self: &Arc<Self>) -> Runs<'_> {
        Runs(self)
    }

    /// Marks as leaving, without a commit to wait for yet, all clusters that may be victims and have nothing live.
    pub(crate) fn leave_dead(&self) -> Vec<u32> {
        let mut clusters = self.clusters.lock();
        let dead: Vec<_> =
            (0..self.count()).filter(|id| self.live.grains(*id) == 0 && clusters.is_old(&self.live, *id)).collect();
        dead.iter().for_each(|id| clusters.set(*id, State::Leaving(u64::MAX)));
        dead
    }

    /// Clusters with nothing live that are no victims before a checkpoint.
    pub(crate) fn young_dead(&self) -> u32 {
        let clusters = self.clusters.lock();
        let is_dead = |id: &u32| self.live.grains(*id) == 0 && clusters.states[*id as usize] == State::Sealed;
        (0..self.count()).filter(is_dead).filter(|id| !clusters.is_old(&self.live, *id)).count() as u32
    }
}

impl Clusters {
    /// A clean cluster is granted.
    pub(super) fn take(&mut self, id: u32, state: State) {
        self.queues.granted(id);
        self.states[id as usize] = state;
        self.pages[id as usize] = u64::MAX;
        self.aside.remove(&id);
        self.free -= 1;
        self.granted += 1;
    }

    /// Clean clusters side by side, of these.
    fn holes(&self, within: Range<u32>) -> impl Iterator<Item = Range<u32>> {
        let is_free = |state: &State| *state == State::Free;
        let mut end = within.start;
        let alike =
            self.states[within.start as usize..within.end as usize].chunk_by(move |a, b| is_free(a) == is_free(b));
        let spans = alike.map(move |states| {
            let start = end;
            end += states.len() as u32;
            (is_free(&states[0]), start..end)
        });
        spans.filter_map(|(is_free, span)| is_free.then_some(span))
    }

    fn longest_holes(&self) -> Vec<Range<u32>> {
        let mut holes: Vec<_> = self.holes(0..self.states.len() as u32).collect();
        holes.sort_by_key(|hole| Reverse(hole.len()));
        holes
    }

    /// The next clean cluster from the cursor on; where runs are promised, the one that spoils the smallest hole near.
    pub(super) fn next(&self) -> Option<u32> {
        let (start, count) = (self.cursor, self.states.len() as u32);
        let near = self.has_runs.then(|| self.holes(start..(start + NEAR).min(count)));
        let least = near.and_then(|holes| holes.min_by_key(Range::len)).map(|hole| hole.start);
        least.or_else(|| (start..count).chain(0..start).find(|id| self.states[*id as usize] == State::Free))
    }
}

/// The end of the smallest of these holes that has room for so many.
fn smallest(holes: impl Iterator<Item = Range<u32>>, wanted: u32) -> Option<Range<u32>> {
    let fitting = holes.filter(|hole| hole.len() >= wanted as usize).min_by_key(Range::len);
    fitting.map(|hole| hole.end - wanted..hole.end)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::space::Site;

    /// All but these are taken.
    fn with_holes(holes: &[Range<u32>]) -> Arc<Space> {
        let space = Space::new(160, 4096, (NextCluster::Overwrite, 16), false);
        for id in 0..160 {
            assert!(space.reserve(0) && space.grant(State::Busy, Site::Rest) == Some(id));
        }
        holes.iter().cloned().flatten().for_each(|id| space.set(id, State::Free));
        Arc::new(space)
    }

    fn ids(run: Option<&Vec<Promised>>) -> Option<Vec<u32>> {
        run.map(|run| run.iter().map(|promised| promised.id).collect())
    }

    #[test]
    fn a_run_comes_from_the_smallest_hole_that_has_room_for_it() {
        let space = with_holes(&[0..8, 20..25, 30..34, 40..41]);
        let four = space.runs().take(4, 0, false);
        assert_eq!(ids(four.as_ref()), Some(vec![30, 31, 32, 33]));
        let three = space.runs().take(3, 0, false);
        assert_eq!(ids(three.as_ref()), Some(vec![22, 23, 24]));
        assert!(space.runs().take(9, 0, false).is_none() && space.runs().take(3, 9, true).is_none());
        let last = space.runs().take(3, 8, true);
        assert_eq!(ids(last.as_ref()), Some(vec![5, 6, 7]));
        assert!(space.runs().take(1, 0, true).is_none(), "{} are promised", space.runs().longest());
        // What was filled is not clean again, and counts as promised no more.
        [four, three].into_iter().flatten().flatten().for_each(|promised| promised.is_filled());
        drop(last);
        let parts = space.runs().take(10, 1, true);
        assert_eq!(ids(parts.as_ref()), Some(vec![0, 1, 2, 3, 4, 5, 6, 7, 20, 21]), "in as few as there are");
        assert!(space.reserve(0));
        assert_eq!((space.grant(State::Busy, Site::Rest), space.available()), (Some(40), 0));
        drop(parts);
        assert_eq!(space.available(), 10);
    }

    #[test]
    fn a_single_cluster_does_not_cut_a_hole_where_there_are_runs() {
        let space = with_holes(&[0..8, 20..21]);
        assert!(space.reserve(0) && space.grant(State::Busy, Site::Rest) == Some(0));
        assert_eq!(ids(space.runs().take(1, 0, false).as_ref()), Some(vec![20]));
        assert!(space.reserve(0) && space.grant(State::Busy, Site::Rest) == Some(20));
    }

    #[test]
    fn what_has_nothing_live_leaves_at_once_if_no_recovery_scans_it() {
        let space = with_holes(&[]);
        for (id, page) in [(3, 1), (4, 1), (5, 9)] {
            space.set(id, State::Sealed);
            space.told(id, page);
        }
        space.live.add(4, 1);
        space.set_floor(8);
        assert_eq!((space.young_dead(), space.leave_dead()), (1, vec![3]));
        assert_eq!((space.leaving(), space.state(3), space.leave_dead().len()), (1, State::Leaving(u64::MAX), 0));
    }
}
