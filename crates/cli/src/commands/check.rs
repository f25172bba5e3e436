//! `picaflor check STORE...`: opens each store for reading, says what recovery found, and verifies every object; before
//! that, if asked, it opens it for writing and has it put right what can be.

use std::path::PathBuf;

use clap::Args;
use picaflor::{CheckReport, Finding, Mode, Receipt, Severity};
use serde::Serialize;

use super::{Failure, Format};
use crate::{
    human, key,
    open::{self, Found, Memory, Unopened},
    output::{self, Output},
};

const EXAMPLES: &str = "\
Examples:
  Is everything there, and does every byte verify?
      picaflor check picaflor.store

  A store on two devices, and another one:
      picaflor check /dev/nvme1n1 /dev/nvme2n1 images.store

  Put right what can be, then look:
      picaflor check --mend picaflor.store

  In a script:
      picaflor check --format json picaflor.store > report.json
      [ $? -ne 3 ] || mail -s 'damaged store' ops < report.json

Without --mend nothing is written: what recovery would do is worked out in memory and printed. Objects that a crash took, within the \
bound that the store was asked for, are no damage. Of several stores every one that can be checked is, whatever becomes of the \
others. Exit codes: 0 all sound, 3 one is damaged, 1 one could not be checked, 2 the command line is wrong.";

/// Verifies stores from end to end, without writing to them
///
/// Reads every object that the index promises, checks its checksum, and says what opening the store kept and dropped.
/// No other process may have the store open for writing.
#[derive(Args)]
#[command(after_long_help = EXAMPLES, after_help = "`picaflor check --help` has examples.")]
pub(crate) struct Check {
    /// Stores: files or raw block devices; those of one store are put together
    #[arg(required = true)]
    store: Vec<PathBuf>,
    /// Open them for writing, and put right what can be: index pages of tables that rotted, what a crash left
    #[arg(long)]
    mend: bool,
    /// How to print what was found
    #[arg(long, value_enum, default_value_t, hide_possible_values = true, value_name = "text|json")]
    format: Format,
    #[command(flatten)]
    memory: Memory,
}

/// Damaged objects that are named to people; programs get them all.
const NAMED: usize = 20;

#[derive(Serialize)]
struct Verdict<'a> {
    places: &'a [picaflor::About],
    sound: bool,
    receipt: &'a Receipt,
    report: &'a CheckReport,
    findings: &'a [Finding],
}

/// A store that could not be checked: whether it is sound is not known.
#[derive(Serialize)]
struct Unchecked<'a> {
    places: Vec<Place<'a>>,
    sound: Option<bool>,
    error: String,
}

#[derive(Serialize)]
struct Place<'a> {
    place: &'a str,
}

impl Check {
    pub(crate) fn run(self) -> Result<(), Failure> {
        let mut out = Output::new();
        let (stores, mut unchecked) = open::find_each(&self.store);
        let mut damaged = Vec::new();
        for found in stores {
            match self.one(&found, &mut out) {
                Ok(true) => {}
                Ok(false) => damaged.push(found.name()),
                Err(Failure::ReaderGone) => return Err(Failure::ReaderGone),
                Err(why) => {
                    let names = found.places.into_iter().map(|about| about.place).collect();
                    unchecked.push(Unopened { names, why });
                }
            }
        }
        if self.format == Format::Json {
            for Unopened { names, why } in &unchecked {
                let places = names.iter().map(|place| Place { place }).collect();
                out.json(&Unchecked { places, sound: None, error: why.to_string() })?;
            }
            out.flush()?;
        }
        let mut failures: Vec<_> = unchecked.into_iter().map(|unopened| unopened.why).collect();
        if !damaged.is_empty() {
            failures.push(Failure::Damaged(format!("damaged: {}", damaged.join(", "))));
        }
        Failure::worst(failures)
    }

    /// Whether the store is sound.
    fn one(&self, found: &Found, out: &mut Output) -> Result<bool, Failure> {
        if self.mend {
            mend(found, &self.memory)?;
        }
        let store = open::read(found, &self.memory)?;
        let bar = output::steps(format!("checking {}", found.name()));
        let report = store.check(|done, all| {
            bar.set_length(all);
            bar.set_position(done);
        });
        bar.finish_and_clear();
        let receipt = store.receipt();
        let findings = report.findings(receipt);
        let count = |severity| findings.iter().filter(|finding| finding.severity == severity).count();
        let (lost, refused) = (count(Severity::Lost), count(Severity::Unknown));
        let sound = lost + refused == 0;
        match self.format {
            Format::Json => {
                let (places, findings) = (&found.places, &findings[..]);
                out.json(&Verdict { places, sound, receipt, report: &report, findings })?;
            }
            Format::Text => print(found, receipt, &report, &findings, out)?,
        }
        out.flush()?;
        if !sound && lost == 0 {
            let places = human::counted(refused as u64, "place", "places");
            return Err(Failure::Failed(format!("{}: the device refused to read {places}", found.name())));
        }
        Ok(sound)
    }
}

/// Goes through the store, so that it meets what is damaged, and lets it do what its daemons would.
fn mend(found: &Found, memory: &Memory) -> Result<(), Failure> {
    let store = open::by_hand(found, memory)?;
    let wait = output::waiting(format!("mending {}", found.name()));
    drop(store.check(|_, _| {}));
    let outcome = loop {
        match store.step() {
            Ok(true) => {}
            Ok(false) => break Ok(()),
            Err(why) => break Err(why),
        }
    };
    let pages = store.stats().counts.pages_rebuilt;
    let closed = store.close();
    wait.finish_and_clear();
    if pages > 0 {
        let pages = human::counted(pages, "index page was", "index pages were");
        eprintln!("picaflor: {}: {pages} damaged, and made anew from the entries", found.name());
    }
    match outcome {
        // What cannot be mended the check that follows tells of.
        Err(picaflor::Error::Damaged { .. }) => Ok(closed?),
        outcome => Ok(outcome.and(closed)?),
    }
}

fn print(
    found: &Found,
    receipt: &Receipt,
    report: &CheckReport,
    findings: &[Finding],
    out: &mut Output,
) -> Result<(), Failure> {
    let mode = found.places[0].mode;
    let kind = if mode == Mode::Store { "store" } else { "cache" };
    out.line(format!("{}: a {kind} of {}", found.name(), human::size(found.capacity())))?;
    let mut rows = Vec::new();
    for volume in &receipt.volumes {
        rows.push(("opening".to_owned(), key::harmless(&volume.to_string())));
    }
    let intact = format!(
        "{} of {} intact, {}",
        human::count(report.intact),
        human::count(report.entries),
        human::size(report.intact_bytes)
    );
    rows.push(("entries".into(), intact));
    if report.clusters > 0 {
        rows.push(("clusters".into(), format!("{} looked at", human::count(report.clusters))));
    }
    for severity in [Severity::Lost, Severity::Unknown, Severity::Harmless] {
        let of_it = || findings.iter().filter(|finding| finding.severity == severity);
        let label = label(severity);
        of_it().take(NAMED).for_each(|finding| rows.push((label.into(), key::shown(finding.what.as_bytes()))));
        if let Some(more @ 1..) = of_it().count().checked_sub(NAMED) {
            let more = human::count(more as u64);
            rows.push((label.into(), format!("and {more} more; `--format json` names them all")));
        }
    }
    let worst = findings.first().map(|finding| finding.severity);
    let verdict = verdict(worst, mode);
    rows.push(("verdict".into(), verdict.into()));
    out.bytes(human::table(&rows).as_bytes())
}

fn label(severity: Severity) -> &'static str {
    match severity {
        Severity::Lost => "damaged",
        Severity::Unknown => "refused",
        _ => "harmless",
    }
}

fn verdict(worst: Option<Severity>, mode: Mode) -> &'static str {
    match (worst, mode) {
        (Some(Severity::Lost), Mode::Cache) => {
            "DAMAGED; what does not verify is never served: a get drops it, and it is fetched anew"
        }
        (Some(Severity::Lost), Mode::Store) => {
            "DAMAGED; what does not verify is never returned: --mend puts right what can be, else put it again, or restore a copy"
        }
        (Some(Severity::Unknown), _) => {
            "NOT KNOWN; the device refused to read some of it, which may be whole: look after the device, and check again"
        }
        _ => "sound",
    }
}
