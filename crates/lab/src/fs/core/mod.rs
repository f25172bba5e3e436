//! The calls: which blocks each reads, writes at once, and leaves dirty, in order.
//!
//! | call   | at once, where metadata is synchronous                                | left dirty                    |
//! |--------|-----------------------------------------------------------------------|-------------------------------|
//! | create | inode; directory block; directory inode if it grew; indirect block    | map, directory inode, inode   |
//! | data   | whole blocks are started, not waited for                              | the last, partial block       |
//! | remove | directory block; indirect block; inode, unless the file was empty     | map, inode                    |
//! | rewrite | inode; indirect block                                                | map, the last, partial block  |
//! | read   | nothing                                                               | inode, with access times      |
//!
//! Where metadata is logged, nothing is at once; a read of a file whose access time on the disk is too old leaves its
//! record and its directory's buffer dirty.
//!
//! What a call knows is in `state`, how names are found in `names`, where bytes go in `room`, what is told before
//! metadata is written in `journal`.
//! After 4.4BSD-Lite2, `ufs_vnops.c`, `ufs_lookup.c`, `ffs_inode.c`, `ffs_balloc.c`.

mod journal;
mod names;
mod room;
mod state;

use std::collections::{BTreeSet, HashMap};
use std::io;

use picaflor_sim::{SimulatedDisk, SparseBytes};
use xxhash_rust::xxh3::xxh3_64;

use self::journal::Journal;
use self::names::last_part;
pub(super) use self::state::{Core, full};
use self::state::{File, missing, nanos};
use super::directory::entry_bytes;
use super::layout::Layout;
use super::pages::Pages;
use super::profile::{FsProfile, Metadata};
use crate::lru::Lru;

impl Core {
    pub(super) fn new(profile: &FsProfile, disk: &SimulatedDisk) -> io::Result<Self> {
        let front = profile.journal.as_ref().map_or(0, |journal| u64::from(journal.blocks));
        let layout = Layout::new(&profile.layout, picaflor_device::Device::capacity(disk), front);
        if layout.groups() == 0 {
            let what = format!("{}: the disk has no room for one group of blocks", profile.name);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, what));
        }
        let mut core = Self {
            layout,
            pages: Pages::new(profile, disk.clone()),
            directories: HashMap::default(),
            by_id: Vec::new(),
            files: HashMap::default(),
            inodes: Lru::new(profile.memory.inodes),
            names: Lru::new(profile.memory.names),
            contents: SparseBytes::new(),
            next_round: nanos(profile.daemon.every_s),
            journal: matches!(profile.metadata, Metadata::Journal | Metadata::Logged).then(Journal::default),
            reserved: Vec::new(),
            profile: profile.clone(),
        };
        core.new_directory("", 0, 0)?;
        Ok(core)
    }

    pub(super) fn write(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        if self.files.contains_key(path) {
            self.remove(path)?;
        }
        self.begin(bytes.len() as u64, 0, true)?;
        let directory = self.parent(path)?;
        self.search(directory, path, None)?;
        if self.directories.contains_key(path) {
            return Err(io::Error::new(
                io::ErrorKind::AlreadyExists,
                format!("{path}: a directory of that name is there"),
            ));
        }
        let at_once = self.at_once(true);
        let group = self.layout.group_of_inode(self.by_id[directory as usize].inode);
        let size = bytes.len() as u64;
        let inode = self.layout.take_inode(group, false).ok_or_else(full)?;
        let group = self.layout.group_of_inode(inode);
        let (runs, indirect) = match self.place(group, size) {
            Some(found) => found,
            None => {
                self.layout.free_inode(inode);
                return Err(full());
            }
        };
        let inode_block = self.layout.inode_block(inode);
        self.change_maps(group, size > 0)?;
        self.change(inode_block, at_once)?;
        self.inodes.insert(inode, 1, 0, |_| ());
        let chunk = self.enter(directory, path, at_once)?;
        self.know_name(path);
        self.lay(inode, (&runs, indirect), bytes, at_once)?;
        if size > 0 {
            self.change(inode_block, false)?;
        }
        let accessed = self.pages.now();
        self.files.insert(path.to_owned(), File { inode, directory, chunk, size, runs, indirect, accessed });
        Ok(())
    }

    /// Where the bytes of a file lie, and how many there are in each place.
    pub(super) fn extents(&self, path: &str) -> Option<Vec<(u64, u64)>> {
        let (file, fragment) = (self.files.get(path)?, self.profile.layout.fragment);
        let mut left = file.size;
        let parts = file.runs.iter().map(|(address, count)| {
            let len = left.min(count * fragment);
            left -= len;
            (address * fragment, len)
        });
        Some(parts.collect())
    }

    /// Replaces the bytes of a file that is there, as truncating and writing it does: name and inode stay.
    pub(super) fn rewrite(&mut self, path: &str, bytes: &[u8]) -> io::Result<()> {
        self.begin(bytes.len() as u64, 0, true)?;
        let inode = self.find(path)?;
        let Some(mut file) = self.files.remove(path) else { return Err(missing(path)) };
        let at_once = self.at_once(false);
        self.release(&std::mem::take(&mut file.runs))?;
        if let Some(indirect) = file.indirect.take() {
            self.change(indirect, at_once)?;
            self.release(&[(indirect, self.block())])?;
        }
        file.size = 0;
        let found = self.place(self.layout.group_of_inode(inode), bytes.len() as u64);
        let is_full = found.is_none();
        if let Some((runs, indirect)) = found {
            self.lay(inode, (&runs, indirect), bytes, at_once)?;
            (file.runs, file.indirect, file.size) = (runs, indirect, bytes.len() as u64);
        }
        self.files.insert(path.to_owned(), file);
        self.change(self.layout.inode_block(inode), at_once)?;
        if is_full { Err(full()) } else { Ok(()) }
    }

    /// As `fsync` of a file and of the directory that names it; a journal has both, and a log all but the data.
    pub(super) fn sync_file(&mut self, path: &str) -> io::Result<()> {
        if self.journal.is_some() && self.profile.records.is_none() {
            return self.sync();
        }
        self.begin(0, 0, false)?;
        let file = self.files.get(path).ok_or_else(|| missing(path))?;
        let block = self.block();
        let mut parts = file.runs.clone();
        if self.profile.records.is_none() {
            parts.extend(file.indirect.map(|address| (address, block)));
            parts.push((self.layout.inode_block(file.inode), block));
            parts.push(self.by_id[file.directory as usize].place(file.chunk, self.profile.layout.fragment, block));
        }
        for (address, fragments) in parts {
            self.pages.write_dirty(address, fragments)?;
        }
        // Of a file whose metadata is logged, the log has the rest.
        if self.profile.records.is_some() {
            self.write_journal(false)?;
        }
        self.pages.settle();
        self.pages.sync_disk()
    }

    pub(super) fn remove(&mut self, path: &str) -> io::Result<()> {
        self.begin(0, 0, true)?;
        let directory = self.parent(path)?;
        let Some(file) = self.files.get(path) else {
            self.search(directory, path, None)?;
            return Err(missing(path));
        };
        let (chunk, inode) = (self.chunk_of(directory, path, file.chunk), file.inode);
        self.search(directory, path, Some(chunk))?;
        self.need_inode(inode)?;
        let Some(file) = self.files.remove(path) else { return Err(missing(path)) };
        let at_once = self.at_once(false);
        let (name, names) = (last_part(path), &mut self.by_id[directory as usize]);
        match &mut names.index {
            Some(index) => index.remove(name),
            None => names.give_back(chunk, entry_bytes(name)),
        }
        names.entries -= 1;
        self.change_directory(file.directory, chunk, at_once)?;
        self.names.remove(xxh3_64(path.as_bytes()));
        if let Some(indirect) = file.indirect {
            self.change(indirect, at_once)?;
            self.release(&[(indirect, self.block())])?;
        }
        let inode_block = self.layout.inode_block(inode);
        if file.size > 0 {
            self.change(inode_block, at_once)?;
        }
        self.release(&file.runs)?;
        if self.is_resident(file.size) {
            self.contents.clear(self.layout.inode_byte(inode, &self.profile.layout), file.size);
        }
        self.change(inode_block, false)?;
        self.change_maps(self.layout.group_of_inode(inode), false)?;
        self.layout.free_inode(inode);
        self.inodes.remove(inode);
        if file.size > 0 { self.force() } else { Ok(()) }
    }

    pub(super) fn read(&mut self, path: &str) -> io::Result<Vec<u8>> {
        let size = self.files.get(path).map_or(0, |file| file.size);
        self.begin(size, 0, false)?;
        let inode = self.find(path)?;
        let Some(file) = self.files.get(path) else { return Err(missing(path)) };
        if let Some(indirect) = file.indirect {
            self.pages.need(indirect)?;
        }
        self.pages.need_data(&file.runs)?;
        let fragment = self.profile.layout.fragment;
        let mut bytes = vec![0; size as usize];
        if file.runs.is_empty() {
            self.contents.read(self.layout.inode_byte(inode, &self.profile.layout), &mut bytes);
        }
        let mut rest = &mut bytes[..];
        for (start, count) in &file.runs {
            let here = (rest.len() as u64).min(count * fragment) as usize;
            let (now, later) = rest.split_at_mut(here);
            self.contents.read(start * fragment, now);
            rest = later;
        }
        self.accessed(path)?;
        Ok(bytes)
    }

    /// A file was read: what becomes of its access time.
    fn accessed(&mut self, path: &str) -> io::Result<()> {
        let now = self.pages.now();
        let Some(file) = self.files.get_mut(path).filter(|_| self.profile.access_times) else { return Ok(()) };
        let inode_block = self.layout.inode_block(file.inode);
        let Some(records) = &self.profile.records else {
            // No journal has it.
            let is_here = self.pages.has_metadata(inode_block);
            return if is_here { self.pages.dirty(inode_block, self.block(), true) } else { Ok(()) };
        };
        if now.saturating_sub(file.accessed) > nanos(records.access_s) {
            file.accessed = now;
            let (directory, chunk) = (file.directory, file.chunk);
            self.change(inode_block, false)?;
            self.change_directory(directory, self.chunk_of(directory, path, chunk), false)?;
        }
        Ok(())
    }

    /// Every file, in order of path, as a walk through all directories and inodes finds them.
    pub(super) fn list(&mut self) -> io::Result<Vec<(String, u64)>> {
        self.begin(0, self.files.len() as u64, false)?;
        for id in 0..self.by_id.len() as u64 {
            self.need_all(id)?;
        }
        let blocks: BTreeSet<_> = self.files.values().map(|file| self.layout.inode_block(file.inode)).collect();
        for block in blocks {
            self.pages.need(block)?;
        }
        let mut found: Vec<_> = self.files.iter().map(|(path, file)| (path.clone(), file.size)).collect();
        found.sort_unstable();
        Ok(found)
    }

    pub(super) fn empty_memory(&mut self) -> io::Result<()> {
        self.sync()?;
        // A journal leaves blocks dirty that it has.
        let now = self.pages.now();
        self.pages.flush(now, now)?;
        self.pages.settle();
        self.pages.empty(&self.profile.memory);
        self.inodes = Lru::new(self.profile.memory.inodes);
        self.names = Lru::new(self.profile.memory.names);
        Ok(())
    }

    pub(super) fn sync(&mut self) -> io::Result<()> {
        self.begin(0, 0, false)?;
        let now = self.pages.now();
        if self.journal.is_some() {
            self.commit(false)?;
            if self.profile.records.is_some() {
                self.pages.flush(now, 0)?;
            }
        } else {
            self.pages.flush(now, now)?;
        }
        self.pages.settle();
        self.pages.sync_disk()
    }
}
