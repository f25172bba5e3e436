//! Question 4, reading: how much is read for one object ([`Windows`]), which gets share the read, and which reads wait
//! for each other.
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
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::Waker,
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use picaflor_common::Identity;
use picaflor_device::{Device, Request};

use super::window::Windows;
use crate::base::{policy::Reading, reach::Reach};

/// What one read brings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Extent {
    Object,
    /// The object, and so far behind it.
    Behind(Reach),
    /// The whole cluster; of one with pages the object's page.
    Cluster,
}

pub(crate) struct Reader {
    reading: Reading,
    /// Where reads go as far as has been paying.
    pub(crate) windows: Option<Windows>,
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
            windows: (reading == Reading::WhatPays).then(Windows::new),
            flights: Mutex::default(),
            held: Mutex::default(),
            due: AtomicU64::new(u64::MAX),
        }
    }

    /// What to read for an object in a cluster of this class and so many bytes, if memory has room for neighbours.
    pub(crate) fn extent(&self, class: u16, room: bool, cluster: usize) -> Extent {
        if self.is_by_cluster() {
            return Extent::Cluster;
        }
        match self.windows.as_ref().filter(|_| room).and_then(|windows| windows.reach(class, cluster)) {
            None => Extent::Object,
            Some(Reach::CLUSTER) => Extent::Cluster,
            Some(reach) => Extent::Behind(reach),
        }
    }

    /// A device read begins.
    pub(crate) fn begin(&self) {
        self.windows.iter().for_each(Windows::begin);
    }

    /// It is over: so many bytes took so long.
    pub(crate) fn took(&self, len: usize, nanos: u64) {
        self.windows.iter().for_each(|windows| windows.took(len, nanos));
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
