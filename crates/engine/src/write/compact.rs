//! Compaction of an open cluster: what was deleted or replaced there before the device saw it makes room for what comes
//! next (Dámelo §4: deletes wait until a page is held exclusively anyway, and are then done all at once).
//!
//! Steps: an object finds no room in its lane → the frames behind what is written already are gone through from front
//! to back, the dead ones dropped and the others moved up, each once, none before the first hole → the index follows.
//!
//! Invariant: a frame is dropped only if every commit that may vouch for it vouches for its end too. So no commit is
//! under way (the writer's turn is free), and the put that ended it has told the journal (its key's stripe is free).

use picaflor_format::{cluster::Row, frame::GRAIN};

use crate::{
    base::stats::add,
    cache::buffers::Slot,
    index::Location,
    write::append::{Appender, Lane},
};

impl Appender {
    /// Makes room in the open buffers of a lane. Returns whether there is more than there was.
    pub(crate) fn compact(&self, lane: &Lane) -> bool {
        let Some(_turn) = self.parts.log.queue.try_turn() else { return false };
        let freed: usize = lane.iter().flatten().map(|slot| self.compact_open(*slot)).sum();
        add(&self.parts.shared.counters.compacted_bytes, freed as u64);
        freed > 0
    }

    fn compact_open(&self, slot: u32) -> usize {
        let Slot::Open(open) = &mut *self.parts.catalog.buffers.slot(slot).write() else { return 0 };
        let mut moved = 0;
        let is_dead = |row: &Row| {
            self.parts.catalog.entry_in_slot(slot, row).is_none() && self.parts.shared.try_lock_key(row.hash).is_some()
        };
        let freed = open.compact(is_dead, |row, to| {
            // A get that looks at the old place meanwhile waits for the buffer, and then looks for the entry again.
            if let Some(entry) = self.parts.catalog.entry_in_slot(slot, row) {
                let place = Location::Buffered { slot, offset: to / GRAIN as u32 };
                self.parts.catalog.index.change(row.hash, entry, |entry| entry.at(place));
            }
            moved += u64::from(row.len);
        });
        add(&self.parts.shared.counters.moved_bytes, moved);
        freed
    }
}
