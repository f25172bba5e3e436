//! Reading a body piece by piece: the way to read an object larger than a cluster, or a part of any.

use std::{
    collections::VecDeque,
    future::poll_fn,
    ops::Range,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use picaflor_device::with_room;
use picaflor_format::frame::Manifest;

use crate::{Error, Miss, Result, base::blocking::BoxFuture, base::frame::Frame, cache::leases::Lease};

/// Where chunks of large objects are read: a store.
pub(crate) trait ChunkSource: Send + Sync {
    /// What keeps the chunks of the object with this key where they are; none if they are being dropped.
    fn lease(&self, key: &[u8], manifest: Manifest) -> Option<Arc<Lease>>;
    /// Chunk `number` of the object of this manifest; none if it is not there.
    ///
    /// # Errors
    /// As of a get.
    fn chunk(self: Arc<Self>, manifest: &Frame, id: u64, number: u32) -> Result<Option<Arc<Frame>>>;
    /// Begins to read it; what is returned waits for it.
    fn begin_chunk(self: Arc<Self>, manifest: &Frame, id: u64, number: u32) -> BegunChunk;
    /// The same for tasks.
    fn chunk_async(self: Arc<Self>, manifest: &Frame, id: u64, number: u32) -> BoxFuture<Option<Arc<Frame>>>;
    /// Without one of its chunks the object is of no use: it leaves.
    fn drop_incomplete(self: Arc<Self>, manifest: &Frame);
    /// The same for tasks.
    fn drop_incomplete_async(self: Arc<Self>, manifest: Arc<Frame>) -> BoxFuture<()>;
}

/// A read of a chunk that is under way, and waits for it on the thread that calls.
pub(crate) type BegunChunk = Box<dyn FnOnce() -> Result<Option<Arc<Frame>>> + Send>;

/// Chunks that are read at a time for a body in one piece.
const AHEAD: usize = 8;

/// The pieces of a range of an object's body, in order. An iterator for threads; [`Chunks::next_async`]
/// for tasks.
pub struct Chunks {
    ready: VecDeque<Bytes>,
    rest: Option<Rest>,
    /// Bytes of the whole body.
    total: u64,
    /// The part of it that was asked for and exists.
    range: Range<u64>,
}

pub(crate) struct Rest {
    source: Arc<dyn ChunkSource>,
    manifest_frame: Arc<Frame>,
    manifest: Manifest,
    range: Range<u64>,
    /// Keeps the chunks that are still to be read.
    _lease: Option<Arc<Lease>>,
}

impl Chunks {
    pub(crate) fn whole(body: Bytes, range: Range<u64>) -> Self {
        let len = body.len() as u64;
        let range = cut(range, len);
        let mut ready = VecDeque::new();
        if !range.is_empty() {
            ready.push_back(body.slice(range.start as usize..range.end as usize));
        }
        Self { ready, rest: None, total: len, range }
    }

    pub(crate) fn large(
        source: &Arc<dyn ChunkSource>,
        (manifest_frame, lease): (Arc<Frame>, Option<Arc<Lease>>),
        manifest: Manifest,
        range: Range<u64>,
    ) -> Self {
        let range = cut(range, manifest.total);
        let rest = Rest { range: range.clone(), ..Rest::all(source, (manifest_frame, lease), manifest) };
        Self { ready: VecDeque::new(), rest: Some(rest), total: manifest.total, range }
    }

    /// The bytes of the body that all pieces together hold: what was asked for, cut to the body. Empty, at the
    /// place where it was asked for or at the end, if that is nothing.
    pub fn range(&self) -> Range<u64> {
        self.range.clone()
    }

    /// Length of the whole body in bytes.
    pub fn total(&self) -> u64 {
        self.total
    }

    /// The next piece, if it is in memory.
    pub(crate) fn ready(&mut self) -> Option<Bytes> {
        self.ready.pop_front()
    }

    /// The next piece; `None` at the end.
    pub async fn next_async(&mut self) -> Option<Result<Bytes>> {
        if let Some(ready) = self.ready() {
            return Some(Ok(ready));
        }
        let rest = self.rest.as_mut()?;
        if let Some(tail) = rest.next_of_tail() {
            return Some(Ok(tail));
        }
        let (number, within) = rest.next_piece()?;
        let found = Arc::clone(&rest.source).chunk_async(&rest.manifest_frame, rest.manifest.id, number).await;
        if let Some(piece) = rest.take(found, within) {
            return Some(piece);
        }
        Some(Err(rest.lost_async().await))
    }
}

impl std::fmt::Debug for Chunks {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Chunks").field("range", &self.range).field("total", &self.total).finish_non_exhaustive()
    }
}

/// What of a range lies within the first `len` bytes.
fn cut(range: Range<u64>, len: u64) -> Range<u64> {
    let start = range.start.min(len);
    start..range.end.clamp(start, len)
}

impl Iterator for Chunks {
    type Item = Result<Bytes>;

    fn next(&mut self) -> Option<Self::Item> {
        if let Some(ready) = self.ready() {
            return Some(Ok(ready));
        }
        let rest = self.rest.as_mut()?;
        if let Some(tail) = rest.next_of_tail() {
            return Some(Ok(tail));
        }
        let (number, within) = rest.next_piece()?;
        let found = rest.chunk(number);
        let piece = rest.take(found, within);
        Some(piece.unwrap_or_else(|| Err(rest.lost())))
    }
}

impl Rest {
    /// All of a large object.
    pub(crate) fn all(
        source: &Arc<dyn ChunkSource>,
        (manifest_frame, lease): (Arc<Frame>, Option<Arc<Lease>>),
        manifest: Manifest,
    ) -> Self {
        Self { source: Arc::clone(source), manifest_frame, manifest, range: 0..manifest.total, _lease: lease }
    }

    /// What is wanted of the bytes that follow the manifest, where nothing before them is wanted any more.
    fn next_of_tail(&mut self) -> Option<Bytes> {
        let first = self.manifest.in_chunks();
        let wanted = Some(self.range.clone()).filter(|range| range.start >= first && !range.is_empty())?;
        self.range.start = wanted.end;
        Some(self.tail().slice((wanted.start - first) as usize..(wanted.end - first) as usize))
    }

    /// The bytes of the object that follow its manifest.
    fn tail(&self) -> Bytes {
        self.manifest_frame.body().slice(Manifest::LEN..)
    }

    /// The chunk that holds the next byte, and which of its bytes are wanted.
    fn next_piece(&self) -> Option<(u32, Range<usize>)> {
        if self.range.is_empty() {
            return None;
        }
        let chunk = u64::from(self.manifest.chunk);
        let number = self.range.start / chunk;
        let base = number * chunk;
        let end = self.range.end.min(base + chunk).min(self.manifest.in_chunks());
        Some((number as u32, (self.range.start - base) as usize..(end - base) as usize))
    }

    fn chunk(&self, number: u32) -> Result<Option<Arc<Frame>>> {
        Arc::clone(&self.source).chunk(&self.manifest_frame, self.manifest.id, number)
    }

    /// The piece that was wanted; `None` if it is not there. Nothing comes after a failure.
    fn take(&mut self, found: Result<Option<Arc<Frame>>>, within: Range<usize>) -> Option<Result<Bytes>> {
        let body = found.map(|frame| frame.map(|frame| frame.body()).filter(|body| body.len() >= within.end));
        match body {
            Ok(Some(body)) => {
                self.range.start += within.len() as u64;
                Some(Ok(body.slice(within)))
            }
            failed => {
                self.range.end = self.range.start;
                failed.err().map(Err)
            }
        }
    }

    /// Each piece, read when it is asked for.
    fn pieces(&self) -> impl Iterator<Item = Result<Option<Arc<Frame>>>> {
        (0..self.manifest.chunks()).map(|number| self.chunk(number))
    }

    /// All pieces in one, some read while others arrive; none if one of them is not there.
    pub(crate) fn gather(&self) -> Result<Option<Bytes>> {
        let begin = |number| Arc::clone(&self.source).begin_chunk(&self.manifest_frame, self.manifest.id, number);
        let (mut body, mut ahead) = (with_room(self.manifest.total as usize), VecDeque::new());
        let mut coming = (0..self.manifest.chunks()).map(begin);
        ahead.extend(coming.by_ref().take(AHEAD));
        while let Some(piece) = ahead.pop_front() {
            let Some(frame) = piece()? else { return Ok(None) };
            body.extend_from_slice(&frame.body());
            ahead.extend(coming.next());
        }
        Ok(self.ended(body))
    }

    /// The same for tasks.
    async fn gather_async(&self) -> Result<Option<Bytes>> {
        let begin = |number| {
            let source = Arc::clone(&self.source);
            Ahead::Coming(source.chunk_async(&self.manifest_frame, self.manifest.id, number))
        };
        let (mut body, mut ahead) = (with_room(self.manifest.total as usize), VecDeque::new());
        let mut coming = (0..self.manifest.chunks()).map(begin);
        ahead.extend(coming.by_ref().take(AHEAD));
        while !ahead.is_empty() {
            poll_fn(|context| {
                ahead.iter_mut().for_each(|piece| piece.poll(context));
                if matches!(ahead.front(), Some(Ahead::Coming(_))) { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
            let Some(Ahead::Here(piece)) = ahead.pop_front() else { break };
            let Some(frame) = piece? else { return Ok(None) };
            body.extend_from_slice(&frame.body());
            ahead.extend(coming.next());
        }
        Ok(self.ended(body))
    }

    /// The body, of which these are the chunks; none if they are not all of it.
    fn ended(&self, mut body: Vec<u8>) -> Option<Bytes> {
        body.extend_from_slice(&self.tail());
        (body.len() as u64 == self.manifest.total).then(|| body.into())
    }

    /// The whole body of a handle; without one of its chunks the object leaves.
    pub(crate) fn body(&self) -> Result<Bytes> {
        self.gather()?.ok_or_else(|| self.lost())
    }

    /// The same for tasks.
    pub(crate) async fn body_async(&self) -> Result<Bytes> {
        match self.gather_async().await? {
            Some(body) => Ok(body),
            None => Err(self.lost_async().await),
        }
    }

    /// A chunk is not there: the object leaves.
    fn lost(&self) -> Error {
        Arc::clone(&self.source).drop_incomplete(&self.manifest_frame);
        self.missing()
    }

    /// The same for tasks.
    async fn lost_async(&self) -> Error {
        let _ = Arc::clone(&self.source).drop_incomplete_async(Arc::clone(&self.manifest_frame)).await;
        self.missing()
    }

    /// Whether each piece is there, by reading it.
    pub(crate) fn is_whole(&self) -> Result<bool> {
        for piece in self.pieces() {
            if piece?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// The reader has had the head already, and is told that the rest is not there.
    pub(crate) fn missing(&self) -> Error {
        Error::Damaged {
            place: format!("object {:?}", String::from_utf8_lossy(self.manifest_frame.key())),
            why: Miss::ChunkMissing.to_string(),
            mend: "it was dropped; put it again".into(),
        }
    }
}

/// A chunk that a task reads ahead.
enum Ahead {
    Coming(BoxFuture<Option<Arc<Frame>>>),
    Here(Result<Option<Arc<Frame>>>),
}

impl Ahead {
    fn poll(&mut self, context: &mut Context<'_>) {
        if let Self::Coming(chunk) = self
            && let Poll::Ready(here) = chunk.as_mut().poll(context)
        {
            *self = Self::Here(here);
        }
    }
}
