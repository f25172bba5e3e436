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

use std::sync::{Arc, atomic::Ordering::Relaxed};

use picaflor_format::{
    cluster::{HEADER, ROW, TRAILER},
    frame::{self, ChunkKey, GRAIN, Header, Kind, Manifest},
};

use crate::{
    Error, Result,
    base::frame::Draft,
    base::stats::add,
    index::IndexEntry,
    space::{Fill, SPARE},
    volume::Volume,
    write::append::{Blocked, Purpose},
};

/// Clusters that objects never have: those of three checkpoints at least, and the spare ones.
pub(crate) const KEPT: u32 = SPARE + 6;
/// From which part of the others on, in percent, a store packs tightly.
pub(crate) const TIGHT: u64 = 70;
/// Part by which objects become less before a store that packed tightly below that stops it: more than what is known
/// of the length of objects that were not weighed.
const LOOSER: u64 = 4;
/// A length is cut of which many would leave more than this part of their clusters empty.
const WASTE: usize = 32;
/// A piece that fills clusters is no smaller than this part of one.
pub(crate) const PIECES: usize = 16;
/// Clusters of a store in which those pieces have no buffers of their own.
pub(crate) const SMALL: u32 = 128;
/// Open buffers of a store that packs tightly.
const OPEN: u64 = 4;
/// Checkpoints that are taken, at most, to make room once: one that seals slow buffers, two until no recovery reads
/// what the journal told of young clusters, and as many again where puts went on meanwhile.
const CHECKPOINTS: u32 = 6;
/// Clusters that are emptied, at most, before one more is free.
const MOVES: u32 = 64;

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

impl Volume {
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

    /// Makes a cluster free that puts may take. False if nothing would: the store is full. So many clusters are emptied
    /// at most before one more is free, and none while no more can be gained than when that was in vain.
    pub(crate) fn make_space_in_store(self: &Arc<Self>) -> Result<bool> {
        let _turn = self.reclaimer.turn.lock();
        self.frames.drop_released();
        self.drop_residents_if_tight();
        if self.has_room_for_puts() {
            return Ok(true);
        }
        let was_in_vain = self.reclaimer.in_vain.load(Relaxed);
        if self.space.leaving() == 0 && self.space.fill().live.saturating_add(self.space.least_gain()) > was_in_vain {
            return Ok(false);
        }
        let mut has_room = self.empty_for_puts()?;
        if !has_room && !self.catalog.packs_tightly() {
            // Objects just longer than half a cluster fill all clusters by half.
            self.catalog.tight.store(0, Relaxed);
            self.drop_residents_if_tight();
            has_room = self.empty_for_puts()?;
            let live = self.space.fill().live;
            self.catalog.tight.store(live - live / LOOSER, Relaxed);
        }
        self.reclaimer.in_vain.store(if has_room { u64::MAX } else { self.space.fill().live }, Relaxed);
        Ok(has_room)
    }

    fn drop_residents_if_tight(&self) {
        if !self.shared.memory.holds_clusters() && self.catalog.packs_tightly() {
            self.shared.release(self.shared.memory.release_clusters(self.medium.number, 0));
        }
    }

    fn has_room_for_puts(&self) -> bool {
        self.space.available() > self.appender.kept_from_puts()
    }

    fn empty_for_puts(self: &Arc<Self>) -> Result<bool> {
        let (mut checkpoints, mut retired, mut moves, mut most) = (0, 0, 0, 0);
        while moves < MOVES && !self.has_room_for_puts() {
            let leaving = self.space.leaving();
            if self.space.available() + leaving > most {
                (most, moves) = (self.space.available() + leaving, 0);
            }
            let Fill { old, young, .. } = self.space.fill();
            let least = self.space.least_gain();
            // A checkpoint makes victims of those that were written since the one before the last.
            let ages = young >= least && checkpoints < CHECKPOINTS / 2 && young > 2 * old;
            let is_enough = leaving > 0 && self.space.available() + leaving > self.appender.kept_from_puts();
            if !is_enough && old >= least && !ages && self.reclaim_one_of_store()? {
                moves += 1;
            } else if leaving > 0 {
                self.commit_now()?;
            } else if young >= least && checkpoints < CHECKPOINTS {
                checkpoints += 1;
                self.checkpoint_now()?;
            } else if retired < self.space.count() {
                retired += 4;
                self.residents.retire_a_resident();
            } else {
                break;
            }
        }
        if self.space.leaving() > 0 {
            self.commit_now()?;
        }
        Ok(self.has_room_for_puts())
    }

    /// Bytes that objects can take besides what is kept back.
    fn room_for_all(&self) -> u64 {
        let kept = self.appender.kept_from_puts() + self.residents.checkpoint_held.load(Relaxed);
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

    /// Puts a survivor again in pieces that fill their clusters.
    pub(crate) fn reinsert_cut(
        self: &Arc<Self>,
        (header, frame): (&Header, &[u8]),
        (hash, entry): (u64, IndexEntry),
        piece: usize,
    ) -> Result<bool> {
        let (start, len) = (header.body_start(), header.body_len as usize);
        let body = &frame[start..start + len];
        let parent = self.medium.hasher.key(header.key(frame));
        let manifest = Manifest { id: self.shared.next_generation(), total: len as u64, chunk: piece as u32 };
        let class = self.catalog.placer.class(Kind::Chunk, header.group, header.server);
        let mut outcome = Ok(true);
        for (number, body) in body.chunks(piece).enumerate() {
            let key = ChunkKey { parent: parent.0, id: manifest.id, number: number as u32 }.encode();
            let draft = self.redraft(header, Kind::Chunk, (&key, &[]), body);
            outcome = self.frame_survivor(&draft, class, None);
            if !matches!(outcome, Ok(true)) {
                break;
            }
        }
        if matches!(outcome, Ok(true)) {
            let encoded = manifest.encode();
            let class = self.catalog.placer.class(Kind::Manifest, header.group, header.server);
            let metadata = &frame[header.meta_start()..start];
            let draft = self.redraft(header, Kind::Manifest, (header.key(frame), metadata), &encoded);
            debug_assert_eq!(draft.hash, hash);
            outcome = self.frame_survivor(&draft, class, Some(entry));
        }
        if !matches!(outcome, Ok(true)) {
            self.frames.drop_pieces(parent.0, manifest);
        }
        outcome
    }

    /// The same object in another frame.
    fn redraft<'a>(
        &self,
        header: &Header,
        kind: Kind,
        (key, metadata): (&'a [u8], &'a [u8]),
        body: &'a [u8],
    ) -> Draft<'a> {
        let header = Header {
            kind,
            body_len: body.len() as u32,
            meta_len: metadata.len() as u32,
            key_len: key.len() as u16,
            payload_crc: frame::payload_crc(key, metadata, body),
            ..*header
        };
        Draft { hash: self.medium.hasher.frame(kind, key).short(), header, key, metadata, body }
    }

    /// Frames what reclaim moves, in place of `old`. False if that is gone.
    pub(crate) fn frame_survivor(
        self: &Arc<Self>,
        draft: &Draft<'_>,
        class: crate::write::placement::Class,
        old: Option<IndexEntry>,
    ) -> Result<bool> {
        loop {
            let blocked = {
                let _stripe = self.shared.lock_key(draft.hash);
                if old.is_some_and(|old| self.catalog.index.find(draft.hash, old.location()).is_none()) {
                    return Ok(false);
                }
                let generation = self.shared.next_generation();
                let draft = Draft { header: Header { generation, ..draft.header }, ..*draft };
                match self.append(&draft, class, None, old, Purpose::Survivor)? {
                    Ok(()) => break,
                    Err(blocked) => blocked,
                }
            };
            match blocked {
                Blocked::Moved | Blocked::Staging => {}
                Blocked::Buffers => self.committer.write_queued(true),
                Blocked::Space if self.space.leaving() > 1 => self.commit_now()?,
                Blocked::Space => return Err(self.full(draft.header.payload_len() as u64)),
            }
        }
        add(&self.shared.counters.reinserted, 1);
        add(&self.shared.counters.reinserted_bytes, draft.header.payload_len() as u64);
        Ok(true)
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
