//! Results as people and programs read them: Markdown with medians and ratios, CSV and JSON with every round.

use std::{collections::BTreeMap, fmt::Write as _, fs, io, path::Path};

use serde::Serialize;

use crate::median;

/// One measured figure of one round.
#[derive(Debug, Clone, Serialize)]
pub struct Sample {
    /// What was done.
    pub work: String,
    /// By whom.
    pub subject: String,
    /// Round, from 0.
    pub round: usize,
    /// Place of the figure's column, then its name with the unit: `2 MB/s`. Place 0 is for what is no result.
    pub figure: String,
    /// The figure.
    pub value: f64,
}

/// Everything measured in one run.
#[derive(Debug, Default, Serialize)]
pub struct Report {
    /// The machine.
    pub machine: String,
    /// How it was run, and what a reader must know to judge it.
    pub notes: Vec<String>,
    /// Every figure of every round.
    pub samples: Vec<Sample>,
}

impl Report {
    /// Adds the figures of one round.
    pub fn add(&mut self, work: &str, subject: &str, round: usize, figures: &BTreeMap<String, f64>) {
        self.samples.extend(figures.iter().map(|(figure, value)| Sample {
            work: work.to_owned(),
            subject: subject.to_owned(),
            round,
            figure: figure.clone(),
            value: *value,
        }));
    }

    /// Notes that one failed in a round: the others are still worth measuring.
    pub fn failed(&mut self, subject: &str, round: usize, error: &anyhow::Error) {
        let note = format!("{subject} failed in round {}: {error:#}.", round + 1);
        eprintln!("{note}");
        self.notes.push(note);
    }

    /// Median over the rounds.
    pub fn median(&self, work: &str, subject: &str, figure: &str) -> Option<f64> {
        let values: Vec<_> = self
            .samples
            .iter()
            .filter(|sample| sample.work == work && sample.subject == subject && sample.figure == figure)
            .map(|sample| sample.value)
            .collect();
        median(&values)
    }

    /// One table per work, one row per subject; in the last column how `base` compares by the first figure that both
    /// rows have.
    pub fn markdown(&self, base: &str) -> String {
        let mut text = format!("Machine: {}\n", self.machine);
        for note in &self.notes {
            let _ = write!(text, "\n- {note}");
        }
        for work in first_seen(self.samples.iter().map(|sample| sample.work.as_str())) {
            let of_work = || self.samples.iter().filter(|sample| sample.work == work);
            let subjects = first_seen(of_work().map(|sample| sample.subject.as_str()));
            let mut figures = first_seen(of_work().map(|sample| sample.figure.as_str()));
            figures.sort_unstable();
            let _ = write!(text, "\n\n### {work}\n\n| |");
            for figure in &figures {
                let _ = write!(text, " {} |", plain(figure));
            }
            let _ = write!(text, " {base} is |\n|---|{}---|", "---|".repeat(figures.len()));
            for subject in subjects {
                let _ = write!(text, "\n| {subject} |");
                for figure in &figures {
                    let _ = write!(text, " {} |", shown(self.median(work, subject, figure)));
                }
                let ratio = figures
                    .iter()
                    .filter(|figure| !figure.starts_with("0 "))
                    .find_map(|figure| self.ratio(work, base, subject, figure));
                let _ = write!(text, " {} |", ratio.unwrap_or_default());
            }
        }
        text.push('\n');
        text
    }

    /// How many times `base` is what `subject` is, by one figure.
    fn ratio(&self, work: &str, base: &str, subject: &str, figure: &str) -> Option<String> {
        let base = self.median(work, base, figure).filter(|_| base != subject)?;
        let ratio = base / self.median(work, subject, figure)?;
        ratio.is_finite().then(|| format!("{ratio:.2}x in {}", plain(figure)))
    }

    /// Every sample, one a line.
    pub fn csv(&self) -> String {
        let mut text = String::from("work,subject,round,figure,value\n");
        for Sample { work, subject, round, figure, value } in &self.samples {
            let _ = writeln!(text, "\"{work}\",\"{subject}\",{round},\"{figure}\",{value}");
        }
        text
    }

    /// Writes `NAME.md`, `NAME.csv` and `NAME.json` in a folder.
    ///
    /// # Errors
    /// When a file cannot be written.
    pub fn write(&self, folder: &Path, name: &str, base: &str) -> io::Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(format!("{name}.md")), self.markdown(base))?;
        fs::write(folder.join(format!("{name}.csv")), self.csv())?;
        fs::write(folder.join(format!("{name}.json")), serde_json::to_vec_pretty(self)?)
    }
}

/// Distinct values in the order of their first appearance.
fn first_seen<'a>(values: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = Vec::new();
    for value in values {
        if !seen.contains(&value) {
            seen.push(value);
        }
    }
    seen
}

/// A figure's name without the place of its column.
fn plain(figure: &str) -> &str {
    figure.split_once(' ').map_or(figure, |(_, name)| name)
}

/// Three digits that matter.
fn shown(value: Option<f64>) -> String {
    match value {
        None => String::new(),
        Some(value) if value == 0.0 || value.abs() >= 100.0 => format!("{value:.0}"),
        Some(value) if value.abs() >= 10.0 => format!("{value:.1}"),
        Some(value) => format!("{value:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_shows_medians_and_ratios() {
        let mut report = Report::default();
        for (round, value) in [90.0, 100.0, 500.0].into_iter().enumerate() {
            report.add("load", "ours", round, &BTreeMap::from([("1 ops/s".into(), value)]));
            report.add("load", "theirs", round, &BTreeMap::from([("1 ops/s".into(), value / 2.0)]));
        }
        let text = report.markdown("ours");
        assert!(text.contains("| theirs | 50.0 | 2.00x in ops/s |"), "{text}");
        assert!(text.contains("| ours | 100 |  |"), "{text}");
        assert_eq!(report.csv().lines().count(), 7);
    }
}
