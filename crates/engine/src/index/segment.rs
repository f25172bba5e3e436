//! One segment of the index: buckets of eight words, grown an eighth at a time.
//!
//! An entry lies in its own bucket or in one other (`displaced`), which its tag names: bucketized cuckoo hashing
//! (Dietzfelbinger and Weidling, 2007) with partial keys (MemC3: Fan, Andersen and Kaminsky, NSDI 2013, section 3).
//! When neither has room, entries make way for each other; when that does not help, the segment grows by an eighth
//! and every entry is placed anew, from its place alone. So a segment is between about 85% and 97% full, however
//! many entries it holds.
//!
//! Invariants: `count` is the number of words that are not empty; at least [`BUCKETS_MIN`] buckets.

#[cfg(shuttle)]
use parking_lot::standard::Words;
use picaflor_common::sync::atomic::{AtomicU64, Ordering::Relaxed};
#[cfg(not(shuttle))]
use picaflor_device::Words;
use picaflor_device::prefetch;

use super::entry::{BUCKETS_MIN, IndexEntry, PLACE_BITS};

const SLOTS: usize = 8;
/// Entries that make way for one insertion before the segment grows instead.
const REACH: usize = 32;
/// In a page of memory.
const BUCKETS_PER_PAGE: usize = 4096 / size_of::<Bucket>();
/// How full a segment is to be after entries that were announced: between growing for them again and wasting room.
const RESERVED: (usize, usize) = (7, 8);

/// One cache line.
type Bucket = [AtomicU64; SLOTS];

/// Bytes of the smallest segment that is not empty.
pub(super) const BYTES_MIN: usize = BUCKETS_MIN * size_of::<Bucket>();

/// Where a entry is.
pub(super) type Slot = AtomicU64;

#[derive(Default)]
pub(super) struct Segment {
    /// The buckets, one behind the other.
    words: Words,
    pub(super) count: usize,
}

impl Segment {
    pub(super) fn bytes(&self) -> usize {
        size_of_val(&*self.words)
    }

    fn size(&self) -> usize {
        self.words.len() / SLOTS
    }

    fn bucket(&self, at: usize) -> &Bucket {
        &self.words.as_chunks().0[at]
    }

    fn home(&self, place: u32) -> usize {
        ((u64::from(place) * self.size() as u64) >> PLACE_BITS) as usize
    }

    /// How many buckets after its own an entry of this place lies if it is displaced: 1 to all but one.
    fn stride(&self, place: u32) -> usize {
        let spread = IndexEntry::tag_of(place).wrapping_mul(0x9e37_79b1);
        1 + ((u64::from(spread) * (self.size() as u64 - 1)) >> 32) as usize
    }

    /// The other bucket of a place.
    fn other(&self, place: u32) -> usize {
        let other = self.home(place) + self.stride(place);
        if other >= self.size() { other - self.size() } else { other }
    }

    /// The place of an entry that lies in this bucket.
    fn place_of(&self, entry: IndexEntry, bucket: usize) -> u32 {
        let size = self.size();
        let home = match entry.is_displaced() {
            false => bucket,
            // The stride needs the tag alone, which is the place's low bits.
            true => (bucket + size - self.stride(entry.tag())) % size,
        };
        entry.place(home, size)
    }

    /// The buckets in which an entry for `place` may lie: its own, and where it is displaced to.
    fn buckets(&self, place: u32) -> [&[Slot]; 2] {
        if self.words.is_empty() {
            return [&[], &[]];
        }
        let home = self.home(place);
        [self.bucket(home), self.bucket(self.other(place))]
    }

    /// Asks the processor for the two cache lines that [`Segment::matching`] looks at.
    pub(super) fn prefetch(&self, place: u32) {
        if !self.words.is_empty() {
            prefetch(self.bucket(self.home(place)));
            prefetch(self.bucket(self.other(place)));
        }
    }

    /// The slots whose entries may be for `place`.
    pub(super) fn matching(&self, place: u32) -> impl Iterator<Item = &Slot> {
        let [home, next] = self.buckets(place);
        let fits = move |slot: &&AtomicU64, displaced| IndexEntry(slot.load(Relaxed)).matches(place, displaced);
        let own = home.iter().filter(move |slot| fits(slot, false));
        own.chain(next.iter().filter(move |slot| fits(slot, true)))
    }

    /// Adds an entry.
    pub(super) fn insert(&mut self, mut place: u32, mut entry: IndexEntry) {
        while let Err(homeless) = self.try_insert(place, entry) {
            (place, entry) = homeless;
            self.grow();
        }
    }

    /// Adds an entry; gives back one that found no room, which need not be the same.
    fn try_insert(&mut self, place: u32, entry: IndexEntry) -> Result<(), (u32, IndexEntry)> {
        let (mut place, mut entry) = (place, entry);
        if self.words.is_empty() {
            return Err((place, entry));
        }
        let mut bucket = self.home(place);
        for step in 0..REACH {
            for (at, displaced) in [(self.home(place), false), (self.other(place), true)] {
                if let Some(slot) = self.free_slot(at) {
                    slot.store(entry.displaced(displaced).0, Relaxed);
                    self.count += 1;
                    return Ok(());
                }
            }
            // The entry that lies here has to move to its other bucket. A slot that is as good as random, and the same
            // each time: what is repeated from a seed stays repeatable.
            let slot = &self.bucket(bucket)[(place as usize + step) % SLOTS];
            let evicted = IndexEntry(slot.load(Relaxed));
            slot.store(entry.displaced(bucket != self.home(place)).0, Relaxed);
            place = self.place_of(evicted, bucket);
            bucket = if evicted.is_displaced() { self.home(place) } else { self.other(place) };
            entry = evicted;
        }
        Err((place, entry))
    }

    fn free_slot(&self, bucket: usize) -> Option<&Slot> {
        self.bucket(bucket).iter().find(|slot| slot.load(Relaxed) == 0)
    }

    /// Grows, if `more` entries would make it fuller than it should be.
    pub(super) fn reserve(&mut self, more: usize) {
        let slots = (self.count + more) * RESERVED.1 / RESERVED.0;
        if slots > self.size() * SLOTS {
            self.grow_to(slots.div_ceil(SLOTS));
        }
    }

    fn grow(&mut self) {
        self.grow_to(self.size() + (self.size() / 8).max(4));
    }

    fn grow_to(&mut self, buckets: usize) {
        let mut size = buckets.max(BUCKETS_MIN);
        let old = std::mem::take(self);
        loop {
            if size * size_of::<Bucket>() >= Words::MAPPED_MIN {
                // What is left of the last page would be memory that is not counted.
                size = size.next_multiple_of(BUCKETS_PER_PAGE);
            }
            *self = Self { words: Words::zeroed(size * SLOTS), count: 0 };
            if old.entries().all(|(place, entry)| self.try_insert(place, entry).is_ok()) {
                return;
            }
            size += (size / 8).max(4);
        }
    }

    /// All entries with their places.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, IndexEntry)> + '_ {
        self.words.as_chunks::<SLOTS>().0.iter().enumerate().flat_map(move |(at, bucket)| {
            bucket.iter().filter_map(move |slot| {
                let entry = IndexEntry(slot.load(Relaxed));
                (!entry.is_empty()).then(|| (self.place_of(entry, at), entry))
            })
        })
    }

    /// Every entry in order, empty ones too: the image that a checkpoint keeps.
    pub(super) fn image(&self) -> impl Iterator<Item = u64> + '_ {
        self.words.iter().map(|entry| entry.load(Relaxed))
    }

    /// The segment that an image describes, or `None` if no segment can have this image's length.
    pub(super) fn from_image(words: &[u64]) -> Option<Self> {
        if words.is_empty() {
            return Some(Self::default());
        }
        if !words.len().is_multiple_of(SLOTS) || words.len() / SLOTS < BUCKETS_MIN {
            return None;
        }
        let count = words.iter().filter(|entry| **entry != 0).count();
        let restored = Words::zeroed(words.len());
        restored.iter().zip(words).for_each(|(slot, entry)| slot.store(*entry, Relaxed));
        Some(Self { words: restored, count })
    }

    /// Changes or removes every entry for which `change` says so.
    pub(super) fn update_all(&mut self, mut change: impl FnMut(IndexEntry) -> IndexEntry) {
        for slot in self.words.iter() {
            let entry = IndexEntry(slot.load(Relaxed));
            if entry.is_empty() {
                continue;
            }
            let new = change(entry);
            slot.store(new.0, Relaxed);
            self.count -= usize::from(new.is_empty());
        }
    }
}
