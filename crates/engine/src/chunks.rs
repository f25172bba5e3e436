//! Reading a body piece by piece: the way to read an object larger than a cluster, or a part of any.

use std::{collections::VecDeque, ops::Range, sync::Arc};

use bytes::Bytes;
use picaflor_format::frame::{ChunkKey, Manifest};

use crate::{Departure, Error, Miss, Mode, Object, Result, get::Query, object::Frame, store::Store};

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

    pub(crate) fn large(store: &Store, frame: Arc<Frame>, manifest: Manifest, range: Range<u64>) -> Self {
        let range = cut(range, manifest.total);
        let rest = Rest { store: store.clone(), manifest_frame: frame, manifest, range: range.clone() };
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

    /// The next piece; `None` at the end.
    pub async fn next_async(&mut self) -> Option<Result<Bytes>> {
        if let Some(ready) = self.ready.pop_front() {
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
        rest.store.aside(move |store| store.drop_incomplete(&manifest)).await;
        Some(Err(rest.missing()))
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
        if let Some(ready) = self.ready.pop_front() {
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
        let parent = self.store.hasher().key(self.manifest_frame.key()).0;
        Query::chunk(&self.store, ChunkKey { parent, id: self.manifest.id, number })
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

    /// All pieces in one; none if one of them is not there.
    fn gather(&self) -> Result<Option<Bytes>> {
        let mut body = Vec::with_capacity(self.manifest.total as usize);
        for number in 0..self.manifest.chunks() {
            let Some(frame) = self.store.run(&mut self.query(number))? else { return Ok(None) };
            body.extend_from_slice(&frame.body());
        }
        Ok((body.len() as u64 == self.manifest.total).then(|| body.into()))
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
        let object = Object::from_frame(frame, self)?;
        if self.is_short(&object) {
            return self.gathered(object);
        }
        if self.has_chunks(&object) {
            return Ok(Some(object));
        }
        self.drop_incomplete(object.frame());
        Ok(None)
    }

    /// Whether it was cut though it would fit in a cluster, for a store to be fuller: whoever asks for it gets its body
    /// at once, as of one frame.
    pub(crate) fn is_short(&self, object: &Object) -> bool {
        let fits = |total: u64| {
            object.key().len() as u64 + object.metadata().len() as u64 + total <= self.payload_max() as u64
        };
        self.mode() == Mode::Store && object.manifest().is_some_and(|manifest| fits(manifest.total))
    }

    /// The object with its body. Its pieces may be gone because it was replaced or deleted meanwhile, or cut anew: then
    /// the key is looked up again, as if it had been asked for later.
    fn gathered(&self, mut object: Object) -> Result<Option<Object>> {
        loop {
            let Some(manifest) = object.manifest() else { return Ok(Some(object)) };
            let frame = object.shared_frame();
            let rest = Rest { store: self.clone(), manifest_frame: frame, manifest, range: 0..manifest.total };
            if let Some(body) = rest.gather()? {
                return Ok(Some(object.with_body(body)));
            }
            let key = rest.manifest_frame.key();
            let Some(now) = self.run(&mut Query::key(self, key))? else { return Ok(None) };
            if now.header.generation == rest.manifest_frame.header.generation {
                self.drop_incomplete(&rest.manifest_frame);
                return Err(rest.missing());
            }
            object = Object::from_frame(now, self)?;
            if !self.is_short(&object) {
                return Ok(Some(object));
            }
        }
    }

    /// As [`Store::whole_object`] for tasks.
    pub(crate) async fn whole_object_async(&self, frame: Arc<Frame>) -> Result<Option<Object>> {
        let object = Object::from_frame(Arc::clone(&frame), self)?;
        let is_there = || self.late().is_over() && !self.is_short(&object) && self.has_chunks(&object);
        if object.manifest().is_none() || is_there() {
            return Ok(Some(object));
        }
        self.aside(move |store| store.whole_object(frame)).await
    }

    /// Whether the index knows every chunk of the object; nothing is read. All of them count as asked for: what the
    /// object is worth, each of them is.
    pub(crate) fn has_chunks(&self, object: &Object) -> bool {
        let Some(manifest) = object.manifest().filter(|_| self.mode() == Mode::Cache) else { return true };
        let parent = self.hasher().key(object.key()).0;
        (0..manifest.chunks()).all(|number| {
            let chunk = self.hasher().chunk(&ChunkKey { parent, id: manifest.id, number }.encode()).short();
            self.volumes().iter().any(|volume| !volume.index.touch(chunk).is_empty())
        })
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
