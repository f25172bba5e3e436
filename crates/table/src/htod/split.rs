//! Doubling, a page at a time.
//!
//! Steps: the new page's slots are copied from its parent's, sector by sector; both are in memory from then on, and
//! the new page is written with the next commit. The parent keeps what was moved until that commit is complete, and
//! then drops it when it is written next, so dividing costs one write and no sync. Whatever a crash leaves, the new
//! page is there with all that was moved, or the parent has it: a page counts as made when all of its sectors are
//! whole and of this epoch, and every page before it is.

use std::sync::{
    Arc,
    atomic::Ordering::{Acquire, Relaxed, Release},
};

use super::{
    cache::Frame,
    failure::failed,
    inner::{Entered, Inner},
    page::Page,
    shape,
    tables::Index,
};
use crate::{Error, Result};

/// Keys for each page, on average, above which a page is divided. A page that waits longest for its turn has twice
/// as many: 180 of 240 slots, and is full once in 250,000 times; then pages are divided until it was its turn.
const LOAD: u64 = 90;
/// Pages that one put divides at most, unless its own is full.
const AT_ONCE: usize = 2;

impl Inner {
    /// After a put of a new key: divides a page if there are many keys and no other thread does so already. The put is
    /// done whatever becomes of this: keys crowd together until the device has room, reads again, or the page is
    /// mended; and where nothing more is written the next call says so.
    pub(super) fn grow(&self, entered: &Entered<'_>, index: &Arc<Index>) {
        for _ in 0..AT_ONCE {
            if index.key_count() <= index.pages.load(Relaxed) * LOAD {
                break;
            }
            let Some(turn) = index.splitting.try_lock() else { break };
            let made = self.make_page(entered, index);
            drop(turn);
            if made.is_err() {
                break;
            }
        }
    }

    /// Empties slots that were moved to another page for good.
    pub(super) fn drop_moved(&self, frame: &Frame, page: &mut Page) {
        let mut moved = frame.index.moved.lock();
        if moved.get(&frame.number).is_some_and(|&number| number <= self.commits.completed()) {
            moved.remove(&frame.number);
            drop(moved);
            let pages = frame.index.pages.load(Acquire);
            page.retain(|slot| shape::page_of(slot.hash, pages) == frame.number);
        }
    }

    /// Divides the page whose turn it is.
    pub(super) fn split(&self, entered: &Entered<'_>, index: &Arc<Index>) -> Result<()> {
        let _turn = index.splitting.lock();
        self.make_page(entered, index)
    }

    /// Makes the next page; the caller holds `splitting`.
    fn make_page(&self, entered: &Entered<'_>, index: &Arc<Index>) -> Result<()> {
        let lists = entered.lists()?;
        let number = index.pages.load(Acquire);
        if !index.has_extent_of(number) {
            self.add_extent(entered, index, number)?;
        }
        loop {
            let parent = self.page(lists, index, shape::parent(number))?;
            let mut from = parent.page.write();
            if from.gone {
                continue;
            }
            self.drop_moved(&parent, &mut from);
            let mut page = Page::empty();
            for standing in from.slots() {
                let hash = standing.slot.hash;
                let moves = shape::page_of(hash, number) == parent.number && shape::page_of(hash, number + 1) == number;
                if moves {
                    page.set(standing.sector, standing.index, Some(standing.slot));
                }
            }
            let frame = Frame::new(index, number, page);
            self.note_in_memory(index, number);
            self.cache.insert(&frame, |frame, page| self.write_page(lists, frame, page))?;
            let commit = self.changed(&frame, false);
            index.moved.lock().insert(parent.number, commit);
            index.pages.store(number + 1, Release);
            self.grown.lock().push(Arc::clone(index));
            return Ok(());
        }
    }

    /// Gives the table the extent that page `number` is the first of.
    fn add_extent(&self, entered: &Entered<'_>, index: &Arc<Index>, number: u64) -> Result<()> {
        let lists = entered.lists()?;
        let len = Index::next_extent(number).ok_or(Error::Full { needed: 0, free: 0 })?;
        let area = lists.allocate_area(len).map_err(failed("allocate an extent of index pages"))?;
        // The area is durable before a header names it; and so is each page until here, which the header says too.
        self.wait(entered, self.commits.next())?;
        index.push_extent(area);
        self.stopping(index.note(lists, number, &self.commits))
    }
}
