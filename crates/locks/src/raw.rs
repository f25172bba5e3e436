//! Raw locks, each a semaphore of the scheduler.

use lock_api::GuardNoSend;
use shuttle::future::batch_semaphore::{BatchSemaphore, Fairness};

/// Most readers at once.
const READERS: usize = 1 << 16;

/// Takes permits. A semaphore is closed only while a failed execution is torn down, where nothing runs beside.
pub(crate) fn acquire(semaphore: &BatchSemaphore, permits: usize) {
    let _ = semaphore.acquire_blocking(permits);
}

/// Excludes all others.
pub struct RawMutex(BatchSemaphore);

// SAFETY: there is one permit, `lock` and a `try_lock` that succeeded hold it, and only `unlock` gives it back.
unsafe impl lock_api::RawMutex for RawMutex {
    // What a lock begins as, not one that is shared.
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(BatchSemaphore::const_new(1, Fairness::Unfair));

    type GuardMarker = GuardNoSend;

    fn lock(&self) {
        acquire(&self.0, 1);
    }

    fn try_lock(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }

    unsafe fn unlock(&self) {
        self.0.release(1);
    }
}

/// Shared by readers, or one writer's.
pub struct RawRwLock(BatchSemaphore);

// SAFETY: a writer holds all permits and a reader one; each gives back what it took, and only that.
unsafe impl lock_api::RawRwLock for RawRwLock {
    #[allow(clippy::declare_interior_mutable_const)]
    const INIT: Self = Self(BatchSemaphore::const_new(READERS, Fairness::Unfair));

    type GuardMarker = GuardNoSend;

    fn lock_shared(&self) {
        acquire(&self.0, 1);
    }

    fn try_lock_shared(&self) -> bool {
        self.0.try_acquire(1).is_ok()
    }

    unsafe fn unlock_shared(&self) {
        self.0.release(1);
    }

    fn lock_exclusive(&self) {
        acquire(&self.0, READERS);
    }

    fn try_lock_exclusive(&self) -> bool {
        self.0.try_acquire(READERS).is_ok()
    }

    unsafe fn unlock_exclusive(&self) {
        self.0.release(READERS);
    }
}

// SAFETY: the writer keeps one permit, so no other writer comes between.
unsafe impl lock_api::RawRwLockDowngrade for RawRwLock {
    unsafe fn downgrade(&self) {
        self.0.release(READERS - 1);
    }
}
