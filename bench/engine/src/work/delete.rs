//! Delete: everything is put, then deleted in a scattered order by one thread, half of it one after the other, half by
//! a thousand a call; flushed after each half, and not durable before.

use anyhow::Result;
use bench_common::usage::Usage;

use super::{Figures, Job, load};
use crate::{
    data::{Data, key, scattered},
    engines::Engine,
};

/// Keys of one call.
const A_CALL: usize = 1000;

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    load::put_all(engine, data, job.objects)?;
    let before = Usage::now();
    let half = job.objects / 2;
    for number in 0..half {
        engine.delete(&key(scattered(number, job.objects)))?;
    }
    engine.flush()?;
    let one = before.until_now();
    let before = Usage::now();
    let rest: Vec<_> = (half..job.objects).map(|number| key(scattered(number, job.objects))).collect();
    for keys in rest.chunks(A_CALL) {
        engine.delete_many(&keys.iter().map(|key| &key[..]).collect::<Vec<_>>())?;
    }
    engine.flush()?;
    let many = before.until_now();
    let rest = rest.len() as f64;
    Ok(Figures::from([
        ("1 deletes/s".into(), half as f64 / one.seconds),
        ("2 CPU us/op".into(), one.cpu * 1e6 / half as f64),
        ("3 KB read/delete".into(), one.read / half as f64 / 1e3),
        ("4 deletes/s, 1,000 a call".into(), rest / many.seconds),
        ("5 CPU us/op, 1,000 a call".into(), many.cpu * 1e6 / rest),
    ]))
}
