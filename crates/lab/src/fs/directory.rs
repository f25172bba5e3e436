//! One directory: names in chunks of 512 bytes, searched from the start, freed slots used again.

use std::collections::BTreeSet;

use super::layout::Run;

/// Bytes of a chunk; a name does not cross into the next.
const CHUNK: u64 = 512;
/// Bytes below which free space is not looked for: no name fits.
const LEAST: u16 = 16;

pub(crate) struct Directory {
    pub(crate) inode: u64,
    /// Runs of fragments, in order.
    pub(crate) runs: Vec<Run>,
    /// Names in it.
    pub(crate) entries: u64,
    /// Free bytes of each chunk.
    free: Vec<u16>,
    /// Chunks with room.
    roomy: BTreeSet<u32>,
}

/// Bytes of a name's entry.
pub(crate) fn entry_bytes(name: &str) -> u16 {
    (8 + (name.len() as u64 + 1).next_multiple_of(4)).min(CHUNK) as u16
}

impl Directory {
    /// Empty, with its first block.
    pub(crate) fn new(inode: u64, first: Run) -> Self {
        let runs = vec![first];
        let mut directory = Self { inode, runs, entries: 2, free: Vec::new(), roomy: BTreeSet::new() };
        let chunk = directory.lengthen();
        directory.take(chunk, entry_bytes(".") + entry_bytes(".."));
        directory
    }

    /// Has another block at its end.
    pub(crate) fn grow(&mut self, run: Run) {
        match self.runs.last_mut() {
            Some((start, count)) if *start + *count == run.0 => *count += run.1,
            _ => self.runs.push(run),
        }
    }

    /// Whether its last block is full of chunks.
    pub(crate) fn is_full(&self, fragment: u64) -> bool {
        self.free.len() as u64 * CHUNK == self.fragments() * fragment
    }

    /// Has another chunk at its end.
    pub(crate) fn lengthen(&mut self) -> u32 {
        let chunk = self.free.len() as u32;
        self.roomy.insert(chunk);
        self.free.push(CHUNK as u16);
        chunk
    }

    /// The first chunk with room for a name of this size.
    pub(crate) fn room(&self, bytes: u16) -> Option<u32> {
        self.roomy.iter().copied().find(|chunk| self.free[*chunk as usize] >= bytes)
    }

    pub(crate) fn take(&mut self, chunk: u32, bytes: u16) {
        let free = &mut self.free[chunk as usize];
        *free -= bytes;
        if *free < LEAST {
            self.roomy.remove(&chunk);
        }
    }

    pub(crate) fn give_back(&mut self, chunk: u32, bytes: u16) {
        self.free[chunk as usize] += bytes;
        self.roomy.insert(chunk);
    }

    /// Names that a search passes before it has seen this chunk.
    pub(crate) fn entries_up_to(&self, chunk: u32) -> u64 {
        self.entries * (u64::from(chunk) + 1) / self.free.len().max(1) as u64
    }

    /// Where the block that a chunk is in lies, and how many of its fragments the directory has.
    pub(crate) fn place(&self, chunk: u32, fragment: u64, block: u64) -> Run {
        let mut skip = u64::from(chunk) * CHUNK / fragment;
        for (start, count) in &self.runs {
            if skip < *count {
                let address = start + skip / block * block;
                return (address, block.min(start + count - address));
            }
            skip -= count;
        }
        self.runs.last().map_or((0, 1), |(start, _)| (*start, 1))
    }

    pub(crate) fn fragments(&self) -> u64 {
        self.runs.iter().map(|(_, count)| count).sum()
    }
}
