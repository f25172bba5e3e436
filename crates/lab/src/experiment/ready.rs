//! An experiment made ready: what can be known to be wrong is found before the first run, not after the last but one.

use std::num::NonZero;

use super::{Row, Spec, parallel, spec::Case};
use crate::{Result, run, trace::Report};

/// An experiment whose traces are in memory, and of which every case has a device that can be made.
pub struct Ready {
    cases: Vec<Case>,
    traces: Vec<Report>,
}

impl Ready {
    /// Reads the traces, and looks at each case's preset, device, file system and sizes. A folder of this machine is
    /// written to.
    ///
    /// # Errors
    /// What does not exist, cannot be read or has no room, by its name.
    pub fn of(spec: &Spec) -> Result<Self> {
        let mut workloads = Vec::new();
        for name in &spec.workload {
            workloads.push((name.clone(), spec.workload_named(name)?));
        }
        let cases = spec.cases(&workloads);
        cases.iter().filter(|case| case.store).try_for_each(|case| run::check(&case.setup))?;
        let traces = workloads.iter().filter_map(|(_, workload)| match workload {
            run::Workload::Loaded(trace) => Some(trace.reports().to_vec()),
            _ => None,
        });
        let traces = traces.flatten().collect();
        Ok(Self { cases, traces })
    }

    /// What the files of the workloads were taken for, and what in them was bad.
    pub fn traces(&self) -> &[Report] {
        &self.traces
    }

    /// Runs all cases on so many threads, or as many as there are processors. `progress` is told how many requests more
    /// are done, of how many in all.
    ///
    /// # Errors
    /// The first error of the first case, in their order, that failed.
    pub fn run(&self, jobs: Option<NonZero<usize>>, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Vec<Row>> {
        parallel::run(&self.cases, jobs, progress)
    }
}

/// [`Ready::of`] and [`Ready::run`].
///
/// # Errors
/// As these.
pub fn run(spec: &Spec, jobs: Option<NonZero<usize>>, progress: &(dyn Fn(u64, u64) + Sync)) -> Result<Vec<Row>> {
    Ready::of(spec)?.run(jobs, progress)
}
