//! What the engine has of the standard library in the places that models look into: atomics, `Mutex` and `Condvar` in
//! their shape, and a clock that moves only when a wait ends by its time limit.

use std::{
    cell::Cell,
    ops::{Add, Deref},
    time::Duration,
};

pub use shuttle::sync::atomic;
pub use std::sync::PoisonError;

use crate::WaitTimeoutResult;

thread_local! {
    static NOW: Cell<Duration> = const { Cell::new(Duration::ZERO) };
}

/// Time passes.
pub(crate) fn pass(time: Duration) {
    NOW.set(NOW.get().saturating_add(time));
}

/// As in the standard library.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(Duration);

impl Instant {
    /// The time.
    #[must_use]
    pub fn now() -> Self {
        Self(NOW.get())
    }

    /// How long ago it was.
    #[must_use]
    pub fn elapsed(&self) -> Duration {
        Self::now().saturating_duration_since(*self)
    }

    /// The time between.
    #[must_use]
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

/// As in the standard library; a panic poisons nothing.
#[derive(Default)]
pub struct Mutex<T>(crate::Mutex<T>);

/// As in the standard library.
pub type MutexGuard<'a, T> = crate::MutexGuard<'a, T>;

type Locked<G> = Result<G, PoisonError<G>>;

impl<T> Mutex<T> {
    /// Waits until it is this thread's.
    ///
    /// # Errors
    /// None.
    pub fn lock(&self) -> Locked<MutexGuard<'_, T>> {
        Ok(self.0.lock())
    }
}

/// As in the standard library.
#[derive(Default)]
pub struct Condvar(crate::Condvar);

impl Condvar {
    /// Waits to be notified.
    ///
    /// # Errors
    /// None.
    pub fn wait<'a, T>(&self, mut guard: MutexGuard<'a, T>) -> Locked<MutexGuard<'a, T>> {
        self.0.wait(&mut guard);
        Ok(guard)
    }

    /// As [`Condvar::wait`], for some turns of the other threads.
    ///
    /// # Errors
    /// None.
    pub fn wait_timeout<'a, T>(
        &self,
        mut guard: MutexGuard<'a, T>,
        time: Duration,
    ) -> Locked<(MutexGuard<'a, T>, WaitTimeoutResult)> {
        let late = self.0.wait_for(&mut guard, time);
        Ok((guard, late))
    }

    /// Ends all waits.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// As in `picaflor_device`: a fixed number of words, zero at first.
#[derive(Default)]
pub struct Words(Box<[atomic::AtomicU64]>);

impl Words {
    /// As in `picaflor_device`.
    pub const MAPPED_MIN: usize = 32 << 10;

    /// So many words.
    #[must_use]
    pub fn zeroed(len: usize) -> Self {
        Self((0..len).map(|_| atomic::AtomicU64::new(0)).collect())
    }
}

impl Deref for Words {
    type Target = [atomic::AtomicU64];

    fn deref(&self) -> &[atomic::AtomicU64] {
        &self.0
    }
}
