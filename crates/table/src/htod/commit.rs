//! What makes puts and removes durable, and what may go once they are.
//!
//! Steps of a commit: the entries that were put, the pages that the device does not have and the headers of what was
//! removed, and of what the last commits replaced, are written in one batch, the device is synced, those that waited
//! are told, and what was replaced before the commit began is freed: with the next batch. Entry and page may reach the
//! device in any order. Then each table that has new pages says so in its header, also with the next batch.
//!
//! Invariants: what was replaced is freed only when the page that no longer needs it is durable; when a remove is
//! durable, no block is allocated any more that holds a version of its key. So a key whose page is lost has the
//! newest version that is allocated (`rebuild.rs`).

use picaflor_common::{Turn, panics};
use std::{
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
    time::Instant,
};

use picaflor_format::htod::{SECTOR, Slot};

use super::{
    Durable,
    cache::Frame,
    failure::failed,
    inner::{Entered, Inner},
    page::Page,
    releases::Release,
    shape,
    tables::Index,
};
use crate::{
    Error, Result,
    blocks::{Block, BlockError, FreeLists},
};

/// Blocks or pages that wait for a commit before one is made for them: what they take in memory stays small.
const MOST_WAITING: usize = 16 * 1024;

/// Frees after which free blocks are joined, a bounded bit at a time; most such bits of one commit.
const TIDY: u64 = 64;
const MOST_BITS: u64 = 8;
/// Frees after which, while blocks are still to be discovered after a crash and puts take the tail for what is not, so
/// many headers are looked at: a few reads of 64 KiB.
const LOOK: u64 = 16;
const HEADERS: usize = 64;

impl Inner {
    /// Once commit `number` is complete, `block` is free; `slot` is what its page keeps of it till then.
    pub(super) fn release_after(&self, number: u64, index: &Arc<Index>, hash: u64, block: Block, slot: Option<Slot>) {
        self.releases.lock().add(number, Release { index: Arc::clone(index), hash, block, slot });
    }

    /// Whether a key of this hash cannot be removed before a commit is complete: a version that was replaced is not
    /// durably free. If it were still allocated, and the version that replaced it were not, a crash that leaves the
    /// key's sector as it was would bring it back.
    pub(super) fn must_wait(&self, hash: u64) -> bool {
        !self.is_in_doubt() && self.releases.lock().is_unsettled(hash)
    }

    /// Frees the version that a remove took off a page, whose lock the caller holds, and says which commit covers that:
    /// with the batch of the page. While a crash is not mended, older versions may be allocated that no commit waits
    /// for: then once the page is durable.
    pub(super) fn release_removed(
        &self,
        lists: &FreeLists,
        index: &Arc<Index>,
        hash: u64,
        (block, number): (Block, u64),
    ) -> Result<u64> {
        if self.is_in_doubt() {
            self.release_after(number, index, hash, block, None);
            return Ok(number);
        }
        self.freed_now.fetch_add(1, Relaxed);
        lists.free_later(&block).map_err(failed("free a block"))?;
        Ok(self.commits.next())
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
            let grown = self.grown();
            let commit = || {
                // First what another thread may be about to free: it counts on this commit to make that durable.
                let freed = self.release(lists, self.commits.completed())?;
                self.write_all(lists)?;
                lists.sync().map_err(failed("sync"))?;
                Ok(freed + self.freed_now.swap(0, Relaxed))
            };
            let result = panics::for_others("commit", commit, |daemon, why| {
                self.commits.fail(Error::Daemon { place: "hash table".to_owned(), daemon, why });
            });
            let freed = *result.as_ref().unwrap_or(&0);
            self.commits.complete(led, result.map(drop), began.elapsed());
            let freed = freed + self.release(lists, self.commits.completed())?;
            for (index, pages) in grown.iter().filter(|_| self.commits.completed() >= led) {
                self.stopping(index.note(lists, *pages, &self.commits))?;
            }
            self.tidy(lists, freed)?;
        }
    }

    /// Discovers and joins free blocks, if so many were freed since that was last done. No caller waits for all of
    /// them.
    fn tidy(&self, lists: &FreeLists, freed: u64) -> Result<()> {
        let before = self.freed.fetch_add(freed, Relaxed);
        let due = |every: u64| 0..((before + freed) / every - before / every).min(MOST_BITS);
        let looks = due(LOOK).count();
        if looks > 0 {
            lists.discover_for_tail(HEADERS * looks);
        }
        for _ in due(TIDY) {
            if !lists.tidy().map_err(failed("coalesce"))? {
                break;
            }
        }
        Ok(())
    }

    /// Tables that have new pages, and how many pages a commit that begins now covers.
    fn grown(&self) -> Vec<(Arc<Index>, u64)> {
        let grown = std::mem::take(&mut *self.grown.lock());
        grown.into_iter().map(|index| (Arc::clone(&index), index.pages.load(Acquire))).collect()
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

    /// Frees what waited for a commit up to this one, which is complete. Says how many blocks.
    pub(super) fn release(&self, lists: &FreeLists, completed: u64) -> Result<u64> {
        let _turn = self.freeing.lock();
        let due = {
            let mut releases = self.releases.lock();
            let due = releases.due(completed);
            releases.settled(self.commits.completed());
            due
        };
        let mut outcome = Ok(due.len() as u64);
        for release in &due {
            if let Some(slot) = release.slot {
                self.forget(&release.index, release.hash, &slot);
            }
            match lists.free_later(&release.block) {
                // The allocator has it as free already: nothing is left to do, and nothing to wait for.
                Ok(()) | Err(BlockError::NotAllocated(_)) => {}
                Err(error) => outcome = Err(failed("free a block")(error)),
            }
        }
        // All of them, whatever became of one: a remove waits for what is noted here.
        self.releases.lock().leave(&due, self.commits.next());
        outcome
    }

    /// Empties the slot of a version that was replaced for good, if its page is in memory; else it is not believed.
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
}
