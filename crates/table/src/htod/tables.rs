//! The tables of a place: their headers, their extents, and the list of them, which is table 0.
//!
//! Invariants: a header is written to the older of its two copies; it names an extent only when the extent's area is
//! durable; `pages` of a header on the device are durable, and pages from there on were made in the header's epoch.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, RwLock};
use picaflor_format::{
    BLOCK,
    htod::{EXTENTS, Header, SECTORS, check_sector},
};

use super::{failure::failed, page::Page, shape};
use crate::Commits;
use crate::{
    Error, Result,
    blocks::{Address, Block, FreeLists},
};

/// The number of the list of tables.
pub(super) const LIST: u32 = 0;

/// Pages that an opening reads at once to see whether they were made, and how many it reads first: seldom were there
/// more since the header was written.
const AT_ONCE: u64 = 64;
const AT_FIRST: u64 = 4;

/// Tables that are open.
pub(super) struct Tables {
    pub(super) list: Arc<Index>,
    pub(super) open: HashMap<String, Arc<Index>>,
    /// This opening writes, and opening one more table notes in its header what was found of it.
    pub(super) begun: bool,
}

impl Tables {
    /// A table was opened; false if this opening writes already, and then the table is not known yet.
    pub(super) fn opened(&mut self, name: &str, index: &Arc<Index>) -> bool {
        if !self.begun {
            self.open.insert(name.to_owned(), Arc::clone(index));
        }
        !self.begun
    }
}

/// One table: its index pages, and what is under way in them.
pub(super) struct Index {
    pub(super) number: u32,
    /// Pages that are there.
    pub(super) pages: AtomicU64,
    /// Off by a few after a crash, even below 0.
    pub(super) keys: AtomicI64,
    home: Mutex<Home>,
    extents: RwLock<Vec<Block>>,
    /// Held while a page is made.
    pub(super) splitting: Mutex<()>,
    /// Pages that still hold what was moved out of them, and the commit that makes the copies durable.
    pub(super) moved: Mutex<HashMap<u64, u64>>,
    /// Pages that were in memory since the last crash, while what it left is not mended: a bit each.
    known: Mutex<Vec<u64>>,
}

/// Where the header is.
struct Home {
    area: Block,
    header: Header,
    /// The commit that covers what was written last.
    covered_by: u64,
}

impl Index {
    fn new(area: Block, header: Header, extents: Vec<Block>) -> Arc<Self> {
        Arc::new(Self {
            number: header.table,
            pages: AtomicU64::new(header.pages),
            keys: AtomicI64::new(header.keys as i64),
            home: Mutex::new(Home { area, header, covered_by: 0 }),
            extents: RwLock::new(extents),
            splitting: Mutex::default(),
            moved: Mutex::default(),
            known: Mutex::default(),
        })
    }

    /// The extent of a page, and where in it the page begins.
    pub(super) fn place(&self, page: u64) -> Result<(Block, u64)> {
        let (extent, within) = shape::extent_of(page);
        let block = self.extents.read().get(extent).copied();
        block.map(|block| (block, within * BLOCK as u64)).ok_or_else(|| self.damaged(page, "it lies in no extent"))
    }

    pub(super) fn has_extent_of(&self, page: u64) -> bool {
        shape::extent_of(page).0 < self.extents.read().len()
    }

    pub(super) fn damaged(&self, page: u64, why: &str) -> Error {
        self.damaged_for(page, why, "put the table's entries again from their source")
    }

    pub(super) fn damaged_for(&self, page: u64, why: &str, mend: &str) -> Error {
        Error::Damaged {
            place: format!("index page {page} of table {}", self.number),
            why: why.to_owned(),
            mend: mend.to_owned(),
        }
    }

    /// Notes that a page is in memory.
    pub(super) fn know(&self, page: u64) {
        let mut known = self.known.lock();
        let (word, bit) = ((page / 64) as usize, page % 64);
        if known.len() <= word {
            known.resize(word + 1, 0);
        }
        known[word] |= 1 << bit;
    }

    pub(super) fn is_known(&self, page: u64) -> bool {
        self.known.lock().get((page / 64) as usize).is_some_and(|word| word & 1 << (page % 64) != 0)
    }

    pub(super) fn lost_entry(&self, page: u64, place: u64) -> Error {
        Error::Damaged {
            place: format!("an entry of index page {page} of table {}, at {place:#x}", self.number),
            why: "its block does not hold it".to_owned(),
            mend: "put the key again, or remove it".to_owned(),
        }
    }

    pub(super) fn key_count(&self) -> u64 {
        self.keys.load(Relaxed).max(0) as u64
    }

    /// The list's word for this table.
    pub(super) fn word(&self) -> u64 {
        self.home.lock().area.address().word()
    }

    /// Whether a block is the header or an extent of this table.
    pub(super) fn owns(&self, block: &Block) -> bool {
        let address = block.address();
        self.home.lock().area.address() == address
            || self.extents.read().iter().any(|extent| extent.address() == address)
    }

    /// Takes the next number for a table; for the list only.
    pub(super) fn take_number(&self, lists: &FreeLists, commits: &Commits) -> Result<u32> {
        let mut home = self.home.lock();
        home.header.next_table += 1;
        home.write(lists, commits)?;
        Ok(home.header.next_table - 1)
    }

    /// Notes how things stand, with the next batch. `durable` pages are on the device, or more.
    pub(super) fn note(&self, lists: &FreeLists, durable: u64, commits: &Commits) -> Result<()> {
        let mut home = self.home.lock();
        home.header.pages = home.header.pages.max(durable);
        home.header.keys = self.key_count();
        home.header.extents = self.extents.read().iter().map(|area| area.address().word()).collect();
        home.write(lists, commits)
    }

    /// Notes what an opening found, or made, with its epoch. A sync follows before a page of the table is written: no
    /// commit has to cover it.
    pub(super) fn note_first(&self, lists: &FreeLists) -> Result<()> {
        self.note(lists, self.pages.load(Relaxed), &Commits::default())?;
        self.home.lock().covered_by = 0;
        Ok(())
    }

    /// Adds the area of the next extent, which is durable.
    pub(super) fn push_extent(&self, area: Block) {
        self.extents.write().push(area);
    }

    /// Bytes of the extent that a page needs, if the table may have that page at all.
    pub(super) fn next_extent(page: u64) -> Option<u64> {
        let (extent, _) = shape::extent_of(page);
        (page < shape::MOST_PAGES && extent < EXTENTS).then(|| shape::extent_pages(extent) * BLOCK as u64)
    }
}

impl Home {
    /// To the copy that no sync has covered, so that the other is whole whatever a crash does to this one.
    fn write(&mut self, lists: &FreeLists, commits: &Commits) -> Result<()> {
        let is_durable = self.covered_by <= commits.completed();
        self.header.seq += if is_durable { 1 } else { 2 };
        let offset = self.header.copy() * BLOCK as u64;
        let written = lists.write_page_later(&self.area, offset, &self.header.encode(), 0..BLOCK);
        written.map_err(failed("write a table's header"))?;
        self.covered_by = commits.next();
        Ok(())
    }
}

impl Index {
    /// Makes a table. It is durable with the next sync, and is not found before its header's place is noted.
    pub(super) fn create(lists: &FreeLists, number: u32, epoch: u32) -> Result<Arc<Self>> {
        let area = lists.allocate_area(2 * BLOCK as u64).map_err(failed("allocate a table's header"))?;
        let extent = lists.allocate_area(BLOCK as u64).map_err(failed("allocate a table's first page"))?;
        let mut page = Page::empty();
        page.seal(number, 0, epoch);
        lists.write_area(&extent, 0, &page.bytes).map_err(failed("write a table's first page"))?;
        let header = Header { table: number, epoch, pages: 1, next_table: LIST + 1, ..Header::default() };
        let index = Self::new(area, header, vec![extent]);
        // The maker of a table syncs.
        index.note_first(lists)?;
        Ok(index)
    }

    /// Opens the table whose header is at `word`, and learns how far its doubling got. Writes nothing: see
    /// [`Index::note_first`].
    pub(super) fn open(lists: &FreeLists, number: u32, word: u64, epoch: u32) -> Result<Arc<Self>> {
        let lost = |why: &str| Error::Damaged {
            place: format!("header of table {number}"),
            why: why.to_owned(),
            mend: "put the table's entries again from their source".to_owned(),
        };
        let area_at = |word| match Address::from_word(word) {
            Some(address) => lists.area_at(address).map_err(failed("find an area of a table")),
            None => Err(lost("it names no place")),
        };
        let area = area_at(word)?;
        let mut bytes = vec![0; 2 * BLOCK];
        lists.read_area(&area, 0, &mut bytes).map_err(failed("read a table's header"))?;
        let copies = bytes.chunks_exact(BLOCK).filter_map(|copy| Header::decode(copy).ok());
        let header = copies.filter(|header| header.table == number).max_by_key(|header| header.seq);
        let mut header = header.ok_or_else(|| lost("neither copy is intact"))?;
        let extents = header.extents.iter().map(|&word| area_at(word)).collect::<Result<_>>()?;
        let made_in = std::mem::replace(&mut header.epoch, epoch);
        let index = Self::new(area, header, extents);
        index.pages.store(index.count_pages(lists, made_in)?, Relaxed);
        Ok(index)
    }

    /// The pages from the header's on that are whole and were made in its epoch. Behind the first that is not there may
    /// be more: none that is durable.
    fn count_pages(&self, lists: &FreeLists, epoch: u32) -> Result<u64> {
        let mut pages = self.pages.load(Relaxed);
        let (mut bytes, mut at_once) = (Vec::new(), AT_FIRST);
        while self.has_extent_of(pages) {
            let (extent, offset) = self.place(pages)?;
            let (number, within) = shape::extent_of(pages);
            let left = (shape::extent_pages(number) - within).min(at_once);
            bytes.resize(left as usize * BLOCK, 0);
            lists.read_area(&extent, offset, &mut bytes).map_err(failed("read index pages"))?;
            for page in bytes.chunks_exact(BLOCK) {
                if (0..SECTORS).any(|sector| check_sector(page, self.number, pages, sector) != Ok(epoch)) {
                    return Ok(pages);
                }
                pages += 1;
            }
            at_once = AT_ONCE;
        }
        Ok(pages)
    }
}
