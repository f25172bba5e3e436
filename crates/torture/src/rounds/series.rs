//! The parent: one store through its kills, from the first child to the last look.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::Path,
    process::{Child, Command, ExitStatus, Stdio},
    time::{Duration, Instant},
};

use super::{
    aim::{Aim, Life, wait_for},
    body,
    breaks::Before,
    durable::{Deeds, NEVER},
    history::History,
    log::{self, How, Record, What, Whereabouts, now},
    setup::Setup,
    tally::{Fault, Rounds},
    wish::Wish,
    work::GROUP_KEY,
};
use picaflor::Mode;

/// A child that takes longer than this hangs.
const LONGEST: Duration = Duration::from_secs(60);
/// Most faults of one life that are told.
const FAULTS: usize = 3;

/// One store and what is known of it.
struct Series<'a> {
    setup: &'a Setup,
    wish: &'a Wish,
    folder: &'a Path,
    histories: HashMap<u32, History>,
    tally: Rounds,
    /// Number of the life.
    number: u32,
    /// Whether some child had it open.
    is_made: bool,
}

/// Runs the rounds of one store; its files stay if something is wrong.
///
/// # Errors
/// Those of the system: no process, no file.
pub fn run_series(setup: &Setup, wish: &Wish) -> io::Result<Rounds> {
    let folder = tempfile::Builder::new().prefix(&format!("rounds-{}-", setup.seed)).tempdir_in(&wish.folder)?;
    let mut series = Series {
        setup,
        wish,
        folder: folder.path(),
        histories: HashMap::new(),
        tally: Rounds::default(),
        number: 0,
        is_made: false,
    };
    series.tally.stores = 1;
    for round in 0..=wish.kills {
        let last = round == wish.kills;
        series.number += 1;
        let life = Life::new(setup, series.number);
        if round > 0 && (life.audit || last) {
            series.audit()?;
            series.number += 1;
        }
        let life = Life::new(setup, series.number);
        if series.tally.faults.is_empty() {
            series.live(&if last { Life { aim: Aim::Nothing, ..life } } else { life })?;
        }
        if !series.tally.faults.is_empty() {
            break;
        }
    }
    let mut tally = series.tally;
    if !tally.faults.is_empty() {
        let kept = folder.keep();
        tally.faults.iter_mut().for_each(|fault| fault.kept = Some(kept.clone()));
    }
    Ok(tally)
}

impl Series<'_> {
    fn fault(&mut self, life: &str, what: String) {
        if self.tally.faults.len() < FAULTS {
            let (seed, number, wish) = (self.setup.seed, self.number, self.wish);
            self.tally.faults.push(Fault {
                seed,
                setup: self.setup.describe(),
                life: format!("life {number}, {life}"),
                what,
                kept: None,
                command: format!(
                    "picaflor-rounds --from {seed} --rounds {} {}",
                    wish.kills,
                    wish.arguments().join(" ")
                ),
            });
        }
    }

    fn spawn(&self, read_only: bool) -> io::Result<Child> {
        let errors = File::create(self.folder.join(format!("errors-{:04}", self.number)))?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["child", if read_only { "look" } else { "live" }]);
        command.arg(self.setup.seed.to_string()).arg(self.number.to_string()).args(self.wish.arguments());
        command.arg("--folder").arg(self.folder);
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(errors).spawn()
    }

    /// What a child said on its standard error.
    fn said(&self) -> String {
        let path = self.folder.join(format!("errors-{:04}", self.number));
        std::fs::read_to_string(path).unwrap_or_default().trim().to_owned()
    }

    /// Lets a child look at what the one before left, without writing.
    fn audit(&mut self) -> io::Result<()> {
        let mut child = self.spawn(true)?;
        let status = wait(&mut child, LONGEST)?;
        self.tally.audits += 1;
        let said = self.said();
        let words = ["there is no store here", "shorter than the capacity", "No such file"];
        if !self.is_made && words.iter().any(|words| said.contains(words)) {
            self.tally.unmade += 1;
            return Ok(());
        }
        self.came_to_an_end("looking read-only", status);
        self.judge("looking read-only", NEVER)
    }

    fn live(&mut self, life: &Life) -> io::Result<()> {
        let file = Whereabouts::open(self.folder)?;
        Whereabouts::reset(&file)?;
        let before = Before::take(self.wish.sabotage, self.setup.paths(self.folder))?;
        let mut child = self.spawn(false)?;
        let began = Instant::now();
        let mut ended = Ok(None);
        let met = wait_for(life, &file, || {
            ended = child.try_wait();
            began.elapsed() > LONGEST || !matches!(ended, Ok(None))
        });
        if let Some(status) = ended? {
            let how = "which ended by itself";
            self.tally.ended += u64::from(life.aim != Aim::Nothing);
            self.came_to_an_end(how, Some(status));
            return self.judge(how, NEVER);
        }
        let killed = now();
        child.kill()?;
        let status = child.wait()?;
        before.roll_back()?;
        let Some(met) = met else {
            self.fault("which hung", format!("it was not done after {LONGEST:?}; it said: {}", self.said()));
            return Ok(());
        };
        let how = life.to_string();
        if status.code().is_some() {
            // It was faster than the kill.
            self.tally.ended += 1;
            self.came_to_an_end(&how, Some(status));
        } else {
            *self.tally.kills.entry(format!("{met:?}").to_lowercase()).or_default() += 1;
        }
        self.judge(&how, killed)
    }

    /// A child that was not killed ends with status 0, and says nothing; one that was killed has not panicked.
    fn came_to_an_end(&mut self, how: &str, status: Option<ExitStatus>) {
        match status {
            None => self.fault(how, format!("it hangs; it said: {}", self.said())),
            Some(status) if !status.success() => {
                self.fault(how, format!("it ended with {status}; it said: {}", self.said()));
            }
            Some(_) => {}
        }
    }

    /// Judges all that was told in this life.
    fn judge(&mut self, how: &str, killed: u64) -> io::Result<()> {
        let said = self.said();
        if said.contains("panicked at") {
            self.fault(how, format!("it panicked: {said}"));
        }
        let records = log::read(self.folder, self.number)?;
        self.is_made |= !records.is_empty();
        let mut deeds: HashMap<u32, Vec<Record>> = HashMap::new();
        let mut looks: HashMap<u32, Vec<Record>> = HashMap::new();
        for record in &records {
            match record.what {
                What::Put | What::Delete | What::Group => deeds.entry(record.key).or_default().push(*record),
                What::Get => looks.entry(record.key).or_default().push(*record),
                What::Open => self.opened(how, record),
                What::Resize if record.how == How::Done => self.tally.resized[record.key as usize] += 1,
                What::Bad | What::Flush | What::Close | What::Resize => {}
            }
            self.tally.done +=
                u64::from(record.how == How::Done && !matches!(record.what, What::Get | What::Open | What::Resize));
            self.tally.full += u64::from(record.how == How::Full && record.what == What::Put);
            self.tally.refused += u64::from(record.how == How::Refused);
        }
        for bad in records.iter().filter(|record| record.what == What::Bad) {
            self.bad(how, bad, deeds.get(&bad.key).map_or(&[], Vec::as_slice))?;
        }
        let all = Deeds { setup: self.setup, records: &records, killed };
        for key in (0..self.setup.keys).chain([GROUP_KEY]) {
            let mine = deeds.remove(&key).unwrap_or_default();
            let looks = looks.remove(&key).unwrap_or_default();
            self.judge_key(how, key, (&mine, looks), &all);
        }
        Ok(())
    }

    fn judge_key(&mut self, how: &str, key: u32, (mine, mut looks): (&[Record], Vec<Record>), all: &Deeds<'_>) {
        looks.sort_by_key(|look| look.end);
        let leaves = self.setup.mode == Mode::Cache && key != GROUP_KEY;
        let mut history = self.histories.remove(&key).unwrap_or_else(History::new);
        for look in looks {
            if let Err(may) = history.saw(&look, mine, leaves, &mut self.tally) {
                let came = body::name(look.version);
                let (thing, trail) = (
                    if key == GROUP_KEY { "the group's settings" } else { "key" },
                    history.trail(self.number, mine, &look),
                );
                self.fault(how, format!("{thing} {key} brought {came}, not {may}\n{trail}"));
                break;
            }
        }
        let is_durable = |deed: &&Record| all.is_durable(deed, self.wish.grace);
        self.tally.durable += mine.iter().filter(is_durable).count() as u64;
        history.died(self.number, mine, all, self.wish.grace);
        self.histories.insert(key, history);
    }

    /// What an opening found. A kill damages nothing, and no volume starts empty for it.
    fn opened(&mut self, how: &str, record: &Record) {
        self.tally.damage += u64::from(record.version);
        let due = self.histories.values().filter(|history| history.is_due()).count();
        if record.key != 0 && due > 0 {
            let receipt = std::fs::read_to_string(self.folder.join(format!("receipt-{:04}", self.number)));
            self.fault(how, format!("a volume started empty, with {due} keys due: {}", receipt.unwrap_or_default()));
        }
    }

    /// What must not be, unless it is something of which a kill left a part, and that was promised to no caller.
    fn bad(&mut self, how: &str, record: &Record, mine: &[Record]) -> io::Result<()> {
        let overlaps = |deed: &Record| deed.start < record.end && (deed.end == 0 || deed.end > record.start);
        let overlapping = mine.iter().any(overlaps);
        let is_before = !mine.iter().any(|deed| deed.start < record.end);
        let history = self.histories.entry(record.key).or_insert_with(History::new);
        let may_be_torn = is_before && !history.is_due();
        let trail = history.trail(self.number, mine, record);
        let path = self.folder.join(format!("bad-{:04}-{}", self.number, record.version));
        let text = std::fs::read_to_string(path)?;
        if may_be_torn && record.how == How::Failed && text.contains("damaged") {
            self.tally.torn += 1;
        } else {
            let with = if overlapping { ", while it was written" } else { "" };
            self.fault(how, format!("key {}{with}: {text}\n{trail}", record.key));
        }
        Ok(())
    }
}

/// Waits for a child to end; kills it when the time is up.
fn wait(child: &mut Child, longest: Duration) -> io::Result<Option<ExitStatus>> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok(Some(status));
        }
        if began.elapsed() > longest {
            child.kill()?;
            child.wait()?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}
