//! Iyengar, Jin & Challenger 2003: the allocator's claims, P-1 and P-9 to P-15, and those of what it is compared with,
//! P-2 to P-8, and of what the site saw, P-16 to P-19.
//!
//! What the paper leaves open is chosen here once: the values of the lost axes of Figures 14 to 21, the size of a
//! batch, and that free blocks side by side are joined before each batch. The device has no end, so in Figures 14 to 18
//! nothing is ever joined: there is always a tail.

mod beside;
mod beside_claims;
mod claims;
mod odg;
mod runs;
mod void;

use parking_lot::Mutex;
use picaflor_table::blocks::Method;

use self::{
    beside::{Linux, Nt, Phases, Sizes},
    runs::{Accesses, Batched, Fragmentation, Load},
};
use super::{How, Progress, Reproduction, Results};
use crate::{
    Result,
    draw::{Chart, Mark, Scale, Series},
    experiment,
};

const ALPHAS: [f64; 5] = [0.6, 0.8, 1.0, 1.2, 1.4];
/// Binary logarithms of grains.
const CUTOFFS: [u32; 7] = [6, 8, 10, 12, 14, 16, 18];
const LIVE: [usize; 5] = [1_000, 3_000, 10_000, 30_000, 100_000];
/// Replacements, in Figures 17 and 18.
const REPLACED: [usize; 3] = [100_000, 200_000, 500_000];
/// Grains.
const THRESHOLDS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];
/// Requests to a batch: not given in the paper.
const BATCH: usize = 100;

/// Changes between two writes of the home.
const USUAL_EVERY: u32 = 64;

/// One run of each figure, in the order of its parameters.
#[derive(Default)]
struct Measured {
    /// By alpha, then cutoff.
    shape: Vec<Vec<Fragmentation>>,
    /// By live blocks, then replacements.
    scale: Vec<Vec<Fragmentation>>,
    /// By threshold.
    batched: Vec<Batched>,
    /// Of TS, PL and PFL; then of TS that writes its home each time.
    accesses: [Accesses; 4],
    /// Beside files: forced, then left to the system; by sizes: the site's, the proxy's.
    nt: [[Nt; 2]; 2],
    /// Forced, then left to the system.
    linux: [Linux; 2],
    site: odg::Site,
}

/// A kind of fragmentation.
type Of = fn(&Fragmentation) -> f64;

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
    experiment::spread(&jobs, how.jobs, |job| {
        match *job {
            Job::Shape(a, c) => {
                let load =
                    Load { alpha: ALPHAS[a], cutoff: CUTOFFS[c], live: 100_000 / part, replacements: 500_000 / part };
                let found = runs::replace(load, 1)?;
                measured.lock().shape[a][c] = found;
            }
            Job::Scale(n, a) => {
                let live = LIVE[n].div_ceil(part);
                let load = Load { alpha: 1.0, cutoff: 10, live, replacements: REPLACED[a] / part };
                let found = runs::replace(load, 2)?;
                measured.lock().scale[n][a] = found;
            }
            Job::Batch(t) => {
                let found = runs::batches(THRESHOLDS[t], BATCH, 40_000 / part, 40_000 / part, 3)?;
                measured.lock().batched[t] = found;
            }
            Job::Nt(sizes, forced) => {
                let phases = Phases(100_000 / part, 20_000 / part, 100_000 / part);
                let found = beside::nt(SIZES[sizes], phases, forced)?;
                measured.lock().nt[usize::from(!forced)][sizes] = found;
            }
            Job::Site => {
                let found = odg::site(part as u64)?;
                measured.lock().site = found;
            }
            Job::Linux(forced) => {
                let found = beside::linux(27_800 / part, forced)?;
                measured.lock().linux[usize::from(!forced)] = found;
            }
        }
        progress("pmflf", 1, total);
        Ok(())
    })?;
    Ok(measured.into_inner())
}

fn chart(title: &str, x: (&str, Scale), y: &str, series: Vec<(String, Vec<(f64, f64)>)>) -> Chart {
    let series = series.into_iter().map(|(name, points)| Series { name, points, mark: Mark::Both }).collect();
    Chart { title: title.into(), x: (x.0.into(), x.1), y: (y.into(), Scale::Linear), series }
}

impl Measured {
    /// Figures 14 to 21, as SVG.
    fn drawings(&self) -> Result<Vec<String>> {
        let mut drawn = Vec::new();
        let kinds: [(&str, Of); 3] =
            [("External", |f| f.external), ("Internal", |f| f.internal), ("Total", Fragmentation::total)];
        for ((kind, of), figure) in kinds.iter().zip(14..) {
            let line = |a: usize| {
                let points = CUTOFFS.iter().zip(&self.shape[a]).map(|(&c, f)| (f64::from(c), of(f)));
                (format!("alpha {}", ALPHAS[a]), points.collect())
            };
            let title = format!("Figure {figure}: {kind} fragmentation");
            let lines = (0..ALPHAS.len()).map(line).collect();
            drawn.push(chart(&title, ("log2 of the cutoff, grains", Scale::Linear), "", lines).svg()?);
        }
        for (figure, (kind, of)) in [(17, kinds[0]), (18, kinds[2])] {
            let line = |a: usize| {
                let points = LIVE.iter().zip(&self.scale).map(|(&n, row)| (n as f64, of(&row[a])));
                (format!("{} replacements", REPLACED[a]), points.collect())
            };
            let title = format!("Figure {figure}: {kind} fragmentation by scale");
            let lines = (0..REPLACED.len()).map(line).collect();
            drawn.push(chart(&title, ("live blocks", Scale::Log), "", lines).svg()?);
        }
        let points = THRESHOLDS.iter().zip(&self.batched).map(|(&t, run)| (f64::from(t), run.throughput));
        let line = vec![(String::new(), points.collect())];
        drawn.push(chart("Figure 19: throughput of OBA", ("T, grains", Scale::Log), "replacements/s", line).svg()?);
        for (figure, (kind, of)) in [(20, kinds[0]), (21, kinds[2])] {
            let line = |(t, run): (&u32, &Batched)| {
                (format!("T {t}"), run.course.iter().map(|(done, f)| (*done as f64, of(f))).collect())
            };
            let title = format!("Figure {figure}: {kind} fragmentation of OBA");
            let lines = THRESHOLDS.iter().zip(&self.batched).map(line).collect();
            drawn.push(chart(&title, ("replacements", Scale::Linear), "", lines).svg()?);
        }
        Ok(drawn)
    }
}
