//! What an opening finds at a store's places, and what these agree on.

use std::sync::Arc;

use picaflor_device::{Device, Folder};
use picaflor_format::{superblock::Superblock, zone::Map};

use crate::{Error, Result, base::spread::Spread};

/// A place with its superblock, if it has one.
pub(super) struct Found {
    pub(super) place: String,
    pub(super) device: Arc<dyn Device>,
    pub(super) folder: Option<Arc<dyn Folder>>,
    /// Where its long objects have files, beside the device.
    pub(super) long_files: Option<Arc<dyn Folder>>,
    /// Most bytes that a store made here could have.
    pub(super) room: u64,
    pub(super) superblock: Option<Superblock>,
    /// Whether another superblock that is not intact may be newer.
    pub(super) doubtful: bool,
}

/// What all volumes of a store agree on.
pub(super) struct Identity {
    pub(super) store: u128,
    pub(super) seed: u64,
    pub(super) cluster: u32,
    pub(super) spread: Spread,
    /// Whether both superblocks are written anew, as where an epoch that is known may not be the last.
    pub(super) writes_both: bool,
    /// Of this opening: above that of any before it.
    pub(super) epoch: u64,
    pub(super) count: u32,
    /// Volumes that failed while others went on, a bit each.
    pub(super) lost: u64,
    /// Whether only the opening that made it is known, of several volumes, and may have been cut short: one whose
    /// superblock a crash takes after another has a later epoch would be missing.
    pub(super) may_be_unborn: bool,
}

/// Generations and sequence numbers carry the opening's number in their high bits, so that they are above
/// all that a crashed run gave out, written or not. 2^40 of them an opening; 2^24 openings.
pub const EPOCH_SHIFT: u32 = 40;

/// What has so few bytes is too small for these clusters.
pub(super) fn too_small<T>(what: &str, cluster: u32) -> Result<T> {
    let why = format!("{what}; {} are the least for clusters of {cluster}", Map::least_capacity(cluster));
    Err(Error::Option { name: "capacity", why })
}
