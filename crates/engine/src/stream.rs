//! Putting a body piece by piece, its length known or not: what fits in a cluster becomes one object,
//! what does not becomes chunks and, at the end, a manifest that names them.
//!
//! Invariants: nothing is visible before [`PutStream::finish`]; the manifest is framed after its chunks,
//! so a cache evicts chunks and manifest in that order and never finds a manifest without knowing.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
};

use bytes::Bytes;
use picaflor_format::frame::{ChunkKey, Kind, Manifest};

use crate::{
    Daemons, Error, PutOptions, Refusal, Result,
    hash::KeyHash,
    put::{self, Framed, Parts},
    stats::add,
    store::Store,
    volume::Volume,
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
    charged: u64,
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
}

/// Whose the chunks are.
enum Owner {
    Nobody,
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
        stream.cut(body, piece_max)
    }

    /// Begins an object whose body comes in pieces; `len` is its length where that is known.
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
            charged: 0,
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
            self.failed = self.add(data).err();
            self.charge(self.buffer.capacity() as u64);
        }
        self.failed.clone().map_or(Ok(()), Err)
    }

    /// The buffer is memory that the store was given: what is in the tier makes room for it.
    fn charge(&mut self, bytes: u64) {
        let shared = self.store.shared();
        if bytes > self.charged {
            let more = bytes - self.charged;
            shared.take(more, || shared.buffer_bytes.fetch_add(more, Relaxed));
        } else {
            shared.buffer_bytes.fetch_sub(self.charged - bytes, Relaxed);
        }
        self.charged = bytes;
    }

    fn add(&mut self, mut data: &[u8]) -> Result<()> {
        let now = self.buffer.len() + data.len() + self.large.as_ref().map_or(0, LargePut::bytes);
        if now as u64 > self.store.object_max() {
            return Err(self.store.refuse(Refusal::TooLarge));
        }
        let whole_max = self.store.payload_max() - self.key.len() - self.options.metadata.len();
        if self.large.is_none() && (self.piece_max.is_some() || self.buffer.len() + data.len() > whole_max) {
            self.grow_large()?;
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
            self.put_chunk(&full)?;
        }
        self.buffer.extend_from_slice(data);
        Ok(())
    }

    /// As [`PutStream::write`] for tasks: yields to the executor while the device catches up.
    ///
    /// # Errors
    /// As [`PutStream::write`].
    pub async fn write_async(&mut self, data: Bytes) -> Result<()> {
        if let Some(volume) = self.large.as_ref().and_then(|large| large.volume.clone()) {
            let by_hand = self.store.shared().options.daemons == Daemons::Manual;
            poll_fn(|context| {
                let wait = !by_hand
                    && volume.writer.wake_on_change(volume.unwritten_max(), context.waker())
                    && volume.commits.failure().is_none();
                if wait { Poll::Pending } else { Poll::Ready(()) }
            })
            .await;
        }
        self.write(&data)
    }

    /// Completes the object: from here on gets find it.
    ///
    /// # Errors
    /// As [`Store::put`]; [`Error::Length`] if the body is not as long as was announced; the error of a
    /// [`write`](PutStream::write) that failed before.
    pub fn finish(mut self) -> Result<()> {
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
            Some(_) => {
                if !rest.is_empty() {
                    self.put_chunk(&rest)?;
                }
                let manifest = self.large.as_mut().map(|large| {
                    large.manifest.total = total as u64;
                    large.manifest.encode().to_vec()
                });
                (Kind::Manifest, manifest.unwrap_or_default())
            }
        };
        let parts = Parts {
            kind,
            key: &self.key,
            metadata: &self.options.metadata,
            body: &body,
            expires: self.expires,
            volume: self.large.as_ref().and_then(|large| large.volume.as_ref()),
            options: &self.options,
        };
        let framed = store.frame_in(self.hash, &parts);
        if let Some(large) = &mut self.large {
            large.owner = match &framed {
                Ok(_) => Owner::Manifest,
                Err(error) if store.tabled().is_some_and(|tabled| tabled.doubts(error)) => Owner::Unknown,
                Err(_) => Owner::Nobody,
            };
        }
        let volume = match framed? {
            Framed::In(volume) => Some(volume),
            Framed::Durable => None,
            Framed::Scattered(piece_max) => return self.cut(&body, piece_max),
        };
        add(&store.shared().counters.puts, 1);
        put::wait(volume.and_then(|volume| store.settle_put(volume, self.options.group)))
    }

    /// Begins anew with a body that has to be cut because no free run is long enough for all of it.
    fn cut(mut self, body: &[u8], piece_max: usize) -> Result<()> {
        self.piece_max = Some(piece_max);
        self.write(body)?;
        self.finish()
    }

    fn grow_large(&mut self) -> Result<()> {
        let id = self.store.shared().next_generation();
        // All of it goes to one volume, or nobody could tell whose the chunks are.
        let volume = match self.store.tabled() {
            Some(tabled) => {
                tabled.begin_large(id, &self.key)?;
                None
            }
            None => Some(self.store.route(self.hash, &self.key, &self.options)?.0),
        };
        if let Some(volume) = &volume {
            volume.streams_open.fetch_add(1, Relaxed);
        }
        // A chunk fills a cluster of its own but for its frame and the table's row.
        let chunk = self.store.payload_max() - ChunkKey::LEN;
        let len = self.len.map_or(chunk, |len| len as usize);
        let most = self.piece_max.or_else(|| volume.as_ref()?.piece_of_long(len));
        let chunk = most.map_or(chunk, |most| most.min(chunk)) as u32;
        let manifest = Manifest { id, total: 0, chunk };
        self.large = Some(LargePut { manifest, written: 0, volume, owner: Owner::Nobody });
        Ok(())
    }

    fn put_chunk(&mut self, body: &[u8]) -> Result<()> {
        let Some(large) = &mut self.large else { return Ok(()) };
        let key = ChunkKey { parent: self.hash.0, id: large.manifest.id, number: large.written }.encode();
        let options = PutOptions { metadata: Bytes::new(), neighbour: None, ..self.options.clone() };
        let parts = Parts {
            kind: Kind::Chunk,
            key: &key,
            metadata: &[],
            body,
            expires: self.expires,
            volume: large.volume.as_ref(),
            options: &options,
        };
        large.written += 1;
        // Never cut again: it is a piece already.
        self.store.frame_in(self.store.hasher().chunk(&key), &parts)?;
        Ok(())
    }
}

impl LargePut {
    fn bytes(&self) -> usize {
        self.written as usize * self.manifest.chunk as usize
    }
}

impl Drop for PutStream {
    fn drop(&mut self) {
        self.charge(0);
        let Some(large) = &self.large else { return };
        if let Some(volume) = &large.volume {
            volume.streams_open.fetch_sub(1, Relaxed);
        }
        self.store.tabled().iter().for_each(|tabled| tabled.end_large(large.manifest.id));
        match large.owner {
            Owner::Manifest => {}
            Owner::Unknown => self.store.tabled().iter().for_each(|tabled| tabled.look_for_orphans()),
            Owner::Nobody => {
                let total = u64::from(large.written) * u64::from(large.manifest.chunk);
                self.store.drop_chunks(self.hash, Manifest { total, ..large.manifest });
            }
        }
    }
}
