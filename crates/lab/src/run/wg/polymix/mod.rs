//! A proxy between Polygraph's clients and servers (Shriver et al. 2001, §5), on virtual time: Apache with a file for
//! each object on a modelled file system, or the same on a store of the engine.
//!
//! Requests come when they come, whether the ones before were answered or not. What was cached is read and sent. What
//! was not is asked of its server, which takes its time to think, and stored if it may be cached.

mod files;
mod store;

use std::sync::Arc;

use picaflor_sim::SimulatedDisk;
use serde::{Deserialize, Serialize};

use super::{Load, Machine, System, Timing, WORD, busy};
use crate::{
    Result,
    synth::{Dice, Polygraph},
    trace::Request,
};

/// The clients, the servers, and what is between them.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Polymix {
    /// Requests a second, at random times.
    pub rate: f64,
    /// Mean and standard deviation of the milliseconds that a server thinks.
    pub think_ms: (f64, f64),
    /// Milliseconds of a request that neither disk nor server takes: the network, and the proxy itself.
    pub request_ms: f64,
    /// Seconds before anything is measured, and of the measurement.
    pub seconds: (f64, f64),
    /// MiB of the disk's part.
    pub disk_mib: u64,
    /// MiB of memory: a store's, or the buffer cache's.
    pub memory_mib: u64,
    /// Requests that a store is asked at a time, at most.
    pub processes: usize,
    /// What is asked for.
    pub requests: Polygraph,
}

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

/// A request on its way.
#[derive(Debug, Clone, Copy)]
struct Asked {
    /// Nanoseconds from the beginning.
    at: u64,
    /// Nanoseconds that its server thinks.
    think: u64,
    cacheable: bool,
    request: Request,
}

/// Told how many requests more are answered, now and then.
pub type Progress = Arc<dyn Fn(u64) + Send + Sync>;

impl Polymix {
    fn asked(&self, seed: u64) -> impl Iterator<Item = Asked> + use<> {
        let (model, rate, think) = (self.requests.clone(), self.rate, self.think_ms);
        let end = (self.seconds.0 + self.seconds.1) * 1e9;
        let mut dice = Dice::new(seed, 31);
        let mut at = 0.0;
        let all = self.requests.requests(seed).map(move |request| {
            at += dice.exponential(1e9 / rate);
            let think = (think.0 + think.1 * dice.normal()).max(0.0) * 1e6;
            Asked { at: at as u64, think: think as u64, cacheable: model.object(request.key).0, request }
        });
        all.take_while(move |asked| (asked.at as f64) < end)
    }

    /// About how many requests that are.
    #[must_use]
    pub fn count(&self) -> u64 {
        (self.rate * (self.seconds.0 + self.seconds.1)) as u64
    }

    fn load(&self, machine: &Machine, system: &System, seed: u64) -> Load {
        Load {
            system: system.clone(),
            machine: machine.clone(),
            disk_mib: self.disk_mib,
            memory_mib: (0, self.memory_mib),
            largest: u64::MAX,
            disks: 1,
            threads: self.processes,
            timing: Timing::Real,
            every: 1,
            parts: 1,
            events: 0,
            seed,
        }
    }
}

/// Runs one.
///
/// # Errors
/// If it names what does not exist, or the system under it fails.
pub fn serve(test: &Polymix, machine: &Machine, system: &System, seed: u64, progress: Progress) -> Result<Answered> {
    let load = test.load(machine, system, seed);
    let times = Times::new(test, progress);
    match system {
        System::Squid { like, changes } => files::serve(test, &load, &load.file_system(like, changes)?, times),
        System::Store { preset, cluster } => store::serve(test, &load, (preset, *cluster), times),
    }
}

/// Response times, as they come in.
struct Times {
    /// When the measurement begins, and what each takes besides.
    after: u64,
    request_ms: f64,
    hits: Vec<u64>,
    misses: Vec<u64>,
    all: u64,
    progress: Progress,
}

impl Times {
    fn new(test: &Polymix, progress: Progress) -> Self {
        let after = (test.seconds.0 * 1e9) as u64;
        Self { after, request_ms: test.request_ms, hits: Vec::new(), misses: Vec::new(), all: 0, progress }
    }

    fn answered(&mut self, asked: &Asked, hit: bool, nanos: u64) {
        self.all += 1;
        if self.all.is_multiple_of(WORD) {
            (self.progress)(WORD);
        }
        if asked.at >= self.after {
            if hit { &mut self.hits } else { &mut self.misses }.push(nanos);
        }
    }

    fn finish(mut self, disk: &SimulatedDisk, nanos: u64) -> Answered {
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
