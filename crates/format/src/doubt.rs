//! Numbers of clusters' uses in doubt: a crash may have kept such a use and taken the note of its grant, so that
//! entries of a checkpoint lead to what was there before it. Layout: `docs/FORMAT.md`, "Superblock".
//!
//! Invariant: at most [`RANGES`] ranges, ascending, apart from each other. Where there would be more, neighbours with
//! the least between them are joined, and that is noted: a use in doubt for nothing costs certainty of an audit, never
//! an object.

use std::{cmp::Reverse, ops::Range};

use crate::{
    Corrupt,
    codec::{put, u64_at},
};

/// Most ranges that a superblock has room for.
pub const RANGES: usize = 32;

/// The uses in doubt.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Doubt {
    /// First number and the one behind the last; the unused ones at the end are `(0, 0)`.
    ranges: [(u64, u64); RANGES],
    joined: bool,
}

impl Doubt {
    /// What is in any of these ranges.
    pub fn of(ranges: impl IntoIterator<Item = Range<u64>>) -> Self {
        let mut all: Vec<(u64, u64)> = ranges.into_iter().filter(|r| !r.is_empty()).map(|r| (r.start, r.end)).collect();
        all.sort_unstable();
        all.dedup_by(|next, before| {
            let is_joined = next.0 <= before.1;
            if is_joined {
                before.1 = before.1.max(next.1);
            }
            is_joined
        });
        // Those with the most before them begin a range; the others go on with the one before.
        let mut begins: Vec<usize> = (1..all.len()).collect();
        begins.sort_by_key(|at| Reverse(all[*at].0 - all[at - 1].1));
        let joined = begins.len() >= RANGES;
        begins.truncate(RANGES - 1);
        begins.sort_unstable();
        let firsts = (!all.is_empty()).then_some(0).into_iter().chain(begins.iter().copied());
        let behind = begins.iter().copied().chain([all.len()]);
        let mut ranges = [(0, 0); RANGES];
        ranges.iter_mut().zip(firsts.zip(behind)).for_each(|(place, (at, end))| *place = (all[at].0, all[end - 1].1));
        Self { ranges, joined }
    }

    /// The numbers of `within` that are not in `told`, which ascends.
    pub fn not_told(within: Range<u64>, told: impl IntoIterator<Item = u64>) -> Self {
        let mut next = within.start;
        let mut gaps = Vec::new();
        for seq in told.into_iter().filter(|seq| within.contains(seq)) {
            gaps.push(next..seq);
            next = seq + 1;
        }
        gaps.push(next..within.end);
        Self::of(gaps)
    }

    /// What is in either.
    #[must_use]
    pub fn and(&self, other: &Self) -> Self {
        let both = Self::of(self.iter().chain(other.iter()));
        Self { joined: both.joined || self.joined || other.joined, ..both }
    }

    /// Whether ranges were joined, so that some of these uses may be in doubt for nothing.
    pub fn is_joined(&self) -> bool {
        self.joined
    }

    /// Whether this use is in doubt.
    pub fn contains(&self, seq: u64) -> bool {
        self.iter().any(|range| range.contains(&seq))
    }

    /// Whether none is.
    pub fn is_empty(&self) -> bool {
        self.iter().next().is_none()
    }

    fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(start, end)| *start..*end).take_while(|range| !range.is_empty())
    }

    pub(crate) fn put(&self, out: &mut [u8], at: usize) {
        for (i, (start, end)) in self.ranges.iter().enumerate() {
            put(out, at + 16 * i, start.to_le_bytes());
            put(out, at + 16 * i + 8, end.to_le_bytes());
        }
        put(out, at + 16 * RANGES, [u8::from(self.joined)]);
    }

    pub(crate) fn at(bytes: &[u8], at: usize) -> Result<Self, Corrupt> {
        let read = |i| u64_at(bytes, at + 16 * i)..u64_at(bytes, at + 16 * i + 8);
        let found = Self { ranges: std::array::from_fn(|i| (read(i).start, read(i).end)), joined: false };
        match bytes[at + 16 * RANGES] {
            joined @ 0..=1 if Self::of(found.iter()) == found => Ok(Self { joined: joined == 1, ..found }),
            _ => Err(Corrupt::Field("doubt")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_told_is_not_in_doubt() {
        let doubt = Doubt::not_told(10..20, [3, 10, 12, 13, 19, 25]);
        let uncertain: Vec<u64> = (0..30).filter(|seq| doubt.contains(*seq)).collect();
        assert_eq!(uncertain, [11, 14, 15, 16, 17, 18]);
        assert!(Doubt::not_told(10..12, [10, 11]).is_empty());
    }

    #[test]
    fn too_many_ranges_are_joined_where_the_least_is_between() {
        // Apart by 10, but for two that are apart by 2.
        let starts = (0..RANGES as u64).map(|i| 100 * i).chain([500 + 12]);
        let doubt = Doubt::of(starts.map(|start| start..start + 10));
        assert!(doubt.contains(510) && doubt.contains(511) && !doubt.contains(610) && doubt.is_joined());
        let mut bytes = vec![0; 16 * RANGES + 1];
        doubt.put(&mut bytes, 0);
        assert_eq!(Doubt::at(&bytes, 0), Ok(doubt));
        let more = doubt.and(&Doubt::of(std::iter::once(0..5000)));
        assert!(more.is_joined() && more.iter().count() == 1 && !Doubt::of(std::iter::once(0..5000)).is_joined());
        // The largest of many gaps stay, wherever they are.
        let start = |i: u64| 4 * i + 1000 * (i / 5000);
        let doubt = Doubt::of((0..100_000).map(|i| start(i)..start(i) + 2));
        assert!((0..100_000).all(|i| doubt.contains(start(i))) && doubt.iter().count() == RANGES);
        assert!((1..20).all(|gap| !doubt.contains(start(5000 * gap) - 1)));
    }

    #[test]
    fn ranges_out_of_order_or_behind_a_gap_are_damage() {
        for bad in [vec![(5, 9), (1, 3)], vec![(9, 5), (20, 30)], vec![(1, 3), (3, 4)]] {
            let mut doubt = Doubt::default();
            doubt.ranges.iter_mut().zip(bad).for_each(|(place, range)| *place = range);
            let mut bytes = vec![0; 16 * RANGES + 1];
            doubt.put(&mut bytes, 0);
            assert_eq!(Doubt::at(&bytes, 0), Err(Corrupt::Field("doubt")));
        }
    }
}
