//! Raw locks, each a semaphore of the scheduler.

use std::cell::Cell;

use lock_api::GuardNoSend;
use shuttle::{
    current,
    future::batch_semaphore::{BatchSemaphore, Fairness, TryAcquireError},
};

/// Most readers at once.
const READERS: usize = 1 << 16;

/// Locks in a row after which a thread lets the others go on. Under a scheduler with priorities one that looks again
/// and again whether another has taken its next step would look for ever; on a real machine it does not.
const PATIENCE: u32 = 2000;

thread_local! {
    /// The thread that took a lock last, and how many in a row.
    static LAST: Cell<(usize, u32)> = const { Cell::new((0, 0)) };
}

fn be_fair() {
    let own = usize::from(current::me());
    let (last, row) = LAST.get();
    let row = if last == own { row + 1 } else { 0 };
    LAST.set((own, row % PATIENCE));
    if row == PATIENCE {
        shuttle::thread::yield_now();
    }
}

/// Takes permits. A semaphore is closed only while a failed execution is torn down, where nothing runs beside.
pub(crate) fn acquire(semaphore: &BatchSemaphore, permits: usize) {
    be_fair();
    let _ = semaphore.acquire_blocking(permits);
}

fn try_acquire(semaphore: &BatchSemaphore, permits: usize) -> Result<(), TryAcquireError> {
    be_fair();
    semaphore.try_acquire(permits)
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
        try_acquire(&self.0, 1).is_ok()
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
        try_acquire(&self.0, 1).is_ok()
    }

    unsafe fn unlock_shared(&self) {
        self.0.release(1);
    }

    fn lock_exclusive(&self) {
        acquire(&self.0, READERS);
    }

    fn try_lock_exclusive(&self) -> bool {
        try_acquire(&self.0, READERS).is_ok()
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
