//! A directory that is a tree: names in order in buffers, a block each, that divide in the middle when they are full.
//!
//! What stands above these buffers is one for each twenty or more of them, and every search passes it: it is taken to
//! be in memory, and costs nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

use super::profile::RecordsProfile;

pub(crate) struct Index {
    /// By the first name that may stand in it.
    buffers: BTreeMap<Box<str>, Buffer>,
    /// Bytes of a buffer for entries, and of an entry beside its name.
    room: u64,
    entry: u64,
}

#[derive(Default)]
struct Buffer {
    number: u32,
    bytes: u64,
    names: BTreeSet<Box<str>>,
}

fn up_to(name: &str) -> (Bound<&str>, Bound<&str>) {
    (Bound::Unbounded, Bound::Included(name))
}

impl Index {
    /// With one buffer, number 0.
    pub(crate) fn new(profile: &RecordsProfile, block: u64) -> Self {
        let buffers = BTreeMap::from([("".into(), Buffer::default())]);
        Self { buffers, room: block - profile.buffer_header, entry: profile.entry }
    }

    fn bytes(&self, name: &str) -> u64 {
        // Characters of two bytes; entries begin at multiples of eight.
        (self.entry + 2 * name.chars().count() as u64).next_multiple_of(8)
    }

    fn buffer(&self, name: &str) -> Option<&Buffer> {
        self.buffers.range::<str, _>(up_to(name)).next_back().map(|(_, buffer)| buffer)
    }

    fn buffer_mut(&mut self, name: &str) -> Option<&mut Buffer> {
        self.buffers.range_mut::<str, _>(up_to(name)).next_back().map(|(_, buffer)| buffer)
    }

    /// The buffer in which a name stands, or would.
    pub(crate) fn number(&self, name: &str) -> u32 {
        self.buffer(name).map_or(0, |buffer| buffer.number)
    }

    /// Whether its buffer has no room for this name.
    pub(crate) fn is_full(&self, name: &str) -> bool {
        self.buffer(name).is_some_and(|buffer| buffer.bytes + self.bytes(name) > self.room)
    }

    /// The upper half of the buffer of this name becomes another one.
    pub(crate) fn divide(&mut self, name: &str, number: u32) {
        let Some(buffer) = self.buffer_mut(name) else { return };
        let Some(middle) = buffer.names.iter().nth(buffer.names.len() / 2).cloned() else { return };
        let names = buffer.names.split_off(&middle);
        let bytes = names.iter().map(|name| self.bytes(name)).sum();
        if let Some(buffer) = self.buffer_mut(name) {
            buffer.bytes -= bytes;
        }
        self.buffers.insert(middle, Buffer { number, bytes, names });
    }

    pub(crate) fn insert(&mut self, name: &str) {
        let bytes = self.bytes(name);
        if let Some(buffer) = self.buffer_mut(name)
            && buffer.names.insert(name.into())
        {
            buffer.bytes += bytes;
        }
    }

    /// An empty buffer stays where it is.
    pub(crate) fn remove(&mut self, name: &str) {
        let bytes = self.bytes(name);
        if let Some(buffer) = self.buffer_mut(name)
            && buffer.names.remove(name)
        {
            buffer.bytes -= bytes;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_divide_and_names_stay_in_order() {
        let profile = RecordsProfile { resident: 700, buffer_header: 64, entry: 82, log_record: 256, access_s: 3600.0 };
        let mut index = Index::new(&profile, 4096);
        let (mut next, mut dice) = (1, crate::synth::Dice::new(5, 1));
        let mut names: Vec<String> = (0..5000).map(|_| dice.below(1_000_000).to_string()).collect();
        for name in &names {
            if index.is_full(name) {
                index.divide(name, next);
                next += 1;
            }
            assert!(!index.is_full(name));
            index.insert(name);
        }
        names.sort();
        names.dedup();
        let mean = names.len() as f64 / f64::from(next);
        assert!((20.0..32.0).contains(&mean), "{mean} names to a buffer");
        let mut numbers: Vec<u32> = names.iter().map(|name| index.number(name)).collect();
        numbers.dedup();
        assert_eq!(numbers.len(), index.buffers.len(), "each buffer's names side by side");
        names.iter().for_each(|name| index.remove(name));
        assert!(index.buffers.values().all(|buffer| buffer.bytes == 0 && buffer.names.is_empty()));
    }
}
