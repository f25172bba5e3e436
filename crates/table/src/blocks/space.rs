//! What is in memory: the free lists, what waits for a sync before it may join them, and the counts.

use std::collections::{BTreeMap, BTreeSet};

use picaflor_format::blocks::{Header, Status};

use super::{
    cursors::Follow,
    links::Links,
    lists::{Link, Lists, Source, Taken},
    options::{Method, Shape},
    walk::Walk,
};

/// Allocated blocks: how many, their grains, the bytes asked for. Signed: while discovery is under way what is freed
/// may not have been counted yet.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Tally {
    pub(super) blocks: i64,
    pub(super) grains: i64,
    pub(super) bytes: i64,
}

impl Tally {
    pub(super) fn add(&mut self, header: &Header) {
        self.blocks += 1;
        self.grains += i64::from(header.size);
        self.bytes += i64::from(header.len);
    }

    pub(super) fn subtract(&mut self, header: &Header) {
        self.blocks -= 1;
        self.grains -= i64::from(header.size);
        self.bytes -= i64::from(header.len);
    }
}

/// Space that is free, and not durably so.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pending {
    pub(super) size: u32,
    pub(super) link: Link,
    /// As that of a free block.
    pub(super) explicit: bool,
}

#[derive(Default)]
pub(super) struct Space {
    pub(super) lists: Lists,
    /// By place, what may join the lists once a sync has covered the header that says that it is free.
    pub(super) pending: BTreeMap<u64, Pending>,
    /// Heads of the persistent lists.
    pub(super) links: Links,
    /// The same, where discovery has not been: it will find them.
    pub(super) held: BTreeSet<u64>,
    /// To be freed after the next sync.
    pub(super) retired: BTreeMap<u64, Header>,
    /// Last sequence number given.
    pub(super) seq: u64,
    /// Tail and sequence number at the last sync: every block before that tail is durable.
    pub(super) synced: (u64, u64),
    /// Discovery, while it is under way.
    pub(super) walk: Option<Walk>,
    /// How far persistent lists were followed, where they lead further.
    pub(super) follow: Option<Follow>,
    /// Damaged places: grain, grains.
    pub(super) alone: BTreeMap<u64, u64>,
    pub(super) tally: Tally,
    /// Furthest the tail has been.
    pub(super) most: u64,
    /// Tail allocations, list changes and, in PL, frees that no home knows of.
    pub(super) since_home: u32,
    /// Grows whenever places of headers vanish.
    pub(super) merges: u64,
    /// Where the next bounded step of coalescing begins, and the frees when a whole pass last ended.
    pub(super) coalesced: (u64, Option<u64>),
    pub(super) allocations: u64,
    pub(super) splits: u64,
    pub(super) from_tail: u64,
    /// What that was when discovery was last asked for.
    pub(super) looked: u64,
    pub(super) frees: u64,
}

impl Space {
    pub(super) fn new(shape: &Shape) -> Self {
        Self { lists: Lists::new(shape.search), ..Self::default() }
    }

    pub(super) fn next_seq(&mut self) -> u64 {
        self.seq += 1;
        self.seq
    }

    /// Whether discovery has not been at this place.
    pub(super) fn is_unknown(&self, at: u64) -> bool {
        self.walk.as_ref().is_some_and(|walk| (walk.at..walk.until).contains(&at))
    }

    /// A header for what was taken, with a number of its own.
    pub(super) fn granted(&mut self, taken: Taken, shape: &Shape) -> Header {
        let seq = self.next_seq();
        self.allocations += 1;
        self.splits += u64::from(taken.source == Source::Split);
        if taken.source == Source::Tail {
            self.from_tail += 1;
            self.since_home += 1;
            self.most = self.most.max(self.lists.tail);
        }
        let link = self.links.taken(&taken, shape);
        self.since_home += u32::from(self.links.changed());
        Header { rest: taken.rest, ..link.header(Status::Allocated, taken.at, taken.size, seq) }
    }

    /// The header of a block that is freed now. If what is left of a split behind it is free and has no header yet, the
    /// two become one: the block's own header must keep saying how far it reaches, so this costs no write.
    pub(super) fn freed(&mut self, block: &Header, shape: &Shape) -> Header {
        let mut header = Header { status: Status::Free, seq: self.next_seq(), len: 0, sum: 0, flags: 0, ..*block };
        let behind = block.at + u64::from(block.size);
        if let Some(rest) = self.take_rest(behind) {
            header.size += rest;
            (header.rest, header.rest_seq) = (0, header.seq);
            self.merges += 1;
        }
        let link = self.links.freed(&header, shape);
        // A free changes no list of PL. But what a list leads to is believed only as far as a home says that it was
        // durable.
        self.since_home += u32::from(self.links.changed() || shape.method == Method::Pl);
        (header.list, header.next) = (link.list, link.next);
        header
    }

    /// Takes what is free at `at` and has no header there; its grains.
    fn take_rest(&mut self, at: u64) -> Option<u32> {
        if self.lists.at(at).is_some_and(|free| !free.explicit) {
            return self.lists.remove(at).map(|free| free.size);
        }
        self.pending.get(&at).filter(|pending| !pending.explicit)?;
        self.pending.remove(&at).map(|pending| pending.size)
    }

    /// What a split left free behind a block is given out after the next sync, and not before: else, if a crash takes
    /// the block and leaves what was put behind it, that would lie within something free.
    pub(super) fn hold_rest(&mut self, front: &Header) {
        let at = front.at + u64::from(front.size);
        if front.rest > 0
            && let Some(free) = self.lists.remove(at)
        {
            self.pending.insert(at, Pending { size: free.size, link: free.link, explicit: free.explicit });
        }
    }

    /// Whether grain `at` lies in something free.
    pub(super) fn is_free(&self, at: u64) -> bool {
        let pending = self.pending.range(..=at).next_back();
        self.lists.covering(at).is_some()
            || pending.is_some_and(|(&begin, it)| at < begin + u64::from(it.size))
            || self.held.contains(&at)
            || self.retired.contains_key(&at)
    }

    /// A freed block's header was written.
    pub(super) fn wait_for_sync(&mut self, header: &Header) {
        let at = header.at;
        if self.is_unknown(at) {
            self.held.insert(at);
        } else {
            self.pending.insert(at, Pending { size: header.size, link: Link::of(header), explicit: true });
        }
    }

    /// Bytes that are taken from the start up to the tail, damaged places included.
    pub(super) fn taken(&self, shape: &Shape) -> u64 {
        self.lists.tail - shape.start
    }
}
