//! Reopen: what a process finds that was killed while it held millions of small objects, how soon, and what each of
//! them costs in memory.

use std::{
    io::Write,
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use bench_common::usage::anonymous_memory;

use super::{Figures, Job, get_right, load};
use crate::{data::Data, engines::Engine};

/// What the parent waits for before it kills.
pub(crate) const READY: &str = "ready";

/// Objects that are looked for; few enough that looking takes no time of note.
const SAMPLE: u64 = 1000;

/// Longest wait for everything to be there: twice what it should take.
const PATIENCE: Duration = Duration::from_secs(20);

/// After this an opening is over, and its memory is what the objects need.
const SETTLING: Duration = Duration::from_secs(3);

pub(super) fn fill_and_wait(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    load::put_all(engine, data, job.objects)?;
    println!("{READY}");
    std::io::stdout().flush()?;
    loop {
        thread::sleep(Duration::from_secs(60));
    }
}

pub(super) fn reopen(open: impl Fn() -> Result<Box<dyn Engine>>, data: &Data, job: &Job) -> Result<Figures> {
    let begin = Instant::now();
    let engine = open()?;
    let (mut opened, mut last) = (None, Duration::ZERO);
    let mut missing: Vec<u64> = (0..SAMPLE.min(job.objects)).map(|number| number * 7919 % job.objects).collect();
    while !missing.is_empty() && begin.elapsed() < PATIENCE {
        let mut still = Vec::new();
        for id in missing {
            if get_right(&*engine, data, id)? {
                last = begin.elapsed();
                opened.get_or_insert(last);
            } else {
                still.push(id);
            }
        }
        missing = still;
    }
    // What an opening took to merge is given back when it is over, which no caller waits for.
    thread::sleep(SETTLING);
    let never = PATIENCE + Duration::from_secs(1);
    let mut figures = Figures::from([
        ("1 first get ms".into(), opened.unwrap_or(never).as_secs_f64() * 1e3),
        ("2 last found ms".into(), last.as_secs_f64() * 1e3),
        ("3 missing %".into(), 100.0 * missing.len() as f64 / SAMPLE.min(job.objects) as f64),
        (MEMORY.into(), anonymous_memory() as f64 / 1e6),
    ]);
    if let Some(memory) = engine.memory() {
        figures.insert("6 index bytes/object, own count".into(), memory.index as f64 / job.objects as f64);
        figures.insert("7 MB in use, own count".into(), memory.all as f64 / 1e6);
    }
    Ok(figures)
}

/// Name of the figure that [`idle`] and [`reopen`] share.
pub(crate) const MEMORY: &str = "4 anonymous MB";

pub(super) fn idle(open: impl Fn() -> Result<Box<dyn Engine>>) -> Result<Figures> {
    let _engine = open()?;
    Ok(Figures::from([(MEMORY.into(), anonymous_memory() as f64 / 1e6)]))
}
