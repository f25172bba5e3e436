//! Churn: delete one, put one in a scattered order, until the live bytes were replaced a few times, or twelve times the
//! time of a measurement is over. What an engine saved while loading, it pays here.

use std::{fs, os::unix::fs::MetadataExt, path::Path, time::Instant};

use anyhow::Result;
use bench_common::usage::Usage;

use super::{Figures, Job};
use crate::{
    data::{Data, KEY_LEN, key, scattered},
    engines::Engine,
};

pub(super) fn run(engine: &dyn Engine, data: &Data, job: &Job, age: f64) -> Result<Figures> {
    // Sizes differ by version, and a few large objects are much of a small population: what lives is counted on.
    let mut live = data.total(job.objects) as f64;
    let size = |id, version| (data.len(id, version) + KEY_LEN) as f64;
    let before = Usage::now();
    let (mut bytes, mut puts) = (0.0, 0_u64);
    let end = Instant::now() + job.time * 12;
    while bytes < age * live && Instant::now() < end {
        let id = scattered(puts, job.objects);
        let version = 1 + (puts / job.objects) as u32;
        let body = data.body(id, version);
        engine.delete(&key(id))?;
        engine.put(&key(id), body)?;
        bytes += size(id, version);
        live += size(id, version) - size(id, version - 1);
        puts += 1;
    }
    engine.flush()?;
    let used = before.until_now();
    let taken = engine.taken()?.map_or_else(|| allocated(&job.config.folder), Ok)?;
    Ok(Figures::from([
        ("0 age".into(), bytes / live),
        ("1 replaced/s".into(), puts as f64 / used.seconds),
        ("2 CPU us/op".into(), used.cpu * 1e6 / puts as f64),
        ("3 bytes written/byte put".into(), used.written / bytes),
        ("4 device bytes/live byte".into(), taken as f64 / live),
    ]))
}

/// Bytes that the files under a folder occupy.
pub(super) fn allocated(folder: &Path) -> Result<u64> {
    let mut bytes = 0;
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let metadata = entry.metadata()?;
        bytes += if metadata.is_dir() { allocated(&entry.path())? } else { metadata.blocks() * 512 };
    }
    Ok(bytes)
}
