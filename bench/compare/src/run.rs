//! Runs each peer in processes of its own, one at a time, and keeps what was measured: a file for each peer, so that
//! one can be measured again without the others.

use std::{
    fs::{self, File},
    os::fd::AsFd,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context, Result, ensure};
use nix::fcntl::{PosixFadviseAdvice, posix_fadvise};
use serde::{Deserialize, Serialize};

use crate::{
    crash::{self, Crash, Found},
    page,
    peers::{self, About},
};

/// What to run.
pub(crate) struct Plan {
    pub(crate) peers: Vec<String>,
    /// Crashes of each kind and mode.
    pub(crate) kills: u64,
    pub(crate) cuts: u64,
    pub(crate) folder: PathBuf,
    pub(crate) out: PathBuf,
    /// A Python that has diskcache.
    pub(crate) python: Option<PathBuf>,
    pub(crate) page: Option<PathBuf>,
    /// Divides the work.
    scale: u64,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            peers: peers::ALL.iter().map(|peer| peer.name.to_owned()).collect(),
            kills: 10,
            cuts: 5,
            folder: std::env::temp_dir(),
            out: "compare-results".into(),
            python: None,
            page: None,
            scale: 1,
        }
    }
}

impl Plan {
    /// Proves only that it works.
    pub(crate) fn tiny(&mut self) {
        (self.kills, self.cuts, self.scale) = (1, 0, 64);
    }
}

/// A peer as a process: this program, or Python.
pub(crate) struct Program<'a> {
    pub(crate) name: &'a str,
    python: Option<&'a Path>,
    sync: bool,
    memory: u64,
    capacity: u64,
}

impl Program<'_> {
    /// The process; what does not end is killed, but for one that is to be killed anyway.
    pub(crate) fn child(&self, mode: &str, folder: &Path, number: u64) -> Result<Command> {
        let own = std::env::current_exe()?;
        let python = self.python.filter(|_| self.name == "diskcache");
        let program = python.unwrap_or(&own);
        let mut command = if mode == "work" {
            Command::new(program)
        } else {
            let mut command = Command::new("timeout");
            command.args(["--signal=KILL", PATIENCE]).arg(program);
            command
        };
        match python {
            Some(_) => command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/diskcache_peer.py")),
            None => command.args(["child", self.name]),
        };
        command.arg(mode).arg(folder).arg(if self.sync { "sync" } else { "default" });
        command.args([self.memory, self.capacity, number].map(|number| number.to_string()));
        Ok(command)
    }

    fn numbers(&self, mode: &str, folder: &Path, number: u64) -> Result<Vec<f64>> {
        let out = self.child(mode, folder, number)?.output()?;
        let said = String::from_utf8_lossy(&out.stderr).into_owned();
        ensure!(out.status.success(), "{} {mode}: {}: {said}", self.name, out.status);
        let text = String::from_utf8(out.stdout)?;
        text.split_whitespace().map(|number| number.parse().context("a number")).collect()
    }
}

/// What was measured of a peer.
#[derive(Default, Serialize, Deserialize)]
pub(crate) struct Measured {
    /// By `kill -9` and by a power cut, with default settings and with sync.
    pub(crate) kill: Found,
    pub(crate) kill_sync: Found,
    pub(crate) cut: Found,
    pub(crate) cut_sync: Found,
    /// Bytes of memory at two numbers of objects.
    pub(crate) memory: Vec<(u64, u64)>,
    /// p50, p99, p99.9, the processor's time a get, all in microseconds, and misses.
    pub(crate) hot: Vec<f64>,
    pub(crate) cold: Vec<f64>,
    /// Of this and that moment.
    pub(crate) load: String,
    pub(crate) version: String,
}

/// Seconds.
const PATIENCE: &str = "600";

const MIB: u64 = 1 << 20;

fn load() -> String {
    let text = fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').next().unwrap_or("?").to_owned()
}

/// Runs the plan, and writes the page from all results that are there.
pub(crate) fn run(plan: &Plan) -> Result<()> {
    fs::create_dir_all(&plan.out)?;
    fs::create_dir_all(&plan.folder)?;
    for about in peers::ALL.iter().filter(|about| plan.peers.iter().any(|name| name == about.name)) {
        if !peers::is_there(about.name, plan.python.as_deref()) {
            println!("{}: left out, it is not built or there is no Python that has it", about.name);
            continue;
        }
        let measured = measure(plan, about).with_context(|| about.name)?;
        let path = plan.out.join(format!("{}.json", about.name));
        fs::write(&path, serde_json::to_string_pretty(&measured)?)?;
        println!("{}: {}", about.name, path.display());
    }
    match &plan.page {
        Some(page) => page::write(page, &plan.out),
        None => Ok(()),
    }
}

fn measure(plan: &Plan, about: &About) -> Result<Measured> {
    let begin = load();
    let program =
        |sync, memory| Program { name: about.name, python: plan.python.as_deref(), sync, memory, capacity: 128 * MIB };
    let crashes = |crash, sync, rounds| -> Result<Found> {
        let mut found = Found::default();
        for round in 0..rounds {
            let place = tempfile::tempdir_in(&plan.folder)?;
            // Spread over 2.5 s, in an order that has nothing to do with the peer.
            let lifetime = Duration::from_millis(100 + round * 7919 % 2400);
            crash::round(&program(sync, 16 * MIB), place.path(), crash, (round + 1, lifetime), &mut found)?;
        }
        Ok(found)
    };
    let with_sync = u64::from(about.can_sync);
    let mut measured = Measured {
        kill: crashes(Crash::Kill, false, plan.kills)?,
        kill_sync: crashes(Crash::Kill, true, plan.kills * with_sync)?,
        version: page::version(about.name, plan.python.as_deref()),
        ..Measured::default()
    };
    if about.is_on_disk {
        measured.cut = crashes(Crash::PowerCut, false, plan.cuts)?;
        measured.cut_sync = crashes(Crash::PowerCut, true, plan.cuts * with_sync)?;
    }
    for objects in [about.objects / plan.scale, about.objects * 4 / plan.scale] {
        let place = tempfile::tempdir_in(&plan.folder)?;
        let program = Program { capacity: 2048 * MIB, ..program(false, 32 * MIB) };
        let bytes = program.numbers("memory", place.path(), objects)?;
        measured.memory.push((objects, *bytes.first().context("no bytes")? as u64));
    }
    let place = tempfile::tempdir_in(&plan.folder)?;
    measured.hot = program(false, 64 * MIB).numbers("hot", place.path(), 200_000 / plan.scale)?;
    if about.is_on_disk {
        let place = tempfile::tempdir_in(&plan.folder)?;
        let (program, objects) = (program(false, 16 * MIB), 16_384 / plan.scale);
        program.numbers("load", place.path(), objects)?;
        forget(place.path())?;
        measured.cold = program.numbers("cold", place.path(), objects)?;
    }
    measured.load = format!("{begin} to {}", load());
    Ok(measured)
}

/// Has the kernel forget the pages of the files in a folder.
fn forget(folder: &Path) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            forget(&path)?;
        } else {
            let file = File::open(&path)?;
            file.sync_all()?;
            posix_fadvise(file.as_fd(), 0, 0, PosixFadviseAdvice::POSIX_FADV_DONTNEED)?;
        }
    }
    Ok(())
}
