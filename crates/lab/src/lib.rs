//! The lab: what a trace does to a store and a device, measured and drawn.
//!
//! From the ground up: a *trace* is read from a log (`trace`) or made from published statistics (`synth`); a *method*
//! turns its requests into what a store is asked to do (`method`); an *experiment* replays that on stores and devices,
//! real or simulated, in parallel; a report is its JSON, CSV and drawings. The engine that runs here is the one that
//! runs in production: nothing of it is written twice for the simulator.
//!
//! Everything is a function of its seed: the same experiment gives the same bytes.
#![forbid(unsafe_code)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

pub mod age;
pub mod cache;
pub mod draw;
mod error;
pub mod exec;
pub mod experiment;
pub mod fs;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
mod hash;
pub mod lru;
pub mod method;
pub mod reproduce;
pub mod run;
pub mod stat;
pub mod synth;
pub mod trace;

pub use error::{Error, Result};
