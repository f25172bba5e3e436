//! Counters: what the engine did, by name. Every refusal, drop and miss has one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::{Miss, Refusal};

macro_rules! counters {
    ($($(#[doc = $help:literal])+ $name:ident),+ $(,)?) => {
        /// Live counters of one store.
        #[derive(Default)]
        pub(crate) struct Counters {
            $(pub(crate) $name: AtomicU64,)+
            misses: [AtomicU64; MISSES.len()],
            refusals: [AtomicU64; REFUSALS.len()],
        }

        /// Counts since the store was opened.
        #[derive(Debug, Clone, Default)]
        #[cfg_attr(feature = "serde", derive(serde::Serialize))]
        #[non_exhaustive]
        pub struct Counts {
            $($(#[doc = $help])+ pub $name: u64,)+
        }

        impl Counters {
            pub(crate) fn counts(&self) -> Counts {
                Counts { $($name: self.$name.load(Relaxed),)+ }
            }
        }

        #[cfg(feature = "metrics")]
        impl Counts {
            /// Each with the name by which a recorder of metrics knows it, and what it is.
            pub(crate) fn each(&self, mut tell: impl FnMut(&'static str, &'static str, u64)) {
                $(tell(concat!("picaflor_store_", stringify!($name), "_total"), concat!($($help),+).trim(), self.$name);)+
            }
        }
    };
}

counters! {
    /// Gets asked.
    gets,
    /// Gets answered from the memory tier.
    hits_memory,
    /// Gets answered from a buffer that is open, in flight or resident.
    hits_buffer,
    /// Gets answered by a device read.
    hits_device,
    /// Objects put.
    puts,
    /// Bytes of key, metadata and body put.
    put_bytes,
    /// Objects deleted.
    deletes,
    /// Bytes, to within an eighth, of objects that were deleted, replaced, or evicted and the like; of a large object
    /// as its chunks go.
    removed_bytes,
    /// Objects that left because their place was needed.
    evicted,
    /// Objects that left because they were past their expiry.
    expired,
    /// Objects that left because their bytes no longer verified.
    damaged,
    /// Objects that reclaim put again because they were used, loved or live.
    reinserted,
    /// Bytes of them.
    reinserted_bytes,
    /// Clusters emptied by reclaim.
    reclaimed_clusters,
    /// Bytes of deleted and replaced objects that made room in their own open cluster.
    compacted_bytes,
    /// Bytes of other objects that were moved for it.
    moved_bytes,
    /// Objects packed into clusters after they waited for that.
    packed,
    /// Copies laid beside a collocated object.
    copies_placed,
    /// Open buffers that a group or server took over from another one, which may want one again soon: where these are
    /// many among the puts, there are too few for the groups in use, and clusters are sealed before they are full.
    lanes_taken_over,
    /// Objects placed in the open buffer of their neighbour.
    neighbours_joined,
    /// Device reads for gets, of a single object.
    object_reads,
    /// Device reads for gets, of a whole cluster.
    cluster_reads,
    /// Neighbours that cluster reads brought in.
    neighbours_read,
    /// Of those, asked for before they left memory.
    neighbours_used,
    /// Gets that waited for a read another get had begun.
    reads_shared,
    /// Times that a large object was not kept for its handles, which keep an eighth of a device: a read of theirs may
    /// fail.
    leases_refused,
    /// Bytes written to devices.
    device_written,
    /// Bytes read from devices.
    device_read,
    /// Write requests to devices.
    device_writes,
    /// Read requests to devices.
    device_reads,
    /// Syncs of devices.
    device_syncs,
    /// Clusters sealed.
    clusters_sealed,
    /// Group commits.
    commits,
    /// Checkpoints completed.
    checkpoints,
    /// Bytes written for checkpoints.
    checkpoint_bytes,
    /// Fetches run by `get_or_fetch`.
    fetches,
    /// Calls that waited for another's fetch.
    fetches_shared,
    /// Daemons that ended by a panic; the volume's `failed` says which, and why.
    daemons_ended,
    /// Calls of the eviction listener that panicked.
    listener_panics,
    /// Clusters that the scrubber verified.
    clusters_scrubbed,
    /// Index pages of tables that were damaged, and were made anew from the entries.
    pages_rebuilt,
}

/// Counts by reason.
type Named = std::collections::BTreeMap<String, u64>;

const MISSES: [Miss; 6] =
    [Miss::Absent, Miss::Expired, Miss::KeyMismatch, Miss::Checksum, Miss::ReadError, Miss::ChunkMissing];

const REFUSALS: [Refusal; 8] = [
    Refusal::NotAdmitted,
    Refusal::TooLarge,
    Refusal::Expired,
    Refusal::Busy,
    Refusal::NoCleanSpace,
    Refusal::IndexFull,
    Refusal::ReadOnly,
    Refusal::Recovering,
];

impl Counters {
    pub(crate) fn missed(&self, why: Miss) {
        count(&MISSES, &self.misses, why);
    }

    pub(crate) fn refused(&self, why: Refusal) {
        count(&REFUSALS, &self.refusals, why);
    }

    pub(crate) fn by_name(&self) -> (Named, Named) {
        (named(&MISSES, &self.misses), named(&REFUSALS, &self.refusals))
    }
}

fn count<T: PartialEq>(names: &[T], counts: &[AtomicU64], which: T) {
    if let Some(at) = names.iter().position(|name| *name == which) {
        add(&counts[at], 1);
    }
}

fn named<T: std::fmt::Display>(names: &[T], counts: &[AtomicU64]) -> Named {
    names.iter().zip(counts).map(|(name, count)| (name.to_string(), count.load(Relaxed))).collect()
}

pub(crate) fn add(counter: &AtomicU64, by: u64) {
    counter.fetch_add(by, Relaxed);
}

/// What a store holds and what it did.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Stats {
    /// Entries in the index; a large object counts once for each of its chunks.
    pub objects: u64,
    /// `objects` and the live bytes are still being counted: a crash took the count, and tables are gone through while
    /// they are in use. Where the store was opened read-only they stay so.
    pub counting: bool,
    /// Bytes that what is in the index takes, on the device and in memory, to within an eighth.
    pub live_bytes: u64,
    /// Bytes of the index.
    pub index_bytes: u64,
    /// Objects held one by one in the memory tier.
    pub memory_objects: u64,
    /// Bytes of memory in use: index, buffers, memory tier.
    pub memory_used: u64,
    /// Bytes of memory allowed.
    pub memory_limit: u64,
    /// Device bytes allowed, over all volumes.
    pub capacity: u64,
    /// Each volume.
    pub volumes: Vec<VolumeStats>,
    /// What was done since the store was opened.
    pub counts: Counts,
    /// Misses by reason.
    pub misses: Named,
    /// Refused puts by reason.
    pub refusals: Named,
}

impl Stats {
    /// Storage age since the store was opened: bytes deleted, replaced or evicted for each byte that lives (Sears and
    /// van Ingen, CIDR 2007, §4.4). Of objects of one length, how often each was replaced. 0 where nothing lives.
    #[must_use]
    pub fn storage_age(&self) -> f64 {
        if self.live_bytes == 0 { 0.0 } else { self.counts.removed_bytes as f64 / self.live_bytes as f64 }
    }
}

/// One volume.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct VolumeStats {
    /// Path or description of the device.
    pub place: String,
    /// What runs behind the seam: `io_uring`, `pread pool` ...
    pub backend: String,
    /// Clusters in all.
    pub clusters: u32,
    /// Clusters that can be granted.
    pub clusters_free: u32,
    /// Clusters that a store's compaction passes by, for it could not read them, or not find all that is live in them.
    pub clusters_aside: u32,
    /// Bytes of live objects on the device, to within an eighth.
    pub live_bytes: u64,
    /// Bytes of the device that objects can take; in the ring checkpoints take theirs from the same clusters.
    pub room_bytes: u64,
    /// Journal pages in use, of the pages of the ring.
    pub journal_pages: (u64, u64),
    /// Why the volume stopped writing, if it did.
    pub failed: Option<String>,
}
