//! What a run of a generator gave.

use picaflor_sim::{SimulatedDisk, Times};
use serde::Serialize;

/// What a run gave.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Measured {
    /// Events.
    pub events: u64,
    /// Of them, answered.
    pub hits: u64,
    /// Objects written.
    pub writes: u64,
    /// Writes that were refused.
    pub refused: u64,
    /// Share of the events that were answered.
    pub hit_ratio: f64,
    /// Mean milliseconds of a read that found its object.
    pub read_ms: f64,
    /// Mean milliseconds of a write, with the removals that it had to wait for.
    pub write_ms: f64,
    /// Requests of the disks.
    pub ios: u64,
    /// The same for each event.
    pub ios_per_event: f64,
    /// Of them, reads.
    pub disk_reads: u64,
    /// Mean milliseconds that a disk was busy with a request.
    pub io_ms: f64,
    /// Seconds from the first event to the end of the last.
    pub seconds: f64,
    /// Events a second.
    pub events_per_second: f64,
    /// Of a store: objects that a read of a cluster brought, in the mean.
    pub objects_per_cluster_read: f64,
    /// Of a store: its device requests by cause.
    pub causes: Option<Causes>,
    /// Sums, in nanoseconds.
    #[serde(skip)]
    read_nanos: u64,
    #[serde(skip)]
    write_nanos: u64,
}

/// What a store asked of its devices, and why: requests for each event.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Causes {
    /// Reads for gets.
    pub gets: f64,
    /// Reads of what is in a cluster that is to be reclaimed, and whatever else daemons and puts read.
    pub reclaim: f64,
    /// Clusters written.
    pub clusters: f64,
    /// Checkpoints' clusters, journal, hot log and superblocks.
    pub records: f64,
}

impl Measured {
    pub(super) fn read(&mut self, nanos: u64) {
        self.hits += 1;
        self.read_nanos += nanos;
    }

    pub(super) fn wrote(&mut self, nanos: u64) {
        self.writes += 1;
        self.write_nanos += nanos;
    }

    /// Means, from the sums, the disks and the time it took.
    pub(super) fn finish(mut self, disks: &[(SimulatedDisk, Times)], nanos: u64) -> Self {
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let (mut more, mut reads, mut ios) = (0, 0, 0);
        for (disk, before) in disks {
            let now = disk.times();
            more += busy(&now) - busy(before);
            reads += now.reads - before.reads;
            ios += now.reads + now.writes - before.reads - before.writes;
        }
        self.hit_ratio = ratio(self.hits as f64, self.events as f64);
        self.read_ms = ratio(self.read_nanos as f64 / 1e6, self.hits as f64);
        self.write_ms = ratio(self.write_nanos as f64 / 1e6, self.writes as f64);
        (self.ios, self.disk_reads) = (ios, reads);
        self.ios_per_event = ratio(ios as f64, self.events as f64);
        self.io_ms = ratio(more as f64 / 1e6, ios as f64);
        self.seconds = nanos as f64 / 1e9;
        self.events_per_second = ratio(self.events as f64, self.seconds);
        self
    }
}

/// Nanoseconds that a disk was busy.
pub(super) fn busy(times: &Times) -> u64 {
    let Times { overhead, seek, rotation, transfer, streamed, bus, latency, .. } = times;
    overhead + seek + rotation + transfer + streamed + bus + latency
}
