//! Miss ratios: what a cache of so many bytes would have had to fetch, without a disk or a store under it.
//!
//! As others count them (libCacheSim): an object larger than the cache is a miss and does not enter; objects have one
//! size; nothing is charged for metadata.

mod fifo;
mod s3fifo;

use std::{collections::HashMap, fmt, str::FromStr};

use fifo::Fifo;
use s3fifo::S3Fifo;
use serde::Serialize;

use crate::{lru::Lru, trace::Request};

/// Who leaves when there is no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub enum Policy {
    /// Who was not asked for the longest.
    #[serde(rename = "LRU")]
    Lru,
    /// Who came first.
    #[serde(rename = "FIFO")]
    Fifo,
    /// The engine's own rules, with the paper's threshold.
    #[serde(rename = "S3-FIFO")]
    S3Fifo,
    /// The same with the engine's threshold: one use in the small queue is enough.
    #[serde(rename = "S3-FIFO-1")]
    S3Fifo1,
}

impl Policy {
    /// All of them, as they are written.
    pub const ALL: [(&'static str, Self); 4] =
        [("LRU", Self::Lru), ("FIFO", Self::Fifo), ("S3-FIFO", Self::S3Fifo), ("S3-FIFO-1", Self::S3Fifo1)];
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.iter().find(|(_, policy)| policy == self).map_or("", |(name, _)| name))
    }
}

impl FromStr for Policy {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        let found = Self::ALL.iter().find(|(known, _)| known.eq_ignore_ascii_case(name));
        found.map(|(_, policy)| *policy).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|(name, _)| *name).collect();
            format!("no policy {name:?}; there are: {}", names.join(", "))
        })
    }
}

/// How much of a trace a cache missed.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Missed {
    /// Share of the requests.
    pub requests: f64,
    /// Share of their bytes.
    pub bytes: f64,
}

/// Replays requests, whose sizes are settled, through a cache of `capacity` bytes.
pub fn replay(policy: Policy, capacity: u64, requests: &[Request]) -> Missed {
    match policy {
        Policy::Lru => {
            let mut cache = Lru::new(capacity);
            count(requests, |request| {
                let hit = cache.touch(request.key).is_some();
                if !hit {
                    cache.insert(request.key, request.size, 0, |_| {});
                }
                hit
            })
        }
        Policy::S3Fifo | Policy::S3Fifo1 => {
            let ghosts = ghosts(capacity, requests);
            let mut cache = S3Fifo::new(capacity, ghosts, if policy == Policy::S3Fifo { 2 } else { 1 });
            count(requests, |request| cache.get(request.key, request.size))
        }
        Policy::Fifo => {
            let mut cache = Fifo::new(capacity);
            count(requests, |request| cache.get(request.key, request.size))
        }
    }
}

/// As many ghosts as objects of mean size have room in main, nine tenths of the cache: so the paper has it.
fn ghosts(capacity: u64, requests: &[Request]) -> u64 {
    let sizes: HashMap<u64, u64> = requests.iter().map(|request| (request.key, request.size)).collect();
    let bytes = sizes.values().fold(0_u64, |sum, size| sum.saturating_add(*size));
    let mean = bytes / (sizes.len() as u64).max(1);
    (u128::from(capacity) * 9 / 10 / u128::from(mean.max(1))).try_into().unwrap_or(u64::MAX)
}

/// Counts what `get` does not have.
fn count(requests: &[Request], mut get: impl FnMut(&Request) -> bool) -> Missed {
    // As many bytes as two absurd sizes have are more than 64 bits hold.
    let (mut missed, mut missed_bytes, mut bytes) = (0_u64, 0_u128, 0_u128);
    for request in requests {
        bytes += u128::from(request.size);
        if !get(request) {
            missed += 1;
            missed_bytes += u128::from(request.size);
        }
    }
    Missed { requests: missed as f64 / requests.len().max(1) as f64, bytes: missed_bytes as f64 / bytes.max(1) as f64 }
}
