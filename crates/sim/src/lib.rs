//! Devices for experiments and tests, behind the seam of `picaflor-device`: disks and cloud volumes simulated on
//! virtual time, an elevator for disks with an arm, a device that fails as real ones do, on demand; one
//! with a hook for tests; and what `kill -9` leaves.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod elevator;
mod fault;
mod faulty;
mod hooked;
mod kill;
mod medium;
mod simulated;

pub use elevator::{Elevator, ElevatorDevice};
pub use fault::{Crashed, Fault, On, Rule};
pub use faulty::FaultyDevice;
pub use hooked::{Asked, HookedDevice};
pub use kill::kill;
pub use medium::Survivors;
pub use simulated::{
    BucketProfile, BudgetProfile, CacheProfile, DiskProfile, Order, Profile, ProfileError, SeekProfile, SimulatedDisk,
    SimulatedOptions, SparseBytes, Times, ZoneProfile,
};
