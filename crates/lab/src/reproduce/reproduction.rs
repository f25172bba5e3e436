//! A paper, judged, and its report.

use std::{fs, path::Path};

use serde::Serialize;

use super::{
    flip::Flip,
    origin::Kind,
    provenance,
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
    /// Of a run with several seeds: what holds with some of them and with others does not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub flips: Vec<Flip>,
    /// The same: how many predicted claims hold, by seed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub predicted_by_seed: Vec<usize>,
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

const HEAD: [&str; 7] = ["id", "what", "published", "ours", "band", "from", ""];
const MARKS: &str =
    "Behind a number (c) says that it is calibrated, (i) that it is an input; the others are predicted.";

/// A paragraph in lines of the house's length.
fn filled(text: &str) -> String {
    const COLUMNS: usize = 120;
    let (mut lines, mut width) = (String::new(), 0);
    for word in text.split_whitespace() {
        let len = word.chars().count();
        match width {
            0 => {}
            _ if width + 1 + len > COLUMNS => (lines, width) = (lines + "\n", 0),
            _ => (lines, width) = (lines + " ", width + 1),
        }
        lines += word;
        width += len;
    }
    lines + "\n"
}

impl Reproduction {
    /// All verdicts, those of the tables included.
    pub fn all(&self) -> impl Iterator<Item = &Verdict> {
        self.verdicts.iter().chain(self.grids.iter().flat_map(Grid::verdicts))
    }

    /// Says of each claim where our number comes from.
    pub(super) fn with_origins(mut self) -> Self {
        let Self { paper, verdicts, grids, .. } = &mut self;
        let cells = grids.iter_mut().flat_map(|grid| &mut grid.rows).flat_map(|row| &mut row.1);
        for verdict in verdicts.iter_mut().chain(cells) {
            verdict.origin = provenance::origin(paper, verdict.id, &verdict.what);
        }
        self
    }

    /// How many claims of a kind hold, and how many there are, those of the tables included; left out are those that
    /// were not carried over, and the second time of those that are judged twice.
    pub fn count(&self, kind: Kind) -> (usize, usize) {
        let all = || self.all().filter(|verdict| verdict.counts() && verdict.origin.kind == kind);
        (all().filter(|verdict| verdict.pass).count(), all().count())
    }

    /// How many claims are what.
    pub(super) fn tally(&self) -> Tally {
        let count = |which: fn(&Verdict) -> bool| self.all().filter(|one| which(one)).count();
        let apart = count(|one| one.not_carried.is_some());
        let twice = count(|one| one.counted.is_some());
        Tally { kinds: Kind::ALL.map(|kind| self.count(kind)), apart, twice }
    }

    /// How many claims are what, in words.
    pub fn summary(&self) -> String {
        self.tally().to_string()
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
            text += &format!("{}\n{}", filled(&grid.title), table(&grid.head, &grid.cells()));
        }
        if !self.grids.is_empty() {
            text += &format!("{}\n", filled(MARKS));
        }
        format!("{text}{}\n", self.tally())
    }

    /// What flips between seeds, line by line, if there were several.
    pub fn flips_shown(&self) -> Vec<String> {
        if self.predicted_by_seed.is_empty() {
            return Vec::new();
        }
        let held: Vec<_> = self.predicted_by_seed.iter().map(ToString::to_string).collect();
        let head = format!(
            "{} seeds: {} predicted claims hold; {} verdicts flip{}",
            held.len(),
            held.join(", "),
            self.flips.len(),
            if self.flips.is_empty() { "." } else { ":" }
        );
        std::iter::once(head).chain(self.flips.iter().map(Flip::line)).collect()
    }

    /// As a page.
    pub fn html(&self) -> String {
        let (passed, claims) = self.count(Kind::Predicted);
        let mut page = Page::new(&format!("{}: {passed} of {claims} predicted claims hold", self.paper));
        page.text(&self.summary());
        page.table(&HEAD, &self.verdicts.iter().map(Verdict::cells).collect::<Vec<_>>());
        for grid in &self.grids {
            page.text(&grid.title);
            page.table(&grid.head.iter().map(String::as_str).collect::<Vec<_>>(), &grid.cells());
        }
        if !self.grids.is_empty() {
            page.text(MARKS);
        }
        self.flips_shown().iter().for_each(|line| page.text(line));
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
