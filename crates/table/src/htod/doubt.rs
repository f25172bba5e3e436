//! What a crash left half done, as far as it is not mended yet.

use std::sync::{
    Arc,
    atomic::Ordering::{Acquire, Release},
};

use super::{failure::failed, inner::Inner, roots::Roots, tables::Index};
use crate::{Error, Result, blocks::FreeLists};

const NEVER: &str = "keys of it may have been deleted between two crashes, so it is not made anew: restore a copy of \
                     the device, or put the table's entries again from their source";

impl Inner {
    /// Whether sectors may hold what a crash left half done.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.doubt.load(Acquire) != self.epoch
    }

    /// Notes from which epoch on sectors are doubtful.
    pub(super) fn note_doubt(&self, lists: &FreeLists, doubt: u32) -> Result<()> {
        let list = self.tables.lock().list.word();
        let roots = Roots { list, epoch: self.epoch, clean: false, doubt, seed: self.hasher.seed() };
        lists.set_roots(roots.words()).map_err(failed("note what is in doubt"))?;
        lists.sync().map_err(failed("sync"))?;
        self.doubt.store(doubt, Release);
        Ok(())
    }

    /// Notes that a page is in memory, as long as that matters: see [`Inner::refusal`].
    pub(super) fn note_in_memory(&self, index: &Index, number: u64) {
        if self.is_in_doubt() {
            index.know(number);
        }
    }

    /// Why a page cannot be made anew, if that is so: entries may be left of keys that were removed. A crash leaves
    /// such entries only where another came before what the first had left was mended, and only keys of a page that was
    /// in memory in between were removed.
    pub(super) fn refusal(&self, index: &Index, number: u64) -> Option<&'static str> {
        let is_exact = !self.is_in_doubt() || self.doubt.load(Acquire) + 1 == self.epoch && !index.is_known(number);
        (!is_exact).then_some(NEVER)
    }

    /// Notes that a page is not whole. The error for the caller that asked for it.
    pub(super) fn note_damage(&self, index: &Arc<Index>, number: u64, why: &str) -> Error {
        let refused = self.refusal(index, number);
        self.damaged.lock().note(index, number, why, refused)
    }
}
