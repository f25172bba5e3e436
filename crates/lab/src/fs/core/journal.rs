//! Where a file system writes what changed of its metadata before the metadata itself: runs of a ring of blocks.
//!
//! One journal has changed blocks, whole (ext) or what of each changed (XFS); another what was done, in records of one
//! length that go on within the block where the last run ended (NTFS).
//!
//! Invariant: a run does not go round the end of the ring.

use std::collections::BTreeSet;
use std::mem::take;

use super::super::layout::Address;
use super::super::profile::JournalProfile;

#[derive(Default)]
pub(super) struct Journal {
    next: u64,
    /// Nanoseconds at which the next commit is due.
    pub(super) commit_at: u64,
    /// Since the last run: blocks that changed, and bytes of what was done.
    blocks: BTreeSet<Address>,
    bytes: u64,
    /// Bytes of the block at `next` that it has already.
    within: u64,
}

impl Journal {
    pub(super) fn note_changed(&mut self, address: Address) {
        self.blocks.insert(address);
    }

    pub(super) fn note_done(&mut self, bytes: u64) {
        self.bytes += bytes;
    }

    /// The block is free.
    pub(super) fn forget(&mut self, address: Address) {
        self.blocks.remove(&address);
    }

    pub(super) fn is_due(&self, profile: &JournalProfile, now: u64) -> bool {
        let is_full = profile.buffer > 0 && self.blocks.len() as u64 * profile.record >= profile.buffer;
        is_full || now >= self.commit_at
    }

    /// Where what changed is to be written: the first of its blocks, of `block` bytes, and their count; none if nothing
    /// did.
    pub(super) fn run(&mut self, profile: &JournalProfile, block: u64) -> Option<(u64, u64)> {
        let (changed, done) = (take(&mut self.blocks).len() as u64, take(&mut self.bytes));
        let end = match (changed, profile.record) {
            (0, _) if done == 0 => return None,
            (0, _) => self.within + done,
            // With a block in front and one behind.
            (_, 0) => (changed + 2) * block,
            (_, record) => (changed * record).next_multiple_of(block),
        };
        let most = u64::from(profile.blocks);
        let count = end.div_ceil(block).min(most);
        if self.next + count > most {
            self.next = 0;
        }
        let first = self.next;
        (self.next, self.within) = (first + end / block, end % block);
        Some((first, count))
    }
}
