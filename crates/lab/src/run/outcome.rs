//! What a run gave.

use serde::Serialize;

/// What a run gave. All of it is virtual: nothing depends on the machine it ran on.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Requests replayed.
    pub gets: u64,
    /// Objects read.
    pub reads: u64,
    /// Objects written.
    pub writes: u64,
    /// Objects deleted.
    pub deletes: u64,
    /// Seconds on the device.
    pub seconds: f64,
    /// Requests a second; this and the other rates are no number where no time passes.
    pub gets_per_second: f64,
    /// Reads, writes and deletes a second.
    pub operations_per_second: f64,
    /// Milliseconds an operation.
    pub ms_per_operation: f64,
    /// Requests that the store answered, or in a method replay either level.
    pub hits: u64,
    /// Share of the requests.
    pub hit_ratio: f64,
    /// Bytes that requests of a cache replay were for, and those of them that were hits.
    #[serde(skip)]
    pub bytes: [u128; 2],
    /// Hits a second.
    pub hits_per_second: f64,
    /// Reads of the device for each hit that the memory did not answer; a file system's own included.
    pub reads_per_hit: f64,
    /// Bytes written to the device for each byte of a body that was stored.
    pub written_per_byte: f64,
    /// Bytes written to the device, or started, by the store or the file system under it.
    pub device_written: u64,
    /// Bytes read from it.
    pub device_read: u64,
    /// Bytes of bodies stored.
    pub stored_bytes: u64,
    /// Bytes of live objects at the end, as a share of what objects can take.
    pub utilisation: f64,
    /// Bytes deleted, replaced or evicted for each that lives at the end.
    pub storage_age: f64,
    /// Objects, and pieces of large ones, that left by themselves; of a method replay, what fragmentation costs.
    pub evicted: u64,
    /// Bytes of memory in use at the end: index, buffers, memory tier.
    pub memory_used: u64,
    /// Of these, the index.
    pub index_bytes: u64,
    /// Objects at the end.
    pub objects: u64,
    /// Puts that were refused.
    pub refused: u64,
    /// Reads of the method that the store did not have, because it refused or lost the object.
    pub lost: u64,
    /// Read requests that reached a simulated device, from the store or a file system on it.
    pub disk_reads: u64,
    /// Write requests that did.
    pub disk_writes: u64,
    /// Share of the time that the device moved its arm.
    pub seek_share: f64,
    /// Share of the time that it waited for a sector.
    pub rotation_share: f64,
    /// Share of the time that it moved bytes.
    pub transfer_share: f64,
    /// Page views that were counted, of a replay of pages, and of them, each time in the mean: requests.
    pub views: u64,
    /// The same.
    pub requests_per_view: f64,
    /// Reads of the device, or of the file system on it, for a view.
    pub device_reads_per_view: f64,
    /// KiB read for a view.
    pub kib_read_per_view: f64,
    /// Milliseconds that the gets of a view took, one after the other.
    pub ms_per_view: f64,
    /// Share of the requests of views that the store answered.
    pub view_hit_ratio: f64,
    /// Neighbours that cluster reads brought, for each such read; and of those, used before they left memory.
    pub neighbours_per_read: f64,
    /// The same.
    pub neighbours_used_per_read: f64,
}
