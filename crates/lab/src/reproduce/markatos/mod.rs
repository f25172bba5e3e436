//! Markatos et al. 1999: the claims M-1 to M-20.
//!
//! Bands are those of this project's plan: absolute figures within 35%, and ratios within what it says of them, where
//! it does; else a ratio is a figure too. An improvement is what is above 1. A statement of order or shape is 1 if it
//! holds.

mod claims;

use std::collections::BTreeMap;

pub(super) use claims::CLAIMS;

use super::{
    How, Progress, Reproduction,
    files::Files,
    verdict::{Verdict, around, holds},
};
use crate::{
    Result,
    experiment::{self, Row},
};

/// The one disk of the whole paper: a Barracuda 4 for the paper's ST15150WC, which is of that family.
pub(super) const DISK: &str = "barracuda4";
/// The one file system: UFS with synchronous metadata, as Solaris 2.6 had it.
pub(super) const FILE_SYSTEM: &str = "ufs";

/// What the claims are taken from.
pub(super) const EXPERIMENTS: [&str; 7] = ["markatos-operations", FIG2, FIG4, FIG5, FIG6, FIG8, TABLE1];

const FIG2: &str = "markatos-fig2";
const FIG4: &str = "markatos-fig4";
const FIG5: &str = "markatos-fig5";
const FIG6: &str = "markatos-fig6";
/// LAZY-READS-LOC with few buffers.
const FIG8: &str = "markatos-fig8";
/// Locality buffers without LAZY-READS.
const TABLE1: &str = "markatos-table1";
const BELOW: f64 = 0.71;
const FULL: f64 = 0.95;

/// A claim before it is held against results.
pub(super) struct Claim {
    pub(super) id: &'static str,
    pub(super) what: &'static str,
    pub(super) published: &'static str,
    pub(super) band: (f64, f64),
    ours: fn(&Results) -> Option<f64>,
}

/// Rows of the experiments, by experiment.
struct Results {
    rows: BTreeMap<String, Vec<Row>>,
    files: Files,
}

impl Results {
    /// The row of a preset in an experiment, at a utilisation.
    fn row(&self, experiment: &str, preset: &str, utilisation: f64) -> Option<&Row> {
        let rows = self.rows.get(experiment)?;
        rows.iter().find(|row| row.preset == preset && (row.target_utilisation - utilisation).abs() < 1e-9)
    }

    /// A field of that row.
    fn number(&self, experiment: &str, preset: &str, utilisation: f64, field: &str) -> Option<f64> {
        self.row(experiment, preset, utilisation)?.number(field)
    }

    /// The largest value of a field over all rows of a preset.
    fn best(&self, experiment: &str, preset: &str, field: &str) -> Option<f64> {
        let rows = self.rows.get(experiment)?.iter().filter(|row| row.preset == preset);
        rows.filter_map(|row| row.number(field)).reduce(f64::max)
    }
}

/// Runs the experiments and judges the claims.
pub(super) fn reproduce(how: How, progress: Progress<'_>) -> Result<Reproduction> {
    let mut results = Results { files: Files::measure()?, rows: BTreeMap::new() };
    let mut taken = Vec::new();
    for name in EXPERIMENTS {
        let spec = experiment::find(name)?;
        let spec = if how.quick { spec.quickly() } else { spec };
        let rows = experiment::run(&spec, how.jobs, &|more, total| progress(name, more, total))?;
        results.rows.insert(name.into(), rows.clone());
        taken.push(super::Results::Experiment(Box::new(spec), rows));
    }
    let judge = |claim: &Claim| {
        let verdict = Verdict::of(claim.id, claim.what, claim.published, claim.band, (claim.ours)(&results));
        let before = JUDGED_BEFORE.iter().find(|(id, what, _)| (*id, *what) == (claim.id, claim.what));
        before.map_or(verdict.clone(), |(_, _, id)| verdict.counted_as(id))
    };
    let verdicts = CLAIMS.iter().map(judge).collect();
    Ok(Reproduction { paper: "markatos".into(), verdicts, results: taken, ..Reproduction::default() })
}

/// Numbers of ours that are judged under two ids, by id and what is claimed; they count under the third.
pub(super) const JUDGED_BEFORE: [(&str, &str, &str); 3] =
    [("M-20", GROUPING, "M-8"), ("M-20", STREAMING, "M-11"), ("M-20", LOCALITY, "M-17")];
const GROUPING: &str = "grouping: BUDDY over SQUID";
const STREAMING: &str = "streaming: STREAM-PACKETIZER over BUDDY at 71%";
const LOCALITY: &str = "locality: the improvement of both over STREAM-PACKETIZER";

/// A gain of so many parts, within 35% of it either way.
const fn gain(part: f64) -> (f64, f64) {
    (1.0 + part * 0.65, 1.0 + part * 1.35)
}

/// How many times as fast as STREAM-PACKETIZER a run of another experiment is.
fn over_packetizer(results: &Results, experiment: &str) -> Option<f64> {
    Some(seconds(results, "stream-pack")? / results.number(experiment, "lazy-reads-loc", BELOW, "seconds")?)
}

/// Within 35% of a published figure.
const fn near(value: f64) -> (f64, f64) {
    around(value, 0.35)
}

/// Within 5%.
const fn close(value: f64) -> (f64, f64) {
    around(value, 0.05)
}

fn operations(results: &Results, field: &str) -> Option<f64> {
    results.rows.get("markatos-operations")?.first()?.number(field)
}

/// Milliseconds to create a file of so many bytes.
fn create(results: &Results, bytes: u64) -> Option<f64> {
    results.files.create(bytes)
}

fn fig4(results: &Results, preset: &str) -> Option<f64> {
    results.best(FIG4, preset, "gets_per_second")
}

/// Whether BUDDY's time falls as more objects share files, mostly at first, and is nearly the best at 256 blocks.
fn fig5(results: &Results) -> Option<f64> {
    let rows = results.rows.get(FIG5)?;
    let at = |blocks| rows.iter().find(|row| row.threshold == blocks)?.number("seconds");
    let times = rows.iter().map(|row| row.number("seconds")).collect::<Option<Vec<_>>>()?;
    let best = times.iter().copied().reduce(f64::min)?;
    let falls = [1, 4, 16, 64, 256].map(at).is_sorted_by(|a, b| a.zip(*b).is_some_and(|(a, b)| a * 1.02 >= b));
    let early = at(1)? - at(16)? > at(16)? - at(256)?;
    holds(falls && early && at(256)? <= best * 1.05)
}

/// How many times as fast one preset is as another at a utilisation of Figures 6 to 8.
fn faster(results: &Results, preset: &str, than: &str, utilisation: f64) -> Option<f64> {
    let seconds = |preset| results.number(FIG6, preset, utilisation, "seconds");
    Some(seconds(than)? / seconds(preset)?)
}

fn seconds(results: &Results, preset: &str) -> Option<f64> {
    results.number(FIG6, preset, BELOW, "seconds")
}

/// The least spare space, as a share of the objects' bytes, at which STREAM and STREAM-PACKETIZER reach the lower ends
/// of M-11's bands, and do so wherever there is more. The paper says 72% of utilisation, which leaves 39%, and "about
/// 30%".
fn spare(results: &Results) -> Option<f64> {
    let mut shares: Vec<f64> = results.rows.get(FIG6)?.iter().map(|row| row.target_utilisation).collect();
    shares.sort_by(f64::total_cmp);
    shares.dedup();
    let fast = |share: &f64| {
        let over = |preset| faster(results, preset, "buddy", *share);
        over("stream").zip(over("stream-pack")).is_some_and(|(stream, pack)| stream >= 1.7 && pack >= 2.0)
    };
    shares.into_iter().take_while(fast).last().map(|share| 1.0 / share - 1.0)
}

/// The values of a field by disk size.
fn by_disk(results: &Results, field: &str) -> Option<Vec<f64>> {
    results.rows.get(FIG2)?.iter().map(|row| row.number(field)).collect()
}

/// Best operations a second of each row of Table 2, in its order.
fn table2(results: &Results) -> Option<Vec<f64>> {
    let files = ["simple", "squid", "multiple-dirs", "buddy"].map(|preset| fig4(results, preset));
    let streams = ["stream", "stream-pack", "lazy-reads", "lazy-reads-loc"]
        .map(|preset| results.best(FIG6, preset, "operations_per_second"));
    files.into_iter().chain(streams).collect()
}
