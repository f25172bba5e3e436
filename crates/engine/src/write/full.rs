//! How a store gets full: as tightly as it can, and then it says what would help.
//!
//! From [`TIGHT`] percent of the clusters on, or where no room can be made otherwise, objects go to whichever open
//! buffer they fill best, no cluster stays in memory whole, for such a one cannot be emptied, and an object of a length
//! of which many leave much of their clusters empty is cut into pieces that fill theirs: when it is put, and when its
//! cluster is emptied. Below that each object that fits in a cluster is one frame, for one read.
//!
//! Steps of making room: a commit, if clusters wait for it → the emptiest cluster is emptied, if that gains a 64th of
//! it → checkpoints, if those that would gain more are too young. Each step is counted, and where none gains anything
//! the store is full: no put waits for what does not come.
//!
//! Invariants: what is cut anew is a version like any other, durable before the cluster of the one before is free;
//! nobody is refused for room that another put took while it was being made.

use std::sync::atomic::Ordering::Relaxed;

use picaflor_format::{
    cluster::{HEADER, ROW, TRAILER},
    frame::{self, ChunkKey, GRAIN, Manifest},
    zone::SLOT,
};

use crate::{Error, Result, space::SPARE, write::append::Appender};

/// Clusters that objects never have: those of three checkpoints at least, and the spare ones.
pub(crate) const KEPT: u32 = SPARE + 6;
/// From which part of the others on, in percent, a store packs tightly.
pub(crate) const TIGHT: u64 = 70;
/// A length is cut of which many would leave more than this part of their clusters empty.
const WASTE: usize = 32;
/// A piece that fills clusters is no smaller than this part of one.
pub(crate) const PIECES: usize = 16;
/// Clusters of a store in which those pieces have no buffers of their own.
pub(crate) const SMALL: u32 = 128;
/// Open buffers of a store that packs tightly.
const OPEN: u64 = 4;

/// Bytes that a frame takes in a cluster, its row among them.
fn taken(payload: usize) -> usize {
    (frame::HEADER + payload).next_multiple_of(GRAIN) + ROW
}

/// Bytes of a cluster that each frame of so many wastes if all are as long.
fn wasted(cluster: usize, payload: usize) -> usize {
    let room = cluster - HEADER - TRAILER;
    let taken = taken(payload);
    let fit = (room / taken).max(1);
    room.saturating_sub(fit * taken) / fit
}

/// Bytes of body of a piece of which so many fill a cluster.
fn piece_of(cluster: usize, pieces: usize) -> usize {
    let each = (cluster - HEADER - TRAILER) / pieces - ROW;
    each / GRAIN * GRAIN - frame::HEADER - ChunkKey::LEN
}

/// What a body takes in pieces of so many bytes, and what the last of them wastes.
fn cost_of(cluster: usize, body: usize, piece: usize) -> usize {
    let rest = match body % piece {
        0 => 0,
        rest => taken(ChunkKey::LEN + rest) + wasted(cluster, ChunkKey::LEN + rest),
    };
    body / piece * taken(ChunkKey::LEN + piece) + rest
}

/// Bytes of body of the pieces that a body of so many is best cut into: the largest whose waste is small, or the one
/// that wastes least. Halves, quarters and so on fill a cluster whichever of them come together.
fn best_piece(cluster: usize, body: usize) -> usize {
    let halves = std::iter::successors(Some(1), |pieces| Some(pieces * 2)).take_while(|pieces| *pieces <= PIECES);
    let pieces = halves.map(|pieces| piece_of(cluster, pieces)).filter(|piece| *piece < body);
    let cost = |piece: &usize| cost_of(cluster, body, *piece) - body;
    let cheap = pieces.clone().find(|piece| cost(piece) * WASTE <= body);
    cheap.or_else(|| pieces.min_by_key(cost)).unwrap_or(body)
}

/// Whether a frame of so many bytes is such a piece.
pub(crate) fn fills_with_others(cluster: usize, len: usize) -> bool {
    let of = |pieces| piece_of(cluster, pieces) + ChunkKey::LEN + frame::HEADER;
    (0..=PIECES.ilog2()).any(|halved| of(1 << halved) == len)
}

impl Appender {
    /// Bytes of body of the pieces that an object is to be cut into, if it is.
    pub(crate) fn cut_to_pack(&self, payload: usize, body: usize) -> Option<usize> {
        let cluster = self.medium.cluster_len();
        let (whole, waste) = (taken(payload), wasted(cluster, payload));
        if waste * WASTE <= whole || body * 2 < payload || !self.catalog.packs_tightly() {
            return None;
        }
        let piece = best_piece(cluster, body);
        // Its head is one more frame.
        let cut = cost_of(cluster, body, piece) + taken(payload - body + Manifest::LEN);
        (piece < body && whole + waste / 2 >= cut).then_some(piece)
    }

    /// The same of an object larger than a cluster, which is cut anyway.
    pub(crate) fn cut_of_long(&self, body: Option<u64>) -> Option<usize> {
        let cluster = self.medium.cluster_len();
        match body {
            _ if !self.catalog.keeps_all_in_clusters() => None,
            Some(body) => Some(best_piece(cluster, usize::try_from(body).ok()?)),
            // Whatever is left over at its end is short.
            None => self.catalog.packs_tightly().then(|| piece_of(cluster, 4)),
        }
    }

    /// Bytes that objects can take besides what is kept back.
    pub(crate) fn room_for_all(&self) -> u64 {
        let kept = self.kept_from_puts() + self.residents.checkpoint_held.load(Relaxed);
        u64::from(self.space.count().saturating_sub(kept)) * self.space.room()
    }

    /// The error of an object that needs so many bytes, with what would help.
    pub(crate) fn full(&self, needed: u64) -> Error {
        if !self.catalog.keeps_all_in_clusters() {
            return Error::full(needed, self.free_bytes());
        }
        let (live, all) = (self.space.fill().live, self.room_for_all());
        let capacity = self.medium.map.clusters.len;
        let surely = (all - (all / WASTE as u64).min(all)).saturating_sub(OPEN * self.space.room());
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
        let fits = |live: u64| live + needed <= self.medium.map.clusters.len;
        let may =
            !self.catalog.keeps_all_in_clusters() || fits(self.space.live_about()) || fits(self.space.fill().live);
        if may { Ok(()) } else { Err(self.full(needed)) }
    }

    /// Bytes that a store in place could still take, compaction included.
    pub(crate) fn free_bytes(&self) -> u64 {
        self.catalog.in_place.as_ref().map_or(0, |in_place| in_place.extents.slots().0 * SLOT)
    }
}

#[cfg(test)]
mod tests {
    use picaflor_format::zone::{CLUSTER_MAX, CLUSTER_MIN};

    use super::*;

    #[test]
    fn pieces_fill_their_clusters() {
        for cluster in [CLUSTER_MIN, 64 << 10, 256 << 10, CLUSTER_MAX].map(|cluster| cluster as usize) {
            let room = cluster - HEADER - TRAILER;
            for pieces in [1, 2, 4, 8, 16] {
                let piece = taken(ChunkKey::LEN + piece_of(cluster, pieces));
                assert!(piece * pieces <= room && (piece + GRAIN) * pieces > room, "{pieces} in {cluster}");
                assert!(wasted(cluster, ChunkKey::LEN + piece_of(cluster, pieces)) <= GRAIN);
            }
        }
    }

    #[test]
    fn a_body_is_cut_where_many_of_its_length_would_leave_much_empty() {
        let cluster = 256 << 10;
        let pieces = |body: usize| body.div_ceil(best_piece(cluster, body));
        // A quarter and a little; three quarters and a little; five clusters and a little.
        assert_eq!([64 << 10, 65 << 10, 200 << 10, 1310 << 10].map(pieces), [2, 2, 4, 6]);
        for body in (10_000..2_000_000).step_by(997) {
            let cost = cost_of(cluster, body, best_piece(cluster, body)) - body;
            assert!(cost * 24 <= body, "{body} bytes cost {cost} more");
        }
    }
}
