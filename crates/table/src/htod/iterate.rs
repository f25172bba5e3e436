//! Going through a table: keys, values, or both, in the order of their pages.
//!
//! Invariants: what is there from the beginning to the end is met once; what is put or removed meanwhile may be met
//! or not; a key that is replaced meanwhile is met with one of its values. A batch of slots is in memory at a time, of
//! all of the table if they fit, and some of their entries are read ahead, in the order of their places: what lies side
//! by side with one read. So each batch goes over the device once, in one direction.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering::Acquire},
};

use picaflor_format::htod::Slot;

use super::{
    entry::Found,
    inner::{Inner, Table},
    page::Standing,
    shape,
    tables::Index,
};
use crate::{
    Result,
    blocks::{Address, FreeLists},
};

/// Bytes of slots collected ahead, about, if there are as many: the more, the fewer times the device is gone over.
const BATCH_BYTES: usize = 4 << 20;
const BATCH: usize = BATCH_BYTES / size_of::<Standing>();
/// Index pages that are read at once, where the page cache has room for many more.
const PAGES: usize = 16;
const CACHE_PART: usize = 32;
/// Entries that are read ahead, and about as many bytes of them.
const AHEAD: usize = 256;
const AHEAD_BYTES: u64 = 1 << 20;

/// Goes through keys and values; see [`Table::pairs`].
pub struct Pairs {
    table: Table,
    /// Pages when this began: what was divided since is met with what it was divided off.
    known: u64,
    next: u64,
    /// The batch, in the order of its places, and how many of it were read.
    slots: Vec<Standing>,
    done: usize,
    ready: VecDeque<Result<(Vec<u8>, Vec<u8>)>>,
    lost: u64,
}

/// Goes through keys; see [`Table::keys`].
pub struct Keys(Pairs);

/// Goes through values; see [`Table::values`].
pub struct Values(Pairs);

impl Table {
    /// All keys with their values, in no order. Others may put and remove meanwhile: what they change is met or
    /// not, what they do not change is met once. After an error the next call goes on behind it, but
    /// [`crate::Error::Closed`] is the last. Takes up to 6 MiB of memory, most of it for where entries lie: they are
    /// read in that order, a hundred thousand at a time.
    #[must_use]
    pub fn pairs(&self) -> Pairs {
        let known = self.index.pages.load(Acquire);
        Pairs { table: self.clone(), known, next: 0, slots: Vec::new(), done: 0, ready: VecDeque::new(), lost: 0 }
    }

    /// As [`Table::pairs`], keys only. They lie with the values, so this reads as much.
    #[must_use]
    pub fn keys(&self) -> Keys {
        Keys(self.pairs())
    }

    /// As [`Table::pairs`], values only.
    #[must_use]
    pub fn values(&self) -> Values {
        Values(self.pairs())
    }
}

impl Iterator for Pairs {
    type Item = Result<(Vec<u8>, Vec<u8>)>;

    fn next(&mut self) -> Option<Self::Item> {
        while self.ready.is_empty() && (self.done < self.slots.len() || self.next < self.known) {
            if let Err(error) = self.fill() {
                // Nothing is read any more: the place was closed.
                (self.next, self.done) = (self.known, self.slots.len());
                return Some(Err(error));
            }
        }
        self.ready.pop_front()
    }
}

impl Iterator for Keys {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|(key, _)| key))
    }
}

impl Iterator for Values {
    type Item = Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        Some(self.0.next()?.map(|(_, value)| value))
    }
}

fn place(slot: &Slot) -> Option<Address> {
    Address::from_word(slot.place)
}

/// What a batch is ordered by.
fn grain(slot: &Slot) -> Option<u64> {
    place(slot).map(Address::grain)
}

impl Pairs {
    fn fill(&mut self) -> Result<()> {
        let table = self.table.clone();
        let inner = &*table.inner;
        let entered = inner.enter_to_read()?;
        let (lists, index) = (entered.lists()?, &table.index);
        if self.done == self.slots.len() {
            return self.collect(lists);
        }
        let (mut ahead, mut bytes) = (Vec::new(), 0);
        for &standing in &self.slots[self.done..] {
            if ahead.len() == AHEAD || bytes >= AHEAD_BYTES {
                break;
            }
            bytes += place(&standing.slot).map_or(0, |at| lists.bytes_at(at));
            ahead.push(standing);
        }
        self.done += ahead.len();
        let places: Vec<Address> = ahead.iter().filter_map(|it| place(&it.slot)).collect();
        let mut read = lists.read_many(&places).into_iter();
        for standing in ahead {
            let read = place(&standing.slot).and_then(|_| read.next());
            let found = read.map_or(Ok(None), |read| inner.found(index, standing, read));
            match found {
                Ok(Some(found)) => self.meet(&found),
                Ok(None) => self.meet_later(lists, standing).unwrap_or_else(|error| self.ready.push_back(Err(error))),
                Err(error) => self.ready.push_back(Err(error)),
            }
        }
        Ok(())
    }

    fn meet(&mut self, found: &Found) {
        self.ready.push_back(Ok((found.key().to_vec(), found.value().to_vec())));
    }

    /// A slot whose entry was not where it should be.
    fn meet_later(&mut self, lists: &FreeLists, standing: Standing) -> Result<()> {
        let table = self.table.clone();
        let (inner, index) = (&*table.inner, &table.index);
        if let Some(found) = inner.read(lists, index, standing)? {
            self.meet(&found);
            return Ok(());
        }
        // Replaced or removed since it was collected; whatever took its place was not collected. Or lost.
        let now = inner.slots_of_hash(lists, index, standing.slot.hash)?;
        self.lost += u64::from(now.iter().any(|it| it.slot == standing.slot));
        for successor in now {
            if !self.is_of_batch(&successor.slot)
                && let Some(found) = inner.read(lists, index, successor)?
            {
                self.meet(&found);
            }
        }
        Ok(())
    }

    /// Whether this slot is met in its turn, or was.
    fn is_of_batch(&self, slot: &Slot) -> bool {
        let first = self.slots.partition_point(|standing| grain(&standing.slot) < grain(slot));
        let there = self.slots[first..].iter().take_while(|standing| grain(&standing.slot) == grain(slot));
        there.into_iter().any(|standing| standing.slot == *slot)
    }

    /// Collects the slots of some pages. Of one that is damaged the error is met in its place.
    fn collect(&mut self, lists: &FreeLists) -> Result<()> {
        let table = self.table.clone();
        let (inner, index) = (&*table.inner, &table.index);
        let mut slots = std::mem::take(&mut self.slots);
        slots.clear();
        let mut ahead = self.next;
        while slots.len() < BATCH && self.next < self.known {
            let page = self.next;
            if page >= ahead {
                let some = (inner.cache.most() / CACHE_PART).clamp(1, PAGES);
                ahead = (page + some as u64).min(self.known);
                let numbers: Vec<u64> = (page..ahead).collect();
                if some > 1 {
                    // What is wrong with one of them is met when it is its turn.
                    inner.read_ahead(lists, index, &numbers);
                }
            }
            self.next += 1;
            if let Err(error) = inner.collect(lists, index, page, self.known, &mut slots) {
                self.ready.push_back(Err(error));
            }
        }
        slots.sort_unstable_by_key(|standing| grain(&standing.slot));
        (self.slots, self.done) = (slots, 0);
        Ok(())
    }

    /// Index pages gone through, and all there are to go through.
    #[must_use]
    pub fn progress(&self) -> (u64, u64) {
        (self.next, self.known)
    }

    /// Slots met so far that lead to no entry: damaged, or, before [`super::HashTables::mend`] came to its end, of a
    /// put that a crash cut short.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.lost
    }
}

impl Inner {
    /// The current slots of what `page` held when there were `known` pages.
    fn collect(
        &self,
        lists: &FreeLists,
        index: &Arc<Index>,
        page: u64,
        known: u64,
        slots: &mut Vec<Standing>,
    ) -> Result<()> {
        let before = slots.len();
        loop {
            let family = shape::offspring(page, known, index.pages.load(Acquire));
            for &member in &family {
                slots.extend(self.slots_of_page(lists, index, member)?);
            }
            if shape::offspring(page, known, index.pages.load(Acquire)) == family {
                return Ok(());
            }
            slots.truncate(before);
        }
    }

    /// The current slots of a page, without those that were moved out of it.
    pub(super) fn slots_of_page(&self, lists: &FreeLists, index: &Arc<Index>, number: u64) -> Result<Vec<Standing>> {
        loop {
            let frame = self.page(lists, index, number)?;
            let page = frame.page.read();
            if page.gone {
                continue;
            }
            let pages = index.pages.load(Acquire);
            let is_here = |slot: &Slot| !slot.superseded && shape::page_of(slot.hash, pages) == number;
            return Ok(page.slots().filter(|standing| is_here(&standing.slot)).collect());
        }
    }

    fn slots_of_hash(&self, lists: &FreeLists, index: &Arc<Index>, hash: u64) -> Result<Vec<Standing>> {
        let number = shape::page_of(hash, index.pages.load(Acquire));
        let mut slots = self.slots_of_page(lists, index, number)?;
        slots.retain(|standing| standing.slot.hash == hash);
        Ok(slots)
    }
}
