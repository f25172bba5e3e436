//! The device's own ceiling, measured by fio beside the engines: same requests, same folder, same minute.

use std::{
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use serde_json::Value;

use crate::work::Figures;

/// Bytes that an engine cannot do without beside key and body: lengths, a checksum, a version.
const FRAME: usize = 64;

/// fio on one preallocated, fully written file.
pub(crate) struct Fio {
    file: PathBuf,
    size: u64,
    time: Duration,
    /// Sizes of requests that read one object each, in the sectors of a disk, as fio wants them.
    reads: String,
    /// Sizes of requests that write one object each, in blocks of 4 KiB.
    writes: String,
}

impl Fio {
    /// Nothing where fio is not installed.
    pub(crate) fn find(
        folder: &Path,
        size: u64,
        time: Duration,
        sizes: impl Iterator<Item = usize> + Clone,
    ) -> Option<Self> {
        Command::new("fio").arg("--version").output().ok().filter(|output| output.status.success())?;
        Some(Self {
            file: folder.join("fio"),
            size,
            time,
            reads: split(sizes.clone(), 512),
            writes: split(sizes, 4096),
        })
    }

    /// Sequential writing in blocks of 1 MiB: over what was written before, or once through space that is reserved.
    pub(crate) fn load(&self, written: bool) -> Result<Figures> {
        const HOW: [&str; 3] = ["--rw=write", "--bs=1M", "--iodepth=4"];
        let job = if written {
            self.run("write", &HOW)?
        } else {
            let fresh = self.file.with_extension("fresh");
            let file = format!("--filename={}", fresh.display());
            let own = ["--fallocate=native", "--overwrite=0", "--time_based=0", &file];
            let done = self.run("write", &[&HOW[..], &own].concat());
            std::fs::remove_file(fresh)?;
            done?
        };
        Ok(Figures::from([("2 MB/s".into(), number(&job, "bw_bytes")? / 1e6)]))
    }

    /// Random reads of the sizes that objects take, this many in flight.
    pub(crate) fn get(&self, in_flight: usize) -> Result<Figures> {
        let (depth, split) = (format!("--iodepth={in_flight}"), format!("--bssplit={}", self.reads));
        let job = self.run("read", &["--rw=randread", "--blockalign=512", &depth, &split])?;
        let reads = number(&job, "iops")?;
        let cpu = (number(&job, "usr_cpu")? + number(&job, "sys_cpu")?) / 100.0;
        Ok(Figures::from([
            ("1 gets/s".into(), reads),
            ("2 CPU us/op".into(), cpu * 1e6 / reads),
            ("5 KB read/get".into(), number(&job, "bw_bytes")? / reads / 1e3),
        ]))
    }

    /// Overwriting and syncing: one object at a time, or the joint batch of several writers.
    pub(crate) fn durable(&self, writers: usize) -> Result<Figures> {
        let batch = format!("--bs={}k", writers * 8);
        let split = format!("--bssplit={}", self.writes);
        let size = if writers == 1 { split } else { batch };
        let job = self.run("write", &["--rw=write", "--ioengine=psync", "--fdatasync=1", "--blockalign=4k", &size])?;
        Ok(Figures::from([("1 durable puts/s".into(), number(&job, "iops")? * writers as f64)]))
    }

    fn run(&self, side: &str, arguments: &[&str]) -> Result<Value> {
        // fio lays the file out before it begins, so that no write pays for allocation. Without `norandommap` it
        // cuts short every request that touches a block already read.
        let output = Command::new("fio")
            .args(["--name=ceiling", "--direct=1", "--overwrite=1", "--time_based", "--output-format=json"])
            .args(["--ioengine=io_uring", "--randrepeat=0", "--norandommap"])
            .arg(format!("--filename={}", self.file.display()))
            .arg(format!("--size={}", self.size))
            .arg(format!("--runtime={}ms", self.time.as_millis()))
            .args(arguments)
            .output()
            .context("fio")?;
        let text = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "fio: {}{}", text, String::from_utf8_lossy(&output.stderr));
        // Warnings may come before the JSON.
        let json: Value = serde_json::from_str(&text[text.find('{').context("fio printed no JSON")?..])?;
        let mut job = json["jobs"][0][side].clone();
        for key in ["usr_cpu", "sys_cpu"] {
            job[key] = json["jobs"][0][key].clone();
        }
        Ok(job)
    }
}

impl Drop for Fio {
    fn drop(&mut self) {
        // Nothing to do about a file that is not there.
        let _ = std::fs::remove_file(&self.file);
    }
}

fn number(job: &Value, name: &str) -> Result<f64> {
    job[name].as_f64().with_context(|| format!("fio printed no {name}"))
}

/// How many bytes, in such units, a request for one object touches when objects lie end to end, as fio's `bssplit`.
///
/// fio takes whole percents, so the requests are sorted into a hundred equal parts, each with its own mean.
fn split(sizes: impl Iterator<Item = usize>, unit: usize) -> String {
    let mut at = 0;
    let mut blocks: Vec<usize> = sizes
        .map(|size| {
            let end = at + size + crate::data::KEY_LEN + FRAME;
            let touched = end.div_ceil(unit) - at / unit;
            at = end;
            touched
        })
        .collect();
    blocks.sort_unstable();
    let mut percents = std::collections::BTreeMap::<usize, usize>::new();
    for part in 0..100 {
        let part = &blocks[part * blocks.len() / 100..(part + 1) * blocks.len() / 100];
        let mean = (part.iter().sum::<usize>() + part.len() / 2) / part.len();
        *percents.entry(mean).or_default() += 1;
    }
    let parts: Vec<_> = percents.iter().map(|(blocks, percent)| format!("{}/{percent}", blocks * unit)).collect();
    parts.join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_split_into_whole_percents() {
        let data = crate::data::Data::new(crate::data::Profile::Web);
        let text = split(data.some_sizes(), 512);
        let percents: usize =
            text.split(':').map(|part| part.split('/').nth(1).unwrap().parse::<usize>().unwrap()).sum();
        assert_eq!(percents, 100, "{text}");
    }
}
