//! A response on its way into the store, which readers follow while it comes.
//!
//! Invariants: all fills together hold no more pieces than their share of the store's memory, which counts them in its
//! cap; a reader that falls behind what is held waits for the end of the fill and reads on from the store. A fill that
//! ends without [`HandleMiss::finish`] was never there, and its readers get an error, never a shorter body. What the
//! store refuses costs the copy, not the answer: the readers get it all the same.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
use picaflor::{Object, PutStream, Reserved, Store};
use pingora_cache::storage::{HandleMiss, MissFinishType, streaming_write::U64WriteId};
use pingora_error::Result;
use tokio::sync::watch;

use crate::Picaflor;

/// One fill, shared by its writer and its readers.
pub(crate) struct Fill {
    /// Its number, and the tag by which Pingora finds it.
    pub(crate) number: u64,
    pub(crate) metadata: Bytes,
    state: Mutex<State>,
    changed: watch::Sender<()>,
    share: Arc<Share>,
}

/// What fills may hold together.
pub(crate) struct Share {
    pub(crate) limit: u64,
    held: AtomicU64,
}

struct State {
    /// Where each piece begins, and the piece.
    pieces: VecDeque<(u64, Bytes)>,
    len: u64,
    reserved: Reserved,
    end: End,
    /// A purge came: the store is not to have it.
    is_purged: bool,
}

enum End {
    NotYet,
    /// All of it came; the store's copy, if readers need it.
    Whole(Option<Object>),
    Failed(String),
}

/// What a reader finds at its place.
pub(crate) enum Look {
    Piece(Bytes),
    NotYet,
    End,
    Stored(Object),
    Failed(String),
}

impl Share {
    pub(crate) fn new(limit: u64) -> Self {
        Self { limit, held: AtomicU64::new(0) }
    }
}

impl Fill {
    pub(crate) fn new(number: u64, metadata: Bytes, store: &Store, share: &Arc<Share>) -> Arc<Self> {
        let state =
            State { pieces: VecDeque::new(), len: 0, reserved: store.reserve(), end: End::NotYet, is_purged: false };
        let (changed, _) = watch::channel(());
        Arc::new(Self { number, metadata, state: Mutex::new(state), changed, share: Arc::clone(share) })
    }

    /// Wakes when there is more to see than at the last look.
    pub(crate) fn watch(&self) -> watch::Receiver<()> {
        self.changed.subscribe()
    }

    pub(crate) fn look(&self, at: u64, end: u64) -> Look {
        let state = self.state.lock();
        if at >= end {
            return Look::End;
        }
        let next = state.pieces.partition_point(|(start, _)| *start <= at);
        let piece = next.checked_sub(1).map(|number| &state.pieces[number]);
        match (piece, &state.end) {
            (Some((start, piece)), _) if at < start + piece.len() as u64 => {
                let until = (end - start).min(piece.len() as u64);
                Look::Piece(piece.slice((at - start) as usize..until as usize))
            }
            (_, End::Failed(why)) => Look::Failed(why.clone()),
            (_, End::NotYet) => Look::NotYet,
            (_, End::Whole(_)) if at >= state.len => Look::End,
            (_, End::Whole(Some(object))) => Look::Stored(object.clone()),
            (_, End::Whole(None)) => Look::Failed("it was not stored, and this reader was too slow for memory".into()),
        }
    }

    fn push(&self, data: Bytes) {
        let mut state = self.state.lock();
        let (start, len) = (state.len, data.len() as u64);
        state.len += len;
        if len > 0 {
            state.pieces.push_back((start, data));
            let mut held = self.share.held.fetch_add(len, Relaxed) + len;
            while held > self.share.limit
                && let Some((_, piece)) = state.pieces.pop_front()
            {
                held = self.share.held.fetch_sub(piece.len() as u64, Relaxed) - piece.len() as u64;
            }
            let mine = state.held();
            state.reserved.set(mine);
        }
        drop(state);
        self.changed.send_replace(());
    }

    /// Whether readers may need the store for what has left memory.
    fn has_let_go(&self) -> bool {
        let state = self.state.lock();
        state.held() < state.len
    }

    fn end(&self, end: End) {
        let mut state = self.state.lock();
        if matches!(state.end, End::NotYet) {
            state.end = end;
        }
        drop(state);
        self.changed.send_replace(());
    }

    pub(crate) fn purge(&self) {
        self.state.lock().is_purged = true;
    }

    pub(crate) fn is_purged(&self) -> bool {
        self.state.lock().is_purged
    }

    fn len(&self) -> u64 {
        self.state.lock().len
    }
}

impl State {
    fn held(&self) -> u64 {
        self.pieces.front().map_or(0, |(start, _)| self.len - start)
    }
}

impl Drop for Fill {
    fn drop(&mut self) {
        self.share.held.fetch_sub(self.state.get_mut().held(), Relaxed);
    }
}

/// Pingora's end of a fill.
pub(crate) struct Writer {
    pub(crate) storage: &'static Picaflor,
    pub(crate) key: Bytes,
    pub(crate) fill: Arc<Fill>,
    /// None once the store refused it.
    pub(crate) stream: Option<PutStream>,
    pub(crate) tag: U64WriteId,
}

impl Writer {
    /// The store's copy is complete, and found by gets; returns its size.
    async fn commit(&mut self) -> picaflor::Result<(usize, Option<Object>)> {
        let Some(stream) = self.stream.take() else { return Ok((0, None)) };
        let _one_at_a_time = self.storage.lock(&self.key).await;
        if self.fill.is_purged() {
            return Ok((0, None));
        }
        stream.finish_async().await?;
        let object = if self.fill.has_let_go() { self.storage.store().get_async(&self.key).await? } else { None };
        Ok((self.fill.len() as usize + self.fill.metadata.len(), object))
    }
}

#[async_trait]
impl HandleMiss for Writer {
    async fn write_body(&mut self, data: Bytes, _eof: bool) -> Result<()> {
        self.fill.push(data.clone());
        if let Some(stream) = &mut self.stream
            && let Err(error) = stream.write_async(data).await
        {
            self.storage.note_refusal(&error);
            self.stream = None;
        }
        Ok(())
    }

    async fn finish(mut self: Box<Self>) -> Result<MissFinishType> {
        let (size, object) = self.commit().await.unwrap_or_else(|error| {
            // An error here would make Pingora cut off the response that is still being sent from this fill.
            self.storage.note_refusal(&error);
            (0, None)
        });
        self.fill.end(End::Whole(object));
        Ok(MissFinishType::Created(size))
    }

    fn streaming_write_tag(&self) -> Option<&[u8]> {
        Some(self.tag.as_bytes())
    }
}

impl Drop for Writer {
    fn drop(&mut self) {
        // What was finished has its end already.
        self.fill.end(End::Failed("the fetch that it came from was broken off".into()));
        self.storage.forget_fill(&self.key, self.fill.number);
    }
}
