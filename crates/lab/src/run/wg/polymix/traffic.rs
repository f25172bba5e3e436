//! The test: its clients, its servers, and what is between them.

use serde::Deserialize;

use crate::{
    run::wg::load::{Load, Machine, System, Timing},
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

/// A request on its way.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asked {
    /// Nanoseconds from the beginning.
    pub(super) at: u64,
    /// Nanoseconds that its server thinks.
    pub(super) think: u64,
    pub(super) cacheable: bool,
    pub(super) request: Request,
}

impl Polymix {
    pub(super) fn asked(&self, seed: u64) -> impl Iterator<Item = Asked> + use<> {
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

    pub(super) fn load(&self, machine: &Machine, system: &System, seed: u64) -> Load {
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
