//! Entries, as they are read where a slot points.

use std::sync::atomic::Ordering::Relaxed;

use picaflor_format::htod::Entry;

use super::{failure::failed, inner::Inner, page::Standing, tables::Index};
use crate::{
    Result,
    blocks::{Address, Block, BlockError, BlockResult, FreeLists},
};

/// What a key's slot was found to name.
pub(super) struct Found {
    pub(super) standing: Standing,
    pub(super) block: Block,
    pub(super) generation: u64,
    /// The entry's bytes: header, key, value.
    bytes: Vec<u8>,
}

impl Found {
    pub(super) fn into_value(mut self, key: &[u8]) -> Vec<u8> {
        self.bytes.split_off(picaflor_format::htod::ENTRY_HEADER + key.len())
    }

    pub(super) fn key(&self) -> &[u8] {
        Entry::decode(&self.bytes).map_or(&[], |entry| entry.key)
    }

    pub(super) fn value(&self) -> &[u8] {
        Entry::decode(&self.bytes).map_or(&[], |entry| entry.value)
    }
}

impl Inner {
    /// As [`Inner::read`], twice: a device that errs once must not make an entry look lost.
    pub(super) fn read_again(&self, lists: &FreeLists, index: &Index, standing: Standing) -> Result<Option<Found>> {
        match self.read(lists, index, standing)? {
            None => self.read(lists, index, standing),
            found => Ok(found),
        }
    }

    /// What a slot names, if its block holds it.
    pub(super) fn read(&self, lists: &FreeLists, index: &Index, standing: Standing) -> Result<Option<Found>> {
        let Some(address) = Address::from_word(standing.slot.place) else { return Ok(None) };
        self.found(index, standing, lists.read(address))
    }

    /// What was read where a slot points, if it is what the slot names.
    pub(super) fn found(
        &self,
        index: &Index,
        standing: Standing,
        read: BlockResult<(Block, Vec<u8>)>,
    ) -> Result<Option<Found>> {
        let (block, bytes) = match read {
            Ok(read) => read,
            Err(BlockError::Damaged { .. } | BlockError::NotAllocated(_)) => return Ok(None),
            Err(error) => return Err(failed("read an entry")(error)),
        };
        let Ok(entry) = Entry::decode(&bytes) else { return Ok(None) };
        let generation = entry.generation;
        let is_meant = entry.table == index.number && standing.slot.is_of(generation);
        Ok(is_meant.then_some(Found { standing, block, generation, bytes }))
    }

    pub(super) fn count_unreadable(&self) {
        self.unreadable.fetch_add(1, Relaxed);
    }
}
