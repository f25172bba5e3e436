//! The cases of an experiment, over threads.

use std::{cell::Cell, num::NonZero};

use super::{Row, spec::Case, spread};
use crate::{
    Result,
    method::Method,
    run::{self, Outcome, Streams},
};

/// As [`super::Ready::run`].
pub(super) fn run(
    cases: &[Case],
    jobs: Option<NonZero<usize>>,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Vec<Row>> {
    let total = cases.iter().map(|case| case.setup.gets).fold(0, u64::saturating_add);
    let streams = Streams::default();
    spread(cases, jobs, |case| {
        let told = Cell::new(0);
        let row = one(case, &streams, &|more| {
            let more = more.min(case.setup.gets - told.get());
            told.set(told.get() + more);
            progress(more, total);
        });
        // One that ends at so many operations needs fewer requests; all the same it is done.
        progress(case.setup.gets - told.get(), total);
        row
    })
}

fn one(case: &Case, streams: &Streams, progress: &dyn Fn(u64)) -> Result<Row> {
    let outcome = match case.store {
        true => run::run(&case.setup, &*streams.of(&case.setup)?, progress)?,
        false => counts(case, progress)?,
    };
    Ok(Row {
        workload: case.workload.clone(),
        hints: case.setup.hints.name(),
        preset: case.setup.preset.clone(),
        device: case.setup.device.clone(),
        file_system: case.setup.file_system.clone().unwrap_or_default(),
        disk_mib: case.disk_mib,
        target_utilisation: case.utilisation,
        buffers: case.buffers,
        threshold: case.setup.threshold.unwrap_or(0),
        pages_kib: case.setup.pages.iter().map(|page| (page >> 10).to_string()).collect::<Vec<_>>().join("+"),
        policies: case.setup.policies.to_string(),
        seed: case.setup.seed,
        outcome,
    })
}

/// The operations of the method, without a store.
fn counts(case: &Case, progress: &dyn Fn(u64)) -> Result<Outcome> {
    let mut method = Method::new(case.levels);
    let setup = &case.setup;
    for request in setup.workload.requests(setup.seed)?.take(usize::try_from(setup.gets).unwrap_or(usize::MAX)) {
        method.get(&request, |_| {});
        let counts = method.counts();
        if counts.gets.is_multiple_of(4096) {
            progress(4096);
        }
        if setup.operations.is_some_and(|limit| counts.operations() >= limit) {
            break;
        }
    }
    let counts = method.counts();
    let hits = counts.memory_hits + counts.reads;
    Ok(Outcome {
        gets: counts.gets,
        reads: counts.reads,
        writes: counts.writes,
        deletes: counts.deletes,
        hits,
        hit_ratio: hits as f64 / counts.gets.max(1) as f64,
        stored_bytes: counts.written_bytes,
        objects: method.live() as u64,
        gets_per_second: f64::NAN,
        operations_per_second: f64::NAN,
        hits_per_second: f64::NAN,
        ..Outcome::default()
    })
}
