//! Opening and closing a place of hash tables.
//!
//! Steps of an opening: read the roots; sync, which makes durable whatever of the last run was read from a cache of the
//! machine; open the list of tables. A table is opened when it is asked for. Nothing is written, and gets are answered.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, RwLock};
use picaflor_common::Hasher;
use picaflor_device::Device;
use picaflor_format::BLOCK;

use super::{
    HtodOptions,
    cache::Cache,
    failure::failed,
    inner::{HashTables, Inner, Table},
    roots::{EPOCH_SHIFT, Roots, note_twice},
    tables::{Index, LIST, Tables},
};
use crate::Commits;
use crate::{
    Error, Result,
    blocks::{BlockOptions, BlockReceipt, BlockStats, FreeLists},
};

/// Fewest index pages in memory.
const LEAST_PAGES: usize = 16;

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

/// What an opening found.
#[derive(Debug)]
pub struct HtodReceipt {
    /// The place was made by this opening.
    pub created: bool,
    /// The last run closed the place. If not, [`HashTables::mend`] has work to do.
    pub clean: bool,
    /// The number of this opening.
    pub epoch: u32,
    /// What the allocator found.
    pub blocks: BlockReceipt,
}

impl HashTables {
    /// Opens the tables on a device, or makes a place for them where it is blank.
    ///
    /// # Errors
    /// [`Error::Io`] if the device fails; [`Error::Damaged`] if what lies there is not ours or not intact; what the
    /// allocator refuses.
    pub fn open(device: Arc<dyn Device>, blocks: BlockOptions, options: HtodOptions) -> Result<(Self, HtodReceipt)> {
        let (block_size, may_create) = (device.block_size(), blocks.create);
        let (lists, receipt) = FreeLists::open_to_read(device, blocks).map_err(failed("open the block allocator"))?;
        let found = Roots::read(lists.roots())?;
        let created = found.is_none();
        if created && !may_create {
            return Err(Error::Damaged {
                place: "roots of the block allocator".to_owned(),
                why: "they are blank, and there were hash tables".to_owned(),
                mend: "restore a copy of the device".to_owned(),
            });
        }
        let clean = found.as_ref().is_none_or(|roots| roots.clean);
        let roots = match found {
            None => {
                let seed = options.seed.unwrap_or_else(rand::random);
                Roots { list: 0, epoch: 1, clean: false, doubt: 1, seed }
            }
            Some(last) => {
                let epoch = last.epoch + 1;
                let doubt = if last.clean && last.doubt == last.epoch { epoch } else { last.doubt.min(last.epoch) };
                Roots { epoch, clean: false, doubt, ..last }
            }
        };
        let epoch = roots.epoch;
        let list = if created {
            lists.begin(lists.roots()).map_err(failed("note the epoch"))?;
            let list = Index::create(&lists, LIST, epoch)?;
            lists.sync().map_err(failed("sync"))?;
            note_twice(&lists, &Roots { list: list.word(), ..roots })?;
            list
        } else {
            Index::open(&lists, LIST, roots.list, epoch)?
        };
        let tables = Tables { list, open: HashMap::new(), begun: created };
        let inner = Arc::new(Inner::new(&roots, lists, block_size, tables, &options));
        Ok((Self { inner }, HtodReceipt { created, clean, epoch, blocks: receipt }))
    }

    /// The table of this name, made if there is none.
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn table(&self, name: &str) -> Result<Table> {
        self.table_or(name, |list| self.make_table(list, name))
    }

    /// The table of this name, which was made: if the list does not name it, what named it is damaged, and whatever
    /// lies in it would be lost to one made anew.
    pub fn table_made(&self, name: &str) -> Result<Table> {
        self.table_or(name, |_| {
            Err(Error::Damaged {
                place: "list of tables".to_owned(),
                why: format!("it does not name the table {name:?}, and there was one"),
                mend: "restore a copy of the device".to_owned(),
            })
        })
    }

    /// The table of this name, or what `make` does if there is none.
    fn table_or(&self, name: &str, make: impl FnOnce(&Table) -> Result<Arc<Index>>) -> Result<Table> {
        let inner = &self.inner;
        let _turn = inner.opening.lock();
        let (list, open) = {
            let tables = inner.tables.lock();
            (Arc::clone(&tables.list), tables.open.get(name).cloned())
        };
        if let Some(index) = open {
            return Ok(Table { inner: Arc::clone(inner), index });
        }
        let list = Table { inner: Arc::clone(inner), index: list };
        let index = match self.with_rebuilt(|| list.get(name.as_bytes()))? {
            Some(value) => {
                let words = value.split_first_chunk::<4>().and_then(|(number, rest)| {
                    Some((u32::from_le_bytes(*number), u64::from_le_bytes(*rest.first_chunk::<8>()?)))
                });
                let (number, word) = words.ok_or_else(|| list.index.damaged(0, "an entry is too short"))?;
                let index = {
                    let entered = inner.enter_to_read()?;
                    Index::open(entered.lists()?, number, word, inner.epoch)?
                };
                if !inner.tables.lock().opened(name, &index) {
                    let entered = inner.enter()?;
                    index.note_first(entered.lists()?)?;
                    entered.lists()?.sync().map_err(failed("sync"))?;
                }
                index
            }
            None => make(&list)?,
        };
        inner.tables.lock().open.insert(name.to_owned(), Arc::clone(&index));
        Ok(Table { inner: Arc::clone(inner), index })
    }

    fn make_table(&self, list: &Table, name: &str) -> Result<Arc<Index>> {
        let inner = &self.inner;
        let index = {
            let entered = inner.enter()?;
            let lists = entered.lists()?;
            let number = list.index.take_number(lists, &inner.commits)?;
            let index = Index::create(lists, number, inner.epoch)?;
            lists.sync().map_err(failed("sync"))?;
            index
        };
        let value = [&index.number.to_le_bytes()[..], &index.word().to_le_bytes()].concat();
        list.put(name.as_bytes(), &value)?;
        self.commit()?;
        Ok(index)
    }

    /// The names of all tables, in no order.
    ///
    /// # Errors
    /// As [`Table::get`].
    pub fn names(&self) -> Result<Vec<String>> {
        let index = Arc::clone(&self.inner.tables.lock().list);
        let list = Table { inner: Arc::clone(&self.inner), index };
        list.keys().map(|key| key.map(|key| String::from_utf8_lossy(&key).into_owned())).collect()
    }

    /// Makes durable what was put and removed before this call.
    ///
    /// # Errors
    /// [`Error::Io`] if the device failed.
    pub fn commit(&self) -> Result<()> {
        let entered = self.inner.enter()?;
        self.inner.wait(&entered, self.inner.commits.next())
    }

    /// What the tables hold in memory, and what they met.
    #[must_use]
    pub fn stats(&self) -> HtodStats {
        HtodStats {
            cached_pages: self.inner.cache.len(),
            unreadable: self.inner.unreadable.load(Relaxed),
            restored: self.inner.restored.load(Relaxed),
            rebuilt: self.inner.rebuilt.load(Relaxed),
            pending_frees: self.inner.releases.lock().len(),
        }
    }

    /// Why nothing is written any more, if that is so: the device failed.
    #[must_use]
    pub fn failure(&self) -> Option<Error> {
        self.inner.commits.failure()
    }

    /// Writes nothing more, for this reason.
    pub fn stop(&self, why: Error) {
        self.inner.commits.fail(why);
    }

    /// Whether a crash left something for [`HashTables::mend`], or damage was met that it can mend.
    #[must_use]
    pub fn wants_mending(&self) -> bool {
        self.inner.is_in_doubt() || self.has_damage()
    }

    /// Whether [`Table::len`] and [`HashTables::space`] may be off, because a crash took the count: until
    /// [`HashTables::mend`] came to its end, and the allocator has been through its blocks.
    #[must_use]
    pub fn is_counting(&self) -> bool {
        let discovering = self.inner.gate.read().as_ref().is_some_and(|lists| lists.stats().discovering);
        self.inner.is_in_doubt() || discovering
    }

    /// Whether index pages were met that are damaged and that [`HashTables::mend`] can make anew.
    #[must_use]
    pub fn has_damage(&self) -> bool {
        self.inner.damaged.lock().is_mendable()
    }

    /// A bounded bit of background work: see [`FreeLists::step`].
    ///
    /// # Errors
    /// As [`Table::put`].
    pub fn step(&self) -> Result<bool> {
        self.inner.enter()?.lists()?.step().map_err(failed("coalesce"))
    }

    /// Bytes of memory that the page cache may take, and that the allocator's lists take now.
    #[must_use]
    pub fn memory(&self) -> u64 {
        let lists = self.inner.gate.read().as_ref().map_or(0, FreeLists::memory);
        self.inner.cache.most_bytes() + lists
    }

    /// How full the device is, and with what; see [`BlockStats`].
    ///
    /// # Errors
    /// [`Error::Closed`], and what stopped the place.
    pub fn space(&self) -> Result<BlockStats> {
        Ok(self.inner.enter_to_read()?.lists()?.stats())
    }
}

impl Inner {
    fn new(roots: &Roots, lists: FreeLists, block_size: usize, tables: Tables, options: &HtodOptions) -> Self {
        Self {
            gate: RwLock::new(Some(lists)),
            block_size,
            durable: options.durable,
            batch: options.batch,
            hasher: Hasher::new(roots.seed),
            epoch: roots.epoch,
            doubt: AtomicU32::new(roots.doubt),
            generation: AtomicU64::new(u64::from(roots.epoch) << EPOCH_SHIFT),
            commits: Commits::default(),
            dirty: Mutex::default(),
            releases: Mutex::default(),
            grown: Mutex::default(),
            damaged: Mutex::default(),
            freeing: Mutex::default(),
            freed: AtomicU64::new(0),
            freed_now: AtomicU64::new(0),
            cache: Cache::new((options.cache / BLOCK).max(LEAST_PAGES)),
            begun: AtomicBool::new(tables.begun),
            beginning: Mutex::default(),
            tables: Mutex::new(tables),
            opening: Mutex::default(),
            unreadable: AtomicU64::new(0),
            restored: AtomicU64::new(0),
            rebuilt: AtomicU64::new(0),
        }
    }
}
