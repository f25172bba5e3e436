//! Large objects: whether all of one is there, and where its chunks are read.

use std::sync::Arc;

use picaflor_format::frame::{ChunkKey, Manifest};

use crate::{
    Departure, Miss, Mode, Object, Result,
    api::chunks::{BegunChunk, ChunkSource},
    base::blocking::BoxFuture,
    base::frame::Frame,
    cache::leases::Lease,
    handle::{Inner, Store},
    ops::lookup::Query,
};

impl ChunkSource for Inner {
    fn lease(&self, key: &[u8], manifest: Manifest) -> Option<Arc<Lease>> {
        self.shared.leases.take(self.hasher.key(key), manifest).map(Arc::new)
    }

    fn chunk(self: Arc<Self>, manifest: &Frame, id: u64, number: u32) -> Result<Option<Arc<Frame>>> {
        let store = Store { inner: self };
        store.run(&mut store.chunk_of(manifest, id, number))
    }

    fn begin_chunk(self: Arc<Self>, manifest: &Frame, id: u64, number: u32) -> BegunChunk {
        let store = Store { inner: self };
        let query = store.chunk_of(manifest, id, number);
        Box::new(store.begin_run(query))
    }

    fn chunk_async(self: Arc<Self>, manifest: &Frame, id: u64, number: u32) -> BoxFuture<Option<Arc<Frame>>> {
        let store = Store { inner: self };
        let query = store.chunk_of(manifest, id, number);
        Box::pin(store.frame_async(query))
    }

    fn drop_incomplete(self: Arc<Self>, manifest: &Frame) {
        Store { inner: self }.drop_without_chunk(manifest);
    }

    fn drop_incomplete_async(self: Arc<Self>, manifest: Arc<Frame>) -> BoxFuture<()> {
        let dropped = Store { inner: self }.spawn_blocking(move |store| store.drop_without_chunk(&manifest));
        Box::pin(async move {
            dropped.await;
            Ok(())
        })
    }
}

impl Store {
    pub(crate) fn source(&self) -> Arc<dyn ChunkSource> {
        Arc::clone(&self.inner) as Arc<dyn ChunkSource>
    }

    fn chunk_of(&self, manifest: &Frame, id: u64, number: u32) -> Query {
        let parent = self.hasher().key(manifest.key());
        let home = self.home_number(parent, manifest.key());
        Query::chunk(self, home, ChunkKey { parent: parent.0, id, number })
    }

    /// The object that a verified frame stands for. A cache evicts chunk by chunk, and a crash may take a chunk and
    /// leave the manifest; a large object of which that is known is a miss, before half of it has been read. In a
    /// store a missing chunk is damage, and reading says so.
    pub(crate) fn whole_object(&self, frame: Arc<Frame>) -> Result<Option<Object>> {
        let mut object = Object::from_frame(frame, || self.source())?;
        loop {
            let unsure = || self.may_be_misled(&object).then(|| object.rest()).flatten();
            let is_there = self.has_chunks(&object)? && unsure().map_or(Ok(true), |rest| rest.is_whole())?;
            if is_there {
                let Some(rest) = self.is_short(&object).then(|| object.rest()).flatten() else {
                    return Ok(Some(object));
                };
                if let Some(body) = rest.gather()? {
                    return Ok(Some(object.with_body(body)));
                }
            } else if self.mode() == Mode::Cache {
                self.drop_without_chunk(object.frame());
                return Ok(None);
            }
            // It may have been replaced, deleted, or cut anew since its manifest was found: then the key is looked up
            // again, as if it had been asked for later.
            let Some(now) = self.run(&mut Query::key(self, object.key()))? else { return Ok(None) };
            if now.header.generation == object.generation() && object.is_held() {
                return match object.rest().filter(|_| self.is_short(&object)) {
                    Some(rest) => {
                        self.drop_without_chunk(object.frame());
                        Err(rest.missing())
                    }
                    // Reading says what is missing.
                    None => Ok(Some(object)),
                };
            }
            object = Object::from_frame(now, || self.source())?;
        }
    }

    /// Whether it was cut though it would fit in a cluster, for a store to be fuller: a caller that asks for it gets
    /// its body at once, as of one frame.
    pub(crate) fn is_short(&self, object: &Object) -> bool {
        let fits = |total: u64| {
            object.key().len() as u64 + object.metadata().len() as u64 + total <= self.payload_max() as u64
        };
        self.mode() == Mode::Store && object.manifest().is_some_and(|manifest| fits(manifest.total))
    }

    /// As [`Store::whole_object`] for tasks.
    pub(crate) async fn whole_object_async(&self, frame: Arc<Frame>) -> Result<Option<Object>> {
        let object = Object::from_frame(Arc::clone(&frame), || self.source())?;
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
    fn drop_without_chunk(&self, manifest: &Frame) {
        self.shared().counters.missed(Miss::ChunkMissing);
        // This version only: the chunks of an object that was put again meanwhile are gone, and it is not.
        if let Ok(true) = self.delete_version(manifest.key(), manifest.header.generation) {
            self.shared().note_departure(manifest.key(), Departure::Evicted);
        }
    }
}
