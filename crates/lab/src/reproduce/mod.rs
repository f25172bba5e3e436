//! Papers, number by number: what was published, what we get, pass or miss.
//!
//! A *claim* is one published number or statement with the band in which ours has to lie. Claims of a paper share its
//! machines, file-system models and parameters, those of the experiments they are taken from.

mod damelo;
mod document;
mod files;
mod hummingbird;
mod markatos;
mod pmflf;
mod sears;
mod verdict;

use std::{fs, num::NonZero, path::Path};

pub use document::{replace_rows, replace_table};
use serde::Serialize;
pub use verdict::{Grid, Verdict};

use crate::{Error, Result, draw::Page, experiment};

/// Told what is run, how many steps of it more are done, and of how many in all.
pub type Progress<'a> = &'a (dyn Fn(&str, u64, u64) + Sync);

/// How a paper is run.
#[derive(Debug, Clone, Copy, Default)]
pub struct How {
    /// Runs at a time; as many as there are processors, if nothing is said.
    pub jobs: Option<NonZero<usize>>,
    /// A hundredth of everything: shows that it runs, and nothing else.
    pub quick: bool,
    /// This part of the paper alone.
    pub only: Option<Part>,
}

impl How {
    /// Whether the runs are wanted that have the claim of this id.
    fn wants(self, id: &str) -> bool {
        self.only.is_none_or(|part| part.ids().contains(&id))
    }
}

/// A part of a paper's runs, by the ids of its claims: those of a part are taken from the same runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Part(&'static [&'static str]);

impl Part {
    /// The ids of its claims.
    #[must_use]
    pub fn ids(self) -> &'static [&'static str] {
        self.0
    }
}

/// The part of a paper that has the claim of this id.
///
/// # Errors
/// If there is none, with what there is.
pub fn part(paper: &str, id: &str) -> Result<Part> {
    let parts: &[&'static [&'static str]] = match paper {
        "hummingbird" => &hummingbird::PARTS,
        "damelo" => &damelo::PARTS,
        _ => return Err(Error::experiment(paper, "this paper is run as a whole: its claims share their runs")),
    };
    let found = parts.iter().find(|ids| ids.iter().any(|one| one.eq_ignore_ascii_case(id)));
    let all = || parts.iter().map(|ids| ids.join(" ")).collect::<Vec<_>>().join("; ");
    found.map(|ids| Part(ids)).ok_or_else(|| {
        Error::experiment(paper, format!("no part has the claim {id}; there are, by what is run together: {}", all()))
    })
}

/// The papers that can be reproduced.
pub const PAPERS: [&str; 5] = ["markatos", "pmflf", "hummingbird", "damelo", "sears"];

/// Runs what a paper needs and judges its claims. `spec` is the text of its file of machines and systems instead of the
/// one that comes with the lab; Markatos et al. have none, but experiments.
///
/// # Errors
/// If a run fails, or there is no such paper.
pub fn reproduce(paper: &str, spec: Option<&str>, how: How, progress: Progress<'_>) -> Result<Reproduction> {
    match (paper, spec) {
        ("markatos", None) => markatos::reproduce(how, progress),
        ("pmflf", None) => pmflf::reproduce(how, progress),
        ("sears", None) => sears::reproduce(how, progress),
        ("hummingbird", spec) => hummingbird::reproduce(spec.unwrap_or(hummingbird::SPEC), how, progress),
        ("damelo", spec) => damelo::reproduce(spec.unwrap_or(damelo::SPEC), how, progress),
        (paper, Some(_)) if PAPERS.contains(&paper) => Err(without_file(paper)),
        _ => Err(Error::experiment(paper, format!("no such paper; there are: {}", PAPERS.join(", ")))),
    }
}

/// The file of machines and systems that a paper's runs take; `None`, if this is not the name of a paper.
///
/// # Errors
/// Of a paper that has no such file, with what it has instead.
pub fn spec(paper: &str) -> Result<Option<&'static str>> {
    match paper {
        "hummingbird" => Ok(Some(hummingbird::SPEC)),
        "damelo" => Ok(Some(damelo::SPEC)),
        _ if PAPERS.contains(&paper) => Err(without_file(paper)),
        _ => Ok(None),
    }
}

fn without_file(paper: &str) -> Error {
    let instead = match paper {
        "markatos" => format!("it is run by the experiments {}", markatos::EXPERIMENTS.join(", ")),
        _ => "its machines and sizes are part of the program".into(),
    };
    Error::experiment(paper, format!("this paper has no file of machines and systems: {instead}"))
}

/// A paper, judged.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Reproduction {
    /// Which paper.
    pub paper: String,
    /// Claim by claim.
    pub verdicts: Vec<Verdict>,
    /// Tables of the paper beside ours.
    pub grids: Vec<Grid>,
    /// Drawings of its report.
    #[serde(skip)]
    drawings: Vec<String>,
    /// What it was taken from: results by name.
    #[serde(skip)]
    results: Vec<Results>,
}

/// What claims were taken from.
#[derive(Debug, Clone)]
enum Results {
    /// Rows of an experiment.
    Experiment(Box<experiment::Spec>, Vec<experiment::Row>),
    /// Lines of a table, as JSON: name, lines.
    Lines(&'static str, serde_json::Value),
}

const HEAD: [&str; 6] = ["id", "what", "published", "ours", "band", ""];

impl Reproduction {
    /// All verdicts, those of the tables included.
    pub fn all(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().chain(self.grids.iter().flat_map(Grid::verdicts))
    }

    /// How many claims there are, those of the tables included; left out are those that were not carried over, and the
    /// second time of those that are judged twice.
    pub fn claims(&self) -> usize {
        self.all().filter(|verdict| verdict.counts()).count()
    }

    /// How many of the claims hold.
    pub fn passed(&self) -> usize {
        self.all().filter(|verdict| verdict.counts() && verdict.pass).count()
    }

    /// As tables of Markdown.
    pub fn markdown(&self) -> String {
        let line = |cells: &[String]| format!("| {} |\n", cells.join(" | "));
        let table = |head: &[String], rows: &[Vec<String>]| {
            let rows: String = rows.iter().map(|row| line(row)).collect();
            format!("{}|{}\n{rows}\n", line(head), "---|".repeat(head.len()))
        };
        let verdicts: Vec<_> = self.verdicts.iter().map(Verdict::cells).collect();
        let mut text = table(&HEAD.map(String::from), &verdicts);
        for grid in &self.grids {
            text += &format!("{}\n\n{}", grid.title, table(&grid.head, &grid.cells()));
        }
        let count = |which: &dyn Fn(&Verdict) -> bool| self.all().filter(|one| which(one)).count();
        let tally = document::Tally {
            passed: self.passed(),
            claims: self.claims(),
            apart: count(&|one| one.not_carried.is_some()),
            twice: count(&|one| one.counted.is_some()),
        };
        format!("{text}{tally}\n")
    }

    /// As a page.
    pub fn html(&self) -> String {
        let mut page = Page::new(&format!("{}: {} of {} claims hold", self.paper, self.passed(), self.claims()));
        page.table(&HEAD, &self.verdicts.iter().map(Verdict::cells).collect::<Vec<_>>());
        for grid in &self.grids {
            page.text(&grid.title);
            page.table(&grid.head.iter().map(String::as_str).collect::<Vec<_>>(), &grid.cells());
        }
        self.drawings.iter().for_each(|svg| page.drawing(svg));
        page.finish()
    }

    /// Writes the report, and what it was taken from, into a folder.
    ///
    /// # Errors
    /// If one of them cannot be written.
    pub fn write(&self, folder: &Path) -> Result<()> {
        fs::create_dir_all(folder).map_err(Error::file("making", folder))?;
        let save = |name: &str, text: String| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(Error::file("writing", path))
        };
        for results in &self.results {
            match results {
                Results::Experiment(spec, rows) => experiment::write(spec, &[], rows, &folder.join(&spec.name))?,
                Results::Lines(name, lines) => save(&format!("{name}.json"), format!("{lines:#}\n"))?,
            }
        }
        save("report.html", self.html())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_claim_of_the_paper_is_there() {
        // How many of each id: a number that is left out is missed, not its id only.
        let claims = [4, 3, 2, 2, 1, 1, 4, 3, 1, 2, 3, 1, 1, 1, 1, 4, 6, 5, 1, 3];
        for (number, claims) in (1..).zip(claims) {
            let id = format!("M-{number}");
            assert_eq!(markatos::CLAIMS.iter().filter(|claim| claim.id == id).count(), claims, "{id}");
        }
        for number in
            ["2791", "2528", "2176", "2031", "28%", "37.5%", "14", "20", "23", "133", "295", "358", "396", "495"]
        {
            assert!(markatos::CLAIMS.iter().any(|claim| claim.published == number), "{number} of Tables 1 and 2");
        }
    }

    #[test]
    fn a_number_that_is_judged_twice_counts_once() {
        let verdict = Verdict::of("M-8", "one", "10x", (5.0, 11.0), Some(10.0));
        let twice = Verdict::of("M-20", "one again", "10x", (5.0, 11.0), Some(10.0)).counted_as("M-8");
        let paper = Reproduction { verdicts: vec![verdict, twice], ..Reproduction::default() };
        assert_eq!((paper.passed(), paper.claims()), (1, 1));
        let text = paper.markdown();
        assert!(text.contains("| pass, as M-8 |") && text.contains("1 of 1 claims hold; 1 are judged twice"), "{text}");
        for (id, what, before) in markatos::JUDGED_BEFORE {
            assert!(markatos::CLAIMS.iter().any(|claim| (claim.id, claim.what) == (id, what)), "{what}");
            assert!(markatos::CLAIMS.iter().any(|claim| claim.id == before), "{before}");
        }
    }

    #[test]
    fn no_effect_is_no_gain() {
        let gains = markatos::CLAIMS.iter().filter(|claim| claim.published.ends_with('%') && claim.id == "M-17");
        let bands: Vec<_> = gains.map(|claim| claim.band).collect();
        assert_eq!(bands.len(), 2);
        assert!(bands.iter().all(|band| band.0 > 1.1), "{bands:?}");
    }
}
