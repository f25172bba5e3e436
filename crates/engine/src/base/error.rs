//! What can go wrong, named. Every message says the place and the mend.
//!
//! A [`Refusal`] is the engine declining a put it was asked for; a [`Miss`] is a get that found
//! nothing it may return. Neither is a fault: both are counted by name in the statistics.

use std::{fmt, io, sync::Arc};

use picaflor_common::Failure;

/// The result of the engine's calls.
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// Why a call failed.
#[derive(Debug, Clone, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// The device failed. After a failed write or sync the volume takes no more writes.
    #[error("{place}: {source}")]
    Io {
        /// What was being done, and where: path, offset.
        place: String,
        /// The device's own words.
        source: Arc<io::Error>,
    },
    /// Store mode only: no room for this object without dropping another.
    #[error("the store is full: {needed} bytes needed, {free} free; {help}")]
    Full {
        /// Device bytes the object needs.
        needed: u64,
        /// Device bytes still free, reclaimable ones included.
        free: u64,
        /// Bytes of objects whose deletion makes room for it; where objects do not lie in clusters, the least that may.
        delete: u64,
        /// What would help, with the numbers.
        help: String,
    },
    /// The put was declined; the object is not in the store.
    #[error("put refused: {0}")]
    Refused(Refusal),
    /// What was put or deleted is done, and cannot be made durable: the log has no free page, and there is no room for
    /// the checkpoint that would free some. It becomes durable with the next commit that finds a page.
    #[error(
        "{place}: the log is full, and there is no room for a checkpoint: what was put or deleted last is not durable; \
         delete something, or make the store anew with more capacity"
    )]
    JournalFull {
        /// Path or device.
        place: String,
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
    /// The store was written by another version of the format.
    #[error(
        "{place} has format version {found}, this build reads {supported}; use the build that wrote it, or remove the file to start empty"
    )]
    Version {
        /// Path.
        place: String,
        /// Version on the device.
        found: u32,
        /// Version of this build.
        supported: u32,
    },
    /// An option that cannot work.
    #[error("option {name}: {why}")]
    Option {
        /// Name of the option.
        name: &'static str,
        /// What is wrong with its value, and what would do.
        why: String,
    },
    /// Key or metadata outside the limits of the format.
    #[error("{what} of {len} bytes is outside 1..={max}")]
    Limit {
        /// `key` or `metadata`.
        what: &'static str,
        /// Its length in bytes.
        len: usize,
        /// The longest allowed.
        max: usize,
    },
    /// The body that came in pieces is not as long as was announced.
    #[error("the body has {came} bytes, {announced} were announced")]
    Length {
        /// What was said at the beginning.
        announced: u64,
        /// What came.
        came: u64,
    },
    /// A thread of the store panicked. It takes no more writes: what was left half done is not known.
    #[error(
        "{place}: the {daemon} ended: {why}; nothing more is written: open the store again, which recovers as after a crash, and \
         please report this defect in picaflor"
    )]
    Daemon {
        /// Path.
        place: String,
        /// Which: `keeper`, `flusher`, `reclaimer`, or the `commit` that a caller made for all.
        daemon: &'static str,
        /// What the panic said.
        why: String,
    },
    /// The store was closed, or its device was dropped after a failure.
    #[error("the store is closed")]
    Closed,
}

/// Why a put was declined.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Refusal {
    /// The admission filter said no.
    NotAdmitted,
    /// Larger than a quarter of the device.
    TooLarge,
    /// Already past its expiry.
    Expired,
    /// No clean buffer: the device cannot keep up, and the caller chose not to wait.
    Busy,
    /// Reclaim could not make room in time.
    NoCleanSpace,
    /// The index has reached its share of the memory given, or its checkpoints would no longer fit on the device.
    IndexFull,
    /// The store was opened for reading only.
    ReadOnly,
    /// A crash came, and not all that is on the device was looked at since: see [`crate::Reopening::InSteps`].
    Recovering,
}

/// Why a get found nothing it may return.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Miss {
    /// No such key.
    Absent,
    /// There, but past its expiry.
    Expired,
    /// The bytes read belong to another key or an older use of the place.
    KeyMismatch,
    /// The bytes read fail their checksum.
    Checksum,
    /// The device could not be read.
    ReadError,
    /// A chunk of a large object is gone.
    ChunkMissing,
}

macro_rules! kebab_display {
    ($($name:ident { $($variant:ident => $text:literal),+ $(,)? })+) => {$(
        impl $name {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$variant),+];
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Self::$variant => $text),+ })
            }
        }
    )+};
}

kebab_display! {
    Refusal {
        NotAdmitted => "not admitted by the filter",
        TooLarge => "too large for this device",
        Expired => "already expired",
        Busy => "the device cannot keep up",
        NoCleanSpace => "no clean space",
        IndexFull => "the index has used its memory",
        ReadOnly => "the store was opened for reading only",
        Recovering => "recovering from a crash",
    }
    Miss {
        Absent => "absent",
        Expired => "expired",
        KeyMismatch => "key mismatch",
        Checksum => "checksum",
        ReadError => "read error",
        ChunkMissing => "chunk missing",
    }
}

impl Error {
    /// No room, where no more is known than this.
    #[doc(hidden)]
    pub fn full(needed: u64, free: u64) -> Self {
        let help = "delete objects, or copy them to a store of a larger capacity".into();
        Self::Full { needed, free, delete: needed.saturating_sub(free).max(1), help }
    }

    #[doc(hidden)]
    pub fn io(place: impl Into<String>, source: io::Error) -> Self {
        Self::Io { place: place.into(), source: Arc::new(source) }
    }
}

impl Failure for Error {
    fn is_refusal(&self) -> bool {
        matches!(self, Self::JournalFull { .. })
    }

    fn is_breakage(&self) -> bool {
        matches!(self, Self::Io { .. } | Self::Daemon { .. })
    }
}
