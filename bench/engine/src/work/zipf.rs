//! Zipf: nine gets to one put from several threads, popularity by Zipf's law with exponent 0.9.
//!
//! With `fill` this is a cache at its steady state: everything was put once into a device that holds half of it,
//! and whatever a get misses is put, as a cache would fetch it.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::Instant,
};

use anyhow::Result;
use bench_common::usage::Usage;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{Figures, Job, Seen, load, timed_get};
use crate::{
    data::{Chooser, Data, KEY_LEN, key},
    engines::Engine,
};

struct Mix<'a> {
    engine: &'a dyn Engine,
    data: &'a Data,
    chooser: Chooser,
    fill: bool,
    /// Bytes put since the count began.
    bytes: AtomicU64,
    stop: AtomicBool,
}

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job, threads: usize, fill: bool) -> Result<Figures> {
    if fill {
        load::put_all(engine, data, job.objects)?;
    }
    let chooser = Chooser::zipf(job.objects, 0.9);
    let mix = Mix { engine, data, chooser, fill, bytes: AtomicU64::new(0), stop: AtomicBool::new(false) };
    // Memory fills and settles before anything is counted.
    round(&mix, job, threads, 0)?;
    mix.bytes.store(0, Ordering::Relaxed);
    let before = Usage::now();
    let seen = round(&mix, job, threads, 1)?;
    if fill {
        engine.flush()?;
    }
    let used = before.until_now();
    let mut figures = seen.figures(&used)?;
    let bytes = mix.bytes.load(Ordering::Relaxed) as f64;
    figures.insert("7 bytes written/byte put".into(), used.written / bytes);
    Ok(figures)
}

fn round(mix: &Mix<'_>, job: &Job, threads: usize, round: u64) -> Result<Seen> {
    mix.stop.store(false, Ordering::Relaxed);
    let seen: Vec<Result<Seen>> = thread::scope(|scope| {
        let run = |thread| scope.spawn(move || mix.until_stopped(thread * 2 + round));
        let handles: Vec<_> = (0..threads as u64).map(run).collect();
        let end = Instant::now() + job.time;
        // A thread that failed ends the round early.
        while Instant::now() < end && !handles.iter().any(thread::ScopedJoinHandle::is_finished) {
            thread::sleep(job.time / 50);
        }
        mix.stop.store(true, Ordering::Relaxed);
        handles.into_iter().map(|handle| handle.join().expect("a thread panicked")).collect()
    });
    let mut all = Seen::new();
    for thread in seen {
        all.merge(&thread?);
    }
    Ok(all)
}

impl Mix<'_> {
    fn until_stopped(&self, seed: u64) -> Result<Seen> {
        let mut random = SmallRng::seed_from_u64(seed);
        let mut seen = Seen::new();
        while !self.stop.load(Ordering::Relaxed) {
            let id = self.chooser.next(&mut random);
            let get = random.random_bool(0.9);
            let hit = get && timed_get(self.engine, self.data, id, &mut seen)?;
            if !get || (self.fill && !hit) {
                let body = self.data.body(id, 0);
                self.engine.put(&key(id), body)?;
                self.bytes.fetch_add((body.len() + KEY_LEN) as u64, Ordering::Relaxed);
            }
        }
        Ok(seen)
    }
}
