//! Atomics, and the locks and time of group commit: those of the standard library, or of the seeded scheduler under
//! `--cfg shuttle`. `parking_lot` is another crate then, as the manifest says; see docs/TESTING.md.

#[cfg(shuttle)]
pub use parking_lot::standard::{Condvar, Instant, Mutex, MutexGuard, PoisonError, atomic};
#[cfg(not(shuttle))]
pub use std::{
    sync::{Condvar, Mutex, MutexGuard, PoisonError, atomic},
    time::Instant,
};
