//! Iyengar, Jin & Challenger 2003: the allocator's claims, P-1 and P-9 to P-15, and those of what it is compared with,
//! P-2 to P-8, and of what the site saw, P-16 to P-19.
//!
//! What the paper leaves open is chosen here once: the values of the lost axes of Figures 14 to 21, the size of a
//! batch, and that free blocks side by side are joined before each batch. The device has no end, so in Figures 14 to 18
//! nothing is ever joined: there is always a tail.

mod beside;
mod beside_claims;
mod claims;
mod measured;
mod odg;
mod runs;
mod void;

use parking_lot::Mutex;
use picaflor_table::blocks::Method;

use self::{
    beside::{Phases, Sizes},
    measured::{ALPHAS, CUTOFFS, LIVE, Measured, REPLACED, THRESHOLDS},
    runs::{Batched, Fragmentation, Load},
};
use super::{
    how::{How, Progress},
    reproduction::{Reproduction, Results},
};
use crate::{Result, experiment};

/// Requests to a batch: not given in the paper.
const BATCH: usize = 100;

/// Changes between two writes of the home.
const USUAL_EVERY: u32 = 64;

enum Job {
    Shape(usize, usize),
    Scale(usize, usize),
    Batch(usize),
    /// Whose sizes, and whether each put is forced.
    Nt(usize, bool),
    /// Whether each put is forced.
    Linux(bool),
    Site,
}

/// Whose sizes the tables of §3.2 are of.
const SIZES: [Sizes; 2] = [Sizes::Olympic, Sizes::Dec];

pub(super) fn reproduce(how: How, progress: Progress<'_>) -> Result<Reproduction> {
    let measured = measure(how, progress)?;
    let mut verdicts = claims::claims(&measured);
    // In the order of their numbers: what is compared stands behind the accesses.
    let at = verdicts.iter().take_while(|verdict| verdict.id == "P-1").count();
    verdicts.splice(at..at, beside_claims::claims(&measured));
    verdicts.extend(odg::claims(&measured.site));
    let drawings = [beside_claims::drawings(&measured)?, measured.drawings()?].concat();
    let lines = serde_json::json!({ "nt": measured.nt, "linux": measured.linux, "site": measured.site });
    let results = vec![Results::Lines("beside-files-and-site", lines)];
    Ok(Reproduction { paper: "pmflf".into(), verdicts, drawings, results, ..Reproduction::default() })
}

fn measure(how: How, progress: Progress<'_>) -> Result<Measured> {
    let part = if how.quick { 100 } else { 1 };
    let shapes = (0..ALPHAS.len()).flat_map(|a| (0..CUTOFFS.len()).map(move |c| Job::Shape(a, c)));
    let scales = (0..LIVE.len()).flat_map(|n| (0..REPLACED.len()).map(move |a| Job::Scale(n, a)));
    let nt = [true, false].into_iter().flat_map(|forced| (0..SIZES.len()).map(move |sizes| Job::Nt(sizes, forced)));
    let beside = nt.chain([Job::Linux(true), Job::Linux(false), Job::Site]);
    let others = (0..THRESHOLDS.len()).map(Job::Batch).chain(shapes).chain(scales);
    let jobs: Vec<Job> = beside.chain(others).collect();
    let measured = Mutex::new(Measured {
        shape: vec![vec![Fragmentation::default(); CUTOFFS.len()]; ALPHAS.len()],
        scale: vec![vec![Fragmentation::default(); REPLACED.len()]; LIVE.len()],
        batched: vec![Batched::default(); THRESHOLDS.len()],
        accesses: [
            runs::accesses(Method::Ts, USUAL_EVERY)?,
            runs::accesses(Method::Pl, USUAL_EVERY)?,
            runs::accesses(Method::Pfl, USUAL_EVERY)?,
            runs::accesses(Method::Ts, 1)?,
        ],
        nt: Default::default(),
        linux: Default::default(),
        site: odg::Site::default(),
    });
    let total = jobs.len() as u64;
    // Seeds of kinds of runs lie side by side.
    let seed = |own: u64| own + 100 * how.seed;
    experiment::spread(&jobs, how.jobs, |job| {
        match *job {
            Job::Shape(a, c) => {
                let load =
                    Load { alpha: ALPHAS[a], cutoff: CUTOFFS[c], live: 100_000 / part, replacements: 500_000 / part };
                let found = runs::replace(load, seed(1))?;
                measured.lock().shape[a][c] = found;
            }
            Job::Scale(n, a) => {
                let live = LIVE[n].div_ceil(part);
                let load = Load { alpha: 1.0, cutoff: 10, live, replacements: REPLACED[a] / part };
                let found = runs::replace(load, seed(2))?;
                measured.lock().scale[n][a] = found;
            }
            Job::Batch(t) => {
                let found = runs::batches(THRESHOLDS[t], BATCH, 40_000 / part, 40_000 / part, seed(3))?;
                measured.lock().batched[t] = found;
            }
            Job::Nt(sizes, forced) => {
                let phases = Phases(100_000 / part, 20_000 / part, 100_000 / part);
                let found = beside::nt(SIZES[sizes], phases, forced, seed(1))?;
                measured.lock().nt[usize::from(!forced)][sizes] = found;
            }
            Job::Site => {
                let found = odg::site(part as u64)?;
                measured.lock().site = found;
            }
            Job::Linux(forced) => {
                let found = beside::linux(27_800 / part, forced, seed(4))?;
                measured.lock().linux[usize::from(!forced)] = found;
            }
        }
        progress("pmflf", 1, total);
        Ok(())
    })?;
    Ok(measured.into_inner())
}
