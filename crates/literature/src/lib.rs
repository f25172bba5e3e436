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
//! A row of the table of presets is here, its layout in a folder: `tables/` has hash tables on blocks (PMFLF of
//! Iyengar, Jin and Challenger 2003). The store in front of it is the same as with any preset: limits, expiry, memory,
//! handles, groups, listings, the audit.
#![forbid(unsafe_code)]

// See `picaflor_common::sync`.
#[cfg(shuttle)]
extern crate picaflor_locks as parking_lot;

mod tables;

use std::path::PathBuf;

use picaflor::{
    Options, Result,
    layout::{Eviction, LayoutKind, Opener, Persistence, Placement, Preset, Reading, Retention},
};

/// Iyengar, Jin and Challenger 2003: blocks from lists in memory (PMFLF, §2.4) that are found again by their headers
/// (TS, §2.1), under the paper's hash table on disk (§3). The paper keeps index pages in memory, and no objects; ours
/// stay there as with any row.
const PMFLF_TS: Preset = Preset {
    name: "pmflf-ts",
    placement: Placement::None,
    layout: LayoutKind::Other(Opener(tables::open)),
    retention: Retention::S3Fifo,
    reading: Reading::Object,
    eviction: Eviction::Never,
    persistence: Persistence::EveryOperation,
};

/// The rows of this crate, for [`Options::rows`].
pub const ROWS: &[Preset] = &[
    PMFLF_TS,
    // The same over persistent lists (§2.2).
    Preset { name: "pmflf-pl", ..PMFLF_TS },
    // The same over persistent free lists (§2.3).
    Preset { name: "pmflf-pfl", ..PMFLF_TS },
    // The same, where a batch is placed together (optimized batch allocation, §2.5).
    Preset { name: "oba", placement: Placement::Batch, ..PMFLF_TS },
];

/// The names of all presets, those of [`Options::presets`] first.
pub fn presets() -> impl Iterator<Item = &'static str> {
    Options::presets().chain(ROWS.iter().map(|row| row.name))
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
        for (row, number) in ROWS.iter().zip(13..) {
            assert_eq!(row.number(), number, "{}", row.name);
        }
        assert_eq!(presets().count(), 16);
    }
}
