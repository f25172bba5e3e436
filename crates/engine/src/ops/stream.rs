//! Putting a body piece by piece, its length known or not: what fits in a cluster becomes one object,
//! what does not becomes chunks and, at the end, a manifest that names them.
//!
//! Invariants: nothing is visible before [`PutStream::finish`]; the manifest is framed after its chunks,
//! so a cache evicts chunks and manifest in that order and never finds a manifest without knowing.

use std::{
    collections::VecDeque,
    fmt,
    future::Future,
    pin::pin,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_format::frame::{ChunkKey, Kind, Manifest};

use crate::{
    Error, PutOptions, Refusal, Reserved, Result,
    base::stats::add,
    handle::Store,
    ops::awaited::{self, Awaited},
    ops::insert::{Inserted, OwnParts},
    space::Promised,
    volume::Volume,
    write::append::chunk_max,
};

/// An object being put. Dropped without [`PutStream::finish`], it was never there.
pub struct PutStream {
    store: Store,
    key: Bytes,
    hash: KeyHash,
    options: PutOptions,
    expires: u64,
    len: Option<u64>,
    /// Most bytes of body in one piece.
    piece_max: Option<usize>,
    buffer: Vec<u8>,
    /// Bytes of it that the store's memory has been told of.
    charged: Reserved,
    /// Set once the body outgrows one frame.
    large: Option<LargePut>,
    /// Why it cannot be finished any more.
    failed: Option<Error>,
}

struct LargePut {
    manifest: Manifest,
    written: u32,
    /// Where all of it goes; none where a table takes it.
    volume: Option<Arc<Volume>>,
    owner: Owner,
    /// Clusters that its next chunks have, one each, and how many more it will have where its length was announced.
    run: VecDeque<Promised>,
    to_run: u32,
}

/// What waits where there is something to wait for.
#[derive(Clone, Copy)]
enum Waits {
    /// The thread, inside: the future is complete when it is polled.
    Thread,
    Task,
}

impl Waits {
    async fn frame(self, store: &Store, hash: KeyHash, parts: OwnParts) -> Result<Inserted> {
        match self {
            Self::Thread => store.insert(hash, &parts.parts()),
            Self::Task => {
                store.prefetch_index(hash, &parts.parts());
                let payload_crc = parts.parts().payload_crc();
                store.insert_async(hash, parts, payload_crc).await
            }
        }
    }

    /// What may read the device.
    async fn act<R: Send + 'static>(self, store: &Store, act: impl FnOnce(&Store) -> R + Send + 'static) -> R {
        match self {
            Self::Thread => act(store),
            Self::Task => store.spawn_blocking(act).await,
        }
    }
}

/// What a future of [`Waits::Thread`] comes to.
fn at_once<R>(future: impl Future<Output = R>) -> R {
    let mut future = pin!(future);
    loop {
        if let Poll::Ready(result) = future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            return result;
        }
    }
}

/// Whose the chunks are.
enum Owner {
    None,
    /// It is framed.
    Manifest,
    /// A table failed that was to take it: it may be there. The keeper looks.
    Unknown,
}

impl Store {
    /// Puts an object in pieces of at most so many bytes of body.
    pub(crate) fn put_cut(
        &self,
        key: &[u8],
        body: &[u8],
        options: &PutOptions,
        expires: u64,
        piece_max: usize,
    ) -> Result<()> {
        let stream = self.admitted_stream(key, Some(body.len() as u64), options.clone(), expires)?;
        awaited::wait(at_once(stream.cut(Bytes::copy_from_slice(body), piece_max, Waits::Thread))?)
    }

    /// Begins an object whose body comes in pieces; `len` is its length where that is known: a store then has it side
    /// by side, and keeps clusters for up to 1,024 of the pieces that are still to come.
    ///
    /// # Errors
    /// As [`Store::put`].
    pub fn put_stream(&self, key: &[u8], len: Option<u64>, options: PutOptions) -> Result<PutStream> {
        let expires = self.admit(key, len, &options)?;
        self.admitted_stream(key, len, options, expires)
    }

    pub(crate) fn admitted_stream(
        &self,
        key: &[u8],
        len: Option<u64>,
        options: PutOptions,
        expires: u64,
    ) -> Result<PutStream> {
        Ok(PutStream {
            store: self.clone(),
            key: Bytes::copy_from_slice(key),
            hash: self.hasher().key(key),
            options,
            expires,
            len,
            piece_max: None,
            buffer: Vec::new(),
            charged: self.reserve(),
            large: None,
            failed: None,
        })
    }
}

impl PutStream {
    /// Adds to the body; waits for the device if it cannot keep up.
    ///
    /// # Errors
    /// As [`Store::put`]; [`Refusal::TooLarge`] once the body outgrows what the device can hold. After an
    /// error the object cannot be finished.
    pub fn write(&mut self, data: &[u8]) -> Result<()> {
        if self.failed.is_none() {
            self.failed = at_once(self.add(data, Waits::Thread)).err();
            self.charged.set(self.buffer.capacity() as u64);
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    async fn add(&mut self, mut data: &[u8], waits: Waits) -> Result<()> {
        let now = self.buffer.len() + data.len() + self.large.as_ref().map_or(0, LargePut::bytes);
        if now as u64 > self.store.object_max() {
            return Err(self.store.refuse(Refusal::TooLarge));
        }
        let whole_max = self.store.payload_max() - self.key.len() - self.options.metadata.len();
        if self.large.is_none() && (self.piece_max.is_some() || self.buffer.len() + data.len() > whole_max) {
            self.grow_large(waits).await?;
        }
        let Some(chunk) = self.large.as_ref().map(|large| large.manifest.chunk as usize) else {
            self.buffer.extend_from_slice(data);
            return Ok(());
        };
        // What came before the object was known to be large may be more than a piece.
        while self.buffer.len() + data.len() >= chunk {
            let (now, later) = data.split_at(chunk.saturating_sub(self.buffer.len()).min(data.len()));
            self.buffer.extend_from_slice(now);
            data = later;
            let rest = self.buffer.split_off(chunk.min(self.buffer.len()));
            let full = std::mem::replace(&mut self.buffer, rest);
            self.put_chunk(full, waits).await?;
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    /// As [`PutStream::write`] for tasks: yields to the executor while there is no room, or the device catches up. A
    /// future that is dropped halfway leaves an object that cannot be finished.
    ///
    /// # Errors
    /// As [`PutStream::write`].
    pub async fn write_async(&mut self, data: Bytes) -> Result<()> {
        if self.failed.is_none() {
            // Until it is done: when this future is dropped, how much of it was taken is not known.
            self.failed = Some(Error::Closed);
            self.failed = self.add(&data, Waits::Task).await.err();
            self.charged.set(self.buffer.capacity() as u64);
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// Completes the object: from here on gets find it.
    ///
    /// # Errors
    /// As [`Store::put`]; [`Error::Length`] if the body is not as long as was announced; the error of a
    /// [`write`](PutStream::write) that failed before.
    pub fn finish(self) -> Result<()> {
        awaited::wait(at_once(self.framed(Waits::Thread))?)
    }

    /// As [`PutStream::finish`], for any executor.
    ///
    /// # Errors
    /// As [`PutStream::finish`].
    pub async fn finish_async(self) -> Result<()> {
        awaited::wait_async(self.framed(Waits::Task).await?).await
    }

    /// Frames what is left, and what names the chunks if there are some. Returns what has to be waited for.
    async fn framed(mut self, waits: Waits) -> Result<Awaited> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        let total = self.large.as_ref().map_or(0, LargePut::bytes) + self.buffer.len();
        if self.len.is_some_and(|len| len != total as u64) {
            return Err(Error::Length { announced: self.len.unwrap_or(0), came: total as u64 });
        }
        let rest = std::mem::take(&mut self.buffer);
        let store = self.store.clone();
        let (kind, body) = match &mut self.large {
            None => (Kind::Whole, rest),
            Some(large) => {
                large.manifest.total = total as u64;
                let mut head = large.manifest.encode().to_vec();
                if rest.len() <= self.tail_max() {
                    head.extend(rest);
                } else {
                    self.put_chunk(rest, waits).await?;
                }
                (Kind::Manifest, head)
            }
        };
        let body = Bytes::from(body);
        let parts = OwnParts {
            kind,
            key: self.key.clone(),
            metadata: self.options.metadata.clone(),
            body: body.clone(),
            expires: self.expires,
            volume: self.large.as_ref().and_then(|large| large.volume.clone()),
            cluster: None,
            options: self.options.clone(),
        };
        let framed = waits.frame(&store, self.hash, parts).await;
        if let Some(large) = &mut self.large {
            large.owner = match &framed {
                Ok(_) => Owner::Manifest,
                Err(error) if store.layout().is_some_and(|layout| layout.doubts(error)) => Owner::Unknown,
                Err(_) => Owner::None,
            };
        }
        let volume = match framed? {
            Inserted::In(volume) => Some(volume),
            Inserted::Durable => None,
            Inserted::Scattered(piece_max) => return Box::pin(self.cut(body, piece_max, waits)).await,
        };
        add(&store.shared().counters.puts, 1);
        Ok(volume.and_then(|volume| store.settle_put(volume, self.options.group)))
    }

    /// Refuses one that was begun for another key, or in another store.
    pub(crate) fn is_of(&self, store: &Store, key: &[u8]) -> Result<()> {
        if self.key == key && Arc::ptr_eq(&store.inner, &self.store.inner) {
            return Ok(());
        }
        let why =
            "what was fetched is a stream of another key, or of another store: begin it with the key that is asked for";
        Err(Error::Option { name: "key", why: why.into() })
    }

    /// Begins anew with a body that has to be cut because no free run is long enough for all of it.
    async fn cut(mut self, body: Bytes, piece_max: usize, waits: Waits) -> Result<Awaited> {
        self.piece_max = Some(piece_max);
        self.add(&body, waits).await?;
        self.framed(waits).await
    }

    /// The same for [`Store::put_async`].
    pub(crate) async fn cut_async(self, body: Bytes, piece_max: usize) -> Result<()> {
        awaited::wait_async(self.cut(body, piece_max, Waits::Task).await?).await
    }

    async fn grow_large(&mut self, waits: Waits) -> Result<()> {
        let id = self.store.shared().next_generation();
        // Its chunks lie where its manifest will.
        let volume = match self.store.layout() {
            Some(layout) => {
                let (layout, key) = (Arc::clone(layout), self.key.clone());
                waits.act(&self.store, move |_| layout.begin_large(id, &key)).await?;
                None
            }
            None => Some(Arc::clone(self.store.home(self.hash, &self.key))),
        };
        if let Some(volume) = &volume {
            volume.appender.could_take(self.len.unwrap_or(0))?;
            volume.frames.streams_open.fetch_add(1, Relaxed);
        }
        // A chunk fills a cluster of its own but for its frame and the table's row.
        let chunk = self.store.payload_max() - ChunkKey::LEN;
        let manifest = Manifest { id, total: 0, chunk: 0, tail: 0 };
        let (owner, run) = (Owner::None, VecDeque::new());
        self.large = Some(LargePut { manifest, written: 0, volume: volume.clone(), owner, run, to_run: 0 });
        self.plan_runs();
        if self.has_run(waits).await? {
            return Ok(());
        }
        let len = self.len.map_or(chunk, |len| len as usize);
        let fills = || volume.as_ref()?.appender.cut_of_long(self.len);
        let most = self.piece_max.or_else(|| volume.as_ref()?.catalog.places.as_ref()?.cut_of_long(len)).or_else(fills);
        let chunk = most.map_or(chunk, |most| most.min(chunk)) as u32;
        self.large.iter_mut().for_each(|large| large.manifest.chunk = chunk);
        Ok(())
    }

    /// Most bytes of the end of its body that its head takes along.
    fn tail_max(&self) -> usize {
        let is_on_ring = |volume: &Arc<Volume>| volume.catalog.places.is_none();
        if !self.large.as_ref().and_then(|large| large.volume.as_ref()).is_some_and(is_on_ring) {
            return 0;
        }
        let payload_max = self.store.payload_max();
        let room = payload_max - self.key.len() - self.options.metadata.len() - Manifest::LEN;
        Manifest::TAIL_MAX.min(payload_max / 16).min(room)
    }

    /// How many chunks will have clusters of runs: all of an object that is announced to a store, if its end is in its
    /// head, or the store affords what it leaves empty of its cluster. Others are cut so that pieces fill clusters.
    fn plan_runs(&mut self) {
        let (tail_max, may) = (self.tail_max() as u64, self.piece_max.is_none());
        let (Some(large), Some(len)) = (&mut self.large, self.len.filter(|_| may)) else { return };
        let Some(volume) = large.volume.as_ref().filter(|volume| volume.catalog.keeps_all_in_clusters()) else {
            return;
        };
        let chunk = chunk_max(volume.medium.cluster_len());
        let (full, rest) = (len / chunk as u64, len % chunk as u64);
        let empty = if rest > tail_max { chunk as u64 - rest } else { 0 };
        if empty == 0 || volume.space.affords_end(empty) {
            large.to_run = u32::try_from(full + u64::from(empty > 0)).unwrap_or(0);
            large.manifest.chunk = chunk as u32;
        }
    }

    /// Whether there is a cluster of a run for the next chunk; the next run is promised when the one before is used up.
    async fn has_run(&mut self, waits: Waits) -> Result<bool> {
        let Some(large) = &mut self.large else { return Ok(false) };
        let Some(volume) = large.volume.clone() else { return Ok(false) };
        let wanted = large.to_run.min(volume.space.runs().longest());
        if large.run.is_empty() && wanted > 0 {
            let taken = match volume.space.runs().take(wanted, volume.appender.kept_from_puts(), false) {
                None if !self.options.no_wait => {
                    waits.act(&self.store, move |_| volume.room.reclaimer.take_run(wanted)).await?
                }
                taken => taken,
            };
            large.to_run = if taken.is_some() { large.to_run - wanted } else { 0 };
            large.run = taken.unwrap_or_default().into();
        }
        Ok(!large.run.is_empty())
    }

    /// What is said of a piece, said of the object.
    fn of_all(&self, error: Error) -> Error {
        let come = self.large.as_ref().map_or(0, LargePut::bytes) as u64;
        match (error, self.large.as_ref().and_then(|large| large.volume.as_ref())) {
            (Error::Full { needed, .. }, Some(volume)) => {
                volume.appender.full(self.len.unwrap_or(0).max(come).max(needed))
            }
            (error, _) => error,
        }
    }

    async fn put_chunk(&mut self, body: Vec<u8>, waits: Waits) -> Result<()> {
        self.has_run(waits).await?;
        let Some(large) = &mut self.large else { return Ok(()) };
        let key = ChunkKey { parent: self.hash.0, id: large.manifest.id, number: large.written }.encode();
        let options = PutOptions { metadata: Bytes::new(), neighbour: None, ..self.options.clone() };
        let parts = OwnParts {
            kind: Kind::Chunk,
            key: Bytes::copy_from_slice(&key),
            metadata: Bytes::new(),
            body: body.into(),
            expires: self.expires,
            volume: large.volume.clone(),
            cluster: large.run.pop_front().map(Arc::new),
            options,
        };
        large.written += 1;
        // Never cut again: it is a piece already.
        let framed = waits.frame(&self.store, self.store.hasher().chunk(&key), parts).await;
        framed.map(drop).map_err(|error| self.of_all(error))
    }
}

impl fmt::Debug for PutStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PutStream").field("key", &String::from_utf8_lossy(&self.key)).finish_non_exhaustive()
    }
}

impl LargePut {
    fn bytes(&self) -> usize {
        self.written as usize * self.manifest.chunk as usize
    }
}

impl Drop for PutStream {
    fn drop(&mut self) {
        let Some(large) = &self.large else { return };
        if let Some(volume) = &large.volume {
            volume.frames.streams_open.fetch_sub(1, Relaxed);
        }
        self.store.layout().iter().for_each(|layout| layout.end_large(large.manifest.id));
        match large.owner {
            Owner::Manifest => {}
            Owner::Unknown => self.store.layout().iter().for_each(|layout| layout.look_for_orphans()),
            Owner::None => {
                let total = u64::from(large.written) * u64::from(large.manifest.chunk);
                let written = Manifest { total, ..large.manifest };
                large.volume.iter().for_each(|volume| volume.frames.drop_chunks(self.hash, written));
                self.store.layout().iter().for_each(|layout| layout.drop_chunks(self.hash, written));
            }
        }
    }
}
