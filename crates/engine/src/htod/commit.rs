//! What makes puts and removes durable, and what may go once they are.
//!
//! Steps of a commit: the entries that were put, the pages that the device does not have and the headers of what the
//! last commits freed are written in one batch, the device is synced, whoever waited is told, and what was replaced or
//! removed before the commit began is freed: with the next batch. Entry and page may reach the device in any order.
//!
//! Invariant: a block is freed only when the page that no longer needs it is durable.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
    time::Instant,
};

use picaflor_format::htod::{SECTOR, Slot};

use super::{Durable, Entered, Inner, cache::Frame, failed, page::Page, shape, tables::Index};
use crate::{
    Result,
    blocks::{Block, FreeLists},
    commits::Turn,
};

/// Blocks or pages that wait for a commit before one is made for them: what they take in memory stays small.
const MOST_WAITING: usize = 16 * 1024;

/// Blocks that nobody needs once a commit is complete.
#[derive(Default)]
pub(super) struct Releases {
    waiting: BTreeMap<u64, Vec<Release>>,
    /// Slots of those blocks that pages still have.
    superseded: HashSet<Slot>,
    count: usize,
}

struct Release {
    index: Arc<Index>,
    hash: u64,
    block: Block,
    /// The slot, if it is still in its page.
    slot: Option<Slot>,
}

impl Releases {
    /// Whether the version that replaces this one may not be durable yet.
    pub(super) fn needs(&self, slot: &Slot) -> bool {
        self.superseded.contains(slot)
    }

    /// Whether a block waits to be freed.
    pub(super) fn holds(&self, block: &Block) -> bool {
        self.waiting.values().flatten().any(|release| release.block.address() == block.address())
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }
}

impl Inner {
    /// Once commit `number` is complete, `block` is free; `slot` is what its page keeps of it till then.
    pub(super) fn release_after(&self, number: u64, index: &Arc<Index>, hash: u64, block: Block, slot: Option<Slot>) {
        let mut releases = self.releases.lock();
        releases.superseded.extend(slot);
        releases.count += 1;
        let release = Release { index: Arc::clone(index), hash, block, slot };
        releases.waiting.entry(number).or_default().push(release);
    }

    /// Notes that a page was changed whose lock the caller holds, and answers with the commit that will cover it.
    pub(super) fn changed(&self, frame: &Arc<Frame>, was_dirty: bool) -> u64 {
        if !was_dirty {
            self.dirty.lock().push(Arc::clone(frame));
        }
        self.commits.next()
    }

    /// What a verb does at its end.
    pub(super) fn settle(&self, entered: &Entered<'_>, number: u64) -> Result<()> {
        match self.durable {
            Durable::EachCall => self.wait(entered, number),
            Durable::AtCommit => self.ease(entered),
        }
    }

    /// A commit, if much waits for one.
    pub(super) fn ease(&self, entered: &Entered<'_>) -> Result<()> {
        let waiting = self.releases.lock().len().max(self.dirty.lock().len());
        if waiting > MOST_WAITING { self.wait(entered, self.commits.next()) } else { Ok(()) }
    }

    /// Waits until a commit is complete, or makes it.
    pub(super) fn wait(&self, entered: &Entered<'_>, number: u64) -> Result<()> {
        let lists = entered.lists()?;
        loop {
            let Turn::Lead(led) = self.commits.wait(number)? else { return Ok(()) };
            let began = Instant::now();
            let result = self.write_all(lists).and_then(|()| lists.sync().map_err(failed("sync")));
            self.commits.complete(led, result, began.elapsed());
            self.release(lists, self.commits.completed())?;
        }
    }

    /// A failed write stops everything: what the device holds since its last sync is unknown.
    pub(super) fn stopping<T>(&self, result: Result<T>) -> Result<T> {
        result.inspect_err(|error| self.commits.fail(error.clone()))
    }

    /// Has everything written, with the next sync at the latest, that the device does not have of pages.
    pub(super) fn write_all(&self, lists: &FreeLists) -> Result<()> {
        let dirty = std::mem::take(&mut *self.dirty.lock());
        dirty.iter().try_for_each(|frame| self.write_page(lists, frame, &mut frame.page.write()))
    }

    /// As [`Inner::write_all`], of a page whose lock the caller holds. Only sectors, where the device allows it.
    pub(super) fn write_page(&self, lists: &FreeLists, frame: &Frame, page: &mut Page) -> Result<()> {
        let Some(ends) = page.seal(frame.index.number, frame.number, self.epoch) else { return Ok(()) };
        let from = ends.0 * SECTOR / self.block_size * self.block_size;
        let to = (ends.1 * SECTOR).next_multiple_of(self.block_size);
        let (extent, offset) = frame.index.place(frame.number)?;
        let written = lists.write_page_later(&extent, offset, &page.bytes, from..to);
        self.stopping(written.map_err(failed("write an index page")))
    }

    /// Frees what waited for a commit up to this one, which is complete.
    pub(super) fn release(&self, lists: &FreeLists, completed: u64) -> Result<()> {
        let _turn = self.freeing.lock();
        let due = {
            let mut releases = self.releases.lock();
            let later = releases.waiting.split_off(&completed.saturating_add(1));
            let due: Vec<Release> = std::mem::replace(&mut releases.waiting, later).into_values().flatten().collect();
            for slot in due.iter().filter_map(|release| release.slot) {
                releases.superseded.remove(&slot);
            }
            releases.count -= due.len();
            due
        };
        for release in &due {
            if let Some(slot) = release.slot {
                self.forget(&release.index, release.hash, &slot);
            }
            lists.free_later(&release.block).map_err(failed("free a block"))?;
        }
        Ok(())
    }

    /// Empties the slot of a version that was replaced for good, if its page is in memory; else nobody believes it.
    fn forget(&self, index: &Index, hash: u64, slot: &Slot) {
        let number = shape::page_of(hash, index.pages.load(Acquire));
        let Some(frame) = self.cache.peek(index.number, number) else { return };
        let mut page = frame.page.write();
        if page.gone {
            return;
        }
        let standing = page.slots().find(|standing| standing.slot == *slot);
        if let Some(standing) = standing {
            page.forget(standing);
        }
    }

    pub(super) fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Relaxed);
    }
}
