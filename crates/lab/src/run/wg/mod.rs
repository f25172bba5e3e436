//! The workload generators of Shriver et al. 2001, §4.1, on one machine of the time: wg-Squid keeps a file for each
//! object on modelled file systems, wg-Hummingbird asks a store of the engine.
//!
//! Both do for each event of the log what a proxy would: read the object, and write it if it was not there. What is
//! measured is what the paper measured: how long reads and writes take, the disk's requests, and the time of it all.
//! Daemons are called every thousand events, in the log's time, outside of reads and writes.
//!
//! A log and everything that holds a share of it can be made smaller together: clients and servers of the log, memory,
//! disk, the file systems' inodes and ages, events between calls of the daemons. A *part* of a disk has so many times
//! fewer cylinders, each as far apart as as many were, so a file system that fills half of it moves the arm as far as
//! before.

pub mod polymix;
mod recovery;
mod squid;
mod store;

use std::sync::Arc;

use picaflor_device::Clock;
use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions, Times};
pub use recovery::{Recovered, crash};
use serde::{Deserialize, Serialize};

use crate::{
    Error, Result,
    fs::{FsProfile, merge},
    synth::Synthetic,
    trace::Request,
};

/// A machine of a paper.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Machine {
    /// Profile of its disks.
    pub disk: String,
    /// Whether the drive answers writes from its cache, as the profile says; else when they are on the platter.
    pub write_cache: bool,
    /// Inodes, and names, that its kernel keeps for each MiB of memory.
    pub inodes_per_mib: f64,
    /// Bytes of metadata that its kernel keeps, directories too, if they are apart from pages.
    #[serde(default)]
    pub metadata: Option<u64>,
    /// Blocks that its kernel lets be dirty: so many, and so many more for each MiB of memory.
    #[serde(default)]
    pub dirty_blocks: Option<(f64, f64)>,
    /// What of the file systems' profiles is another on this machine.
    #[serde(default)]
    pub changes: toml::Table,
}

/// A system that is compared.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum System {
    /// wg-Squid on this file system.
    Squid {
        /// Profile of the file system.
        like: String,
        /// What of it is another, beyond what the machine changes.
        #[serde(default)]
        changes: toml::Table,
    },
    /// wg-Hummingbird on a store of this preset.
    Store {
        /// Row of the engine's table.
        preset: String,
        /// Bytes of a cluster; 0 is the engine's default.
        #[serde(default)]
        cluster: u32,
    },
}

/// When events are issued.
#[derive(Debug, Clone, Copy, PartialEq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Timing {
    /// Each as soon as the one before is done.
    Throttle,
    /// When the log has them, or as soon after as can be.
    Real,
    /// As real, but no pause is longer than so many milliseconds.
    Fast(f64),
}

/// Everything that a run of a generator is a function of.
#[derive(Debug, Clone)]
pub struct Load {
    /// What is asked.
    pub system: System,
    /// What it runs on.
    pub machine: Machine,
    /// MiB of disk that may be filled, all disks together.
    pub disk_mib: u64,
    /// MiB of memory: wg-Squid's own, and the buffer cache's. A store has both.
    pub memory_mib: (u64, u64),
    /// Bytes of the largest object that is cached.
    pub largest: u64,
    /// Disks.
    pub disks: usize,
    /// Events that are under way at a time.
    pub threads: usize,
    /// When they are issued.
    pub timing: Timing,
    /// Events between calls of a store's daemons.
    pub every: u64,
    /// One part of the log in so many, and of memory, disk and times with it.
    pub parts: u32,
    /// Events of the whole log.
    pub events: u64,
    /// Of the log, the disks and the store.
    pub seed: u64,
}

/// What a run gave.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Measured {
    /// Events.
    pub events: u64,
    /// Of them, answered.
    pub hits: u64,
    /// Objects written.
    pub writes: u64,
    /// Writes that were refused.
    pub refused: u64,
    /// Share of the events that were answered.
    pub hit_ratio: f64,
    /// Mean milliseconds of a read that found its object.
    pub read_ms: f64,
    /// Mean milliseconds of a write, with the removals that it had to wait for.
    pub write_ms: f64,
    /// Requests of the disks.
    pub ios: u64,
    /// The same for each event.
    pub ios_per_event: f64,
    /// Of them, reads.
    pub disk_reads: u64,
    /// Mean milliseconds that a disk was busy with a request.
    pub io_ms: f64,
    /// Seconds from the first event to the end of the last.
    pub seconds: f64,
    /// Events a second.
    pub events_per_second: f64,
    /// Of a store: objects that a read of a cluster brought, in the mean.
    pub objects_per_cluster_read: f64,
    /// Of a store: its device requests by cause.
    pub causes: Option<Causes>,
    /// Sums, in nanoseconds.
    #[serde(skip)]
    read_nanos: u64,
    #[serde(skip)]
    write_nanos: u64,
}

/// What a store asked of its devices, and why: requests for each event.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Causes {
    /// Reads for gets.
    pub gets: f64,
    /// Reads of what is in a cluster that is to be reclaimed, and whatever else daemons and puts read.
    pub reclaim: f64,
    /// Clusters written.
    pub clusters: f64,
    /// Checkpoints' clusters, journal, hot log and superblocks.
    pub records: f64,
}

impl Measured {
    fn read(&mut self, nanos: u64) {
        self.hits += 1;
        self.read_nanos += nanos;
    }

    fn wrote(&mut self, nanos: u64) {
        self.writes += 1;
        self.write_nanos += nanos;
    }

    /// Means, from the sums, the disks and the time it took.
    fn finish(mut self, disks: &[(SimulatedDisk, Times)], nanos: u64) -> Self {
        let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
        let (mut more, mut reads, mut ios) = (0, 0, 0);
        for (disk, before) in disks {
            let now = disk.times();
            more += busy(&now) - busy(before);
            reads += now.reads - before.reads;
            ios += now.reads + now.writes - before.reads - before.writes;
        }
        self.hit_ratio = ratio(self.hits as f64, self.events as f64);
        self.read_ms = ratio(self.read_nanos as f64 / 1e6, self.hits as f64);
        self.write_ms = ratio(self.write_nanos as f64 / 1e6, self.writes as f64);
        (self.ios, self.disk_reads) = (ios, reads);
        self.ios_per_event = ratio(ios as f64, self.events as f64);
        self.io_ms = ratio(more as f64 / 1e6, ios as f64);
        self.seconds = nanos as f64 / 1e9;
        self.events_per_second = ratio(self.events as f64, self.seconds);
        self
    }
}

/// Nanoseconds that a disk was busy.
fn busy(times: &Times) -> u64 {
    let Times { overhead, seek, rotation, transfer, streamed, bus, latency, .. } = times;
    overhead + seek + rotation + transfer + streamed + bus + latency
}

/// Runs a generator. `progress` is told how many events more are done, now and then.
///
/// # Errors
/// If the load names what does not exist or cannot be, or the system under it fails.
pub fn run(load: &Load, progress: Arc<dyn Fn(u64) + Send + Sync>) -> Result<Measured> {
    match &load.system {
        System::Squid { like, changes } => squid::run(load, &load.file_system(like, changes)?, &*progress),
        System::Store { preset, cluster } => store::run(load, preset, *cluster, progress),
    }
}

/// Events between two words of progress.
const WORD: u64 = 2048;

impl Load {
    /// How many events this part of the log has.
    #[must_use]
    pub fn part_events(&self) -> u64 {
        self.events / u64::from(self.parts)
    }

    fn requests(&self) -> impl Iterator<Item = Request> + use<> {
        self.log(1)
    }

    /// A log that is so many times as long.
    fn log(&self, times: u64) -> impl Iterator<Item = Request> + use<> {
        let events = usize::try_from(times * self.part_events()).unwrap_or(usize::MAX);
        Synthetic::isp_part(self.parts, self.seed).take(events)
    }

    fn part_bytes(&self, mib: u64) -> u64 {
        (mib << 20) / u64::from(self.parts)
    }

    /// The file system as this machine has it, a part of it.
    fn file_system(&self, like: &str, changes: &toml::Table) -> Result<FsProfile> {
        let (own, buffers) = self.memory_mib;
        Ok(self.machine.file_system(like, changes, own + buffers, buffers)?.part(self.parts))
    }

    fn wrong(&self, why: impl ToString) -> Error {
        Error::experiment(&self.machine.disk, why.to_string())
    }

    /// One of its disks, or so many bytes of it from the outer edge.
    fn disk(&self, clock: &Clock, bytes: Option<u64>, number: usize) -> Result<SimulatedDisk> {
        self.machine.disk(clock, self.parts, bytes, self.seed + number as u64)
    }
}

impl Machine {
    /// One part in so many of its disk, or so many bytes of that, from the outer edge.
    pub(super) fn disk(&self, clock: &Clock, parts: u32, bytes: Option<u64>, seed: u64) -> Result<SimulatedDisk> {
        let wrong = |why: String| Error::experiment(self.disk.as_str(), why);
        let profile = Profile::find(&self.disk).map_err(|error| wrong(error.to_string()))?.part(parts);
        let options = SimulatedOptions {
            seed,
            part: bytes.map(|bytes| 0..bytes),
            write_cache: (!self.write_cache).then_some(0),
            ..SimulatedOptions::default()
        };
        SimulatedDisk::new(&profile, clock.clone(), &options).map_err(|error| wrong(error.to_string()))
    }

    /// A file system as this machine has it: with its changes and these, and so many MiB of memory, of which those
    /// are for pages.
    ///
    /// # Errors
    /// If there is none of this name, or a change is wrong.
    pub fn file_system(&self, like: &str, changes: &toml::Table, mib: u64, pages_mib: u64) -> Result<FsProfile> {
        let mut all = self.changes.clone();
        merge(&mut all, changes);
        let mut profile = FsProfile::find_with(like, &all)?;
        let inodes = (self.inodes_per_mib * mib as f64) as u64;
        profile.memory.cache = pages_mib << 20;
        profile.memory.metadata = self.metadata;
        profile.memory.directories_apart = self.metadata.is_some();
        let dirty = self.dirty_blocks.map(|(fixed, each)| (fixed + each * mib as f64) as u64);
        profile.daemon.dirty_blocks = dirty.or(profile.daemon.dirty_blocks);
        (profile.memory.inodes, profile.memory.names) = (inodes, inodes);
        Ok(profile)
    }
}

impl Timing {
    /// When an event is due: `last` was issued for the event at `then` of the log, and this one is at `now` of it.
    /// All but the log's times, which are milliseconds, in nanoseconds.
    fn due(self, last: u64, then: u64, now: u64) -> u64 {
        let pause = now.saturating_sub(then) * 1_000_000;
        match self {
            Self::Throttle => 0,
            Self::Real => last + pause,
            Self::Fast(most) => last + pause.min((most * 1e6) as u64),
        }
    }
}
