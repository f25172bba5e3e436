//! From a path to an inode: directories looked through, and names entered.
//!
//! What is known of inodes and names costs nothing; else a directory is searched from its start, and comes from the
//! disk as a whole if it is not in memory.

use std::io;

use xxhash_rust::xxh3::xxh3_64;

use super::state::{Core, full, missing};
use crate::fs::directory::{Directory, entry_bytes};
use crate::fs::index::Index;
use crate::fs::layout::Address;

/// The directory that all others are in.
const ROOT: u64 = 0;

/// What a path is called in its directory.
pub(super) fn last_part(path: &str) -> &str {
    &path[path.rfind('/').map_or(0, |slash| slash + 1)..]
}

impl Core {
    /// The block of a directory that holds this chunk has changed.
    pub(super) fn change_directory(&mut self, id: u64, chunk: u32, at_once: bool) -> io::Result<()> {
        let (address, fragments) = self.by_id[id as usize].place(chunk, self.profile.layout.fragment, self.block());
        if self.by_id[id as usize].index.is_some() {
            return self.change(address, at_once);
        }
        if at_once {
            return self.pages.write(address, fragments);
        }
        self.log(address);
        self.pages.dirty_part(address, fragments);
        Ok(())
    }

    pub(super) fn need_inode(&mut self, inode: u64) -> io::Result<()> {
        let block = self.layout.inode_block(inode);
        if self.inodes.touch(inode).is_some() {
            self.pages.join(block);
        } else {
            self.pages.need(block)?;
            self.inodes.insert(inode, 1, 0, |_| ());
        }
        Ok(())
    }

    pub(super) fn know_name(&mut self, path: &str) {
        let name = xxh3_64(path.as_bytes());
        if self.names.touch(name).is_none() {
            self.names.insert(name, 1, 0, |_| ());
        }
    }

    /// The chunk of its directory in which this file's name stands. The buffers of a tree divide.
    pub(super) fn chunk_of(&self, id: u64, path: &str, chunk: u32) -> u32 {
        self.by_id[id as usize].index.as_ref().map_or(chunk, |index| index.number(last_part(path)))
    }

    /// Looks through a directory for this path, as far as this chunk or to its end; of a tree, in the one buffer where
    /// it would stand.
    pub(super) fn search(&mut self, id: u64, path: &str, up_to: Option<u32>) -> io::Result<()> {
        let directory = &self.by_id[id as usize];
        if directory.index.is_some() {
            let chunk = self.chunk_of(id, path, 0);
            let (address, _) = self.by_id[id as usize].place(chunk, self.profile.layout.fragment, self.block());
            return self.pages.need(address);
        }
        let entries = up_to.map_or(directory.entries, |chunk| directory.entries_up_to(chunk));
        self.pages.need_directory(id, &directory.runs)?;
        self.pages.work(self.profile.processor.entry_ns * entries as f64);
        Ok(())
    }

    /// The directory that a path is in, each part looked up.
    pub(super) fn parent(&mut self, path: &str) -> io::Result<u64> {
        let parent = path.rfind('/').map_or("", |end| &path[..end]);
        let id = *self.directories.get(parent).ok_or_else(|| missing(parent))?;
        self.walk_to(id)?;
        Ok(id)
    }

    /// Looks a directory up, from the root on.
    fn walk_to(&mut self, id: u64) -> io::Result<()> {
        if id == ROOT {
            return Ok(());
        }
        let Directory { above, name, inode, .. } = self.by_id[id as usize];
        self.walk_to(above)?;
        // Where directories are trees, those that are in use stay open.
        if self.profile.records.is_some() || self.names.touch(name).is_some() {
            self.pages.join_directory(above);
        } else {
            self.search(above, "", None)?;
            self.names.insert(name, 1, 0, |_| ());
        }
        self.need_inode(inode)
    }

    /// An inode and a directory of its own group, in memory only.
    pub(super) fn new_directory(&mut self, path: &str, above: u64, group: usize) -> io::Result<u64> {
        let inode = self.layout.take_inode(group, true).ok_or_else(full)?;
        let group = self.layout.group_of_inode(inode);
        let address = self.layout.take_block(group, None).ok_or_else(full)?;
        let id = self.by_id.len() as u64;
        let name = xxh3_64(path.as_bytes());
        let (first, block) = ((address, self.block()), self.profile.layout.block);
        self.by_id.push(match &self.profile.records {
            Some(records) => Directory::tree(inode, (above, name), first, Index::new(records, block), block),
            None => Directory::new(inode, (above, name), first),
        });
        self.directories.insert(path.to_owned(), id);
        self.has_block(id, address)?;
        Ok(id)
    }

    /// A directory that is in memory has a new block.
    fn has_block(&mut self, id: u64, address: Address) -> io::Result<()> {
        let directory = &self.by_id[id as usize];
        match directory.index {
            Some(_) => self.pages.made(address),
            None => self.pages.grown_directory(id, &directory.runs),
        }
    }

    /// All of a directory is needed.
    pub(super) fn need_all(&mut self, id: u64) -> io::Result<()> {
        let directory = &self.by_id[id as usize];
        if directory.index.is_none() {
            return self.pages.need_directory(id, &directory.runs);
        }
        let block = self.block();
        let buffers: Vec<Address> =
            directory.runs.iter().flat_map(|(start, count)| (*start..start + count).step_by(block as usize)).collect();
        buffers.into_iter().try_for_each(|buffer| self.pages.need(buffer))
    }

    pub(in crate::fs) fn make_dir(&mut self, path: &str) -> io::Result<()> {
        self.begin(0, 0, true)?;
        let above = self.parent(path)?;
        self.search(above, path, None)?;
        if self.directories.contains_key(path) {
            return Ok(());
        }
        if self.files.contains_key(path) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{path}: a file of that name is there")));
        }
        let at_once = self.at_once(true);
        let id = self.new_directory(path, above, self.layout.group_for_directory())?;
        let inode = self.by_id[id as usize].inode;
        self.change_maps(self.layout.group_of_inode(inode), true)?;
        self.change(self.layout.inode_block(inode), at_once)?;
        self.change_directory(id, 0, at_once)?;
        self.enter(above, path, at_once)?;
        self.know_name(path);
        Ok(())
    }

    /// Puts a name into its directory; returns the chunk it is in.
    pub(super) fn enter(&mut self, id: u64, path: &str, at_once: bool) -> io::Result<u32> {
        if self.by_id[id as usize].index.is_some() {
            return self.enter_tree(id, last_part(path), at_once);
        }
        let bytes = entry_bytes(last_part(path));
        let inode_block = self.layout.inode_block(self.by_id[id as usize].inode);
        let room = self.by_id[id as usize].room(bytes);
        let chunk = match room {
            Some(chunk) => chunk,
            None => self.lengthen(id)?,
        };
        let directory = &mut self.by_id[id as usize];
        directory.take(chunk, bytes);
        directory.entries += 1;
        self.change_directory(id, chunk, at_once)?;
        self.change(inode_block, at_once && room.is_none())?;
        Ok(chunk)
    }

    fn enter_tree(&mut self, id: u64, name: &str, at_once: bool) -> io::Result<u32> {
        let number = self.chunk_of(id, name, 0);
        if self.by_id[id as usize].index.as_ref().is_some_and(|index| index.is_full(name)) {
            let other = self.lengthen(id)?;
            if let Some(index) = &mut self.by_id[id as usize].index {
                index.divide(name, other);
            }
            self.change_directory(id, other, at_once)?;
            self.change_directory(id, number, at_once)?;
        }
        let directory = &mut self.by_id[id as usize];
        directory.entries += 1;
        let inode = directory.inode;
        if let Some(index) = &mut directory.index {
            index.insert(name);
        }
        let number = self.chunk_of(id, name, 0);
        self.change_directory(id, number, at_once)?;
        self.change(self.layout.inode_block(inode), false)?;
        Ok(number)
    }

    pub(super) fn lengthen(&mut self, id: u64) -> io::Result<u32> {
        let directory = &self.by_id[id as usize];
        if directory.is_full(self.profile.layout.fragment) {
            let group = self.layout.group_of_inode(directory.inode);
            let wanted = directory.runs.last().map(|(start, count)| start + count);
            let address = self.layout.take_block(group, wanted).ok_or_else(full)?;
            let block = self.block();
            self.by_id[id as usize].grow((address, block));
            self.has_block(id, address)?;
            self.change(self.layout.map(self.layout.group_of(address)), false)?;
        }
        Ok(self.by_id[id as usize].lengthen())
    }

    /// Goes from a file's name to its inode, which is in memory then.
    pub(super) fn find(&mut self, path: &str) -> io::Result<u64> {
        let directory = self.parent(path)?;
        let Some(file) = self.files.get(path) else {
            self.search(directory, path, None)?;
            return Err(missing(path));
        };
        let (chunk, inode) = (file.chunk, file.inode);
        if self.names.touch(xxh3_64(path.as_bytes())).is_none() {
            self.search(directory, path, Some(chunk))?;
            self.know_name(path);
        } else {
            self.pages.join_directory(directory);
        }
        self.need_inode(inode)?;
        Ok(inode)
    }
}
