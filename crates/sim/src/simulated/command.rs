//! What is asked of a device, and what it took.

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Read,
    Write,
    Sync,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Command {
    pub(crate) id: u64,
    pub(crate) lba: u64,
    pub(crate) sectors: u64,
    pub(crate) kind: Kind,
    pub(crate) arrived: u64,
}

/// What a simulated device did and what its time went into, in nanoseconds. Requests that were served at one time
/// count each.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// Reads.
    pub reads: u64,
    /// Of those, answered by the drive's buffer.
    pub hits: u64,
    /// Writes.
    pub writes: u64,
    /// Syncs.
    pub syncs: u64,
    /// Runs of sectors that the write cache brought to the platter.
    pub drained: u64,
    /// Between arrival and being begun; for a budget, beyond the latency.
    pub waiting: u64,
    /// Command overhead that nothing overlapped.
    pub overhead: u64,
    /// Moving the arm, switching heads, settling.
    pub seek: u64,
    /// Waiting for a sector to come round.
    pub rotation: u64,
    /// Sectors passing the head.
    pub transfer: u64,
    /// Reads that the reading ahead under way served, from their overhead to their end.
    pub streamed: u64,
    /// Between host and buffer, where nothing else went on.
    pub bus: u64,
    /// Latency of a budget.
    pub latency: u64,
}
