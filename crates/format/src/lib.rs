//! Every persistent byte of picaflor: encode and decode, no I/O.
//!
//! [`zone`] names the places on the device; each other module is one kind of record that lives in one
//! of them. `docs/FORMAT.md` describes the same bytes in prose and argues why recovery is right.
//!
//! Invariants: integers are little-endian; every record starts with a magic number and carries a
//! CRC-32C over all of itself but that checksum; a number that once meant something is never reused.
//! Decoders take any bytes and never panic.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod blocks;
pub mod checkpoint;
pub mod cluster;
mod codec;
pub mod doubt;
pub mod frame;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod graph;
pub mod hot;
pub mod htod;
pub mod journal;
mod remains;
pub mod superblock;
pub mod tabled;
pub mod zone;

pub use remains::has_remains;

/// Version of the format that this build writes and reads.
pub const VERSION: u32 = 1;

/// Smallest unit in which places are counted, and the alignment of every record that is written alone.
pub const BLOCK: usize = 4096;

/// Why bytes could not be decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Corrupt {
    /// Fewer bytes than the record needs.
    #[error("too short")]
    Short,
    /// Another kind of record, or none.
    #[error("magic number does not match")]
    Magic,
    /// The checksum disagrees with the bytes.
    #[error("checksum does not match")]
    Checksum,
    /// A field holds a value that the format does not know.
    #[error("field {0} out of range")]
    Field(&'static str),
    /// Written by another version.
    #[error("format version {0}")]
    Version(u32),
}
