//! Entries of a checkpoint that lead to what left before a crash: their clusters were written again, and the crash took
//! the note of that. Gets find them out one by one; the audit counts them apart, and the scrubber drops them after a
//! crash, for no get asks for a chunk whose object is gone, and a store does not empty a cluster to which entries lead.
//!
//! Invariant: every grant since the older checkpoint that did reach the log was told to [`crate::space::Space`] by the
//! opening, and every later one since. So a cluster that was not, and whose use is later than that checkpoint, was
//! granted before the crash: what the checkpoint had there had been seen to.

use std::collections::BTreeSet;

use picaflor_format::cluster::Row;

use crate::{Mode, background::scrub::Scrubber, read::cluster_reader::Use};

impl Scrubber {
    /// Whether an entry may still lead to what left before a crash: until the scrubber has gone over everything, and as
    /// long as the store is only read.
    pub(crate) fn may_mislead(&self) -> bool {
        self.known.crashed && (self.shared.options.read_only || self.is_verifying())
    }

    /// Whether this is a use of the cluster of which nothing tells, so that entries lead to what was there before it.
    pub(crate) fn is_untold(&self, cluster: u32, found: &Use) -> bool {
        found.seq() > self.known.checkpoint && !self.space.is_told_since(cluster, self.known.page)
    }

    /// Whether a cache may once have begun to write this cluster again, of which neither the log nor its front tells: a
    /// crash may keep any block of a write, and not the first. What entries lead to there had left.
    pub(crate) fn may_be_written_over(&self, cluster: u32) -> bool {
        self.shared.options.mode == Mode::Cache && !self.space.is_told_since(cluster, self.known.page)
    }

    /// Drops the entries that lead into a cluster of which nothing tells, but for those of the frames that are there.
    pub(crate) fn drop_outdated(&self, cluster: u32, rows: &[Row]) {
        let there: BTreeSet<u64> = self
            .catalog
            .entries_of(cluster, rows.to_vec())
            .iter()
            .map(|(row, _)| self.medium.grain(cluster, row.offset))
            .collect();
        // It may have been granted since it was read, and then an entry is of what is there now.
        let stays = |grain| there.contains(&grain) || self.space.is_told_since(cluster, self.known.page);
        self.catalog.drop_leading_to(cluster, stays);
    }
}
