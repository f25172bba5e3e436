//! Entries of a checkpoint that lead to what left before a crash: their clusters were written again, and the crash took
//! the note of that. Gets find them out one by one; the audit counts them apart, and the scrubber drops them after a
//! crash, for no get asks for a chunk whose object is gone, and a store does not empty a cluster to which entries lead.
//!
//! Invariant: every grant since the older checkpoint that did reach the log was told to [`crate::space::Space`] by the
//! opening, and every later one since. So a cluster that was not, and whose use is later than that checkpoint, was
//! granted before the crash: what the checkpoint had there had been seen to.

use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed};

use picaflor_format::{BLOCK, cluster::Row, frame::Header, zone::SLOT};

use crate::{
    in_place::place::{InPlace, longest_ever},
    index::{Location, Word},
    read::rows::{Use, read_twice},
    space::Place,
    volume::Volume,
};

/// What the opening knew.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known {
    /// The sequence number of the older checkpoint's directory.
    pub(crate) checkpoint: u64,
    /// The journal page with which the log went on; 0: everything counts as told.
    pub(crate) page: u64,
    /// A crash came before: entries may lead to what left.
    pub(crate) crashed: bool,
}

impl Volume {
    /// Whether an entry may still lead to what left before a crash: until the scrubber has gone over everything, and as
    /// long as the store is only read.
    pub(crate) fn may_mislead(&self) -> bool {
        self.known.crashed && (self.shared.options.read_only || self.scrubber.is_verifying())
    }

    /// Whether this is a use of the cluster of which nothing tells, so that entries lead to what was there before it.
    pub(crate) fn is_untold(&self, cluster: u32, found: &Use) -> bool {
        found.seq() > self.known.checkpoint && !self.space.is_told_since(cluster, self.known.page)
    }

    /// Drops the entries that lead into a cluster of which nothing tells, but for those of the frames that are there.
    pub(crate) fn drop_outdated(&self, cluster: u32, rows: &[Row]) {
        let there: BTreeSet<u64> =
            self.entries_of(cluster, rows.to_vec()).iter().map(|(row, _)| self.grain(cluster, row.offset)).collect();
        // It may have been granted since it was read, and then an entry is of what is there now.
        let stays = |grain| there.contains(&grain) || self.space.is_told_since(cluster, self.known.page);
        self.drop_leading_to(cluster, stays);
    }

    /// Drops the entries that lead into a cluster, but for those that stay where they are.
    pub(crate) fn drop_leading_to(&self, cluster: u32, stays: impl Fn(u64) -> bool) {
        self.index.update_all(|word| match word.location() {
            Location::OnDisk { grain } if self.cluster_of(grain) == Some(cluster) && !stays(grain) => {
                self.forget_live(word);
                Word::EMPTY
            }
            _ => word,
        });
    }

    /// Whether frames of which no record tells lie over slots of the table. Slots are free when it is durably told that
    /// their object is gone; only of the pieces of a large one no record tells.
    pub(crate) fn is_written_over(&self, in_place: &InPlace, place: Place) -> bool {
        if in_place.files.is_some() {
            return false;
        }
        let zone = self.map.in_place().1;
        let longest = (longest_ever(zone.len) / SLOT) as u32;
        let first = place.slot.saturating_sub(longest).max((zone.start / SLOT) as u32);
        let start = u64::from(first) * SLOT / BLOCK as u64 * BLOCK as u64;
        let end = (u64::from(place.slot + place.slots + longest) * SLOT).next_multiple_of(BLOCK as u64);
        let mut buf = self.shared.pool.take((end.min(self.map.clusters.end()) - start) as usize);
        if read_twice(&*self.device, start, &mut buf).is_err() {
            return false;
        }
        let told = self.shared.generation.load(Relaxed);
        (first..place.slot + place.slots).any(|slot| {
            let bytes = &buf[(u64::from(slot) * SLOT - start) as usize..];
            let Some(header) = Header::decode(bytes).ok().filter(|header| header.mark == self.hasher.mark(slot.into()))
            else {
                return false;
            };
            let end = slot + header.frame_len().div_ceil(SLOT as usize) as u32;
            // A torn one may also be what is left of one that was there before, or what lies there by right.
            let is_other = slot > place.slot || slot == place.slot && end > place.slot + place.slots;
            let is_later = is_other || header.generation > told || Header::verify(bytes).is_ok();
            end > place.slot && is_later && (slot == place.slot || in_place.extents.len_at(slot).is_none())
        })
    }
}
