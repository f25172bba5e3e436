//! Index pages in memory, no more of them than was asked for.
//!
//! Invariants: a page is in the cache once or not at all; a thread that reads it from the device holds its lock while
//! it does, and one that writes it until it waits in the queue of writes, so that it cannot be read back old; a page
//! leaves only when its lock is free, and is marked, for a caller may still have it in hand.
//!
//! Pages are evicted by the rules of [`S3Fifo`].

use picaflor_common::{S3Fifo, Standing, Step};
use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, RwLock, RwLockWriteGuard};
use picaflor_format::BLOCK;

use super::{page::Page, tables::Index};
use crate::Result;

/// Locks of the cache.
const SHARDS: usize = 16;
/// Bytes of a page in memory beside its own: the frame, its places in the map and the queue.
const OVERHEAD: usize = 256;
/// Uses that are counted.
const MOST_USES: u8 = 3;

/// A page in the cache.
pub(super) struct Frame {
    pub(super) index: Arc<Index>,
    pub(super) number: u64,
    pub(super) page: RwLock<Page>,
    uses: AtomicU8,
}

pub(super) struct Cache {
    shards: Vec<Mutex<Shard>>,
    /// Most pages of a shard.
    room: usize,
}

struct Shard {
    frames: HashMap<(u32, u64), Arc<Frame>>,
    queue: S3Fifo<Arc<Frame>>,
}

impl Frame {
    pub(super) fn new(index: &Arc<Index>, number: u64, page: Page) -> Arc<Self> {
        Arc::new(Self { index: Arc::clone(index), number, page: RwLock::new(page), uses: AtomicU8::new(0) })
    }

    fn hash(&self) -> u64 {
        spread(self.index.number, self.number)
    }

    fn used(&self) {
        // A lost count costs nothing but a little luck.
        let uses = self.uses.load(Relaxed);
        if uses < MOST_USES {
            self.uses.store(uses + 1, Relaxed);
        }
    }
}

fn spread(table: u32, page: u64) -> u64 {
    (u64::from(table) << 40 ^ page).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Cache {
    /// A cache of at most `pages` pages, and a few more while threads are at work on them.
    pub(super) fn new(pages: usize) -> Self {
        let room = pages.div_ceil(SHARDS).max(1);
        let shard = || Shard { frames: HashMap::new(), queue: S3Fifo::new(room as u64, 1) };
        Self { shards: (0..SHARDS).map(|_| Mutex::new(shard())).collect(), room }
    }

    fn shard(&self, table: u32, page: u64) -> &Mutex<Shard> {
        &self.shards[(spread(table, page) >> 32) as usize % SHARDS]
    }

    /// The page if it is in memory.
    pub(super) fn peek(&self, table: u32, page: u64) -> Option<Arc<Frame>> {
        self.shard(table, page).lock().frames.get(&(table, page)).cloned()
    }

    /// The page; `load` fills it if it is not in memory, `write` takes what has to make room.
    pub(super) fn get(
        &self,
        index: &Arc<Index>,
        number: u64,
        load: impl FnOnce(&mut Page) -> Result<()>,
        write: impl Fn(&Frame, &mut Page) -> Result<()>,
    ) -> Result<Arc<Frame>> {
        let shard = self.shard(index.number, number);
        let mut held = shard.lock();
        if let Some(frame) = held.frames.get(&(index.number, number)) {
            frame.used();
            return Ok(Arc::clone(frame));
        }
        held.make_room(self.room, write)?;
        let frame = Frame::new(index, number, Page::unread());
        let mut page = frame.page.write();
        held.announce(&frame);
        drop(held);
        let outcome = load(&mut page);
        shard.lock().take_in(&frame, &mut page, outcome.is_ok());
        drop(page);
        outcome.map(|()| frame)
    }

    /// Takes in those of a table's pages that are not in memory, as far as that can be done: `load` is given their
    /// numbers, and says of each whether it filled it. A caller that asks for one of the others hears why it is not
    /// there.
    pub(super) fn read_ahead(
        &self,
        index: &Arc<Index>,
        numbers: &[u64],
        load: impl FnOnce(&[u64], &mut [RwLockWriteGuard<'_, Page>]) -> Vec<bool>,
        write: impl Fn(&Frame, &mut Page) -> Result<()>,
    ) {
        let missing = numbers.iter().filter(|&&number| self.peek(index.number, number).is_none());
        let frames: Vec<_> = missing.map(|&number| Frame::new(index, number, Page::unread())).collect();
        let (mut taken, mut numbers, mut pages) = (Vec::new(), Vec::new(), Vec::new());
        for frame in &frames {
            let page = frame.page.write();
            let mut held = self.shard(index.number, frame.number).lock();
            if held.frames.contains_key(&(index.number, frame.number)) {
                continue;
            }
            if held.make_room(self.room, &write).is_err() {
                break;
            }
            held.announce(frame);
            taken.push(frame);
            numbers.push(frame.number);
            pages.push(page);
        }
        if taken.is_empty() {
            return;
        }
        // No other thread has what is locked here, and none waits for a lock here: so none waits for ever.
        let filled = load(&numbers, &mut pages);
        for ((frame, page), filled) in taken.into_iter().zip(&mut pages).zip(filled) {
            self.shard(index.number, frame.number).lock().take_in(frame, page, filled);
        }
    }

    /// Takes in a page that was never on the device.
    pub(super) fn insert(&self, frame: &Arc<Frame>, write: impl Fn(&Frame, &mut Page) -> Result<()>) -> Result<()> {
        let mut held = self.shard(frame.index.number, frame.number).lock();
        held.make_room(self.room, write)?;
        held.announce(frame);
        held.enqueue(frame);
        Ok(())
    }

    /// Pages that there is room for.
    pub(super) fn most(&self) -> usize {
        self.room * SHARDS
    }

    /// Bytes that all pages take when the cache is full.
    pub(super) fn most_bytes(&self) -> u64 {
        (self.most() * (BLOCK + OVERHEAD)) as u64
    }

    /// Pages in memory.
    pub(super) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.lock().frames.len()).sum()
    }
}

impl Shard {
    /// A caller that asks for this page waits for its lock, which its loader holds. It is not queued yet: it cannot
    /// leave, and a page that is asked for again and again and never read leaves nothing behind.
    fn announce(&mut self, frame: &Arc<Frame>) {
        self.frames.insert((frame.index.number, frame.number), Arc::clone(frame));
    }

    fn enqueue(&mut self, frame: &Arc<Frame>) {
        self.queue.insert(frame.hash(), Arc::clone(frame), 1);
    }

    /// A page that was announced is filled, or could not be and goes.
    fn take_in(&mut self, frame: &Arc<Frame>, page: &mut Page, filled: bool) {
        if filled {
            self.enqueue(frame);
        } else {
            page.leave();
            self.frames.remove(&(frame.index.number, frame.number));
        }
    }

    /// Lets pages go until there is room for one more. Those that are held stay, even if it is too many.
    fn make_room(&mut self, room: usize, write: impl Fn(&Frame, &mut Page) -> Result<()>) -> Result<()> {
        let mut patience = self.frames.len() * (usize::from(MOST_USES) + 2);
        while self.frames.len() >= room && patience > 0 {
            patience -= 1;
            let frames = &self.frames;
            let standing = |frame: &Arc<Frame>| match frames.get(&(frame.index.number, frame.number)) {
                Some(present) if Arc::ptr_eq(present, frame) => Standing::Here(frame.hash(), frame.uses.load(Relaxed)),
                _ => Standing::Gone,
            };
            match self.queue.step(room as u64, standing, |frame, uses| frame.uses.store(uses, Relaxed)) {
                Step::Moved => {}
                Step::Empty => break,
                Step::Leaves(frame) => {
                    let Some(mut page) = frame.page.try_write() else {
                        self.queue.insert_small(Arc::clone(&frame), 1);
                        continue;
                    };
                    if let Err(error) = write(&frame, &mut page) {
                        drop(page);
                        self.queue.insert_small(frame, 1);
                        return Err(error);
                    }
                    page.leave();
                    self.frames.remove(&(frame.index.number, frame.number));
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use picaflor_device::MemoryDevice;

    use super::*;
    use crate::{
        Error,
        blocks::BlockOptions,
        htod::{HashTables, HtodOptions},
    };

    #[test]
    fn a_page_that_is_asked_for_again_and_again_and_never_read_leaves_nothing_in_memory() {
        let device = Arc::new(MemoryDevice::new(4 << 20));
        let (tables, _) = HashTables::open(device, BlockOptions::default(), HtodOptions::default()).unwrap();
        let table = tables.table("t").unwrap();
        let (index, cache) = (&table.index, Cache::new(64));
        let held = Arc::strong_count(index);
        for _ in 0..100 {
            assert!(cache.get(index, 5, |_| Err(Error::Closed), |_, _| Ok(())).is_err());
            cache.read_ahead(
                index,
                &[5, 6, 7],
                |missing, _| missing.iter().map(|&it| it == 7).collect(),
                |_, _| Ok(()),
            );
        }
        // Each frame holds its table.
        assert_eq!((cache.len(), Arc::strong_count(index)), (1, held + 1));
    }
}
