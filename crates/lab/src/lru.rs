//! Least recently used, by bytes: what the papers' caches all are.
//!
//! Entries lie in one vector and name their neighbours by number, and places are used again: a cache of a thousand
//! entries is asked millions of times between what has no place in a processor's cache, and as long as its entries were
//! strewn over the heap, a tenth of a run with a file for each object was waiting for them.

use std::{collections::HashMap, mem};

use crate::hash::ByHash;

/// No entry.
const NONE: u32 = u32::MAX;

struct Entry {
    key: u64,
    bytes: u64,
    version: u32,
    /// Used after this one; of a place that is free, the next free one.
    newer: u32,
    older: u32,
}

/// A cache of names and sizes.
pub struct Lru {
    capacity: u64,
    bytes: u64,
    entries: Vec<Entry>,
    /// Where the entry of a key is.
    places: HashMap<u64, u32, ByHash>,
    newest: u32,
    oldest: u32,
    free: u32,
}

impl Lru {
    /// An empty cache of so many bytes.
    pub fn new(capacity: u64) -> Self {
        let (entries, places) = (Vec::new(), HashMap::default());
        Self { capacity, bytes: 0, entries, places, newest: NONE, oldest: NONE, free: NONE }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Makes this object the most recent one and returns its version, if it is here.
    pub fn touch(&mut self, key: u64) -> Option<u32> {
        let at = *self.places.get(&key)?;
        if at != self.newest {
            self.unlink(at);
            self.link(at);
        }
        Some(self.entries[at as usize].version)
    }

    /// Takes an object in, and tells of each that leaves for it, before it enters. What is larger than the cache is not
    /// taken in. One that is here already is replaced.
    pub fn insert(&mut self, key: u64, bytes: u64, version: u32, mut left: impl FnMut(u64)) -> bool {
        if bytes > self.capacity {
            return false;
        }
        self.remove(key);
        while self.bytes + bytes > self.capacity
            && let Some(oldest) = self.entries.get(self.oldest as usize)
        {
            let oldest = oldest.key;
            self.remove(oldest);
            left(oldest);
        }
        self.bytes += bytes;
        let entry = Entry { key, bytes, version, newer: NONE, older: NONE };
        let at = self.free;
        let at = if let Some(place) = self.entries.get_mut(at as usize) {
            self.free = mem::replace(place, entry).newer;
            at
        } else {
            self.entries.push(entry);
            self.entries.len() as u32 - 1
        };
        self.places.insert(key, at);
        self.link(at);
        true
    }

    /// Takes an object out; false if it is not here.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(at) = self.places.remove(&key) else { return false };
        self.unlink(at);
        let entry = &mut self.entries[at as usize];
        self.bytes -= entry.bytes;
        entry.newer = self.free;
        self.free = at;
        true
    }

    /// Puts an entry at the new end.
    fn link(&mut self, at: u32) {
        let older = mem::replace(&mut self.newest, at);
        let entry = &mut self.entries[at as usize];
        (entry.older, entry.newer) = (older, NONE);
        match self.entries.get_mut(older as usize) {
            Some(older) => older.newer = at,
            None => self.oldest = at,
        }
    }

    fn unlink(&mut self, at: u32) {
        let Entry { older, newer, .. } = self.entries[at as usize];
        match self.entries.get_mut(newer as usize) {
            Some(newer) => newer.older = older,
            None => self.newest = older,
        }
        match self.entries.get_mut(older as usize) {
            Some(older) => older.newer = newer,
            None => self.oldest = newer,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_least_recent_leaves() {
        let mut lru = Lru::new(10);
        let mut left = Vec::new();
        for key in 1..=3 {
            assert!(lru.insert(key, 3, 7, |key| left.push(key)));
        }
        assert_eq!(lru.touch(1), Some(7));
        assert!(lru.insert(4, 4, 0, |key| left.push(key)));
        assert_eq!((&left[..], lru.len(), lru.bytes()), (&[2][..], 3, 10));
        assert!(!lru.insert(5, 11, 0, |_| panic!("nothing leaves for what does not fit")));
        assert!(lru.remove(3) && !lru.remove(3));
        assert!(lru.insert(6, 10, 0, |key| left.push(key)));
        assert_eq!((&left[..], lru.len(), lru.touch(6)), (&[2, 1, 4][..], 1, Some(0)));
    }

    #[test]
    fn does_what_a_list_would() {
        let mut dice = crate::synth::Dice::new(5, 1);
        let (mut lru, mut list) = (Lru::new(300), Vec::<(u64, u64)>::new());
        for round in 0..20_000_u32 {
            let key = dice.below(60);
            let here = list.iter().position(|(of, _)| *of == key);
            match dice.below(3) {
                0 => {
                    assert_eq!(lru.touch(key).is_some(), here.is_some(), "round {round}");
                    if let Some(at) = here {
                        let entry = list.remove(at);
                        list.push(entry);
                    }
                }
                1 => assert_eq!(lru.remove(key), here.map(|at| list.remove(at)).is_some()),
                _ => {
                    let (bytes, mut left, mut expected) = (1 + dice.below(40), Vec::new(), Vec::new());
                    assert!(lru.insert(key, bytes, round, |key| left.push(key)));
                    list.retain(|(of, _)| *of != key);
                    while list.iter().map(|(_, bytes)| bytes).sum::<u64>() + bytes > 300 {
                        expected.push(list.remove(0).0);
                    }
                    list.push((key, bytes));
                    assert_eq!((left, lru.touch(key)), (expected, Some(round)));
                }
            }
            assert_eq!((lru.len(), lru.bytes()), (list.len(), list.iter().map(|(_, bytes)| bytes).sum()));
        }
        assert!(lru.entries.len() <= 60, "places are used again: {}", lru.entries.len());
    }
}
