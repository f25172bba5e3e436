//! Many gets at once: for who knows beforehand what it will ask for, and would wait for one read after the other.
//!
//! Steps: the keys' index pages that are not in memory are read in one batch, then all entries in another. What was
//! replaced or removed in between is asked for again, alone.

use std::sync::atomic::Ordering::Acquire;

use super::{Table, shape, verbs::check_key};
use crate::{Result, blocks::Address};

/// Keys of a batch: as many pages are kept in memory that were not asked for yet.
const BATCH: usize = 64;

impl Table {
    /// The keys' values, in their order. As [`Table::get`] of each, but with two batches of device reads for each 64
    /// keys, where that is two reads for each key, one after the other.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn get_many(&self, keys: &[&[u8]]) -> Result<Vec<Option<Vec<u8>>>> {
        keys.iter().try_for_each(|key| check_key(key))?;
        let mut values = Vec::with_capacity(keys.len());
        for batch in keys.chunks(BATCH) {
            self.get_batch(batch, &mut values)?;
        }
        Ok(values)
    }

    fn get_batch(&self, keys: &[&[u8]], values: &mut Vec<Option<Vec<u8>>>) -> Result<()> {
        let (inner, index) = (&*self.inner, &self.index);
        let entered = inner.enter_to_read()?;
        let lists = entered.lists()?;
        let hashes: Vec<u64> = keys.iter().map(|key| inner.hasher.key(key).short()).collect();
        let pages = index.pages.load(Acquire);
        let mut numbers: Vec<u64> = hashes.iter().map(|&hash| shape::page_of(hash, pages)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        inner.read_ahead(lists, index, &numbers)?;
        let mut wanted = Vec::new();
        let mut unsure = vec![false; keys.len()];
        for (number, &hash) in hashes.iter().enumerate() {
            let (_, seen) = inner.candidates(lists, index, hash)?;
            unsure[number] = !seen.is_empty();
            let current = seen.iter().filter(|standing| !standing.slot.superseded);
            wanted.extend(current.filter_map(|it| Some((number, *it, Address::from_word(it.slot.place)?))));
        }
        let places: Vec<Address> = wanted.iter().map(|(.., place)| *place).collect();
        let mut found: Vec<Option<Vec<u8>>> = vec![None; keys.len()];
        for ((number, standing, _), read) in wanted.into_iter().zip(lists.read_many(&places)) {
            let entry = inner.found(index, standing, read)?.filter(|entry| entry.key() == keys[number]);
            if let Some(entry) = entry {
                found[number] = Some(entry.into_value(keys[number]));
                unsure[number] = false;
            }
        }
        drop(entered);
        for ((key, value), unsure) in keys.iter().zip(found).zip(unsure) {
            values.push(if unsure { self.get(key)? } else { value });
        }
        Ok(())
    }
}
