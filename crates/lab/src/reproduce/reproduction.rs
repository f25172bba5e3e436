//! A paper, judged, and its report.

use std::{fs, path::Path};

use serde::Serialize;

use super::{
    tally::Tally,
    verdict::{Grid, Verdict},
};
use crate::{Error, Result, draw::Page, experiment};

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
    pub(super) drawings: Vec<String>,
    /// What it was taken from: results by name.
    #[serde(skip)]
    pub(super) results: Vec<Results>,
}

/// What claims were taken from.
#[derive(Debug, Clone)]
pub(super) enum Results {
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
        let tally = Tally {
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
