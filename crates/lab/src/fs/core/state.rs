//! What a file system knows, and the least steps of its calls: a block changes, what is due is written.

use std::{collections::HashMap, io};

use picaflor_sim::SparseBytes;

use super::journal::Journal;
use crate::{
    fs::{
        directory::Directory,
        layout::{Address, Layout, Run},
        pages::Pages,
        profile::{FsProfile, JournalProfile, Metadata},
    },
    hash::ByHash,
    lru::Lru,
};

pub(in crate::fs) struct Core {
    pub(in crate::fs) profile: FsProfile,
    pub(in crate::fs) layout: Layout,
    pub(in crate::fs) pages: Pages,
    /// By path; the root's is empty.
    pub(super) directories: HashMap<String, u64, ByHash>,
    pub(super) by_id: Vec<Directory>,
    pub(super) files: HashMap<String, File, ByHash>,
    /// Inodes and names that are known without the disk.
    pub(super) inodes: Lru,
    pub(super) names: Lru,
    pub(super) contents: SparseBytes,
    pub(super) next_round: u64,
    pub(super) journal: Option<Journal>,
    /// What the call that is being noted took for its file and did not fill.
    pub(super) reserved: Vec<Run>,
}

pub(super) struct File {
    pub(super) inode: u64,
    pub(super) directory: u64,
    pub(super) chunk: u32,
    pub(super) size: u64,
    pub(super) runs: Vec<Run>,
    pub(super) indirect: Option<Address>,
    /// Its access time on the disk, or on its way there.
    pub(super) accessed: u64,
}

pub(super) fn missing(path: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("{path}: no such file or directory in the modelled file system"))
}

pub(in crate::fs) fn full() -> io::Error {
    io::Error::new(io::ErrorKind::StorageFull, "the modelled file system is full: give it a larger part of the disk")
}

pub(super) fn nanos(seconds: f64) -> u64 {
    (seconds * 1e9) as u64
}

impl Core {
    pub(in crate::fs) fn available(&self) -> u64 {
        self.layout.available() * self.profile.layout.fragment
    }

    pub(in crate::fs) fn table(&self) -> u64 {
        if self.profile.records.is_some() { self.layout.reach() * self.profile.layout.inode } else { 0 }
    }

    pub(super) fn block(&self) -> u64 {
        self.layout.fragments
    }

    /// A call begins: the processor works, and what is due by then is written.
    pub(in crate::fs) fn begin(&mut self, bytes: u64, entries: u64, changes: bool) -> io::Result<()> {
        let processor = &self.profile.processor;
        let change = if changes { processor.change_us } else { 0.0 };
        let copy = processor.copy_us_per_kb * bytes as f64 / 1024.0;
        self.pages.work((processor.call_us + change + copy) * 1e3 + processor.entry_ns * entries as f64);
        self.round()
    }

    /// No call comes until then: what is due meanwhile is written in its time.
    pub(in crate::fs) fn wait_until(&mut self, nanos: u64) -> io::Result<()> {
        loop {
            let due = self.journal.as_ref().map_or(self.next_round, |journal| journal.commit_at.min(self.next_round));
            if due >= nanos {
                return self.pages.wait_until(nanos);
            }
            self.pages.wait_until(due)?;
            self.round()?;
        }
    }

    /// What is due by now is written.
    fn round(&mut self) -> io::Result<()> {
        let now = self.pages.now();
        let daemon = &self.profile.daemon;
        if now >= self.next_round {
            self.next_round = now + nanos(daemon.every_s);
            let since = |age: f64| now.saturating_sub(nanos(age));
            let (data, metadata) = (since(daemon.data_age_s), since(daemon.metadata_age_s));
            self.pages.flush_in_turn(data, metadata)?;
        }
        self.pages.go_on()?;
        if self.pages.is_full_of_dirt() {
            self.pages.flush(now, now)?;
            self.pages.throttle();
        } else {
            self.pages.throttle_beside();
        }
        let due = |(journal, profile): (&Journal, &JournalProfile)| journal.is_due(profile, now);
        if self.journal.as_ref().zip(self.profile.journal.as_ref()).is_some_and(due) {
            self.commit(false)?;
        }
        Ok(())
    }

    /// What changed goes to the journal, and the time to the next commit begins. `forced`: the call waits for it.
    pub(super) fn commit(&mut self, forced: bool) -> io::Result<()> {
        let now = self.pages.now();
        let Some((journal, profile)) = self.journal.as_mut().zip(self.profile.journal.as_ref()) else { return Ok(()) };
        journal.commit_at = now + nanos(profile.commit_s);
        self.write_journal(forced)
    }

    /// Data first, if they are ordered; then what of metadata changed, in one run of the journal.
    pub(super) fn write_journal(&mut self, forced: bool) -> io::Result<()> {
        let Some((journal, profile)) = self.journal.as_mut().zip(self.profile.journal.as_ref()) else { return Ok(()) };
        let ordered = profile.ordered;
        let Some((first, count)) = journal.run(profile, self.profile.layout.block) else { return Ok(()) };
        if ordered {
            self.pages.flush(self.pages.now(), 0)?;
        }
        let (address, count) = (first * self.layout.fragments, count * self.layout.fragments);
        if forced { self.pages.write(address, count) } else { self.pages.write_later(address, count) }
    }

    /// Blocks were given back: where that has to be told before others may have them, it is.
    pub(super) fn force(&mut self) -> io::Result<()> {
        if self.profile.journal.as_ref().is_some_and(|journal| journal.forced) { self.commit(true) } else { Ok(()) }
    }

    /// Whether what a removal or a creation changes is on the disk before the call returns.
    pub(super) fn at_once(&self, creates: bool) -> bool {
        match self.profile.metadata {
            Metadata::Synchronous => true,
            Metadata::SynchronousCreate => creates,
            Metadata::Delayed | Metadata::Journal | Metadata::Logged => false,
        }
    }

    /// A block of metadata has changed.
    pub(in crate::fs) fn change(&mut self, address: Address, at_once: bool) -> io::Result<()> {
        self.pages.need(address)?;
        if at_once {
            return self.pages.write(address, self.block());
        }
        self.log(address);
        self.pages.dirty(address, self.block(), true)
    }

    /// An inode was taken or given back in this group, and blocks were taken if so.
    pub(in crate::fs) fn change_maps(&mut self, group: usize, blocks: bool) -> io::Result<()> {
        let (map, inodes) = (self.layout.map(group), self.layout.inode_map(group));
        if blocks && map != inodes {
            self.change(map, false)?;
        }
        self.change(inodes, false)
    }

    pub(super) fn log(&mut self, address: Address) {
        match (&mut self.journal, &self.profile.records) {
            (Some(journal), Some(records)) => journal.note_done(records.log_record),
            (Some(journal), None) => journal.note_changed(address),
            (None, _) => {}
        }
    }
}
