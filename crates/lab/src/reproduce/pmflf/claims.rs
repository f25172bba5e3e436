//! What is claimed, and what is held against it. Figures within 10%; a statement of shape is 1 if it holds.

use super::{
    super::verdict::{Verdict, YES, around, holds, least},
    measured::{ALPHAS, CUTOFFS, LIVE, Measured, THRESHOLDS},
    runs::Fragmentation,
};

/// Within 10% of a published figure.
const fn near(value: f64) -> (f64, f64) {
    around(value, 0.1)
}

/// What the paper calls no serious external fragmentation, without a number, of runs that P-9 and P-12 have in common.
const NOT_SERIOUS: (f64, f64) = (1.0, 1.2);

/// The cutoff of 2^10 grains.
const USUAL: usize = 2;

impl Measured {
    /// At a threshold in grains, at the end, or after a share of the replacements.
    fn oba(&self, threshold: u32, share: f64) -> Option<Fragmentation> {
        let run = &self.batched[THRESHOLDS.iter().position(|&t| t == threshold)?];
        let index = ((run.course.len() as f64 * share).ceil() as usize).clamp(1, run.course.len().max(1)) - 1;
        run.course.get(index).map(|(_, found)| *found)
    }

    fn largest(&self, of: impl Fn(&Fragmentation) -> f64, cutoffs: std::ops::RangeInclusive<usize>) -> f64 {
        self.shape.iter().flat_map(|row| &row[cutoffs.clone()]).map(of).fold(0.0, f64::max)
    }

    fn internal_falls(&self) -> bool {
        let by_cutoff = self.shape.iter().all(|row| row.is_sorted_by(|a, b| a.internal >= b.internal - 0.002));
        let column = |c: usize| self.shape.iter().map(move |row| row[c].internal);
        by_cutoff && (0..CUTOFFS.len()).all(|c| column(c).is_sorted_by(|a, b| *a <= b + 0.002))
    }

    fn throughput(&self, threshold: u32) -> Option<f64> {
        Some(self.batched[THRESHOLDS.iter().position(|&t| t == threshold)?].throughput)
    }

    fn peak(&self) -> f64 {
        self.batched.iter().map(|run| run.throughput).fold(0.0, f64::max)
    }
}

/// All of the allocator's claims.
pub(super) fn claims(measured: &Measured) -> Vec<Verdict> {
    [accesses(measured), shapes(measured), scales(measured), batches(measured)].concat()
}

/// Device writes. One and a sixty-fourth is one, with the home's write amortised.
fn accesses(m: &Measured) -> Vec<Verdict> {
    const ONE: (f64, f64) = (1.0, 1.02);
    let [ts, pl, pfl, eager] = m.accesses;
    vec![
        Verdict::of("P-1", "TS: one device write an allocation without a split", "1", (1.0, 1.0), Some(ts.list)),
        Verdict::of("P-1", "TS: one a free", "1", (1.0, 1.0), Some(ts.free)),
        Verdict::of("P-1", "PL: device writes an allocation", "1, heads amortised", ONE, Some(pl.list)),
        Verdict::of("P-1", "PL: a free", "1, heads amortised", ONE, Some(pl.free)),
        Verdict::of("P-1", "PFL: device writes an allocation", "1, heads amortised", ONE, Some(pfl.list)),
        Verdict::of("P-1", "PFL: a free", "1, heads amortised", ONE, Some(pfl.free)),
        Verdict::of(
            "P-1",
            "TS: an allocation from the tail, its pointer written now and then",
            "1",
            ONE,
            Some(ts.tail),
        ),
        Verdict::of("P-1", "the same, its pointer written each time", "2", (2.0, 2.0), Some(eager.tail)),
    ]
}

fn shapes(m: &Measured) -> Vec<Verdict> {
    let one = ALPHAS.iter().position(|&alpha| alpha == 1.0).unwrap_or(0);
    let last = CUTOFFS.len() - 1;
    let highest = |c: usize| m.shape.iter().map(|row| row[c].external).fold(0.0, f64::max);
    let rises = m.shape.iter().all(|row| row[last].external > row[USUAL].external);
    vec![
        Verdict::of(
            "P-9",
            "external fragmentation is larger at the largest cutoff than at 2^10 grains, for each alpha",
            "yes",
            YES,
            holds(rises),
        ),
        Verdict::of(
            "P-9",
            "it is worst at alpha 1.0 with the largest cutoff",
            "yes",
            YES,
            holds(m.shape[one][last].external >= highest(last)),
        ),
        Verdict::of(
            "P-9",
            "external fragmentation, the worst up to 2^10 grains",
            "not serious",
            NOT_SERIOUS,
            Some(m.largest(|f| f.external, 0..=USUAL)),
        ),
        Verdict::of(
            "P-10",
            "internal fragmentation falls as alpha falls, and as the cutoff rises",
            "yes",
            YES,
            holds(m.internal_falls()),
        ),
        Verdict::of(
            "P-11",
            "total fragmentation with a cutoff of 2^10 grains, the worst",
            "harmless",
            (1.0, 1.3),
            Some(m.largest(Fragmentation::total, USUAL..=USUAL)),
        ),
    ]
}

fn scales(m: &Measured) -> Vec<Verdict> {
    let all = || m.scale.iter().flatten();
    let least = all().map(|f| f.internal).fold(f64::INFINITY, f64::min);
    let most = all().map(|f| f.internal).fold(0.0, f64::max);
    let by_scale = |index: usize| m.scale.iter().map(move |row| row[index].total());
    let rises = (0..m.scale[0].len()).all(|index| by_scale(index).is_sorted_by(|small, large| *small >= large - 0.01));
    let end = LIVE.len() - 1;
    vec![
        Verdict::of(
            "P-12",
            "internal fragmentation at alpha 1.0 and 2^10 grains, the least of all scales",
            "1.07",
            near(1.07),
            Some(least),
        ),
        Verdict::of("P-12", "the most of all scales", "1.07", near(1.07), Some(most)),
        Verdict::of("P-12", "total fragmentation rises as fewer blocks are live", "yes", YES, holds(rises)),
        Verdict::of(
            "P-12",
            "external fragmentation with 100,000 live blocks",
            "not serious",
            NOT_SERIOUS,
            m.scale[end].iter().map(|f| f.external).reduce(f64::max),
        ),
    ]
}

fn batches(m: &Measured) -> Vec<Verdict> {
    let lost = |threshold| m.oba(threshold, 1.0).map(|f| 100.0 * (1.0 - 1.0 / f.internal));
    let lines: Vec<f64> = m.batched.iter().map(|run| run.throughput).collect();
    let steady = m.oba(4, 1.0).zip(m.oba(4, 0.5)).map(|(end, half)| end.total() / half.total());
    let best = m.throughput(32).map(|at| at / m.peak());
    vec![
        Verdict::of(
            "P-13",
            "OBA's throughput rises with T",
            "yes",
            YES,
            holds(lines.is_sorted_by(|a, b| *a <= b * 1.02)),
        ),
        Verdict::of(
            "P-14",
            "OBA's internal fragmentation, % of the allocated space, T of 1 grain",
            "7.8",
            near(7.8),
            lost(1),
        ),
        Verdict::of("P-14", "the same, T of 128 grains", "7.8", near(7.8), lost(128)),
        Verdict::of(
            "P-14",
            "OBA's external fragmentation, T of 2 KB",
            "a few per cent",
            (1.0, 1.08),
            m.oba(4, 1.0).map(|f| f.external),
        ),
        Verdict::of(
            "P-14",
            "OBA's total fragmentation, T of 64 KB, at the end",
            "more than 2",
            least(2.0),
            m.oba(128, 1.0).map(|f| f.total()),
        ),
        Verdict::of(
            "P-14",
            "OBA's total fragmentation, T of 2 KB, at the end over half way",
            "steady",
            (0.95, 1.05),
            steady,
        ),
        Verdict::of("P-15", "throughput at T of 16 KB over the peak", "close", (0.8, 1.0), best),
        Verdict::of(
            "P-15",
            "total fragmentation at T of 16 KB",
            "not very serious",
            (1.0, 1.6),
            m.oba(32, 1.0).map(|f| f.total()),
        ),
    ]
}
