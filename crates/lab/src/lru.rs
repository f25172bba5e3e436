//! Least recently used, by bytes: what the papers' caches all are.

use lru::LruCache;

/// A cache of names and sizes.
pub struct Lru {
    capacity: u64,
    bytes: u64,
    /// By key: bytes and version.
    entries: LruCache<u64, (u64, u32)>,
}

impl Lru {
    /// An empty cache of so many bytes.
    pub fn new(capacity: u64) -> Self {
        Self { capacity, bytes: 0, entries: LruCache::unbounded() }
    }

    /// Bytes held.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Objects held.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing is held.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Makes this object the most recent one and returns its version, if it is here.
    pub fn touch(&mut self, key: u64) -> Option<u32> {
        self.entries.get(&key).map(|(_, version)| *version)
    }

    /// Takes an object in, and tells of each that leaves for it, before it enters. What is larger than the cache is not
    /// taken in. One that is here already is replaced.
    pub fn insert(&mut self, key: u64, bytes: u64, version: u32, mut left: impl FnMut(u64)) -> bool {
        if bytes > self.capacity {
            return false;
        }
        self.remove(key);
        while self.bytes + bytes > self.capacity
            && let Some((oldest, (freed, _))) = self.entries.pop_lru()
        {
            self.bytes -= freed;
            left(oldest);
        }
        self.bytes += bytes;
        self.entries.put(key, (bytes, version));
        true
    }

    /// Takes an object out; false if it is not here.
    pub fn remove(&mut self, key: u64) -> bool {
        let removed = self.entries.pop(&key);
        self.bytes -= removed.map_or(0, |(bytes, _)| bytes);
        removed.is_some()
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
