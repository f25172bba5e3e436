//! `picaflor lab list`, `run` and `reproduce`.

use std::{
    io::ErrorKind,
    num::NonZero,
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use picaflor_lab::{experiment, reproduce, trace::Report};

use super::{
    super::{Failure, Format},
    folders::{leave_no_folder, make_folder},
};
use crate::{
    human,
    output::{self, Output},
};

/// Lists experiments, workloads, presets, devices, file systems and papers
#[derive(Args)]
pub(crate) struct List {
    /// Print the file of this experiment or paper
    #[arg(long, value_name = "NAME")]
    show: Option<String>,
}

impl List {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut out = Output::new();
        if let Some(name) = self.show {
            let text = reproduce::spec(&name)?.map_or_else(|| experiment::text(&name), Ok)?;
            out.bytes(text.as_bytes())?;
            return out.flush();
        }
        let rows = |rows: Vec<(String, String)>| human::table(&rows);
        out.line("Experiments:")?;
        let all = experiment::all()?.into_iter().map(|spec| (spec.name, spec.title));
        out.bytes(rows(all.collect()).as_bytes())?;
        out.line("\nSynthetic workloads:")?;
        let all = picaflor_lab::synth::Synthetic::ALL.iter();
        out.bytes(rows(all.map(|row| (row.0.into(), row.2.into())).collect()).as_bytes())?;
        out.line("\nTraces that come with the lab, workloads of experiments:")?;
        let all = picaflor_lab::trace::Known::ALL.iter();
        out.bytes(rows(all.map(|row| (row.0.into(), row.2.into())).collect()).as_bytes())?;
        let join = |names: Vec<&str>| names.join(", ");
        out.line(format!("\nPresets: {}", join(picaflor_literature::presets().collect())))?;
        let devices = join(picaflor_lab::run::device_names().collect());
        out.line(format!(
            "Devices: {devices}; a folder of this machine, with a slash in its name; or a profile's path"
        ))?;
        let systems = join(picaflor_lab::fs::FsProfile::names().collect());
        out.line(format!("File systems: {systems}; or a profile's path"))?;
        out.line(format!("Papers: {}", join(reproduce::PAPERS.to_vec())))?;
        out.flush()
    }
}

const RUN: &str = "\
Examples:
      picaflor lab run presets-on-devices --out results
      picaflor lab run markatos-fig6 --quick
      picaflor lab run locality
      picaflor lab run mine.toml --seed 7 --jobs 1

Writes results.json, results.csv and report.html, a page without anything around it; of an experiment that has one\ndrawing that says it all, also NAME.svg.";

/// Runs an experiment
#[derive(Args)]
#[command(after_long_help = RUN)]
pub(crate) struct Run {
    /// Its name, or the path of its file
    experiment: String,
    /// Folder for results and report
    #[arg(long, value_name = "DIR", default_value = "lab-results")]
    out: PathBuf,
    /// Runs at a time; as many as there are processors
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// Instead of the seeds of the experiment
    #[arg(long, value_name = "S")]
    seed: Option<u64>,
    /// A hundredth of everything, for a first look
    #[arg(long)]
    quick: bool,
}

impl Run {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let spec = experiment::find(&self.experiment)?;
        let mut spec = if self.quick { spec.quickly() } else { spec };
        if let Some(seed) = self.seed {
            spec.seeds = vec![seed];
        }
        let begin = Instant::now();
        make_folder(&self.out)?;
        leave_no_folder()?;
        let reading = output::waiting("looking at what it needs");
        let ready = experiment::Ready::of(&spec)?;
        reading.finish_and_clear();
        let bar = output::steps(spec.name.clone());
        let rows = ready.run(self.jobs, &|more, total| {
            bar.set_length(total);
            bar.inc(more);
        })?;
        bar.finish_and_clear();
        experiment::write(&spec, ready.traces(), &rows, &self.out)?;
        let mut out = Output::new();
        ready.traces().iter().flat_map(Report::told).try_for_each(|line| out.line(line))?;
        for row in &rows {
            out.line(line_of(row))?;
        }
        out.line(format!("\n{}, in {:.1} s", self.out.join("report.html").display(), begin.elapsed().as_secs_f64()))?;
        out.flush()
    }
}

/// A run in a line: what it was, and the numbers that its kind of replay is about.
fn line_of(row: &experiment::Row) -> String {
    let views = row.outcome.views > 0;
    let what: &[(&str, usize)] = match views {
        true => &[("workload", 14), ("device", 16), ("preset", 14), ("hints", 10)],
        false => &[("preset", 14), ("device", 16), ("disk_mib", 6), ("target_utilisation", 5)],
    };
    let timed = row.outcome.seconds > 0.0;
    let numbers: &[(&str, &str)] = match views {
        false if !timed => {
            &[("gets", "gets"), ("hits", "hits"), ("reads", "reads"), ("writes", "writes"), ("deletes", "deletes")]
        }
        true => &[
            ("reads a view", "device_reads_per_view"),
            ("KiB a view", "kib_read_per_view"),
            ("ms a view", "ms_per_view"),
            ("hit ratio", "view_hit_ratio"),
            ("requests a view", "requests_per_view"),
        ],
        false => &[
            ("gets/s", "gets_per_second"),
            ("ops/s", "operations_per_second"),
            ("hits/s", "hits_per_second"),
            ("reads a hit", "reads_per_hit"),
            ("written a byte", "written_per_byte"),
        ],
    };
    let case: Vec<_> =
        what.iter().map(|(field, wide)| format!("{:<wide$}", row.text(field).unwrap_or_default())).collect();
    // Where no time passes there is no rate.
    let shown = |field| row.number(field).map_or("-".into(), picaflor_lab::draw::short);
    let numbers: Vec<_> = numbers.iter().map(|(name, field)| format!("{:>7} {name}", shown(field))).collect();
    format!("{} {}", case.join(" "), numbers.join("  "))
}

const REPRODUCE: &str = "\
Examples:
      picaflor lab reproduce damelo --out results
      picaflor lab reproduce damelo --only D-12            # the proxy test, on this machine's time
      picaflor lab reproduce hummingbird --only H-9        # the other proxy test, in virtual time
      picaflor lab reproduce markatos --markdown docs/literature/markatos.md
      picaflor lab reproduce pmflf --seeds 5               # which verdicts are the seed's

docs/literature/ has a page for each paper, with what became of each claim. Runs are in virtual time, but for D-12: that
starts an origin, clients and the proxy, on loopback addresses of this machine, and lays their stores in the folder for
temporary files (TMPDIR). How long it takes is `seconds` under `[proxy]` in the paper's file.";

/// Prints each number of a paper beside ours
#[derive(Args)]
#[command(after_long_help = REPRODUCE, after_help = "`picaflor lab reproduce --help` has examples.")]
pub(crate) struct Reproduce {
    /// Which paper
    #[arg(value_parser = clap::builder::PossibleValuesParser::new(reproduce::PAPERS))]
    paper: String,
    /// Folder for results and report
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
    /// Run only the part of damelo or hummingbird that has the claim of this id, such as D-12
    #[arg(long, value_name = "ID")]
    only: Option<String>,
    /// Write the table into this document, where the last one was; with --only, its rows
    #[arg(long, value_name = "FILE", conflicts_with = "quick")]
    markdown: Option<PathBuf>,
    /// Runs at a time; as many as there are processors
    #[arg(long, value_name = "N")]
    jobs: Option<NonZero<usize>>,
    /// A hundredth of everything: shows that it runs, and nothing else
    #[arg(long)]
    quick: bool,
    /// Run with so many seeds, one after the other, and name the verdicts that are not the same with all of them
    #[arg(long, value_name = "N", conflicts_with = "markdown")]
    seeds: Option<NonZero<u64>>,
    /// Take machines, systems and scale from this file instead of the one that `lab list --show PAPER` prints
    #[arg(long, value_name = "FILE")]
    spec: Option<PathBuf>,
    /// How to print
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
}

impl Reproduce {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let begin = Instant::now();
        let only = self.only.as_deref().map(|id| reproduce::part(&self.paper, id)).transpose()?;
        // What cannot be written is no reason to run for minutes first.
        let document = self.markdown.as_deref().map(document).transpose()?;
        if let Some((part, document)) = only.zip(document.as_ref()) {
            let mut none = reproduce::Reproduction::default();
            none.paper.clone_from(&self.paper);
            reproduce::replace_rows(document, &none, part)?;
        }
        leave_no_folder()?;
        self.out.as_deref().map_or(Ok(()), make_folder)?;
        let spec = self.spec.as_ref().map(|path| {
            std::fs::read_to_string(path).map_err(|e| Failure::Failed(format!("reading {}: {e}", path.display())))
        });
        let spec = spec.transpose()?;
        let bar = output::steps(self.paper.clone());
        let how = reproduce::How { jobs: self.jobs, quick: self.quick, only, seed: 0 };
        let seeds = self.seeds.map_or(1, NonZero::get);
        let done = reproduce::reproduce_seeds(&self.paper, spec.as_deref(), how, seeds, &|name, more, total| {
            if bar.message() != name {
                bar.set_message(name.to_owned());
                bar.reset();
            }
            bar.set_length(total);
            bar.inc(more);
        })?;
        bar.finish_and_clear();
        if let Some(folder) = &self.out {
            done.write(folder)?;
        }
        if let Some((path, document)) = self.markdown.as_ref().zip(document) {
            let text = match only {
                Some(part) => reproduce::replace_rows(&document, &done, part)?,
                None => reproduce::replace_table(&document, &self.paper, &done.markdown()),
            };
            std::fs::write(path, text).map_err(|e| Failure::Failed(format!("writing {}: {e}", path.display())))?;
        }
        let mut out = Output::new();
        if self.format == Format::Json {
            out.json(&done)?;
            return out.flush();
        }
        for verdict in done.all() {
            let pass = match verdict.not_carried {
                Some(_) => "-   ",
                None if verdict.pass => "pass",
                None => "MISS",
            };
            let (ours, band) = (verdict.shown(), verdict.band_shown());
            let (id, what, published) = (verdict.id, &verdict.what, &verdict.published);
            let from = verdict.origin.kind.name();
            out.line(format!("{id:5} {pass}  {from:10} {published:>10}  ours {ours:>8}  ({band})  {what}"))?;
        }
        out.line(format!("\n{}\n{:.0} s", done.summary(), begin.elapsed().as_secs_f64()))?;
        done.flips_shown().into_iter().try_for_each(|line| out.line(line))?;
        out.flush()
    }
}

/// The text of a document, empty if there is none yet. One that is no text is left alone: it would be lost.
fn document(path: &Path) -> Result<String, Failure> {
    match std::fs::read_to_string(path) {
        Ok(text) => Ok(text),
        Err(e) if e.kind() == ErrorKind::NotFound => Ok(String::new()),
        Err(e) => Err(Failure::Failed(format!("reading {}: {e}; it is not written to", path.display()))),
    }
}
