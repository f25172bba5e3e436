//! The table of presets: each answers the engine's six questions. A seventh system costs a row.
//!
//! One answer is one variant of a closed enum in the module of its question:
//! placement (`placement.rs`), space (`space.rs`), memory (`memory/`), reading (`reading.rs`),
//! eviction (`eviction.rs`), persistence (`checkpoint.rs` with the journal).

use crate::{
    Error, Mode, Result, checkpoint::Persistence, eviction::Eviction, memory::Retention, placement::Placement,
    reading::Reading, space::Layout,
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

/// Markatos et al. 1999, §3.4.
const BUDDY: Preset = Preset {
    name: "buddy",
    placement: Placement::None,
    layout: Layout::Slots,
    retention: Retention::Lru,
    reading: Reading::Object,
    eviction: Eviction::Lru,
    persistence: Persistence::JournalAndCheckpoint,
};

/// The same, §3.5.
const STREAM: Preset = Preset { name: "stream", layout: Layout::NextFit, ..BUDDY };

/// The same, §3.5.
const STREAM_PACK: Preset = Preset { name: "stream-pack", layout: Layout::Packets, ..BUDDY };

const TABLE: [Preset; 4] = [PICAFLOR, BUDDY, STREAM, STREAM_PACK];

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

    /// The first row that leaves such bytes.
    pub(crate) fn of_layout(layout: picaflor_format::superblock::Layout) -> Option<Self> {
        TABLE.into_iter().find(|preset| preset.layout.on_device() == layout)
    }

    /// Who leaves, in this mode.
    pub(crate) fn eviction(&self, mode: Mode) -> Eviction {
        match mode {
            Mode::Cache => self.eviction,
            Mode::Store => Eviction::Never,
        }
    }
}
