//! Large objects: put one after the other from one thread and flushed, then read whole, in another order, from the
//! device; what was just put is out of memory by then, for it is far more than an engine is given.

use anyhow::{Result, ensure};
use bench_common::{limit, usage::Usage};

use super::{Figures, Job, get_right, load};
use crate::{
    data::{Data, scattered},
    engines::Engine,
};

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    let before = Usage::now();
    let bytes = load::put_all(engine, data, job.objects)?;
    let put = before.until_now();
    limit::drop_page_cache();
    let (before, mut found) = (Usage::now(), 0);
    for number in 0..job.objects {
        found += u64::from(get_right(engine, data, scattered(number, job.objects))?);
    }
    let got = before.until_now();
    ensure!(found * 10 >= job.objects * 9, "{found} of {} are there", job.objects);
    let share = found as f64 / job.objects as f64;
    Ok(Figures::from([
        ("1 MB/s put".into(), bytes / put.seconds / 1e6),
        ("2 bytes written/byte put".into(), put.written / bytes),
        ("3 MB/s read".into(), bytes * share / got.seconds / 1e6),
        ("4 CPU us/MB read".into(), got.cpu * 1e12 / (bytes * share)),
        ("5 hit %".into(), 100.0 * share),
    ]))
}
