//! One piece of work on one engine, done in a process of its own: its memory, processor time and device bytes are
//! then its alone, it can be limited, and it can be killed.

pub(crate) mod bare;
mod churn;
mod delete;
pub(crate) mod durable;
mod full;
mod get;
mod large;
mod load;
mod near;
mod probe;
pub(crate) mod reopen;
mod site;
mod tails;
mod warm;
mod zipf;

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use anyhow::{Context, Result};
use bench_common::{limit, usage::Used};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::{
    data::{Data, Profile, key},
    engines::{self, Config, Engine},
};

/// What to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) enum Work {
    /// Put every object once, one after the other, and flush.
    Load,
    /// Get objects at random for a while.
    Get { in_flight: usize, by: By },
    /// Get and put by Zipf's law; with `fill`, put what was missed, and load everything first.
    Zipf { threads: usize, fill: bool },
    /// Put new objects into a full device, and get the recent ones beside.
    Full { writers: usize, readers: usize },
    /// Replace objects of a store near full.
    Near,
    /// Get while checkpoints are written, and while none is.
    Tails,
    /// Put everything, then delete it.
    Delete,
    /// Put large objects, then read them from the device.
    Large,
    /// Delete one, put one, until `age` times the live bytes were replaced.
    Churn { age: f64 },
    /// Put or delete durably from this many threads.
    Durable { writers: usize, verb: durable::Verb },
    /// Put durably from this many tasks of one thread.
    DurableTasks { writers: usize },
    /// Put every object, flush, say so, and wait to be killed.
    Wait,
    /// Open what a killed process left.
    Reopen,
    /// Put every object, get them until memory has settled, say so, and go on until killed.
    Ask,
    /// Open what a process left that was killed at work, and get until it is as before.
    ComeBack,
    /// Write, rewrite, read and go through all objects, as a paper did.
    Site,
    /// Open and do nothing.
    Idle,
}

/// What keeps gets in flight.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(crate) enum By {
    /// Threads that block.
    Threads,
    /// Tasks of one thread, in the way that an engine likes best.
    Tasks,
    /// Tasks of a tokio runtime of one thread, which knows nothing of the engine.
    Tokio,
}

/// An order to a process.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Job {
    pub(crate) engine: String,
    pub(crate) config: Config,
    pub(crate) work: Work,
    pub(crate) profile: Profile,
    pub(crate) objects: u64,
    pub(crate) time: Duration,
    /// Longest that the job may take; an engine that hangs is a failure with a name.
    pub(crate) patience: Duration,
    /// Where to join a memory limit.
    pub(crate) door: Option<PathBuf>,
}

/// Figures by name. A name begins with the place of its column.
pub(crate) type Figures = BTreeMap<String, f64>;

/// Does the job in this process and prints its figures as one line of JSON.
pub(crate) fn run(job: &Job) -> Result<()> {
    if let Some(door) = &job.door {
        limit::join(door).with_context(|| format!("joining {}", door.display()))?;
    }
    let patience = job.patience;
    std::thread::spawn(move || {
        std::thread::sleep(patience);
        eprintln!("not done after {} s", patience.as_secs());
        std::process::exit(124);
    });
    let data = Data::new(job.profile);
    let open = || engines::open(&job.engine, &job.config);
    let figures = match job.work {
        Work::Load => load::run(&*open()?, &data, job)?,
        Work::Get { in_flight, by } => get::run(&*open()?, &data, job, in_flight, by)?,
        Work::Zipf { threads, fill } => zipf::run(&*open()?, &data, job, threads, fill)?,
        Work::Full { writers, readers } => full::run(&*open()?, &data, job, writers, readers)?,
        Work::Near => near::run(&*open()?, &data, job)?,
        Work::Tails => tails::run(&*open()?, &data, job)?,
        Work::Delete => delete::run(&*open()?, &data, job)?,
        Work::Large => large::run(&*open()?, &data, job)?,
        Work::Churn { age } => churn::run(&*open()?, &data, job, age)?,
        Work::Durable { writers, verb } => durable::run(&*open()?, &data, job, writers, verb)?,
        Work::DurableTasks { writers } => durable::run_tasks(&*open()?, &data, job, writers)?,
        Work::Wait => reopen::fill_and_wait(&*open()?, &data, job)?,
        Work::Reopen => reopen::reopen(open, &data, job)?,
        Work::Ask => warm::fill_and_work(&*open()?, &data, job)?,
        Work::ComeBack => warm::come_back(open, &data, job)?,
        Work::Site => site::run(&*open()?, &data, job)?,
        Work::Idle => reopen::idle(open)?,
    };
    println!("{}", serde_json::to_string(&figures)?);
    Ok(())
}

/// What one thread saw of its gets.
struct Seen {
    latency: Histogram<u64>,
    hits: u64,
    misses: u64,
    wrong: u64,
}

impl Seen {
    fn new() -> Self {
        let latency = Histogram::new_with_bounds(1, 60_000_000, 2).expect("bounds in order");
        Self { latency, hits: 0, misses: 0, wrong: 0 }
    }

    fn gets(&self) -> u64 {
        self.hits + self.misses
    }

    fn note(&mut self, took: Duration, found: bool, right: bool) {
        self.latency.saturating_record(u64::try_from(took.as_micros()).unwrap_or(u64::MAX).max(1));
        match found {
            false => self.misses += 1,
            true => self.hits += 1,
        }
        self.wrong += u64::from(found && !right);
    }

    fn merge(&mut self, other: &Self) {
        self.latency.add(&other.latency).expect("the same bounds");
        self.hits += other.hits;
        self.misses += other.misses;
        self.wrong += other.wrong;
    }

    /// Figures of gets; an engine that answers wrongly has none.
    fn figures(&self, used: &Used) -> Result<Figures> {
        let gets = self.gets() as f64;
        anyhow::ensure!(self.wrong == 0, "{} of {gets} gets returned bytes of something else", self.wrong);
        Ok(Figures::from([
            ("1 gets/s".into(), gets / used.seconds),
            ("2 CPU us/op".into(), used.cpu * 1e6 / gets),
            ("3 p50 us".into(), self.latency.value_at_quantile(0.5) as f64),
            ("4 p99 us".into(), self.latency.value_at_quantile(0.99) as f64),
            ("5 KB read/get".into(), used.read / gets / 1e3),
            ("6 hit %".into(), 100.0 * self.hits as f64 / gets),
        ]))
    }
}

/// Gets one object: whether it is there, and whether it is what was put in any of these versions.
fn get_once(engine: &dyn Engine, data: &Data, id: u64) -> Result<(bool, bool)> {
    let mut right = false;
    let found = engine.get(&key(id), &mut |body| right = data.is_body(id, 0, body))?;
    Ok((found, right))
}

/// The same, timed and noted.
fn timed_get(engine: &dyn Engine, data: &Data, id: u64, seen: &mut Seen) -> Result<bool> {
    let begin = std::time::Instant::now();
    let (found, right) = get_once(engine, data, id)?;
    seen.note(begin.elapsed(), found, right);
    Ok(found)
}

/// The same, where something else than what was put is the end.
fn get_right(engine: &dyn Engine, data: &Data, id: u64) -> Result<bool> {
    let (found, right) = get_once(engine, data, id)?;
    anyhow::ensure!(!found || right, "object {id} came back with bytes of something else");
    Ok(found)
}
