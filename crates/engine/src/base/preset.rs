//! The table of presets: each answers the engine's six questions. A seventh system costs a row.
//!
//! One answer is one variant of a closed enum in the module of its question:
//! placement (`write/placement.rs`), space (`space.rs`), memory (`cache/memory.rs`), reading (`read/reading.rs`),
//! eviction (`background/eviction.rs`), persistence (`log/checkpoint.rs` with the journal).

use picaflor_format::superblock::Superblock;
use picaflor_table::blocks::Method;

use crate::{
    Error, Mode, Result,
    base::policy::Eviction,
    base::policy::Persistence,
    base::policy::Placement,
    base::policy::Reading,
    base::policy::Reopening,
    base::policy::Retention,
    space::{Layout, NextCluster, Tree},
};

/// One row: a system of the literature, or ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Preset {
    pub(crate) name: &'static str,
    pub(crate) placement: Placement,
    pub(crate) layout: Layout,
    pub(crate) retention: Retention,
    pub(crate) reading: Reading,
    /// In a cache. A store never evicts, whatever the preset.
    pub(crate) eviction: Eviction,
    pub(crate) persistence: Persistence,
}

pub(crate) const PICAFLOR: Preset = Preset {
    name: "picaflor",
    placement: Placement::Together,
    layout: Layout::Ring,
    retention: Retention::S3Fifo,
    reading: Reading::WhatPays,
    eviction: Eviction::RingReinsert,
    persistence: Persistence::JournalAndCheckpoint,
};

/// Shriver et al. 2001.
const HUMMINGBIRD: Preset = Preset {
    name: "hummingbird",
    placement: Placement::Packing,
    layout: Layout::Ring,
    retention: Retention::LruClusters,
    reading: Reading::Cluster,
    eviction: Eviction::LruCluster,
    persistence: Persistence::JournalAndCheckpoint,
};

/// Markatos et al. 1999, §3.4.
const SIMPLE: Preset =
    Preset { name: "simple", layout: Layout::Files(Tree::One), persistence: Persistence::FileSystem, ..BUDDY };

/// The same.
const SQUID: Preset = Preset { name: "squid", layout: Layout::Files(Tree::Rounds), ..SIMPLE };

/// The same.
const MULTIPLE_DIRS: Preset = Preset { name: "multiple-dirs", layout: Layout::Files(Tree::Servers), ..SIMPLE };

/// The same.
const BUDDY: Preset = Preset {
    name: "buddy",
    placement: Placement::None,
    layout: Layout::Slots,
    retention: Retention::Lru,
    reading: Reading::Object,
    eviction: Eviction::Lru,
    persistence: Persistence::JournalAndCheckpoint,
};

/// The same: §3.4 has the choice between a checkpoint every few minutes and a scan.
const BUDDY_SCAN: Preset = Preset { name: "buddy-scan", persistence: Persistence::Scan, ..BUDDY };

/// The same, §3.5.
const STREAM: Preset = Preset { name: "stream", layout: Layout::NextFit, ..BUDDY };

/// The same, §3.5.
const STREAM_PACK: Preset = Preset { name: "stream-pack", layout: Layout::Packets, ..BUDDY };

/// The same, §3.6.
const LAZY_READS: Preset = Preset { name: "lazy-reads", reading: Reading::Batch, ..STREAM_PACK };

/// The same, §3.6.1.
const LAZY_READS_LOC: Preset = Preset { name: "lazy-reads-loc", placement: Placement::PerServer, ..LAZY_READS };

/// Ledlie 2000. A group's objects share pages, which are clusters.
const DAMELO: Preset = Preset {
    name: "damelo",
    placement: Placement::Groups,
    layout: Layout::Ring,
    retention: Retention::Frames,
    reading: Reading::Cluster,
    eviction: Eviction::RingReinsert,
    persistence: Persistence::JournalAndCheckpoint,
};

/// Iyengar, Jin and Challenger 2003: blocks from lists in memory (PMFLF, §2.4) that are found again by their headers
/// (TS, §2.1), under the paper's hash table on disk (§3). The paper keeps index pages in memory, and no objects; ours
/// stay there as with any row.
const PMFLF_TS: Preset = Preset {
    name: "pmflf-ts",
    placement: Placement::None,
    layout: Layout::Blocks(Method::Ts),
    retention: Retention::S3Fifo,
    reading: Reading::Object,
    eviction: Eviction::Never,
    persistence: Persistence::EveryOperation,
};

/// The same over persistent lists (§2.2).
const PMFLF_PL: Preset = Preset { name: "pmflf-pl", layout: Layout::Blocks(Method::Pl), ..PMFLF_TS };

/// The same over persistent free lists (§2.3).
const PMFLF_PFL: Preset = Preset { name: "pmflf-pfl", layout: Layout::Blocks(Method::Pfl), ..PMFLF_TS };

/// The same, where a batch is placed together (optimized batch allocation, §2.5).
const OBA: Preset = Preset { name: "oba", placement: Placement::Batch, ..PMFLF_PFL };

const TABLE: [Preset; 16] = [
    PICAFLOR,
    HUMMINGBIRD,
    SIMPLE,
    SQUID,
    MULTIPLE_DIRS,
    BUDDY,
    BUDDY_SCAN,
    STREAM,
    STREAM_PACK,
    LAZY_READS,
    LAZY_READS_LOC,
    DAMELO,
    PMFLF_TS,
    PMFLF_PL,
    PMFLF_PFL,
    OBA,
];

impl Preset {
    /// The row with this name.
    ///
    /// # Errors
    /// [`Error::Option`] that lists the names there are.
    pub(crate) fn named(name: &str) -> Result<Self> {
        TABLE.into_iter().find(|preset| preset.name == name).ok_or_else(|| {
            let names: Vec<_> = Self::names().collect();
            Error::Option { name: "preset", why: format!("no preset {name:?}; there are: {}", names.join(", ")) }
        })
    }

    /// The names of all rows.
    pub(crate) fn names() -> impl Iterator<Item = &'static str> {
        TABLE.iter().map(|preset| preset.name)
    }

    /// What a superblock calls it; rows keep their places in the table for ever.
    pub(crate) fn number(&self) -> u32 {
        TABLE.iter().zip(1..).find(|(row, _)| row.name == self.name).map_or(0, |(_, number)| number)
    }

    /// The row that a store remembers: the one that its superblock names, if it leaves such bytes, or the first that
    /// does.
    pub(crate) fn of_store(block: &Superblock) -> Option<Self> {
        let named = TABLE.into_iter().find(|row| row.number() == block.preset);
        named.filter(|row| row.on_device() == block.layout).or_else(|| Self::of_layout(block.layout))
    }

    /// The first row that leaves such bytes.
    fn of_layout(layout: picaflor_format::superblock::Layout) -> Option<Self> {
        TABLE.into_iter().find(|preset| preset.on_device() == layout)
    }

    /// What the superblock calls the bytes that it leaves.
    pub(crate) fn on_device(&self) -> picaflor_format::superblock::Layout {
        match (self.layout, self.persistence) {
            (Layout::Slots, Persistence::Scan) => picaflor_format::superblock::Layout::SlotsScanned,
            (layout, _) => layout.on_device(),
        }
    }

    /// The mode in which a store of this row is when it is asked for in `mode`: where nobody ever leaves, a cache is a
    /// store.
    pub(crate) fn mode(&self, mode: Mode) -> Mode {
        if self.eviction == Eviction::Never { Mode::Store } else { mode }
    }

    /// Buffers that a store of this row keeps open unless it is told otherwise.
    pub(crate) fn open_buffers(&self) -> usize {
        match self.placement {
            // The most, and the best, of the paper.
            Placement::PerServer => 128,
            // One is packed; another is of what bypasses memory.
            Placement::Packing => 2,
            _ => 16,
        }
    }

    /// Bytes of a cluster, the same.
    pub(crate) fn cluster(&self) -> u32 {
        // Dámelo's proxy had pages of this size (§5.4).
        if self.retention.holds_clusters() { 64 << 10 } else { 256 << 10 }
    }

    /// Which cluster is written next, the same.
    pub(crate) fn next_cluster(&self) -> NextCluster {
        match self.retention {
            Retention::LruClusters => NextCluster::ClosestToAccess,
            Retention::Frames => NextCluster::InRegion,
            Retention::S3Fifo | Retention::Lru => NextCluster::Overwrite,
        }
    }

    /// Whether clusters may be divided into pages: each group has its own.
    pub(crate) fn has_pages(&self) -> bool {
        self.placement == Placement::Groups
    }

    /// How a cache opens after a crash.
    pub(crate) fn reopening(&self) -> Reopening {
        if self.placement == Placement::Packing { Reopening::InSteps } else { Reopening::AtOnce }
    }

    /// Who leaves, in this mode.
    pub(crate) fn eviction(&self, mode: Mode) -> Eviction {
        match mode {
            Mode::Cache => self.eviction,
            Mode::Store if self.retention == Retention::Frames => Eviction::NeverAhead,
            Mode::Store => Eviction::Never,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_superblocks_call_the_rows_never_changes() {
        let names = "picaflor hummingbird simple squid multiple-dirs buddy buddy-scan stream stream-pack lazy-reads \
                     lazy-reads-loc damelo pmflf-ts pmflf-pl pmflf-pfl oba";
        for (name, number) in names.split_whitespace().zip(1..) {
            assert_eq!(Preset::named(name).unwrap().number(), number, "{name}");
        }
    }
}
