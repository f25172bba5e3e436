//! One segment of the index: buckets of eight words, grown an eighth at a time.
//!
//! An entry lies in its own bucket or in the next one (`displaced`). When neither has room, entries are
//! pushed along; when that does not help the segment grows by an eighth and every entry is placed anew,
//! from its place alone. So a segment is always between about 80% and 95% full.
//!
//! Invariants: `count` is the number of words that are not empty; at least [`BUCKETS_MIN`] buckets.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use super::word::{BUCKETS_MIN, PLACE_BITS, Word};

const SLOTS: usize = 8;
/// Buckets that an insertion pushes entries along before the segment grows instead.
const REACH: usize = 16;

/// Bytes of the smallest segment that is not empty.
pub(super) const BYTES_MIN: usize = BUCKETS_MIN * size_of::<Bucket>();

#[repr(align(64))]
struct Bucket([AtomicU64; SLOTS]);

impl Bucket {
    fn empty() -> Self {
        Self([const { AtomicU64::new(0) }; SLOTS])
    }
}

#[derive(Default)]
pub(super) struct Segment {
    buckets: Box<[Bucket]>,
    pub(super) count: usize,
}

impl Segment {
    pub(super) fn bytes(&self) -> usize {
        self.buckets.len() * size_of::<Bucket>()
    }

    fn home(&self, place: u32) -> usize {
        ((u64::from(place) * self.buckets.len() as u64) >> PLACE_BITS) as usize
    }

    fn next(&self, home: usize) -> usize {
        if home + 1 == self.buckets.len() { 0 } else { home + 1 }
    }

    /// The buckets in which an entry for `place` may lie: its own, and where it is displaced to.
    fn buckets(&self, place: u32) -> [&[AtomicU64]; 2] {
        if self.buckets.is_empty() {
            return [&[], &[]];
        }
        let home = self.home(place);
        [&self.buckets[home].0, &self.buckets[self.next(home)].0]
    }

    /// The slots whose entries may be for `place`.
    pub(super) fn matching(&self, place: u32) -> impl Iterator<Item = &AtomicU64> {
        let [home, next] = self.buckets(place);
        let fits = move |slot: &&AtomicU64, displaced| Word(slot.load(Relaxed)).matches(place, displaced);
        let own = home.iter().filter(move |slot| fits(slot, false));
        own.chain(next.iter().filter(move |slot| fits(slot, true)))
    }

    /// Adds an entry.
    pub(super) fn insert(&mut self, place: u32, word: Word) {
        while !self.try_insert(place, word) {
            self.grow();
        }
    }

    fn try_insert(&mut self, place: u32, word: Word) -> bool {
        if self.buckets.is_empty() {
            return false;
        }
        let home = self.home(place);
        if self.free_slot(home).is_none() && self.free_slot(self.next(home)).is_none() {
            self.push_along(self.next(home));
        }
        let next = self.next(home);
        let own = self.free_slot(home).map(|slot| (slot, false));
        let Some((slot, displaced)) = own.or_else(|| self.free_slot(next).map(|slot| (slot, true))) else {
            return false;
        };
        slot.store(word.displaced(displaced).0, Relaxed);
        self.count += 1;
        true
    }

    fn free_slot(&self, bucket: usize) -> Option<&AtomicU64> {
        self.buckets[bucket].0.iter().find(|slot| slot.load(Relaxed) == 0)
    }

    /// Frees a slot in `bucket`, if a bucket not far behind it has room: each bucket on the way hands one
    /// of its own entries to the next, where it is displaced (as hopscotch hashing does).
    fn push_along(&self, bucket: usize) {
        let mut full = Vec::with_capacity(REACH);
        let mut at = bucket;
        while self.free_slot(at).is_none() {
            full.push(at);
            at = self.next(at);
            if full.len() == REACH {
                return;
            }
        }
        for from in full.into_iter().rev() {
            let is_own = |slot: &&AtomicU64| !Word(slot.load(Relaxed)).is_displaced();
            let Some(own) = self.buckets[from].0.iter().find(is_own) else { return };
            let Some(free) = self.free_slot(self.next(from)) else { return };
            free.store(Word(own.load(Relaxed)).displaced(true).0, Relaxed);
            own.store(0, Relaxed);
        }
    }

    fn grow(&mut self) {
        let mut size = (self.buckets.len() + (self.buckets.len() / 8).max(4)).max(BUCKETS_MIN);
        let entries: Vec<(u32, Word)> = self.entries().collect();
        loop {
            self.buckets = (0..size).map(|_| Bucket::empty()).collect();
            self.count = 0;
            if entries.iter().all(|&(place, word)| self.try_insert(place, word)) {
                return;
            }
            size += (size / 8).max(4);
        }
    }

    /// All entries with their places.
    pub(super) fn entries(&self) -> impl Iterator<Item = (u32, Word)> + '_ {
        let size = self.buckets.len();
        self.buckets.iter().enumerate().flat_map(move |(at, bucket)| {
            bucket.0.iter().filter_map(move |slot| {
                let word = Word(slot.load(Relaxed));
                let home = match (word.is_displaced(), at) {
                    (false, at) => at,
                    (true, 0) => size - 1,
                    (true, at) => at - 1,
                };
                (!word.is_empty()).then(|| (word.place(home, size), word))
            })
        })
    }

    /// Every word in order, empty ones too: the image that a checkpoint keeps.
    pub(super) fn image(&self) -> impl Iterator<Item = u64> + '_ {
        (0..self.buckets.len() * SLOTS).map(|i| self.buckets[i / SLOTS].0[i % SLOTS].load(Relaxed))
    }

    /// The segment that an image describes, or `None` if no segment can have this image's length.
    pub(super) fn from_image(words: &[u64]) -> Option<Self> {
        if words.is_empty() {
            return Some(Self::default());
        }
        if !words.len().is_multiple_of(SLOTS) || words.len() / SLOTS < BUCKETS_MIN {
            return None;
        }
        let count = words.iter().filter(|word| **word != 0).count();
        let buckets =
            words.chunks_exact(SLOTS).map(|chunk| Bucket(std::array::from_fn(|i| AtomicU64::new(chunk[i])))).collect();
        Some(Self { buckets, count })
    }

    /// Changes or removes every entry for which `change` says so.
    pub(super) fn update_all(&mut self, mut change: impl FnMut(Word) -> Word) {
        for slot in self.buckets.iter().flat_map(|bucket| &bucket.0) {
            let word = Word(slot.load(Relaxed));
            if word.is_empty() {
                continue;
            }
            let new = change(word);
            slot.store(new.0, Relaxed);
            self.count -= usize::from(new.is_empty());
        }
    }
}
