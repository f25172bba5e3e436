//! Devices for experiments and tests, behind the seam of `picaflor-device`: disks and cloud volumes simulated on
//! virtual time, an elevator for disks with an arm, and a device that fails as real ones do, on demand.
#![forbid(unsafe_code)]

mod elevator;
mod fault;
mod faulty;
mod medium;
mod simulated;

pub use elevator::{Elevator, ElevatorDevice};
pub use fault::{Crashed, Fault, On, Rule};
pub use faulty::FaultyDevice;
pub use medium::Survivors;
pub use simulated::{
    BucketProfile, BudgetProfile, CacheProfile, DiskProfile, Order, Profile, ProfileError, SeekProfile, SimulatedDisk,
    SimulatedOptions, SparseBytes, Times, ZoneProfile,
};
