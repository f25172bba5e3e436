//! The index: from a key's hash to where the object is, in memory, 10 bytes per object at most.
//!
//! Segments are chosen by the hash's high bits and locked one by one, for tens of nanoseconds; a
//! growing segment for tens of microseconds. The index keeps no keys: a *candidate* is an entry whose
//! 17-bit tag fits, and the reader of its frame checks the full key. Two keys with the same place are two
//! entries.
//!
//! Invariants: an entry is changed only under its segment's write lock, but for its use bits, which a
//! get raises under the read lock.

mod entry;
mod segment;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

pub use entry::IndexEntry;
pub(crate) use entry::{GRAINS_MAX, Location, SLOTS_MAX};
use parking_lot::RwLock;
use segment::{Segment, Slot};

pub(crate) struct Index {
    segments: Box<[RwLock<Segment>]>,
    bits: u32,
    objects: AtomicU64,
    /// Grains of what all entries lead to.
    grains: AtomicU64,
    /// Bytes of the segments.
    own_bytes: AtomicU64,
    /// Bytes of the indexes of all volumes of the store.
    bytes: Arc<AtomicU64>,
}

/// What became of [`Index::put`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Entered {
    /// A new entry.
    Added,
    /// In place of the old one.
    Replaced,
    /// Not at all: the old one is not where it was.
    OldGone,
}

/// Entries that may be for one key; nearly always none or one.
pub(crate) type Candidates = smallvec::SmallVec<[IndexEntry; 4]>;

impl Index {
    /// log2 of the number of segments for a device of this size: one to two thousand objects of 8 KiB in each. A
    /// segment is never smaller than 8 KiB, and all together take at most a quarter of the memory.
    pub(crate) fn segment_bits(capacity: u64, memory: u64) -> u32 {
        (capacity >> 24).min(memory >> 16).clamp(4, 1 << 20).next_power_of_two().trailing_zeros()
    }

    /// Bytes of an index with at least one object in each segment.
    pub(crate) fn least_bytes(bits: u32) -> u64 {
        (segment::BYTES_MIN as u64) << bits
    }

    /// Bytes of an empty one.
    pub(crate) fn empty_bytes(bits: u32) -> u64 {
        (size_of::<RwLock<Segment>>() as u64) << bits
    }

    /// An empty index that adds its bytes of memory to `bytes`.
    pub(crate) fn new(bits: u32, bytes: Arc<AtomicU64>) -> Self {
        let segments = (0..1usize << bits).map(|_| RwLock::new(Segment::default())).collect::<Box<[_]>>();
        bytes.fetch_add(Self::empty_bytes(bits), Relaxed);
        let (objects, grains, own_bytes) = Default::default();
        Self { segments, bits, objects, grains, own_bytes, bytes }
    }

    fn spot(&self, hash: u64) -> (&RwLock<Segment>, u32) {
        (&self.segments[self.segment_of(hash)], hash as u32 & ((1 << entry::PLACE_BITS) - 1))
    }

    /// Asks the processor for the entries of a key that will be wanted in a moment.
    pub(crate) fn prefetch(&self, hash: u64) {
        let (segment, place) = self.spot(hash);
        segment.read().prefetch(place);
    }

    /// The bits of a hash by which entries are told apart: keys that have these in common have the same candidates.
    pub(crate) fn told_apart_by(&self) -> u64 {
        !(u64::MAX >> self.bits) | ((1 << entry::PLACE_BITS) - 1)
    }

    /// The entries that may be for this key, newest last.
    pub(crate) fn candidates(&self, hash: u64) -> Candidates {
        let (segment, place) = self.spot(hash);
        segment.read().matching(place).map(|slot| IndexEntry(slot.load(Relaxed))).collect()
    }

    /// As [`Index::candidates`], noting that they were asked for.
    pub(crate) fn touch(&self, hash: u64) -> Candidates {
        let (segment, place) = self.spot(hash);
        let segment = segment.read();
        let touch = |slot: &Slot| {
            let entry = IndexEntry(slot.load(Relaxed));
            if entry.uses() < 3 {
                // Two gets at once may count as one; losing a count is harmless, losing a put is not:
                // puts hold the write lock, so the entry cannot change between load and store.
                slot.store(entry.with_uses(entry.uses() + 1).0, Relaxed);
            }
            entry
        };
        segment.matching(place).map(touch).collect()
    }

    /// Which segment holds the entries of this hash. Larger hashes are in the same one or in a later one.
    pub(crate) fn segment_of(&self, hash: u64) -> usize {
        (hash >> (64 - self.bits)) as usize
    }

    /// Makes room for `more` entries in the segment of this hash at once, rather than by an eighth again and again.
    pub(crate) fn reserve(&self, hash: u64, more: usize) {
        let mut segment = self.segments[self.segment_of(hash)].write();
        let before = segment.bytes();
        segment.reserve(more);
        self.grew(segment.bytes() - before);
    }

    /// Adds an entry, unless there are some already that may be for this key.
    ///
    /// # Errors
    /// Those.
    pub(crate) fn add(&self, hash: u64, location: Location, grains: u32) -> Result<(), Candidates> {
        let (segment, place) = self.spot(hash);
        let mut segment = segment.write();
        let known: Candidates = segment.matching(place).map(|slot| IndexEntry(slot.load(Relaxed))).collect();
        if !known.is_empty() {
            return Err(known);
        }
        self.insert(&mut segment, place, IndexEntry::new(place, location, grains));
        Ok(())
    }

    fn insert(&self, segment: &mut Segment, place: u32, new: IndexEntry) {
        let before = segment.bytes();
        segment.insert(place, new);
        self.grew(segment.bytes() - before);
        self.objects.fetch_add(1, Relaxed);
        self.grains.fetch_add(new.grains().into(), Relaxed);
    }

    /// Adds an entry, or puts it in place of `old` if that is given. If `old` is no longer there, nothing
    /// is changed: it may have moved, and then two entries would be of one key.
    pub(crate) fn put(&self, hash: u64, location: Location, grains: u32, old: Option<IndexEntry>) -> Entered {
        let (segment, place) = self.spot(hash);
        let new = IndexEntry::new(place, location, grains);
        let mut segment = segment.write();
        if let Some(old) = old {
            let Some(slot) = segment.matching(place).find(|slot| IndexEntry(slot.load(Relaxed)).same(old)) else {
                return Entered::OldGone;
            };
            let found = IndexEntry(slot.load(Relaxed));
            slot.store(new.displaced(found.is_displaced()).0, Relaxed);
            self.changed(found, new);
            return Entered::Replaced;
        }
        self.insert(&mut segment, place, new);
        Entered::Added
    }

    /// Changes `old` into what `change` makes of it, or removes it if that is empty. Returns the entry as
    /// it was, or `None` if `old` is no longer there.
    pub(crate) fn change(
        &self,
        hash: u64,
        old: IndexEntry,
        change: impl FnOnce(IndexEntry) -> IndexEntry,
    ) -> Option<IndexEntry> {
        let (segment, place) = self.spot(hash);
        let mut segment = segment.write();
        let slot = segment.matching(place).find(|slot| IndexEntry(slot.load(Relaxed)).same(old))?;
        let found = IndexEntry(slot.load(Relaxed));
        let new = change(found);
        slot.store(new.0, Relaxed);
        self.changed(found, new);
        if new.is_empty() {
            segment.count -= 1;
            self.objects.fetch_sub(1, Relaxed);
        }
        Some(found)
    }

    /// Removes `old` if it is still there.
    pub(crate) fn remove(&self, hash: u64, old: IndexEntry) -> Option<IndexEntry> {
        self.change(hash, old, |_| IndexEntry::EMPTY)
    }

    /// The entry at this location, if the key still has it.
    pub(crate) fn find(&self, hash: u64, location: Location) -> Option<IndexEntry> {
        self.candidates(hash).into_iter().find(|entry| entry.location() == location)
    }

    pub(crate) fn objects(&self) -> u64 {
        self.objects.load(Relaxed)
    }

    /// Grains of what all entries lead to, to within an eighth.
    pub(crate) fn grains(&self) -> u64 {
        self.grains.load(Relaxed)
    }

    fn changed(&self, old: IndexEntry, new: IndexEntry) {
        if old.grains() != new.grains() {
            self.grains.fetch_add(new.grains().into(), Relaxed);
            self.grains.fetch_sub(old.grains().into(), Relaxed);
        }
    }

    fn grew(&self, bytes: usize) {
        if bytes == 0 {
            return;
        }
        self.bytes.fetch_add(bytes as u64, Relaxed);
        self.own_bytes.fetch_add(bytes as u64, Relaxed);
    }

    /// Whether more entries mean more memory. A segment that grows is nine tenths full, and no less than eight behind
    /// it: after a tenth has left, those that come find room.
    pub(crate) fn is_loaded(&self) -> bool {
        self.objects() * size_of::<IndexEntry>() as u64 * 10 >= self.own_bytes.load(Relaxed) * 8
    }

    /// Bytes of an image of all segments.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.own_bytes.load(Relaxed)
    }

    /// The entries of a segment, each with the bits of its hash that [tell it apart](Index::told_apart_by).
    pub(crate) fn entries_in(&self, segment: u32) -> Vec<(u64, IndexEntry)> {
        let high = u64::from(segment) << (64 - self.bits);
        let segment = self.segments[segment as usize].read();
        segment.entries().map(|(place, entry)| (high | u64::from(place), entry)).collect()
    }

    pub(crate) fn segment_count(&self) -> u32 {
        self.segments.len() as u32
    }

    /// A segment's image. `place_of` says where a buffered entry lies on the device; `None` leaves the
    /// entry out.
    pub(crate) fn image(&self, segment: u32, place_of: impl Fn(u32, u32) -> Option<u64>) -> Vec<u64> {
        let image = |raw| match IndexEntry(raw).location() {
            Location::Buffered { slot, offset } if raw != 0 => match place_of(slot, offset) {
                Some(grain) => IndexEntry(raw).at(Location::OnDisk { grain }).0,
                None => 0,
            },
            _ => raw,
        };
        self.segments[segment as usize].read().image().map(image).collect()
    }

    /// Restores a segment from its image. `None` if the number or the image cannot be right.
    pub(crate) fn restore(&self, segment: u32, words: &[u64]) -> Option<()> {
        let mut place = self.segments.get(segment as usize)?.write();
        let restored = Segment::from_image(words)?;
        let grains = |segment: &Segment| segment.entries().map(|(_, entry)| u64::from(entry.grains())).sum();
        self.grains.fetch_add(grains(&restored), Relaxed);
        self.grains.fetch_sub(grains(&place), Relaxed);
        self.objects.fetch_add(restored.count as u64, Relaxed);
        self.objects.fetch_sub(place.count as u64, Relaxed);
        let before = place.bytes();
        self.bytes.fetch_sub(before as u64, Relaxed);
        self.own_bytes.fetch_sub(before as u64, Relaxed);
        self.grew(restored.bytes());
        *place = restored;
        Some(())
    }

    /// Changes or removes every entry for which `change` says so, segment by segment.
    pub(crate) fn update_all(&self, mut change: impl FnMut(IndexEntry) -> IndexEntry) {
        for segment in &self.segments {
            let mut segment = segment.write();
            let before = segment.count;
            segment.update_all(|entry| {
                let new = change(entry);
                self.changed(entry, new);
                new
            });
            self.objects.fetch_sub((before - segment.count) as u64, Relaxed);
        }
    }

    /// Looks at every entry, segment by segment.
    pub(crate) fn for_each(&self, mut see: impl FnMut(IndexEntry)) {
        for segment in &self.segments {
            segment.read().entries().for_each(|(_, entry)| see(entry));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mix(i: u64) -> u64 {
        xxhash_rust::xxh3::xxh3_64_with_seed(&i.to_le_bytes(), 9)
    }

    #[test]
    fn holds_what_was_put_in_under_ten_bytes_each() {
        // Few entries in each segment, and many.
        for bits in [6, 3] {
            let index = Index::new(bits, Arc::default());
            for i in 0..200_000u64 {
                index.put(mix(i), Location::OnDisk { grain: i }, 50, None);
                if i > 100_000 && i % 5_000 == 0 {
                    let each = index.bytes.load(Relaxed) as f64 / index.objects() as f64;
                    assert!(each <= 10.0, "{each} bytes at {i} with {} segments", index.segment_count());
                }
            }
            for i in 0..200_000u64 {
                assert!(index.find(mix(i), Location::OnDisk { grain: i }).is_some(), "{i}");
            }
            assert_eq!(index.objects(), 200_000);
        }
    }

    #[test]
    fn replaces_removes_and_survives_an_image() {
        let index = Index::new(6, Arc::default());
        for i in 0..5_000u64 {
            index.put(mix(i), Location::OnDisk { grain: i }, 50, None);
        }
        for i in 0..5_000u64 {
            let old = index.find(mix(i), Location::OnDisk { grain: i }).unwrap();
            match i % 3 {
                0 => assert_eq!(
                    index.put(mix(i), Location::OnDisk { grain: i + 9_000 }, 60, Some(old)),
                    Entered::Replaced
                ),
                1 => assert!(index.remove(mix(i), old).is_some()),
                _ => {}
            }
        }
        let copy = Index::new(6, Arc::default());
        for segment in 0..index.segment_count() {
            copy.restore(segment, &index.image(segment, |_, _| None)).unwrap();
        }
        let mut grains = 0;
        copy.for_each(|entry| grains += u64::from(entry.grains()));
        assert_eq!((copy.objects(), copy.grains(), index.grains()), (index.objects(), grains, grains));
        index.update_all(|entry| if entry.grains() > 50 { IndexEntry::EMPTY } else { entry });
        assert_eq!(index.grains(), index.objects() * 52, "they count as 52");
        for i in 0..5_000u64 {
            let grain = if i % 3 == 0 { i + 9_000 } else { i };
            let found = copy.find(mix(i), Location::OnDisk { grain });
            assert_eq!(found.is_some(), i % 3 != 1, "{i}");
        }
    }

    #[test]
    fn uses_are_counted_and_kept_when_moved() {
        let index = Index::new(6, Arc::default());
        index.put(5, Location::Buffered { slot: 1, offset: 2 }, 3, None);
        for _ in 0..5 {
            index.touch(5);
        }
        let entry = index.candidates(5)[0];
        assert_eq!(entry.uses(), 3);
        index.change(5, entry, |entry| entry.at(Location::OnDisk { grain: 4 }));
        assert_eq!(index.candidates(5)[0].uses(), 3);
        assert_eq!(index.candidates(5)[0].location(), Location::OnDisk { grain: 4 });
    }
}
