//! What may be chosen of a simulated device beside its profile.

use std::ops::Range;

use super::{geometry::SECTOR, profile::Order};

/// What may be chosen beside the profile.
#[derive(Clone, Debug)]
pub struct SimulatedOptions {
    /// The bytes of the medium that are used, from the outer edge; multiples of the block size. Default: all.
    pub part: Option<Range<u64>>,
    /// Which of the waiting requests is next, instead of the profile's.
    pub order: Option<Order>,
    /// Bytes that writes may occupy in the drive before they are on the platter, instead of the profile's. 0: none.
    pub write_cache: Option<u64>,
    /// Smallest unit of reading and writing, in bytes; a power of two from 512 up. Default 512.
    pub block_size: usize,
    /// For what is random: the latencies of budgets. Default 0.
    pub seed: u64,
}

impl Default for SimulatedOptions {
    fn default() -> Self {
        Self { part: None, order: None, write_cache: None, block_size: SECTOR as usize, seed: 0 }
    }
}
