//! Load: every object once, in order, from one thread, flushed at the end.

use anyhow::Result;
use bench_common::{machine, usage::Usage};

use super::{Figures, Job};
use crate::{
    data::{Data, KEY_LEN, key},
    engines::Engine,
};

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job) -> Result<Figures> {
    let device = machine::block_device(&job.config.folder).ok();
    let before_device = device.as_ref().map_or(0, machine::BlockDevice::written);
    let before = Usage::now();
    let bytes = put_all(engine, data, job.objects)?;
    let used = before.until_now();
    let puts = job.objects as f64;
    let mut figures = Figures::from([
        ("1 puts/s".into(), puts / used.seconds),
        ("2 MB/s".into(), bytes / used.seconds / 1e6),
        ("3 CPU us/put".into(), used.cpu * 1e6 / puts),
        ("4 bytes written/byte put".into(), used.written / bytes),
    ]);
    if let Some(device) = device {
        // Journal and other processes included: on a busy machine, too much.
        let written = device.written().saturating_sub(before_device) as f64;
        figures.insert("5 the same, whole device".into(), written / bytes);
    }
    Ok(figures)
}

/// Puts every object and flushes; how many bytes that were.
pub(super) fn put_all(engine: &dyn Engine, data: &Data, objects: u64) -> Result<f64> {
    let mut bytes = 0;
    for id in 0..objects {
        let body = data.body(id, 0);
        engine.put(&key(id), body)?;
        bytes += body.len() + KEY_LEN;
    }
    engine.flush()?;
    Ok(bytes as f64)
}
