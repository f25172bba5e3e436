//! What every floor may name: options and presets with their answers, errors, counters, frames, groups, and on which
//! device a key has its home.

pub(crate) mod error;
pub(crate) mod frame;
pub(crate) mod group;
pub(crate) mod options;
pub(crate) mod policy;
pub(crate) mod preset;
pub(crate) mod spread;
pub(crate) mod stats;
