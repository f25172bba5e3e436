//! What a test of the proxy is told, and what it gave.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use serde::Serialize;

use crate::{Error, synth::Polygraph};

/// Everything that a test is told.
#[derive(Debug, Clone)]
pub struct Proxied {
    /// Row of the engine's table.
    pub preset: String,
    /// Bytes of memory for the store.
    pub memory: u64,
    /// Bytes of the store.
    pub capacity: u64,
    /// What is asked for.
    pub model: Polygraph,
    /// Requests under way at a time.
    pub connections: usize,
    /// How long.
    pub time: Duration,
    /// Requests after which it ends before its time.
    pub most: Option<usize>,
    /// Of the requests.
    pub seed: u64,
    /// Where the store is laid; the system's folder for temporary files, if nothing is said.
    pub folder: Option<PathBuf>,
}

/// What a test gave.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Served {
    /// Requests that were answered.
    pub requests: u64,
    /// From the first request to the last answer.
    pub seconds: f64,
    /// Requests a second.
    pub per_second: f64,
    /// Share of them that the proxy answered without asking the origin.
    pub hit_ratio: f64,
    /// Requests that the origin was asked.
    pub asked_origin: u64,
    /// Mean bytes of a body.
    pub mean_bytes: f64,
    /// Mean milliseconds of a request.
    pub mean_ms: f64,
    /// Puts that the store refused, by reason: what was not stored is asked of the origin again.
    pub refused: BTreeMap<String, u64>,
}

/// Where this machine alone can ask, at a port that is free.
pub(super) const ANY_PORT: ([u8; 4], u16) = ([127, 0, 0, 1], 0);

pub(super) fn wrong(why: impl ToString) -> Error {
    Error::experiment("the proxy test", why.to_string())
}
