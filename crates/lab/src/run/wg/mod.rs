//! The workload generators of Shriver et al. 2001, §4.1, on one machine of the time: wg-Squid keeps a file for each
//! object on modelled file systems, wg-Hummingbird asks a store of the engine.
//!
//! Both do for each event of the log what a proxy would: read the object, and write it if it was not there. What is
//! measured is what the paper measured: how long reads and writes take, the disk's requests, and the time of it all.
//! Daemons are called every thousand events, in the log's time, outside of reads and writes.
//!
//! A log and everything that holds a share of it can be made smaller together: clients and servers of the log, memory,
//! disk, the file systems' inodes and ages, events between calls of the daemons. A *part* of a disk has so many times
//! fewer cylinders, each as far apart as as many were, so a file system that fills half of it moves the arm as far as
//! before.

mod load;
mod measured;
pub mod polymix;
mod recovery;
mod squid;
mod store;

use std::sync::Arc;

pub use self::{
    load::{Load, Machine, System, Timing},
    measured::{Causes, Measured},
    recovery::{Recovered, crash},
};
use crate::Result;

/// Runs a generator. `progress` is told how many events more are done, now and then.
///
/// # Errors
/// If the load names what does not exist or cannot be, or the system under it fails.
pub fn run(load: &Load, progress: Arc<dyn Fn(u64) + Send + Sync>) -> Result<Measured> {
    match &load.system {
        System::Squid { like, changes } => squid::run(load, &load.file_system(like, changes)?, &*progress),
        System::Store { preset, cluster } => store::run(load, preset, *cluster, progress),
    }
}
