//! A ring of the asking thread's own, turned from its event loop.
//!
//! A read through the shared ring crosses to the thread that owns it and back: two switches of threads, which on one
//! core cost as much as the read. A thread that has an event loop anyway, and asks for many reads, owns a
//! [`ThreadRing`] instead: what its tasks ask for is handed to the kernel in one call when the loop has come round, or
//! there is enough of it, and completes on this very thread, and no other is woken.
//!
//! Only reads that the thread's own tasks wait for come here ([`Device::submit_own`]): no blocking caller waits for
//! them, so a thread that is late to turn its ring holds up its own tasks and no one else.
//!
//! Invariants:
//! - the ring is created, entered and reaped on one thread ([`ThreadRing`] is not `Send`);
//! - `done` runs with nothing borrowed, so it may submit again;
//! - dropping the ring completes everything that was submitted through it.
//!
//! [`Device::submit_own`]: crate::Device::submit_own

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, Wake, Waker};

use io_uring::IoUring;
use rustix::event::EventfdFlags;

use crate::file_core::FileCore;
use crate::flights::{Alarm, ENTRIES, Flights, Over};
use crate::{Request, finish};

/// Reads that are handed over before the loop has come round. A device that answers many at once has nothing to do
/// while their tasks run, unless it gets the next ones meanwhile. Measured with 32 in flight from one task, in
/// alternation: 28,400 and 29,900 reads a second without, 34,700 with 4, 36,400 and 35,700 with 8, 34,800 and 34,100
/// with 16, at the same 16 to 17 us of processor a get.
const ENOUGH: usize = 8;

thread_local! {
    static HERE: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// The ring of this thread, from its making until it is dropped. There is one at most.
///
/// While it is there, asynchronous reads of files that this thread asks for proceed only when the ring is turned: by
/// [`ThreadRing::block_on`], which is an executor of its own, or by [`ThreadRing::turn`] from an event loop that polls
/// the descriptor as well. Reads of threads without a ring, blocking reads and all writes do not depend on it.
///
/// With tokio's `current_thread` runtime:
///
/// ```ignore
/// let ring = ThreadRing::new()?;
/// let readable = ring.as_fd().try_clone_to_owned()?;
/// tokio::spawn(async move {
///     let readable = AsyncFd::with_interest(readable, Interest::READABLE)?;
///     poll_fn(|context| loop {
///         ThreadRing::turn(context);
///         match ready!(readable.poll_read_ready(context)) {
///             Ok(mut ready) => ready.clear_ready(),
///             Err(error) => return Poll::Ready(error),
///         }
///     })
///     .await
/// });
/// ```
pub struct ThreadRing {
    local: Rc<Local>,
    /// It belongs to its thread.
    _here: PhantomData<*const ()>,
}

struct Local {
    number: u64,
    /// Written by the kernel for what completes while the thread is elsewhere.
    readable: OwnedFd,
    alarm: Arc<Alarm>,
    state: RefCell<State>,
}

struct State {
    flights: Flights,
    /// What finds no room.
    waiting: VecDeque<(Arc<FileCore>, Request)>,
    /// The task that turns the ring.
    driver: Option<Waker>,
}

impl State {
    fn keep_driver(&mut self, waker: &Waker) {
        if !self.driver.as_ref().is_some_and(|driver| driver.will_wake(waker)) {
            self.driver = Some(waker.clone());
        }
    }
}

impl ThreadRing {
    /// Makes the ring of the calling thread.
    ///
    /// # Errors
    /// `AlreadyExists` if the thread has one; whatever the system says where it refuses `io_uring`: then reads go the
    /// way they go without.
    pub fn new() -> io::Result<Self> {
        if number_here() != 0 {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, "this thread has a ring already"));
        }
        // Not one that would be numbered as one that is gone: there are not so many.
        static NUMBERS: AtomicU64 = AtomicU64::new(1);
        let ring = build()?;
        let readable = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let flights = Flights::new(ring)?;
        flights.tell(readable.as_fd())?;
        let local = Rc::new(Local {
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
            readable,
            alarm: flights.alarm(),
            state: RefCell::new(State { flights, waiting: VecDeque::new(), driver: None }),
        });
        HERE.with_borrow_mut(|here| *here = Some(Rc::clone(&local)));
        Ok(Self { local, _here: PhantomData })
    }

    /// Hands to the kernel what this thread has asked for since the last turn, and completes what has arrived; never
    /// waits. Does nothing on a thread without a ring.
    ///
    /// The task that calls this is woken when there is something new to hand over. It must also be polled whenever the
    /// descriptor has become readable; edges are enough, and nothing need be read from it.
    pub fn turn(context: &Context<'_>) {
        let Some(local) = here() else { return };
        local.state.borrow_mut().keep_driver(context.waker());
        local.turn(Wait::No);
    }

    /// Runs a future to its end, turning the ring whenever it waits.
    pub fn block_on<F: Future>(&self, future: F) -> F::Output {
        let mut future = pin!(future);
        let nap = Arc::new(Nap { woken: AtomicBool::new(true), asleep: AtomicBool::new(false), alarm: self.alarm() });
        let waker = Waker::from(Arc::clone(&nap));
        let mut context = Context::from_waker(&waker);
        loop {
            nap.woken.store(false, Ordering::SeqCst);
            if let Poll::Ready(output) = future.as_mut().poll(&mut context) {
                return output;
            }
            self.local.turn(Wait::Nap(&nap));
            while !nap.woken.load(Ordering::SeqCst) {
                self.local.turn(Wait::Nap(&nap));
            }
        }
    }

    fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.local.alarm)
    }
}

impl AsFd for ThreadRing {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.local.readable.as_fd()
    }
}

impl Drop for ThreadRing {
    fn drop(&mut self) {
        let _ = HERE.try_with(|here| here.borrow_mut().take());
        while !self.local.is_idle() {
            self.local.turn(Wait::Completion);
        }
    }
}

impl std::fmt::Debug for ThreadRing {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadRing").field("number", &self.local.number).finish_non_exhaustive()
    }
}

/// Ends the wait of one [`ThreadRing::block_on`].
struct Nap {
    woken: AtomicBool,
    asleep: AtomicBool,
    alarm: Arc<Alarm>,
}

/// What a turn waits for.
#[derive(Clone, Copy)]
enum Wait<'a> {
    No,
    /// Something in flight, if there is anything.
    Completion,
    /// A completion, or the end of this nap.
    Nap(&'a Nap),
}

impl Nap {
    /// Whether to sleep: this was not woken yet.
    fn begin(&self) -> bool {
        self.asleep.store(true, Ordering::SeqCst);
        !self.woken.load(Ordering::SeqCst)
    }
}

impl Wake for Nap {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // Either this sees the sleeper, or the sleeper sees that it was woken.
        if !self.woken.swap(true, Ordering::SeqCst) && self.asleep.load(Ordering::SeqCst) {
            self.alarm.ring();
        }
    }
}

impl Local {
    fn is_idle(&self) -> bool {
        let state = self.state.borrow();
        state.waiting.is_empty() && state.flights.is_idle()
    }

    /// Submits and completes until there is nothing left of either, after waiting once.
    fn turn(&self, wait: Wait<'_>) {
        if let Wait::Nap(_) = wait {
            self.state.borrow_mut().flights.arm();
        }
        let entries = self.admit();
        let count = match wait {
            Wait::No => 0,
            Wait::Completion => usize::from(!self.state.borrow().flights.is_idle()),
            Wait::Nap(nap) => usize::from(nap.begin()),
        };
        let mut moved = true;
        if entries || count > 0 || self.state.borrow_mut().flights.has_news() {
            moved = self.state.borrow_mut().flights.enter(count);
        }
        if let Wait::Nap(nap) = wait {
            nap.asleep.store(false, Ordering::SeqCst);
        }
        self.complete();
        while moved && self.admit() {
            moved = self.state.borrow_mut().flights.enter(0);
            self.complete();
        }
        // A caller that does not wait is to come back.
        if !moved && let Some(driver) = self.state.borrow().driver.clone() {
            driver.wake();
        }
    }

    /// Gives the ring what waits, as long as there is room; whether it now has entries for the kernel.
    fn admit(&self) -> bool {
        loop {
            let mut state = self.state.borrow_mut();
            if !state.flights.has_room() {
                return state.flights.has_entries();
            }
            let Some((core, request)) = state.waiting.pop_front() else { return state.flights.has_entries() };
            let over = state.flights.start(&core, request);
            drop(state);
            finish_some(over);
        }
    }

    fn complete(&self) {
        loop {
            let over = self.state.borrow_mut().flights.next_over();
            if over.is_none() {
                return;
            }
            finish_some(over);
        }
    }
}

fn finish_some(over: Option<Over>) {
    if let Some((done, outcome)) = over {
        finish(done, outcome);
    }
}

fn here() -> Option<Rc<Local>> {
    HERE.try_with(|here| here.borrow().clone()).ok().flatten()
}

/// The number of the calling thread's ring, from 1; 0 if it has none. Two tasks may wait for one read that was
/// submitted with [`Device::submit_own`](crate::Device::submit_own) only where this says the same.
#[must_use]
pub fn number_here() -> u64 {
    HERE.try_with(|here| here.borrow().as_ref().map_or(0, |local| local.number)).unwrap_or(0)
}

/// Gives the request to the calling thread's ring, or back if it has none.
pub(crate) fn submit(core: &Arc<FileCore>, request: Request) -> Result<(), Request> {
    let Some(local) = here() else { return Err(request) };
    let mut state = local.state.borrow_mut();
    let first = state.waiting.is_empty();
    state.waiting.push_back((Arc::clone(core), request));
    let driver = state.driver.clone().filter(|_| first);
    let enough = state.waiting.len() >= ENOUGH;
    drop(state);
    if enough && local.admit() {
        // What moved or did not is seen at the next turn.
        local.state.borrow_mut().flights.enter(0);
    }
    if let Some(driver) = driver {
        driver.wake();
    }
    Ok(())
}

/// Deferred work is done when this thread enters the ring, and interrupts it at no other time.
fn build() -> io::Result<IoUring> {
    let best = IoUring::builder().setup_single_issuer().setup_defer_taskrun().setup_taskrun_flag().build(ENTRIES);
    match best {
        // Linux before 6.1 does not know these flags.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => IoUring::new(ENTRIES),
        built => built,
    }
}
