//! What an allocator is made of: the device, what is known of it in memory, and the locks over that.

use std::sync::Arc;

use parking_lot::{Mutex, RwLock};
use picaflor_device::{BufPool, Device};

use super::{
    BlockError, BlockOptions, BlockResult, home::HomeState, options::Shape, queue::Queue, space::Space, writes::Writes,
};
use crate::Commits;

/// The allocator: free lists in memory over blocks on a device. See the module.
///
/// Dropping it without [`close`](FreeLists::close) is a crash: what was synced is there, and the next opening looks at
/// headers.
pub struct FreeLists {
    pub(super) device: Arc<dyn Device>,
    pub(super) shape: Shape,
    pub(super) options: BlockOptions,
    pub(super) salt: u64,
    /// Sequence numbers from here on are of this opening.
    pub(super) opening: u64,
    /// The tail then: no block of a former opening stands behind it.
    pub(super) found_tail: u64,
    pub(super) pool: BufPool,
    /// Held for reading from a grant to the end of its write; for writing by what must see no write under way.
    pub(super) gate: RwLock<()>,
    pub(super) queue: Queue,
    /// Taken before `gate` for writing, and before `space`.
    pub(super) home: Mutex<HomeState>,
    pub(super) space: Mutex<Space>,
    pub(super) commits: Commits,
    pub(super) writes: Writes,
}

impl FreeLists {
    /// Refused once the allocator has stopped.
    pub(super) fn alive(&self) -> BlockResult<()> {
        match self.commits.is_broken().then(|| self.commits.failure()).flatten() {
            Some(error) => Err(BlockError::Stopped(error)),
            None => Ok(()),
        }
    }
}
