//! Where the bytes of a file go, and what becomes of the room when it leaves.

use std::io;
use std::mem::take;

use super::state::Core;
use crate::fs::layout::{Address, Layout, Run};
use crate::fs::steps::Step;

impl Core {
    /// Whether a file of so many bytes lies in its record.
    pub(super) fn is_resident(&self, size: u64) -> bool {
        self.profile.records.as_ref().is_some_and(|records| size <= records.resident)
    }

    /// Takes room for so many bytes near the start of a group; all or nothing.
    pub(super) fn place(&mut self, group: usize, size: u64) -> Option<(Vec<Run>, Option<Address>)> {
        if self.is_resident(size) {
            return Some((Vec::new(), None));
        }
        let (block, direct) = (self.profile.layout.block, self.profile.layout.direct);
        let (whole, rest) = (size / block, size % block);
        // Only a small file ends in fragments.
        let fragments = rest.div_ceil(self.profile.layout.fragment);
        let (blocks, tail) = if fragments == self.block() || (whole >= direct && rest > 0) {
            (whole + 1, 0)
        } else {
            (whole, fragments)
        };
        let mut runs: Vec<Run> = Vec::new();
        let one = |layout: &mut Layout, wanted| layout.take_block(group, wanted);
        let mut found = self.layout.available() >= (blocks + 1) * self.block() + tail;
        let mut wanted = None;
        for _ in 0..blocks {
            let Some(address) = one(&mut self.layout, wanted).filter(|_| found) else {
                found = false;
                break;
            };
            wanted = Some(address + self.block());
            match runs.last_mut() {
                Some((start, count)) if *start + *count == address => *count += self.layout.fragments,
                _ => runs.push((address, self.layout.fragments)),
            }
        }
        if found && tail > 0 {
            match self.layout.take_fragments(group, tail) {
                Some(address) => runs.push((address, tail)),
                None => found = false,
            }
        }
        let mut indirect = None;
        if found && blocks > direct {
            indirect = one(&mut self.layout, wanted);
            found = indirect.is_some();
        }
        if !found {
            runs.into_iter().for_each(|(address, count)| self.layout.give_back(address, count));
            return None;
        }
        self.reserve(&runs, indirect);
        Some((runs, indirect))
    }

    /// What a file has taken behind its last block is no other file's until it is closed (`ext2_alloc_block`,
    /// `ext2_discard_prealloc`). Calls one after the other never see it.
    fn reserve(&mut self, runs: &[Run], indirect: Option<Address>) {
        let most = self.profile.layout.preallocate;
        let Some((start, count)) = runs.last().filter(|_| most > 0 && self.pages.noted.is_noting()) else { return };
        let end = start + count;
        let end = if indirect == Some(end) { end + self.block() } else { end };
        let left = (most - (end - start) / self.block() % most) % most;
        let reserved = self.layout.reserve(end, left);
        if reserved > 0 {
            self.reserved.push((end, reserved));
        }
    }

    /// What the call waits for that was noted, and what its file has to give back when it is closed. A file is open
    /// while its call waits for the disk, as a writer does who finds too much dirty, within `write` (remembered). A
    /// call that does not wait has closed it: in the kernel of Linux 2.2 no other process takes the processor from it.
    /// There would be more holes with the second processor, which may slip in between `write` and `close`, and with
    /// writers that wait for 500 buffers at a time; and fewer if a writer that waits for a directory or an inode had
    /// nothing reserved yet.
    pub(in crate::fs) fn noted(&mut self) -> (Vec<Step>, Vec<Run>) {
        let (steps, mut reserved) = (self.pages.noted.take(), take(&mut self.reserved));
        if !steps.iter().any(Step::waits_for_the_disk) {
            self.close(&take(&mut reserved));
        }
        (steps, reserved)
    }

    /// The file of a call that is over is closed.
    pub(in crate::fs) fn close(&mut self, reserved: &[Run]) {
        reserved.iter().for_each(|(address, count)| self.layout.give_back(*address, *count));
    }

    /// Bytes, and the block that says where they are, into room that was taken for them.
    pub(super) fn lay(
        &mut self,
        inode: u64,
        (runs, indirect): (&[Run], Option<Address>),
        bytes: &[u8],
        at_once: bool,
    ) -> io::Result<()> {
        if self.is_resident(bytes.len() as u64) {
            self.contents.write(self.layout.inode_byte(inode, &self.profile.layout), bytes);
        }
        self.put_data(runs, bytes)?;
        if let Some(indirect) = indirect {
            self.pages.made(indirect)?;
            self.change(indirect, at_once)?;
        }
        Ok(())
    }

    /// Whole blocks go to the disk in clusters, or whole clusters do, if this file system does that; the rest is dirty.
    pub(super) fn put_data(&mut self, runs: &[Run], bytes: &[u8]) -> io::Result<()> {
        let (block, fragment) = (self.block(), self.profile.layout.fragment);
        let cluster = self.profile.daemon.cluster / fragment;
        let unit = if self.profile.whole_blocks_at_once { block } else { cluster };
        let at_once = self.profile.whole_blocks_at_once || self.profile.whole_clusters_at_once;
        let mut rest = bytes;
        for (start, count) in runs {
            let here = (rest.len() as u64).min(count * fragment) as usize;
            let (now, later) = rest.split_at(here);
            self.contents.write(start * fragment, now);
            rest = later;
            let whole = if at_once { here as u64 / fragment / unit * unit } else { 0 };
            self.pages.arrived(*start, *count)?;
            let mut at = *start;
            while at < start + whole {
                let step = cluster.min(start + whole - at);
                self.pages.write_later(at, step)?;
                at += step;
            }
            while at < start + count {
                let step = block.min(start + count - at);
                self.pages.dirty(at, step, false)?;
                at += step;
            }
        }
        Ok(())
    }

    /// Gives room back; what of it is dirty need not be written any more.
    pub(super) fn release(&mut self, runs: &[Run]) -> io::Result<()> {
        let fragment = self.profile.layout.fragment;
        for (address, count) in runs {
            self.pages.forget(*address, *count);
            if let Some(journal) = &mut self.journal {
                journal.forget(*address);
            }
            self.contents.clear(address * fragment, count * fragment);
            self.layout.give_back(*address, *count);
            self.change(self.layout.map(self.layout.group_of(*address)), false)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use picaflor_device::{Clock, Folder};
    use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};

    use super::Run;
    use crate::exec::Executor;
    use crate::fs::{FileSystem, FsProfile};

    /// Files of three blocks that are made at once by as many clients, in a directory that is not in memory; or one
    /// after the other. Where they lie, and by how much less is free then.
    fn made(files: u64, at_once: bool) -> (Vec<Run>, u64) {
        let options = SimulatedOptions { part: Some(0..1 << 30), ..SimulatedOptions::default() };
        let profile = Profile::find("ultrastar9lzx").unwrap();
        let disk = SimulatedDisk::new(&profile, Clock::virtual_at(0), &options).unwrap();
        let fs = FileSystem::new(&FsProfile::find("ext2").unwrap(), &disk).unwrap();
        fs.make_dir("a").unwrap();
        fs.empty_memory().unwrap();
        let free = fs.available();
        let mut executor = Executor::new(disk.clock(), std::slice::from_ref(&disk));
        for file in 0..files {
            let (fs, time) = (fs.clone(), executor.time());
            executor.spawn(async move {
                let write = |fs: &FileSystem| fs.write(&format!("a/{file}"), &[1; 3 * 4096]);
                let done = if at_once { fs.beside(&time, write).await } else { write(&fs) };
                done.unwrap();
            });
        }
        executor.run().unwrap();
        let core = fs.core.lock();
        let runs = (0..files).flat_map(|file| core.files[&format!("a/{file}")].runs.clone()).collect();
        drop(core);
        (runs, free - fs.available())
    }

    #[test]
    fn what_open_files_reserve_leaves_holes_and_comes_back() {
        let (beside, taken) = made(4, true);
        let (serial, taken_by_one) = made(4, false);
        let steps = |runs: &[Run]| runs.windows(2).map(|pair| pair[1].0 - pair[0].0).collect::<Vec<_>>();
        assert_eq!(steps(&serial), [3, 3, 3]);
        // Three of eight blocks each; the first begins before a byte of the map.
        let apart = steps(&beside);
        assert!(apart.iter().all(|step| *step >= 8), "{apart:?}");
        assert_eq!((taken, taken_by_one), (4 * 3 * 4096, 4 * 3 * 4096), "given back when the files are closed");
    }
}
