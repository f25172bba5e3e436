//! Where blocks and inodes lie: groups of neighbouring cylinders, each with its maps, its inodes and its data.
//!
//! Addresses count fragments from the start of the disk. A file's inode is in the group of its directory, its data
//! near the inode, block after block while there is room; the last part of a small file takes fragments of a block
//! that others share.

use super::profile::LayoutProfile;

/// Where something lies, in fragments.
pub(crate) type Address = u64;

/// Fragments side by side: where, and how many.
pub(crate) type Run = (Address, u64);

pub(crate) struct Layout {
    groups: Vec<Group>,
    /// Fragments of a block.
    pub(crate) fragments: u64,
    group_blocks: u64,
    /// Blocks before the data of a group: superblock, maps, inodes.
    header: u64,
    /// Of those, before the inodes.
    maps: u64,
    /// Whether a new file begins where eight blocks in a row are free.
    by_eight: bool,
    inodes: u64,
    inodes_per_block: u64,
    /// One more than the last inode that was ever in use.
    reach: u64,
    /// Blocks before the first group.
    front: u64,
    free: u64,
    reserve: u64,
}

struct Group {
    /// A bit for each free fragment, for each block of the group.
    masks: Vec<u8>,
    /// Where the last block was found.
    rotor: usize,
    free_blocks: u64,
    /// Blocks in part free, by their longest free run.
    partial: [Marks; 8],
    /// A bit for each inode in use.
    inodes: Vec<u64>,
    inode_rotor: usize,
    free_inodes: u64,
    directories: u64,
}

/// A set of small numbers, whose least one is asked for.
#[derive(Default)]
struct Marks {
    bits: Vec<u64>,
    /// All words before this one are empty.
    from: usize,
}

impl Marks {
    fn insert(&mut self, number: usize) {
        let word = number / 64;
        if self.bits.len() <= word {
            self.bits.resize(word + 1, 0);
        }
        self.bits[word] |= 1 << (number % 64);
        self.from = self.from.min(word);
    }

    fn remove(&mut self, number: usize) {
        self.bits[number / 64] &= !(1 << (number % 64));
    }

    fn first(&mut self) -> Option<usize> {
        self.from += self.bits[self.from..].iter().take_while(|word| **word == 0).count();
        self.bits.get(self.from).map(|word| self.from * 64 + word.trailing_zeros() as usize)
    }
}

/// Fragments of the longest run of set bits, and where it begins.
fn longest_run(mask: u8) -> (u32, u32) {
    let mut best = (0, 0);
    let mut at = 0;
    while at < 8 {
        let run = (mask >> at).trailing_ones();
        if run > best.0 {
            best = (run, at);
        }
        at += run + 1;
    }
    best
}

impl Layout {
    /// `front`: blocks before the first group, for a journal.
    pub(crate) fn new(profile: &LayoutProfile, capacity: u64, front: u64) -> Self {
        let fragments = profile.block / profile.fragment;
        let group_blocks = match profile.group_blocks {
            0 => (capacity / profile.block).saturating_sub(front).max(16),
            blocks => u64::from(blocks),
        };
        let inodes_per_block = profile.block / profile.inode;
        let inodes = group_blocks * profile.block / profile.bytes_per_inode;
        let inodes = inodes.next_multiple_of(inodes_per_block).min(group_blocks / 2 * inodes_per_block);
        let maps = 2 + u64::from(profile.inode_map);
        let header = maps + inodes / inodes_per_block;
        let count = (capacity / profile.block).saturating_sub(front) / group_blocks;
        let data = group_blocks - header;
        let full = ((1_u16 << fragments) - 1) as u8;
        let group = || Group {
            masks: vec![full; data as usize],
            rotor: (data * profile.first_percent / 100) as usize,
            free_blocks: data,
            partial: Default::default(),
            inodes: vec![0; inodes.div_ceil(64) as usize],
            inode_rotor: 0,
            free_inodes: inodes,
            directories: 0,
        };
        let free = count * data * fragments;
        Self {
            groups: (0..count).map(|_| group()).collect(),
            fragments,
            group_blocks,
            header,
            maps,
            by_eight: profile.preallocate > 0,
            inodes,
            inodes_per_block,
            reach: 0,
            front,
            free,
            reserve: free / 100 * profile.reserve_percent,
        }
    }

    fn full(&self) -> u8 {
        ((1_u16 << self.fragments) - 1) as u8
    }

    fn base(&self, group: usize) -> u64 {
        self.front + group as u64 * self.group_blocks
    }

    /// Fragments that may still be taken.
    pub(crate) fn available(&self) -> u64 {
        self.free.saturating_sub(self.reserve)
    }

    /// Inodes from the first to the last that was ever in use.
    pub(crate) fn reach(&self) -> u64 {
        self.reach
    }

    /// Where an inode begins, in bytes.
    pub(crate) fn inode_byte(&self, inode: u64, profile: &LayoutProfile) -> u64 {
        self.inode_block(inode) * profile.fragment + inode % self.inodes_per_block * profile.inode
    }

    pub(crate) fn groups(&self) -> usize {
        self.groups.len()
    }

    pub(crate) fn group_of(&self, address: Address) -> usize {
        ((address / self.fragments - self.front) / self.group_blocks) as usize
    }

    pub(crate) fn group_of_inode(&self, inode: u64) -> usize {
        (inode / self.inodes) as usize
    }

    /// The block that maps the blocks of a group.
    pub(crate) fn map(&self, group: usize) -> Address {
        (self.base(group) + 1) * self.fragments
    }

    /// The one that maps its inodes, which may be the same.
    pub(crate) fn inode_map(&self, group: usize) -> Address {
        (self.base(group) + self.maps - 1) * self.fragments
    }

    /// The block that holds an inode.
    pub(crate) fn inode_block(&self, inode: u64) -> Address {
        let block = inode % self.inodes / self.inodes_per_block;
        (self.base(self.group_of_inode(inode)) + self.maps + block) * self.fragments
    }

    /// The group for a new directory: with the fewest directories among those of more free inodes than the mean.
    pub(crate) fn group_for_directory(&self) -> usize {
        let mean = self.groups.iter().map(|group| group.free_inodes).sum::<u64>() / self.groups.len().max(1) as u64;
        let rich = (0..self.groups.len()).filter(|index| self.groups[*index].free_inodes >= mean);
        rich.min_by_key(|index| self.groups[*index].directories).unwrap_or(0)
    }

    /// An inode in this group, or the nearest after it that has one.
    pub(crate) fn take_inode(&mut self, group: usize, directory: bool) -> Option<u64> {
        let count = self.groups.len();
        let at = (0..count).map(|step| (group + step) % count).find(|at| self.groups[*at].free_inodes > 0)?;
        let group = &mut self.groups[at];
        let words = group.inodes.len();
        let mut word = group.inode_rotor;
        while group.inodes[word] == u64::MAX {
            word = (word + 1) % words;
        }
        let bit = group.inodes[word].trailing_ones() as usize;
        group.inodes[word] |= 1 << bit;
        group.inode_rotor = word;
        group.free_inodes -= 1;
        group.directories += u64::from(directory);
        let inode = at as u64 * self.inodes + (word * 64 + bit) as u64;
        self.reach = self.reach.max(inode + 1);
        Some(inode)
    }

    pub(crate) fn free_inode(&mut self, inode: u64) {
        let group = &mut self.groups[(inode / self.inodes) as usize];
        let within = (inode % self.inodes) as usize;
        group.inodes[within / 64] &= !(1 << (within % 64));
        // The lowest free one is found first, so that inodes in use stay together.
        group.inode_rotor = group.inode_rotor.min(within / 64);
        group.free_inodes += 1;
    }

    /// A whole block: `wanted` if it is free, else the next free one after it, in this group or a later one.
    pub(crate) fn take_block(&mut self, group: usize, wanted: Option<Address>) -> Option<Address> {
        let (count, full) = (self.groups.len(), self.full());
        let at = (0..count).map(|step| (group + step) % count).find(|at| self.groups[*at].free_blocks > 0)?;
        let first = self.base(at) + self.header;
        let eight = if self.by_eight && wanted.is_none() { self.eight_in_a_row(at) } else { None };
        let group = &mut self.groups[at];
        let from = match wanted.map(|wanted| wanted / self.fragments) {
            Some(block) if (first..first + group.masks.len() as u64).contains(&block) => (block - first) as usize,
            _ => eight.unwrap_or(group.rotor),
        };
        let (before, after) = group.masks.split_at(from);
        let is_free = |mask: &u8| *mask == full;
        let found = after.iter().position(is_free).map(|index| from + index);
        let found = found.or_else(|| before.iter().position(is_free))?;
        group.masks[found] = 0;
        group.rotor = found;
        group.free_blocks -= 1;
        self.free -= self.fragments;
        Some((first + found as u64) * self.fragments)
    }

    /// Where in a group a file begins: at the first byte of the map whose eight blocks are free, and up to seven before
    /// it (`ext2_new_block`: the search for a free byte, and back).
    fn eight_in_a_row(&self, group: usize) -> Option<usize> {
        let (masks, full) = (&self.groups[group].masks, self.full());
        let begin = (self.header.next_multiple_of(8) - self.header) as usize;
        let is_free = |masks: &[u8]| masks.iter().all(|mask| *mask == full);
        let found = masks.get(begin..)?.chunks_exact(8).position(is_free)? * 8 + begin;
        let back = masks[..found].iter().rev().take(7).take_while(|mask| **mask == full).count();
        Some(found - back)
    }

    /// Takes blocks from this one on, as long as they are free and at most so many; returns the fragments.
    pub(crate) fn reserve(&mut self, address: Address, most: u64) -> u64 {
        let (group, full) = (self.group_of(address - 1), self.full());
        let first = self.base(group) + self.header;
        let from = (address / self.fragments - first) as usize;
        let next = self.groups[group].masks.iter().skip(from).take(most as usize);
        let count = next.take_while(|mask| **mask == full).count() as u64;
        (0..count).for_each(|block| self.set(address + block * self.fragments, self.fragments, false));
        count * self.fragments
    }

    /// `count` fragments side by side, fewer than a block: best fit in a block that others share, else a new one.
    pub(crate) fn take_fragments(&mut self, group: usize, count: u64) -> Option<Address> {
        let fitting = self.groups[group].partial[count as usize..].iter_mut().find_map(Marks::first);
        let block = match fitting {
            Some(block) => (self.base(group) + self.header + block as u64) * self.fragments,
            None => {
                let block = self.take_block(group, None)?;
                self.set(block, self.fragments, true);
                block
            }
        };
        let (at, index) = self.place(block);
        let (_, start) = longest_run(self.groups[at].masks[index]);
        let address = block + u64::from(start);
        self.set(address, count, false);
        Some(address)
    }

    /// Group, and number among its data blocks.
    fn place(&self, address: Address) -> (usize, usize) {
        let at = self.group_of(address);
        (at, (address / self.fragments - self.base(at) - self.header) as usize)
    }

    /// Marks fragments of one block free or taken.
    fn set(&mut self, address: Address, count: u64, free: bool) {
        let (at, index) = self.place(address);
        let bits = (((1_u16 << count) - 1) << (address % self.fragments)) as u8;
        let full = self.full();
        let group = &mut self.groups[at];
        let old = group.masks[index];
        let new = if free { old | bits } else { old & !bits };
        group.masks[index] = new;
        for (mask, enters) in [(old, false), (new, true)] {
            if mask == full {
                group.free_blocks = if enters { group.free_blocks + 1 } else { group.free_blocks - 1 };
            } else if mask != 0 {
                let run = &mut group.partial[longest_run(mask).0 as usize];
                if enters { run.insert(index) } else { run.remove(index) }
            }
        }
        self.free = if free { self.free + count } else { self.free - count };
    }

    /// Gives back fragments that lie side by side, of any number of blocks.
    pub(crate) fn give_back(&mut self, address: Address, count: u64) {
        let mut at = address;
        while at < address + count {
            let step = (self.fragments - at % self.fragments).min(address + count - at);
            self.set(at, step, true);
            at += step;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout() -> Layout {
        Layout::new(&profile(), 4 * 64 * 8192, 0)
    }

    fn profile() -> LayoutProfile {
        LayoutProfile {
            block: 8192,
            fragment: 1024,
            group_blocks: 64,
            inode: 128,
            bytes_per_inode: 4096,
            direct: 12,
            first_percent: 0,
            reserve_percent: 0,
            inode_map: false,
            preallocate: 0,
        }
    }

    #[test]
    fn the_least_mark_is_first() {
        let (mut marks, mut set) = (Marks::default(), std::collections::BTreeSet::new());
        let mut dice = crate::synth::Dice::new(3, 1);
        for _ in 0..5000 {
            let number = dice.below(300) as usize;
            if set.remove(&number) {
                marks.remove(number);
            } else if dice.below(3) == 0 {
                set.insert(number);
                marks.insert(number);
            }
            assert_eq!(marks.first(), set.first().copied());
        }
    }

    #[test]
    fn longest_runs() {
        for (mask, run) in [(0, (0, 0)), (0xff, (8, 0)), (0b0011_0111, (3, 0)), (0b1110_0110, (3, 5))] {
            assert_eq!(longest_run(mask), run);
        }
    }

    #[test]
    fn what_is_taken_is_apart_and_comes_back() {
        let mut layout = layout();
        let all = layout.available();
        assert_eq!(all, 4 * (64 - 4) * 8);
        let mut taken: Vec<(Address, u64)> = Vec::new();
        for round in 0..60_u64 {
            let count = round % 7 + 1;
            taken.push((layout.take_fragments((round % 4) as usize, count).unwrap(), count));
            taken.push((layout.take_block((round % 4) as usize, Some(8 * (5 + round))).unwrap(), 8));
        }
        let mut seen = std::collections::HashSet::new();
        for (address, count) in &taken {
            assert!((*address..address + count).all(|fragment| seen.insert(fragment)), "{address}");
            assert!(address / 8 % 64 >= 4, "in the header: {address}");
            assert_eq!(address / 8, (address + count - 1) / 8);
        }
        assert_eq!(layout.available(), all - seen.len() as u64);
        for (address, count) in taken {
            layout.give_back(address, count);
        }
        assert_eq!(layout.available(), all);
        for block in 0..240 {
            assert!(layout.take_block(block % 4, None).is_some());
        }
        assert_eq!(layout.take_block(0, None), None);
    }

    #[test]
    fn blocks_follow_one_another_and_inodes_fill_from_below() {
        let mut layout = layout();
        let first = layout.take_block(2, None).unwrap();
        assert_eq!(layout.take_block(2, Some(first + 8)), Some(first + 8));
        let inodes: Vec<_> = (0..4).map(|_| layout.take_inode(1, false).unwrap()).collect();
        assert_eq!(inodes, [128, 129, 130, 131]);
        layout.free_inode(129);
        assert_eq!(layout.take_inode(1, false), Some(129));
        assert_eq!(layout.inode_block(128), (64 + 2) * 8);
        assert_eq!(layout.inode_block(128 + 64), (64 + 3) * 8);
    }

    #[test]
    fn inodes_are_mapped_apart_where_they_are() {
        let (one, two) = (layout(), Layout::new(&LayoutProfile { inode_map: true, ..profile() }, 4 * 64 * 8192, 0));
        assert_eq!((one.map(2), one.inode_map(2), one.inode_block(2 * 128)), (129 * 8, 129 * 8, 130 * 8));
        assert_eq!((two.map(2), two.inode_map(2), two.inode_block(2 * 128)), (129 * 8, 130 * 8, 131 * 8));
        assert_eq!(two.available(), one.available() - 4 * 8);
    }

    #[test]
    fn a_file_begins_where_eight_are_free_or_where_one_is() {
        let mut layout = Layout::new(&LayoutProfile { preallocate: 8, ..profile() }, 64 * 8192, 0);
        let all = layout.available();
        // The header takes blocks 0 to 3: the first byte is 8 to 15, and four before it are free.
        assert_eq!(layout.take_block(0, None), Some(4 * 8));
        assert_eq!(layout.reserve(5 * 8, 7), 7 * 8);
        assert_eq!(layout.take_block(0, None), Some(12 * 8), "of a byte that is free, and four before it");
        layout.give_back(5 * 8, 7 * 8);
        assert_eq!(layout.reserve(62 * 8, 7), 2 * 8, "to the end of the group");
        layout.give_back(62 * 8, 2 * 8);
        let taken: Vec<_> = std::iter::from_fn(|| layout.take_block(0, None)).collect();
        assert_eq!(taken.len(), 60 - 2);
        assert_eq!(layout.available(), 0);
        [4 * 8, 12 * 8].iter().chain(&taken).for_each(|block| layout.give_back(*block, 8));
        assert_eq!(layout.available(), all);
    }
}
