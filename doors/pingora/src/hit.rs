//! Reading a response: from the store, or from a fill that is under way.
//!
//! Invariants: a read that is given up halfway has moved nothing, for Pingora drops the future of one whenever
//! something else happens first; a handle on a stored response keeps it whole, whatever is purged or evicted meanwhile.

use std::{any::Any, sync::Arc};

use async_trait::async_trait;
use bytes::Bytes;
use picaflor::{Chunks, Object};
use pingora_cache::{
    CacheKey,
    storage::{HandleHit, Storage},
    trace::SpanHandle,
};
use pingora_error::{Error, ErrorType::InternalError, Result};
use tokio::sync::watch;

use crate::{
    failed,
    fill::{Fill, Look},
};

/// A reader of one response.
pub(crate) struct Hit {
    source: Source,
    /// What is still to be read of the body.
    at: u64,
    end: u64,
}

enum Source {
    Stored { object: Object, chunks: Chunks },
    Filling { fill: Arc<Fill>, changed: watch::Receiver<()> },
}

impl Source {
    fn stored(object: Object, at: u64, end: u64) -> Self {
        Self::Stored { chunks: object.chunks(at..end), object }
    }
}

impl Hit {
    pub(crate) fn stored(object: Object) -> Self {
        Self { source: Source::stored(object, 0, u64::MAX), at: 0, end: u64::MAX }
    }

    pub(crate) fn filling(fill: Arc<Fill>) -> Self {
        Self { source: Source::Filling { changed: fill.watch(), fill }, at: 0, end: u64::MAX }
    }
}

#[async_trait]
impl HandleHit for Hit {
    async fn read_body(&mut self) -> Result<Option<Bytes>> {
        loop {
            match &mut self.source {
                Source::Stored { chunks, .. } => match chunks.next_async().await.transpose().map_err(failed)? {
                    Some(piece) if piece.is_empty() => {}
                    piece => return Ok(piece),
                },
                Source::Filling { fill, changed } => {
                    changed.borrow_and_update();
                    match fill.look(self.at, self.end) {
                        Look::Piece(piece) => {
                            self.at += piece.len() as u64;
                            return Ok(Some(piece));
                        }
                        Look::End => return Ok(None),
                        // Its sender lives as long as the fill.
                        Look::NotYet => changed.changed().await.unwrap_or(()),
                        Look::Stored(object) => self.source = Source::stored(object, self.at, self.end),
                        Look::Failed(why) => {
                            return Error::e_explain(InternalError, format!("the response is not complete: {why}"));
                        }
                    }
                }
            }
        }
    }

    async fn finish(
        self: Box<Self>,
        _storage: &'static (dyn Storage + Sync),
        _key: &CacheKey,
        _trace: &SpanHandle,
    ) -> Result<()> {
        Ok(())
    }

    fn can_seek(&self) -> bool {
        true
    }

    fn seek(&mut self, start: usize, end: Option<usize>) -> Result<()> {
        let (start, end) = (start as u64, end.map_or(u64::MAX, |end| end as u64));
        if let Source::Stored { object, chunks } = &mut self.source {
            if start >= object.len() {
                let why = format!("seek to byte {start} of a response of {}", object.len());
                return Error::e_explain(InternalError, why);
            }
            *chunks = object.chunks(start..end);
        }
        (self.at, self.end) = (start, end);
        Ok(())
    }

    /// A reader that shares a fill has it counted by the one that is admitted.
    fn should_count_access(&self) -> bool {
        matches!(self.source, Source::Stored { .. })
    }

    fn get_eviction_weight(&self) -> usize {
        match &self.source {
            Source::Stored { object, .. } => object.len() as usize + object.metadata().len(),
            Source::Filling { .. } => 0,
        }
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync) {
        self
    }

    fn as_any_mut(&mut self) -> &mut (dyn Any + Send + Sync) {
        self
    }
}
