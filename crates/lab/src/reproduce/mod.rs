//! Papers, number by number: what was published, what we get, pass or miss.
//!
//! A *claim* is one published number or statement with the band in which ours has to lie. Claims of a paper share one
//! disk, one file-system model and one set of parameters, those of the experiments they are taken from.

mod files;
mod markatos;
mod pmflf;

use std::{collections::BTreeMap, num::NonZero};

use serde::Serialize;

use crate::{
    Result,
    draw::{Page, short},
    experiment::{self, Row},
};

/// One published number, and ours.
#[derive(Debug, Clone, Serialize)]
pub struct Verdict {
    /// As `literature` counts them.
    pub id: &'static str,
    /// What is claimed.
    pub what: String,
    /// The published value, as the paper has it.
    pub published: &'static str,
    /// Ours; `None` if it could not be had.
    pub ours: Option<f64>,
    /// The band in which ours has to lie.
    pub band: (f64, f64),
    /// Whether it does.
    pub pass: bool,
}

/// A claim before it is held against results.
struct Claim {
    id: &'static str,
    what: &'static str,
    published: &'static str,
    band: (f64, f64),
    ours: fn(&Results) -> Option<f64>,
}

/// Rows of the experiments that a paper needs, by experiment.
#[derive(Default)]
struct Results {
    rows: BTreeMap<String, Vec<Row>>,
    files: files::Files,
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

/// Told what is run, how many steps of it more are done, and of how many in all.
type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);

/// How a paper is run.
#[derive(Debug, Clone, Copy)]
struct How {
    /// Runs at a time; as many as there are processors, if nothing is said.
    jobs: Option<NonZero<usize>>,
    /// A hundredth of everything: shows that it runs, and nothing else.
    quick: bool,
}

/// The papers that can be reproduced.
pub const PAPERS: [&str; 2] = ["markatos", "pmflf"];

/// Runs what a paper needs and judges its claims. `progress` is told the experiment, how many requests more are done,
/// and of how many in all.
///
/// # Errors
/// If an experiment fails, or there is no such paper.
pub fn reproduce(
    paper: &str,
    jobs: Option<NonZero<usize>>,
    quick: bool,
    progress: &(dyn Fn(&str, u64, u64) + Sync),
) -> Result<Reproduction> {
    if !PAPERS.contains(&paper) {
        let why = format!("no such paper; there are: {}", PAPERS.join(", "));
        return Err(crate::Error::Experiment { name: paper.into(), why });
    }
    if paper == "pmflf" {
        return pmflf(How { jobs, quick }, progress);
    }
    let mut results = Results { files: files::Files::measure()?, ..Results::default() };
    for name in markatos::EXPERIMENTS {
        let spec = experiment::find(name)?;
        let spec = if quick { spec.quickly() } else { spec };
        let rows = experiment::run(&spec, jobs, &|more, total| progress(name, more, total))?;
        results.rows.insert((*name).into(), rows);
    }
    let judge = |claim: &Claim| {
        let ours = (claim.ours)(&results).filter(|value| value.is_finite());
        let pass = ours.is_some_and(|value| (claim.band.0..=claim.band.1).contains(&value));
        let Claim { id, what, published, band, .. } = *claim;
        Verdict { id, what: what.into(), published, ours, band, pass }
    };
    let verdicts = markatos::CLAIMS.iter().map(judge).collect();
    Ok(Reproduction { paper: paper.into(), verdicts, rows: results.rows, drawings: Vec::new() })
}

fn pmflf(how: How, progress: Progress<'_>) -> Result<Reproduction> {
    let measured = pmflf::measure(how, progress)?;
    let judge = |(id, what, published, band, ours): (_, &str, _, (f64, f64), Option<f64>)| {
        let ours = ours.filter(|value| value.is_finite());
        let pass = ours.is_some_and(|value| (band.0..=band.1).contains(&value));
        Verdict { id, what: what.into(), published, ours, band, pass }
    };
    let verdicts = pmflf::claims(&measured).into_iter().map(judge).collect();
    Ok(Reproduction { paper: "pmflf".into(), verdicts, rows: BTreeMap::new(), drawings: measured.drawings()? })
}

/// A paper, judged.
#[derive(Debug, Clone, Serialize)]
pub struct Reproduction {
    /// Which paper.
    pub paper: String,
    /// Claim by claim.
    pub verdicts: Vec<Verdict>,
    /// What they were taken from, by experiment.
    #[serde(skip)]
    pub rows: BTreeMap<String, Vec<Row>>,
    /// Drawings of its report.
    #[serde(skip)]
    drawings: Vec<String>,
}

impl Verdict {
    /// Our value as text.
    pub fn shown(&self) -> String {
        match self.ours {
            None => "not run".into(),
            Some(value) if self.band == (1.0, 1.0) => if value == 1.0 { "yes" } else { "no" }.into(),
            Some(value) => short(value),
        }
    }

    /// The band as text.
    pub fn band_shown(&self) -> String {
        match self.band {
            (1.0, 1.0) => "yes".into(),
            (low, f64::INFINITY) => format!("at least {}", short(low)),
            (low, high) => format!("{} to {}", short(low), short(high)),
        }
    }

    fn cells(&self) -> Vec<String> {
        let verdict = if self.pass { "pass" } else { "miss" };
        vec![self.id.into(), self.what.clone(), self.published.into(), self.shown(), self.band_shown(), verdict.into()]
    }
}

const HEAD: [&str; 6] = ["id", "what", "published", "ours", "band", ""];

impl Reproduction {
    /// How many of the claims hold.
    pub fn passed(&self) -> usize {
        self.verdicts.iter().filter(|verdict| verdict.pass).count()
    }

    /// As a table of Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let head = line(&HEAD.map(String::from)) + &format!("|{}\n", "---|".repeat(HEAD.len()));
        let rows: String = self.verdicts.iter().map(|verdict| line(&verdict.cells())).collect();
        format!("{head}{rows}\n{} of {} claims hold.\n", self.passed(), self.verdicts.len())
    }

    /// As a page.
    pub fn html(&self) -> String {
        let mut page = Page::new(&format!("{}: {} of {} claims hold", self.paper, self.passed(), self.verdicts.len()));
        page.table(&HEAD, &self.verdicts.iter().map(Verdict::cells).collect::<Vec<_>>());
        self.drawings.iter().for_each(|svg| page.drawing(svg));
        page.finish()
    }
}

/// Puts a table between the two comments that name it in a document, in the place of what was there; at the end, if
/// the document does not have them.
pub fn replace_table(document: &str, name: &str, table: &str) -> String {
    let (begin, end) = (format!("<!-- {name}: begin -->\n"), format!("<!-- {name}: end -->\n"));
    let inside = document.split_once(&begin).and_then(|(before, rest)| Some((before, rest.split_once(&end)?.1)));
    match inside {
        Some((before, after)) => format!("{before}{begin}\n{table}\n{end}{after}"),
        None => format!("{document}\n{begin}\n{table}\n{end}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_is_replaced_where_it_was() {
        let once = replace_table("# A\n", "t", "| one |\n");
        let twice = replace_table(&(once.clone() + "more\n"), "t", "| two |\n");
        assert!(once.contains("| one |") && !twice.contains("| one |") && twice.ends_with("more\n"), "{twice}");
        assert_eq!(twice.matches("begin").count(), 1);
    }

    #[test]
    fn every_claim_of_the_paper_is_there() {
        for number in 1..=20 {
            let id = format!("M-{number}");
            assert!(markatos::CLAIMS.iter().any(|claim| claim.id == id), "{id}");
        }
    }
}
