//! A full device: new objects come as fast as the engine takes them, the oldest must go, and readers ask beside.
//!
//! Steps: twice the device's capacity is put, so that each put has to make room → for a quarter of the time nothing is
//! counted → writers put objects that are new, each at once after the other; readers get what was put lately. What the
//! longest put took stands in the report: a stall of the engine is a stall of its writers.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::Result;
use bench_common::usage::Usage;
use hdrhistogram::Histogram;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{Figures, Job, Seen, load, probe, timed_get};
use crate::{
    data::{Data, KEY_LEN, key},
    engines::Engine,
};

/// Puts of one writer.
struct Puts {
    /// In ns: a put into memory takes less than a microsecond.
    latency: Histogram<u64>,
    bytes: u64,
}

struct Load<'a> {
    engine: &'a dyn Engine,
    data: &'a Data,
    /// Number of the next new object.
    next: AtomicU64,
    /// Objects that fit on half of the device, and are read.
    recent: u64,
    stop: AtomicBool,
}

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job, writers: usize, readers: usize) -> Result<Figures> {
    load::put_all(engine, data, job.objects)?;
    let load =
        Load { engine, data, next: AtomicU64::new(job.objects), recent: job.objects / 4, stop: AtomicBool::new(false) };
    load.round(job.time / 4, writers, readers)?;
    probe::beside(&job.config.folder, || load.measured(job.time, writers, readers))
}

impl Load<'_> {
    fn measured(&self, time: Duration, writers: usize, readers: usize) -> Result<Figures> {
        let before = Usage::now();
        let (puts, gets) = self.round(time, writers, readers)?;
        let used = before.until_now();
        let micros = |quantile| puts.latency.value_at_quantile(quantile) as f64 / 1e3;
        let mut figures = Figures::from([
            ("0 puts/s".into(), puts.latency.len() as f64 / used.seconds),
            ("1 put p99 us".into(), micros(0.99)),
            ("1 put p99.9 us".into(), micros(0.999)),
            ("2 longest put ms".into(), puts.latency.max() as f64 / 1e6),
            ("7 cores busy".into(), used.cpu / used.seconds),
            ("8 bytes written/byte put".into(), used.written / puts.bytes as f64),
        ]);
        if readers > 0 {
            let micros = |quantile| gets.latency.value_at_quantile(quantile) as f64;
            anyhow::ensure!(gets.wrong == 0, "{} gets returned bytes of something else", gets.wrong);
            figures.extend([
                ("3 gets/s".into(), gets.gets() as f64 / used.seconds),
                ("4 get p99 us".into(), micros(0.99)),
                ("4 get p99.9 us".into(), micros(0.999)),
                ("5 longest get ms".into(), gets.latency.max() as f64 / 1e3),
                ("6 hit %".into(), 100.0 * gets.hits as f64 / gets.gets() as f64),
            ]);
        }
        Ok(figures)
    }

    /// All writers and readers for so long.
    fn round(&self, time: Duration, writers: usize, readers: usize) -> Result<(Puts, Seen)> {
        self.stop.store(false, Ordering::Relaxed);
        thread::scope(|scope| {
            let writing: Vec<_> = (0..writers).map(|_| scope.spawn(|| self.write())).collect();
            let reading: Vec<_> = (0..readers as u64).map(|seed| scope.spawn(move || self.read(seed))).collect();
            thread::sleep(time);
            self.stop.store(true, Ordering::Relaxed);
            let (mut puts, mut gets) = (Puts::new(), Seen::new());
            for writer in writing {
                let one = writer.join().expect("a writer panicked")?;
                puts.latency.add(&one.latency)?;
                puts.bytes += one.bytes;
            }
            for reader in reading {
                gets.merge(&reader.join().expect("a reader panicked")?);
            }
            Ok((puts, gets))
        })
    }

    fn write(&self) -> Result<Puts> {
        let mut puts = Puts::new();
        while !self.stop.load(Ordering::Relaxed) {
            let id = self.next.fetch_add(1, Ordering::Relaxed);
            let (key, body) = (key(id), self.data.body(id, 0));
            let begin = Instant::now();
            self.engine.put(&key, body)?;
            puts.latency.saturating_record(u64::try_from(begin.elapsed().as_nanos()).unwrap_or(u64::MAX).max(1));
            puts.bytes += (body.len() + KEY_LEN) as u64;
        }
        Ok(puts)
    }

    fn read(&self, seed: u64) -> Result<Seen> {
        let (mut random, mut seen) = (SmallRng::seed_from_u64(seed), Seen::new());
        while !self.stop.load(Ordering::Relaxed) {
            let id = self.next.load(Ordering::Relaxed) - 1 - random.random_range(0..self.recent);
            timed_get(self.engine, self.data, id, &mut seen)?;
        }
        Ok(seen)
    }
}

impl Puts {
    fn new() -> Self {
        Self { latency: Histogram::new_with_bounds(1, 60_000_000_000, 3).expect("bounds in order"), bytes: 0 }
    }
}
