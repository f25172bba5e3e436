//! Index pages that rotted, made anew from the entries on the device.
//!
//! Steps: every allocated block is read, and those kept in mind whose key belongs to a page that is not whole; then,
//! with everybody kept out for a moment and everything written and freed that waited, they are read again, and each key
//! that no whole sector of its page names gets a slot, of its newest version.
//!
//! Why that is right where it is done: a remove is durable with the headers that free all versions of its key, so
//! what is allocated was not removed; what was replaced is older; and while its page is not whole no caller can change
//! a key of it. What a crash left besides (entries that no page named) was put when the crash came, and no caller was
//! told what became of it, as long as the page was not in memory since. Where it may have been, keys may have been
//! removed of which an entry is left: such a page is left alone and reported. `docs/FORMAT.md` has the argument.

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
};

use picaflor_format::htod::{Entry, Slot, slot_hash};

use super::{
    cache::Frame,
    damage::Which,
    failure::failed,
    inner::{HashTables, Inner},
    page::Page,
    resolve::damaged_sectors,
    roots::EPOCH_SHIFT,
    shape,
    tables::Index,
};
use crate::{
    Error, Result,
    blocks::{Address, Block, BlockError, BlockResult, Blocks, FreeLists},
};

/// Blocks that are read at once, and about as many bytes.
const BATCH: usize = 64;
const BATCH_BYTES: u64 = 4 << 20;

/// An entry whose key belongs to a page that is not whole.
struct Candidate {
    hash: u64,
    generation: u64,
    place: Address,
}

type Candidates = BTreeMap<Which, Vec<Candidate>>;

impl HashTables {
    /// Makes index pages anew that were met and are damaged, as [`HashTables::mend`] does before anything else, and
    /// says how many. Reads every block.
    ///
    /// # Errors
    /// As [`super::Table::put`].
    pub fn rebuild(&self) -> Result<u64> {
        self.rebuild_while(&|| true).map(Option::unwrap_or_default)
    }

    /// As [`HashTables::rebuild`], as long as `go_on` says so, which is asked now and then; `None` if it said no.
    ///
    /// # Errors
    /// As [`HashTables::rebuild`].
    pub fn rebuild_while(&self, go_on: &dyn Fn() -> bool) -> Result<Option<u64>> {
        self.inner.rebuild(go_on)
    }

    /// What `act` says; if a damaged page was in its way that could be made anew, what it says then. For what nothing
    /// can be done without, where no other thread makes pages anew yet.
    ///
    /// # Errors
    /// Those of `act`, and as [`HashTables::rebuild`].
    pub fn with_rebuilt<T>(&self, act: impl Fn() -> Result<T>) -> Result<T> {
        match act() {
            Err(Error::Damaged { .. }) if self.rebuild()? > 0 => act(),
            outcome => outcome,
        }
    }
}

impl Inner {
    /// Makes pages anew, and says how many; `None` if it was to stop. The caller has not entered.
    pub(super) fn rebuild(&self, go_on: &dyn Fn() -> bool) -> Result<Option<u64>> {
        let mut made = 0;
        loop {
            let pages = self.damaged.lock().some();
            if pages.is_empty() {
                return Ok(Some(made));
            }
            let found = {
                let entered = self.enter()?;
                self.gather(entered.lists()?, &pages, go_on)?
            };
            let Some(mut found) = found else { return Ok(None) };
            {
                let gate = self.gate.write();
                let lists = gate.as_ref().ok_or(Error::Closed)?;
                self.stopping(self.settle_everything(lists))?;
                for (which, index) in &pages {
                    let candidates = found.remove(which).unwrap_or_default();
                    let outcome = self.make_anew(lists, index, which.1, &candidates)?;
                    made += u64::from(outcome.is_ok());
                    self.damaged.lock().judged(*which, outcome);
                }
            }
            let entered = self.enter()?;
            self.wait(&entered, self.commits.next())?;
        }
    }

    /// Writes what waits to be written and frees what waits to be freed. No other call is running.
    pub(super) fn settle_everything(&self, lists: &FreeLists) -> Result<()> {
        self.write_all(lists)?;
        lists.sync().map_err(failed("sync"))?;
        self.release(lists, u64::MAX)?;
        lists.sync().map_err(failed("sync"))
    }

    /// The entries whose keys belong to these pages.
    fn gather(
        &self,
        lists: &FreeLists,
        pages: &BTreeMap<Which, Arc<Index>>,
        go_on: &dyn Fn() -> bool,
    ) -> Result<Option<Candidates>> {
        let tables: BTreeMap<u32, &Arc<Index>> = pages.iter().map(|((table, _), index)| (*table, index)).collect();
        let mut found = Candidates::new();
        let mut blocks = lists.blocks();
        loop {
            if !go_on() {
                return Ok(None);
            }
            let places = next_places(&mut blocks)?;
            if places.is_empty() {
                return Ok(Some(found));
            }
            for read in lists.read_many(&places) {
                let Some((block, bytes)) = readable(read)? else { continue };
                let Ok(entry) = Entry::decode(&bytes) else { continue };
                // What this run puts, while a crash is not mended, is not of a page that cannot be read.
                let is_of_this_run = entry.generation >> EPOCH_SHIFT >= u64::from(self.epoch);
                let Some(index) = tables.get(&entry.table) else { continue };
                if self.is_in_doubt() && is_of_this_run {
                    continue;
                }
                let hash = self.hasher.key(entry.key).short();
                let which = (entry.table, shape::page_of(hash, index.pages.load(Acquire)));
                if pages.contains_key(&which) {
                    let candidate = Candidate { hash, generation: entry.generation, place: block.address() };
                    found.entry(which).or_default().push(candidate);
                }
            }
        }
    }

    /// Makes a page anew, or says why not. No other call is running, and nothing waits to be written or freed.
    fn make_anew(
        &self,
        lists: &FreeLists,
        index: &Arc<Index>,
        number: u64,
        candidates: &[Candidate],
    ) -> Result<std::result::Result<(), &'static str>> {
        if let Some(why) = self.refusal(index, number) {
            return Ok(Err(why));
        }
        let mut page = Page::unread();
        self.fetch(lists, index, number, &mut page)?;
        let lost: Vec<usize> = damaged_sectors(index, number, &page).map(|(sector, _)| sector).collect();
        if lost.is_empty() {
            // The device erred, and does not any more.
            return Ok(Ok(()));
        }
        lost.into_iter().for_each(|sector| page.clear(sector));
        index.moved.lock().remove(&number);
        self.believe(lists, index, number, &mut page)?;
        let mut newest: BTreeMap<Vec<u8>, (u64, u64, Address)> = BTreeMap::new();
        for candidate in candidates {
            let Some(key) = self.unnamed(lists, index, &page, candidate)? else { continue };
            let version = (candidate.generation, candidate.hash, candidate.place);
            let best = newest.entry(key).or_insert(version);
            *best = (*best).max(version);
        }
        for (generation, hash, place) in newest.into_values() {
            let Some((sector, at)) = page.room() else {
                return Ok(Err(
                    "there are more entries than it holds: put the table's entries again from their source",
                ));
            };
            page.set(sector, at, Some(Slot::new(place.word(), hash, generation)));
        }
        let frame = Frame::new(index, number, page);
        self.cache.insert(&frame, |frame, page| self.write_page(lists, frame, page))?;
        self.changed(&frame, false);
        self.note_in_memory(index, number);
        self.rebuilt.fetch_add(1, Relaxed);
        Ok(Ok(()))
    }

    /// A candidate's key, if it is still there and the whole sectors of its page say nothing of the key.
    fn unnamed(&self, lists: &FreeLists, index: &Index, page: &Page, it: &Candidate) -> Result<Option<Vec<u8>>> {
        let Some((_, bytes)) = readable(lists.read(it.place))? else { return Ok(None) };
        let Ok(entry) = Entry::decode(&bytes) else { return Ok(None) };
        if entry.table != index.number || entry.generation != it.generation {
            return Ok(None);
        }
        for standing in page.slots().filter(|standing| standing.slot.hash == slot_hash(it.hash)) {
            let is_of_key = match self.read_again(lists, index, standing)? {
                Some(found) => found.key() == entry.key,
                // Of that hash, and lost: the key's, which this is an old version of.
                None => true,
            };
            if is_of_key {
                return Ok(None);
            }
        }
        Ok(Some(entry.key.to_vec()))
    }
}

/// The next places at which entries may lie.
fn next_places(blocks: &mut Blocks<'_>) -> Result<Vec<Address>> {
    let (mut places, mut bytes) = (Vec::new(), 0);
    while places.len() < BATCH && bytes < BATCH_BYTES {
        match blocks.next() {
            None => break,
            Some(Ok(block)) if block.is_area() => {}
            Some(Ok(block)) => {
                bytes += block.capacity();
                places.push(block.address());
            }
            Some(Err(BlockError::Damaged { .. })) => {}
            Some(Err(error)) => return Err(failed("look for allocated blocks")(error)),
        }
    }
    Ok(places)
}

/// What was read, if it could be and is in use.
fn readable(read: BlockResult<(Block, Vec<u8>)>) -> Result<Option<(Block, Vec<u8>)>> {
    match read {
        Ok(read) => Ok(Some(read)),
        Err(BlockError::Damaged { .. } | BlockError::NotAllocated(_)) => Ok(None),
        Err(error) => Err(failed("read an entry")(error)),
    }
}
