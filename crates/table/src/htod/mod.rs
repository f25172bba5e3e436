//! Hash tables on a device: far more keys than memory, each put durable when it returns, no log.
//!
//! The HTOD of Iyengar, Jin and Challenger 2003, section 3, on the block allocator of [`crate::blocks`]: an entry
//! (key and value) is a block, and an index says where it lies. Ours differs in four things.
//!
//! - The index is made of pages of 4,096 bytes with 240 slots instead of a chain for each bucket; a put costs one write
//!   for the entry and one for its page whether others hash there or not.
//! - It grows page by page (linear hashing, Litwin 1980), so doubling is spread over the puts. Its state is what
//!   lies on the device: an opening looks which pages were made and goes on.
//! - A slot keeps the version before until the new one is durable, in the same sector. So entry and page go out in any
//!   order and one sync covers both; recovery falls back to the version before where the new entry did not arrive.
//! - Callers that wait for durability share syncs.
//!
//! Where to look: the verbs are in `verbs.rs`, many at once in `many.rs`, what makes them durable in `commit.rs`,
//! doubling in `split.rs`, what a crash left in `resolve.rs` and `mend.rs`, pages that rotted in `rebuild.rs`.
//! `docs/FORMAT.md` has the bytes and the argument.
//!
//! ```no_run
//! use std::sync::Arc;
//! use picaflor_device::{FileDevice, OpenOptions};
//! use picaflor_table::{blocks::BlockOptions, htod::{HashTables, HtodOptions}};
//!
//! let options = OpenOptions { capacity: Some(1 << 30), create: true, ..OpenOptions::default() };
//! let device = Arc::new(FileDevice::open("tables", options)?);
//! let (tables, _) = HashTables::open(device, BlockOptions::default(), HtodOptions::default())?;
//! let pages = tables.table("pages")?;
//! pages.put(b"/index.html", b"<html>")?;
//! assert_eq!(pages.get(b"/index.html")?.as_deref(), Some(&b"<html>"[..]));
//! tables.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod commit;
mod iterate;
mod many;
mod mend;
mod open;
mod page;
mod rebuild;
mod resolve;
mod shape;
mod split;
mod tables;
mod verbs;

use picaflor_common::Hasher;
use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Acquire},
};

use parking_lot::{Mutex, RwLock, RwLockReadGuard};

pub use iterate::{Keys, Pairs, Values};
pub use many::runs;
pub use mend::Mended;
pub use open::HtodReceipt;

use self::{cache::Cache, commit::Releases, tables::Tables};
use crate::Commits;
use crate::{
    Error, Result,
    blocks::{BlockError, FreeLists},
};

/// Longest key, in bytes.
pub const MAX_KEY: usize = 1 << 16;

/// How hash tables are opened.
#[derive(Debug, Clone)]
pub struct HtodOptions {
    /// Bytes of index pages in memory; at least 16 pages are kept. Default 16 MiB.
    pub cache: usize,
    /// When a put or remove is durable. Default [`Durable::EachCall`].
    pub durable: Durable,
    /// Seed of the hash of a place that is made by this opening, for runs that are to repeat. Default random, so that
    /// nobody can choose keys that fall on one page.
    pub seed: Option<u64>,
    /// Where the entries of [`Table::put_many`] go. Default [`Batch::ByLists`].
    pub batch: Batch,
}

impl Default for HtodOptions {
    fn default() -> Self {
        Self { cache: 16 << 20, durable: Durable::EachCall, seed: None, batch: Batch::ByLists }
    }
}

/// Where the entries of one [`Table::put_many`] go.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Batch {
    /// Where each would go if it were put alone.
    #[default]
    ByLists,
    /// Optimized batch allocation (Iyengar et al. 2003, section 2.5): the largest first, each where it fits best among
    /// free blocks of at least [`crate::blocks::BlockOptions::batch_threshold`], else the tail. Costs a sync more where
    /// entries share what was one free block.
    BestFit,
}

/// When a put or remove is durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Durable {
    /// When the call returns.
    #[default]
    EachCall,
    /// When the next [`HashTables::commit`] returns. A crash before may leave any of the calls since the last one done
    /// or undone, each wholly.
    AtCommit,
}

/// Named hash tables on one device. Clones share it.
#[derive(Clone)]
pub struct HashTables {
    inner: Arc<Inner>,
}

/// One of the tables. Clones share it.
#[derive(Clone)]
pub struct Table {
    inner: Arc<Inner>,
    index: Arc<tables::Index>,
}

/// What [`HashTables::stats`] says.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HtodStats {
    /// Index pages in memory.
    pub cached_pages: usize,
    /// Entries that were looked for and whose block did not hold them: damaged, or put when a crash came.
    pub unreadable: u64,
    /// Versions that count again because a crash took the one that was to replace them.
    pub restored: u64,
    /// Index pages that were damaged and were made anew from the entries.
    pub rebuilt: u64,
    /// Blocks that wait for a commit to be freed.
    pub pending_frees: usize,
}

struct Inner {
    /// Read by every call, so that mending can keep them out for a moment; empty once closed.
    gate: RwLock<Option<FreeLists>>,
    /// The device's unit of writing, in bytes.
    block_size: usize,
    durable: Durable,
    batch: Batch,
    hasher: Hasher,
    epoch: u32,
    /// Sectors written in an epoch from this one up to this opening may hold what never became durable.
    doubt: AtomicU32,
    generation: AtomicU64,
    commits: Commits,
    /// Pages that the device does not have, some of them twice.
    dirty: Mutex<Vec<Arc<cache::Frame>>>,
    releases: Mutex<Releases>,
    /// Tables with pages that no header says are there; some of them twice.
    grown: Mutex<Vec<Arc<tables::Index>>>,
    /// Pages that are not whole.
    damaged: Mutex<rebuild::Damage>,
    /// Held by who frees blocks.
    freeing: Mutex<()>,
    /// Blocks that commits freed, and those that removes freed since the last commit.
    freed: AtomicU64,
    freed_now: AtomicU64,
    cache: Cache,
    /// Taken under `gate`, and for a moment only.
    tables: Mutex<Tables>,
    /// Whether the device says that this opening began, and what is held by who has it say so.
    begun: AtomicBool,
    beginning: Mutex<()>,
    /// Held by who opens or makes a table, before `gate`.
    opening: Mutex<()>,
    unreadable: AtomicU64,
    restored: AtomicU64,
    rebuilt: AtomicU64,
}

impl Inner {
    /// The allocator, for what may write, while no mending keeps us out.
    fn enter(&self) -> Result<Entered<'_>> {
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
    fn enter_to_read(&self) -> Result<Entered<'_>> {
        let guard = self.gate.read();
        if guard.is_none() { Err(Error::Closed) } else { Ok(Entered { guard }) }
    }
}

/// The right to use the allocator.
struct Entered<'a> {
    guard: RwLockReadGuard<'a, Option<FreeLists>>,
}

impl Entered<'_> {
    fn lists(&self) -> Result<&FreeLists> {
        self.guard.as_ref().ok_or(Error::Closed)
    }
}

/// What a failure that stops the writing is called: with the next opening it is known again what the device holds.
const STOPPED: &str = ", and nothing more is written: open it again when the device works";

fn stopped(error: Error) -> Error {
    match error {
        Error::Io { place, source } if !place.ends_with(STOPPED) => Error::Io { place: place + STOPPED, source },
        error => error,
    }
}

/// The engine's words for what the allocator says.
fn failed(doing: &'static str) -> impl Fn(BlockError) -> Error {
    move |error| match error {
        BlockError::Io { what, source } => Error::Io { place: format!("{doing}: {what}"), source },
        BlockError::Stopped(error) => stopped(error),
        BlockError::Full { needed, free } => Error::Full { needed, free },
        BlockError::TooLong { len, max } => {
            let to_usize = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
            Error::Limit { what: "key and value", len: to_usize(len), max: to_usize(max) }
        }
        BlockError::Option { name, why } => Error::Option { name, why },
        other => Error::Damaged {
            place: "hash tables".to_owned(),
            why: format!("{doing}: {other}"),
            mend: "put the table's entries again from their source".to_owned(),
        },
    }
}
