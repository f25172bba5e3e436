//! The table of presets: each answers the engine's six questions. A seventh system costs a row.
//!
//! One answer is one variant of a closed enum in the module of its question:
//! placement (`write/placement.rs`), space (`space.rs`), memory (`cache/memory.rs`), reading (`read/reading.rs`),
//! eviction (`background/eviction.rs`), persistence (`log/checkpoint.rs` with the journal).

use picaflor_format::superblock::{PRESETS, Superblock, preset_number};

use crate::{
    Error, Mode, Result,
    base::policy::Eviction,
    base::policy::Persistence,
    base::policy::Placement,
    base::policy::Reading,
    base::policy::Reopening,
    base::policy::Retention,
    space::{LayoutKind, NextCluster},
};

/// One row: a system of the literature, or ours.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Preset {
    /// Its name in options, reports and superblocks.
    pub name: &'static str,
    /// Question 1.
    pub placement: Placement,
    /// Question 2.
    pub layout: LayoutKind,
    /// Question 3.
    pub retention: Retention,
    /// Question 4.
    pub reading: Reading,
    /// Question 5, in a cache. A store never evicts, whatever the preset.
    pub eviction: Eviction,
    /// Question 6.
    pub persistence: Persistence,
}

/// The rows that a store may be opened with: ours, and those of other crates that its options were given.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Rows(pub(crate) &'static [Preset]);

impl Rows {
    fn all(self) -> impl Iterator<Item = Preset> {
        TABLE.into_iter().chain(self.0.iter().copied())
    }

    /// The row with this name.
    ///
    /// # Errors
    /// [`Error::Option`] that lists the names there are.
    pub(crate) fn named(self, name: &str) -> Result<Preset> {
        self.all().find(|preset| preset.name == name).ok_or_else(|| {
            let names: Vec<_> = self.all().map(|preset| preset.name).collect();
            let elsewhere = match preset_number(name) {
                0 => "",
                _ => "; it is a row of the crate picaflor-literature, which these options were not given",
            };
            let why = format!("no preset {name:?}; there are: {}{elsewhere}", names.join(", "));
            Error::Option { name: "preset", why }
        })
    }

    /// The row that a store remembers, if it is one of these.
    pub(crate) fn of_store(self, block: &Superblock) -> Option<Preset> {
        self.all().find(|preset| preset.name == block.made_by())
    }
}

/// The names of our own rows.
pub(crate) fn names() -> impl Iterator<Item = &'static str> {
    TABLE.iter().map(|preset| preset.name)
}

pub(crate) const PICAFLOR: Preset = Preset {
    name: "picaflor",
    placement: Placement::Together,
    layout: LayoutKind::Ring,
    retention: Retention::S3Fifo,
    reading: Reading::WhatPays,
    eviction: Eviction::S3Fifo,
    persistence: Persistence::JournalAndCheckpoint,
};

/// Shriver et al. 2001.
const HUMMINGBIRD: Preset = Preset {
    name: "hummingbird",
    placement: Placement::Packing,
    layout: LayoutKind::Ring,
    retention: Retention::LruClusters,
    reading: Reading::Cluster,
    eviction: Eviction::LruCluster,
    persistence: Persistence::JournalAndCheckpoint,
};

/// Ledlie 2000. A group's objects share pages, which are clusters.
const DAMELO: Preset = Preset {
    name: "damelo",
    placement: Placement::Groups,
    layout: LayoutKind::Ring,
    retention: Retention::Frames,
    reading: Reading::Cluster,
    eviction: Eviction::RingReinsert,
    persistence: Persistence::JournalAndCheckpoint,
};

const TABLE: [Preset; 3] = [PICAFLOR, HUMMINGBIRD, DAMELO];

impl Preset {
    /// What a superblock calls it.
    pub fn number(&self) -> u32 {
        preset_number(self.name)
    }

    /// What the superblock calls the bytes that it leaves.
    pub(crate) fn on_device(&self) -> picaflor_format::superblock::Layout {
        PRESETS.iter().find(|(name, _)| *name == self.name).map_or_else(Default::default, |(_, layout)| *layout)
    }

    /// The mode in which a store of this row is when it is asked for in `mode`: where no object ever leaves, a cache is
    /// a store.
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
            // One for each group in use, as far as memory and device have room.
            Placement::Groups => 1024,
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

    /// Whether objects have places of their own.
    pub(crate) fn has_places(&self) -> bool {
        matches!(self.layout, LayoutKind::Places(_))
    }

    /// Whether clusters may be divided into pages: each group has its own.
    pub(crate) fn has_pages(&self) -> bool {
        self.placement == Placement::Groups
    }

    /// How a cache opens after a crash.
    pub(crate) fn reopening(&self) -> Reopening {
        if self.placement == Placement::Packing { Reopening::InSteps } else { Reopening::AtOnce }
    }

    /// Which objects leave, in this mode.
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
        for (name, number) in [("picaflor", 1), ("hummingbird", 2), ("damelo", 12)] {
            assert_eq!(Rows::default().named(name).unwrap().number(), number, "{name}");
        }
    }
}
