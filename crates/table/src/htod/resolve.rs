//! Index pages as they are read from the device, and what is believed of them.
//!
//! A sector that was written when a crash came may name an entry that did not arrive, beside the version it was to
//! replace. So of each key with a version marked as replaced, in a sector of a doubtful epoch, the entries are
//! read: the marked one goes if the current one is there, and is current itself if not. Elsewhere what is marked
//! was replaced for good, unless its commit is still under way. Of a key in two such sectors the newer version counts.

use std::{
    collections::{
        HashMap,
        hash_map::Entry::{Occupied, Vacant},
    },
    sync::{
        Arc,
        atomic::Ordering::{Acquire, Relaxed},
    },
};

use picaflor_format::{
    BLOCK, Corrupt,
    htod::{SECTORS, Slot, check_sector},
};

use super::{
    cache::Frame,
    entry::Found,
    failure::failed,
    inner::Inner,
    page::{Page, Standing},
    shape,
    tables::Index,
};
use crate::{
    Result,
    blocks::{Address, FreeLists},
};

/// Sectors of a page that are not whole, each with the reason.
pub(super) fn damaged_sectors(index: &Index, number: u64, page: &Page) -> impl Iterator<Item = (usize, Corrupt)> {
    let check = move |sector| Some((sector, check_sector(&page.bytes, index.number, number, sector).err()?));
    (0..SECTORS).filter_map(check)
}

impl Inner {
    /// A page, from memory or the device.
    pub(super) fn page(&self, lists: &FreeLists, index: &Arc<Index>, number: u64) -> Result<Arc<Frame>> {
        self.cache.get(
            index,
            number,
            |page| self.load(lists, index, number, page),
            |frame, page| self.write_page(lists, frame, page),
        )
    }

    /// Fills a page from the device. The caller holds its lock.
    fn load(&self, lists: &FreeLists, index: &Arc<Index>, number: u64, page: &mut Page) -> Result<()> {
        self.fetch(lists, index, number, page)?;
        self.take_in(lists, index, number, page)
    }

    /// The bytes of a page.
    pub(super) fn fetch(&self, lists: &FreeLists, index: &Index, number: u64, page: &mut Page) -> Result<()> {
        let (extent, offset) = index.place(number)?;
        debug_assert_eq!(page.bytes.len(), BLOCK);
        lists.read_area(&extent, offset, &mut page.bytes).map_err(failed("read an index page"))
    }

    /// Brings pages of a table into memory, with all reads on their way at once. What cannot be brought is left to the
    /// caller that asks for that page.
    pub(super) fn read_ahead(&self, lists: &FreeLists, index: &Arc<Index>, numbers: &[u64]) {
        self.cache.read_ahead(
            index,
            numbers,
            |missing, pages| {
                let places = missing.iter().map(|&number| index.place(number)).collect::<Result<Vec<_>>>();
                let read = places.ok().and_then(|places| lists.read_pages(&places, BLOCK).ok());
                let Some(read) = read else { return vec![false; missing.len()] };
                let read = pages.iter_mut().zip(read).zip(missing);
                let filled = read.map(|((page, bytes), &number)| {
                    bytes.is_ok_and(|bytes| {
                        page.bytes.copy_from_slice(&bytes);
                        self.take_in(lists, index, number, page).is_ok()
                    })
                });
                filled.collect()
            },
            |frame, page| self.write_page(lists, frame, page),
        );
    }

    /// Checks a page as it was read from the device, and decides what in it counts.
    fn take_in(&self, lists: &FreeLists, index: &Arc<Index>, number: u64, page: &mut Page) -> Result<()> {
        let damaged = damaged_sectors(index, number, page).next();
        if let Some((sector, why)) = damaged {
            return Err(self.note_damage(index, number, &format!("sector {sector}: {why}")));
        }
        self.believe(lists, index, number, page)?;
        self.note_in_memory(index, number);
        Ok(())
    }

    /// Decides what counts in those sectors of a page that are whole.
    pub(super) fn believe(&self, lists: &FreeLists, index: &Index, number: u64, page: &mut Page) -> Result<()> {
        let (mut doubtful, mut is_doubtful) = (Vec::new(), false);
        for sector in 0..SECTORS {
            let Ok(epoch) = check_sector(&page.bytes, index.number, number, sector) else { continue };
            let marked: Vec<Standing> = page.slots_of(sector).filter(|standing| standing.slot.superseded).collect();
            if epoch == self.epoch {
                let releases = self.releases.lock();
                marked.iter().filter(|it| !releases.needs(&it.slot)).for_each(|it| page.forget(*it));
            } else if epoch >= self.doubt.load(Acquire) {
                is_doubtful = true;
                doubtful.extend(marked);
            } else {
                marked.iter().for_each(|it| page.forget(*it));
            }
        }
        self.resolve(lists, index, page, &doubtful)?;
        if is_doubtful {
            self.keep_newest(lists, index, page)?;
        }
        if !index.moved.lock().contains_key(&number) {
            let pages = index.pages.load(Acquire);
            page.retain(|slot| shape::page_of(slot.hash, pages) == number);
        }
        Ok(())
    }

    /// A key that was removed and put again, to another sector, between two commits: a crash may have taken the one
    /// sector and left the other as it was. The newer version counts.
    fn keep_newest(&self, lists: &FreeLists, index: &Index, page: &mut Page) -> Result<()> {
        let mut current: Vec<Standing> = page.slots().filter(|standing| !standing.slot.superseded).collect();
        current.sort_by_key(|standing| standing.slot.hash);
        for twins in current.chunk_by(|one, other| one.slot.hash == other.slot.hash).filter(|twins| twins.len() > 1) {
            let mut newest: HashMap<Vec<u8>, (u64, Standing)> = HashMap::new();
            for standing in twins {
                let Some(found) = self.read_again(lists, index, *standing)? else { continue };
                let older = match newest.entry(found.key().to_vec()) {
                    Vacant(place) => {
                        place.insert((found.generation, *standing));
                        continue;
                    }
                    Occupied(mut best) if best.get().0 < found.generation => {
                        best.insert((found.generation, *standing)).1
                    }
                    Occupied(_) => *standing,
                };
                page.forget(older);
            }
        }
        Ok(())
    }

    /// Decides, for what is marked in sectors that a crash may have left half done, which version counts. All entries
    /// that it takes are read at once.
    fn resolve(&self, lists: &FreeLists, index: &Index, page: &mut Page, marked: &[Standing]) -> Result<()> {
        if marked.is_empty() {
            return Ok(());
        }
        let rivals_of = |page: &Page, of: &Standing| -> Vec<Standing> {
            let is_rival = |it: &Standing| it.slot.hash == of.slot.hash && !it.slot.superseded;
            page.slots_of(of.sector).filter(is_rival).collect()
        };
        let rivals = marked.iter().flat_map(|standing| rivals_of(page, standing));
        let wanted: Vec<Standing> = marked.iter().copied().chain(rivals).collect();
        let named = |standing: &Standing| Some((*standing, Address::from_word(standing.slot.place)?));
        let (wanted, places): (Vec<Standing>, Vec<Address>) = wanted.iter().filter_map(named).unzip();
        let mut entries: HashMap<Slot, Found> = HashMap::new();
        for (standing, read) in wanted.into_iter().zip(lists.read_many(&places)) {
            // Twice: a device that errs once must not make an entry look lost.
            let found = match self.found(index, standing, read)? {
                None => self.read(lists, index, standing)?,
                found => found,
            };
            if let Some(found) = found {
                entries.insert(standing.slot, found);
            }
        }
        let mut former: Vec<(Standing, &Found)> = Vec::new();
        for standing in marked {
            match entries.get(&standing.slot) {
                Some(found) => former.push((*standing, found)),
                None => page.forget(*standing),
            }
        }
        // The newest of a key first; the others find it current.
        former.sort_by_key(|(_, found)| std::cmp::Reverse(found.generation));
        for (standing, found) in former {
            let mut lost = Vec::new();
            let mut is_replaced = false;
            for rival in rivals_of(page, &standing) {
                // What was marked itself, and counts again, is known by its slot as it was.
                let marked = Slot { superseded: true, ..rival.slot };
                match entries.get(&rival.slot).or_else(|| entries.get(&marked)) {
                    Some(current) => is_replaced |= current.key() == found.key(),
                    None => lost.push(rival),
                }
            }
            if is_replaced {
                page.forget(standing);
                continue;
            }
            self.restored.fetch_add(1, Relaxed);
            lost.into_iter().for_each(|rival| page.forget(rival));
            page.restore(standing);
        }
        Ok(())
    }
}
