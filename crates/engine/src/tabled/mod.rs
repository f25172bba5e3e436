//! A store whose objects are entries of hash tables on disk (`picaflor-table`): the layout that keeps its
//! own index. PMFLF of Iyengar, Jin and Challenger 2003 as a row of the table of presets.
//!
//! There is no volume: no index in memory, no ring, no journal, no checkpoint. What stays the store's is in front of
//! it: limits, expiry, frames, handles, the memory tier, fetches. `verbs.rs` is put, find and take; `large.rs` what
//! becomes of the pieces of large objects; `audit.rs` goes through everything; `keep.rs` is the keeper.
//!
//! Invariants: what a verb returned is durable; an object in the memory tier is current, for who puts or deletes a key
//! removes it there first, holds the key's lock to the end, and changes the key's *stamp*, and who read it from the
//! device lets it stay only if the stamp is what it was before.

mod audit;
mod keep;
mod large;
mod open;
mod room;
mod verbs;

pub(crate) use open::Place;
pub(crate) use verbs::Former;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Condvar, Mutex};
use picaflor_common::Hasher;
use picaflor_device::{CountedDevice, Device};
use picaflor_format::zone::BLOCKS_START;
use picaflor_table::htod::{HashTables, Table};

use crate::{
    Error, Result,
    base::stats::{Counts, VolumeStats},
    volume::Shared,
};

pub(crate) struct Tabled {
    place: String,
    /// All of it, superblocks included.
    pub(crate) device: Arc<dyn Device>,
    /// What the tables ask of their part of it.
    counted: CountedDevice,
    /// Bytes of that part.
    room: u64,
    tables: HashTables,
    objects: Table,
    chunks: Table,
    large: Table,
    groups: Table,
    pub(crate) hasher: Hasher,
    /// Bytes of key, metadata and body of the longest object in one entry.
    pub(crate) payload_max: usize,
    put_room: room::Room,
    /// Of each stripe of keys: changes when one of them is put or deleted, before and after.
    stamps: Box<[AtomicU64]>,
    /// Ids of large objects that are being put, and of those that are being dropped.
    under_way: Mutex<HashSet<u64>>,
    /// A crash, or a verb that failed, may have left pieces of large objects that nobody owns.
    may_have_orphans: AtomicBool,
    rest: Mutex<Rest>,
    stirred: Condvar,
    shared: Arc<Shared>,
}

/// What the keeper looks at when it rests.
#[derive(Default)]
struct Rest {
    stopped: bool,
}

impl Tabled {
    pub(crate) fn shared(&self) -> &Shared {
        &self.shared
    }

    /// Longest body that a put may have.
    pub(crate) fn object_max(&self) -> u64 {
        self.room / 4
    }

    pub(crate) fn capacity(&self) -> u64 {
        BLOCKS_START + self.room
    }

    /// Entries: objects, and chunks of large ones.
    pub(crate) fn objects(&self) -> u64 {
        self.objects.len() + self.chunks.len()
    }

    /// Whether a crash took the count of entries and bytes, and they are not counted again yet.
    pub(crate) fn is_counting(&self) -> bool {
        self.tables.is_counting()
    }

    /// Brings what the tables take of the memory up to date.
    fn account(&self) {
        let bytes = self.tables.memory() + size_of_val(&*self.stamps) as u64;
        let before = self.shared.index_bytes.swap(bytes, Relaxed);
        if bytes > before {
            self.shared.shrink_memory();
        }
    }

    /// Makes durable what the verbs did not make durable themselves, which is nothing; but who asks is told of a
    /// failure.
    pub(crate) fn flush(&self) -> Result<()> {
        match self.tables.failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(self.tables.commit()?),
        }
    }

    /// Leaves the place as the next opening likes it best. Other handles are then told that it is closed.
    pub(crate) fn close(&self) -> Result<()> {
        match self.tables.failure() {
            Some(failure) => Err(failure.into()),
            None => Ok(self.tables.close()?),
        }
    }

    pub(crate) fn stats(&self) -> VolumeStats {
        self.account();
        let space = self.tables.space().ok();
        VolumeStats {
            place: self.place.clone(),
            backend: self.device.backend(),
            clusters: 0,
            clusters_free: 0,
            clusters_aside: 0,
            live_bytes: space.map_or(0, |space| space.allocated),
            room_bytes: self.room,
            journal_pages: (0, 0),
            failed: self.tables.failure().map(|why| why.to_string()),
        }
    }

    /// Why nothing is written any more, if that is so.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.tables.failure().map(Error::from)
    }

    /// What the tables asked of the device.
    pub(crate) fn count(&self, counts: &mut Counts) {
        let asked = self.counted.counts();
        counts.device_reads += asked.reads;
        counts.device_read += asked.read_bytes;
        counts.device_writes += asked.writes;
        counts.device_written += asked.write_bytes;
        counts.device_syncs += asked.syncs;
        counts.pages_rebuilt += self.tables.stats().rebuilt;
    }
}
