//! What the claims are taken from, and how.

use std::collections::BTreeMap;

use crate::{
    experiment::Row,
    reproduce::{
        files::Files,
        verdict::{around, holds},
    },
};

pub(super) const FIG2: &str = "markatos-fig2";
pub(super) const FIG4: &str = "markatos-fig4";
pub(super) const FIG5: &str = "markatos-fig5";
pub(super) const FIG6: &str = "markatos-fig6";
/// LAZY-READS-LOC with few buffers.
pub(super) const FIG8: &str = "markatos-fig8";
/// Locality buffers without LAZY-READS.
pub(super) const TABLE1: &str = "markatos-table1";
pub(super) const BELOW: f64 = 0.71;
pub(super) const FULL: f64 = 0.95;

/// A claim before it is held against results.
pub(in crate::reproduce) struct Claim {
    pub(in crate::reproduce) id: &'static str,
    pub(in crate::reproduce) what: &'static str,
    pub(in crate::reproduce) published: &'static str,
    pub(in crate::reproduce) band: (f64, f64),
    pub(super) ours: fn(&Results) -> Option<f64>,
}

/// Rows of the experiments, by experiment.
pub(super) struct Results {
    pub(super) rows: BTreeMap<String, Vec<Row>>,
    pub(super) files: Files,
}

impl Results {
    /// The row of a preset in an experiment, at a utilisation.
    fn row(&self, experiment: &str, preset: &str, utilisation: f64) -> Option<&Row> {
        let rows = self.rows.get(experiment)?;
        rows.iter().find(|row| row.preset == preset && (row.target_utilisation - utilisation).abs() < 1e-9)
    }

    /// A field of that row.
    pub(super) fn number(&self, experiment: &str, preset: &str, utilisation: f64, field: &str) -> Option<f64> {
        self.row(experiment, preset, utilisation)?.number(field)
    }

    /// The largest value of a field over all rows of a preset.
    pub(super) fn best(&self, experiment: &str, preset: &str, field: &str) -> Option<f64> {
        let rows = self.rows.get(experiment)?.iter().filter(|row| row.preset == preset);
        rows.filter_map(|row| row.number(field)).reduce(f64::max)
    }
}

/// A gain of so many parts, within 35% of it either way.
pub(super) const fn gain(part: f64) -> (f64, f64) {
    (1.0 + part * 0.65, 1.0 + part * 1.35)
}

/// How many times as fast as STREAM-PACKETIZER a run of another experiment is.
pub(super) fn over_packetizer(results: &Results, experiment: &str) -> Option<f64> {
    Some(seconds(results, "stream-pack")? / results.number(experiment, "lazy-reads-loc", BELOW, "seconds")?)
}

/// Within 35% of a published figure.
pub(super) const fn near(value: f64) -> (f64, f64) {
    around(value, 0.35)
}

/// Within 5%.
pub(super) const fn close(value: f64) -> (f64, f64) {
    around(value, 0.05)
}

pub(super) fn operations(results: &Results, field: &str) -> Option<f64> {
    results.rows.get("markatos-operations")?.first()?.number(field)
}

/// Milliseconds to create a file of so many bytes.
pub(super) fn create(results: &Results, bytes: u64) -> Option<f64> {
    results.files.create(bytes)
}

pub(super) fn fig4(results: &Results, preset: &str) -> Option<f64> {
    results.best(FIG4, preset, "gets_per_second")
}

/// Whether BUDDY's time falls as more objects share files, mostly at first, and is nearly the best at 256 blocks.
pub(super) fn fig5(results: &Results) -> Option<f64> {
    let rows = results.rows.get(FIG5)?;
    let at = |blocks| rows.iter().find(|row| row.threshold == blocks)?.number("seconds");
    let times = rows.iter().map(|row| row.number("seconds")).collect::<Option<Vec<_>>>()?;
    let best = times.iter().copied().reduce(f64::min)?;
    let falls = [1, 4, 16, 64, 256].map(at).is_sorted_by(|a, b| a.zip(*b).is_some_and(|(a, b)| a * 1.02 >= b));
    let early = at(1)? - at(16)? > at(16)? - at(256)?;
    holds(falls && early && at(256)? <= best * 1.05)
}

/// How many times as fast one preset is as another at a utilisation of Figures 6 to 8.
pub(super) fn faster(results: &Results, preset: &str, than: &str, utilisation: f64) -> Option<f64> {
    let seconds = |preset| results.number(FIG6, preset, utilisation, "seconds");
    Some(seconds(than)? / seconds(preset)?)
}

pub(super) fn seconds(results: &Results, preset: &str) -> Option<f64> {
    results.number(FIG6, preset, BELOW, "seconds")
}

/// The least spare space, as a share of the objects' bytes, at which STREAM and STREAM-PACKETIZER reach the lower ends
/// of M-11's bands, and do so wherever there is more. The paper says 72% of utilisation, which leaves 39%, and "about
/// 30%".
pub(super) fn spare(results: &Results) -> Option<f64> {
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
pub(super) fn by_disk(results: &Results, field: &str) -> Option<Vec<f64>> {
    results.rows.get(FIG2)?.iter().map(|row| row.number(field)).collect()
}

/// Best operations a second of each row of Table 2, in its order.
pub(super) fn table2(results: &Results) -> Option<Vec<f64>> {
    let files = ["simple", "squid", "multiple-dirs", "buddy"].map(|preset| fig4(results, preset));
    let streams = ["stream", "stream-pack", "lazy-reads", "lazy-reads-loc"]
        .map(|preset| results.best(FIG6, preset, "operations_per_second"));
    files.into_iter().chain(streams).collect()
}
