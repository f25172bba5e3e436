//! What can go wrong with a block, named. Every message says the place and the mend.

use std::{io, sync::Arc};

use super::Address;
use crate::Error;

/// What errors of the allocator name that have no place of their own.
pub(super) const PLACE: &str = "block allocator";

/// Why a call of the allocator failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum BlockError {
    /// The device failed. The call may have happened or not; what was durable still is.
    #[error("{what}: {source}")]
    Io {
        /// What was being done, and where.
        what: String,
        /// The device's own words.
        source: Arc<io::Error>,
    },
    /// After this failure nothing is known of what was written since the last sync, so nothing more is written.
    #[error("the allocator has stopped, open it again: {0}")]
    Stopped(Error),
    /// No free block is large enough, after discovery, a sync and coalescing.
    #[error(
        "no room for a block of {needed} bytes: {free} bytes are free, in pieces that are too small; free blocks or use a larger device"
    )]
    Full {
        /// Bytes of the device that the block takes.
        needed: u64,
        /// Bytes free.
        free: u64,
    },
    /// Longer than a block can be.
    #[error("{len} bytes do not fit in a block, whose limit is {max}")]
    TooLong {
        /// Bytes asked for.
        len: u64,
        /// The most there can be.
        max: u64,
    },
    /// The block's header or bytes are not what was written. It is left alone.
    #[error("the block at grain {at} is damaged: {why}; it is left alone, and what it held must come from elsewhere")]
    Damaged {
        /// Grain at which it begins.
        at: u64,
        /// What does not fit.
        why: &'static str,
    },
    /// No allocated block begins there.
    #[error("no allocated block begins at grain {}", .0.grain())]
    NotAllocated(Address),
    /// An option that cannot work.
    #[error("option {name}: {why}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// What is wrong with its value, and what would do.
        why: String,
    },
    /// The device holds something else, or this and damaged, or another version of it.
    #[error("{0}")]
    Foreign(String),
    /// The place given does not lie in the block.
    #[error("{len} bytes from {offset} do not lie in the block's {capacity}, or are not aligned to {unit}")]
    Outside {
        /// First byte asked for.
        offset: u64,
        /// Bytes asked for.
        len: u64,
        /// Bytes that the block has.
        capacity: u64,
        /// Alignment that the device wants.
        unit: u64,
    },
}

/// The result of the allocator's calls.
pub type BlockResult<T, E = BlockError> = Result<T, E>;

impl BlockError {
    pub(super) fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |source| Self::Io { what, source: Arc::new(source) }
    }

    /// As the engine's own error, for callers that wait for the same commit.
    pub(super) fn shared(&self) -> Error {
        match self {
            Self::Io { what, source } => Error::Io { place: what.clone(), source: Arc::clone(source) },
            Self::Stopped(error) => error.clone(),
            other => Error::Io { place: PLACE.to_owned(), source: Arc::new(io::Error::other(other.to_string())) },
        }
    }
}
