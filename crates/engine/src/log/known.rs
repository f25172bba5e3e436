//! Entries of a checkpoint that lead to what left before a crash: their clusters were written again, and the crash took
//! the note of that. Gets find them out one by one; the audit counts them apart, and the scrubber drops them after a
//! crash, for no get asks for a chunk whose object is gone, and a store does not empty a cluster to which entries lead.
//!
//! Invariant: uses are numbered one by one, and the log has the number of each of which it tells. So a number after the
//! older checkpoint that the log lacks is of a use that a crash may have kept without its note: what the checkpoint had
//! there had been seen to. The superblock carries these numbers on until a scrub has ended.

use std::collections::BTreeSet;

use picaflor_format::{cluster::Row, doubt::Doubt};

use crate::{Mode, cache::catalog::Catalog, read::cluster_reader::Use, space::Space};

/// What the opening knew.
#[derive(Clone, Copy, Default)]
pub(crate) struct Known {
    /// Uses of clusters of which the log may have told, and does not.
    pub(crate) doubt: Doubt,
    /// The journal page with which the log went on; 0: everything counts as told.
    pub(crate) page: u64,
    /// The run before was not closed.
    pub(crate) crashed: bool,
}

impl Known {
    /// Whether entries may lead to what left.
    pub(crate) fn may_mislead(&self) -> bool {
        self.crashed || !self.doubt.is_empty()
    }

    /// Whether this is a use of the cluster of which nothing tells, so that entries lead to what was there before it.
    pub(crate) fn is_untold(&self, space: &Space, cluster: u32, found: &Use) -> bool {
        self.doubt.contains(found.seq()) && !space.is_told_since(cluster, self.page)
    }

    /// Whether a cache may once have begun to write this cluster again, of which neither the log nor its front tells: a
    /// crash may keep any block of a write, and not the first. What entries lead to there had left.
    pub(crate) fn may_be_written_over(&self, mode: Mode, space: &Space, cluster: u32) -> bool {
        mode == Mode::Cache && !space.is_told_since(cluster, self.page)
    }

    /// Drops the entries that lead into a cluster of which nothing tells, but for those of the frames that are there.
    pub(crate) fn drop_outdated(&self, catalog: &Catalog, cluster: u32, rows: &[Row]) {
        let there = catalog.entries_of(cluster, rows.to_vec());
        let there: BTreeSet<u64> = there.iter().map(|(row, _)| catalog.medium.grain(cluster, row.offset)).collect();
        // It may have been granted since it was read, and then an entry is of what is there now.
        let stays = |grain| there.contains(&grain) || catalog.space.is_told_since(cluster, self.page);
        catalog.drop_leading_to(cluster, stays);
    }
}
