//! Submitted requests through `io_uring`.
//!
//! One thread owns the ring: it alone submits, waits and calls `done`. Others put requests into a queue
//! and wake it through an eventfd if it sleeps. So completions interrupt no thread of the engine, whatever
//! arrived meanwhile is one `io_uring_enter`, and a request lives on when the thread that submitted it
//! ends (a ring shared by threads cancels those). A thread that asks for many reads and can wait for them by itself
//! does better with a ring of its own: [`crate::ThreadRing`].
//!
//! Flags, measured (CPU time per 4 KiB read at depth 32, by completions that submit the next read / by 32
//! threads that wait): `SINGLE_ISSUER | COOP_TASKRUN` 3.0 / 8.6 us, `SINGLE_ISSUER | DEFER_TASKRUN`
//! 3.5 / 10.3 us, none 3.1 / 10.1 us.
//!
//! Invariants, beside those of [`Flights`]:
//! - what finds no room waits in memory, so `submit` never fails and never waits, also from within a `done`;
//! - `done` runs without a lock held;
//! - the thread ends when it is told to close and nothing is waiting or in flight.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};

use io_uring::IoUring;
use parking_lot::Mutex;

use crate::file_core::FileCore;
use crate::flights::{Alarm, ENTRIES, Flights};
use crate::{Request, finish};

pub(crate) struct Ring {
    shared: Arc<Shared>,
    alarm: Arc<Alarm>,
    thread: Option<JoinHandle<()>>,
    mode: &'static str,
}

/// What submitters and the ring's thread share.
#[derive(Default)]
struct Shared {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    /// The thread waits for completions and will not look here by itself.
    asleep: bool,
    closing: bool,
}

impl Ring {
    /// Starts the thread and its ring; fails where the system refuses any part of it.
    pub(crate) fn start(core: Arc<FileCore>) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let (tell, told) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let run = move || match build().and_then(|(ring, mode)| Ok((Flights::new(ring)?, mode))) {
            Ok((flights, mode)) => {
                let _ = tell.send(Ok((flights.alarm(), mode)));
                Driver { core, shared: theirs, flights, waiting: VecDeque::new() }.drive();
            }
            Err(error) => drop(tell.send(Err(error))),
        };
        let thread = thread::Builder::new().name("picaflor-uring".to_owned()).spawn(run)?;
        let started = told.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread ended")));
        let (alarm, mode) = started?;
        Ok(Self { shared, alarm, thread: Some(thread), mode })
    }

    pub(crate) fn submit(&self, batch: Vec<Request>) {
        let mut state = self.shared.state.lock();
        state.waiting.extend(batch);
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.alarm.ring();
        }
    }

    /// Which kind of ring the kernel gave.
    pub(crate) fn mode(&self) -> &'static str {
        self.mode
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.alarm.ring();
        if let Some(thread) = self.thread.take()
            // The last owner may let go inside a `done`: then the thread finishes by itself.
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// Rings for batches of threads that wait for them, made as they are needed; no thread of their own.
#[derive(Default)]
pub(crate) struct Lending {
    /// Those that no thread is turning.
    idle: Mutex<Vec<Flights>>,
    /// The system does not give any.
    refused: AtomicBool,
}

impl Lending {
    /// A ring for a batch of the calling thread; none where the system refuses one more.
    pub(crate) fn lend(&self) -> Option<Lent<'_>> {
        let idle = self.idle.lock().pop();
        if idle.is_none() && self.refused.load(Relaxed) {
            return None;
        }
        // The thread that turns it is its issuer for a batch only.
        let flights = idle.or_else(|| {
            let best = IoUring::builder().setup_coop_taskrun().build(ENTRIES);
            // Linux before 5.19 does not know the flag.
            let ring = best.or_else(|_| IoUring::new(ENTRIES)).and_then(Flights::new);
            ring.inspect_err(|error| self.note(error)).ok()
        })?;
        Some(Lent { idle: &self.idle, flights: Some(flights) })
    }

    /// Want of memory or of descriptors may end; after these, another try is in vain for each batch.
    fn note(&self, error: &io::Error) {
        if matches!(error.kind(), io::ErrorKind::PermissionDenied | io::ErrorKind::Unsupported) {
            self.refused.store(true, Relaxed);
        }
    }
}

/// A ring that one thread turns until its batch is over.
pub(crate) struct Lent<'a> {
    idle: &'a Mutex<Vec<Flights>>,
    flights: Option<Flights>,
}

impl Lent<'_> {
    /// Carries out a batch, all of it at once, and calls every `done`.
    pub(crate) fn run(&mut self, core: &Arc<FileCore>, batch: Vec<Request>) {
        let Some(flights) = &mut self.flights else { return };
        for request in batch {
            while !flights.has_room() {
                flights.enter(1);
                finish_all(flights);
            }
            if let Some((done, outcome)) = flights.start(core, request) {
                finish(done, outcome);
            }
        }
        while !flights.is_idle() {
            flights.enter(flights.in_flight());
            finish_all(flights);
        }
    }
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        // One that was lost, or left by a panic, is not lent again.
        if let Some(flights) = self.flights.take().filter(|flights| flights.is_idle() && !flights.is_lost()) {
            self.idle.lock().push(flights);
        }
    }
}

fn finish_all(flights: &mut Flights) {
    while let Some((done, outcome)) = flights.next_over() {
        finish(done, outcome);
    }
}

/// The best ring that this kernel gives, and its kind.
fn build() -> io::Result<(IoUring, &'static str)> {
    let best = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(ENTRIES);
    match best {
        Ok(ring) => Ok((ring, "one issuer")),
        // Linux before 6.0 does not know these flags.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((IoUring::new(ENTRIES)?, "plain")),
        Err(error) => Err(error),
    }
}

struct Driver {
    core: Arc<FileCore>,
    shared: Arc<Shared>,
    flights: Flights,
    /// Taken from the shared queue, not yet with the kernel.
    waiting: VecDeque<Request>,
}

impl Driver {
    fn drive(&mut self) {
        while self.admit() {
            self.flights.arm();
            self.flights.enter(1);
            self.shared.state.lock().asleep = false;
            while let Some((done, outcome)) = self.flights.next_over() {
                finish(done, outcome);
            }
        }
    }

    /// Gives the kernel's ring what is waiting, until there is no more of it or no room. False: time to end.
    fn admit(&mut self) -> bool {
        loop {
            while self.flights.has_room()
                && let Some(request) = self.waiting.pop_front()
            {
                if let Some((done, outcome)) = self.flights.start(&self.core, request) {
                    finish(done, outcome);
                }
            }
            let mut state = self.shared.state.lock();
            if state.waiting.is_empty() || !self.flights.has_room() {
                let finished = state.closing && self.flights.is_idle();
                state.asleep = !finished && self.flights.has_room();
                return !finished;
            }
            self.waiting.append(&mut state.waiting);
        }
    }
}
