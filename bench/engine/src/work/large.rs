//! Large objects: put one after the other from one thread and flushed, then read whole, in another order, from the
//! device; what was just put is out of memory by then, for it is far more than an engine is given.

use std::time::Instant;

use anyhow::{Result, ensure};
use bench_common::{limit, usage::Usage};

use super::{Figures, Job, get_right, load};
use crate::{data::Data, engines::Engine};

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    let (began, before) = (Instant::now(), Usage::now());
    let bytes = load::put_all(engine, data, job.objects)?;
    let (put, written) = (began.elapsed().as_secs_f64(), before.until_now().written);
    limit::drop_page_cache();
    let (began, before) = (Instant::now(), Usage::now());
    let mut found = 0;
    for number in 0..job.objects {
        // The prime of `Chooser`.
        found += u64::from(get_right(engine, data, number.wrapping_mul(2_147_483_647) % job.objects)?);
    }
    let got = began.elapsed().as_secs_f64();
    ensure!(found * 10 >= job.objects * 9, "{found} of {} are there", job.objects);
    let share = found as f64 / job.objects as f64;
    Ok(Figures::from([
        ("1 MB/s put".into(), bytes / put / 1e6),
        ("2 bytes written/byte put".into(), written / bytes),
        ("3 MB/s read".into(), bytes * share / got / 1e6),
        ("4 CPU us/MB read".into(), before.until_now().cpu * 1e12 / (bytes * share)),
        ("5 hit %".into(), 100.0 * share),
    ]))
}
