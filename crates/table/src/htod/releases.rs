//! Blocks that commits free.

use std::{
    collections::{BTreeMap, HashMap, HashSet, hash_map::Entry},
    sync::Arc,
};

use picaflor_format::htod::Slot;

use super::tables::Index;
use crate::blocks::Block;

/// Blocks that are not needed once a commit is complete.
#[derive(Default)]
pub(super) struct Releases {
    waiting: BTreeMap<u64, Vec<Release>>,
    /// Slots of those blocks that pages still have.
    superseded: HashSet<Slot>,
    /// Hashes of keys whose replaced versions were freed, by the commit that makes that durable.
    leaving: BTreeMap<u64, Vec<u64>>,
    /// How many wait or leave of each hash.
    of_hash: HashMap<u64, usize>,
    count: usize,
}

pub(super) struct Release {
    pub(super) index: Arc<Index>,
    pub(super) hash: u64,
    pub(super) block: Block,
    /// The slot, if it is still in its page.
    pub(super) slot: Option<Slot>,
}

impl Releases {
    /// Takes what waited for a commit up to this one.
    pub(super) fn due(&mut self, completed: u64) -> Vec<Release> {
        let later = self.waiting.split_off(&completed.saturating_add(1));
        std::mem::replace(&mut self.waiting, later).into_values().flatten().collect()
    }

    /// Whether the version that replaces this one may not be durable yet.
    pub(super) fn needs(&self, slot: &Slot) -> bool {
        self.superseded.contains(slot)
    }

    /// Whether a block waits to be freed.
    pub(super) fn holds(&self, block: &Block) -> bool {
        self.waiting.values().flatten().any(|release| release.block.address() == block.address())
    }

    pub(super) fn len(&self) -> usize {
        self.count
    }

    pub(super) fn add(&mut self, number: u64, release: Release) {
        self.superseded.extend(release.slot);
        *self.of_hash.entry(release.hash).or_default() += 1;
        self.count += 1;
        self.waiting.entry(number).or_default().push(release);
    }

    /// They no longer wait; their headers are durable with commit `number`.
    pub(super) fn leave(&mut self, releases: &[Release], number: u64) {
        self.count -= releases.len();
        for slot in releases.iter().filter_map(|release| release.slot) {
            self.superseded.remove(&slot);
        }
        self.leaving.entry(number).or_default().extend(releases.iter().map(|release| release.hash));
    }

    /// Commits up to this one are complete.
    pub(super) fn settled(&mut self, completed: u64) {
        let later = self.leaving.split_off(&completed.saturating_add(1));
        for hash in std::mem::replace(&mut self.leaving, later).into_values().flatten() {
            if let Entry::Occupied(mut of_hash) = self.of_hash.entry(hash) {
                *of_hash.get_mut() -= 1;
                if *of_hash.get() == 0 {
                    of_hash.remove();
                }
            }
        }
    }

    /// Whether a version of a key with this hash was replaced and is not durably free.
    pub(super) fn is_unsettled(&self, hash: u64) -> bool {
        self.of_hash.contains_key(&hash)
    }
}
