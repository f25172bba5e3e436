//! What a modelled file system does, as a data file: its layout, what it writes at once and what later, and what the
//! machine's processor takes. A key that is not known is refused with its line.

use std::fs;
use std::path::Path;

use serde::Deserialize;

use crate::{Error, Result};

/// A file system and the machine it runs on.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FsProfile {
    /// What it is called on a command line.
    pub name: String,
    /// What it models.
    pub title: String,
    /// Where the numbers come from.
    pub sources: Vec<String>,
    /// What names, inodes and maps cost at once.
    pub metadata: Metadata,
    /// Whether whole blocks of data are handed to the disk at once, as clusters; otherwise the daemon writes them.
    pub whole_blocks_at_once: bool,
    /// Whether whole clusters of it are, though blocks are not.
    #[serde(default)]
    pub whole_clusters_at_once: bool,
    /// Whether a read dirties the inode.
    pub access_times: bool,
    /// Where things lie.
    pub layout: LayoutProfile,
    /// What stays in memory.
    pub memory: MemoryProfile,
    /// When what is dirty is written.
    pub daemon: DaemonProfile,
    /// Of file systems with [`Metadata::Journal`] or [`Metadata::Logged`].
    pub journal: Option<JournalProfile>,
    /// Of file systems with [`Metadata::Logged`].
    pub records: Option<RecordsProfile>,
    /// The machine.
    pub processor: ProcessorProfile,
}

/// What of names, inodes and maps is on the disk before a call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Metadata {
    /// Inode and directory, at creation and at removal: the fast file system.
    Synchronous,
    /// At creation only: soft updates as the Hummingbird paper found them.
    SynchronousCreate,
    /// None: soft updates as the literature has them, `async` mounts, ext2.
    Delayed,
    /// None; a journal takes it every few seconds.
    Journal,
    /// None; a log takes what was done to it, rather than blocks, when a file is forced and every few seconds: NTFS.
    Logged,
}

/// Where things lie.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayoutProfile {
    /// Bytes of a block.
    pub block: u64,
    /// Bytes of a fragment, of which the last block of a small file may take some only; from an eighth of `block` up.
    pub fragment: u64,
    /// Blocks of a group; 0 for a group that is the whole disk.
    pub group_blocks: u32,
    /// Bytes of an inode.
    pub inode: u64,
    /// Bytes of space for each inode.
    pub bytes_per_inode: u64,
    /// Blocks that an inode points to itself; beyond, indirect blocks.
    pub direct: u64,
    /// Where in its group the first block of data is looked for, in percent of the group: a file system that was in use
    /// before does not start at the beginning.
    pub first_percent: u64,
    /// Percent of the space that is kept free.
    pub reserve_percent: u64,
    /// Whether a group's inodes have a map of their own, in a block behind the one for its blocks.
    #[serde(default)]
    pub inode_map: bool,
    /// Blocks that a file takes at a time while it is written; what it does not fill is free again when it is closed.
    /// One that does so begins where eight blocks in a row are free, if there are such. 0: takes them one by one.
    #[serde(default)]
    pub preallocate: u64,
}

/// What stays in memory.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct MemoryProfile {
    /// Bytes of blocks.
    pub cache: u64,
    /// Bytes of inodes, maps and indirect blocks, if they are not kept among the others.
    pub metadata: Option<u64>,
    /// Whether directories are among those, too.
    #[serde(default)]
    pub directories_apart: bool,
    /// Inodes.
    pub inodes: u64,
    /// Names whose inode is known without a search.
    pub names: u64,
}

/// When what is dirty is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DaemonProfile {
    /// Seconds between its rounds.
    pub every_s: f64,
    /// Seconds after which dirty data is written.
    pub data_age_s: f64,
    /// Seconds after which dirty metadata is written.
    pub metadata_age_s: f64,
    /// Percent of the cache that may be dirty before the oldest is written anyway.
    pub dirty_percent: u64,
    /// The same in blocks, if that is fewer.
    #[serde(default)]
    pub dirty_blocks: Option<u64>,
    /// Bytes of one transfer of adjacent blocks at most.
    pub cluster: u64,
    /// Writes that it has on their way at a time; if nothing is said, all that are due.
    pub writes_at_once: Option<u64>,
    /// Reads of one batch that are sent to the disk together.
    pub reads_at_once: usize,
    /// Bytes under way to the disk at which a writer waits, ...
    pub high_water: u64,
    /// ... until they are down to this.
    pub low_water: u64,
}

/// Of file systems with a journal.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct JournalProfile {
    /// Blocks of its place on the disk.
    pub blocks: u32,
    /// Seconds between commits.
    pub commit_s: f64,
    /// Bytes that a changed block takes in it: what of it changed; 0 is all of it.
    #[serde(default)]
    pub record: u64,
    /// Bytes of such records that are written as soon as there are so many; 0 is no limit.
    #[serde(default)]
    pub buffer: u64,
    /// Whether dirty data is written before the records of what leads to it.
    #[serde(default = "yes")]
    pub ordered: bool,
    /// Whether a call that gives blocks back waits until its records are on the disk.
    #[serde(default)]
    pub forced: bool,
}

fn yes() -> bool {
    true
}

/// Of file systems whose inodes are records of a table, which small files lie in, whose directories are trees, and
/// whose log has what was done.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RecordsProfile {
    /// Bytes of a file that lies in its record, at most.
    pub resident: u64,
    /// Bytes of a directory's block that are not for entries.
    pub buffer_header: u64,
    /// Bytes of a directory's entry beside the name, of which each character takes two.
    pub entry: u64,
    /// Bytes of the log for one change.
    pub log_record: u64,
    /// Seconds by which the disk may be behind with the time of the last access, in the record and in the directory.
    pub access_s: f64,
}

/// The machine: what its processor takes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProcessorProfile {
    /// Microseconds of a call.
    pub call_us: f64,
    /// Microseconds of making or removing a file, beyond the call.
    pub change_us: f64,
    /// Nanoseconds of a directory entry that a search passes.
    pub entry_ns: f64,
    /// Microseconds of copying a kilobyte.
    pub copy_us_per_kb: f64,
}

/// The profiles that are compiled in, by name.
const BUILT_IN: &[(&str, &str)] = &[
    ("ufs", include_str!("../../filesystems/ufs.toml")),
    ("ufs-soft-paper", include_str!("../../filesystems/ufs-soft-paper.toml")),
    ("ufs-soft-literature", include_str!("../../filesystems/ufs-soft-literature.toml")),
    ("ufs-async", include_str!("../../filesystems/ufs-async.toml")),
    ("ext2", include_str!("../../filesystems/ext2.toml")),
    ("extent", include_str!("../../filesystems/extent.toml")),
    ("ntfs", include_str!("../../filesystems/ntfs.toml")),
    ("xfs", include_str!("../../filesystems/xfs.toml")),
];

/// Values of `other` in the place of those of `table`, table by table.
pub(crate) fn merge(table: &mut toml::Table, other: &toml::Table) {
    for (key, value) in other {
        match (table.get_mut(key), value) {
            (Some(toml::Value::Table(inner)), toml::Value::Table(other)) => merge(inner, other),
            _ => drop(table.insert(key.clone(), value.clone())),
        }
    }
}

impl FsProfile {
    /// Names of the profiles that are compiled in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A profile by name, or else from a file at this path.
    ///
    /// # Errors
    /// Neither, or a file that is no profile, with the line and key.
    pub fn find(name: &str) -> Result<Self> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let text = fs::read_to_string(Path::new(name)).map_err(|error| {
            let known = Self::names().collect::<Vec<_>>().join(", ");
            Error::experiment(name, format!("not one of {known}, and no file: {error}"))
        })?;
        Self::parse(name, &text)
    }

    /// A profile that is compiled in, with other values for some of its keys: what a paper says of its machine. One
    /// that is given other `metadata` loses its journal, or its records.
    ///
    /// # Errors
    /// As [`FsProfile::parse`]; or if no profile of this name is compiled in.
    pub fn find_with(name: &str, other: &toml::Table) -> Result<Self> {
        let text = BUILT_IN.iter().find(|(known, _)| *known == name).map(|(_, text)| *text);
        let known = || Self::names().collect::<Vec<_>>().join(", ");
        let text = text.ok_or_else(|| Error::experiment(name, format!("not one of {}", known())))?;
        let wrong = |error: toml::de::Error| Error::experiment(name, error.to_string());
        let mut table: toml::Table = toml::from_str(text).map_err(wrong)?;
        merge(&mut table, other);
        let metadata = table.get("metadata").and_then(toml::Value::as_str);
        let (has_journal, has_records) = (matches!(metadata, Some("journal" | "logged")), metadata == Some("logged"));
        if !has_journal {
            table.remove("journal");
        }
        if !has_records {
            table.remove("records");
        }
        let profile: Self = table.try_into().map_err(wrong)?;
        profile.check().map_err(|why| Error::experiment(name, why))?;
        Ok(profile)
    }

    /// What this file system would be to a part of its load, one in `parts`: memory, groups, journal and the daemons'
    /// ages so many times smaller, and so as many, and as long, as before when counted in requests.
    #[must_use]
    pub fn part(mut self, parts: u32) -> Self {
        let n = u64::from(parts);
        let least = 64 * self.layout.block;
        // A file is as far from its inode as it was, as a share of the disk.
        self.layout.group_blocks = (self.layout.group_blocks / parts).max(64);
        let memory = &mut self.memory;
        memory.cache = (memory.cache / n).max(least);
        memory.metadata = memory.metadata.map(|bytes| (bytes / n).max(least));
        (memory.inodes, memory.names) = ((memory.inodes / n).max(1), (memory.names / n).max(1));
        let by = f64::from(parts);
        let daemon = &mut self.daemon;
        daemon.every_s /= by;
        daemon.data_age_s /= by;
        daemon.metadata_age_s /= by;
        daemon.dirty_blocks = daemon.dirty_blocks.map(|blocks| (blocks / n).max(16));
        if let Some(journal) = &mut self.journal {
            journal.blocks = (journal.blocks / parts).max(65);
            journal.commit_s /= by;
        }
        self
    }

    /// The same on a machine with so many bytes for what it keeps of this file system: blocks, and an inode and a name
    /// for each 16 KiB of them, as FreeBSD had a vnode for every four pages.
    #[must_use]
    pub fn with_memory(mut self, bytes: u64) -> Self {
        self.memory.cache = bytes.max(64 * self.layout.block);
        self.memory.metadata = None;
        (self.memory.inodes, self.memory.names) = (bytes >> 14, bytes >> 14);
        self
    }

    /// Reads a profile; `origin` names it in errors.
    ///
    /// # Errors
    /// A key that is missing, unknown or of the wrong type, with its line; or values that make no file system.
    pub fn parse(origin: &str, text: &str) -> Result<Self> {
        let profile: Self = toml::from_str(text).map_err(|error| Error::experiment(origin, error.to_string()))?;
        profile.check().map_err(|why| Error::experiment(origin, why))?;
        Ok(profile)
    }

    /// Times and costs that a machine can have; others would stop the clock or turn it back.
    fn check_times(&self) -> std::result::Result<(), String> {
        let (daemon, processor) = (&self.daemon, &self.processor);
        let day = 86_400.0;
        let times = [
            ("daemon.every_s", daemon.every_s, day),
            ("daemon.data_age_s", daemon.data_age_s, day),
            ("daemon.metadata_age_s", daemon.metadata_age_s, day),
            ("journal.commit_s", self.journal.as_ref().map_or(0.0, |journal| journal.commit_s), day),
            ("records.access_s", self.records.as_ref().map_or(0.0, |records| records.access_s), day),
            ("processor.call_us", processor.call_us, 1e6),
            ("processor.change_us", processor.change_us, 1e6),
            ("processor.entry_ns", processor.entry_ns, 1e6),
            ("processor.copy_us_per_kb", processor.copy_us_per_kb, 1e6),
        ];
        match times.iter().find(|(_, time, most)| !(0.0..=*most).contains(time)) {
            Some((name, time, most)) => Err(format!("{name} is {time}, and has to be from 0 to {most}")),
            None => Ok(()),
        }
    }

    fn check(&self) -> std::result::Result<(), String> {
        let layout = &self.layout;
        let powers = [layout.block, layout.fragment, layout.inode];
        if !powers.iter().all(|bytes| bytes.is_power_of_two()) || layout.fragment < 512 || layout.inode > layout.block {
            return Err("layout: block, fragment and inode must be powers of two, fragments from 512 bytes".to_owned());
        }
        if !(1..=8).contains(&(layout.block / layout.fragment)) || layout.bytes_per_inode < layout.inode {
            return Err("layout: from 1 to 8 fragments a block, and more bytes an inode than it is large".to_owned());
        }
        if (1..16).contains(&layout.group_blocks)
            || layout.reserve_percent > 50
            || layout.first_percent > 99
            || layout.direct == 0
            || layout.preallocate > 64
        {
            return Err(
                "layout: at least 16 blocks a group, at most half in reserve, first_percent below 100, a direct \
                block, at most 64 to preallocate"
                    .to_owned(),
            );
        }
        self.check_times()?;
        let daemon = &self.daemon;
        if daemon.every_s <= 0.0
            || daemon.cluster < layout.block
            || daemon.low_water > daemon.high_water
            || daemon.reads_at_once == 0
            || daemon.writes_at_once == Some(0)
        {
            return Err(
                "daemon: every_s above 0, cluster at least a block, a read and a write at once, low_water at most high_water"
                    .to_owned(),
            );
        }
        if self.memory.cache.min(self.memory.metadata.unwrap_or(u64::MAX)) < 64 * layout.block {
            return Err("memory: caches of at least 64 blocks".to_owned());
        }
        self.check_records()?;
        match (&self.journal, self.metadata) {
            (Some(journal), Metadata::Journal | Metadata::Logged) if journal.commit_s > 0.0 && journal.blocks > 64 => {
                Ok(())
            }
            (None, Metadata::Synchronous | Metadata::SynchronousCreate | Metadata::Delayed) => Ok(()),
            _ => Err("a [journal] of more than 64 blocks, with metadata = \"journal\" or \"logged\" and only there"
                .to_owned()),
        }
    }

    /// A record holds what is said to lie in it, and a directory's block two of the longest names.
    fn check_records(&self) -> std::result::Result<(), String> {
        let layout = &self.layout;
        match &self.records {
            None if self.metadata != Metadata::Logged => Ok(()),
            Some(records)
                if self.metadata == Metadata::Logged
                    && layout.block == layout.fragment
                    && records.resident <= layout.inode
                    && records.buffer_header.saturating_add(records.entry.saturating_mul(2)) + 2048 <= layout.block =>
            {
                Ok(())
            }
            _ => {
                Err("[records] that fit into inode and block, no fragments, with metadata = \"logged\" and only there"
                    .to_owned())
            }
        }
    }
}
