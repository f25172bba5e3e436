//! Making room: discovery of free blocks after a failure, and deferred coalescing. Both in bounded steps, and both in
//! whole when a request can be served by nothing else.
//!
//! Coalescing writes one header for a run of free blocks side by side, with the next batch; the larger block may be
//! used after the next sync, and not before: its bytes lie over the headers of the smaller ones, which a crash may
//! still need. Free blocks that end at the tail become part of it; the home with the lower tail is durable before that
//! space is used. That takes two syncs, which vouch for all there is, so nothing waits to be written then; and a
//! bounded step does it only for a run that is worth them.

use picaflor_format::blocks::{Header, Status};

use super::{
    BlockError, BlockResult, FreeLists,
    home::HomeState,
    lists::Link,
    options::{Method, Search},
    space::{Pending, Space},
    walk::Step,
};

/// A step gives back to the tail what is at least this part of the space taken.
const WORTH_SYNCS: u64 = 32;

impl FreeLists {
    /// A bounded bit of what is to be done in the background: discovery after a failure; then, while more than
    /// `coalesce_at` times the allocated space is taken, coalescing. Says whether there is more to do now; while
    /// another thread commits, there is not. What was coalesced can be used after the next sync.
    ///
    /// # Errors
    /// As [`FreeLists::allocate`].
    pub fn step(&self) -> BlockResult<bool> {
        self.alive()?;
        if self.space.lock().walk.is_some() {
            return Ok(self.look(self.options.step_blocks) || self.is_worth_coalescing());
        }
        self.join_some()
    }

    /// The second part of [`FreeLists::step`], where it helps: an allocator that takes the tail before splitting has no
    /// use for larger blocks before the device is full, and less for those no longer of the right size. Reads nothing.
    pub(crate) fn tidy(&self) -> BlockResult<bool> {
        if self.options.search == Search::TailThenSplit { Ok(false) } else { self.join_some() }
    }

    fn join_some(&self) -> BlockResult<bool> {
        if !self.is_worth_coalescing() {
            return Ok(false);
        }
        let Some(mut home) = self.home.try_lock() else { return Ok(false) };
        self.coalesce_from(&mut home, self.options.step_blocks)?;
        drop(home);
        Ok(self.is_worth_coalescing())
    }

    fn is_worth_coalescing(&self) -> bool {
        let space = self.space.lock();
        let allocated = space.tally.grains.max(0) as f64;
        let fresh = space.coalesced.1 != Some(space.frees);
        space.walk.is_none() && fresh && space.taken(&self.shape) as f64 > allocated * self.options.coalesce_at
    }

    /// Called when nothing serves a request; the next try is round `round`.
    pub(super) fn make_room(&self, size: u32, round: u32) -> BlockResult<u32> {
        let limit = self.options.step_blocks;
        if self.follow_on(limit, Some(self.shape.list(size))) || self.discover(limit) {
            return Ok(round);
        }
        match round {
            0 => {
                self.sync()?;
                Ok(1)
            }
            // What was retired before is free after a second sync.
            1 => {
                self.coalesce()?;
                self.sync()?;
                Ok(2)
            }
            _ => {
                let free = (self.shape.end - self.shape.start).saturating_sub(self.allocated()) * self.shape.grain;
                Err(BlockError::Full { needed: u64::from(size) * self.shape.grain, free })
            }
        }
    }

    /// Grains of allocated blocks.
    pub(super) fn allocated(&self) -> u64 {
        self.space.lock().tally.grains.max(0).cast_unsigned()
    }

    /// A bounded look for free blocks: lists of free ones lead to them, else headers are looked at in turn.
    fn look(&self, limit: usize) -> bool {
        self.shape.method == Method::Pfl && self.follow_on(limit, None) || self.discover(limit)
    }

    /// As [`FreeLists::discover`], if the tail was asked since that was last done: for what may be free where no thread
    /// has looked yet. A caller that only frees has no use for it.
    pub(crate) fn discover_for_tail(&self, limit: usize) -> bool {
        let is_wanted = {
            let mut space = self.space.lock();
            let from_tail = space.from_tail;
            std::mem::replace(&mut space.looked, from_tail) != from_tail
        };
        is_wanted && self.look(limit)
    }

    /// Looks at so many more headers. False if there is nothing more to find, or not before the next sync.
    pub(crate) fn discover(&self, limit: usize) -> bool {
        if self.space.lock().walk.is_none() {
            return false;
        }
        let _all = self.gate.write();
        let mut space = self.space.lock();
        let Some(mut walk) = space.walk.take() else { return false };
        walk.refresh();
        let mut moved = false;
        for _ in 0..limit {
            if walk.at >= walk.until {
                return moved;
            }
            if space.held.contains(&walk.at) {
                space.walk = Some(walk);
                return moved;
            }
            moved = true;
            let known = space.lists.at(walk.at).map(|free| free.size);
            if let Some(size) = known.or_else(|| space.pending.get(&walk.at).map(|pending| pending.size)) {
                let behind = walk.at + u64::from(size);
                walk.skip_to(behind);
                walk.joins = None;
                continue;
            }
            let before = walk.joins.take();
            match walk.next(self.device.as_ref(), &self.shape, self.salt) {
                Step::Block(header, explicit) => {
                    if self.found(&mut space, &header, explicit, before) && header.rest > 0 {
                        walk.joins = Some(header.at);
                    }
                }
                Step::Damage { at, size, .. } => {
                    space.alone.insert(at, size);
                }
                Step::End => return moved,
            }
        }
        space.walk = Some(walk);
        true
    }

    /// Notes a block that discovery came upon; says whether it is free.
    fn found(&self, space: &mut Space, header: &Header, explicit: bool, before: Option<u64>) -> bool {
        if header.status == Status::Allocated {
            if header.seq < self.opening {
                space.tally.add(header);
            }
            return false;
        }
        match before.filter(|_| !explicit).and_then(|before| space.lists.remove(before).map(|free| (before, free))) {
            Some((at, free)) => space.lists.insert(at, free.size + header.size, true, free.link),
            None => space.lists.insert(header.at, header.size, explicit, Link::of(header)),
        }
        true
    }

    /// Joins all free blocks side by side.
    pub(super) fn coalesce(&self) -> BlockResult<()> {
        self.coalesce_from(&mut self.home.lock(), usize::MAX)
    }

    /// Joins free blocks side by side, looking at `limit` of them from where the last step ended.
    fn coalesce_from(&self, home: &mut HomeState, limit: usize) -> BlockResult<()> {
        let (turn, _all) = self.alone()?;
        let mut space = self.space.lock();
        if limit == usize::MAX {
            space.coalesced.0 = 0;
        }
        let from = space.coalesced.0;
        let mut runs: Vec<(u64, u64, usize)> = Vec::new();
        let (mut looked, mut last) = (0, from);
        for (at, free) in space.lists.from(from) {
            let size = u64::from(free.size);
            match runs.last_mut() {
                Some((begin, run, count)) if *begin + *run == at && *run + size <= u64::from(u32::MAX) => {
                    *run += size;
                    *count += 1;
                }
                // A run is not cut off: it ends where the step does, or later.
                _ if looked >= limit => break,
                _ => runs.push((at, size, 1)),
            }
            (looked, last) = (looked + 1, at + 1);
        }
        let whole = looked < limit || space.lists.from(last).next().is_none();
        space.coalesced = if whole { (0, Some(space.frees)) } else { (last, space.coalesced.1) };
        let worth = |run: &(u64, u64, usize)| limit == usize::MAX || run.1 * WORTH_SYNCS >= space.taken(&self.shape);
        let is_last = |run: &(u64, u64, usize)| run.0 + run.1 == space.lists.tail && worth(run);
        let shrinks = space.walk.is_none() && runs.last().is_some_and(is_last);
        let tail = if shrinks { runs.pop() } else { None };
        if shrinks || self.shape.method != Method::Ts {
            // Before a sync that vouches for all there is.
            self.write_taken(self.queue.take(&turn))?;
        }
        drop(turn);
        // The tail that the home names is where a failure's walk begins, so it must stay a place where a block begins.
        let named = home.home.tail.0;
        if runs.iter().any(|&(begin, size, count)| count > 1 && begin < named && named < begin + size) {
            self.write_home_of(home, &mut space)?;
        }
        if self.shape.method != Method::Ts {
            self.bury(&mut space, home, &runs, tail)?;
        }
        for (begin, size, _) in runs.into_iter().filter(|run| run.2 > 1) {
            self.join(&mut space, begin, size, tail.is_none())?;
        }
        let Some((begin, size, _)) = tail else { return Ok(()) };
        remove_run(&mut space, begin, size);
        space.lists.tail = begin;
        space.synced = (begin, space.seq);
        space.merges += 1;
        drop(space);
        // A home may name a tail only when every block before it is durable.
        self.sync_device(home)?;
        self.write_home(home)?;
        self.sync_device(home)
    }

    /// Where lists lead to headers: those that are to lie inside a larger block, or behind the tail, are dead and
    /// durably so before it is one. They still say what comes next on their lists.
    fn bury(
        &self,
        space: &mut Space,
        home: &mut HomeState,
        runs: &[(u64, u64, usize)],
        tail: Option<(u64, u64, usize)>,
    ) -> BlockResult<()> {
        let inside = runs.iter().filter(|run| run.2 > 1).map(|&(begin, size, _)| (begin + 1, begin + size));
        let mut buried = false;
        for (from, to) in inside.chain(tail.map(|(begin, size, _)| (begin, begin + size))) {
            let dead: Vec<_> = space.lists.from(from).take_while(|&(at, _)| at < to).collect();
            for (at, free) in dead.into_iter().filter(|(_, free)| free.explicit) {
                let header = free.link.header(Status::Dead, at, free.size, space.next_seq());
                self.write_block(&header, &[]).inspect_err(|error| self.commits.fail(error.shared()))?;
                buried = true;
            }
        }
        if buried { self.sync_device(home) } else { Ok(()) }
    }

    fn join(&self, space: &mut Space, begin: u64, size: u64, later: bool) -> BlockResult<()> {
        let link = space.lists.at(begin).map_or(Link::NONE, |free| free.link);
        remove_run(space, begin, size);
        space.merges += 1;
        let header = link.header(Status::Free, begin, size as u32, space.next_seq());
        space.pending.insert(begin, Pending { size: header.size, link, explicit: true });
        if later {
            self.write_block_later(&header, &[]);
            return Ok(());
        }
        self.write_block(&header, &[]).inspect_err(|error| self.commits.fail(error.shared()))
    }
}

fn remove_run(space: &mut Space, begin: u64, size: u64) {
    let mut at = begin;
    while at < begin + size
        && let Some(free) = space.lists.remove(at)
    {
        at += u64::from(free.size);
    }
}
