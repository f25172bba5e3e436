//! Condition variables. A wait with a time limit ends when the seed says so: no real time passes.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use lock_api::MutexGuard;
use shuttle::{
    future::batch_semaphore::{BatchSemaphore, Fairness},
    rand::Rng,
};

use crate::{
    clock::pass,
    raw::{RawMutex, acquire},
};

/// Most turns of the others that a wait with a time limit lasts.
const TURNS: u32 = 8;

type Waiter = Arc<BatchSemaphore>;

/// As in `parking_lot`.
#[derive(Default)]
pub struct Condvar {
    /// Held over no step of the scheduler.
    waiters: Mutex<VecDeque<Waiter>>,
}

/// Whether a wait ended by its time limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Whether it did.
    #[must_use]
    pub fn timed_out(&self) -> bool {
        self.0
    }
}

impl Condvar {
    /// One that nothing waits for.
    #[must_use]
    pub const fn new() -> Self {
        Self { waiters: Mutex::new(VecDeque::new()) }
    }

    fn with<R>(&self, act: impl FnOnce(&mut VecDeque<Waiter>) -> R) -> R {
        act(&mut self.waiters.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn enter(&self) -> Waiter {
        let waiter = Arc::new(BatchSemaphore::new(0, Fairness::StrictlyFair));
        self.with(|waiters| waiters.push_back(Arc::clone(&waiter)));
        waiter
    }

    /// Waits to be notified.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, RawMutex, T>) {
        let waiter = self.enter();
        MutexGuard::unlocked(guard, || acquire(&waiter, 1));
    }

    /// Waits to be notified, for some turns of the other threads.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, RawMutex, T>, time: Duration) -> WaitTimeoutResult {
        let waiter = self.enter();
        let waits = || self.with(|waiters| waiters.iter().any(|other| Arc::ptr_eq(other, &waiter)));
        MutexGuard::unlocked(guard, || {
            let turns = shuttle::rand::thread_rng().gen_range(1..=TURNS);
            (0..turns).take_while(|_| waits()).for_each(|_| shuttle::thread::yield_now());
        });
        let late = waits();
        if late {
            self.with(|waiters| waiters.retain(|other| !Arc::ptr_eq(other, &waiter)));
            pass(time);
        }
        WaitTimeoutResult(late)
    }

    /// Ends one wait.
    pub fn notify_one(&self) {
        let first = self.with(VecDeque::pop_front);
        first.into_iter().for_each(|waiter| waiter.release(1));
    }

    /// Ends all waits.
    pub fn notify_all(&self) {
        let all = self.with(std::mem::take);
        all.into_iter().for_each(|waiter| waiter.release(1));
    }
}
