//! Where the bytes of a file go, and what becomes of the room when it leaves.

use std::io;

use super::Core;
use crate::fs::layout::{Address, Layout, Run};

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
        let take = |layout: &mut Layout, wanted| layout.take_block(group, wanted);
        let mut found = self.layout.available() >= (blocks + 1) * self.block() + tail;
        let mut wanted = None;
        for _ in 0..blocks {
            let Some(address) = take(&mut self.layout, wanted).filter(|_| found) else {
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
            indirect = take(&mut self.layout, wanted);
            found = indirect.is_some();
        }
        if !found {
            runs.into_iter().for_each(|(address, count)| self.layout.give_back(address, count));
            return None;
        }
        Some((runs, indirect))
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
