//! Why an object cannot be framed at this moment, and for which purpose.

use std::time::Duration;

use crate::Refusal;

/// Longest that a put waits for a buffer or for clean space before it gives up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// Why an object cannot be framed at this moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Blocked {
    /// All buffers are waiting for the device.
    Buffers,
    /// No cluster can be promised.
    Space,
    /// The entry to be replaced is not where it was: look again.
    Moved,
    /// As many objects wait to be packed as may.
    Staging,
}

impl From<Blocked> for Refusal {
    fn from(blocked: Blocked) -> Self {
        match blocked {
            Blocked::Buffers | Blocked::Moved | Blocked::Staging => Self::Busy,
            Blocked::Space => Self::NoCleanSpace,
        }
    }
}

/// What room is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Purpose {
    Put,
    /// Survivors of reclaim may use what is kept back for them.
    Survivor,
    /// The chunk has this cluster, which was promised in a run.
    Run(u32),
}
