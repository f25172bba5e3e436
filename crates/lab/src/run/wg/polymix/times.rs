//! Response times, and what they come to.

use std::sync::Arc;

use picaflor_sim::SimulatedDisk;
use serde::Serialize;

use super::traffic::{Asked, Polymix};
use crate::run::wg::{load::WORD, measured::busy};

/// Told how many requests more are answered, now and then.
pub type Progress = Arc<dyn Fn(u64) + Send + Sync>;

/// What a proxy took for its answers.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Answered {
    /// Requests measured.
    pub requests: u64,
    /// Share of them that the cache answered.
    pub hit_ratio: f64,
    /// Mean milliseconds of a hit.
    pub hit_ms: f64,
    /// The median.
    pub hit_median_ms: f64,
    /// Mean milliseconds of a miss.
    pub miss_ms: f64,
    /// The median.
    pub miss_median_ms: f64,
    /// Disk requests for each request, from the beginning.
    pub ios_per_request: f64,
    /// Share of the time, from the beginning, that the disk was busy.
    pub busy: f64,
}

/// Response times, as they come in.
pub(super) struct Times {
    /// When the measurement begins, and what each takes besides.
    after: u64,
    request_ms: f64,
    hits: Vec<u64>,
    misses: Vec<u64>,
    all: u64,
    progress: Progress,
}

impl Times {
    pub(super) fn new(test: &Polymix, progress: Progress) -> Self {
        let after = (test.seconds.0 * 1e9) as u64;
        Self { after, request_ms: test.request_ms, hits: Vec::new(), misses: Vec::new(), all: 0, progress }
    }

    pub(super) fn answered(&mut self, asked: &Asked, hit: bool, nanos: u64) {
        self.all += 1;
        if self.all.is_multiple_of(WORD) {
            (self.progress)(WORD);
        }
        if asked.at >= self.after {
            if hit { &mut self.hits } else { &mut self.misses }.push(nanos);
        }
    }

    pub(super) fn finish(mut self, disk: &SimulatedDisk, nanos: u64) -> Answered {
        let more = self.request_ms;
        let mean = |all: &[u64]| more + all.iter().sum::<u64>() as f64 / 1e6 / all.len() as f64;
        let median = |all: &mut [u64]| {
            all.sort_unstable();
            more + all.get(all.len() / 2).map_or(f64::NAN, |nanos| *nanos as f64 / 1e6)
        };
        let requests = self.hits.len() + self.misses.len();
        let times = disk.times();
        Answered {
            requests: requests as u64,
            hit_ratio: self.hits.len() as f64 / requests as f64,
            hit_ms: mean(&self.hits),
            hit_median_ms: median(&mut self.hits),
            miss_ms: mean(&self.misses),
            miss_median_ms: median(&mut self.misses),
            ios_per_request: (times.reads + times.writes) as f64 / self.all as f64,
            busy: busy(&times) as f64 / nanos as f64,
        }
    }
}
