//! The locks of `parking_lot` under the seeded scheduler of `shuttle`: which thread goes on after a step follows from
//! a seed, so a schedule that fails can be had again.
//!
//! The device and the engine depend on this crate under the name `parking_lot` where they are built with `--cfg
//! shuttle`, which `scripts/scheduler` does and nothing else. Without it this crate is empty and depends on nothing.
#![cfg(shuttle)]
#![deny(unsafe_code)]
#![deny(unsafe_op_in_unsafe_fn)]

mod clock;
mod condvar;
pub mod models;
#[allow(unsafe_code)]
mod raw;
pub mod standard;

pub use condvar::{Condvar, WaitTimeoutResult};
pub use raw::{RawMutex, RawRwLock};
/// What models run in: threads, runners and schedulers.
pub use shuttle;

/// As in `parking_lot`.
pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
/// As in `parking_lot`.
pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
/// As in `parking_lot`.
pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
/// As in `parking_lot`.
pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
/// As in `parking_lot`.
pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;
