//! The paper's file: machines and systems, and what each row of its tables was made with.

use std::collections::BTreeMap;

use serde::Deserialize;

use super::published::Published;
use crate::{
    Error, Result,
    run::wg::{Load, Machine, System, Timing},
    synth::Polygraph,
};

/// Which of the systems is the paper's own, and on which machine each table was made.
pub(super) const OWN: &str = "hummingbird";
/// The same with clusters of 64 KiB, which the paper has too: in its Table 4, and beside others of ours.
pub(super) const LARGE: &str = "hummingbird-64";
/// Of files that are cached where the largest are not, in Table 2.
const LARGEST: u64 = 64 << 10;

#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Spec {
    pub(super) title: String,
    pub(super) parts: u32,
    pub(super) events: u64,
    pub(super) every: u64,
    pub(super) timing: Timing,
    pub(super) seed: u64,
    pub(super) machines: BTreeMap<String, Machine>,
    pub(super) systems: BTreeMap<String, System>,
    pub(super) proxy: Proxy,
}

/// The test, as the paper's file has it.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Proxy {
    /// Which systems.
    pub(super) files: String,
    pub(super) store: String,
    pub(super) rate: f64,
    pub(super) think_ms: (f64, f64),
    pub(super) request_ms: f64,
    pub(super) seconds: (f64, f64),
    pub(super) disk_mib: u64,
    pub(super) memory_mib: u64,
    pub(super) processes: usize,
    pub(super) requests: Polygraph,
}

impl Proxy {
    fn check(&self) -> Result<()> {
        let runs = self.rate > 0.0 && self.seconds.1 > 0.0 && !self.requests.kinds.is_empty();
        if !runs {
            return Err(Error::experiment(
                "hummingbird",
                "the proxy has a rate, seconds to measure, and kinds of objects",
            ));
        }
        Ok(())
    }
}

impl Spec {
    pub(super) fn parse(text: &str) -> Result<Self> {
        let spec: Self = toml::from_str(text).map_err(|error| Error::experiment("hummingbird", error.to_string()))?;
        if spec.parts == 0 {
            return Err(Error::experiment("hummingbird", "parts is at least 1"));
        }
        for system in spec.systems.values() {
            if let System::Store { preset, .. } = system {
                picaflor_literature::preset(preset)
                    .map_err(|source| Error::Store { name: "hummingbird".into(), source })?;
            }
        }
        spec.proxy.check()?;
        Ok(spec)
    }

    pub(super) fn machine(&self, name: &str) -> Result<&Machine> {
        self.machines.get(name).ok_or_else(|| missing(name))
    }

    pub(super) fn system(&self, name: &str) -> Result<&System> {
        self.systems.get(name).ok_or_else(|| missing(name))
    }

    /// What a row of the paper's tables was made with.
    pub(super) fn load(&self, row: &Published) -> Result<Load> {
        let machine = if row.table == 4 { "irix" } else { "freebsd" };
        let system = if (row.table, row.system) == (4, OWN) { LARGE } else { row.system };
        let (disks, threads) = if row.table == 5 { (2, 4) } else { (1, 1) };
        Ok(Load {
            system: self.system(system)?.clone(),
            machine: self.machine(machine)?.clone(),
            disk_mib: row.disk_gib << 10,
            memory_mib: row.memory,
            largest: if row.table == 2 { LARGEST } else { u64::MAX },
            disks,
            threads,
            timing: self.timing,
            every: self.every,
            parts: self.parts,
            events: self.events,
            seed: self.seed,
        })
    }
}

fn missing(what: &str) -> Error {
    Error::experiment("hummingbird", format!("the file names no {what}"))
}
