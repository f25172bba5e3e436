//! A store whose objects are entries of hash tables on disk (`picaflor-table`): the layout that keeps its
//! own index. PMFLF of Iyengar, Jin and Challenger 2003 as a row of the table of presets.
//!
//! There is no volume: no index in memory, no ring, no journal, no checkpoint. What stays the store's is in front of
//! it: limits, expiry, frames, handles, the memory tier, fetches. `verbs.rs` is put, find and take; `large.rs` what
//! becomes of the pieces of large objects; `seam.rs` is what the store asks; `audit.rs` goes through everything;
//! `keep.rs` is the keeper.
//!
//! Invariants: what a verb returned is durable; an object in the memory tier is current, for a put or delete of its key
//! removes it there first, holds the key's lock to the end, and changes the key's *stamp*, and a get that read it from
//! the device lets it stay only if the stamp is what it was before.

mod audit;
mod error;
mod keep;
mod large;
mod open;
mod room;
mod seam;
mod verbs;

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64},
    },
};

use parking_lot::{Condvar, Mutex};
use picaflor::{
    Result,
    layout::{Env, LayoutPlace, OpenedLayout},
};
use picaflor_common::Hasher;
use picaflor_device::{CountedDevice, Device};
use picaflor_table::htod::{HashTables, Table};

struct TableLayout {
    place: String,
    /// All of it, superblocks included.
    device: Arc<dyn Device>,
    /// What the tables ask of their part of it.
    counted: CountedDevice,
    /// Bytes of that part.
    room: u64,
    tables: HashTables,
    objects: Table,
    chunks: Table,
    large: Table,
    groups: Table,
    hasher: Hasher,
    /// Bytes of key, metadata and body of the longest object in one entry.
    payload_max: usize,
    put_room: room::Room,
    /// Of each stripe of keys: changes when one of them is put or deleted, before and after.
    stamps: Box<[AtomicU64]>,
    /// Ids of large objects that are being put, and of those that are being dropped.
    under_way: Mutex<HashSet<u64>>,
    /// A crash, or a verb that failed, may have left pieces of large objects without an owner.
    may_have_orphans: AtomicBool,
    rest: Mutex<Rest>,
    stirred: Condvar,
    env: Arc<dyn Env>,
}

/// What the keeper looks at when it rests.
#[derive(Default)]
struct Rest {
    stopped: bool,
}

impl TableLayout {
    /// Brings what the tables take of the memory up to date.
    fn account(&self) {
        self.env.set_index_bytes(self.tables.memory() + size_of_val(&*self.stamps) as u64);
    }
}

/// Opens a place, or makes one.
pub(crate) fn open(place: LayoutPlace, env: Arc<dyn Env>) -> Result<OpenedLayout> {
    let (layout, receipt) = TableLayout::open(place, env)?;
    Ok((Arc::new(layout), receipt))
}
