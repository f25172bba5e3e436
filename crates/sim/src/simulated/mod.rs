//! A simulated device on virtual time: a disk with an arm (`drive.rs`), or a volume with a budget (`budget.rs`).

mod arm;
mod budget;
mod command;
mod contents;
mod disk;
mod drive;
mod geometry;
mod options;
mod profile;
mod seek;
mod segments;
#[cfg(test)]
mod tests;

pub use self::{
    command::Times,
    contents::SparseBytes,
    disk::SimulatedDisk,
    options::SimulatedOptions,
    profile::{BucketProfile, BudgetProfile, CacheProfile, DiskProfile, Order, Profile, ProfileError, ZoneProfile},
    seek::SeekProfile,
};
