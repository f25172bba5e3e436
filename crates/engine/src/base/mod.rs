//! What every floor may name: errors, counters, groups, and which device a key has its home on.

pub(crate) mod error;
pub(crate) mod group;
pub(crate) mod spread;
pub(crate) mod stats;
