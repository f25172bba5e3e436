//! One directory: names in chunks of 512 bytes, searched from the start, freed slots used again; or a tree, a chunk of
//! which is one of its buffers.

use super::index::Index;
use super::layout::Run;

/// Bytes of a chunk; a name does not cross into the next.
const CHUNK: u64 = 512;

pub(crate) struct Directory {
    pub(crate) inode: u64,
    /// The directory it is in, and the hash of its path.
    pub(crate) above: u64,
    pub(crate) name: u64,
    /// Runs of fragments, in order.
    pub(crate) runs: Vec<Run>,
    /// Names in it.
    pub(crate) entries: u64,
    /// Of one that is a tree, and bytes of a chunk.
    pub(crate) index: Option<Index>,
    chunk: u64,
    chunks: u32,
    /// Free bytes by chunk, as a tree of what is most: the root at 1, the leaves in the second half.
    most_free: Vec<u16>,
}

/// Bytes of a name's entry.
pub(crate) fn entry_bytes(name: &str) -> u16 {
    (8 + (name.len() as u64 + 1).next_multiple_of(4)).min(CHUNK) as u16
}

impl Directory {
    /// Empty, with its first block; where it is, and what it is called.
    pub(crate) fn new(inode: u64, (above, name): (u64, u64), first: Run) -> Self {
        let runs = vec![first];
        let (chunk, most_free) = (CHUNK, vec![0; 2]);
        let mut directory = Self { inode, above, name, runs, entries: 2, index: None, chunk, chunks: 0, most_free };
        let chunk = directory.lengthen();
        directory.take(chunk, entry_bytes(".") + entry_bytes(".."));
        directory
    }

    /// The same, as a tree whose buffers are blocks of so many bytes.
    pub(crate) fn tree(inode: u64, (above, name): (u64, u64), first: Run, index: Index, block: u64) -> Self {
        let runs = vec![first];
        Self {
            inode,
            above,
            name,
            runs,
            entries: 0,
            index: Some(index),
            chunk: block,
            chunks: 1,
            most_free: vec![0; 2],
        }
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
        u64::from(self.chunks) * self.chunk == self.fragments() * fragment
    }

    /// Has another chunk at its end.
    pub(crate) fn lengthen(&mut self) -> u32 {
        let chunk = self.chunks;
        self.chunks += 1;
        if self.index.is_some() {
            return chunk;
        }
        let leaves = self.most_free.len() / 2;
        if chunk as usize == leaves {
            let old = self.most_free.split_off(leaves);
            self.most_free = vec![0; leaves * 2];
            self.most_free.extend(old);
            self.most_free.resize(leaves * 4, 0);
            for at in (1..leaves * 2).rev() {
                self.most_free[at] = self.most_free[2 * at].max(self.most_free[2 * at + 1]);
            }
        }
        self.set_free(chunk, CHUNK as u16);
        chunk
    }

    fn free(&self, chunk: u32) -> u16 {
        self.most_free[self.most_free.len() / 2 + chunk as usize]
    }

    fn set_free(&mut self, chunk: u32, bytes: u16) {
        let mut at = self.most_free.len() / 2 + chunk as usize;
        self.most_free[at] = bytes;
        while at > 1 {
            at /= 2;
            self.most_free[at] = self.most_free[2 * at].max(self.most_free[2 * at + 1]);
        }
    }

    /// The first chunk with room for a name of this size.
    pub(crate) fn room(&self, bytes: u16) -> Option<u32> {
        if self.most_free[1] < bytes {
            return None;
        }
        let leaves = self.most_free.len() / 2;
        let mut at = 1;
        while at < leaves {
            at = 2 * at + usize::from(self.most_free[2 * at] < bytes);
        }
        Some((at - leaves) as u32)
    }

    pub(crate) fn take(&mut self, chunk: u32, bytes: u16) {
        self.set_free(chunk, self.free(chunk) - bytes);
    }

    pub(crate) fn give_back(&mut self, chunk: u32, bytes: u16) {
        self.set_free(chunk, self.free(chunk) + bytes);
    }

    /// Names that a search passes before it has seen this chunk.
    pub(crate) fn entries_up_to(&self, chunk: u32) -> u64 {
        self.entries * (u64::from(chunk) + 1) / u64::from(self.chunks.max(1))
    }

    /// Where the block that a chunk is in lies, and how many of its fragments the directory has.
    pub(crate) fn place(&self, chunk: u32, fragment: u64, block: u64) -> Run {
        let mut skip = u64::from(chunk) * self.chunk / fragment;
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_chunk_with_room_is_found_as_by_looking_at_each() {
        let mut directory = Directory::new(1, (0, 0), (0, 8));
        let mut dice = crate::synth::Dice::new(8, 1);
        let mut free = vec![CHUNK as u16 - entry_bytes(".") - entry_bytes("..")];
        let mut names = Vec::new();
        for _ in 0..5_000 {
            let bytes = 12 + 4 * dice.below(12) as u16;
            if dice.below(3) == 0 && !names.is_empty() {
                let (chunk, bytes) = names.swap_remove(dice.below(names.len() as u64) as usize);
                directory.give_back(chunk, bytes);
                free[chunk as usize] += bytes;
                continue;
            }
            let room = directory.room(bytes);
            assert_eq!(room, free.iter().position(|free| *free >= bytes).map(|chunk| chunk as u32));
            let chunk = room.unwrap_or_else(|| {
                free.push(CHUNK as u16);
                directory.lengthen()
            });
            directory.take(chunk, bytes);
            free[chunk as usize] -= bytes;
            names.push((chunk, bytes));
        }
        assert!(free.len() > 60);
    }
}
