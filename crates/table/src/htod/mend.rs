//! What a crash may leave behind, put right while the tables are in use.
//!
//! Nothing here is needed for right answers. A put that was under way may have left a block that no page names; a
//! replaced entry may not have been freed; a page may still say what was in doubt. So: every page is read, which
//! decides what is in doubt, and written if it changed; then every block is looked at, and freed if its key's page
//! does not name it.
//!
//! Invariant: only blocks of former epochs are freed, and only under the lock of their key's page while no other thread
//! frees: so none that a call of this run is about to name or to free itself.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
};

use picaflor_format::htod::Entry;

use super::{
    failure::failed,
    inner::{HashTables, Inner},
    roots::EPOCH_SHIFT,
    shape,
    tables::Index,
};
use crate::{
    Error, Result,
    blocks::{Block, BlockError, FreeLists},
};

/// Pages that a closing reads at a time.
const AT_ONCE: usize = 64;

/// What mending found.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Mended {
    /// Index pages read.
    pub pages: u64,
    /// Index pages that were damaged, and that were made anew from the entries.
    pub rebuilt: u64,
    /// Blocks that no page named, and that are free now.
    pub freed: u64,
    /// Blocks, areas of the index aside, that hold no entry: damaged, and left alone.
    pub unreadable: u64,
}

impl HashTables {
    /// Makes index pages anew that were met and are damaged; then frees what the last crash left allocated and unnamed,
    /// settles what it left in doubt, and counts the keys. After a clean stop, and with no damage met, there is nothing
    /// to do, and nothing is read. Reads every index page and every block; others may use the tables meanwhile.
    ///
    /// # Errors
    /// As [`super::Table::put`]; [`Error::Damaged`] if a page is damaged and cannot be made anew, because deletes might
    /// be forgotten: what a crash left is then not settled either.
    pub fn mend(&self) -> Result<Mended> {
        self.mend_while(&|| true).map(Option::unwrap_or_default)
    }

    /// As [`HashTables::mend`], as long as `go_on` says so, which is asked before each page and each block; `None` if
    /// it said no, and then all of it is still to be done.
    ///
    /// # Errors
    /// As [`HashTables::mend`].
    pub fn mend_while(&self, go_on: &dyn Fn() -> bool) -> Result<Option<Mended>> {
        let inner = &*self.inner;
        let mut mended = Mended::default();
        let Some(rebuilt) = inner.rebuild(go_on)? else { return Ok(None) };
        mended.rebuilt = rebuilt;
        if !inner.is_in_doubt() {
            return Ok(Some(mended));
        }
        let all = self.all_tables()?;
        loop {
            mended.pages = 0;
            let mut damaged = None;
            for index in all.values() {
                let entered = inner.enter()?;
                let pages = inner.settle_pages(entered.lists()?, index, go_on, &mut damaged)?;
                let Some(pages) = pages else { return Ok(None) };
                mended.pages += pages;
            }
            let Some(rebuilt) = inner.rebuild(go_on)? else { return Ok(None) };
            mended.rebuilt += rebuilt;
            match damaged {
                None => break,
                // What is not mended keeps the rest in doubt: nothing more may be concluded from what is not named.
                Some(error) if rebuilt == 0 => return Err(error),
                Some(_) => {}
            }
        }
        {
            let entered = inner.enter()?;
            let lists = entered.lists()?;
            inner.wait(&entered, inner.commits.next())?;
            for block in lists.blocks() {
                if !go_on() {
                    return Ok(None);
                }
                let block = match block {
                    Ok(block) => block,
                    Err(BlockError::Damaged { .. }) => {
                        mended.unreadable += 1;
                        continue;
                    }
                    Err(error) => return Err(failed("look for allocated blocks")(error)),
                };
                if block.is_area() && all.values().any(|index| index.owns(&block)) {
                    continue;
                }
                match inner.mend_block(lists, &all, &block)? {
                    Some(true) => mended.freed += 1,
                    Some(false) => {}
                    None => mended.unreadable += 1,
                }
            }
        }
        // With no call running, and with all durably free that was removed: from now on removes count on that.
        let gate = inner.gate.write();
        let lists = gate.as_ref().ok_or(Error::Closed)?;
        if let Some(failure) = inner.commits.failure() {
            return Err(failure);
        }
        inner.stopping(inner.settle_everything(lists))?;
        inner.note_doubt(lists, inner.epoch)?;
        drop(gate);
        Ok(Some(mended))
    }

    /// Has what is believed of each page written, where a crash left that in doubt: later nothing tells it from rot.
    /// Pages that are not whole stay as they are.
    pub(super) fn decide(&self) -> Result<()> {
        let inner = &*self.inner;
        if !inner.is_in_doubt() {
            return Ok(());
        }
        let all = match self.all_tables() {
            Err(Error::Damaged { .. }) => return Ok(()),
            all => all?,
        };
        let entered = inner.enter()?;
        all.values().try_for_each(|index| inner.decide_pages(entered.lists()?, index))
    }

    /// All tables by their numbers, the list of them too.
    fn all_tables(&self) -> Result<HashMap<u32, Arc<Index>>> {
        let names = self.with_rebuilt(|| self.names())?;
        let list = Arc::clone(&self.inner.tables.lock().list);
        let mut all = HashMap::from([(list.number, list)]);
        for name in names {
            let index = self.table(&name)?.index;
            all.insert(index.number, index);
        }
        Ok(all)
    }
}

impl Inner {
    /// Reads all pages of a table, has those written that a crash left in doubt or that name what never arrived, and
    /// counts the keys. `None` if it was to stop. Goes past pages that are not whole, and keeps the error of one.
    fn settle_pages(
        &self,
        lists: &FreeLists,
        index: &Arc<Index>,
        go_on: &dyn Fn() -> bool,
        damaged: &mut Option<Error>,
    ) -> Result<Option<u64>> {
        let keys_before = index.keys.load(Relaxed);
        let mut counted = 0;
        let mut number = 0;
        while number < index.pages.load(Acquire) {
            if !go_on() {
                return Ok(None);
            }
            let mut lost = Vec::new();
            let slots = match self.slots_of_page(lists, index, number) {
                Err(error @ Error::Damaged { .. }) => {
                    *damaged = Some(error);
                    number += 1;
                    continue;
                }
                slots => slots?,
            };
            for standing in &slots {
                if self.read_again(lists, index, *standing)?.is_none() {
                    lost.push(*standing);
                }
            }
            let frame = self.page(lists, index, number)?;
            let mut page = frame.page.write();
            if page.gone {
                continue;
            }
            let was_dirty = page.is_dirty();
            // What was replaced or removed since it was collected is not there any more.
            lost.retain(|standing| page.has(standing));
            lost.iter().for_each(|standing| page.forget(*standing));
            if page.settle() {
                self.changed(&frame, was_dirty);
            }
            counted += (slots.len() - lost.len()) as i64;
            number += 1;
        }
        // What others put and removed meanwhile moved the count, whatever it was.
        index.keys.fetch_add(counted - keys_before, Relaxed);
        Ok(Some(number))
    }

    fn decide_pages(&self, lists: &FreeLists, index: &Arc<Index>) -> Result<()> {
        let numbers: Vec<u64> = (0..index.pages.load(Acquire)).collect();
        for numbers in numbers.chunks(AT_ONCE) {
            self.read_ahead(lists, index, numbers);
            for &number in numbers {
                let frame = match self.page(lists, index, number) {
                    Err(Error::Damaged { .. }) => continue,
                    frame => frame?,
                };
                let mut page = frame.page.write();
                let was_dirty = page.is_dirty();
                if !page.gone && page.settle() {
                    self.changed(&frame, was_dirty);
                }
            }
        }
        Ok(())
    }

    /// Frees a block that a former epoch left and no page names; says whether it did, `None` if it holds no entry.
    fn mend_block(&self, lists: &FreeLists, all: &HashMap<u32, Arc<Index>>, block: &Block) -> Result<Option<bool>> {
        let Some(found) = self.read_old(lists, block)? else { return Ok(None) };
        let Old { table, hash } = match found {
            Ok(old) => old,
            Err(OfThisRun) => return Ok(Some(false)),
        };
        let _turn = self.freeing.lock();
        let names_it = |index: &Arc<Index>| -> Result<bool> {
            loop {
                let number = shape::page_of(hash, index.pages.load(Acquire));
                let frame = self.page(lists, index, number)?;
                let page = frame.page.read();
                if !page.gone && shape::page_of(hash, index.pages.load(Acquire)) == number {
                    let word = block.address().word();
                    return Ok(page.slots().any(|standing| standing.slot.place == word));
                }
            }
        };
        let is_named = match all.get(&table) {
            Some(index) => names_it(index)?,
            None => false,
        };
        if is_named {
            return Ok(Some(false));
        }
        // It may have been freed, by a call that has come to its end, since it was read.
        let is_there = matches!(self.read_old(lists, block)?, Some(Ok(_)));
        if !is_there || self.releases.lock().holds(block) {
            return Ok(Some(false));
        }
        lists.free(block).map_err(failed("free a block"))?;
        Ok(Some(true))
    }

    /// Whose entry a block holds, if it is of a former epoch.
    fn read_old(&self, lists: &FreeLists, block: &Block) -> Result<Option<Result<Old, OfThisRun>>> {
        let bytes = match lists.read(block.address()) {
            Ok((_, bytes)) => bytes,
            Err(BlockError::Damaged { .. }) => return Ok(None),
            // Freed since it was met.
            Err(BlockError::NotAllocated(_)) => return Ok(Some(Err(OfThisRun))),
            Err(error) => return Err(failed("read an entry")(error)),
        };
        let Ok(entry) = Entry::decode(&bytes) else { return Ok(None) };
        let epoch = entry.generation >> EPOCH_SHIFT;
        let old = Old { table: entry.table, hash: self.hasher.key(entry.key).short() };
        Ok(Some(if epoch < u64::from(self.epoch) { Ok(old) } else { Err(OfThisRun) }))
    }
}

struct Old {
    table: u32,
    hash: u64,
}

/// The block was put, or freed, since the opening.
struct OfThisRun;
