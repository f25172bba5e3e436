//! The zone map: which bytes of a device belong to what.
//!
//! ```text
//! 0        4 KiB    8 KiB        64 KiB       192 KiB        clusters          capacity
//! | super A | super B | reserved  | hot A, hot B | journal ring | cluster 0, 1, 2 ... |
//! ```
//!
//! Invariants: zones follow each other without overlap; every zone starts at a block; the cluster zone
//! starts at a multiple of the cluster size and holds whole clusters only.

use crate::BLOCK;

/// A range of device bytes with one purpose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Zone {
    /// First byte.
    pub start: u64,
    /// Length in bytes.
    pub len: u64,
}

impl Zone {
    /// First byte after the zone.
    pub const fn end(self) -> u64 {
        self.start + self.len
    }
}

/// The two superblocks, written alternately.
pub const SUPERBLOCKS: Zone = Zone { start: 0, len: 2 * BLOCK as u64 };
/// The two hot logs, written alternately.
pub const HOT: Zone = Zone { start: 64 << 10, len: 2 * HOT_SLOT };
/// Bytes of one hot log.
pub const HOT_SLOT: u64 = 64 << 10;
/// First byte of the journal ring.
pub const JOURNAL_START: u64 = HOT.end();

/// What a place must be cleared of to start empty: superblocks, hot logs and the first journal pages. Where only the
/// superblocks are blank, [`crate::has_remains`] sees by the rest that a store was here.
pub const BEGINNING: Zone = Zone { start: 0, len: 256 << 10 };

/// First byte of the blocks, where the layout is of those: the block allocator has everything from here on, and its
/// homes come first. They lie in [`BEGINNING`], so what has been cleared is blank to it too.
pub const BLOCKS_START: u64 = HOT.start;

/// Bytes of a slot, the unit in which objects are placed one by one: the paper's block of 512 bytes.
pub const SLOT: u64 = 512;
/// Largest capacity with objects placed one by one: slots are counted in 32 bits.
pub const IN_PLACE_MAX: u64 = SLOT << 32;

/// Smallest cluster, in bytes: the smallest page of Dámelo.
pub const CLUSTER_MIN: u32 = 16 << 10;
/// Largest cluster, in bytes: offsets inside one are 16 bits of 64-byte grains.
pub const CLUSTER_MAX: u32 = 4 << 20;
/// Fewest clusters a store can live with: open, in flight, being reclaimed, and two checkpoints.
pub const CLUSTERS_MIN: u32 = 16;

const _: () = {
    assert!(SUPERBLOCKS.end() <= HOT.start);
    assert!(HOT.start.is_multiple_of(BLOCK as u64));
    assert!(HOT_SLOT.is_multiple_of(BLOCK as u64));
    assert!(JOURNAL_START.is_multiple_of(BLOCK as u64));
    // The first page of a store is number 1, so it stands here until the ring has gone round.
    assert!(BLOCKS_START + 2 * BLOCK as u64 <= BEGINNING.end());
    assert!(BEGINNING.end() >= JOURNAL_START + 2 * BLOCK as u64);
    assert!(CLUSTER_MIN.is_power_of_two() && CLUSTER_MAX.is_power_of_two());
    assert!(CLUSTER_MAX as u64 / crate::frame::GRAIN as u64 <= 1 << 16);
};

/// Where everything is on one device; a pure function of its capacity, of that it was made with, and of its cluster
/// size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Map {
    /// Ring of journal pages.
    pub journal: Zone,
    /// Whole clusters.
    pub clusters: Zone,
    /// Bytes of a cluster.
    pub cluster: u32,
}

impl Map {
    /// The map of a device, or `None` if it is too small for [`CLUSTERS_MIN`] clusters or the cluster
    /// size is not a power of two between [`CLUSTER_MIN`] and [`CLUSTER_MAX`].
    pub fn new(capacity: u64, cluster: u32) -> Option<Self> {
        Self::grown(capacity, capacity, cluster)
    }

    /// The map of a device that was made with fewer bytes than it has now: there are more clusters, and all else is
    /// where it was. `None` as of [`Map::new`].
    pub fn grown(made_with: u64, capacity: u64, cluster: u32) -> Option<Self> {
        if !cluster.is_power_of_two() || !(CLUSTER_MIN..=CLUSTER_MAX).contains(&cluster) {
            return None;
        }
        // 1/256 of the device: at one delete page a second and a page of reservations per 64 clusters,
        // the ring outlives two checkpoint intervals on every size between the clamps.
        let journal_len = (made_with / 256).clamp(256 << 10, 64 << 20) / BLOCK as u64 * BLOCK as u64;
        let journal = Zone { start: JOURNAL_START, len: journal_len };
        let size = u64::from(cluster);
        let start = journal.end().next_multiple_of(size);
        let count = capacity.checked_sub(start)? / size;
        if count < u64::from(CLUSTERS_MIN) || count > u64::from(u32::MAX - 1) {
            return None;
        }
        Some(Self { journal, clusters: Zone { start, len: count * size }, cluster })
    }

    /// Smallest capacity that [`Map::new`] accepts with this cluster size.
    pub fn least_capacity(cluster: u32) -> u64 {
        let start = (JOURNAL_START + (256 << 10)).next_multiple_of(u64::from(cluster));
        start + u64::from(CLUSTERS_MIN) * u64::from(cluster)
    }

    /// Number of clusters.
    pub fn cluster_count(&self) -> u32 {
        (self.clusters.len / u64::from(self.cluster)) as u32
    }

    /// Where objects are placed one by one, if they are: everything behind the clusters that are kept for
    /// checkpoints, one in 32, and at least 8. The first of the two is the number of those.
    pub fn in_place(&self) -> (u32, Zone) {
        let kept = (self.cluster_count() / 32).max(CLUSTERS_MIN / 2);
        let start = self.cluster_start(kept);
        (kept, Zone { start, len: self.clusters.end() - start })
    }

    /// First byte of a cluster.
    pub fn cluster_start(&self, id: u32) -> u64 {
        self.clusters.start + u64::from(id) * u64::from(self.cluster)
    }

    /// The cluster that holds a byte of the cluster zone.
    pub fn cluster_of(&self, offset: u64) -> Option<u32> {
        let inside = offset.checked_sub(self.clusters.start)?;
        (inside < self.clusters.len).then(|| (inside / u64::from(self.cluster)) as u32)
    }

    /// Number of journal pages in the ring.
    pub fn journal_pages(&self) -> u64 {
        self.journal.len / BLOCK as u64
    }

    /// First byte of a journal page, by its sequence number.
    pub fn journal_page(&self, seq: u64) -> u64 {
        self.journal.start + seq % self.journal_pages() * BLOCK as u64
    }

    /// First byte of one of the two superblocks.
    pub fn superblock(slot: u64) -> u64 {
        SUPERBLOCKS.start + slot % 2 * BLOCK as u64
    }

    /// First byte of one of the two hot logs.
    pub fn hot(slot: u64) -> u64 {
        HOT.start + slot % 2 * HOT_SLOT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zones_do_not_overlap_and_clusters_are_aligned() {
        for cluster in [CLUSTER_MIN, 256 << 10, CLUSTER_MAX] {
            for capacity in [Map::least_capacity(cluster), 100 << 20, 1 << 30, 5 << 40] {
                let map = Map::new(capacity, cluster).unwrap();
                assert!(map.journal.end() <= map.clusters.start);
                assert!(map.clusters.end() <= capacity);
                assert_eq!(map.clusters.start % u64::from(cluster), 0);
                let last = map.cluster_count() - 1;
                assert_eq!(map.cluster_of(map.cluster_start(last)), Some(last));
                assert_eq!(map.cluster_of(map.clusters.end()), None);
            }
        }
    }

    #[test]
    fn what_has_grown_has_more_clusters_and_all_else_where_it_was() {
        for made_with in [Map::least_capacity(CLUSTER_MIN), 100 << 20, 1 << 30] {
            let (before, after) =
                (Map::new(made_with, CLUSTER_MIN).unwrap(), Map::grown(made_with, 2 << 30, CLUSTER_MIN));
            let after = after.unwrap();
            assert_eq!((before.journal, before.clusters.start), (after.journal, after.clusters.start));
            assert!(before.clusters.len < after.clusters.len && after.clusters.end() <= 2 << 30);
        }
    }

    #[test]
    fn too_small_or_odd_is_refused() {
        assert_eq!(Map::new(Map::least_capacity(CLUSTER_MIN) - 1, CLUSTER_MIN), None);
        assert_eq!(Map::new(1 << 30, 100_000), None);
        assert_eq!(Map::new(1 << 30, CLUSTER_MIN / 2), None);
    }
}
