//! What every floor may name: options and presets with their answers, errors, counters, reports, frames, groups, on
//! which device a key has its home, and the two seams to layouts of other crates.

pub(crate) mod beside;
pub(crate) mod blocked;
pub(crate) mod blocking;
pub(crate) mod column;
pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod group;
pub(crate) mod layout;
pub(crate) mod medium;
pub(crate) mod options;
pub(crate) mod pinned;
pub(crate) mod places;
pub(crate) mod policy;
pub(crate) mod preset;
pub(crate) mod put;
pub(crate) mod reach;
pub(crate) mod receipt;
#[cfg(feature = "metrics")]
mod record;
pub(crate) mod report;
pub(crate) mod spread;
pub(crate) mod stats;
