//! `picaflor lab age`: volumes that grow old, and what becomes of them.

use std::{
    num::NonZero,
    path::{Path, PathBuf},
    time::Instant,
};

use clap::Args;
use picaflor_lab::{
    age::{self, Aged, Case, Deletes, Done, Force, Kind, Limit, Medium, Request, Sample, Sizes, Spec, Start},
    experiment,
};
use picaflor_proxy::config::Size;

use super::{
    super::{Failure, Format},
    folders::{leave_no_folder, make_folder},
};
use crate::output::{self, Output};

const ABOUT: &str = "\
A volume is filled with objects, then objects are replaced until it is as old as --age says: at age 4 each has been \
replaced four times, in the mean. Each replacement is a safe write in the store's own idiom: a temporary file, forced and \
renamed over the old one; a transaction; a put that is durable when it returns. At age 0, and then --every so often, the \
command looks where objects lie (a fragment is a part that lies by itself, so 1.00 is best), reads them in random order, \
and replays these reads on simulated disks, where parts cost seeks.

Options that take several values can be given several times; every combination is run:
      picaflor lab age --quick
      picaflor lab age folder sqlite --object 256K --object 1M --object 10M --volume 4G
      picaflor lab age ext4 xfs btrfs --fill 90 --folder /mnt/scratch  # as root
      picaflor lab age picaflor-store --limit fragments=2@age4         # exits with 1 if passed
  From a pathologically fragmented volume on:
      picaflor lab age ext4 sqlite --start fresh --start fragmented
  A volume larger than the disk and the memory of this machine, as root:
      picaflor lab age ext4 picaflor-store --volume 372G --fill 50 --object 10M --on zram
  What it costs not to say the length beforehand:
      picaflor lab age ext4 --force each --announce no --announce yes

Candidates:
";

const REST: &str = "
ext4, xfs and btrfs are made on a file in --folder and mounted by the command itself, and unmounted and removed when it \
ends, however it ends; after kill -9 the next run does it. Without root or loop devices, `folder` is aged in their place.

A file lies wherever its file system has room, so `folder` says what --folder's file system does today, with the free \
room it happens to have; ext4, xfs, btrfs and the engine have a volume of exactly --volume.

In --out are report.html, results.json and results.csv. Each case is kept there when it is done: given again, a command \
that was interrupted does what is left. --fresh runs all of it again.";

fn long() -> String {
    let rows: Vec<_> = Kind::ALL.iter().map(|row| format!("  {:15} {}\n", row.1, row.2)).collect();
    format!("{ABOUT}{}{REST}", rows.concat())
}

/// Ages files, databases and stores by replacing objects, and shows fragments and speed as they age
#[derive(Args)]
#[command(after_long_help = long(), after_help = "`picaflor lab age --help` has examples and the candidates.")]
pub(crate) struct Age {
    /// What to age [default: folder sqlite picaflor-cache picaflor-store pmflf-pfl]
    #[arg(value_name = "CANDIDATE")]
    candidates: Vec<Kind>,
    /// Length of objects, or of the shortest and longest, such as 512K-1536K, or `web`: as web objects [default: 1M]
    #[arg(long = "object", value_name = "SIZE", help_heading = "Objects")]
    objects: Vec<Sizes>,
    /// Which are replaced: random, age (the oldest), group (16 that came together) [default: random]
    #[arg(long, value_name = "WHICH", help_heading = "Objects")]
    deletes: Vec<Deletes>,
    /// The volume before: fresh, or fragmented (full of small objects that leave as others come) [default: fresh]
    #[arg(long = "start", value_name = "HOW", help_heading = "Objects")]
    starts: Vec<Start>,
    /// Size of the volume [default: 1G]
    #[arg(long = "volume", value_name = "SIZE", help_heading = "Objects")]
    volumes: Vec<Size>,
    /// Bytes of objects for each 100 of the volume [default: 75]
    #[arg(long = "fill", value_name = "PERCENT", help_heading = "Objects")]
    fills: Vec<f64>,
    /// Storage age at the end
    #[arg(long, value_name = "AGE", default_value_t = 4.0, help_heading = "Objects")]
    age: f64,
    /// Age between two looks at the volume
    #[arg(long, value_name = "AGE", default_value_t = 1.0, help_heading = "Objects")]
    every: f64,
    /// How much of an object is written at a time, or `all` [default: 64K]
    #[arg(long = "request", value_name = "SIZE", help_heading = "Safe writes")]
    requests: Vec<Request>,
    /// When it is forced to the device: once (when it is whole) or each (after each request) [default: once]
    #[arg(long = "force", value_name = "WHEN", help_heading = "Safe writes")]
    forces: Vec<Force>,
    /// Whether the store is told the length first (files: fallocate): yes or no [default: no]
    #[arg(long = "announce", value_name = "yes|no", value_parser = yes, help_heading = "Safe writes")]
    announces: Vec<bool>,
    /// Objects that are written at one time, a request of each in turn
    #[arg(long, value_name = "N", default_value_t = 1, help_heading = "Safe writes")]
    writers: usize,
    /// Where volumes are made, and removed when they are done; the folder for temporary files, if nothing is said
    #[arg(long, value_name = "DIR")]
    folder: Option<PathBuf>,
    /// What volumes are made on: folder, or zram (compressed memory: for volumes larger than the disk; needs root)
    #[arg(long, value_name = "WHAT", default_value_t = Medium::Folder)]
    on: Medium,
    /// Simulated disk on which reads are replayed; `picaflor lab list` has their names
    #[arg(long = "disk", value_name = "NAME", default_values_t = ["barracuda7200_8".to_owned(), "nvme".to_owned()])]
    disks: Vec<String>,
    /// Of sizes and of which objects are replaced
    #[arg(long, value_name = "S", default_value_t = 1)]
    seed: u64,
    /// A small volume up to age 2, in less than a minute
    #[arg(long, conflicts_with_all = ["volumes"])]
    quick: bool,
    /// The standard matrix: some 200 cases of all candidates on zram, in hours; run again, it goes on
    #[arg(long, conflicts_with_all = ["quick", "candidates", "objects", "volumes", "fills", "requests", "forces", "announces",
        "deletes", "starts", "writers", "age", "every", "on"])]
    standard: bool,
    /// Exit with 1 if this is passed, such as fragments=2@age4, p99=8@age4, sqlite:fragments=6@age4
    #[arg(long = "limit", value_name = "LIMIT")]
    limits: Vec<Limit>,
    /// Folder for results and report
    #[arg(long, value_name = "DIR", default_value = "lab-age")]
    out: PathBuf,
    /// Cases at a time; more than one measure each other where they are timed on this machine, and need room together
    #[arg(long, value_name = "N", default_value_t = NonZero::<usize>::MIN)]
    jobs: NonZero<usize>,
    /// Run again what is kept there
    #[arg(long)]
    fresh: bool,
    /// How to print
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
}

fn yes(text: &str) -> Result<bool, String> {
    match text {
        "yes" => Ok(true),
        "no" => Ok(false),
        _ => Err("yes or no".into()),
    }
}

/// What was given, or what is usual.
fn or<T: Clone>(given: &[T], usual: Vec<T>) -> Vec<T> {
    if given.is_empty() { usual } else { given.to_vec() }
}

impl Age {
    fn specs(&self) -> Vec<Spec> {
        if self.standard { age::standard(self.seed) } else { vec![self.spec()] }
    }

    fn spec(&self) -> Spec {
        let usual = Spec::default();
        let volumes: Vec<u64> = self.volumes.iter().map(|size| size.0).collect();
        let spec = Spec {
            candidates: self.candidates(usual.candidates),
            objects: or(&self.objects, usual.objects),
            volumes: or(&volumes, usual.volumes),
            fills: or(&self.fills, usual.fills),
            requests: or(&self.requests, usual.requests),
            forces: or(&self.forces, usual.forces),
            announces: or(&self.announces, usual.announces),
            writers: self.writers,
            deletes: or(&self.deletes, usual.deletes),
            starts: or(&self.starts, usual.starts),
            age: self.age,
            every: self.every,
            seed: self.seed,
            on: self.on,
        };
        if self.quick { spec.quickly() } else { spec }
    }

    /// Without root, the plain folder stands in for file systems that would have to be mounted.
    fn candidates(&self, usual: Vec<Kind>) -> Vec<Kind> {
        let usual = usual.into_iter().filter(|kind| self.on == Medium::Folder || kind.can_be_on_zram());
        let mut all = or(&self.candidates, usual.collect());
        if age::can_mount() || self.on == Medium::Zram {
            return all;
        }
        let left_out: Vec<_> = all.iter().filter(|kind| kind.needs_root()).map(|kind| kind.name()).collect();
        if !left_out.is_empty() {
            let names = left_out.join(", ");
            eprintln!(
                "picaflor: {names}: making and mounting a file system needs root and loop devices; \
                 aging `folder` in its place"
            );
            all.retain(|kind| !kind.needs_root());
            all.insert(0, Kind::Folder);
        }
        all
    }

    pub(crate) fn run(self) -> Result<(), Failure> {
        let begin = Instant::now();
        let mut cases = Vec::new();
        for spec in self.specs() {
            cases.extend(spec.cases()?);
        }
        if let Some(limit) = self.limits.iter().find(|limit| limit.age() > self.age) {
            let why = format!("--limit: age {} is never reached: --age is {}", limit.age(), self.age);
            return Err(Failure::Usage(why));
        }
        let folder = self.folder.clone().unwrap_or_else(std::env::temp_dir);
        age::check(&cases, &folder, &self.disks)?;
        make_folder(&self.out)?;
        let done = Done::in_folder(&self.out, &self.disks)?;
        leave_no_folder()?;
        let all = self.all(&cases, &folder, &done)?;
        age::write(&all, &self.out)?;
        let mut out = Output::new();
        if self.format == Format::Json {
            out.json(&serde_json::json!({ "cases": age::json(&all), "advice": age::advice(&all) }))?;
        } else {
            out.line("")?;
            age::advice(&all).iter().try_for_each(|line| out.line(line))?;
            let page = self.out.join("report.html");
            out.line(format!("\n{}, in {:.1} s", page.display(), begin.elapsed().as_secs_f64()))?;
        }
        out.flush()?;
        let passed: Vec<_> = self.limits.iter().flat_map(|limit| limit.passed_by(&all)).collect();
        if passed.is_empty() { Ok(()) } else { Err(Failure::Failed(format!("limit passed: {}", passed.join("; ")))) }
    }

    fn all(&self, cases: &[Case], folder: &Path, done: &Done) -> Result<Vec<Aged>, Failure> {
        let bar = output::bytes("aging", Some(cases.iter().map(Case::bytes).sum()));
        let all = experiment::spread(cases, Some(self.jobs), |case| {
            bar.set_message(case.way());
            let before = done.find(case).filter(|_| !self.fresh);
            let is_kept = before.is_some();
            let aged = match before {
                Some(aged) => {
                    // It takes no time, and is no part of what is left.
                    bar.set_length(bar.length().unwrap_or(0).saturating_sub(case.bytes()));
                    aged
                }
                None => {
                    let aged = age::run(case, folder, &self.disks, &|bytes| bar.inc(bytes))?;
                    done.keep(&aged)?;
                    aged
                }
            };
            if self.format == Format::Text {
                // What cannot be printed is kept, and is in the report.
                let _ = bar.suspend(|| told(&aged, is_kept));
            }
            Ok(aged)
        })?;
        bar.finish_and_clear();
        Ok(all)
    }
}

/// A case in lines: a head, and a line for each look.
fn told(aged: &Aged, is_kept: bool) -> Result<(), Failure> {
    let mut out = Output::new();
    out.line(format!("{}{}", aged.case.label(), if is_kept { " (kept from before)" } else { "" }))?;
    for sample in &aged.samples {
        out.line(line(sample))?;
    }
    if let Some(why) = &aged.ended {
        out.line(format!("  {why}"))?;
    }
    out.flush()
}

fn line(sample: &Sample) -> String {
    let shown = |value: Option<f64>| value.map_or("-".into(), picaflor_lab::draw::short);
    let parts = sample.fragments.as_ref();
    let mean = parts.map_or("-".into(), |parts| format!("{:.2}", parts.mean));
    let mut text = format!(
        "  age {:<4.1} {mean:>6} fragments (99 of 100: {})  write {} MB/s, read {}",
        sample.age,
        parts.map_or("-".into(), |parts| parts.p99.to_string()),
        shown(Some(sample.write_mb_s)),
        shown(Some(sample.read_mb_s)),
    );
    for (disk, rate) in &sample.disks {
        text += &format!(", {disk} {}", shown(*rate));
    }
    if let Some(written) = sample.written_per_byte {
        text += &format!("; {written:.2} written a byte");
    }
    if sample.lost > 0 {
        text += &format!("; {} objects are no more", sample.lost);
    }
    if sample.unseen > 0.001 {
        text += &format!("; {:.1}% of the marks were not found", sample.unseen * 100.0);
    }
    text
}
