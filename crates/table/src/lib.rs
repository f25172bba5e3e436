//! Storage for what cannot be fetched again: a persistent block allocator ([`blocks`]) and hash tables on it ([`htod`]),
//! after Iyengar, Jin and Challenger 2003. Each is usable alone, on a file, a raw device or memory; each put and delete
//! can be durable when it returns.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod blocks;
mod error;
pub mod htod;

pub use error::{Error, Result};

type Commits = picaflor_common::Commits<Error>;
