//! `picaflor check STORE...`: opens each store for reading, says what recovery found, and verifies every object; before
//! that, if asked, it opens it for writing and has it put right what can be.

use std::path::PathBuf;

use clap::Args;
use picaflor::{CheckReport, Mode, Receipt};
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
/// Nobody else may have the store open for writing.
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
        let refused = report.refused.len() + receipt.volumes.iter().map(|volume| volume.refused.len()).sum::<usize>();
        let sound = refused == 0 && !is_damaged(&report, receipt);
        match self.format {
            Format::Json => out.json(&Verdict { places: &found.places, sound, receipt, report: &report })?,
            Format::Text => print(found, receipt, &report, sound, out)?,
        }
        out.flush()?;
        if !sound && !is_damaged(&report, receipt) {
            let places = human::counted(refused as u64, "place", "places");
            return Err(Failure::Failed(format!("{}: the device refused to read {places}", found.name())));
        }
        Ok(sound)
    }
}

/// Whether something that was read is not what was written; what the device refused to read may be whole.
fn is_damaged(report: &CheckReport, receipt: &Receipt) -> bool {
    report.is_damaged() || receipt.volumes.iter().any(|volume| !volume.damage.is_empty())
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

fn print(found: &Found, receipt: &Receipt, report: &CheckReport, sound: bool, out: &mut Output) -> Result<(), Failure> {
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
    if report.orphans > 0 {
        let orphans = human::counted(report.orphans, "chunk", "chunks");
        rows.push(("left over".into(), format!("{orphans} of large objects that are gone; the next run removes them")));
    }
    for damage in report.damaged.iter().take(NAMED) {
        rows.push(("damaged".into(), key::shown(damage.as_bytes())));
    }
    for refused in report.refused.iter().take(NAMED) {
        rows.push(("refused".into(), key::shown(refused.as_bytes())));
    }
    if report.damaged.len() > NAMED {
        let more = human::count((report.damaged.len() - NAMED) as u64);
        rows.push(("damaged".into(), format!("and {more} more; `--format json` names them all")));
    }
    if report.lost > 0 {
        let lost = human::counted(report.lost, "entry leads", "entries lead");
        rows.push(("lost".into(), format!("{lost} to no object")));
    }
    if !report.unreadable_clusters.is_empty() {
        let clusters: Vec<_> = report.unreadable_clusters.iter().take(NAMED).map(u32::to_string).collect();
        let more = if report.unreadable_clusters.len() > NAMED { " ..." } else { "" };
        rows.push(("unreadable".into(), format!("clusters {}{more}", clusters.join(", "))));
    }
    let verdict = match sound || is_damaged(report, receipt) {
        true => verdict(sound, mode),
        false => {
            "NOT KNOWN; the device refused to read some of it, which may be whole: look after the device, and check again"
        }
    };
    rows.push(("verdict".into(), verdict.into()));
    out.bytes(human::table(&rows).as_bytes())
}

fn verdict(sound: bool, mode: Mode) -> &'static str {
    match (sound, mode) {
        (true, _) => "sound",
        (false, Mode::Cache) => "DAMAGED; what does not verify is never served: a get drops it, and it is fetched anew",
        (false, Mode::Store) => {
            "DAMAGED; what does not verify is never returned: --mend puts right what can be, else put it again, or restore a copy"
        }
    }
}
