//! From a path to an inode: directories looked through, and names entered.
//!
//! What is known of inodes and names costs nothing; else a directory is searched from its start, and comes from the
//! disk as a whole if it is not in memory.

use std::io;

use xxhash_rust::xxh3::xxh3_64;

use super::{Core, full, missing};
use crate::fs::directory::{Directory, entry_bytes};

/// The directory that all others are in.
const ROOT: u64 = 0;

impl Core {
    /// The block of a directory that holds this chunk has changed.
    pub(super) fn change_directory(&mut self, id: u64, chunk: u32, at_once: bool) -> io::Result<()> {
        let (address, fragments) = self.by_id[id as usize].place(chunk, self.profile.layout.fragment, self.block());
        if at_once {
            return self.pages.write(address, fragments);
        }
        self.log(address);
        self.pages.dirty_part(address, fragments);
        Ok(())
    }

    pub(super) fn need_inode(&mut self, inode: u64) -> io::Result<()> {
        if self.inodes.touch(inode).is_none() {
            self.pages.need(self.layout.inode_block(inode))?;
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

    /// Looks through a directory, as far as this chunk or to its end.
    pub(super) fn search(&mut self, id: u64, up_to: Option<u32>) -> io::Result<()> {
        let directory = &self.by_id[id as usize];
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
        if self.names.touch(name).is_none() {
            self.search(above, None)?;
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
        self.by_id.push(Directory::new(inode, (above, name), (address, self.block())));
        self.directories.insert(path.to_owned(), id);
        self.pages.grown_directory(id, &[(address, self.block())])?;
        Ok(id)
    }

    pub(in crate::fs) fn make_dir(&mut self, path: &str) -> io::Result<()> {
        self.begin(0, 0, true)?;
        let above = self.parent(path)?;
        self.search(above, None)?;
        if self.directories.contains_key(path) {
            return Ok(());
        }
        if self.files.contains_key(path) {
            return Err(io::Error::new(io::ErrorKind::AlreadyExists, format!("{path}: a file of that name is there")));
        }
        let at_once = self.at_once(true);
        let id = self.new_directory(path, above, self.layout.group_for_directory())?;
        let inode = self.by_id[id as usize].inode;
        self.change(self.layout.map(self.layout.group_of_inode(inode)), false)?;
        self.change(self.layout.inode_block(inode), at_once)?;
        self.change_directory(id, 0, at_once)?;
        self.enter(above, path, at_once)?;
        self.know_name(path);
        Ok(())
    }

    /// Puts a name into its directory; returns the chunk it is in.
    pub(super) fn enter(&mut self, id: u64, path: &str, at_once: bool) -> io::Result<u32> {
        let bytes = entry_bytes(&path[path.rfind('/').map_or(0, |slash| slash + 1)..]);
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

    pub(super) fn lengthen(&mut self, id: u64) -> io::Result<u32> {
        let directory = &self.by_id[id as usize];
        if directory.is_full(self.profile.layout.fragment) {
            let group = self.layout.group_of_inode(directory.inode);
            let wanted = directory.runs.last().map(|(start, count)| start + count);
            let address = self.layout.take_block(group, wanted).ok_or_else(full)?;
            let block = self.block();
            let directory = &mut self.by_id[id as usize];
            directory.grow((address, block));
            self.pages.grown_directory(id, &directory.runs)?;
            self.change(self.layout.map(self.layout.group_of(address)), false)?;
        }
        Ok(self.by_id[id as usize].lengthen())
    }

    /// Goes from a file's name to its inode, which is in memory then.
    pub(super) fn find(&mut self, path: &str) -> io::Result<u64> {
        let directory = self.parent(path)?;
        let Some(file) = self.files.get(path) else {
            self.search(directory, None)?;
            return Err(missing(path));
        };
        let (chunk, inode) = (file.chunk, file.inode);
        if self.names.touch(xxh3_64(path.as_bytes())).is_none() {
            self.search(directory, Some(chunk))?;
            self.know_name(path);
        }
        self.need_inode(inode)?;
        Ok(inode)
    }
}
