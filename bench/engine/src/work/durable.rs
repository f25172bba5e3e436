//! Durable: every put is durable before it returns, from one writer or from several at once.

use std::{
    sync::atomic::{AtomicU64, Ordering},
    thread,
    time::Instant,
};

use anyhow::Result;
use bench_common::usage::Usage;

use super::{Figures, Job, Seen};
use crate::{
    data::{Data, KEY_LEN, key},
    engines::Engine,
};

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job, writers: usize) -> Result<Figures> {
    let next = AtomicU64::new(0);
    let before = Usage::now();
    let end = Instant::now() + job.time;
    let write = || -> Result<(Seen, usize)> {
        let (mut seen, mut bytes) = (Seen::new(), 0);
        while Instant::now() < end {
            let id = next.fetch_add(1, Ordering::Relaxed);
            let body = data.body(id, 0);
            let begin = Instant::now();
            engine.put(&key(id), body)?;
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
    let (mut all, mut bytes) = (Seen::new(), 0.0);
    for part in parts {
        let (seen, own) = part?;
        all.merge(&seen);
        bytes += own as f64;
    }
    let puts = all.gets() as f64;
    Ok(Figures::from([
        ("1 durable puts/s".into(), puts / used.seconds),
        ("2 CPU us/put".into(), used.cpu * 1e6 / puts),
        ("3 p50 us".into(), all.latency.value_at_quantile(0.5) as f64),
        ("4 p99 us".into(), all.latency.value_at_quantile(0.99) as f64),
        ("5 bytes written/byte put".into(), used.written / bytes),
    ]))
}
