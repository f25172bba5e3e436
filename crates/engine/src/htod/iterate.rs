//! Going through a table: keys, values, or both, in the order of their pages.
//!
//! Invariants: what is there from the beginning to the end is met once; what is put or removed meanwhile may be met
//! or not; a key that is replaced meanwhile is met with one of its values. A batch of slots is in memory at a time, and
//! their entries are read one by one in the order of their places.

use std::{
    collections::{HashSet, VecDeque},
    sync::{Arc, atomic::Ordering::Acquire},
    vec,
};

use picaflor_format::htod::Slot;

use super::{Inner, Table, page::Standing, shape, tables::Index};
use crate::{Result, blocks::FreeLists};

/// Slots collected ahead, at least, if there are as many.
const BATCH: usize = 512;

/// Goes through keys and values; see [`Table::pairs`].
pub struct Pairs {
    table: Table,
    /// Pages when this began: what was divided since is met with what it was divided off.
    known: u64,
    next: u64,
    /// Slots of the batch that are still to be read, and all of its slots.
    slots: vec::IntoIter<Standing>,
    batch: HashSet<Slot>,
    ready: VecDeque<(Vec<u8>, Vec<u8>)>,
    lost: u64,
}

/// Goes through keys; see [`Table::keys`].
pub struct Keys(Pairs);

/// Goes through values; see [`Table::values`].
pub struct Values(Pairs);

impl Table {
    /// All keys with their values, in no order. Others may put and remove meanwhile: what they change is met or
    /// not, what they do not change is met once. After an error the next call goes on behind it.
    #[must_use]
    pub fn pairs(&self) -> Pairs {
        let known = self.index.pages.load(Acquire);
        Pairs {
            table: self.clone(),
            known,
            next: 0,
            slots: Vec::new().into_iter(),
            batch: HashSet::new(),
            ready: VecDeque::new(),
            lost: 0,
        }
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
        while self.ready.is_empty() && (self.slots.len() > 0 || self.next < self.known) {
            if let Err(error) = self.fill() {
                return Some(Err(error));
            }
        }
        self.ready.pop_front().map(Ok)
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

impl Pairs {
    fn fill(&mut self) -> Result<()> {
        let inner = &*self.table.inner;
        let entered = inner.enter_to_read()?;
        let (lists, index) = (entered.lists()?, &self.table.index);
        let Some(standing) = self.slots.next() else {
            let mut slots = Vec::new();
            while slots.len() < BATCH && self.next < self.known {
                let page = self.next;
                // Counted first, so that a damaged page is reported once.
                self.next += 1;
                inner.collect(lists, index, page, self.known, &mut slots)?;
            }
            slots.sort_unstable_by_key(|standing| standing.slot.place);
            self.batch = slots.iter().map(|standing| standing.slot).collect();
            self.slots = slots.into_iter();
            return Ok(());
        };
        if let Some(found) = inner.read_again(lists, index, standing)? {
            self.ready.push_back((found.key().to_vec(), found.value().to_vec()));
            return Ok(());
        }
        // Replaced or removed since it was collected; whatever took its place was not collected. Or lost.
        let now = inner.slots_of_hash(lists, index, standing.slot.hash)?;
        self.lost += u64::from(now.iter().any(|it| it.slot == standing.slot));
        for successor in now {
            if !self.batch.contains(&successor.slot)
                && let Some(found) = inner.read(lists, index, successor)?
            {
                self.ready.push_back((found.key().to_vec(), found.value().to_vec()));
            }
        }
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
