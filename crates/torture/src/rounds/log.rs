//! What children did and saw, and how far they are: files that outlive them.
//!
//! A record is written by one `pwrite`, which a killed process has either done or not: it lies within a page. So what
//! the parent reads is all that happened before the kill, but for what was under way. A mapping would need `unsafe`,
//! and would show the same pages.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt,
    path::{Path, PathBuf},
    sync::atomic::{AtomicU64, Ordering::Relaxed},
};

use rustix::time::{ClockId, clock_gettime};

/// Bytes of a record: a power of two, so that none lies on two pages.
const LEN: usize = 32;

/// Nanoseconds of the clock that all processes share.
pub(super) fn now() -> u64 {
    let time = clock_gettime(ClockId::Monotonic);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// What a record tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum What {
    /// A put of `version`; a number of them under way at once have one end each.
    Put = 1,
    /// A delete, which is a version too.
    Delete,
    /// A flush.
    Flush,
    /// A close.
    Close,
    /// A change of a group's settings: a version of a key of its own.
    Group,
    /// A get that brought `version`, or nothing (0).
    Get,
    /// A get, or another call, that brought what it must not: the text of this number says what.
    Bad,
    /// The store is open.
    Open,
    /// It has another size: as this key says, the number of a [`Resized`].
    Resize,
}

/// How a store came to have another size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Resized {
    /// Opened with fewer bytes.
    Shrunk,
    /// Opened with more.
    Grown,
    /// Given more at work.
    GrownAtWork,
}

impl What {
    const ALL: [Self; 9] = [
        Self::Put,
        Self::Delete,
        Self::Flush,
        Self::Close,
        Self::Group,
        Self::Get,
        Self::Bad,
        Self::Open,
        Self::Resize,
    ];
}

/// How it came out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum How {
    /// It has only begun.
    Begun,
    /// Done, and acknowledged.
    Done,
    /// Refused for want of room.
    Full,
    /// Refused by name.
    Refused,
    /// It failed in another way.
    Failed,
}

impl How {
    const ALL: [Self; 5] = [Self::Begun, Self::Done, Self::Full, Self::Refused, Self::Failed];
}

/// One thing that a child did or saw.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Record {
    pub(super) what: What,
    pub(super) how: How,
    /// The group of a put.
    pub(super) group: u8,
    /// Whether the object is longer than a cluster.
    pub(super) large: bool,
    pub(super) key: u32,
    pub(super) version: u32,
    /// Nanoseconds of [`now`].
    pub(super) start: u64,
    /// The same; 0 while it is under way.
    pub(super) end: u64,
}

impl Record {
    /// Something that begins now.
    pub(super) fn begun(what: What, key: u32, version: u32) -> Self {
        Self { what, how: How::Begun, group: 0, large: false, key, version, start: now(), end: 0 }
    }

    /// It ends now.
    pub(super) fn ended(self, how: How) -> Self {
        Self { how, end: now(), ..self }
    }

    fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..4].copy_from_slice(&[self.what as u8, self.how as u8, self.group, self.large.into()]);
        bytes[4..8].copy_from_slice(&self.key.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.version.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.start.to_le_bytes());
        bytes[24..].copy_from_slice(&self.end.to_le_bytes());
        bytes
    }

    fn decode(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        Some(Self {
            what: What::ALL.into_iter().find(|what| *what as u8 == bytes[0])?,
            how: How::ALL.into_iter().find(|how| *how as u8 == bytes[1])?,
            group: bytes[2],
            large: bytes[3] != 0,
            key: word(4)?,
            version: word(8)?,
            start: long(16)?,
            end: long(24)?,
        })
    }
}

/// The log of one thread or task.
pub(super) struct Log {
    file: File,
    at: u64,
}

impl Log {
    /// A new log of a child's life.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn create(folder: &Path, life: u32, writer: usize) -> io::Result<Self> {
        let path = folder.join(format!("log-{life:04}-{writer}"));
        Ok(Self { file: File::options().write(true).create_new(true).open(path)?, at: 0 })
    }

    /// Adds a record; returns its place, for [`Log::end`].
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn add(&mut self, record: &Record) -> io::Result<u64> {
        let at = self.at;
        self.file.write_all_at(&record.encode(), at)?;
        self.at += LEN as u64;
        Ok(at)
    }

    /// Writes the end of what began at this place.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn end(&self, at: u64, record: &Record) -> io::Result<()> {
        self.file.write_all_at(&record.encode(), at)
    }
}

/// All that was told in a life.
///
/// # Errors
/// Those of the file system; a record that cannot be one.
pub(super) fn read(folder: &Path, life: u32) -> io::Result<Vec<Record>> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if !name.starts_with(&format!("log-{life:04}-")) {
            continue;
        }
        for bytes in fs::read(&path)?.chunks_exact(LEN) {
            let record = Record::decode(bytes);
            all.push(record.ok_or_else(|| io::Error::other(format!("{name} has a record that is none")))?);
        }
    }
    all.sort_by_key(|record| record.start);
    Ok(all)
}

/// Where a child is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Phase {
    /// It has not said anything yet.
    #[default]
    Begun,
    /// It opens the store.
    Opening,
    /// It looks at every key.
    Looking,
    /// It works.
    Working,
    /// It closes the store.
    Closing,
    /// That is done.
    Closed,
}

impl Phase {
    pub(super) const ALL: [Self; 6] =
        [Self::Begun, Self::Opening, Self::Looking, Self::Working, Self::Closing, Self::Closed];
}

/// What a child announces of itself.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Whereabouts {
    pub(super) phase: Phase,
    /// Checkpoints completed since it opened the store.
    pub(super) checkpoints: u64,
    /// Bytes written for checkpoints.
    pub(super) checkpoint_bytes: u64,
    /// Clusters that reclaim emptied, and objects that left.
    pub(super) reclaimed: u64,
    /// Deletes acknowledged, by all lives that used this file.
    pub(super) deletes: u64,
}

/// Counts deletes that were acknowledged, beside what is told once a beat.
pub(super) struct Deletes {
    file: File,
    count: AtomicU64,
}

impl Deletes {
    /// # Errors
    /// Those of the file system.
    pub(super) fn new(file: &File) -> io::Result<Self> {
        Ok(Self { file: file.try_clone()?, count: AtomicU64::new(0) })
    }

    /// One more.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn tell(&self) -> io::Result<()> {
        let count = self.count.fetch_add(1, Relaxed) + 1;
        self.file.write_all_at(&count.to_le_bytes(), 32)
    }
}

impl Whereabouts {
    fn path(folder: &Path) -> PathBuf {
        folder.join("whereabouts")
    }

    /// # Errors
    /// Those of the file system.
    pub(super) fn open(folder: &Path) -> io::Result<File> {
        File::options().read(true).write(true).create(true).truncate(false).open(Self::path(folder))
    }

    /// A child that has not said anything.
    ///
    /// # Errors
    /// Those of the file system.
    pub(super) fn reset(file: &File) -> io::Result<()> {
        file.write_all_at(&[0; 40], 0)
    }

    /// # Errors
    /// Those of the file system.
    pub(super) fn tell(&self, file: &File) -> io::Result<()> {
        let words = [self.phase as u64, self.checkpoints, self.checkpoint_bytes, self.reclaimed];
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        file.write_all_at(&bytes, 0)
    }

    /// What was told last.
    pub(super) fn hear(file: &File) -> Self {
        let mut bytes = [0; 40];
        if file.read_exact_at(&mut bytes, 0).is_err() {
            return Self::default();
        }
        let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|i| bytes[at * 8 + i]));
        Self {
            phase: Phase::ALL.get(word(0) as usize).copied().unwrap_or_default(),
            checkpoints: word(1),
            checkpoint_bytes: word(2),
            reclaimed: word(3),
            deletes: word(4),
        }
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    #[test]
    fn what_was_told_is_heard() {
        let folder = tempfile::tempdir().unwrap();
        let mut log = Log::create(folder.path(), 3, 1).unwrap();
        let begun = Record { group: 2, large: true, ..Record::begun(What::Put, 7, 12) };
        let at = log.add(&begun).unwrap();
        log.add(&Record::begun(What::Delete, 8, 13)).unwrap();
        let done = begun.ended(How::Done);
        log.end(at, &done).unwrap();
        let heard = read(folder.path(), 3).unwrap();
        assert_eq!((heard.len(), heard[0], heard[1].how), (2, done, How::Begun));
        assert!(read(folder.path(), 4).unwrap().is_empty());
        let file = Whereabouts::open(folder.path()).unwrap();
        Whereabouts::reset(&file).unwrap();
        assert_eq!(Whereabouts::hear(&file).phase, Phase::Begun);
        Deletes::new(&file).unwrap().tell().unwrap();
        let told = Whereabouts { phase: Phase::Closing, reclaimed: 5, ..Whereabouts::default() };
        told.tell(&file).unwrap();
        let heard = Whereabouts::hear(&file);
        assert_eq!((heard.phase, heard.reclaimed, heard.deletes), (Phase::Closing, 5, 1));
    }
}
