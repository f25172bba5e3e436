//! How a store gets full: as tightly as it can, and then it says what would help.
//!
//! From 70 percent of the clusters on (`Catalog::packs_tightly`), or where no room can be made otherwise, objects go to
//! whichever open buffer they fill best, no cluster stays in memory whole, for such a one cannot be emptied, and an
//! object of a length of which many leave much of their clusters empty is cut into pieces that fill theirs: when it is
//! put, and when its cluster is emptied. Below that each object that fits in a cluster is one frame, for one read.
//!
//! Steps of making room: a commit, if clusters wait for it → the emptiest cluster is emptied, if that gains a 64th of
//! it → checkpoints, if those that would gain more are too young. Each step is counted, and where none gains anything
//! the store is full: no put waits for what does not come.
//!
//! Invariants: what is cut anew is a version like any other, durable before the cluster of the one before is free;
//! no put is refused for room that another one took while it was being made.

use std::sync::atomic::Ordering::Relaxed;

use picaflor_format::frame::Manifest;

use crate::{
    Error, Result,
    write::append::Appender,
    write::pieces::{WASTE, best_piece, cost_of, piece_of, taken, wasted},
};

/// Open buffers of a store that packs tightly.
const OPEN: u64 = 4;

impl Appender {
    /// Bytes of body of the pieces that an object is to be cut into, if it is.
    pub(crate) fn cut_to_pack(&self, payload: usize, body: usize) -> Option<usize> {
        let cluster = self.parts.medium.cluster_len();
        let (whole, waste) = (taken(payload), wasted(cluster, payload));
        if waste * WASTE <= whole || body * 2 < payload || !self.parts.catalog.packs_tightly() {
            return None;
        }
        let piece = best_piece(cluster, body);
        // Its head is one more frame.
        let cut = cost_of(cluster, body, piece) + taken(payload - body + Manifest::LEN);
        (piece < body && whole + waste / 2 >= cut).then_some(piece)
    }

    /// The same of an object larger than a cluster, which is cut anyway.
    pub(crate) fn cut_of_long(&self, body: Option<u64>) -> Option<usize> {
        let cluster = self.parts.medium.cluster_len();
        match body {
            _ if !self.parts.catalog.keeps_all_in_clusters() => None,
            Some(body) => Some(best_piece(cluster, usize::try_from(body).ok()?)),
            // Whatever is left over at its end is short.
            None => self.parts.catalog.packs_tightly().then(|| piece_of(cluster, 4)),
        }
    }

    /// Bytes that objects can take besides what is kept back.
    pub(crate) fn room_for_all(&self) -> u64 {
        let kept = self.kept_from_puts() + self.parts.residents.checkpoint_held.load(Relaxed);
        u64::from(self.parts.space.count().saturating_sub(kept)) * self.parts.space.live.room
    }

    /// The error of an object that needs so many bytes, with what would help.
    pub(crate) fn full(&self, needed: u64) -> Error {
        if !self.parts.catalog.keeps_all_in_clusters() {
            return Error::full(needed, self.free_bytes());
        }
        let (live, all) = (self.parts.space.fill().live, self.room_for_all());
        let capacity = self.parts.medium.map().clusters.len;
        let surely = (all - (all / WASTE as u64).min(all)).saturating_sub(OPEN * self.parts.space.live.room);
        let surely = surely.min(capacity / 10 * 9);
        let delete = (live + needed).saturating_sub(surely).max(needed);
        let help = format!(
            "objects take {live} of {capacity} bytes, of which {} are kept for checkpoints and reclaim: delete {delete} \
             bytes of objects, or copy them to a store of a larger capacity",
            capacity.saturating_sub(all),
        );
        Error::Full { needed, free: all.saturating_sub(live), delete, help }
    }

    /// Refuses at once what is longer than all that could be made room for.
    pub(crate) fn could_take(&self, needed: u64) -> Result<()> {
        let fits = |live: u64| live + needed <= self.parts.medium.map().clusters.len;
        let may = !self.parts.catalog.keeps_all_in_clusters()
            || fits(self.parts.space.fill_about().live)
            || fits(self.parts.space.fill().live);
        if may { Ok(()) } else { Err(self.full(needed)) }
    }

    /// Bytes that a store whose objects have places of their own could still take.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.parts.catalog.places.as_ref().map_or(0, |places| places.fill().free)
    }
}
