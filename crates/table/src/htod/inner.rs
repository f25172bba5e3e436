//! A place of hash tables: what all calls share, and their right to use the allocator.
//!
//! Steps of its beginning, before the first call that writes: note the new epoch, unclosed, in one home of the
//! allocator, and sync; note it in the other, and what was found of each table that is open in its header, and sync.
//!
//! Invariant: nothing of an epoch is written before both homes say that it was begun, and no page of a table before the
//! table's header says, with this epoch, how many there are.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU32, AtomicU64,
        Ordering::{Acquire, Release},
    },
};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};
use picaflor_common::Hasher;

use super::{
    cache::{Cache, Frame},
    damage::Damage,
    failure::{failed, stopped},
    options::{Batch, Durable},
    releases::Releases,
    roots::Roots,
    tables::{Index, Tables},
};
use crate::{Commits, Error, Result, blocks::FreeLists};

/// Named hash tables on one device. Clones share it.
#[derive(Clone)]
pub struct HashTables {
    pub(super) inner: Arc<Inner>,
}

/// One of the tables. Clones share it.
#[derive(Clone)]
pub struct Table {
    pub(super) inner: Arc<Inner>,
    pub(super) index: Arc<Index>,
}

pub(super) struct Inner {
    /// Read by every call, so that mending can keep them out for a moment; empty once closed.
    pub(super) gate: RwLock<Option<FreeLists>>,
    /// The device's unit of writing, in bytes.
    pub(super) block_size: usize,
    pub(super) durable: Durable,
    pub(super) batch: Batch,
    pub(super) hasher: Hasher,
    pub(super) epoch: u32,
    /// Sectors written in an epoch from this one up to this opening may hold what never became durable.
    pub(super) doubt: AtomicU32,
    pub(super) generation: AtomicU64,
    pub(super) commits: Commits,
    /// Pages that the device does not have, some of them twice.
    pub(super) dirty: Mutex<Vec<Arc<Frame>>>,
    pub(super) releases: Mutex<Releases>,
    /// Tables with pages that no header says are there; some of them twice.
    pub(super) grown: Mutex<Vec<Arc<Index>>>,
    /// Pages that are not whole.
    pub(super) damaged: Mutex<Damage>,
    /// Held while blocks are freed.
    pub(super) freeing: Mutex<()>,
    /// Blocks that commits freed, and those that removes freed since the last commit.
    pub(super) freed: AtomicU64,
    pub(super) freed_now: AtomicU64,
    pub(super) cache: Cache,
    /// Taken under `gate`, and for a moment only.
    pub(super) tables: Mutex<Tables>,
    /// Whether the device says that this opening began, and what is held while it is made to say so.
    pub(super) begun: AtomicBool,
    pub(super) beginning: Mutex<()>,
    /// Held while a table is opened or made, before `gate`.
    pub(super) opening: Mutex<()>,
    pub(super) unreadable: AtomicU64,
    pub(super) restored: AtomicU64,
    pub(super) rebuilt: AtomicU64,
}

impl Inner {
    /// The allocator, for what may write, while no mending keeps us out.
    pub(super) fn enter(&self) -> Result<Entered<'_>> {
        let guard = self.gate.read();
        if guard.is_none() {
            return Err(Error::Closed);
        }
        if let Some(failure) = self.commits.failure() {
            return Err(failure);
        }
        let entered = Entered { guard };
        if !self.begun.load(Acquire) {
            self.begin(&entered)?;
        }
        Ok(entered)
    }

    /// As [`Inner::enter`], for what only reads: a failed device may still answer, and an opening that never writes
    /// leaves no trace.
    pub(super) fn enter_to_read(&self) -> Result<Entered<'_>> {
        let guard = self.gate.read();
        if guard.is_none() { Err(Error::Closed) } else { Ok(Entered { guard }) }
    }

    /// Begins to write: see above.
    fn begin(&self, entered: &Entered<'_>) -> Result<()> {
        let _turn = self.beginning.lock();
        if self.begun.load(Acquire) {
            return Ok(());
        }
        let lists = entered.lists()?;
        let (list, open) = {
            let mut tables = self.tables.lock();
            tables.begun = true;
            let open: Vec<_> = tables.open.values().chain([&tables.list]).map(Arc::clone).collect();
            (tables.list.word(), open)
        };
        let doubt = self.doubt.load(Acquire);
        let roots = Roots { list, epoch: self.epoch, clean: false, doubt, seed: self.hasher.seed() };
        let note = || {
            lists.begin(roots.words()).map_err(failed("note the epoch"))?;
            lists.set_roots(roots.words()).map_err(failed("note the epoch"))?;
            open.iter().try_for_each(|index| index.note_first(lists))?;
            lists.sync().map_err(failed("sync"))
        };
        self.stopping(note())?;
        self.begun.store(true, Release);
        Ok(())
    }

    /// A failed write stops everything: what the device holds since its last sync is unknown.
    pub(super) fn stopping<T>(&self, result: Result<T>) -> Result<T> {
        result.map_err(stopped).inspect_err(|error| self.commits.fail(error.clone()))
    }
}

/// The right to use the allocator.
pub(super) struct Entered<'a> {
    guard: RwLockReadGuard<'a, Option<FreeLists>>,
}

impl Entered<'_> {
    pub(super) fn lists(&self) -> Result<&FreeLists> {
        self.guard.as_ref().ok_or(Error::Closed)
    }
}
