//! A store near full: what lives takes nine tenths of the device, and objects at random are replaced, from one thread.
//! A put that is refused is counted, and the longest that one took: a store must say `full` soon, or not at all.

use std::time::{Duration, Instant};

use anyhow::Result;
use bench_common::usage::Usage;
use hdrhistogram::Histogram;
use rand::{Rng, SeedableRng, rngs::SmallRng};

use super::{Figures, Job, load};
use crate::{
    data::{Data, KEY_LEN, key},
    engines::Engine,
};

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    load::put_all(engine, data, job.objects)?;
    engine.flush()?;
    let mut latency = Histogram::<u64>::new_with_bounds(1, 60_000_000, 3)?;
    let (mut random, mut bytes, mut refused, mut longest_refusal) = (SmallRng::seed_from_u64(0), 0, 0, Duration::ZERO);
    let before = Usage::now();
    let end = Instant::now() + job.time;
    while Instant::now() < end {
        let id = random.random_range(0..job.objects);
        // As long as the one before: what lives stays nine tenths.
        let body = data.body(id, 0);
        let begin = Instant::now();
        match engine.put(&key(id), body) {
            Ok(()) => {
                latency.saturating_record(begin.elapsed().as_micros() as u64);
                bytes += body.len() + KEY_LEN;
            }
            Err(_) => {
                refused += 1;
                longest_refusal = longest_refusal.max(begin.elapsed());
            }
        }
    }
    engine.flush()?;
    let used = before.until_now();
    Ok(Figures::from([
        ("0 puts/s".into(), latency.len() as f64 / used.seconds),
        ("1 put p99 us".into(), latency.value_at_quantile(0.99) as f64),
        ("2 longest put ms".into(), latency.max() as f64 / 1e3),
        ("3 refused".into(), f64::from(refused)),
        ("4 longest refusal ms".into(), longest_refusal.as_secs_f64() * 1e3),
        ("5 cores busy".into(), used.cpu / used.seconds),
        ("6 bytes written/byte put".into(), used.written / bytes as f64),
    ]))
}
