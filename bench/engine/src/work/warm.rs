//! Warm: how soon a cache that was killed at work is what it was. A process fills it, asks for objects by Zipf's law
//! until memory has settled, notes how many gets it answers and how fast, and goes on until it is killed; another one
//! opens what is left and asks on.

use std::{
    collections::VecDeque,
    fs,
    io::Write,
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use rand::{SeedableRng, rngs::SmallRng};
use serde::{Deserialize, Serialize};

use super::{Figures, Job, get_right, load, reopen::READY};
use crate::{
    data::{Chooser, Data, key},
    engines::Engine,
};

/// Gets that are looked back on.
const WINDOW: usize = 1000;
/// Longest wait for the former rates: so much, and so many times the time that they were measured for.
const PATIENCE: Duration = Duration::from_secs(60);
const PATIENCE_TIMES: u32 = 10;
/// What counts as being back.
const BACK: f64 = 0.9;

/// What the process that is killed leaves for the next one, beside the store.
#[derive(Serialize, Deserialize)]
struct Former {
    hit_ratio: f64,
    gets_per_second: f64,
}

/// Asks for one object after the other, and puts what was missing.
struct Client<'a> {
    engine: &'a dyn Engine,
    data: &'a Data,
    chooser: Chooser,
    random: SmallRng,
}

impl<'a> Client<'a> {
    fn new(engine: &'a dyn Engine, data: &'a Data, objects: u64, seed: u64) -> Self {
        let chooser = Chooser::zipf(objects, 0.9);
        Self { engine, data, chooser, random: SmallRng::seed_from_u64(seed) }
    }

    fn ask(&mut self) -> Result<bool> {
        let id = self.chooser.next(&mut self.random);
        let found = get_right(self.engine, self.data, id)?;
        if !found {
            self.engine.put(&key(id), self.data.body(id, 0))?;
        }
        Ok(found)
    }

    /// Asks for as long as this; how many gets there were, and how many were answered.
    fn ask_for(&mut self, time: Duration) -> Result<(u64, u64)> {
        let end = Instant::now() + time;
        let (mut gets, mut hits) = (0, 0);
        while Instant::now() < end {
            gets += 1;
            hits += u64::from(self.ask()?);
        }
        Ok((gets, hits))
    }
}

pub(super) fn fill_and_work(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    load::put_all(engine, data, job.objects)?;
    let mut client = Client::new(engine, data, job.objects, 1);
    client.ask_for(job.time * 2)?;
    let (gets, hits) = client.ask_for(job.time)?;
    let former = Former { hit_ratio: hits as f64 / gets as f64, gets_per_second: gets as f64 / job.time.as_secs_f64() };
    fs::write(job.config.folder.join("former.json"), serde_json::to_vec(&former)?)?;
    println!("{READY}");
    std::io::stdout().flush()?;
    loop {
        client.ask()?;
    }
}

pub(super) fn come_back(open: impl Fn() -> Result<Box<dyn Engine>>, data: &Data, job: &Job) -> Result<Figures> {
    let former = fs::read(job.config.folder.join("former.json")).context("what the killed process noted")?;
    let former: Former = serde_json::from_slice(&former)?;
    let patience = PATIENCE.min(job.time * PATIENCE_TIMES);
    let begin = Instant::now();
    let engine = open()?;
    let opened = begin.elapsed();
    let mut client = Client::new(&*engine, data, job.objects, 2);
    let mut window = VecDeque::with_capacity(WINDOW);
    let (mut first, mut hits_back, mut speed_back, mut hits) = (None, None, None, 0);
    while begin.elapsed() < patience && (hits_back.is_none() || speed_back.is_none()) {
        let asked = begin.elapsed();
        let hit = client.ask()?;
        let now = begin.elapsed();
        if hit {
            first.get_or_insert(now);
        }
        hits += usize::from(hit);
        window.push_back((asked, hit));
        if window.len() > WINDOW {
            let (_, oldest) = window.pop_front().context("a window")?;
            hits -= usize::from(oldest);
            let since = window.front().context("a window")?.0;
            if hits as f64 >= BACK * former.hit_ratio * WINDOW as f64 {
                hits_back.get_or_insert(now);
            }
            if WINDOW as f64 / (now - since).as_secs_f64() >= BACK * former.gets_per_second {
                speed_back.get_or_insert(now);
            }
        }
    }
    let ms = |time: Option<Duration>| time.unwrap_or(patience).as_secs_f64() * 1e3;
    Ok(Figures::from([
        ("1 open ms".into(), ms(Some(opened))),
        ("2 first hit ms".into(), ms(first)),
        ("3 90% of the former hit ratio ms".into(), ms(hits_back)),
        ("4 90% of the former gets/s ms".into(), ms(speed_back)),
        ("5 former hit %".into(), 100.0 * former.hit_ratio),
        ("6 former gets/s".into(), former.gets_per_second),
    ]))
}
