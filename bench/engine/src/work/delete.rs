//! Delete: everything is put, then deleted in a scattered order by one thread, and flushed; none of it is durable
//! before the flush.

use anyhow::Result;
use bench_common::usage::Usage;

use super::{Figures, Job, load};
use crate::{
    data::{Data, key, scattered},
    engines::Engine,
};

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    load::put_all(engine, data, job.objects)?;
    let before = Usage::now();
    for number in 0..job.objects {
        engine.delete(&key(scattered(number, job.objects)))?;
    }
    engine.flush()?;
    let used = before.until_now();
    let deletes = job.objects as f64;
    Ok(Figures::from([
        ("1 deletes/s".into(), deletes / used.seconds),
        ("2 CPU us/op".into(), used.cpu * 1e6 / deletes),
        ("3 KB read/delete".into(), used.read / deletes / 1e3),
    ]))
}
