//! The table of a volume whose objects have places: what lies where, what was used last, and what is free.
//!
//! The life of a slot: *free* → *taken* (an object is being written there) → *entered* (it has a row) → *leaving* (the
//! row is gone; the journal does not yet say so) → *free*.
//!
//! Invariants: rows do not overlap; a slot is free again only after a commit that took every record which its row's end
//! gave rise to; the least recently used row is found at once.

use std::{
    collections::HashMap,
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
};

use parking_lot::Mutex;
use picaflor_common::HashKeyed;
use picaflor_format::checkpoint::PlaceRow;

use super::{Layout, next_fit::NextFit, numbers::Numbers, runs::Runs, slots::Slots};

/// An object's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    /// 128-bit hash of its key.
    pub(crate) hash: u128,
    /// First slot, counted from the start of the device.
    pub(crate) slot: u32,
    pub(crate) slots: u32,
}

pub(crate) struct Extents {
    table: Mutex<Table>,
    /// Slots of what found no place last; 0 once something did.
    wanted: AtomicU32,
    /// Slots in all.
    count: u32,
    /// Bytes that [`Extents::account`] told last.
    told: AtomicU64,
}

enum Free {
    Slots(Slots),
    NextFit(NextFit),
    Numbers(Numbers),
}

/// Files of long objects beside slots: their numbers go on where the slots end, and what they take they take from all.
struct LongFiles {
    first: u32,
    /// Slots of the longest object that is none.
    threshold: u32,
    numbers: Numbers,
}

struct Table {
    free: Free,
    long: Option<LongFiles>,
    rows: Vec<Row>,
    vacant: Vec<u32>,
    /// Number of the row at a slot, by [`mixed`].
    at: HashKeyed<u32>,
    oldest: u32,
    newest: u32,
    tick: u64,
    freed: Vec<Freed>,
    /// Slots that were promised.
    promised: u64,
    /// Slots that are leaving, and slots that rows take.
    leaving: u64,
    live: u64,
}

#[derive(Clone, Copy)]
struct Row {
    hash: [u64; 2],
    slot: u32,
    /// 0: no row.
    slots: u32,
    older: u32,
    newer: u32,
    /// When it was used, as the table counts, and [`WHOLE`].
    used: u64,
}

/// Of [`Row::used`]: it is known that the object is whole, not a piece of one or what says how one is cut. Only rows of
/// this opening say so.
const WHOLE: u64 = 1 << 63;

/// Slots whose row is gone.
#[derive(Clone, Copy)]
pub(crate) struct Freed {
    pub(crate) slot: u32,
    slots: u32,
    hash: u64,
}

const NONE: u32 = u32::MAX;
/// Rows that are copied, listed or checked at a time.
const SLICE: usize = 512;

/// Multiplication by an odd number is one to one, so this is a key and a hash in one.
fn mixed(slot: u32) -> u64 {
    u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

impl Extents {
    /// `count` free slots from `first` on. Objects of up to `threshold` slots share areas, where the layout has them.
    pub(crate) fn new(layout: Layout, first: u32, count: u32, threshold: u32) -> Self {
        let free = match layout {
            Layout::Slots => Free::Slots(Slots::new(first, count, threshold)),
            Layout::Files(_) => Free::Numbers(Numbers::new(count)),
            Layout::NextFit | Layout::Packets => Free::NextFit(NextFit::new(first, count)),
        };
        let table = Table {
            free,
            long: None,
            rows: Vec::new(),
            vacant: Vec::new(),
            at: HashMap::default(),
            oldest: NONE,
            newest: NONE,
            tick: 0,
            freed: Vec::new(),
            promised: 0,
            leaving: 0,
            live: 0,
        };
        Self { table: Mutex::new(table), wanted: AtomicU32::new(0), count, told: AtomicU64::new(0) }
    }

    /// The same, where objects of more slots than the threshold are files: of numbers from `first` on.
    pub(crate) fn with_long_files(self, first: u32, threshold: u32) -> Self {
        self.table.lock().long = Some(LongFiles { first, threshold, numbers: Numbers::new(self.count) });
        self
    }

    /// Whether an object of so many slots is a file, where long ones are.
    pub(crate) fn is_long(&self, slots: u32) -> bool {
        self.table.lock().long.as_ref().is_some_and(|long| slots > long.threshold)
    }

    /// Slots in all.
    pub(crate) fn count(&self) -> u32 {
        self.count
    }

    /// Takes a place for an object, or for a `piece` of one that had to be cut; [`Extents::enter`]
    /// follows. Returns it with its length, which may be more.
    /// `own` of the promised slots are the object's.
    pub(crate) fn take(&self, slots: u32, piece: bool, own: u64) -> Option<(u32, u32)> {
        let mut table = self.table.lock();
        let enough = table.free_slots() >= table.promised - own + u64::from(slots);
        let Table { free, long, .. } = &mut *table;
        let long = long.as_mut().filter(|long| slots > long.threshold);
        let found = match (long, free) {
            _ if !enough => None,
            (Some(long), _) => long.take(slots),
            (None, Free::Slots(space)) if piece => space.take_any(slots),
            (None, Free::Slots(space)) => space.take_near(slots),
            (None, Free::NextFit(space)) => space.take(slots).map(|slot| (slot, slots)),
            (None, Free::Numbers(space)) => space.take(slots).map(|number| (number, slots)),
        };
        self.wanted.store(if found.is_some() { 0 } else { slots }, Relaxed);
        found
    }

    /// Promises so many slots, wherever they are; [`Extents::keep_promise`] follows.
    pub(crate) fn promise(&self, slots: u64) -> bool {
        let mut table = self.table.lock();
        let enough = table.free_slots() >= table.promised + slots;
        table.promised += if enough { slots } else { 0 };
        self.wanted.store(if enough { 0 } else { slots as u32 }, Relaxed);
        enough
    }

    pub(crate) fn has_promised(&self) -> bool {
        self.table.lock().promised > 0
    }

    /// What was promised is taken now, or not needed.
    pub(crate) fn keep_promise(&self, slots: u64) {
        self.table.lock().promised -= slots;
    }

    /// Bytes by which the table may grow with the next row, the old one beside the new one.
    pub(crate) fn growth(&self) -> u64 {
        let table = self.table.lock();
        let rows = table.vacant.is_empty() && table.rows.len() == table.rows.capacity();
        let map = table.at.len() == table.at.capacity();
        let rows = if rows { (table.rows.len() + table.step()) * size_of::<Row>() } else { 0 };
        let map = if map { 2 * map_bytes(table.at.capacity().max(3)) } else { 0 };
        (rows + map) as u64
    }

    /// Whether more rows mean more memory: tables do not shrink, but after a tenth has left, those that come find room.
    pub(crate) fn is_loaded(&self) -> bool {
        let table = self.table.lock();
        table.vacant.len() * 10 < table.rows.len()
    }

    /// An object lies there now, a `whole` one or not.
    pub(crate) fn enter(&self, place: Place, whole: bool) {
        let mut table = self.table.lock();
        table.tick += 1;
        let used = table.tick | if whole { WHOLE } else { 0 };
        table.enter(place, used);
    }

    /// Whether the object at this slot has the key of this hash, and is known to be whole.
    pub(crate) fn is_known_whole(&self, slot: u32, hash: u128) -> bool {
        self.row_at(slot).is_some_and(|row| row.used & WHOLE != 0 && row.place().hash == hash)
    }

    /// Whether the object at this slot has another key than that of this hash.
    pub(crate) fn is_of_another(&self, slot: u32, hash: u128) -> bool {
        self.row_at(slot).is_some_and(|row| row.place().hash != hash)
    }

    fn row_at(&self, slot: u32) -> Option<Row> {
        let table = self.table.lock();
        table.at.get(&mixed(slot)).map(|id| table.rows[*id as usize])
    }

    /// The object at this slot is no longer in use; returns whether one was.
    pub(crate) fn release(&self, slot: u32) -> bool {
        let mut table = self.table.lock();
        let Some(id) = table.at.remove(&mixed(slot)) else { return false };
        table.unlink(id);
        let row = std::mem::replace(&mut table.rows[id as usize], Row::VACANT);
        table.vacant.push(id);
        table.live -= u64::from(row.slots);
        table.leaving += u64::from(row.slots);
        table.freed.push(Freed { slot, slots: row.slots, hash: row.hash[0] });
        true
    }

    /// What may become free with the commit that begins now. `over` says of a key's hash whether no call is in the
    /// middle of a put or delete of it: what such a one has to tell the journal is told.
    pub(crate) fn ready(&self, mut over: impl FnMut(u64) -> bool) -> Vec<Freed> {
        let mut table = self.table.lock();
        let (ready, kept) = std::mem::take(&mut table.freed).into_iter().partition(|freed| over(freed.hash));
        table.freed = kept;
        ready
    }

    /// The commit is complete: these are free.
    pub(crate) fn settle(&self, ready: Vec<Freed>) {
        let mut table = self.table.lock();
        for Freed { slot, slots, .. } in ready {
            table.leaving -= u64::from(slots);
            table.give(slot, slots);
        }
    }

    /// The object at this slot was used.
    pub(crate) fn touch(&self, slot: u32) {
        let mut table = self.table.lock();
        if let Some(&id) = table.at.get(&mixed(slot)) {
            table.unlink(id);
            table.tick += 1;
            let tick = table.tick;
            let used = &mut table.rows[id as usize].used;
            *used = tick | *used & WHOLE;
            table.link(id);
        }
    }

    /// Who was not used for longest.
    pub(crate) fn oldest(&self) -> Option<Place> {
        let table = self.table.lock();
        table.rows.get(table.oldest as usize).map(Row::place)
    }

    /// Slots of the object that begins at this one.
    pub(crate) fn len_at(&self, slot: u32) -> Option<u32> {
        let table = self.table.lock();
        table.at.get(&mixed(slot)).map(|id| table.rows[*id as usize].slots)
    }

    pub(crate) fn slices(&self) -> u32 {
        self.table.lock().rows.len().div_ceil(SLICE) as u32
    }

    /// The objects in a slice of the table.
    pub(crate) fn slice(&self, slice: u32) -> Vec<Place> {
        let table = self.table.lock();
        let rows = table.rows.iter().skip(slice as usize * SLICE).take(SLICE);
        rows.filter(|row| row.slots > 0).map(Row::place).collect()
    }

    /// A slice of the table as a checkpoint keeps it.
    pub(crate) fn image(&self, slice: u32) -> Vec<u64> {
        let table = self.table.lock();
        let rows = table.rows.iter().skip(slice as usize * SLICE).take(SLICE);
        let words = |row: &Row| {
            let Place { hash, slot, slots } = row.place();
            PlaceRow { hash, slot, slots, used: row.used & !WHOLE }.words()
        };
        rows.filter(|row| row.slots > 0).flat_map(words).collect()
    }

    /// Bytes of an image of all slices.
    pub(crate) fn image_bytes(&self) -> u64 {
        let table = self.table.lock();
        (table.at.len() * PlaceRow::WORDS * 8 + table.rows.len() / SLICE * 16) as u64
    }

    /// Fills an empty table with what an opening found. Returns the rows whose places were free; of those of `last`
    /// that is so where the others leave room.
    pub(crate) fn restore(&self, mut rows: Vec<PlaceRow>, cursor: u32, last: impl Fn(u32) -> bool) -> Vec<PlaceRow> {
        let mut table = self.table.lock();
        rows.sort_unstable_by_key(|row| row.slot);
        let mut coming: u64 = rows.iter().filter(|row| !last(row.slot)).map(|row| u64::from(row.slots)).sum();
        rows.retain(|row| {
            let slots = u64::from(row.slots);
            let is_last = last(row.slot);
            coming -= if is_last { 0 } else { slots };
            let has_room = !is_last || table.free_slots() >= coming + slots;
            row.slots > 0 && has_room && table.take_at(row.slot, row.slots)
        });
        // Counted on from what is in order.
        rows.iter_mut().for_each(|row| row.used &= !WHOLE);
        rows.sort_unstable_by_key(|row| row.used);
        table.rows.reserve_exact(rows.len());
        table.at.reserve(rows.len());
        for row in &rows {
            table.tick = table.tick.max(row.used);
            table.enter(Place { hash: row.hash, slot: row.slot, slots: row.slots }, row.used);
        }
        if let Free::NextFit(space) = &mut table.free {
            space.set_cursor(cursor);
        }
        rows
    }

    /// Where the next search for a place begins; 0 where that is not by a cursor.
    pub(crate) fn cursor(&self) -> u32 {
        match &self.table.lock().free {
            Free::Slots(_) | Free::Numbers(_) => 0,
            Free::NextFit(space) => space.cursor(),
        }
    }

    /// Slots that are free, slots that are leaving, and slots that rows take.
    pub(crate) fn slots(&self) -> (u64, u64, u64) {
        let table = self.table.lock();
        (table.free_slots().saturating_sub(table.promised), table.leaving, table.live)
    }

    /// Slots of the pieces, the longest that would do, into which an object has to be cut so that all find a place.
    /// `pieces` says how many of such a length it makes.
    pub(crate) fn cut_for(&self, pieces: impl Fn(u32) -> u64) -> Option<u32> {
        let table = self.table.lock();
        let longest = match &table.free {
            Free::Slots(space) => space.longest(),
            Free::NextFit(space) => space.runs.longest(),
            // A file is never too long for what is free.
            Free::Numbers(_) => return None,
        };
        let holds = |slots: u32| match &table.free {
            Free::Slots(space) => space.holds(slots),
            Free::NextFit(space) => space.runs.holds(slots),
            Free::Numbers(space) => space.free / u64::from(slots),
        };
        // What files take, slots cannot.
        let holds = |slots: u32| holds(slots).min(table.free_slots() / u64::from(slots));
        let lengths = std::iter::successors(Some(longest), |slots| Some(slots / 2)).take_while(|slots| *slots > 0);
        lengths.into_iter().find(|slots| holds(*slots) >= pieces(*slots))
    }

    /// Slots of what found no place last.
    pub(crate) fn wanted(&self) -> u32 {
        self.wanted.load(Relaxed)
    }

    /// Lets `change` bring an account from what it was told last up to what the table takes now, and `more` beside it.
    /// Returns whether that grew.
    pub(crate) fn account(&self, more: u64, change: impl FnOnce(u64, u64)) -> bool {
        let table = self.table.lock();
        let now = table.bytes() as u64 + more;
        let before = self.told.swap(now, Relaxed);
        change(before, now);
        now > before
    }
}

impl LongFiles {
    fn take(&mut self, slots: u32) -> Option<(u32, u32)> {
        let number = self.numbers.take(slots)?;
        // Each is longer than a slot, so there are fewer of them than slots, and these are counted in 32 bits.
        Some((self.first.checked_add(number)?, slots))
    }
}

impl Row {
    const VACANT: Self = Self { hash: [0; 2], slot: 0, slots: 0, older: NONE, newer: NONE, used: 0 };

    fn place(&self) -> Place {
        let hash = u128::from(self.hash[1]) << 64 | u128::from(self.hash[0]);
        Place { hash, slot: self.slot, slots: self.slots }
    }
}

/// Memory of a map that takes so many entries: one eighth of its buckets stays empty, and each has a byte beside it.
fn map_bytes(capacity: usize) -> usize {
    (capacity * 8 / 7).next_power_of_two() * (size_of::<(u64, u32)>() + 1)
}

impl Table {
    /// Rows by which the table grows: an eighth.
    fn step(&self) -> usize {
        (self.rows.len() / 8).max(64)
    }

    fn bytes(&self) -> usize {
        let space = match &self.free {
            Free::Slots(space) => space.bytes(),
            Free::NextFit(space) => space.runs.count() * Runs::BYTES,
            Free::Numbers(space) => space.bytes(),
        };
        let space = space + self.long.as_ref().map_or(0, |long| long.numbers.bytes());
        let lists = self.vacant.capacity() * size_of::<u32>() + self.freed.capacity() * size_of::<Freed>();
        self.rows.capacity() * size_of::<Row>() + map_bytes(self.at.capacity()) + lists + space
    }

    fn free_slots(&self) -> u64 {
        let free = match &self.free {
            Free::Slots(space) => space.free(),
            Free::NextFit(space) => space.runs.free(),
            Free::Numbers(space) => space.free,
        };
        free.saturating_sub(self.long.as_ref().map_or(0, |long| long.numbers.taken()))
    }

    fn give(&mut self, slot: u32, slots: u32) {
        if let Some(long) = self.long.as_mut().filter(|long| slot >= long.first) {
            return long.numbers.give(slot - long.first, slots);
        }
        match &mut self.free {
            Free::Slots(space) => space.give(slot, slots),
            Free::NextFit(space) => space.runs.give(slot, slots),
            Free::Numbers(space) => space.give(slot, slots),
        }
    }

    fn take_at(&mut self, slot: u32, slots: u32) -> bool {
        let enough = self.free_slots() >= u64::from(slots);
        if let Some(long) = self.long.as_mut().filter(|long| slot >= long.first) {
            return enough && long.numbers.take_at(slot - long.first, slots);
        }
        match &mut self.free {
            Free::Slots(space) => space.take_at(slot, slots),
            Free::NextFit(space) => space.runs.take_at(slot, slots),
            Free::Numbers(space) => space.take_at(slot, slots),
        }
    }

    fn enter(&mut self, place: Place, used: u64) {
        let hash = [place.hash as u64, (place.hash >> 64) as u64];
        let row = Row { hash, slot: place.slot, slots: place.slots, older: NONE, newer: NONE, used };
        let id = match self.vacant.pop() {
            Some(id) => {
                self.rows[id as usize] = row;
                id
            }
            None => {
                if self.rows.len() == self.rows.capacity() {
                    self.rows.reserve_exact(self.step());
                }
                self.rows.push(row);
                (self.rows.len() - 1) as u32
            }
        };
        self.at.insert(mixed(place.slot), id);
        self.live += u64::from(place.slots);
        self.link(id);
    }

    /// Puts a row at the newest end.
    fn link(&mut self, id: u32) {
        let before = std::mem::replace(&mut self.newest, id);
        self.rows[id as usize].older = before;
        self.rows[id as usize].newer = NONE;
        match self.rows.get_mut(before as usize) {
            Some(row) => row.newer = id,
            None => self.oldest = id,
        }
    }

    fn unlink(&mut self, id: u32) {
        let Row { older, newer, .. } = self.rows[id as usize];
        match self.rows.get_mut(older as usize) {
            Some(row) => row.newer = newer,
            None => self.oldest = newer,
        }
        match self.rows.get_mut(newer as usize) {
            Some(row) => row.older = older,
            None => self.newest = older,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(hash: u64, slot: u32, slots: u32) -> Place {
        Place { hash: hash.into(), slot, slots }
    }

    fn put(extents: &Extents, hash: u64, slots: u32) -> Option<u32> {
        let (slot, _) = extents.take(slots, false, 0)?;
        extents.enter(place(hash, slot, slots), true);
        Some(slot)
    }

    #[test]
    fn the_least_recently_used_is_found_and_freed_slots_wait_for_the_commit() {
        let extents = Extents::new(Layout::NextFit, 0, 10, 256);
        let slots: Vec<u32> = (0..5).filter_map(|hash| put(&extents, hash, 2)).collect();
        assert_eq!((slots.len(), put(&extents, 9, 2), extents.wanted()), (5, None, 2));
        extents.touch(slots[0]);
        assert_eq!(extents.oldest(), Some(place(1, slots[1], 2)));
        assert!(extents.release(slots[1]) && !extents.release(slots[1]));
        assert!(extents.release(slots[3]));
        assert_eq!((extents.slots(), extents.oldest()), ((0, 4, 6), Some(place(2, slots[2], 2))));
        // A call is still at the key with hash 3.
        let ready = extents.ready(|hash| hash != 3);
        assert_eq!(put(&extents, 9, 2), None);
        extents.settle(ready);
        assert_eq!((put(&extents, 9, 2), put(&extents, 10, 2)), (Some(slots[1]), None));
        extents.settle(extents.ready(|_| true));
        assert_eq!(put(&extents, 10, 2), Some(slots[3]));
    }

    #[test]
    fn what_is_gone_takes_no_room_from_what_is_there() {
        let row = |hash, slot, slots| PlaceRow { hash, slot, slots, used: 1 };
        // Files have the numbers from 100 on.
        let rows = vec![row(1, 0, 4), row(2, 100, 40), row(3, 101, 50), row(4, 102, 6), row(5, 103, 46)];
        let restored = |gone: &[u32]| {
            let extents = Extents::new(Layout::Slots, 0, 100, 4).with_long_files(100, 4);
            let found = extents.restore(rows.clone(), 0, |slot| gone.contains(&slot));
            let mut found: Vec<u128> = found.iter().map(|row| row.hash).collect();
            found.sort_unstable();
            (found, extents.slots())
        };
        assert_eq!(restored(&[100, 102]), (vec![1, 3, 5], (0, 0, 100)));
        assert_eq!(restored(&[101]), (vec![1, 2, 4, 5], (4, 0, 96)));
    }

    #[test]
    fn a_table_comes_back_from_its_image_in_the_order_of_use() {
        for layout in [Layout::Slots, Layout::NextFit] {
            let extents = Extents::new(layout, 64, 100_000, 256);
            let slots: Vec<u32> = (0..2000).filter_map(|hash| put(&extents, hash, 1 + hash as u32 % 7)).collect();
            for (hash, slot) in slots.iter().enumerate() {
                match hash % 3 {
                    0 => assert!(extents.release(*slot)),
                    1 => extents.touch(*slot),
                    _ => {}
                }
            }
            let words: Vec<u64> = (0..extents.slices()).flat_map(|slice| extents.image(slice)).collect();
            assert!(extents.image_bytes() as usize >= words.len() * 8);
            let row = |words: &[u64]| PlaceRow::from_words([words[0], words[1], words[2], words[3]]);
            let mut rows: Vec<PlaceRow> = words.chunks_exact(4).map(row).collect();
            let twice = rows[7];
            rows.push(twice);
            let copy = Extents::new(layout, 64, 100_000, 256);
            assert_eq!(copy.restore(rows, extents.cursor(), |_| false).len(), 1333, "what overlaps is left out");
            assert_eq!((copy.slots().2, copy.slots().0), (extents.slots().2, 100_000 - copy.slots().2));
            for _ in 0..1333 {
                let (a, b) = (extents.oldest().unwrap(), copy.oldest().unwrap());
                assert_eq!(a, b);
                assert!(extents.release(a.slot) && copy.release(a.slot));
            }
            assert_eq!(copy.oldest(), None);
        }
    }
}
