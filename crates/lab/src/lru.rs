//! Least recently used, by bytes: what the papers' caches all are.

use std::collections::HashMap;

/// No neighbour in the list.
const NONE: u32 = u32::MAX;

struct Node {
    key: u64,
    bytes: u64,
    version: u32,
    older: u32,
    newer: u32,
}

/// A cache of names and sizes.
pub struct Lru {
    capacity: u64,
    bytes: u64,
    places: HashMap<u64, u32>,
    nodes: Vec<Node>,
    free: Vec<u32>,
    oldest: u32,
    newest: u32,
}

impl Lru {
    /// An empty cache of so many bytes.
    pub fn new(capacity: u64) -> Self {
        Self {
            capacity,
            bytes: 0,
            places: HashMap::new(),
            nodes: Vec::new(),
            free: Vec::new(),
            oldest: NONE,
            newest: NONE,
        }
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
        Some(self.nodes[at as usize].version)
    }

    /// The version of an object that is here, its place unchanged.
    pub fn version(&self, key: u64) -> Option<u32> {
        self.places.get(&key).map(|at| self.nodes[*at as usize].version)
    }

    /// Takes an object in that is not here, and tells of each that leaves for it, before it enters. What is larger
    /// than the cache is not taken in.
    pub fn insert(&mut self, key: u64, bytes: u64, version: u32, mut left: impl FnMut(u64)) -> bool {
        if bytes > self.capacity {
            return false;
        }
        while self.bytes + bytes > self.capacity
            && let Some(key) = self.pop_oldest()
        {
            left(key);
        }
        let node = Node { key, bytes, version, older: NONE, newer: NONE };
        let at = match self.free.pop() {
            Some(at) => {
                self.nodes[at as usize] = node;
                at
            }
            None => {
                self.nodes.push(node);
                (self.nodes.len() - 1) as u32
            }
        };
        self.places.insert(key, at);
        self.bytes += bytes;
        self.link(at);
        true
    }

    /// Takes an object out; false if it is not here.
    pub fn remove(&mut self, key: u64) -> bool {
        let Some(at) = self.places.remove(&key) else { return false };
        self.unlink(at);
        self.bytes -= self.nodes[at as usize].bytes;
        self.free.push(at);
        true
    }

    fn pop_oldest(&mut self) -> Option<u64> {
        let key = self.nodes.get(self.oldest as usize)?.key;
        self.remove(key);
        Some(key)
    }

    fn link(&mut self, at: u32) {
        let newest = self.newest;
        let node = &mut self.nodes[at as usize];
        (node.older, node.newer) = (newest, NONE);
        match self.nodes.get_mut(newest as usize) {
            Some(node) => node.newer = at,
            None => self.oldest = at,
        }
        self.newest = at;
    }

    fn unlink(&mut self, at: u32) {
        let Node { older, newer, .. } = self.nodes[at as usize];
        match self.nodes.get_mut(older as usize) {
            Some(node) => node.newer = newer,
            None => self.oldest = newer,
        }
        match self.nodes.get_mut(newer as usize) {
            Some(node) => node.older = older,
            None => self.newest = older,
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
        assert_eq!((&left[..], lru.len(), lru.version(6)), (&[2, 1, 4][..], 1, Some(0)));
    }
}
