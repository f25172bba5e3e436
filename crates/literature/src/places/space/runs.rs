//! Free space as runs of slots: given back runs grow together, and a run is found by place or from a place on.
//!
//! Invariants: runs do not touch each other; `lengths` counts the runs of each length, so that what fits nowhere is
//! known without looking; no run that begins in a region is longer than `most` says of it, so that whole regions are
//! passed by.

use std::collections::BTreeMap;

/// Slots of a region. A region takes four bytes, whatever is in it.
const REGION: u32 = 4096;

#[derive(Default)]
pub(crate) struct Runs {
    by_start: BTreeMap<u32, u32>,
    /// By region. Raised by each run that comes, and set to what is true when a search went through all of it in vain.
    most: Vec<u32>,
    lengths: BTreeMap<u32, u32>,
    free: u64,
}

impl Runs {
    /// Memory of a run: two entries of trees that are three quarters full.
    pub(crate) const BYTES: usize = 24;

    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    pub(crate) fn count(&self) -> usize {
        self.by_start.len()
    }

    /// Slots of the longest run.
    pub(crate) fn longest(&self) -> u32 {
        self.lengths.last_key_value().map_or(0, |(length, _)| *length)
    }

    /// How many pieces of so many slots find a place.
    pub(crate) fn holds(&self, slots: u32) -> u64 {
        self.lengths.range(slots..).map(|(length, count)| u64::from(length / slots) * u64::from(*count)).sum()
    }

    fn add(&mut self, start: u32, len: u32) {
        if len > 0 {
            self.by_start.insert(start, len);
            *self.lengths.entry(len).or_default() += 1;
            let region = (start / REGION) as usize;
            if self.most.len() <= region {
                self.most.resize(region + 1, 0);
            }
            self.most[region] = self.most[region].max(len);
            self.free += u64::from(len);
        }
    }

    fn remove(&mut self, start: u32) -> u32 {
        let Some(len) = self.by_start.remove(&start) else { return 0 };
        if let Some(count) = self.lengths.get_mut(&len) {
            *count -= 1;
            if *count == 0 {
                self.lengths.remove(&len);
            }
        }
        self.free -= u64::from(len);
        len
    }

    /// Gives slots back. They must not be free.
    pub(crate) fn give(&mut self, mut start: u32, mut len: u32) {
        if let Some((&before, &run)) = self.by_start.range(..start).next_back()
            && before + run == start
        {
            self.remove(before);
            (start, len) = (before, run + len);
        }
        len += self.remove(start + len);
        self.add(start, len);
    }

    /// Takes these slots, if all of them are free.
    pub(crate) fn take_at(&mut self, start: u32, len: u32) -> bool {
        let Some((&run, &run_len)) = self.by_start.range(..=start).next_back() else { return false };
        let (end, run_end) = (u64::from(start) + u64::from(len), u64::from(run) + u64::from(run_len));
        if end > run_end {
            return false;
        }
        self.remove(run);
        self.add(run, start - run);
        self.add(end as u32, (run_end - end) as u32);
        true
    }

    /// The first place at or behind `from` where so many slots are free, else the first of all.
    pub(crate) fn fit_from(&mut self, from: u32, len: u32) -> Option<u32> {
        if self.longest() < len {
            return None;
        }
        let around = self.by_start.range(..=from).next_back().and_then(|(start, run)| {
            let (start, end) = (u64::from(from.max(*start)), u64::from(*start) + u64::from(*run));
            (start + u64::from(len) <= end).then_some(start as u32)
        });
        let region = (from / REGION) as usize;
        around.or_else(|| self.search(region, from, len)).or_else(|| self.search(0, 0, len))
    }

    /// The first run of at least this length that begins at or behind `from`, which is in this region.
    fn search(&mut self, mut region: usize, mut from: u32, len: u32) -> Option<u32> {
        loop {
            region += self.most.get(region..)?.iter().position(|most| *most >= len)?;
            let start = region as u32 * REGION;
            from = from.max(start);
            let mut longest = 0;
            for (start, run) in self.by_start.range(from..=start + (REGION - 1)) {
                if *run >= len {
                    return Some(*start);
                }
                longest = longest.max(*run);
            }
            if from == start {
                self.most[region] = longest;
            }
            region += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_together_and_are_found() {
        let mut runs = Runs::default();
        runs.give(100, 50);
        assert!(runs.take_at(110, 10));
        assert!(!runs.take_at(105, 6));
        assert_eq!((runs.free(), runs.count(), runs.longest()), (40, 2, 30));
        assert_eq!(runs.fit_from(100, 10), Some(100));
        assert_eq!(runs.fit_from(101, 10), Some(120), "what is left of the first run is too short");
        assert_eq!(runs.fit_from(125, 20), Some(125), "in the middle of a run");
        assert_eq!(runs.fit_from(141, 10), Some(100), "round the end");
        assert_eq!(runs.fit_from(0, 31), None);
        runs.give(110, 10);
        assert_eq!((runs.free(), runs.count(), runs.longest()), (50, 1, 50));
    }

    #[test]
    fn a_search_finds_what_a_look_at_every_run_finds() {
        let size = 40 * REGION;
        let mut runs = Runs::default();
        let mut taken: Vec<(u32, u32)> = Vec::new();
        runs.give(5, size - 5);
        let mut state = 1_u64;
        let mut below = |bound: usize| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) as usize % bound
        };
        for round in 0..30_000 {
            let (from, len) = (below(size as usize) as u32, 1 + below(if round % 9 == 0 { 3000 } else { 40 }) as u32);
            let around = runs.by_start.range(..=from).next_back().filter(|(start, run)| from + len <= *start + **run);
            let fits = |run: &(&u32, &u32)| *run.1 >= len;
            let behind = runs.by_start.range(from..).find(fits).or_else(|| runs.by_start.iter().find(fits));
            let expected = around.map(|_| from).or(behind.map(|run| *run.0));
            assert_eq!(runs.fit_from(from, len), expected, "{round}: {from} {len}");
            match expected {
                Some(start) if round % 3 > 0 => {
                    assert!(runs.take_at(start, len));
                    taken.push((start, len));
                }
                _ if taken.is_empty() => {}
                _ => {
                    let (start, len) = taken.swap_remove(below(taken.len()));
                    runs.give(start, len);
                }
            }
        }
    }
}
