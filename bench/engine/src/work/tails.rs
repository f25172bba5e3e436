//! Gets while a checkpoint is written, and while none is: what it costs readers.
//!
//! Steps: tiny objects are put, so many that a checkpoint takes its time → for four times the time new objects of web
//! sizes are put at a steady rate, and tiny ones are read from the device beside. A get counts for the checkpoint that
//! wrote anything within [`NEAR`] before its end.

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Context, Result, ensure};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{Figures, Job, Seen, get_once, load, probe};
use crate::{
    data::{Data, Profile, key},
    engines::Engine,
};

/// Puts a second.
const RATE: f64 = 15_000.0;
const READERS: u64 = 4;
const NEAR: Duration = Duration::from_millis(20);

struct Load<'a> {
    engine: &'a dyn Engine,
    tiny: &'a Data,
    objects: u64,
    begin: Instant,
    /// When a checkpoint was seen to have written last, in ns from the beginning.
    written: AtomicU64,
    stop: AtomicBool,
}

pub(super) fn run(engine: &dyn Engine, tiny: &Data, job: &Job) -> Result<Figures> {
    load::put_all(engine, tiny, job.objects)?;
    let load = Load {
        engine,
        tiny,
        objects: job.objects,
        begin: Instant::now(),
        written: AtomicU64::new(0),
        stop: AtomicBool::new(false),
    };
    probe::beside(&job.config.folder, || load.measured(4 * job.time))
}

impl Load<'_> {
    fn measured(&self, time: Duration) -> Result<Figures> {
        thread::scope(|scope| {
            let watching = scope.spawn(|| self.watch());
            let writing = scope.spawn(|| self.write());
            let reading: Vec<_> = (0..READERS).map(|seed| scope.spawn(move || self.read(seed))).collect();
            thread::sleep(time);
            self.stop.store(true, Relaxed);
            let (mut without, mut during) = (Seen::new(), Seen::new());
            for reader in reading {
                let seen = reader.join().expect("a reader panicked")?;
                without.merge(&seen[0]);
                during.merge(&seen[1]);
            }
            let puts = writing.join().expect("the writer panicked")?;
            let share = watching.join().expect("the watch panicked")?;
            ensure!(without.wrong + during.wrong == 0, "gets returned bytes of something else");
            let micros = |seen: &Seen, quantile| seen.latency.value_at_quantile(quantile) as f64;
            let (quiet, busy) = (micros(&without, 0.999).max(1.0), micros(&during, 0.999));
            Ok(Figures::from([
                ("0 puts/s".into(), puts as f64 / time.as_secs_f64()),
                ("1 gets/s".into(), (without.gets() + during.gets()) as f64 / time.as_secs_f64()),
                ("2 % of the time".into(), 100.0 * share),
                ("3 p99 us without".into(), micros(&without, 0.99)),
                ("4 p99 us with".into(), micros(&during, 0.99)),
                ("5 p99.9 us without".into(), quiet),
                ("6 p99.9 us with".into(), busy),
                ("7 p99.9 with/without".into(), busy / quiet),
                ("8 longest get ms with".into(), during.latency.max() as f64 / 1e3),
            ]))
        })
    }

    fn now(&self) -> u64 {
        self.begin.elapsed().as_nanos() as u64
    }

    fn is_checkpoint(&self) -> bool {
        let written = self.written.load(Relaxed);
        written > 0 && self.now().saturating_sub(written) < NEAR.as_nanos() as u64
    }

    /// Watches for checkpoints; for what part of the time there was one.
    fn watch(&self) -> Result<f64> {
        let bytes = || self.engine.checkpointed().context("this engine tells of no checkpoints");
        let (mut before, mut looks, mut met) = (bytes()?, 0, 0);
        while !self.stop.load(Relaxed) {
            thread::sleep(Duration::from_millis(2));
            let now = bytes()?;
            if now != before {
                self.written.store(self.now(), Relaxed);
                before = now;
            }
            looks += 1;
            met += u32::from(self.is_checkpoint());
        }
        Ok(f64::from(met) / f64::from(looks.max(1)))
    }

    fn write(&self) -> Result<u64> {
        let (web, begin, mut puts) = (Data::new(Profile::Web), Instant::now(), 0);
        while !self.stop.load(Relaxed) {
            let due = begin.elapsed().as_secs_f64() * RATE;
            if puts as f64 >= due {
                thread::sleep(Duration::from_millis(1));
                continue;
            }
            let id = self.objects + puts;
            self.engine.put(&key(id), web.body(id, 0))?;
            puts += 1;
        }
        Ok(puts)
    }

    /// Gets, without a checkpoint and with one.
    fn read(&self, seed: u64) -> Result<[Seen; 2]> {
        let (mut random, mut seen) = (SmallRng::seed_from_u64(seed), [Seen::new(), Seen::new()]);
        while !self.stop.load(Relaxed) {
            let id = random.random_range(0..self.objects);
            let begin = Instant::now();
            let (found, right) = get_once(self.engine, self.tiny, id)?;
            seen[usize::from(self.is_checkpoint())].note(begin.elapsed(), found, right);
        }
        Ok(seen)
    }
}
