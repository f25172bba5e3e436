//! Many gets, puts or removes at once: for a caller that knows beforehand what it will ask for, and would wait for one
//! read after the other, or for one commit after the other.
//!
//! Steps: the keys' index pages that are not in memory are read in one batch, then all entries in another. A put writes
//! the entries first, where [`Batch`] says, then gives each its slot, and one commit at the end makes all durable. What
//! was replaced or removed by others in between is looked at again, alone.

use std::sync::{
    Arc,
    atomic::Ordering::{Acquire, Relaxed},
};

use picaflor_format::htod::{ENTRY_HEADER, Entry};

use super::{
    Batch,
    failure::failed,
    inner::{Inner, Table},
    page::Standing,
    shape,
    tables::Index,
    verbs::{Current, Fresh, Looked, check_key, give_back},
};
use crate::{
    Result,
    blocks::{Address, Block, BlockResult, FreeLists},
};

/// Keys of a batch of reads: as many pages are kept in memory that were not asked for yet.
const BATCH: usize = 64;
/// The same of gets alone, where the page cache is large enough: so many, but no more than a part of its pages.
const MOST_KEYS: usize = 1024;
const CACHE_PART: usize = 4;
/// Bytes of entries that are placed, or read, together; one entry may be longer.
const MOST_BYTES: usize = 4 << 20;

/// Runs of as many as take at most so many bytes together, or of one that takes more.
pub fn runs<T>(mut items: &[T], most: usize, bytes: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    std::iter::from_fn(move || {
        let mut sum = 0;
        let fits = |item: &&T| {
            sum += bytes(item);
            sum <= most
        };
        let (run, rest) = items.split_at(items.iter().take_while(fits).count().max(1).min(items.len()));
        items = rest;
        (!run.is_empty()).then_some(run)
    })
}

impl Table {
    /// The keys' values, in their order. As [`Table::get`] of each, but with two batches of device reads for many keys,
    /// where that is two reads for each key, one after the other: as many keys as a quarter of the page cache has
    /// pages, 64 at least and 1,024 at most, and a batch more for every 4 MiB of entries. What lies side by side is one
    /// read. A key that cannot be answered, for its index page is damaged or the device fails there, has an error in
    /// its place, and the others their answers.
    ///
    /// # Errors
    /// As [`Table::get`]: of all, where a key is no key or the place is closed; of one, in its place.
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Result<Option<Vec<u8>>>>> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let mut values = Vec::with_capacity(keys.len());
        for batch in keys.chunks((self.inner.cache.most() / CACHE_PART).clamp(BATCH, MOST_KEYS)) {
            let looked = {
                let entered = self.inner.enter_to_read()?;
                self.inner.look_many(entered.lists()?, &self.index, batch)
            };
            let value = |(key, looked): (&&[u8], Result<Looked>)| {
                let Looked { seen, current, .. } = looked?;
                match current.found {
                    Some(found) => Ok(Some(found.into_value(key))),
                    None if seen.is_empty() => Ok(None),
                    None => self.get(key),
                }
            };
            values.extend(batch.iter().zip(looked).map(value));
        }
        Ok(values)
    }

    /// Puts all of these, keys and values, in their order: of several with one key the last stays. All of them become
    /// durable with one commit: when this returns, or, with [`super::Durable::AtCommit`], when the next one does. After
    /// a crash before that, each of them is there wholly or is as it was.
    ///
    /// # Errors
    /// As [`Table::put`]; then any of them may have been put, and those that were are as durable as if it had returned,
    /// unless the device failed.
    pub fn put_many(&self, entries: &[(&[u8], &[u8])]) -> Result<()> {
        entries.iter().try_for_each(|(key, _)| check_key(key))?;
        let outcome = self.replace_later(entries, |_, _| {});
        self.settle_many(outcome)
    }

    /// Removes all of these keys, and says of each whether it was there. Durable as [`Table::put_many`].
    ///
    /// # Errors
    /// As [`Table::put_many`].
    pub fn remove_many(&self, keys: &[&[u8]]) -> Result<Vec<bool>> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let mut were_there = vec![false; keys.len()];
        let outcome = self.take_later(keys, |number, former| were_there[number] = former.is_some());
        self.settle_many(outcome).map(|()| were_there)
    }

    fn settle_many(&self, outcome: Result<()>) -> Result<()> {
        let settled = self.inner.enter().and_then(|entered| self.inner.settle(&entered, self.inner.commits.next()));
        // That the place has stopped is the more important of the two.
        settled.and(outcome)
    }

    /// Puts all of these; `see` hears of each what its key had before. They are durable with the next commit.
    ///
    /// # Errors
    /// As [`Table::put`]; those that `see` heard of were put.
    pub fn replace_later(&self, entries: &[(&[u8], &[u8])], mut see: impl FnMut(usize, Option<Vec<u8>>)) -> Result<()> {
        let mut begin = 0;
        runs(entries, MOST_BYTES, |(key, value)| ENTRY_HEADER + key.len() + value.len()).try_for_each(|part| {
            let number = begin;
            begin += part.len();
            self.replace_part(part, |at, former| see(number + at, former))
        })
    }

    fn replace_part(&self, part: &[(&[u8], &[u8])], mut see: impl FnMut(usize, Option<Vec<u8>>)) -> Result<()> {
        let (inner, index) = (&*self.inner, &self.index);
        let entered = inner.enter()?;
        let lists = entered.lists()?;
        let fresh = inner.write_entries(lists, index, part)?;
        let mut named = 0;
        let outcome = fresh.chunks(BATCH).try_for_each(|batch| {
            let keys: Vec<&[u8]> = batch.iter().map(|fresh| fresh.key).collect();
            let mut added = 0;
            for (fresh, looked) in batch.iter().zip(inner.look_many(lists, index, &keys)) {
                let looked = looked?;
                named += 1;
                let done = inner.name(&entered, index, fresh, Some(looked))?;
                added += usize::from(done.added);
                see(named - 1, done.former.map(|former| former.into_value(fresh.key)));
            }
            (0..added).for_each(|_| inner.grow(&entered, index));
            inner.ease(&entered)
        });
        if outcome.is_err() {
            give_back(lists, fresh[named..].iter().map(|fresh| &fresh.block));
        }
        outcome
    }

    /// As [`Table::replace_later`], of keys that are removed.
    ///
    /// # Errors
    /// As [`Table::replace_later`].
    pub fn take_later(&self, keys: &[&[u8]], mut see: impl FnMut(usize, Option<Vec<u8>>)) -> Result<()> {
        let (inner, index) = (&*self.inner, &self.index);
        let entered = inner.enter()?;
        let lists = entered.lists()?;
        let mut number = 0;
        for batch in keys.chunks(BATCH) {
            for (key, looked) in batch.iter().zip(inner.look_many(lists, index, batch)) {
                let done = inner.remove(&entered, index, key, Some(looked?))?;
                see(number, done.former.map(|former| former.into_value(key)));
                number += 1;
            }
            inner.ease(&entered)?;
        }
        Ok(())
    }
}

impl Inner {
    /// Gives entries their blocks. Without room for all of them, none has one.
    fn write_entries<'a>(
        &self,
        lists: &FreeLists,
        index: &Index,
        part: &[(&'a [u8], &[u8])],
    ) -> Result<Vec<Fresh<'a>>> {
        let first = self.generation.fetch_add(part.len() as u64, Relaxed);
        let encode = |((key, value), generation)| Entry { table: index.number, generation, key, value }.encode();
        let entries = part.iter().copied().zip(first..).map(encode);
        let blocks = match self.batch {
            Batch::ByLists => {
                let mut blocks: Vec<Block> = Vec::with_capacity(part.len());
                for entry in entries {
                    match lists.put_later(&entry) {
                        Ok(block) => blocks.push(block),
                        Err(error) => {
                            give_back(lists, &blocks);
                            return Err(failed("write an entry")(error));
                        }
                    }
                }
                blocks
            }
            Batch::BestFit => {
                let entries: Vec<Vec<u8>> = entries.collect();
                let bodies: Vec<&[u8]> = entries.iter().map(Vec::as_slice).collect();
                let (blocks, nested) = lists.put_batch_later(&bodies).map_err(failed("write entries"))?;
                if nested {
                    lists.sync().map_err(failed("sync"))?;
                }
                blocks
            }
        };
        let fresh = part.iter().zip(blocks).zip(first..).map(|(((key, _), block), generation)| Fresh {
            key,
            hash: self.hasher.key(key).short(),
            generation,
            block,
        });
        Ok(fresh.collect())
    }

    /// As [`Inner::look`] for each of the keys, with the device reads of all on their way at once.
    fn look_many(&self, lists: &FreeLists, index: &Arc<Index>, keys: &[&[u8]]) -> Vec<Result<Looked>> {
        let hashes: Vec<u64> = keys.iter().map(|key| self.hasher.key(key).short()).collect();
        let pages = index.pages.load(Acquire);
        let mut numbers: Vec<u64> = hashes.iter().map(|&hash| shape::page_of(hash, pages)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        self.read_ahead(lists, index, &numbers);
        let mut wanted = Vec::new();
        let look = |(number, &hash): (usize, &u64)| {
            let (frame, seen) = self.candidates(lists, index, hash)?;
            let current = seen.iter().filter(|standing| !standing.slot.superseded);
            wanted.extend(current.map(|standing| (number, *standing)));
            Ok(Looked { frame, seen, current: Current::default() })
        };
        let mut looked: Vec<Result<Looked>> = hashes.iter().enumerate().map(look).collect();
        let places: Vec<Address> = wanted.iter().filter_map(|(_, it)| Address::from_word(it.slot.place)).collect();
        let bytes = |at: &Address| usize::try_from(lists.bytes_at(*at)).unwrap_or(usize::MAX / 2);
        let mut read = runs(&places, MOST_BYTES, bytes).flat_map(|places| lists.read_many(places));
        for (number, standing) in wanted {
            let read = Address::from_word(standing.slot.place).and_then(|_| read.next());
            let Ok(so_far) = &mut looked[number] else { continue };
            if let Err(error) = self.meet(lists, index, standing, read, keys[number], &mut so_far.current) {
                looked[number] = Err(error);
            }
        }
        looked
    }

    /// Notes what one of a key's slots leads to; `read` is what was read there, if anything was.
    fn meet(
        &self,
        lists: &FreeLists,
        index: &Index,
        standing: Standing,
        read: Option<BlockResult<(Block, Vec<u8>)>>,
        key: &[u8],
        current: &mut Current,
    ) -> Result<()> {
        if current.found.is_some() {
            return Ok(());
        }
        let first = match read {
            Some(read) => self.found(index, standing, read)?,
            None => None,
        };
        // Twice: a device that errs once must not make an entry look lost.
        let entry = match first {
            None => self.read(lists, index, standing)?,
            found => found,
        };
        match entry {
            Some(entry) if entry.key() == key => *current = Current { found: Some(entry), lost: Vec::new() },
            Some(_) => {}
            None => {
                self.count_unreadable();
                current.lost.push(standing);
            }
        }
        Ok(())
    }
}
