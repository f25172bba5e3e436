//! A proxy between Polygraph's clients and servers (Shriver et al. 2001, §5), on virtual time: Apache with a file for
//! each object on a modelled file system, or the same on a store of the engine.
//!
//! Requests come when they come, whether the ones before were answered or not. What was cached is read and sent. What
//! was not is asked of its server, which takes its time to think, and stored if it may be cached.

mod files;
mod store;
mod times;
mod traffic;

use self::times::Times;
use super::{Machine, System};
use crate::Result;

pub use self::{
    times::{Answered, Progress},
    traffic::Polymix,
};

/// Runs one.
///
/// # Errors
/// If it names what does not exist, or the system under it fails.
pub fn serve(test: &Polymix, machine: &Machine, system: &System, seed: u64, progress: Progress) -> Result<Answered> {
    let load = test.load(machine, system, seed);
    let times = Times::new(test, progress);
    match system {
        System::Squid { like, changes } => files::serve(test, &load, &load.file_system(like, changes)?, times),
        System::Store { preset, cluster } => store::serve(test, &load, (preset, *cluster), times),
    }
}
