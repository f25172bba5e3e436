//! Durable: every put, or every delete, is durable before it returns, from one writer or from several at once: threads,
//! or tasks of one thread.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::{Duration, Instant},
};

use anyhow::{Result, bail};
use bench_common::usage::{Usage, Used};
use serde::{Deserialize, Serialize};

use super::{Figures, Job, Seen};
use crate::{
    data::{Data, KEY_LEN, Key, key},
    engines::{Engine, Putter},
};

/// What the writers do.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Verb {
    /// Put what is not there.
    Put,
    /// Delete what is there, while there is any.
    Delete,
}

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job, writers: usize, verb: Verb) -> Result<Figures> {
    let next = AtomicU64::new(0);
    let before = Usage::now();
    let end = Instant::now() + job.time;
    let write = || -> Result<(Seen, usize)> {
        let (mut seen, mut bytes) = (Seen::new(), 0);
        while Instant::now() < end {
            let id = next.fetch_add(1, Ordering::Relaxed);
            let body = data.body(id, 0);
            let begin = Instant::now();
            match verb {
                Verb::Put => engine.put(&key(id), body)?,
                Verb::Delete if id < job.objects => engine.delete(&key(id))?,
                Verb::Delete => break,
            }
            seen.note(begin.elapsed(), true, true);
            bytes += body.len() + KEY_LEN;
        }
        Ok((seen, bytes))
    };
    let parts: Vec<_> = thread::scope(|scope| {
        let handles: Vec<_> = (0..writers).map(|_| scope.spawn(write)).collect();
        handles.into_iter().map(|handle| handle.join().expect("a writer panicked")).collect()
    });
    let used = before.until_now();
    let (mut all, mut bytes) = (Seen::new(), 0);
    for part in parts {
        let (seen, own) = part?;
        all.merge(&seen);
        bytes += own;
    }
    Ok(figures(verb, &used, &all, bytes))
}

/// The same from tasks of one thread, where the engine can.
pub(super) fn run_tasks(engine: &dyn Engine, data: &Data, job: &Job, writers: usize) -> Result<Figures> {
    let before = Usage::now();
    let mut run = Run { data, end: Instant::now() + job.time, next: 0, seen: Seen::new(), bytes: 0 };
    if !engine.puts(writers, &mut run)? {
        bail!("{} has no asynchronous put", job.engine);
    }
    Ok(figures(Verb::Put, &before.until_now(), &run.seen, run.bytes))
}

struct Run<'a> {
    data: &'a Data,
    end: Instant,
    next: u64,
    seen: Seen,
    bytes: usize,
}

impl<'a> Putter<'a> for Run<'a> {
    fn next(&mut self) -> Option<(Key, &'a [u8])> {
        let id = self.next;
        self.next += 1;
        (Instant::now() < self.end).then(|| (key(id), self.data.body(id, 0)))
    }

    fn answer(&mut self, bytes: usize, took: Duration) {
        self.seen.note(took, true, true);
        self.bytes += bytes;
    }
}

fn figures(verb: Verb, used: &Used, all: &Seen, bytes: usize) -> Figures {
    let done = all.gets() as f64;
    let of_byte = if verb == Verb::Put { "5 bytes written/byte put" } else { "5 bytes written/byte deleted" };
    Figures::from([
        (format!("1 durable {verb:?}s/s").to_lowercase(), done / used.seconds),
        (format!("2 CPU us/{verb:?}").replace("/P", "/p").replace("/D", "/d"), used.cpu * 1e6 / done),
        ("3 p50 us".into(), all.latency.value_at_quantile(0.5) as f64),
        ("4 p99 us".into(), all.latency.value_at_quantile(0.99) as f64),
        (of_byte.into(), used.written / bytes as f64),
    ])
}
