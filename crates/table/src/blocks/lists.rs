//! The free lists in memory, and the order in which they are asked: Iyengar et al. 2003, §2.4.
//!
//! Invariants: every block here is free on the device and durably so; no two overlap, and none reaches behind the
//! tail. A quick list is the blocks of one size, a misc list those of a range of sizes; both are runs of one index
//! ordered by size, then by rank: newest first, so that the head of a list is its first, or by place
//! ([`Search::SplitThenTail`]).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use picaflor_format::blocks::{Header, ImageFree, Status};

use super::options::{Search, Shape};

/// What a header says of persistent lists: which it is on, and the next block of it, in grains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Link {
    pub(super) list: u16,
    pub(super) next: u64,
}

impl Link {
    pub(super) const NONE: Self = Self { list: Header::NO_LIST, next: 0 };

    pub(super) fn of(header: &Header) -> Self {
        Self { list: header.list, next: header.next }
    }

    /// A header that says so, of a block without bytes and with nothing free behind it.
    pub(super) fn header(self, status: Status, at: u64, size: u32, seq: u64) -> Header {
        let Self { list, next } = self;
        Header { status, at, size, seq, rest: 0, rest_seq: seq, len: 0, sum: 0, flags: 0, list, next }
    }
}

/// A free block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Free {
    pub(super) size: u32,
    /// A header of its own stands there; else the block before says that this is free.
    pub(super) explicit: bool,
    /// When it came here; in the paper's order the newest is the head of its list.
    pub(super) stamp: u64,
    pub(super) link: Link,
}

/// Where an allocation was served from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Source {
    /// A list, without splitting.
    List,
    /// A list, the rest went back.
    Split,
    Tail,
}

/// What is handed out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Taken {
    pub(super) at: u64,
    pub(super) size: u32,
    /// Grains behind it that are free and were part of it.
    pub(super) rest: u32,
    pub(super) source: Source,
    pub(super) link: Link,
}

/// What the splits of a batch have left: size and place, all of it on the lists.
pub(super) type Leftovers = BTreeSet<(u32, u64)>;

#[derive(Debug, Default)]
pub(super) struct Lists {
    by_address: BTreeMap<u64, Free>,
    /// Size, [`Lists::rank`], place.
    by_size: BTreeSet<(u32, Reverse<u64>, u64)>,
    order: Search,
    grains: u64,
    stamp: u64,
    /// First grain that was never allocated since the tail was made.
    pub(super) tail: u64,
}

impl Lists {
    pub(super) fn new(order: Search) -> Self {
        Self { order, ..Self::default() }
    }

    /// Which of one size is taken first: the newest, as in the paper; or, where the tail is asked last, the
    /// one that lies first, so that what lies behind grows together and goes back to the tail.
    fn rank(&self, at: u64, stamp: u64) -> Reverse<u64> {
        Reverse(if self.order == Search::TailThenSplit { stamp } else { u64::MAX - 1 - at })
    }

    pub(super) fn insert(&mut self, at: u64, size: u32, explicit: bool, link: Link) {
        self.stamp += 1;
        let free = Free { size, explicit, stamp: self.stamp, link };
        self.by_size.insert((size, self.rank(at, self.stamp), at));
        self.by_address.insert(at, free);
        self.grains += u64::from(size);
    }

    pub(super) fn remove(&mut self, at: u64) -> Option<Free> {
        let free = self.by_address.remove(&at)?;
        self.by_size.remove(&(free.size, self.rank(at, free.stamp), at));
        self.grains -= u64::from(free.size);
        Some(free)
    }

    /// The free block that begins at `at`.
    pub(super) fn at(&self, at: u64) -> Option<Free> {
        self.by_address.get(&at).copied()
    }

    /// The free block in which grain `at` lies.
    pub(super) fn covering(&self, at: u64) -> Option<u64> {
        let (&begin, free) = self.by_address.range(..=at).next_back()?;
        (at < begin + u64::from(free.size)).then_some(begin)
    }

    pub(super) fn len(&self) -> usize {
        self.by_address.len()
    }

    pub(super) fn grains(&self) -> u64 {
        self.grains
    }

    /// Free blocks from `from` on, in address order.
    pub(super) fn from(&self, from: u64) -> impl Iterator<Item = (u64, Free)> {
        self.by_address.range(from..).map(|(&at, &free)| (at, free))
    }

    /// All free blocks, oldest of their lists first.
    pub(super) fn oldest_first(&self) -> Vec<ImageFree> {
        let mut all: Vec<_> = self.by_address.iter().map(|(&at, &free)| (free.stamp, at, free)).collect();
        all.sort_unstable_by_key(|&(stamp, at, _)| (stamp, at));
        let entry =
            |(_, at, Free { size, explicit, link, .. })| ImageFree { at, size, explicit, link: (link.list, link.next) };
        all.into_iter().map(entry).collect()
    }

    /// Blocks on each list that is not empty: its longest size in grains, how many.
    pub(super) fn lengths(&self, shape: &Shape) -> Vec<(u32, u64)> {
        let mut lengths: BTreeMap<u32, u64> = BTreeMap::new();
        for &(size, _, _) in &self.by_size {
            let high = if size <= shape.max_quick { size } else { shape.misc_range(size).1 };
            *lengths.entry(high).or_default() += 1;
        }
        lengths.into_iter().collect()
    }

    /// A block of `size` grains, in the order of §2.4.1 or that which [`Search`] says, without its last step, which is
    /// the caller's: coalescing.
    pub(super) fn take(&mut self, size: u32, shape: &Shape) -> Option<Taken> {
        let found = if size <= shape.max_quick { self.first(size, size) } else { self.fit(size, shape) };
        if let Some(at) = found {
            return Some(self.cut(at, size, shape.waste, shape.min));
        }
        if shape.search == Search::TailThenSplit
            && let Some(taken) = self.take_tail(size, shape)
        {
            return Some(taken);
        }
        match self.smallest(size) {
            Some(at) => Some(self.cut(at, size, shape.waste, shape.min)),
            None => self.take_tail(size, shape),
        }
    }

    /// Best fit among the blocks of at least `threshold` grains, and what the batch's own splits have `left`, however
    /// short (Figure 8); else the tail: §2.5.
    pub(super) fn take_best(&mut self, size: u32, shape: &Shape, left: &mut Leftovers) -> Option<Taken> {
        let large = self.smallest(size.max(shape.threshold)).map(|at| (self.by_address[&at].size, at));
        let short = left.range((size, 0)..).next().copied();
        let taken = match large.into_iter().chain(short).min() {
            Some((_, at)) => self.cut(at, size, 0, shape.min),
            None => self.take_tail(size, shape)?,
        };
        left.remove(&(taken.size + taken.rest, taken.at));
        if taken.rest > 0 {
            left.insert((taken.rest, taken.at + u64::from(taken.size)));
        }
        Some(taken)
    }

    pub(super) fn take_tail(&mut self, size: u32, shape: &Shape) -> Option<Taken> {
        let at = self.tail;
        if u64::from(size) > shape.end.saturating_sub(at) {
            return None;
        }
        self.tail += u64::from(size);
        Some(Taken { at, size, rest: 0, source: Source::Tail, link: Link::NONE })
    }

    /// In the misc list of `size`: the first that wastes no more than is accepted, else the smallest.
    fn fit(&self, size: u32, shape: &Shape) -> Option<u64> {
        let high = shape.misc_range(size).1;
        let within = size.saturating_add(shape.waste).min(high);
        self.first(size, within).or_else(|| self.smallest(size).filter(|at| self.by_address[at].size <= high))
    }

    /// The first block of these sizes, both included, by its rank.
    fn first(&self, low: u32, high: u32) -> Option<u64> {
        let mut from = low;
        let mut best: Option<(Reverse<u64>, u64)> = None;
        while let Some(&(size, stamp, at)) = self.by_size.range((from, Reverse(u64::MAX), 0)..).next() {
            if size > high {
                break;
            }
            best = Some(best.map_or((stamp, at), |old| old.min((stamp, at))));
            if size == u32::MAX {
                break;
            }
            from = size + 1;
        }
        best.map(|(_, at)| at)
    }

    fn smallest(&self, size: u32) -> Option<u64> {
        self.by_size.range((size, Reverse(u64::MAX), 0)..).next().map(|&(_, _, at)| at)
    }

    /// Takes a block off its list; what is more than `waste` too large is split off and stays free.
    fn cut(&mut self, at: u64, size: u32, waste: u32, min: u32) -> Taken {
        let free = self.remove(at).unwrap_or(Free { size, explicit: true, stamp: 0, link: Link::NONE });
        let over = free.size - size;
        if over > waste && over >= min {
            self.insert(at + u64::from(size), over, false, Link::NONE);
            return Taken { at, size, rest: over, source: Source::Split, link: free.link };
        }
        Taken { at, size: free.size, rest: 0, source: Source::List, link: free.link }
    }
}
