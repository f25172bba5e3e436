//! Get: objects at random, from threads that block or from one thread that keeps many in flight.

use std::{
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use bench_common::usage::Usage;
use rand::{SeedableRng, rngs::SmallRng};

use super::{By, Figures, Job, Seen, timed_get};
use crate::{
    data::{Chooser, Data, Key, key},
    engines::{Asker, Engine},
};

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job, in_flight: usize, by: By) -> Result<Figures> {
    let chooser = Chooser::Uniform(job.objects);
    let before = Usage::now();
    let end = Instant::now() + job.time;
    let mut seen = Seen::new();
    if !matches!(by, By::Threads) {
        let mut random = Random { data, chooser: &chooser, random: SmallRng::seed_from_u64(0), end, seen: &mut seen };
        let can = match by {
            By::Tokio => engine.gets_by_tokio(in_flight, &mut random)?,
            _ => engine.gets(in_flight, &mut random)?,
        };
        if !can {
            bail!("{} has no asynchronous get", job.engine);
        }
    } else {
        let threads: Vec<Result<Seen>> = thread::scope(|scope| {
            let run = |thread| {
                let chooser = &chooser;
                scope.spawn(move || until(end, engine, data, chooser, thread))
            };
            let handles: Vec<_> = (0..in_flight as u64).map(run).collect();
            handles.into_iter().map(|handle| handle.join().expect("a reader panicked")).collect()
        });
        for thread in threads {
            seen.merge(&thread?);
        }
    }
    seen.figures(&before.until_now())
}

fn until(end: Instant, engine: &dyn Engine, data: &Data, chooser: &Chooser, thread: u64) -> Result<Seen> {
    let mut random = SmallRng::seed_from_u64(thread);
    let mut seen = Seen::new();
    while Instant::now() < end {
        timed_get(engine, data, chooser.next(&mut random), &mut seen)?;
    }
    Ok(seen)
}

struct Random<'a> {
    data: &'a Data,
    chooser: &'a Chooser,
    random: SmallRng,
    end: Instant,
    seen: &'a mut Seen,
}

impl Asker for Random<'_> {
    fn next(&mut self) -> Option<(u64, Key)> {
        let id = self.chooser.next(&mut self.random);
        (Instant::now() < self.end).then(|| (id, key(id)))
    }

    fn answer(&mut self, id: u64, took: Duration, body: Option<&[u8]>) {
        let right = body.is_some_and(|body| self.data.is_body(id, 0, body));
        self.seen.note(took, body.is_some(), right);
    }
}
