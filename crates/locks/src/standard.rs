//! What the engine has of the standard library in the places that models look into: atomics, `Mutex` and `Condvar` in
//! their shape, and its clock.

use std::{ops::Deref, time::Duration};

pub use crate::clock::Instant;
pub use shuttle::sync::atomic;
pub use std::sync::PoisonError;

use crate::WaitTimeoutResult;

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
