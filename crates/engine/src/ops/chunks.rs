//! Reading a body piece by piece: the way to read an object larger than a cluster, or a part of any.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use bytes::Bytes;
use picaflor_format::frame::{ChunkKey, Manifest};

use crate::{
    Departure, Error, Miss, Mode, Object, Result, base::frame::Frame, cache::leases::Lease, ops::get::Query,
    store::Store,
};

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

struct Rest {
    store: Store,
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
        store: &Store,
        (manifest_frame, lease): (Arc<Frame>, Option<Arc<Lease>>),
        manifest: Manifest,
        range: Range<u64>,
    ) -> Self {
        let range = cut(range, manifest.total);
        let rest = Rest { store: store.clone(), manifest_frame, manifest, range: range.clone(), _lease: lease };
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
        let (number, within) = rest.next_piece()?;
        let query = rest.query(number);
        let found = rest.store.frame_async(query).await;
        if let Some(piece) = rest.take(found, within) {
            return Some(piece);
        }
        let manifest = Arc::clone(&rest.manifest_frame);
        rest.store.spawn_blocking(move |store| store.drop_incomplete(&manifest)).await;
        Some(Err(rest.missing()))
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
        let (number, within) = rest.next_piece()?;
        let found = rest.store.run(&mut rest.query(number));
        let piece = rest.take(found, within);
        Some(piece.unwrap_or_else(|| {
            rest.store.drop_incomplete(&rest.manifest_frame);
            Err(rest.missing())
        }))
    }
}

impl Rest {
    /// All of a large object.
    fn all(store: &Store, object: &Object) -> Option<Self> {
        let (manifest, lease) = object.manifest_and_lease()?;
        let (store, manifest_frame) = (store.clone(), object.shared_frame());
        Some(Self { store, manifest_frame, manifest, range: 0..manifest.total, _lease: lease })
    }

    /// The chunk that holds the next byte, and which of its bytes are wanted.
    fn next_piece(&self) -> Option<(u32, Range<usize>)> {
        if self.range.is_empty() {
            return None;
        }
        let chunk = u64::from(self.manifest.chunk);
        let number = self.range.start / chunk;
        let base = number * chunk;
        let end = self.range.end.min(base + chunk);
        Some((number as u32, (self.range.start - base) as usize..(end - base) as usize))
    }

    fn query(&self, number: u32) -> Query {
        let key = self.manifest_frame.key();
        let parent = self.store.hasher().key(key);
        let home = self.store.home_number(parent, key);
        Query::chunk(&self.store, home, ChunkKey { parent: parent.0, id: self.manifest.id, number })
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
        (0..self.manifest.chunks()).map(|number| self.store.run(&mut self.query(number)))
    }

    /// All pieces in one; none if one of them is not there.
    fn gather(&self) -> Result<Option<Bytes>> {
        let mut body = Vec::with_capacity(self.manifest.total as usize);
        for piece in self.pieces() {
            let Some(frame) = piece? else { return Ok(None) };
            body.extend_from_slice(&frame.body());
        }
        Ok((body.len() as u64 == self.manifest.total).then(|| body.into()))
    }

    /// Whether each piece is there, by reading it.
    fn is_whole(&self) -> Result<bool> {
        for piece in self.pieces() {
            if piece?.is_none() {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Whoever reads has had the head already, and is told that the rest is not there.
    fn missing(&self) -> Error {
        Error::Damaged {
            place: format!("object {:?}", String::from_utf8_lossy(self.manifest_frame.key())),
            why: Miss::ChunkMissing.to_string(),
            mend: "it was dropped; put it again".into(),
        }
    }
}

impl Store {
    /// The object that a verified frame stands for. A cache evicts chunk by chunk, and a crash may take a chunk and
    /// leave the manifest; a large object of which that is known is a miss, before anybody has read half of it. In a
    /// store a missing chunk is damage, and reading says so.
    pub(crate) fn whole_object(&self, frame: Arc<Frame>) -> Result<Option<Object>> {
        let mut object = Object::from_frame(frame, self)?;
        loop {
            let unsure = || self.may_be_misled(&object).then(|| Rest::all(self, &object)).flatten();
            let is_there = self.has_chunks(&object)? && unsure().map_or(Ok(true), |rest| rest.is_whole())?;
            if is_there {
                let Some(rest) = self.is_short(&object).then(|| Rest::all(self, &object)).flatten() else {
                    return Ok(Some(object));
                };
                if let Some(body) = rest.gather()? {
                    return Ok(Some(object.with_body(body)));
                }
            } else if self.mode() == Mode::Cache {
                self.drop_incomplete(object.frame());
                return Ok(None);
            }
            // It may have been replaced, deleted, or cut anew since its manifest was found: then the key is looked up
            // again, as if it had been asked for later.
            let Some(now) = self.run(&mut Query::key(self, object.key()))? else { return Ok(None) };
            if now.header.generation == object.generation() && object.is_held() {
                return match Rest::all(self, &object).filter(|_| self.is_short(&object)) {
                    Some(rest) => {
                        self.drop_incomplete(object.frame());
                        Err(rest.missing())
                    }
                    // Reading says what is missing.
                    None => Ok(Some(object)),
                };
            }
            object = Object::from_frame(now, self)?;
        }
    }

    /// Whether it was cut though it would fit in a cluster, for a store to be fuller: whoever asks for it gets its body
    /// at once, as of one frame.
    pub(crate) fn is_short(&self, object: &Object) -> bool {
        let fits = |total: u64| {
            object.key().len() as u64 + object.metadata().len() as u64 + total <= self.payload_max() as u64
        };
        self.mode() == Mode::Store && object.manifest().is_some_and(|manifest| fits(manifest.total))
    }

    /// As [`Store::whole_object`] for tasks.
    pub(crate) async fn whole_object_async(&self, frame: Arc<Frame>) -> Result<Option<Object>> {
        let object = Object::from_frame(Arc::clone(&frame), self)?;
        let is_at_once = object.manifest().is_none()
            || self.deferred().is_over()
                && self.layout().is_none()
                && !self.is_short(&object)
                && !self.may_be_misled(&object);
        if is_at_once && self.has_chunks(&object)? {
            return Ok(Some(object));
        }
        self.spawn_blocking(move |store| store.whole_object(frame)).await
    }

    /// Whether the object's chunks are there, and stay as long as its handle does: the index knows every one of them,
    /// and nothing is read; or, where there are tables, they say that the manifest is still the key's. All chunks count
    /// as asked for: what the object is worth, each of them is.
    pub(crate) fn has_chunks(&self, object: &Object) -> Result<bool> {
        let Some(manifest) = object.manifest() else { return Ok(true) };
        if !object.is_held() {
            return Ok(false);
        }
        if let Some(layout) = self.layout() {
            return layout.owns(object.key(), manifest.id);
        }
        let parent = self.hasher().key(object.key());
        let volume = self.home(parent, object.key());
        Ok((0..manifest.chunks()).all(|number| {
            let chunk = self.hasher().chunk(&ChunkKey { parent: parent.0, id: manifest.id, number }.encode()).short();
            !volume.catalog.index.touch(chunk).is_empty()
        }))
    }

    /// Whether the index may know chunks of this object that left a cache before a crash: then only reading tells.
    pub(crate) fn may_be_misled(&self, object: &Object) -> bool {
        let of_cache = self.mode() == Mode::Cache && object.manifest().is_some() && self.layout().is_none();
        of_cache && self.home(self.hasher().key(object.key()), object.key()).scrubber.may_mislead()
    }

    /// Without one of its chunks the object is of no use: it leaves.
    fn drop_incomplete(&self, manifest: &Frame) {
        self.shared().counters.missed(Miss::ChunkMissing);
        // This version only: the chunks of an object that was put again meanwhile are gone, and it is not.
        if let Ok(true) = self.delete_version(manifest.key(), manifest.header.generation) {
            self.shared().note_departure(manifest.key(), Departure::Evicted);
        }
    }
}
