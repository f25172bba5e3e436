//! BUDDY (Markatos et al. 1999, §3.4): objects of as many blocks lie in slots of that length; each takes the first free
//! slot of its class. Those longer than the threshold lie alone.
//!
//! The paper keeps each class in a file, which grows. Here a class grows by *areas*, several slots side by side, cut
//! from what is free; an area in which nothing lies any more is free space for all.
//!
//! Invariants: areas do not overlap; a slot of an area is in its class's free list or taken.

use std::collections::{BTreeMap, BTreeSet};

use super::runs::Runs;

/// Slots by which a class grows at a time, at least if there is room, and the bytes of them in blocks.
const AREA_SLOTS: u32 = 8;
const AREA_BLOCKS: u32 = 64;

#[derive(Clone, Copy)]
struct Area {
    /// Blocks of each slot.
    class: u32,
    slots: u32,
    taken: u32,
}

pub(crate) struct Slots {
    pub(super) runs: Runs,
    areas: BTreeMap<u32, Area>,
    /// Free slots of each class, by its blocks.
    free: Vec<BTreeSet<u32>>,
    /// Blocks in the free lists.
    listed: u64,
    /// Slots in them.
    listed_slots: usize,
    /// Most blocks of an area: a small device is not given to one class.
    area_max: u32,
    /// Blocks of the longest object that shares an area: the paper's THRESHOLD.
    threshold: u32,
}

impl Slots {
    pub(super) fn new(first: u32, blocks: u32, threshold: u32) -> Self {
        let mut runs = Runs::default();
        runs.give(first, blocks);
        let free = vec![BTreeSet::new(); threshold as usize + 1];
        Self { runs, areas: BTreeMap::new(), free, listed: 0, listed_slots: 0, area_max: blocks / 64, threshold }
    }

    pub(super) fn take(&mut self, blocks: u32) -> Option<u32> {
        if blocks > self.threshold {
            let found = self.runs.fit_from(0, blocks)?;
            self.runs.take_at(found, blocks);
            return Some(found);
        }
        if self.free[blocks as usize].is_empty() && !self.grow(blocks) {
            return None;
        }
        self.pop(blocks)
    }

    /// A slot for a piece of an object that had to be cut: of a longer class, if its own has none. With its length.
    pub(super) fn take_any(&mut self, blocks: u32) -> Option<(u32, u32)> {
        self.take_up_to(blocks, self.threshold)
    }

    /// The same for a whole object, of up to twice its length: the paper's files would grow instead, but here all
    /// classes share what there is, and who has no slot would cost others theirs.
    pub(super) fn take_near(&mut self, blocks: u32) -> Option<(u32, u32)> {
        self.take_up_to(blocks, self.threshold.min(2 * blocks))
    }

    fn take_up_to(&mut self, blocks: u32, most: u32) -> Option<(u32, u32)> {
        if let Some(slot) = self.take(blocks) {
            return Some((slot, blocks));
        }
        let class = (blocks..=most).find(|class| !self.free[*class as usize].is_empty())?;
        Some((self.pop(class)?, class))
    }

    fn pop(&mut self, class: u32) -> Option<u32> {
        let slot = self.free[class as usize].pop_first()?;
        self.listed -= u64::from(class);
        self.listed_slots -= 1;
        if let Some((_, area)) = self.areas.range_mut(..=slot).next_back() {
            area.taken += 1;
        }
        Some(slot)
    }

    /// Cuts another area for a class: as many slots side by side as are worth it, else a single one.
    fn grow(&mut self, class: u32) -> bool {
        let wanted = AREA_SLOTS.max(AREA_BLOCKS / class).min(self.area_max / class).max(1);
        for slots in [wanted, 1] {
            if let Some(start) = self.runs.fit_from(0, slots * class) {
                self.runs.take_at(start, slots * class);
                self.areas.insert(start, Area { class, slots, taken: 0 });
                (0..slots).for_each(|i| self.list(class, start + i * class));
                return true;
            }
        }
        false
    }

    fn list(&mut self, class: u32, slot: u32) {
        self.free[class as usize].insert(slot);
        self.listed += u64::from(class);
        self.listed_slots += 1;
    }

    pub(super) fn give(&mut self, slot: u32, blocks: u32) {
        if blocks > self.threshold {
            return self.runs.give(slot, blocks);
        }
        self.list(blocks, slot);
        let Some((&start, area)) = self.areas.range_mut(..=slot).next_back() else { return };
        area.taken -= 1;
        if area.taken > 0 {
            return;
        }
        let Area { class, slots, .. } = *area;
        self.areas.remove(&start);
        for i in 0..slots {
            self.free[class as usize].remove(&(start + i * class));
        }
        self.listed -= u64::from(slots * class);
        self.listed_slots -= slots as usize;
        self.runs.give(start, slots * class);
    }

    /// Takes this very place, as an opening found it. Neighbours of one class become an area together, so ask in
    /// address order.
    pub(super) fn take_at(&mut self, slot: u32, blocks: u32) -> bool {
        if !self.runs.take_at(slot, blocks) {
            return false;
        }
        if blocks > self.threshold {
            return true;
        }
        match self.areas.range_mut(..=slot).next_back() {
            Some((start, area)) if area.class == blocks && start + area.slots * area.class == slot => {
                area.slots += 1;
                area.taken += 1;
            }
            _ => drop(self.areas.insert(slot, Area { class: blocks, slots: 1, taken: 1 })),
        }
        true
    }

    /// Free blocks, those included that only one class can use.
    pub(super) fn free(&self) -> u64 {
        self.runs.free() + self.listed
    }

    /// Blocks of the longest object that finds a place.
    pub(super) fn longest(&self) -> u32 {
        let class = (0..=self.threshold).rev().find(|class| !self.free[*class as usize].is_empty());
        self.runs.longest().max(class.unwrap_or(0))
    }

    /// How many pieces of so many blocks find a place.
    pub(super) fn holds(&self, blocks: u32) -> u64 {
        let listed: usize = self.free.iter().skip(blocks as usize).map(BTreeSet::len).sum();
        listed as u64 + self.runs.holds(blocks)
    }

    pub(super) fn bytes(&self) -> usize {
        self.runs.count() * Runs::BYTES + self.areas.len() * 24 + self.listed_slots * 6
    }

    #[cfg(test)]
    fn class_of(&self, slot: u32) -> Option<u32> {
        self.areas.range(..=slot).next_back().map(|(_, area)| area.class)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const THRESHOLD: u32 = 256;

    #[test]
    fn the_first_free_slot_of_the_class() {
        let mut space = Slots::new(1000, 100_000, THRESHOLD);
        let threes: Vec<u32> = (0..30).filter_map(|_| space.take(3)).collect();
        assert_eq!(threes[..4], [1000, 1003, 1006, 1009]);
        let five = space.take(5).unwrap();
        assert_eq!(space.class_of(five), Some(5));
        space.give(1009, 3);
        space.give(1003, 3);
        assert_eq!(space.take(3), Some(1003));
        assert_eq!(space.take(3), Some(1009));
        let alone = space.take(THRESHOLD + 1).unwrap();
        space.give(alone, THRESHOLD + 1);
        for slot in threes.into_iter().chain([five]) {
            let class = space.class_of(slot).unwrap();
            space.give(slot, class);
        }
        assert_eq!((space.free(), space.runs.count(), space.areas.len()), (100_000, 1, 0), "all is one run again");
    }

    #[test]
    fn what_an_opening_found_is_taken_and_given_back() {
        let mut space = Slots::new(0, 1000, THRESHOLD);
        for slot in [100, 103, 106, 109, 200] {
            assert!(space.take_at(slot, 3));
        }
        assert!(!space.take_at(201, 3));
        assert_eq!(space.areas.len(), 2);
        assert!(space.take_at(300, 400));
        for slot in [103, 109, 100, 106, 200] {
            space.give(slot, 3);
        }
        space.give(300, 400);
        assert_eq!((space.free(), space.runs.longest(), space.areas.len()), (1000, 1000, 0));
    }

    #[test]
    fn the_last_free_run_serves_a_class_slot_by_slot() {
        let mut space = Slots::new(0, 30, THRESHOLD);
        assert!((0..3).all(|_| space.take(10).is_some()));
        assert_eq!(space.take(1), None);
        space.give(10, 10);
        assert_eq!((space.longest(), space.take(4)), (10, Some(10)));
    }

    #[test]
    fn where_a_class_cannot_grow_a_longer_one_helps_out() {
        let mut space = Slots::new(0, 1280, THRESHOLD);
        assert!((0..128).all(|_| space.take(10).is_some()));
        space.give(20, 10);
        space.give(40, 10);
        assert_eq!(space.take_near(4), None, "more than twice as long");
        assert_eq!((space.take_near(5), space.take_any(1)), (Some((20, 10)), Some((40, 10))));
    }
}
