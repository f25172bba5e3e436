//! An index page in memory: which slots it has, and which of its sectors the device does not have yet.
//!
//! Invariant: a sector that is not dirty has the slots that it has on the device, but for what `resolve.rs` changes
//! in them whenever they are read. A page with a dirty sector is on the list for the next commit.

use picaflor_format::{
    BLOCK,
    htod::{self, SECTOR, SECTORS, SLOTS, Slot},
};
use smallvec::SmallVec;

/// A slot and where it stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Standing {
    pub(super) sector: usize,
    pub(super) index: usize,
    pub(super) slot: Slot,
}

/// The slots that may be a key's.
pub(super) type Candidates = SmallVec<[Standing; 4]>;

pub(super) struct Page {
    pub(super) bytes: Box<[u8]>,
    /// A bit for each sector that the device does not have.
    dirty: u8,
    /// A bit for each sector that was changed and need not be written, for a reader of it comes to the same; if it
    /// is written all the same, it wants sealing.
    unsealed: u8,
    /// No longer in the cache: a caller that held on to it looks again.
    pub(super) gone: bool,
}

impl Page {
    /// A page without slots, no sector of which is on the device.
    pub(super) fn empty() -> Self {
        Self { bytes: vec![0; BLOCK].into_boxed_slice(), dirty: u8::MAX, unsealed: 0, gone: false }
    }

    /// Bytes that are being read from the device.
    pub(super) fn unread() -> Self {
        Self { dirty: 0, ..Self::empty() }
    }

    /// Out of the cache, and out of memory: the frame may be held for long.
    pub(super) fn leave(&mut self) {
        self.gone = true;
        self.bytes = Box::default();
    }

    pub(super) fn is_dirty(&self) -> bool {
        self.dirty != 0
    }

    pub(super) fn slots(&self) -> impl Iterator<Item = Standing> + '_ {
        (0..SECTORS).flat_map(move |sector| self.slots_of(sector))
    }

    pub(super) fn slots_of(&self, sector: usize) -> impl Iterator<Item = Standing> + '_ {
        (0..SLOTS).filter_map(move |index| {
            htod::slot(&self.bytes, sector, index).map(|slot| Standing { sector, index, slot })
        })
    }

    /// Whether the slot is where it was.
    pub(super) fn has(&self, standing: &Standing) -> bool {
        htod::slot(&self.bytes, standing.sector, standing.index) == Some(standing.slot)
    }

    /// All slots of this hash.
    pub(super) fn matches(&self, hash: u64) -> Candidates {
        let hash = htod::slot_hash(hash);
        self.slots().filter(|standing| standing.slot.hash == hash).collect()
    }

    /// An empty slot of this sector.
    pub(super) fn room_in(&self, sector: usize) -> Option<usize> {
        (0..SLOTS).find(|&index| htod::slot(&self.bytes, sector, index).is_none())
    }

    /// An empty slot of the sector that has most of them, so that each keeps room for new versions of its keys.
    pub(super) fn room(&self) -> Option<(usize, usize)> {
        let sector = (0..SECTORS).min_by_key(|&sector| self.slots_of(sector).count())?;
        Some((sector, self.room_in(sector)?))
    }

    /// Changes a slot; the sector wants writing.
    pub(super) fn set(&mut self, sector: usize, index: usize, slot: Option<Slot>) {
        htod::set_slot(&mut self.bytes, sector, index, slot);
        self.dirty |= 1 << sector;
    }

    /// A sector without slots instead of one that cannot be read; it wants writing.
    pub(super) fn clear(&mut self, sector: usize) {
        self.bytes[sector * SECTOR..][..SECTOR].fill(0);
        self.dirty |= 1 << sector;
    }

    /// Empties a slot that would not be believed if it were read from the device.
    pub(super) fn forget(&mut self, standing: Standing) {
        htod::set_slot(&mut self.bytes, standing.sector, standing.index, None);
        self.unsealed |= 1 << standing.sector;
    }

    /// What was marked as replaced is current. A reader of the page on the device finds the same.
    pub(super) fn restore(&mut self, standing: Standing) {
        let slot = Slot { superseded: false, ..standing.slot };
        htod::set_slot(&mut self.bytes, standing.sector, standing.index, Some(slot));
        self.unsealed |= 1 << standing.sector;
    }

    /// As [`Page::forget`], of all slots that are not to be kept.
    pub(super) fn retain(&mut self, keep: impl Fn(&Slot) -> bool) {
        let leaving: Vec<Standing> = self.slots().filter(|standing| !keep(&standing.slot)).collect();
        leaving.into_iter().for_each(|standing| self.forget(standing));
    }

    /// Has everything written that was forgotten, and says whether there was anything.
    pub(super) fn settle(&mut self) -> bool {
        self.dirty |= self.unsealed;
        self.unsealed != 0
    }

    /// Seals what is dirty and says which sectors that is, the first and the one behind the last. The caller writes
    /// them.
    pub(super) fn seal(&mut self, table: u32, number: u64, epoch: u32) -> Option<(usize, usize)> {
        if self.dirty == 0 {
            return None;
        }
        let stale = self.dirty | self.unsealed;
        for sector in (0..SECTORS).filter(|sector| stale & 1 << sector != 0) {
            htod::seal_sector(&mut self.bytes, table, number, sector, epoch);
        }
        let ends = (self.dirty.trailing_zeros() as usize, SECTORS - self.dirty.leading_zeros() as usize);
        self.dirty = 0;
        // The others are not written: what was decided of them has still to be, before they are not in doubt any more.
        (ends.0..ends.1).for_each(|sector| self.unsealed &= !(1 << sector));
        Some(ends)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_written_is_not_settled() {
        let mut page = Page::empty();
        page.set(5, 0, Some(Slot::new(1, 1, 1)));
        assert_eq!(page.seal(1, 0, 1), Some((0, SECTORS)));
        let lost = page.slots().next().unwrap();
        page.forget(lost);
        page.set(3, 0, Some(Slot::new(2, 2, 2)));
        assert_eq!(page.seal(1, 0, 2), Some((3, 4)), "the sector that was changed");
        assert!(page.settle(), "the device still has what was forgotten");
        assert_eq!(page.seal(1, 0, 2), Some((5, 6)));
        assert!(!page.settle());
    }
}
