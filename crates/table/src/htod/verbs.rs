//! Put, get, remove.
//!
//! Steps of a put: write the entry to a block of its own; find the key's page and whether the key is there, which
//! takes a read of each entry of the same hash; under the page's lock, if nothing changed meanwhile, add the slot
//! and mark the one it replaces; make it durable; divide a page if there are many keys.
//!
//! Invariant: all versions of a key have their slots in one sector, and those but the current one are marked. So
//! whatever reaches the device of that sector names the current version and what it replaced, or neither's
//! successor.

use std::sync::{
    Arc,
    atomic::Ordering::{Acquire, Relaxed},
};

use picaflor_format::htod::{Entry, Slot};

use super::{
    MAX_KEY,
    cache::Frame,
    entry::Found,
    failure::failed,
    inner::{Entered, Inner, Table},
    page::{Candidates, Page, Standing},
    shape,
    tables::Index,
};
use crate::{
    Error, Result,
    blocks::{Block, FreeLists},
};

/// A put whose entry is written and whose slot is not.
pub(super) struct Fresh<'a> {
    pub(super) key: &'a [u8],
    pub(super) hash: u64,
    pub(super) generation: u64,
    pub(super) block: Block,
}

/// How a put or remove ended.
pub(super) struct Done {
    /// The commit that covers it.
    number: u64,
    /// One key more.
    pub(super) added: bool,
    /// What the key had before.
    pub(super) former: Option<Found>,
}

/// What the slots of a key's hash lead to.
#[derive(Default)]
pub(super) struct Current {
    pub(super) found: Option<Found>,
    /// Slots that lead to no entry: the key's, almost certainly, and lost.
    pub(super) lost: Vec<Standing>,
}

/// What a lookup of a key found. It may have changed since.
pub(super) struct Looked {
    pub(super) frame: Arc<Frame>,
    pub(super) seen: Candidates,
    pub(super) current: Current,
}

/// What to try before a put is tried again.
enum Retry {
    /// The page changed meanwhile.
    Changed,
    /// No slot is free; some may be once everything so far is durable.
    Full,
}

impl Table {
    /// Puts a value, in place of the key's former one if there is one.
    ///
    /// # Errors [`Error::Limit`] for a key that is empty or longer than [`MAX_KEY`]; [`Error::Full`] if the device
    /// has no room; [`Error::Io`] if it failed, after which all calls that write fail; [`Error::Damaged`] if the
    /// key's index page is.
    pub fn put(&self, key: &[u8], value: &[u8]) -> Result<()> {
        self.replace(key, value).map(drop)
    }

    /// As [`Table::put`]; returns the value that the key had before.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn replace(&self, key: &[u8], value: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let inner = &*self.inner;
        let entered = inner.enter()?;
        let done = inner.put(&entered, &self.index, key, value)?;
        inner.settle(&entered, done.number)?;
        if done.added {
            inner.grow(&entered, &self.index);
        }
        Ok(done.former.map(|former| former.into_value(key)))
    }

    /// The key's value. A place that failed is still read, as long as it can be.
    ///
    /// # Errors
    /// [`Error::Io`] if the device fails; [`Error::Damaged`] if the key's index page is, or its entry, where that can
    /// be told from one that a crash cut short: when there was none since [`super::HashTables::mend`] came to its end.
    pub fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let entered = self.inner.enter_to_read()?;
        let found = self.inner.find(entered.lists()?, &self.index, key)?;
        Ok(found.map(|found| found.into_value(key)))
    }

    /// Whether the key is there. Reads as much as [`Table::get`]: the key is verified.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        check_key(key)?;
        let entered = self.inner.enter_to_read()?;
        Ok(self.inner.find(entered.lists()?, &self.index, key)?.is_some())
    }

    /// Removes a key, and says whether it was there.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn remove(&self, key: &[u8]) -> Result<bool> {
        self.take(key).map(|former| former.is_some())
    }

    /// As [`Table::remove`]; returns the value that the key had.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn take(&self, key: &[u8]) -> Result<Option<Vec<u8>>> {
        check_key(key)?;
        let inner = &*self.inner;
        let entered = inner.enter()?;
        let done = inner.remove(&entered, &self.index, key, None)?;
        // Also of a key that is not there: it may be gone by a call that is not durable yet.
        inner.settle(&entered, done.number)?;
        Ok(done.former.map(|former| former.into_value(key)))
    }

    /// Keys in the table. Exact, but after a crash it may be off by those put and removed since the header was last
    /// written, until [`super::HashTables::mend`] has counted them.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.index.key_count()
    }

    /// Whether [`Table::len`] is 0.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Index pages.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.index.pages.load(Relaxed)
    }
}

pub(super) fn check_key(key: &[u8]) -> Result<()> {
    if key.is_empty() || key.len() > MAX_KEY {
        return Err(Error::Limit { what: "key", len: key.len(), max: MAX_KEY });
    }
    Ok(())
}

/// Frees blocks of entries that have no slot: nothing points to them, and if this fails too, mending finds them.
pub(super) fn give_back<'a>(lists: &FreeLists, blocks: impl IntoIterator<Item = &'a Block>) {
    blocks.into_iter().for_each(|block| drop(lists.free(block)));
}

impl Inner {
    fn put(&self, entered: &Entered<'_>, index: &Arc<Index>, key: &[u8], value: &[u8]) -> Result<Done> {
        let generation = self.generation.fetch_add(1, Relaxed);
        let entry = Entry { table: index.number, generation, key, value }.encode();
        let block = entered.lists()?.put_later(&entry).map_err(failed("write an entry"))?;
        let fresh = Fresh { key, hash: self.hasher.key(key).short(), generation, block };
        self.name(entered, index, &fresh, None)
    }

    /// Gives a fresh entry its slot; `looked` is what was seen of its key a moment ago. If it cannot have one, its
    /// block is free again.
    pub(super) fn name(
        &self,
        entered: &Entered<'_>,
        index: &Arc<Index>,
        fresh: &Fresh<'_>,
        looked: Option<Looked>,
    ) -> Result<Done> {
        let lists = entered.lists()?;
        self.name_in_time(entered, index, fresh, looked).inspect_err(|_| give_back(lists, [&fresh.block]))
    }

    fn name_in_time(
        &self,
        entered: &Entered<'_>,
        index: &Arc<Index>,
        fresh: &Fresh<'_>,
        mut looked: Option<Looked>,
    ) -> Result<Done> {
        let lists = entered.lists()?;
        let mut settled = false;
        loop {
            let at = looked.take().map_or_else(|| self.look(lists, index, fresh.key, fresh.hash), Ok)?;
            match self.place(lists, index, fresh, at, settled)? {
                Ok(done) => return Ok(done),
                Err(Retry::Changed) => {}
                Err(Retry::Full) if settled => self.split(entered, index)?,
                Err(Retry::Full) => {
                    self.wait(entered, self.commits.next())?;
                    settled = true;
                }
            }
        }
    }

    /// Looks for a key.
    pub(super) fn look(&self, lists: &FreeLists, index: &Arc<Index>, key: &[u8], hash: u64) -> Result<Looked> {
        let (frame, seen) = self.candidates(lists, index, hash)?;
        let current = self.current(lists, index, key, &seen)?;
        Ok(Looked { frame, seen, current })
    }

    /// Gives a fresh entry its slot. `settled`: the entry is durable.
    fn place(
        &self,
        lists: &FreeLists,
        index: &Arc<Index>,
        fresh: &Fresh<'_>,
        looked: Looked,
        settled: bool,
    ) -> Result<Result<Done, Retry>> {
        let Looked { frame, seen, current: Current { found: old, lost } } = looked;
        let mut page = frame.page.write();
        if !self.is_still(&frame, &page, fresh.hash, &seen) {
            return Ok(Err(Retry::Changed));
        }
        if let Some(old) = old.as_ref().filter(|old| old.generation > fresh.generation) {
            // Another put of this key began after this one and came first: this one was before it, and is replaced.
            debug_assert_ne!(old.block.address(), fresh.block.address());
            lists.free(&fresh.block).map_err(failed("free a block"))?;
            return Ok(Ok(Done { number: self.commits.next(), added: false, former: None }));
        }
        let was_dirty = page.is_dirty();
        self.drop_moved(&frame, &mut page);
        self.drop_lost(index, &mut page, &lost);
        let slot = Slot::new(fresh.block.address().word(), fresh.hash, fresh.generation);
        let Some(old) = old else {
            let Some((sector, at)) = page.room() else { return Ok(Err(Retry::Full)) };
            page.set(sector, at, Some(slot));
            index.keys.fetch_add(1, Relaxed);
            return Ok(Ok(Done { number: self.changed(&frame, was_dirty), added: true, former: None }));
        };
        let Standing { sector, index: at, slot: old_slot } = old.standing;
        let kept = if let Some(room) = page.room_in(sector) {
            let superseded = Slot { superseded: true, ..old_slot };
            page.set(sector, at, Some(superseded));
            page.set(sector, room, Some(slot));
            Some(superseded)
        } else if settled {
            page.set(sector, at, Some(slot));
            None
        } else {
            return Ok(Err(Retry::Full));
        };
        let number = self.changed(&frame, was_dirty);
        self.release_after(number, index, fresh.hash, old.block, kept);
        Ok(Ok(Done { number, added: false, former: Some(old) }))
    }

    /// Empties a key's slots; `looked` as for [`Inner::name`].
    pub(super) fn remove(
        &self,
        entered: &Entered<'_>,
        index: &Arc<Index>,
        key: &[u8],
        mut looked: Option<Looked>,
    ) -> Result<Done> {
        let lists = entered.lists()?;
        let hash = self.hasher.key(key).short();
        loop {
            // Before it is looked for, which reads the device.
            while self.must_wait(hash) {
                self.wait(entered, self.commits.next())?;
            }
            let at = looked.take().map_or_else(|| self.look(lists, index, key, hash), Ok)?;
            let Looked { frame, seen, current: Current { found: old, lost } } = at;
            // Versions that were replaced and are not free yet go with the current one; they are being released.
            let former = match &old {
                Some(_) => self.former(lists, index, key, &seen)?,
                None => Vec::new(),
            };
            let mut page = frame.page.write();
            if !self.is_still(&frame, &page, hash, &seen) || self.must_wait(hash) {
                continue;
            }
            let was_dirty = page.is_dirty();
            if old.is_none() && lost.is_empty() {
                return Ok(Done { number: self.commits.next(), added: false, former: None });
            }
            self.drop_moved(&frame, &mut page);
            self.drop_lost(index, &mut page, &lost);
            let Some(old) = old else {
                let number = self.changed(&frame, was_dirty);
                return Ok(Done { number, added: false, former: None });
            };
            for standing in former.iter().chain([&old.standing]) {
                page.set(standing.sector, standing.index, None);
            }
            index.keys.fetch_sub(1, Relaxed);
            let number = self.changed(&frame, was_dirty);
            let number = self.release_removed(lists, index, hash, (old.block, number))?;
            return Ok(Done { number, added: false, former: Some(old) });
        }
    }

    /// The key's entry.
    fn find(&self, lists: &FreeLists, index: &Arc<Index>, key: &[u8]) -> Result<Option<Found>> {
        let hash = self.hasher.key(key).short();
        loop {
            let Looked { frame, seen, current: Current { found, lost } } = self.look(lists, index, key, hash)?;
            if found.is_none() && !self.is_still(&frame, &frame.page.read(), hash, &seen) {
                continue;
            }
            // After a crash it may be a put that was under way, and never was.
            if found.is_none() && !lost.is_empty() && self.doubt.load(Acquire) == self.epoch {
                return Err(index.lost_entry(frame.number, lost[0].slot.place));
            }
            return Ok(found);
        }
    }

    /// The page that a hash belongs to, and its slots of that hash.
    pub(super) fn candidates(
        &self,
        lists: &FreeLists,
        index: &Arc<Index>,
        hash: u64,
    ) -> Result<(Arc<Frame>, Candidates)> {
        loop {
            let frame = self.page(lists, index, shape::page_of(hash, index.pages.load(Acquire)))?;
            let page = frame.page.read();
            if self.belongs(&frame, &page, hash) {
                let seen = page.matches(hash);
                drop(page);
                return Ok((frame, seen));
            }
        }
    }

    /// Whether this is the page for a hash; under its lock, which dividing it takes too.
    fn belongs(&self, frame: &Frame, page: &Page, hash: u64) -> bool {
        !page.gone && shape::page_of(hash, frame.index.pages.load(Acquire)) == frame.number
    }

    fn is_still(&self, frame: &Frame, page: &Page, hash: u64, seen: &Candidates) -> bool {
        self.belongs(frame, page, hash) && page.matches(hash) == *seen
    }

    /// The current version among the slots of a key's hash, and those that lead nowhere.
    fn current(&self, lists: &FreeLists, index: &Index, key: &[u8], seen: &Candidates) -> Result<Current> {
        let mut current = Current::default();
        for standing in seen.iter().filter(|standing| !standing.slot.superseded) {
            match self.read_again(lists, index, *standing)? {
                Some(found) if found.key() == key => return Ok(Current { found: Some(found), lost: Vec::new() }),
                Some(_) => {}
                None => {
                    self.count_unreadable();
                    current.lost.push(*standing);
                }
            }
        }
        Ok(current)
    }

    /// Empties slots that lead nowhere, as a key that is probably theirs is put or removed: if the device shows them
    /// again, they must not be taken for the key's version. Mending finds their blocks.
    fn drop_lost(&self, index: &Index, page: &mut Page, lost: &[Standing]) {
        for standing in lost {
            page.set(standing.sector, standing.index, None);
            index.keys.fetch_sub(1, Relaxed);
        }
    }

    /// The slots of versions that were replaced a moment ago.
    fn former(&self, lists: &FreeLists, index: &Index, key: &[u8], seen: &Candidates) -> Result<Vec<Standing>> {
        let mut former = Vec::new();
        for standing in seen.iter().filter(|standing| standing.slot.superseded) {
            if self.read(lists, index, *standing)?.is_none_or(|found| found.key() == key) {
                former.push(*standing);
            }
        }
        Ok(former)
    }
}
