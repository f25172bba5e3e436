//! The clusters: which one is granted, in address order or near the last one, and which one gives its bytes back.
//!
//! The life of a cluster: *free* → *busy* (granted: being filled, in flight, or resident in memory) →
//! *sealed* (on the device only) → *leaving* (reclaimed; its survivors are not yet durable elsewhere) →
//! *free*. Checkpoints hold clusters of their own. A sealed cluster of which pages are in memory is *paged*, until the
//! last of them leaves. Where the device is to be smaller, its last clusters *retire* when they are free.
//!
//! Invariants: a cluster is granted only when it is free, and becomes free only when recovery needs
//! nothing in it; a reservation is a promise that a later grant will succeed; the last [`SPARE`] clusters
//! are granted only to what makes room. Nothing relies on the order in which clusters are granted or emptied
//! (`docs/FORMAT.md`, "Reclaim and the scan").

mod end;
mod fill;
mod grants;
mod live;
mod pages;
mod queues;
mod runs;
mod seen;
mod uses;
mod victim;

use std::{
    collections::{BTreeMap, BTreeSet},
    mem,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use parking_lot::Mutex;

pub(crate) use self::{fill::Fill, queues::Queue, runs::Promised};
use self::{grants::Grants, live::Live, queues::Queues, seen::Seen, uses::Uses};
use super::region::{Regions, Site};

/// Which free cluster is written next, where objects lie in clusters (Shriver et al. 2001, §3.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum NextCluster {
    /// The next one in address order, round and round: writes go over the device like a hand over a clock.
    #[default]
    Overwrite,
    /// The free one closest to the last write.
    ClosestToWrite,
    /// The free one closest to the last access, be it read or written: where a disk's arm is.
    ClosestToAccess,
    /// The next one in the region of its group, which is the nearer to the middle of the device the lower the group's
    /// number is (Ledlie 2000, §3).
    InRegion,
}

/// Which cluster is emptied first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The next one in the ring: the oldest.
    Oldest,
    /// The one with the least in it, if emptying it gains [anything worth it](Space::least_gain): cheapest to compact.
    Emptiest,
    /// The same, if it is half empty at least.
    HalfEmpty,
    /// The one of which nothing was asked for for longest.
    LeastRecent,
    /// The oldest of one of two queues.
    Queued,
    /// One whose age counts from an earlier second than this.
    Aged(u32),
    /// The first of those from one number up to another.
    Within(u32, u32),
}

/// Clusters kept back for survivors of reclaim and for checkpoints, so that making room never needs
/// room that only it can make.
pub(crate) const SPARE: u32 = 3;

/// Seconds until a cluster that could not be emptied is tried again, where no other can be: on a disk that fails, each
/// try may take seconds.
const ASIDE: u32 = 60;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Busy,
    Sealed,
    /// On the device, and some pages of it in memory too.
    Paged,
    /// Free once the commit with this number is complete.
    Leaving(u64),
    Checkpoint,
    /// Given back: it is granted no more.
    Retired,
}

impl State {
    /// Whether entries lead to this cluster on the device.
    pub(crate) fn is_read(self) -> bool {
        matches!(self, Self::Sealed | Self::Paged)
    }

    /// Whether it takes room of a queue.
    fn is_held(self) -> bool {
        matches!(self, Self::Busy | Self::Sealed | Self::Paged)
    }
}

/// Most pages that a cluster may be divided into.
pub(crate) const PAGES_MAX: u32 = u64::BITS;

pub(crate) struct Space {
    clusters: Mutex<Clusters>,
    pub(crate) live: Live,
    pub(crate) uses: Uses,
    seen: Seen,
    pub(crate) grants: Grants,
    next: NextCluster,
    /// Pages in memory, and clusters that they are of.
    pages_held: [AtomicUsize; 2],
}

struct Clusters {
    states: Vec<State>,
    /// Journal page, or a later one, that told last of each cluster; see [`Space::victim`].
    pages: Vec<u64>,
    /// First journal page that any recovery reads: it scans no cluster of which only earlier ones told.
    floor: u64,
    /// Where the next grant looks first.
    cursor: u32,
    /// The cluster that was granted last.
    written: u32,
    /// Where the next search for the oldest victim begins.
    hand: u32,
    /// The least recently used when they were last looked for, the first to go last; with the number they had.
    idle: Vec<(u64, u32)>,
    /// Those with the least in them when they were last looked for, the emptiest last.
    emptiest: Vec<u32>,
    queues: Queues,
    regions: Regions,
    /// Which pages of each cluster are in memory, a bit for each; none before one is.
    resident: Vec<u64>,
    /// No victims as long as something in them is live, and the second from which they are again.
    aside: BTreeSet<u32>,
    recall: u32,
    free: u32,
    leaving: u32,
    /// All that are leaving, and some that were.
    leavers: Vec<u32>,
    reserved: u32,
    /// Clusters of runs that are not yet written, and whether there ever were any.
    in_runs: u32,
    has_runs: bool,
    /// Where the last one was found.
    window: u32,
    /// Bytes that are empty in clusters of runs, as long as these are busy.
    ends: BTreeMap<u32, u64>,
    granted: u64,
}

impl Space {
    /// Memory that a cluster's state, page, number of grants, count of live grains and their weight take.
    pub(crate) const BYTES_PER_CLUSTER: u64 =
        (size_of::<State>() + size_of::<u64>()) as u64 + Grants::BYTES + Live::BYTES_PER_CLUSTER;
    /// What the numbers of grants of places take.
    pub(crate) const BYTES_OF_PLACES: u64 = Grants::SHARED_BYTES;
    /// What the second takes from which its age counts, where that is noted.
    pub(crate) const BYTES_PER_AGING_CLUSTER: u64 = Uses::BYTES_PER_AGE;
    /// The same as the first, where it is also noted when each was used.
    pub(crate) const BYTES_PER_USED_CLUSTER: u64 = Self::BYTES_PER_CLUSTER + Uses::BYTES_PER_CLUSTER;

    /// What the queue takes that it is in, where there are two.
    pub(crate) const BYTES_PER_QUEUED_CLUSTER: u64 = Self::BYTES_PER_CLUSTER + Queues::BYTES_PER_CLUSTER;

    /// All free. `groups`: how many [`NextCluster::InRegion`] divides the device among. `notes_use`: whether
    /// [`Victim::LeastRecent`] will be asked for.
    pub(crate) fn new(count: u32, cluster_grains: u32, (next, groups): (NextCluster, u32), notes_use: bool) -> Self {
        let clusters = Clusters {
            states: vec![State::Free; count as usize],
            pages: vec![0; count as usize],
            floor: 0,
            cursor: 0,
            written: 0,
            hand: 0,
            idle: Vec::new(),
            emptiest: Vec::new(),
            queues: Queues::default(),
            regions: Regions::new(count, groups),
            resident: Vec::new(),
            aside: BTreeSet::new(),
            recall: 0,
            free: count,
            leaving: 0,
            leavers: Vec::new(),
            reserved: 0,
            in_runs: 0,
            has_runs: false,
            window: 0,
            ends: BTreeMap::new(),
            granted: 0,
        };
        Self {
            clusters: Mutex::new(clusters),
            live: Live::new(count, cluster_grains),
            uses: if notes_use { Uses::noting(count) } else { Uses::default() },
            seen: Seen::default(),
            grants: Grants::new(count),
            next,
            pages_held: Default::default(),
        }
    }

    /// Where objects have places of their own, these are what is granted.
    pub(crate) fn with_places(mut self) -> Self {
        self.grants = Grants::of_places();
        self
    }

    /// Has two queues, for [`Victim::Queued`].
    pub(crate) fn with_queues(mut self) -> Self {
        self.clusters.get_mut().queues = Queues::new(self.count());
        self
    }

    /// Notes ages too: those of what is there count from this second.
    pub(crate) fn aging_from(mut self, second: u32) -> Self {
        self.uses.age_from(self.count(), second);
        self
    }

    pub(crate) fn count(&self) -> u32 {
        self.live.clusters()
    }

    /// Promises a later grant, leaving `keep` clusters unpromised.
    pub(crate) fn reserve(&self, keep: u32) -> bool {
        let mut clusters = self.clusters.lock();
        let enough = clusters.free > clusters.reserved + keep;
        clusters.reserved += u32::from(enough);
        enough
    }

    /// Takes a promise back.
    pub(crate) fn unreserve(&self) {
        self.clusters.lock().reserved -= 1;
    }

    /// The cluster that an earlier [`Space::reserve`] promised. No victim until [`Space::told`] of.
    pub(crate) fn grant(&self, state: State, site: Site) -> Option<u32> {
        let mut clusters = self.clusters.lock();
        let count = clusters.states.len() as u32;
        let found = match self.next {
            NextCluster::Overwrite => clusters.next(),
            NextCluster::ClosestToWrite => clusters.closest(clusters.written),
            NextCluster::ClosestToAccess => clusters.closest(self.uses.accessed()),
            NextCluster::InRegion => {
                let Clusters { regions, states, .. } = &mut *clusters;
                let found = regions.place(site, |id| states[id as usize] == State::Free);
                found.map_or_else(|near| clusters.closest(near), Some)
            }
        }?;
        self.uses.note_access(found);
        clusters.take(found, state);
        self.grants.note(found);
        clusters.cursor = (found + 1) % count;
        clusters.written = found;
        clusters.reserved = clusters.reserved.saturating_sub(1);
        self.seen.grows_old(clusters.granted, count);
        Some(found)
    }

    /// Moves a cluster from one state to another if it is in the first.
    pub(crate) fn shift(&self, id: u32, from: State, to: State) -> bool {
        let mut clusters = self.clusters.lock();
        let shifts = clusters.states[id as usize] == from;
        if shifts {
            clusters.set(id, to);
        }
        shifts
    }

    pub(crate) fn set(&self, id: u32, to: State) {
        self.clusters.lock().set(id, to);
    }

    /// Frees what waited for commits up to this number.
    pub(crate) fn settle(&self, completed: u64) {
        let mut clusters = self.clusters.lock();
        // Not by a look at all: this is done at each commit.
        for id in mem::take(&mut clusters.leavers) {
            match clusters.states[id as usize] {
                State::Leaving(commit) if commit <= completed => clusters.set(id, State::Free),
                State::Leaving(_) => clusters.leavers.push(id),
                _ => {}
            }
        }
    }

    /// No recovery reads journal pages before this one any more.
    pub(crate) fn set_floor(&self, page: u64) {
        self.clusters.lock().floor = page;
        self.seen.is_old.store(true, Relaxed);
    }

    /// Journal pages up to this one may make a recovery look at the cluster.
    pub(crate) fn told(&self, id: u32, page: u64) {
        self.clusters.lock().pages[id as usize] = page;
    }

    /// Whether a journal page from this one on told of the cluster.
    pub(crate) fn is_told_since(&self, id: u32, page: u64) -> bool {
        self.clusters.lock().pages[id as usize] >= page
    }

    pub(crate) fn cursor(&self) -> u32 {
        self.clusters.lock().cursor
    }

    pub(crate) fn set_cursor(&self, cursor: u32) {
        let mut clusters = self.clusters.lock();
        clusters.cursor = cursor % self.count();
        clusters.hand = clusters.cursor;
        clusters.written = clusters.cursor;
        let oldest = clusters.cursor;
        clusters.queues.begin_at(oldest);
        self.uses.note_access(clusters.cursor);
    }

    /// Clusters that can be promised.
    pub(crate) fn available(&self) -> u32 {
        let clusters = self.clusters.lock();
        clusters.free.saturating_sub(clusters.reserved)
    }

    /// Clusters that will be free after the next commit.
    pub(crate) fn leaving(&self) -> u32 {
        self.clusters.lock().leaving
    }

    /// Clusters granted since the store was opened.
    pub(crate) fn granted(&self) -> u64 {
        self.clusters.lock().granted
    }

    pub(crate) fn state(&self, id: u32) -> State {
        self.clusters.lock().states[id as usize]
    }
}

impl Clusters {
    /// The free cluster that is closest to this one; of two, the later.
    fn closest(&self, to: u32) -> Option<u32> {
        let is_free = |id: &u32| self.states[*id as usize] == State::Free;
        let count = self.states.len() as u32;
        let near = |distance: u32| [to.checked_add(distance).filter(|id| *id < count), to.checked_sub(distance)];
        (0..count).flat_map(near).flatten().find(is_free)
    }

    /// So many more, all free.
    fn lengthen(&mut self, by: u32) {
        let count = self.states.len() + by as usize;
        self.states.resize(count, State::Free);
        self.pages.resize(count, 0);
        if !self.resident.is_empty() {
            self.resident.resize(count, 0);
        }
        self.queues.lengthen(by);
        self.regions.lengthen(by);
        self.free += by;
    }

    fn set(&mut self, id: u32, to: State) {
        let from = mem::replace(&mut self.states[id as usize], to);
        let (left, leaves) = [from, to].map(|state| matches!(state, State::Leaving(_))).into();
        self.queues.moved(id, [from, to].map(State::is_held));
        self.ends.remove(&id);
        self.free -= u32::from(from == State::Free);
        self.free += u32::from(to == State::Free);
        self.leaving -= u32::from(left);
        self.leaving += u32::from(leaves);
        if leaves && !left {
            self.leavers.push(id);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Space {
        Space::new(20, 4096, (NextCluster::Overwrite, 16), false)
    }

    #[test]
    fn grants_in_address_order_and_wraps() {
        let space = ring();
        for id in 0..18 {
            assert!(space.reserve(SPARE.min(1)));
            assert_eq!(space.grant(State::Busy, Site::Rest), Some(id));
        }
        assert!(!space.reserve(2));
        space.set(3, State::Free);
        assert!(space.reserve(2));
        assert_eq!(space.grant(State::Busy, Site::Rest), Some(18));
        assert_eq!(space.grant(State::Busy, Site::Rest), Some(19));
        assert_eq!(space.grant(State::Busy, Site::Rest), Some(3));
        assert_eq!(space.grant(State::Busy, Site::Rest), None);
    }

    fn granted(space: &Space) -> u32 {
        assert!(space.reserve(0));
        space.grant(State::Busy, Site::Rest).unwrap()
    }

    #[test]
    fn the_next_cluster_is_the_free_one_closest_to_the_last_write_or_access() {
        for (next, expected) in [
            (NextCluster::Overwrite, [1, 2]),
            (NextCluster::ClosestToWrite, [1, 2]),
            (NextCluster::ClosestToAccess, [12, 11]),
        ] {
            let space = Space::new(20, 4096, (next, 16), false);
            assert_eq!(granted(&space), 0);
            space.uses.note_access(12);
            assert_eq!(
                [granted(&space), granted(&space)].map(|id| if id == 13 { 11 } else { id }),
                expected,
                "{next:?}"
            );
        }
        // All but a few are taken: the hand goes on, the arm stays near.
        for (next, expected) in
            [(NextCluster::Overwrite, 17), (NextCluster::ClosestToWrite, 9), (NextCluster::ClosestToAccess, 2)]
        {
            let space = Space::new(20, 4096, (next, 16), false);
            assert!((0..20).all(|_| granted(&space) < 20));
            space.set(11, State::Free);
            space.uses.note_access(11);
            assert_eq!(granted(&space), 11);
            [2, 9, 17].into_iter().for_each(|id| space.set(id, State::Free));
            space.uses.note_access(4);
            assert_eq!(granted(&space), expected, "{next:?}");
        }
    }

    #[test]
    fn the_least_recently_used_cluster_is_the_victim_wherever_it_lies() {
        let space = Space::new(20, 4096, (NextCluster::ClosestToAccess, 16), true);
        for id in 0..8 {
            assert_eq!(granted(&space), id);
            space.uses.note(id, [50, 30, 80, 10, 90, 40, 60, 70][id as usize]);
            space.told(id, 7);
            space.set(id, State::Sealed);
        }
        assert_eq!(space.victims().pick(Victim::LeastRecent), None, "all are young");
        space.set_floor(8);
        assert_eq!(space.victims().pick(Victim::LeastRecent), Some(3));
        // Used since they were looked at.
        space.uses.note(1, 100);
        assert_eq!(space.victims().pick(Victim::LeastRecent), Some(5));
        space.told(0, 9);
        assert_eq!(space.victims().pick(Victim::LeastRecent), Some(6), "a recovery would scan the other");
        let rest: Vec<_> = std::iter::from_fn(|| space.victims().pick(Victim::LeastRecent)).collect();
        assert_eq!(rest, [7, 2, 4, 1]);
    }

    #[test]
    fn a_cluster_is_no_victim_while_a_page_of_it_is_in_memory() {
        let space = ring();
        let id = granted(&space);
        assert!(!space.pages().claim(id, 3), "it is being filled");
        space.told(id, 1);
        space.set(id, State::Sealed);
        space.set_floor(8);
        assert!(space.pages().claim(id, 3) && !space.pages().claim(id, 3) && space.pages().claim(id, 63));
        assert!(space.pages().lacks(id, 0) && !space.pages().lacks(id, 3));
        assert!(!space.shift(id, State::Sealed, State::Busy), "nobody makes all of it resident beside its pages");
        assert_eq!((space.pages().held(), space.victims().pick(Victim::Oldest)), ((2, 1), None));
        space.pages().release(id, 3);
        space.pages().release(id, 3);
        assert_eq!((space.pages().held(), space.victims().pick(Victim::Oldest)), ((1, 1), None));
        space.pages().release(id, 63);
        assert_eq!((space.pages().held(), space.victims().pick(Victim::Oldest)), ((0, 0), Some(id)));
    }

    #[test]
    fn who_is_set_aside_is_a_victim_when_it_is_empty_or_after_a_while() {
        let space = ring();
        for _ in 0..3 {
            let id = granted(&space);
            space.told(id, 1);
            space.set(id, State::Sealed);
            space.live.add(id, 100 + id);
        }
        space.set_floor(8);
        assert_eq!(space.victims().pick(Victim::Emptiest), Some(0));
        space.victims().set_aside(0, 1000);
        assert_eq!((space.victims().aside(), space.leaving()), (1, 0));
        assert_eq!(space.victims().pick(Victim::Emptiest), Some(1));
        space.victims().set_aside(1, 1001);
        space.live.sub(1, 101);
        assert_eq!(space.victims().pick(Victim::Emptiest), Some(1), "nothing is live in it");
        assert_eq!([space.victims().pick(Victim::Emptiest), space.victims().pick(Victim::Oldest)], [Some(2), None]);
        assert!(
            !space.victims().recall(1001 + ASIDE - 1)
                && space.victims().recall(1001 + ASIDE)
                && !space.victims().recall(u32::MAX)
        );
        assert_eq!((space.victims().pick(Victim::Emptiest), space.victims().aside()), (Some(0), 0));
    }

    #[test]
    fn victims_are_sealed_and_no_recovery_scans_them() {
        let space = ring();
        for _ in 0..4 {
            let id = space.grant(State::Busy, Site::Rest).unwrap();
            space.set(id, State::Sealed);
            space.live.add(id, 100 - id);
        }
        assert_eq!(space.victims().pick(Victim::Oldest), None);
        (0..4).for_each(|id| space.told(id, 7));
        space.set_floor(7);
        assert_eq!(space.victims().pick(Victim::Oldest), None);
        space.set_floor(8);
        assert_eq!(space.victims().pick(Victim::Oldest), Some(0));
        assert_eq!(space.victims().pick(Victim::Emptiest), Some(3));
        assert_eq!(space.leaving(), 2);
        space.set(0, State::Leaving(5));
        space.settle(4);
        assert_eq!(space.state(0), State::Leaving(5));
        space.settle(5);
        assert_eq!(space.state(0), State::Free);
    }
}
