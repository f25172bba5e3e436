//! Every feature of the engine, shown to work: one module per theme.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]

mod chunk_stream;
mod common;
mod counts;
mod daemons;
mod eviction;
mod fetch;
mod full;
mod groups;
mod growth;
mod leases;
mod limits;
mod located;
mod log;
mod memory;
mod opening;
mod packing;
mod pins;
mod placement;
mod ranges;
mod refused;
mod reports;
mod rings;
mod rotten;
mod runs;
mod shrinking;
mod streams;
mod tasks;
mod threads;
mod volumes;
mod walks;
