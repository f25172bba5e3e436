//! The ring of clusters: which one is granted, in address order, and which one gives its bytes back.
//!
//! The life of a cluster: *free* → *busy* (granted: being filled, in flight, or resident in memory) →
//! *sealed* (on the device only) → *leaving* (reclaimed; its survivors are not yet durable elsewhere) →
//! *free*. Checkpoints hold clusters of their own.
//!
//! Invariants: a cluster is granted only when it is free, and becomes free only when recovery needs
//! nothing in it; a reservation is a promise that a later grant will succeed; the last [`SPARE`] clusters
//! are granted only to what makes room.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};

use parking_lot::Mutex;

/// Which cluster is emptied first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Victim {
    /// The next one in the ring: the oldest.
    Oldest,
    /// The one with the least in it: cheapest to compact.
    Emptiest,
}

/// Clusters kept back for survivors of reclaim and for checkpoints, so that making room never needs
/// room that only it can make.
pub(crate) const SPARE: u32 = 3;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum State {
    Free,
    Busy,
    Sealed,
    /// Free once the commit with this number is complete.
    Leaving(u64),
    Checkpoint,
}

pub(crate) struct Space {
    clusters: Mutex<Clusters>,
    /// Bytes that live objects take in each sealed cluster, in grains.
    live: Box<[AtomicU32]>,
    cluster_grains: u32,
}

struct Clusters {
    states: Vec<State>,
    /// Journal page, or a later one, that told last of each cluster; see [`Space::victim`].
    pages: Vec<u64>,
    /// First journal page that any recovery reads: it scans no cluster of which only earlier ones told.
    floor: u64,
    /// Where the next grant looks first.
    cursor: u32,
    /// Where the next search for the oldest victim begins.
    hand: u32,
    free: u32,
    leaving: u32,
    reserved: u32,
    granted: u64,
}

impl Space {
    /// Memory that a cluster's state, page and count of live grains take.
    pub(crate) const BYTES_PER_CLUSTER: u64 = (size_of::<State>() + size_of::<u64>() + size_of::<AtomicU32>()) as u64;

    pub(crate) fn new(count: u32, cluster_grains: u32) -> Self {
        let clusters = Clusters {
            states: vec![State::Free; count as usize],
            pages: vec![0; count as usize],
            floor: 0,
            cursor: 0,
            hand: 0,
            free: count,
            leaving: 0,
            reserved: 0,
            granted: 0,
        };
        Self { clusters: Mutex::new(clusters), live: (0..count).map(|_| AtomicU32::new(0)).collect(), cluster_grains }
    }

    pub(crate) fn count(&self) -> u32 {
        self.live.len() as u32
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
    pub(crate) fn grant(&self, state: State) -> Option<u32> {
        let mut clusters = self.clusters.lock();
        let count = clusters.states.len() as u32;
        let start = clusters.cursor;
        let found = (start..count).chain(0..start).find(|id| clusters.states[*id as usize] == State::Free)?;
        clusters.states[found as usize] = state;
        clusters.pages[found as usize] = u64::MAX;
        clusters.cursor = (found + 1) % count;
        clusters.free -= 1;
        clusters.reserved = clusters.reserved.saturating_sub(1);
        clusters.granted += 1;
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
        if clusters.leaving == 0 {
            return;
        }
        for id in 0..self.count() {
            if matches!(clusters.states[id as usize], State::Leaving(commit) if commit <= completed) {
                clusters.set(id, State::Free);
            }
        }
    }

    /// Picks a cluster to empty and marks it as leaving. Never one that a recovery may scan: what reclaim
    /// drops from it must not bring back an older version (`docs/FORMAT.md`, "Reclaim and the scan").
    pub(crate) fn victim(&self, which: Victim) -> Option<u32> {
        let mut clusters = self.clusters.lock();
        let count = self.count();
        let old = |clusters: &Clusters, id: u32| {
            clusters.states[id as usize] == State::Sealed && clusters.pages[id as usize] < clusters.floor
        };
        let found = match which {
            Victim::Oldest => {
                let start = clusters.hand;
                (start..count).chain(0..start).find(|id| old(&clusters, *id))
            }
            Victim::Emptiest => (0..count)
                .filter(|id| old(&clusters, *id))
                .min_by_key(|id| self.live(*id))
                .filter(|id| self.live(*id) < self.cluster_grains / 16 * 15),
        }?;
        clusters.hand = (found + 1) % count;
        clusters.set(found, State::Leaving(u64::MAX));
        Some(found)
    }

    /// No recovery reads journal pages before this one any more.
    pub(crate) fn set_floor(&self, page: u64) {
        self.clusters.lock().floor = page;
    }

    /// Journal pages up to this one may make a recovery look at the cluster.
    pub(crate) fn told(&self, id: u32, page: u64) {
        self.clusters.lock().pages[id as usize] = page;
    }

    pub(crate) fn cursor(&self) -> u32 {
        self.clusters.lock().cursor
    }

    pub(crate) fn set_cursor(&self, cursor: u32) {
        let mut clusters = self.clusters.lock();
        clusters.cursor = cursor % self.count();
        clusters.hand = clusters.cursor;
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

    pub(crate) fn add_live(&self, id: u32, grains: u32) {
        self.live[id as usize].fetch_add(grains, Relaxed);
    }

    pub(crate) fn sub_live(&self, id: u32, grains: u32) {
        // Saturating: entries that outlived a damaged cluster's table are forgotten one by one, later.
        let sub = |live: u32| Some(live.saturating_sub(grains));
        let _ = self.live[id as usize].fetch_update(Relaxed, Relaxed, sub);
    }

    pub(crate) fn clear_live(&self, id: u32) {
        self.live[id as usize].store(0, Relaxed);
    }

    pub(crate) fn live(&self, id: u32) -> u32 {
        self.live[id as usize].load(Relaxed)
    }
}

impl Clusters {
    fn set(&mut self, id: u32, to: State) {
        let from = std::mem::replace(&mut self.states[id as usize], to);
        self.free -= u32::from(from == State::Free);
        self.free += u32::from(to == State::Free);
        self.leaving -= u32::from(matches!(from, State::Leaving(_)));
        self.leaving += u32::from(matches!(to, State::Leaving(_)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring() -> Space {
        Space::new(20, 4096)
    }

    #[test]
    fn grants_in_address_order_and_wraps() {
        let space = ring();
        for id in 0..18 {
            assert!(space.reserve(SPARE.min(1)));
            assert_eq!(space.grant(State::Busy), Some(id));
        }
        assert!(!space.reserve(2));
        space.set(3, State::Free);
        assert!(space.reserve(2));
        assert_eq!(space.grant(State::Busy), Some(18));
        assert_eq!(space.grant(State::Busy), Some(19));
        assert_eq!(space.grant(State::Busy), Some(3));
        assert_eq!(space.grant(State::Busy), None);
    }

    #[test]
    fn victims_are_sealed_and_no_recovery_scans_them() {
        let space = ring();
        for _ in 0..4 {
            let id = space.grant(State::Busy).unwrap();
            space.set(id, State::Sealed);
            space.add_live(id, 100 - id);
        }
        assert_eq!(space.victim(Victim::Oldest), None);
        (0..4).for_each(|id| space.told(id, 7));
        space.set_floor(7);
        assert_eq!(space.victim(Victim::Oldest), None);
        space.set_floor(8);
        assert_eq!(space.victim(Victim::Oldest), Some(0));
        assert_eq!(space.victim(Victim::Emptiest), Some(3));
        assert_eq!(space.leaving(), 2);
        space.set(0, State::Leaving(5));
        space.settle(4);
        assert_eq!(space.state(0), State::Leaving(5));
        space.settle(5);
        assert_eq!(space.state(0), State::Free);
    }
}
