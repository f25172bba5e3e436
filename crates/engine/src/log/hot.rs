//! Where the hottest objects lie, so that the next opening reads them first.
//!
//! It is written behind each checkpoint; and by the clock, for what is hot changes by reading alone, and checkpoints
//! come by writing. Not synced: losing it costs warmth only.
//!
//! Invariant: at most a slot of it in [`EVERY`], beside those of checkpoints, and none where nothing was found since.

use std::{sync::atomic::Ordering::Relaxed, time::Duration};

use parking_lot::Mutex;
use picaflor_format::{
    cluster::Row,
    hot::{CAPACITY, encode},
    zone::{HOT_SLOT, Map},
};

use crate::{
    Result,
    cache::buffers::Slot,
    index::{IndexEntry, Location},
    read::{parts::Parts, tables::is_table},
};

/// How old it may be where objects were found since.
const EVERY: Duration = Duration::from_secs(30);

pub(crate) struct HotLog {
    parts: Parts,
    state: Mutex<State>,
}

#[derive(Clone, Copy)]
struct State {
    seq: u64,
    /// When it was written last, in nanoseconds of the clock.
    written: u64,
    /// Objects that had been found by then.
    found: u64,
}

impl HotLog {
    /// Continues the numbering of those that are there.
    pub(crate) fn new(parts: &Parts, seq: u64) -> Self {
        let state = State { seq, written: parts.shared.clock.now_nanos(), found: 0 };
        Self { parts: parts.clone(), state: Mutex::new(state) }
    }

    /// Writes it if it is old. Returns whether it did.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn step(&self) -> Result<bool> {
        let state = *self.state.lock();
        let age = self.parts.shared.clock.now_nanos().saturating_sub(state.written);
        if age < EVERY.as_nanos() as u64 || self.found() == state.found {
            return Ok(false);
        }
        self.write().map(|()| true)
    }

    fn found(&self) -> u64 {
        let counters = &self.parts.shared.counters;
        let hits = [&counters.hits_memory, &counters.hits_buffer, &counters.hits_device];
        hits.iter().map(|counter| counter.load(Relaxed)).sum()
    }

    /// Writes it.
    ///
    /// # Errors
    /// Those of the device.
    pub(crate) fn write(&self) -> Result<()> {
        let mut state = self.state.lock();
        *state = State { seq: state.seq + 1, written: self.parts.shared.clock.now_nanos(), found: self.found() };
        let mut buf = self.parts.shared.pool.take(HOT_SLOT as usize);
        encode(&mut buf, state.seq, self.parts.medium.store_id, &self.entries());
        let written = self.parts.medium.write_all(vec![(Map::hot(state.seq), buf.into_bytes())]);
        written.map_err(|error| self.parts.medium.io("writing the hot log", error))
    }

    fn entries(&self) -> Vec<u64> {
        let hottest = self.parts.shared.memory.hottest(CAPACITY, |frame| !is_table(frame));
        let on_disk = |entry: &IndexEntry| matches!(entry.location(), Location::OnDisk { .. });
        let objects = hottest.iter().filter(|frame| self.parts.catalog.is_home_of(frame));
        let objects =
            objects.filter_map(|frame| self.parts.catalog.index.candidates(frame.hash).into_iter().find(on_disk));
        objects.map(|entry| entry.0).chain(self.clusters()).take(CAPACITY).collect()
    }

    /// Of each cluster in memory an entry that leads to where it lies, the one used last first; none where memory holds
    /// objects.
    fn clusters(&self) -> impl Iterator<Item = u64> {
        let clusters = self.parts.shared.memory.recent_clusters();
        let own = clusters.into_iter().filter(|resident| resident.volume == self.parts.medium.number);
        own.filter_map(|resident| self.entry_at_home(resident.slot))
    }

    fn entry_at_home(&self, slot: u32) -> Option<u64> {
        let home = self.parts.catalog.buffers.home(slot)?;
        let rows = match &*self.parts.catalog.buffers.slot(slot).read() {
            Slot::Filled(filled) => filled.rows.clone(),
            _ => return None,
        };
        let at_home = |row: &Row| {
            let entry = self.parts.catalog.entry_in_slot(slot, row)?;
            Some(entry.at(Location::OnDisk { grain: self.parts.medium.grain(home, row.offset) }).0)
        };
        rows.iter().find_map(at_home)
    }
}
