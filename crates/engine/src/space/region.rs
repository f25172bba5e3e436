//! Where groups lie on a platter (Ledlie 2000, §3, figure 2): low numbers in its middle, which an arm that goes to and
//! fro passes most often, the others alternately to both sides; chunks of large objects from the outer edge on, where
//! the tracks are fastest; what has no group, and checkpoints, at the inner edge.
//!
//! Addresses grow from the outer edge to the inner one. A group writes one cluster behind the other in its region,
//! round and round, so that reading it in order is reading on; when that is full, the free cluster closest to it.

use std::ops::Range;

/// Where a cluster is wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Site {
    /// Where objects of this group lie.
    Group(u32),
    /// At the outer edge, with the chunks of large objects.
    Outer,
    /// Out of the way, at the inner edge.
    Rest,
}

pub(super) struct Regions {
    /// Clusters of the device.
    count: u32,
    /// Where each region is written next; the last one is of what has no group.
    cursors: Vec<u32>,
}

impl Regions {
    /// A device of so many clusters, divided among so many groups.
    pub(super) fn new(count: u32, groups: u32) -> Self {
        let regions = groups.clamp(1, (count / 4).max(1)) + 1;
        let mut new = Self { count: 0, cursors: vec![0; regions as usize] };
        new.lengthen(count);
        new
    }

    /// So many more clusters: the same regions, of all of them.
    pub(super) fn lengthen(&mut self, by: u32) {
        self.count += by;
        self.cursors = (0..self.cursors.len() as u32).map(|region| self.range(region).start).collect();
    }

    fn groups(&self) -> u32 {
        self.cursors.len() as u32 - 1
    }

    /// The clusters of a region; regions are numbered from the outer edge.
    fn range(&self, region: u32) -> Range<u32> {
        let edge = |region: u32| (u64::from(self.count) * u64::from(region) / self.cursors.len() as u64) as u32;
        edge(region)..edge(region + 1)
    }

    /// The region of a group. Those beyond the last begin again in the middle.
    fn of(&self, group: u32) -> u32 {
        let rank = group.saturating_sub(1) % self.groups();
        let (middle, steps) = (self.groups() / 2, rank.div_ceil(2));
        if rank % 2 == 1 { middle - steps } else { middle + steps }
    }

    /// The first free cluster of this site, behind the last that was given out there; else where to look
    /// for the closest.
    pub(super) fn place(&mut self, site: Site, is_free: impl Fn(u32) -> bool) -> Result<u32, u32> {
        let region = match site {
            Site::Outer => return (0..self.count).find(|id| is_free(*id)).ok_or(0),
            Site::Group(group) => self.of(group),
            Site::Rest => self.groups(),
        };
        let range = self.range(region);
        let cursor = self.cursors[region as usize];
        let found = (cursor..range.end).chain(range.start..cursor).find(|id| is_free(*id));
        let found = found.ok_or(range.start + (range.end - range.start) / 2)?;
        self.cursors[region as usize] = if found + 1 == range.end { range.start } else { found + 1 };
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_alternate_from_the_middle_and_cover_the_platter() {
        for groups in [1, 2, 5, 16] {
            let regions = Regions::new(1000, groups);
            let mut seen: Vec<u32> = (1..=groups).map(|group| regions.of(group)).collect();
            assert_eq!(seen[0], groups / 2, "the first is in the middle");
            assert_eq!(regions.of(groups + 1), seen[0], "and then they begin again");
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..groups), "each has a region of its own");
            assert_eq!(regions.range(groups).end, 1000);
        }
        let regions = Regions::new(1700, 16);
        let order: Vec<u32> = (1..=5).map(|group| regions.of(group)).collect();
        assert_eq!(order, [8, 7, 9, 6, 10]);
        assert_eq!(regions.range(8), 800..900);
        assert_eq!(Regions::new(8, 16).groups(), 2, "no region without clusters");
    }

    #[test]
    fn a_group_writes_on_in_its_region_and_then_nearby() {
        let mut regions = Regions::new(60, 5);
        let mut taken = vec![20, 22];
        let mut place = |site| {
            let found = regions.place(site, |id| !taken.contains(&id));
            taken.extend(found);
            found
        };
        let group: Vec<_> = (0..9).map(|_| place(Site::Group(1))).collect();
        assert_eq!(group, [21, 23, 24, 25, 26, 27, 28, 29, 30].map(|id| if id < 30 { Ok(id) } else { Err(25) }));
        assert_eq!([place(Site::Outer), place(Site::Outer), place(Site::Rest)], [Ok(0), Ok(1), Ok(50)]);
        assert_eq!(place(Site::Group(2)), Ok(10));
    }
}
