//! What a run of a generator is a function of.

use picaflor_device::Clock;
use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};
use serde::Deserialize;

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

/// Events between two words of progress.
pub(super) const WORD: u64 = 2048;

impl Load {
    /// How many events this part of the log has.
    #[must_use]
    pub fn part_events(&self) -> u64 {
        self.events / u64::from(self.parts)
    }

    pub(super) fn requests(&self) -> impl Iterator<Item = Request> + use<> {
        self.log(1)
    }

    /// A log that is so many times as long.
    pub(super) fn log(&self, times: u64) -> impl Iterator<Item = Request> + use<> {
        let events = usize::try_from(times * self.part_events()).unwrap_or(usize::MAX);
        Synthetic::isp_part(self.parts, self.seed).take(events)
    }

    pub(super) fn part_bytes(&self, mib: u64) -> u64 {
        (mib << 20) / u64::from(self.parts)
    }

    /// The file system as this machine has it, a part of it.
    pub(super) fn file_system(&self, like: &str, changes: &toml::Table) -> Result<FsProfile> {
        let (own, buffers) = self.memory_mib;
        Ok(self.machine.file_system(like, changes, own + buffers, buffers)?.part(self.parts))
    }

    pub(super) fn wrong(&self, why: impl ToString) -> Error {
        Error::experiment(&self.machine.disk, why.to_string())
    }

    /// One of its disks, or so many bytes of it from the outer edge.
    pub(super) fn disk(&self, clock: &Clock, bytes: Option<u64>, number: usize) -> Result<SimulatedDisk> {
        self.machine.disk(clock, self.parts, bytes, self.seed + number as u64)
    }
}

impl Machine {
    /// One part in so many of its disk, or so many bytes of that, from the outer edge.
    pub(in crate::run) fn disk(
        &self,
        clock: &Clock,
        parts: u32,
        bytes: Option<u64>,
        seed: u64,
    ) -> Result<SimulatedDisk> {
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
    pub(super) fn due(self, last: u64, then: u64, now: u64) -> u64 {
        let pause = now.saturating_sub(then) * 1_000_000;
        match self {
            Self::Throttle => 0,
            Self::Real => last + pause,
            Self::Fast(most) => last + pause.min((most * 1e6) as u64),
        }
    }
}
