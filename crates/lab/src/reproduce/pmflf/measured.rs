//! What the claims and the drawings are taken from.

use super::{
    beside::{Linux, Nt},
    odg::Site,
    runs::{Accesses, Batched, Fragmentation},
};
use crate::{
    Result,
    draw::{Chart, Mark, Scale, Series},
};

pub(super) const ALPHAS: [f64; 5] = [0.6, 0.8, 1.0, 1.2, 1.4];
/// Binary logarithms of grains.
pub(super) const CUTOFFS: [u32; 7] = [6, 8, 10, 12, 14, 16, 18];
pub(super) const LIVE: [usize; 5] = [1_000, 3_000, 10_000, 30_000, 100_000];
/// Replacements, in Figures 17 and 18.
pub(super) const REPLACED: [usize; 3] = [100_000, 200_000, 500_000];
/// Grains.
pub(super) const THRESHOLDS: [u32; 8] = [1, 2, 4, 8, 16, 32, 64, 128];

/// One run of each figure, in the order of its parameters.
#[derive(Default)]
pub(super) struct Measured {
    /// By alpha, then cutoff.
    pub(super) shape: Vec<Vec<Fragmentation>>,
    /// By live blocks, then replacements.
    pub(super) scale: Vec<Vec<Fragmentation>>,
    /// By threshold.
    pub(super) batched: Vec<Batched>,
    /// Of TS, PL and PFL; then of TS that writes its home each time.
    pub(super) accesses: [Accesses; 4],
    /// Beside files: forced, then left to the system; by sizes: the site's, the proxy's.
    pub(super) nt: [[Nt; 2]; 2],
    /// Forced, then left to the system.
    pub(super) linux: [Linux; 2],
    pub(super) site: Site,
}

/// A kind of fragmentation.
type Of = fn(&Fragmentation) -> f64;

pub(super) fn chart(title: &str, x: (&str, Scale), y: &str, series: Vec<(String, Vec<(f64, f64)>)>) -> Chart {
    let of = |(name, points)| Series { name, points, mark: Mark::Both, ..Series::default() };
    let series = series.into_iter().map(of).collect();
    Chart { title: title.into(), x: (x.0.into(), x.1), y: (y.into(), Scale::Linear), series }
}

impl Measured {
    /// Figures 14 to 21, as SVG.
    pub(super) fn drawings(&self) -> Result<Vec<String>> {
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
