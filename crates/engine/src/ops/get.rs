//! Get: memory alone, or a lookup; then the handle.
//!
//! The memory answer is synchronous; only a device read waits, on this thread or as a future (`lookup.rs`).

use std::{future::Future, ops::Range};

use picaflor_format::frame::Kind;

use crate::{Chunks, Miss, Object, Result, base::stats::add, handle::Store, ops::lookup::Query};

/// The answer of memory alone: see [`Store::try_get`].
#[derive(Debug)]
pub enum TryGet {
    /// Here it is.
    Hit(Object),
    /// Not in the store, or not to be returned.
    Absent(Miss),
    /// Perhaps on the device: ask [`Store::get`] or [`Store::get_async`].
    OnDevice,
}

impl Store {
    /// The object with this key.
    ///
    /// # Errors
    /// In a cache none: what cannot be read or verified is a miss, counted by reason. In a store,
    /// [`Error::Io`] if the device fails and [`Error::Damaged`] if its bytes do not verify. Of either,
    /// [`Error::Closed`] once it was closed, where memory has no answer.
    pub fn get(&self, key: &[u8]) -> Result<Option<Object>> {
        match self.try_memory(key) {
            TryGet::Hit(object) => return Ok(Some(object)),
            TryGet::Absent(_) => return Ok(None),
            TryGet::OnDevice => {}
        }
        let mut query = Query::key(self, key);
        self.run(&mut query)?.map_or(Ok(None), |frame| self.whole_object(frame))
    }

    /// As [`Store::get`], for any executor; answers from memory at the first poll, once the opening is over.
    pub fn get_async(&self, key: &[u8]) -> impl Future<Output = Result<Option<Object>>> + Send + 'static + use<> {
        self.whole_async(key)
    }

    /// A range of an object's body, cut to the body's length: one slice without a copy of an object that is one
    /// frame; of a larger one pieces that are read as they are asked for, those of the range only.
    ///
    /// # Errors
    /// As [`Store::get`]. Those of reading the pieces of a large object come with the pieces.
    pub fn get_range(&self, key: &[u8], range: Range<u64>) -> Result<Option<Chunks>> {
        Ok(self.get(key)?.map(|object| object.chunks(range)))
    }

    /// As [`Store::get_range`], for any executor: see [`Chunks::next_async`].
    pub fn get_range_async(
        &self,
        key: &[u8],
        range: Range<u64>,
    ) -> impl Future<Output = Result<Option<Chunks>>> + Send + 'static + use<> {
        let get = self.get_async(key);
        async move { Ok(get.await?.map(|object| object.chunks(range))) }
    }

    /// As [`Store::whole`] for tasks.
    pub(crate) fn whole_async(
        &self,
        key: &[u8],
    ) -> impl Future<Output = Result<Option<Object>>> + Send + 'static + use<> {
        let store = self.clone();
        let seek = self.frame_async(Query::key(self, key));
        async move {
            let Some(frame) = seek.await? else { return Ok(None) };
            store.whole_object_async(frame).await
        }
    }

    /// The object if all of it is there, past what memory alone would answer.
    pub(crate) fn whole(&self, key: &[u8]) -> Result<Option<Object>> {
        self.run(&mut Query::key(self, key))?.map_or(Ok(None), |frame| self.whole_object(frame))
    }

    /// The answer of memory alone: never waits, never reads the device.
    pub fn try_get(&self, key: &[u8]) -> TryGet {
        match self.try_memory(key) {
            TryGet::OnDevice => {}
            answer => return answer,
        }
        let hash = self.hasher().key(key);
        let is_known = self.layout().is_none() && self.deferred().is_over();
        if is_known && self.home(hash, key).catalog.index.candidates(hash.short()).is_empty() {
            self.count_get(Some(Miss::Absent));
            TryGet::Absent(Miss::Absent)
        } else {
            TryGet::OnDevice
        }
    }

    fn try_memory(&self, key: &[u8]) -> TryGet {
        let shared = self.shared();
        let hash = self.hasher().key(key);
        let Some(frame) = shared.memory.get(hash.short(), key) else {
            return TryGet::OnDevice;
        };
        if frame.header.expires != 0 && frame.is_expired(shared.clock.now_millis()) {
            self.count_get(Some(Miss::Expired));
            return TryGet::Absent(Miss::Expired);
        }
        let object = if frame.header.kind == Kind::Manifest {
            let is_at_once = || self.deferred().is_over() && self.layout().is_none();
            let has_chunks = |object: &Object| {
                let told = is_at_once() && !self.is_short(object) && !self.may_be_misled(object);
                told && self.has_chunks(object).unwrap_or(false)
            };
            let whole = Object::from_frame(frame, || self.source()).ok().filter(has_chunks);
            let Some(whole) = whole else { return TryGet::OnDevice };
            whole
        } else {
            frame.credit();
            Object::whole(frame)
        };
        add(&shared.counters.gets, 1);
        add(&shared.counters.hits_memory, 1);
        TryGet::Hit(object)
    }
}
