//! What storage layouts have in common, below all of them: group commit (`commits.rs`), the rules of S3-FIFO
//! (`s3fifo.rs`), hashes of keys (`hash.rs`), panics of threads that others wait for (`panics.rs`), and the locks and
//! atomics that the seeded scheduler may stand in for (`sync.rs`). No I/O, and nothing of any layout.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// See `sync`.
#[cfg(shuttle)]
extern crate picaflor_locks as parking_lot;

mod commits;
mod ghost;
mod hash;
pub mod panics;
mod s3fifo;
pub mod sync;

pub use commits::{Commits, Failure, Turn};
pub use hash::{HashKeyed, Hasher, Identity, KeyHash};
pub use s3fifo::{S3Fifo, Standing, Step};
