//! Storage managers of the literature behind picaflor's store: those whose objects do not lie in clusters.
//!
//! ```no_run
//! use picaflor::Store;
//!
//! let store = Store::open(picaflor_literature::preset("pmflf-pfl")?.place("objects.store").capacity(1 << 30))?;
//! store.put(b"https://example.org/", b"<html>")?; // durable when it returns
//! # Ok::<(), picaflor::Error>(())
//! ```
//!
//! Rows of the table of presets are here, their layouts in folders: `tables/` has hash tables on blocks (PMFLF of
//! Iyengar, Jin and Challenger 2003), which keep an index of their own; `places/` has slots and files (BUDDY, STREAM,
//! SIMPLE and others of Markatos, Katevenis, Pnevmatikatos and Flouris 1999), which stand on the engine's index and
//! log. The store in front of them is the same as with any preset: limits, expiry, memory, handles, groups, listings,
//! the audit.
#![forbid(unsafe_code)]

// See `picaflor_common::sync`.
#[cfg(shuttle)]
extern crate picaflor_locks as parking_lot;

#[cfg(all(test, shuttle))]
mod models;
mod piece;
mod places;
mod tables;

use std::path::PathBuf;

use picaflor::{
    Options, Result,
    layout::{Eviction, LayoutKind, Opener, Persistence, Placement, Preset, Reading, Retention},
};
use picaflor_format::superblock::preset_number;

/// Markatos et al. 1999, §3.4.
const BUDDY: Preset = Preset {
    name: "buddy",
    placement: Placement::None,
    layout: places::SLOTS,
    retention: Retention::Lru,
    reading: Reading::Object,
    eviction: Eviction::Lru,
    persistence: Persistence::JournalAndCheckpoint,
};

/// The same.
const SIMPLE: Preset = Preset { name: "simple", layout: places::FILES, persistence: Persistence::FileSystem, ..BUDDY };

/// The same, §3.5.
const STREAM: Preset = Preset { name: "stream", layout: places::NEXT_FIT, ..BUDDY };

/// The same, §3.5.
const STREAM_PACK: Preset = Preset { name: "stream-pack", layout: places::PACKETS, ..BUDDY };

/// The same, §3.6.
const LAZY_READS: Preset = Preset { name: "lazy-reads", reading: Reading::Batch, ..STREAM_PACK };

/// Iyengar, Jin and Challenger 2003: blocks from lists in memory (PMFLF, §2.4) that are found again by their headers
/// (TS, §2.1), under the paper's hash table on disk (§3). The paper keeps index pages in memory, and no objects; ours
/// stay there as with any row.
const PMFLF_TS: Preset = Preset {
    name: "pmflf-ts",
    placement: Placement::None,
    layout: TABLES,
    retention: Retention::S3Fifo,
    reading: Reading::Object,
    eviction: Eviction::Never,
    persistence: Persistence::EveryOperation,
};

/// Hash tables on blocks.
const TABLES: LayoutKind = LayoutKind::Other(Opener(tables::open));

/// The rows of this crate, for [`Options::rows`].
pub const ROWS: &[Preset] = &[
    SIMPLE,
    Preset { name: "squid", layout: places::FILES_IN_TURN, ..SIMPLE },
    Preset { name: "multiple-dirs", layout: places::FILES_OF_SERVERS, ..SIMPLE },
    BUDDY,
    // §3.4 has the choice between a checkpoint every few minutes and a scan.
    Preset { name: "buddy-scan", layout: places::SLOTS_SCANNED, persistence: Persistence::Scan, ..BUDDY },
    STREAM,
    STREAM_PACK,
    LAZY_READS,
    // §3.6.1.
    Preset { name: "lazy-reads-loc", placement: Placement::PerServer, ..LAZY_READS },
    PMFLF_TS,
    // The same over persistent lists (§2.2).
    Preset { name: "pmflf-pl", ..PMFLF_TS },
    // The same over persistent free lists (§2.3).
    Preset { name: "pmflf-pfl", ..PMFLF_TS },
    // The same, where a batch is placed together (optimized batch allocation, §2.5).
    Preset { name: "oba", placement: Placement::Batch, ..PMFLF_TS },
];

/// The names of all presets, those of [`Options::presets`] among them, in the order of their numbers in superblocks.
pub fn presets() -> impl Iterator<Item = &'static str> {
    let mut all: Vec<_> = Options::presets().chain(ROWS.iter().map(|row| row.name)).collect();
    all.sort_unstable_by_key(|name| preset_number(name));
    all.into_iter()
}

/// The store at `path` with the preset that it remembers, as [`Options::new`], if it is one of any of [`presets`].
pub fn options(path: impl Into<PathBuf>) -> Options {
    Options::new(path).rows(ROWS)
}

/// The preset with this name, of any of [`presets`], at no place yet: [`Options::place`] says where.
///
/// # Errors
/// [`picaflor::Error::Option`] for a name that is not in the table; it lists those that are.
pub fn preset(name: &str) -> Result<Options> {
    as_preset(Options::nowhere(), name)
}

/// The same options with the answers of another preset of any of [`presets`].
///
/// # Errors
/// As [`preset`].
pub fn as_preset(options: Options, name: &str) -> Result<Options> {
    options.rows(ROWS).as_preset(name)
}

/// The snippet of the README compiles.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_superblocks_call_the_rows_never_changes() {
        let names = "picaflor hummingbird simple squid multiple-dirs buddy buddy-scan stream stream-pack lazy-reads \
                     lazy-reads-loc damelo pmflf-ts pmflf-pl pmflf-pfl oba";
        assert!(presets().eq(names.split_whitespace()));
        for (name, number) in presets().zip(1..) {
            assert_eq!(preset_number(name), number, "{name}");
        }
    }
}
