//! Making room in a store, which loses nothing: clusters are emptied by half, so what moves is cut and packed tightly
//! where that gains room.
//!
//! Invariant: as many moves as a full store is worth are made before it says that it is full.

use std::sync::atomic::Ordering::Relaxed;

use picaflor_format::frame::{self, ChunkKey, Header, Kind, Manifest};

use crate::{
    Result,
    background::reclaim::Reclaimer,
    base::{frame::Draft, stats::add},
    index::IndexEntry,
    space::Fill,
    write::append::Blocked,
};

/// Part by which objects become less before a store that packed tightly below that stops it: more than what is known
/// of the length of objects that were not weighed.
const LOOSER: u64 = 4;
/// Checkpoints that are taken, at most, to make room once: one that seals slow buffers, two until no recovery reads
/// what the journal told of young clusters, and as many again where puts went on meanwhile.
const CHECKPOINTS: u32 = 6;
/// Clusters that are emptied, at most, before one more is free.
const MOVES: u32 = 64;

impl Reclaimer {
    /// Makes a cluster free that puts may take. False if nothing would: the store is full. So many clusters are emptied
    /// at most before one more is free, and none while no more can be gained than when that was in vain.
    pub(crate) fn make_space_in_store(&self) -> Result<bool> {
        let _turn = self.state.turn.lock();
        self.frames.drop_released();
        self.drop_residents_if_tight();
        if self.has_room_for_puts() {
            return Ok(true);
        }
        let was_in_vain = self.state.in_vain.load(Relaxed);
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
        self.state.in_vain.store(if has_room { u64::MAX } else { self.space.fill().live }, Relaxed);
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

    fn empty_for_puts(&self) -> Result<bool> {
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
                self.checkpointer.commit_now()?;
            } else if young >= least && checkpoints < CHECKPOINTS {
                checkpoints += 1;
                self.checkpointer.take()?;
            } else if retired < self.space.count() {
                retired += 4;
                self.residents.retire_a_resident();
            } else {
                break;
            }
        }
        if self.space.leaving() > 0 {
            self.checkpointer.commit_now()?;
        }
        Ok(self.has_room_for_puts())
    }

    /// Puts a survivor again in pieces that fill their clusters.
    pub(crate) fn reinsert_cut(
        &self,
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
    pub(crate) fn redraft<'a>(
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
    fn frame_survivor(
        &self,
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
                match self.append(&draft, class, None, old)? {
                    Ok(()) => break,
                    Err(blocked) => blocked,
                }
            };
            match blocked {
                Blocked::Moved | Blocked::Staging => {}
                Blocked::Buffers => self.committer.write_queued(true),
                Blocked::Space if self.space.leaving() > 1 => self.checkpointer.commit_now()?,
                Blocked::Space => return Err(self.appender.full(draft.header.payload_len() as u64)),
            }
        }
        add(&self.shared.counters.reinserted, 1);
        add(&self.shared.counters.reinserted_bytes, draft.header.payload_len() as u64);
        Ok(true)
    }
}
