//! What reclaim moves: a survivor is framed again, whole or in pieces that fill their clusters.
//!
//! Invariant: a survivor takes the place of its entry only, so that what was put meanwhile stays.

use std::sync::Arc;

use picaflor_format::frame::{self, ChunkKey, Header, Kind, Manifest};

use crate::{
    Result,
    base::blocked::{Blocked, Purpose},
    base::{frame::Draft, stats::add},
    index::IndexEntry,
    log::checkpoint::Checkpointer,
    read::parts::Parts,
    write::append::Appender,
    write::flush::Committer,
    write::placement::Class,
};

pub(crate) struct Survivors {
    parts: Parts,
    appender: Arc<Appender>,
    committer: Arc<Committer>,
    checkpointer: Arc<Checkpointer>,
}

/// What became of what was to move.
pub(crate) enum Moved {
    There,
    /// Its entry led elsewhere by then.
    Gone,
    NoRoom,
}

impl Survivors {
    pub(crate) fn new(parts: &Parts, checkpointer: &Arc<Checkpointer>) -> Self {
        let committer = Arc::clone(&checkpointer.committer);
        let (appender, checkpointer) = (Arc::clone(&checkpointer.appender), Arc::clone(checkpointer));
        Self { parts: parts.clone(), appender, committer, checkpointer }
    }

    /// Frames what moves, in place of `old`; the outer result is the device's.
    pub(crate) fn append(
        &self,
        draft: &Draft<'_>,
        class: Class,
        beside: Option<u64>,
        old: Option<IndexEntry>,
        purpose: Purpose,
    ) -> Result<Result<(), Blocked>> {
        if let Some(failure) = self.parts.log.commits.failure() {
            return Err(failure);
        }
        self.appender.append(draft, class, beside, old, purpose)
    }

    /// Moves what has so many bytes of payload, in place of `old`: `append` frames it, under its key's lock, and again
    /// when what was in the way is out of it.
    pub(crate) fn move_in(
        &self,
        (hash, old): (u64, Option<IndexEntry>),
        bytes: usize,
        append: impl Fn() -> Result<Result<(), Blocked>>,
    ) -> Result<Moved> {
        loop {
            let blocked = {
                let _stripe = self.parts.shared.lock_key(hash);
                if old.is_some_and(|old| self.parts.catalog.index.find(hash, old.location()).is_none()) {
                    return Ok(Moved::Gone);
                }
                match append()? {
                    Ok(()) => break,
                    Err(blocked) => blocked,
                }
            };
            if !self.outwait(blocked)? {
                return Ok(Moved::NoRoom);
            }
        }
        add(&self.parts.shared.counters.reinserted, 1);
        add(&self.parts.shared.counters.reinserted_bytes, bytes as u64);
        Ok(Moved::There)
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
        let parent = self.parts.medium.hasher.key(header.key(frame));
        let id = self.parts.shared.next_generation();
        let manifest = Manifest { id, total: len as u64, chunk: piece as u32, tail: 0 };
        let class = self.parts.catalog.placer.class(Kind::Chunk, header.group, header.server);
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
            let class = self.parts.catalog.placer.class(Kind::Manifest, header.group, header.server);
            let metadata = &frame[header.meta_start()..start];
            let draft = self.redraft(header, Kind::Manifest, (header.key(frame), metadata), &encoded);
            debug_assert_eq!(draft.hash, hash);
            outcome = self.frame_survivor(&draft, class, Some(entry));
        }
        if !matches!(outcome, Ok(true)) {
            self.parts.frames.drop_pieces(parent.0, manifest);
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
        Draft { hash: self.parts.medium.hasher.frame(kind, key).short(), header, key, metadata, body }
    }

    /// Frames what reclaim moves, in place of `old`. False if that is gone.
    fn frame_survivor(&self, draft: &Draft<'_>, class: Class, old: Option<IndexEntry>) -> Result<bool> {
        let bytes = draft.header.payload_len();
        let append = || {
            let generation = self.parts.shared.next_generation();
            let draft = Draft { header: Header { generation, ..draft.header }, ..*draft };
            self.append(&draft, class, None, old, Purpose::Survivor)
        };
        match self.move_in((draft.hash, old), bytes, append)? {
            Moved::There => Ok(true),
            Moved::Gone => Ok(false),
            Moved::NoRoom => Err(self.appender.full(bytes as u64)),
        }
    }

    /// Has what is in the way of a survivor out of it. False if there is no room.
    fn outwait(&self, blocked: Blocked) -> Result<bool> {
        match blocked {
            Blocked::Moved | Blocked::Staging => {}
            Blocked::Buffers => self.committer.write_queued(true),
            Blocked::Space if self.parts.space.leaving() > 1 => self.checkpointer.commit_now()?,
            Blocked::Space => return Ok(false),
        }
        Ok(true)
    }
}
