//! What can go wrong with a table, named. Every message says the place and the mend.

use std::{io, sync::Arc};

use picaflor_common::Failure;

/// The result of the calls of tables.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed. After a failed write or sync the place takes no more writes.
    #[error("{place}: {source}")]
    Io {
        /// What was being done, and where: path, offset.
        place: String,
        /// The device's own words.
        source: Arc<io::Error>,
    },
    /// No room for this entry without removing another.
    #[error(
        "the store is full: {needed} bytes needed, {free} free; delete objects, or copy them to a store of a larger capacity"
    )]
    Full {
        /// Device bytes that the entry needs.
        needed: u64,
        /// Device bytes still free.
        free: u64,
    },
    /// Persistent bytes that should be there are not, or fail their checksum.
    #[error("{place} is damaged: {why}; {mend}")]
    Damaged {
        /// Path and zone.
        place: String,
        /// What does not fit.
        why: String,
        /// What to do about it.
        mend: String,
    },
    /// An option that cannot work.
    #[error("option {name}: {why}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// What is wrong with its value, and what would do.
        why: String,
    },
    /// A key or an entry outside the limits of the format.
    #[error("{what} of {len} bytes is outside 1..={max}")]
    Limit {
        /// `key`, or `key and value`.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// A thread that kept the place in order panicked. What it left half done is not known.
    #[error(
        "{place}: the {daemon} ended: {why}; nothing more is written: open the store again, which recovers as after a crash, and \
         please report this defect in picaflor"
    )]
    Daemon {
        /// Path.
        place: String,
        /// Which.
        daemon: &'static str,
        /// What the panic said.
        why: String,
    },
    /// The place was closed.
    #[error("the store is closed")]
    Closed,
}

impl Failure for Error {
    /// There is no log that could be full.
    fn is_refusal(&self) -> bool {
        false
    }

    fn is_breakage(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Daemon { .. })
    }
}
