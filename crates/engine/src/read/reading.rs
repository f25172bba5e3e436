//! Question 4, reading: how much is read for one object, and which gets share the read.
//!
//! A read brings the object alone or what lies around it, whichever has been paying: the second pays when the
//! neighbours it brought in saved more than one read, and were not many for nothing: they take memory from others. How
//! much lies around an object is the device's affair: as much as takes as long again as the object alone, up to its
//! cluster, for then one read saved is what it costs. That is all of a cluster where an arm has to move, and less where
//! bytes are what is paid for. Costs, neighbours brought and neighbours used are measured, the last two per class of
//! placement, with an occasional cluster read to keep the measures fresh.
//!
//! Invariants: reads of the same place at the same time are one device read ([`InFlight`]); but a read on a thread's
//! own ring is for that thread's tasks only, so that no other caller depends on its turning the ring; and none is
//! joined that may have begun before the place was given to what is sought.

use std::{
    collections::HashMap,
    hash::{BuildHasherDefault, Hash, Hasher},
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use picaflor_common::Identity;
use picaflor_device::{Device, Request};

use crate::base::policy::Reading;

/// What one read brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Object,
    Cluster,
}

const CLASSES: usize = 256;
/// Of so many neighbours that are not asked for, each in the place of something that memory held, one is taken to have
/// cost a read.
const CROWD: u32 = 16;
/// One read in this many is a cluster read, to learn whether it would pay: often while a class is new,
/// then so rarely that it costs a few percent of the bytes read.
const EXPLORE: [u32; 2] = [32, 1024];
/// Cluster reads after which a class is no longer new.
const TRIALS: u32 = 16;
/// Where less than a cluster is worth it, one read in this many is of the whole cluster, to learn what that costs; and
/// so are the first of all.
const MEASURE: u32 = 128;
const MEASURED: u32 = 8;
/// Windows are multiples of this, in bytes.
const STEP: u64 = 4096;
/// Cluster reads of a class after which its own neighbours are what counts.
const KNOWN: u32 = 4;
/// Weight of a new observation: 1/8.
const EWMA: u32 = 3;
/// The same of what a read costs, which varies more: 1/32.
const COST_EWMA: u32 = 5;

/// What the cluster reads of a class brought: moving means.
#[derive(Default)]
struct Paid {
    /// Neighbours used for each read, in 1/256.
    used: AtomicU32,
    /// Neighbours that came with it, in 1/256.
    brought: AtomicU32,
    /// Reads, up to [`KNOWN`].
    reads: AtomicU32,
}

impl Paid {
    fn brought(&self, neighbours: u32) {
        let less = |old: u32| old - old.div_ceil(1 << EWMA);
        self.used.store(less(self.used.load(Relaxed)), Relaxed);
        self.brought.store(less(self.brought.load(Relaxed)) + weight(neighbours), Relaxed);
        self.reads.store((self.reads.load(Relaxed) + 1).min(KNOWN), Relaxed);
    }

    fn used(&self, neighbours: u32) {
        self.used.store((self.used.load(Relaxed) + weight(neighbours)).min(1 << 24), Relaxed);
    }

    /// Reads saved by one, in 1/256.
    fn saved(&self) -> u64 {
        self.used.load(Relaxed).saturating_sub(self.brought.load(Relaxed) / CROWD).into()
    }
}

fn weight(neighbours: u32) -> u32 {
    neighbours.min(1 << 12) << (8 - EWMA)
}

pub(crate) struct Reader {
    reading: Reading,
    /// What cluster reads brought, by class.
    paid: Box<[Paid]>,
    /// The same whatever the class, for those of which little is known.
    paid_by_all: Paid,
    /// Nanoseconds per read of an object and of a cluster; 0 until one was measured.
    cost: [AtomicU64; 2],
    /// Reads around an object.
    around: AtomicU32,
    asked: Box<[AtomicU32]>,
    flights: Mutex<HashMap<Sought, Arc<InFlight>, BuildHasherDefault<Identity>>>,
    /// Reads that wait for others.
    held: Mutex<Vec<Request>>,
    /// Clock nanoseconds by which they are to be issued; `u64::MAX` if there are none.
    due: AtomicU64,
}

impl Reader {
    pub(crate) fn new(reading: Reading) -> Self {
        Self {
            reading,
            paid: (0..CLASSES).map(|_| Paid::default()).collect(),
            paid_by_all: Paid::default(),
            cost: [AtomicU64::new(0), AtomicU64::new(0)],
            around: AtomicU32::new(0),
            asked: (0..CLASSES).map(|_| AtomicU32::new(0)).collect(),
            flights: Mutex::default(),
            held: Mutex::default(),
            due: AtomicU64::new(u64::MAX),
        }
    }

    /// What to read for an object whose cluster has this class, if memory has room for clusters.
    pub(crate) fn extent(&self, class: u16, room: bool) -> Extent {
        match self.reading {
            Reading::Cluster => return Extent::Cluster,
            Reading::WhatPays if room => {}
            _ => return Extent::Object,
        }
        let class = usize::from(class) % CLASSES;
        let is_known = self.paid[class].reads.load(Relaxed) >= KNOWN;
        let saved = if is_known { &self.paid[class] } else { &self.paid_by_all }.saved();
        // A window takes as long as two reads. Latency alone flatters large ones where many are in flight: never count
        // one for less. Where a read takes no time, none is worth saving.
        if saved > 256 && self.cost[0].load(Relaxed) > 0 {
            return Extent::Cluster;
        }
        let asked = self.asked[class].fetch_add(1, Relaxed);
        let every = EXPLORE[usize::from(asked >= TRIALS * EXPLORE[0])];
        if asked % every == every - 1 { Extent::Cluster } else { Extent::Object }
    }

    /// Bytes to read around an object of a cluster of `cluster` bytes.
    pub(crate) fn window(&self, cluster: usize) -> usize {
        let [object, whole] = [self.cost[0].load(Relaxed), self.cost[1].load(Relaxed)];
        let nth = self.around.fetch_add(1, Relaxed);
        if whole <= 2 * object || nth < MEASURED || nth.is_multiple_of(MEASURE) {
            return cluster;
        }
        let worth = cluster as u64 * object / (whole - object);
        (worth.next_multiple_of(STEP) as usize).min(cluster)
    }

    /// A read took this long: of an object, of a cluster, or of what nothing is learnt from.
    pub(crate) fn took(&self, measures: Option<Extent>, nanos: u64) {
        let Some(extent) = measures else { return };
        let cost = &self.cost[usize::from(extent == Extent::Cluster)];
        let old = cost.load(Relaxed);
        let new = if old == 0 { nanos } else { old - (old >> COST_EWMA) + (nanos >> COST_EWMA) };
        cost.store(new, Relaxed);
    }

    /// A cluster of this class was read, with so many neighbours.
    pub(crate) fn brought(&self, class: u16, neighbours: u32) {
        self.paid[usize::from(class) % CLASSES].brought(neighbours);
        self.paid_by_all.brought(neighbours);
    }

    /// So many of the neighbours were used that a read of a cluster of this class brought.
    pub(crate) fn used(&self, class: u16, neighbours: u32) {
        self.paid[usize::from(class) % CLASSES].used(neighbours);
        self.paid_by_all.used(neighbours);
    }

    /// A cluster that was read in left memory after this many of its neighbours were used.
    pub(crate) fn paid(&self, class: u16, neighbours: u32) {
        self.brought(class, 0);
        self.used(class, neighbours);
    }

    /// Whether whole clusters are all that is ever read.
    pub(crate) fn is_by_cluster(&self) -> bool {
        self.reading == Reading::Cluster
    }

    /// Whether reads wait for each other.
    pub(crate) fn reads_in_batches(&self) -> bool {
        self.reading == Reading::Batch
    }

    /// Adds a read to the batch, which is to be issued by `due` if it is its first. Returns how many wait.
    pub(crate) fn hold(&self, request: Request, due: u64) -> usize {
        let mut held = self.held.lock();
        held.push(request);
        if held.len() == 1 {
            self.due.store(due, Relaxed);
        }
        held.len()
    }

    /// The batch, in the order in which its objects lie (Markatos et al. 1999, §3.6).
    pub(crate) fn release(&self) -> Vec<Request> {
        let mut held = {
            let mut held = self.held.lock();
            self.due.store(u64::MAX, Relaxed);
            std::mem::take(&mut *held)
        };
        held.sort_by_key(|request| request.offset);
        held
    }

    /// When the batch is to be issued.
    pub(crate) fn due(&self) -> u64 {
        self.due.load(Relaxed)
    }

    /// Joins the read of this place, or begins one. True for the one that must do the read.
    pub(crate) fn join(&self, place: Sought) -> (Arc<InFlight>, bool) {
        let mut flights = self.flights.lock();
        if let Some(flight) = flights.get(&place) {
            return (Arc::clone(flight), false);
        }
        let flight = Arc::new(InFlight::default());
        flights.insert(place, Arc::clone(&flight));
        (flight, true)
    }

    /// The read of this place has its outcome.
    pub(crate) fn land(&self, place: Sought, flight: &InFlight, outcome: Outcome) {
        self.flights.lock().remove(&place);
        let wakers = {
            let mut state = flight.state.lock();
            state.outcome = Some(outcome);
            std::mem::take(&mut state.wakers)
        };
        flight.landed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// What makes two reads the same one: what is read, when its place was given last, and the ring of the thread whose
/// tasks alone wait for it; 0 for a read that everybody may wait for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sought {
    pub(crate) place: u64,
    pub(crate) granted: u32,
    pub(crate) ring: u64,
}

impl Hash for Sought {
    /// Another number for each place, as even as a hash.
    fn hash<H: Hasher>(&self, state: &mut H) {
        state.write_u64((self.place ^ self.ring << 48).wrapping_mul(0x9e37_79b9_7f4a_7c15));
    }
}

/// The bytes read.
pub(crate) type Outcome = Result<Bytes, Arc<io::Error>>;

/// One device read that any number of gets wait for.
#[derive(Default)]
pub(crate) struct InFlight {
    state: Mutex<FlightState>,
    landed: Condvar,
}

#[derive(Default)]
struct FlightState {
    outcome: Option<Outcome>,
    wakers: Vec<Waker>,
}

impl InFlight {
    /// The outcome, if it is there or comes within `time`.
    pub(crate) fn wait_for(&self, time: Duration) -> Option<Outcome> {
        let mut state = self.state.lock();
        if state.outcome.is_none() {
            self.landed.wait_for(&mut state, time);
        }
        state.outcome.clone()
    }

    /// The outcome; `device` is where it comes from.
    pub(crate) fn wait(&self, device: &dyn Device) -> Outcome {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.clone();
            }
            let moved = MutexGuard::unlocked(&mut state, || device.advance());
            if !moved && state.outcome.is_none() {
                self.landed.wait(&mut state);
            }
        }
    }

    pub(crate) fn poll(&self, waker: &Waker) -> Option<Outcome> {
        let mut state = self.state.lock();
        if state.outcome.is_none() {
            state.wakers.push(waker.clone());
        }
        state.outcome.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share_of_cluster_reads(reader: &Reader) -> usize {
        (0..1024).filter(|_| reader.extent(7, true) == Extent::Cluster).count()
    }

    #[test]
    fn as_much_is_read_around_an_object_as_takes_as_long_as_the_object() {
        const CLUSTER: usize = 256 << 10;
        let window = |object, whole| {
            let reader = Reader::new(Reading::WhatPays);
            assert_eq!(reader.window(CLUSTER), CLUSTER, "nothing is known yet");
            reader.took(Some(Extent::Object), object);
            reader.took(Some(Extent::Cluster), whole);
            reader.took(None, 1);
            let windows: Vec<usize> = (1..MEASURE).map(|_| reader.window(CLUSTER)).collect();
            assert_eq!(windows.iter().take_while(|window| **window == CLUSTER).count() as u32, MEASURED - 1);
            assert_eq!(reader.window(CLUSTER), CLUSTER, "now and then");
            windows[MEASURE as usize / 2]
        };
        // A volume of 125 MiB/s that answers in half a millisecond.
        assert_eq!(window(500_000, 2_500_000), 64 << 10);
        assert_eq!(window(1_000, 1_000_000), 4096);
    }

    #[test]
    fn where_an_arm_moves_all_of_a_cluster_is_worth_it() {
        let reader = Reader::new(Reading::WhatPays);
        reader.took(Some(Extent::Object), 8_000_000);
        reader.took(Some(Extent::Cluster), 9_500_000);
        assert!((0..1000).all(|_| reader.window(256 << 10) == 256 << 10));
    }

    #[test]
    fn clusters_are_read_where_neighbours_are_used() {
        let reader = Reader::new(Reading::WhatPays);
        (0..50).for_each(|_| reader.paid(7, 8));
        assert_eq!(share_of_cluster_reads(&reader), 17, "a read takes no time");
        let measured = || {
            let reader = Reader::new(Reading::WhatPays);
            reader.took(Some(Extent::Object), 100_000);
            reader
        };
        let reader = measured();
        assert_eq!(share_of_cluster_reads(&reader), 17, "exploring");
        (0..50).for_each(|_| reader.paid(7, 8));
        assert_eq!(share_of_cluster_reads(&reader), 1024);
        (0..50).for_each(|_| reader.paid(7, 0));
        assert_eq!(share_of_cluster_reads(&reader), 1, "a glance now and then");
        assert_eq!(reader.extent(7, false), Extent::Object);
        // A class of which nothing is known is taken to be as the others.
        (0..50).for_each(|_| reader.paid(8, 8));
        assert_eq!(reader.extent(9, true), Extent::Cluster);
        // Three of 64 do not pay for what the rest pushes out.
        let crowded = measured();
        (0..50).for_each(|_| (crowded.brought(7, 64), crowded.used(7, 3)).1);
        assert_eq!(crowded.extent(7, true), Extent::Object);
        (0..50).for_each(|_| (crowded.brought(7, 6), crowded.used(7, 3)).1);
        assert_eq!(crowded.extent(7, true), Extent::Cluster);
        assert_eq!(Reader::new(Reading::Cluster).extent(7, false), Extent::Cluster, "paying or not");
    }
}
