//! Markatos et al. 1999: the claims M-1 to M-20.
//!
//! Bands are those of this project's plan: absolute figures within 35%, and ratios within what it says of them, where
//! it does; else a ratio is a figure too. An improvement is what is above 1. A statement of order or shape is 1 if it
//! holds.

mod claims;
mod results;

use std::collections::BTreeMap;

pub(super) use self::claims::{CLAIMS, JUDGED_BEFORE};
use self::results::{Claim, FIG2, FIG4, FIG5, FIG6, FIG8, Results, TABLE1};
use super::{
    files::Files,
    how::{How, Progress},
    reproduction::{self, Reproduction},
    verdict::Verdict,
};
use crate::{Result, experiment};

/// What the claims are taken from.
pub(super) const EXPERIMENTS: [&str; 7] = ["markatos-operations", FIG2, FIG4, FIG5, FIG6, FIG8, TABLE1];

/// Runs the experiments and judges the claims.
pub(super) fn reproduce(how: How, progress: Progress<'_>) -> Result<Reproduction> {
    let mut results = Results { files: Files::measure()?, rows: BTreeMap::new() };
    let mut taken = Vec::new();
    for name in EXPERIMENTS {
        let spec = experiment::find(name)?;
        let mut spec = if how.quick { spec.quickly() } else { spec };
        spec.seeds.iter_mut().for_each(|seed| *seed += how.seed);
        let rows = experiment::run(&spec, how.jobs, &|more, total| progress(name, more, total))?;
        results.rows.insert(name.into(), rows.clone());
        taken.push(reproduction::Results::Experiment(Box::new(spec), rows));
    }
    let judge = |claim: &Claim| {
        let verdict = Verdict::of(claim.id, claim.what, claim.published, claim.band, (claim.ours)(&results));
        let before = JUDGED_BEFORE.iter().find(|(id, what, _)| (*id, *what) == (claim.id, claim.what));
        before.map_or(verdict.clone(), |(_, _, id)| verdict.counted_as(id))
    };
    let verdicts = CLAIMS.iter().map(judge).collect();
    Ok(Reproduction { paper: "markatos".into(), verdicts, results: taken, ..Reproduction::default() })
}
