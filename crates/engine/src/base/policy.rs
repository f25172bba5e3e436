//! The closed sets of answers from which options and presets choose, where an answer needs nothing of the module that
//! carries it out.

use std::time::Duration;

/// What happens when the device is full.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
pub enum Mode {
    /// The oldest objects that were not used make room: a put is never refused for space.
    #[default]
    Cache,
    /// Nothing leaves by itself: a put that does not fit is [`crate::Error::Full`]. That comes above 90% of the
    /// capacity (`docs/CAPACITY.md`).
    Store,
}

/// Why an object left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Departure {
    /// Its place was needed.
    Evicted,
    /// It was past its expiry when its place was needed. Until then it is a miss, and still takes room.
    Expired,
    /// Its bytes no longer verify.
    Damaged,
}

/// What survives: the answer to question 6.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Persistence {
    /// Deletes and grants in a journal, the index in checkpoints, objects as their own log.
    JournalAndCheckpoint,
    /// What the file system keeps of files that are written, renamed and removed.
    FileSystem,
    /// Objects in slots, each with its key and length: an opening reads all slots.
    Scan,
    /// Every put and delete is durable when it returns (tables).
    EveryOperation,
}

/// How a cache opens again after a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Reopening {
    /// It answers gets as soon as the log is read and takes puts as soon as that is merged; what was hot is read, and
    /// everything verified, behind.
    #[default]
    AtOnce,
    /// As Shriver et al. 2001, §3.4, have it: clusters that were hot are in memory before the opening returns. Then
    /// gets are answered, but puts are refused with [`crate::Refusal::Recovering`] until all clusters have been gone
    /// over, one each 10 ms at least, and as fast as can be while no get needs the device. Deletes are taken.
    InSteps,
}

/// Which objects are packed into clusters first, where they wait for that.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum PackOrder {
    /// What was asked for least recently: the tail of the LRU list.
    #[default]
    LruTail,
    /// What was asked for last: the head of the list, so that what is hot lies together.
    LruHead,
    /// What is worth least: Greedy-Dual-Size with equal costs (Cao and Irani 1997), so large ones before small ones.
    GreedyDualSize,
}

/// What is evicted: the answer to question 5.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Eviction {
    /// The oldest cluster; what was used since it was placed goes round again.
    RingReinsert,
    /// The oldest cluster of one of two queues; what was used since it was placed goes round again, in the second one
    /// (S3-FIFO: Yang et al., SOSP 2023).
    S3Fifo,
    /// The object that was not asked for for longest, one by one.
    Lru,
    /// The cluster of which nothing was asked for for longest, with everything in it.
    LruCluster,
    /// Nothing leaves: the emptiest cluster is compacted, everything in it is put again.
    Never,
    /// The same; and clusters that are half empty are compacted in the background before there is need, so that
    /// no put waits for it (Dámelo §6).
    NeverAhead,
}

impl Eviction {
    /// Whether clusters are in one of two queues.
    pub(crate) fn has_queues(self) -> bool {
        self == Self::S3Fifo
    }
}

/// When a cluster leaves a cache with all that is in it though its place is not needed (Shriver et al. 2001, §3.5: the
/// delete cluster policy). Looked at in the background, once a second at most. A cluster that is in memory stays
/// until it has left that, and one that a recovery would scan until it would not. Ages begin anew when the store is
/// opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum ClusterAge {
    /// Never.
    #[default]
    Unlimited,
    /// When it was written longer ago than this.
    Written(Duration),
    /// When it left memory, or was written, longer ago than this, and was not read since. Where what is used goes
    /// round, that does: it may be in memory by itself.
    Unused(Duration),
}

impl ClusterAge {
    /// Whether what is asked for stays.
    pub(crate) fn is_by_use(self) -> bool {
        matches!(self, Self::Unused(_))
    }

    /// Seconds that a cluster may be old, if there is a limit.
    pub(crate) fn limit(self) -> Option<u32> {
        match self {
            Self::Unlimited => None,
            Self::Written(time) | Self::Unused(time) => Some(u32::try_from(time.as_secs()).unwrap_or(u32::MAX)),
        }
    }
}

/// What stays in memory: the answer to question 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retention {
    /// S3-FIFO over objects and clusters.
    S3Fifo,
    /// The object that was not asked for for longest leaves.
    Lru,
    /// The cluster leaves of which nothing was asked for for longest.
    LruClusters,
    /// The same, and nothing else; but of clusters of hated groups, which leave before the others, the one of which
    /// something was asked for last (Dámelo §3).
    Frames,
}

impl Retention {
    /// Whether what was used last counts.
    pub(crate) fn is_lru(self) -> bool {
        matches!(self, Self::Lru | Self::LruClusters | Self::Frames)
    }

    /// Whether clusters are what is held.
    pub(crate) fn holds_clusters(self) -> bool {
        matches!(self, Self::LruClusters | Self::Frames)
    }

    /// Whether objects of loved groups are held though their cluster is not.
    pub(crate) fn holds_loved(self) -> bool {
        self != Self::Frames
    }
}

/// Whose neighbour an object becomes: the answer to question 1.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Placement {
    /// Groups, hints and origin server together.
    Together,
    /// No object's.
    None,
    /// Objects of one origin server, while they wait in a buffer.
    PerServer,
    /// Objects of one group, and no others: a cluster holds one group (Dámelo §1, §4).
    Groups,
    /// Those that hints name, while they wait to be packed: an object that is packed takes along those that
    /// hints name beside it (`packing.rs`).
    Packing,
    /// Objects that are put as one batch: each to where it fits best, all written in the order of their places.
    Batch,
}

/// What is read for one object: the answer to question 4.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reading {
    /// Object or cluster, whichever has been paying.
    WhatPays,
    /// The object.
    Object,
    /// The whole cluster, always: the clusters of Hummingbird, the pages of Dámelo.
    Cluster,
    /// The object, with others that are asked for: so many at a time, in the order in which they lie.
    Batch,
}
