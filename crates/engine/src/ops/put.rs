//! Put: limits and admission → placement picks an open buffer → the object is framed into it → the index
//! says *buffered* → return, or wait for the group commit that durability asks for.
//!
//! A put of more than one cluster becomes a stream of chunks (`stream.rs`).

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use picaflor_format::frame::{KEY_MAX, Kind, META_MAX, Manifest};

use crate::{
    Durability, Error, Expiry, PutOptions, Refusal, Result,
    base::group::CheckpointInterval,
    base::options::PLAIN,
    base::stats::add,
    ops::batch::Put,
    ops::blocking::BoxFuture,
    ops::insert::{Inserted, OwnParts, Parts},
    store::Store,
    volume::Volume,
    write::placement::Class,
};

impl Store {
    /// Puts an object; an older one with this key is replaced. When this returns, the object is found by
    /// every get; it is durable as [`Durability`] says. [`Store::put_with`] says more of the object than its body.
    ///
    /// ```
    /// # let device = std::sync::Arc::new(picaflor::device::MemoryDevice::new(64 << 20));
    /// # let store = picaflor::Store::open(picaflor::Options::on(device).memory(8 << 20))?;
    /// store.put(b"key", b"body")?;
    /// # Ok::<(), picaflor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`Error::Refused`] if the put was declined, [`Error::Full`] if a store has no room,
    /// [`Error::Limit`] for a key of a forbidden length, [`Error::Io`] after a device failure.
    pub fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        self.put_with(key, body, &PLAIN)
    }

    /// As [`Store::put`], with metadata, an expiry, and what the object is to lie beside.
    ///
    /// # Errors
    /// As [`Store::put`]; [`Error::Limit`] for metadata of a forbidden length too.
    pub fn put_with(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<()> {
        wait(self.put_framed(key, body, options)?)
    }

    /// As [`Store::put`], for any executor: see [`Store::put_with_async`].
    ///
    /// # Errors
    /// As [`Store::put`].
    pub async fn put_async(&self, key: &[u8], body: &[u8]) -> Result<()> {
        self.begin_put(key, body, &PLAIN).await
    }

    /// As [`Store::put_with`], for any executor. Nothing happens before the future is polled. The first poll does what
    /// [`Store::begin_put`] does; a future that is dropped later may have put the object, or not.
    ///
    /// # Errors
    /// As [`Store::put_with`].
    pub async fn put_with_async(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<()> {
        self.begin_put(key, body, options).await
    }

    /// Begins to put an object, by this call; the future that it returns borrows nothing and waits for the rest. Where
    /// there is room, and the device need not be read to tell the key from others, the object is framed, and found by
    /// gets, when this returns, and only the wait for durability, if it is asked for, is left to the future. Else the
    /// future waits, and no thread of the executor's with it; it has a copy of the body then, as it has of one larger
    /// than a cluster: such a one is better given to a [`PutStream`](crate::PutStream), by
    /// [`write_async`](crate::PutStream::write_async). A future that is dropped before its object is framed puts
    /// nothing. With [`PutOptions::no_wait`] the object is framed or refused when this returns, whatever that takes but
    /// room.
    ///
    /// # Errors
    /// As [`Store::put_with`]: all of them come from the future.
    pub fn begin_put(
        &self,
        key: &[u8],
        body: &[u8],
        options: &PutOptions,
    ) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let begun = self.begin(key, body, options);
        async move {
            match begun? {
                Begun::Inserted(awaited) => wait_async(awaited).await,
                Begun::Later(put) => put.await,
            }
        }
    }

    /// Frames it, if that is done without waiting.
    fn begin(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<Begun> {
        if !self.deferred().is_over() && !options.no_wait {
            // It waits for the end of the opening.
            let (store, key, body, options) = (self.clone(), key.to_vec(), body.to_vec(), options.clone());
            let put = async move { store.spawn_blocking(move |store| store.put_with(&key, &body, &options)).await };
            return Ok(Begun::Later(Box::pin(put)));
        }
        let expires = self.admit(key, Some(body.len() as u64), options)?;
        if options.no_wait {
            return Ok(Begun::Inserted(self.put_admitted(&Put { key, body, options }, expires)?));
        }
        let mut payload_crc = None;
        if self.is_small(key, body, options) {
            let hash = self.hasher().key(key);
            let parts =
                Parts { kind: Kind::Whole, key, metadata: &options.metadata, body, expires, volume: None, options };
            self.prefetch_index(hash, &parts);
            let made = *payload_crc.insert(parts.payload_crc());
            if let Some(volume) = self.insert_at_once(hash, &parts, made)? {
                add(&self.shared().counters.puts, 1);
                return Ok(Begun::Inserted(self.settle_put(volume, options.group)));
            }
        }
        let (key, body, options) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(body), options.clone());
        Ok(Begun::Later(match payload_crc {
            Some(payload_crc) => {
                let metadata = options.metadata.clone();
                let own = OwnParts { kind: Kind::Whole, key, metadata, body, expires, volume: None, options };
                Box::pin(self.clone().frame_later(own, payload_crc))
            }
            None => Box::pin(self.clone().stream_later(key, body, options, expires)),
        }))
    }

    async fn stream_later(self, key: Bytes, body: Bytes, options: PutOptions, expires: u64) -> Result<()> {
        let mut stream = self.admitted_stream(&key, Some(body.len() as u64), options, expires)?;
        stream.write_async(body).await?;
        stream.finish_async().await
    }

    async fn frame_later(self, own: OwnParts, payload_crc: u32) -> Result<()> {
        let (hash, expires) = (self.hasher().key(&own.key), own.expires);
        let volume = match self.insert_async(hash, own.clone(), payload_crc).await? {
            Inserted::In(volume) => Some(volume),
            Inserted::Durable => None,
            Inserted::Scattered(piece_max) => {
                let stream = self.admitted_stream(&own.key, Some(own.body.len() as u64), own.options, expires)?;
                return stream.cut_async(own.body, piece_max).await;
            }
        };
        add(&self.shared().counters.puts, 1);
        wait_async(volume.and_then(|volume| self.settle_put(volume, own.options.group))).await
    }

    /// Whether it is one frame.
    fn is_small(&self, key: &[u8], body: &[u8], options: &PutOptions) -> bool {
        key.len() + options.metadata.len() + body.len() <= self.payload_max()
    }

    /// The put but for the wait: the commit that has to complete first, if any.
    fn put_framed(&self, key: &[u8], body: &[u8], options: &PutOptions) -> Result<Awaited> {
        let expires = self.admit(key, Some(body.len() as u64), options)?;
        self.put_admitted(&Put { key, body, options }, expires)
    }

    /// The same of what is admitted.
    pub(crate) fn put_admitted(&self, &Put { key, body, options }: &Put<'_>, expires: u64) -> Result<Awaited> {
        if !self.is_small(key, body, options) {
            let mut stream = self.admitted_stream(key, Some(body.len() as u64), options.clone(), expires)?;
            stream.write(body)?;
            return stream.finish().map(|()| None);
        }
        let hash = self.hasher().key(key);
        let parts = Parts { kind: Kind::Whole, key, metadata: &options.metadata, body, expires, volume: None, options };
        let volume = match self.insert(hash, &parts)? {
            Inserted::In(volume) => Some(volume),
            Inserted::Durable => None,
            Inserted::Scattered(piece_max) => {
                return self.put_cut(key, body, options, expires, piece_max).map(|()| None);
            }
        };
        add(&self.shared().counters.puts, 1);
        Ok(volume.and_then(|volume| self.settle_put(volume, options.group)))
    }

    /// Limits, expiry and admission. Returns when the object expires.
    pub(crate) fn admit(&self, key: &[u8], len: Option<u64>, options: &PutOptions) -> Result<u64> {
        let shared = self.shared();
        // Before anything that may have to wait for the end of the opening.
        let now = shared.clock.now_millis();
        // Beside the key there is room for the manifest of a large object at least.
        let meta_max = META_MAX.min(self.payload_max().saturating_sub(key.len() + Manifest::LEN));
        for (what, given, least, max) in
            [("key", key.len(), 1, KEY_MAX), ("metadata", options.metadata.len(), 0, meta_max)]
        {
            if given < least || given > max {
                return Err(Error::Limit { what, len: given, max });
            }
        }
        if shared.options.read_only {
            return Err(self.refuse(Refusal::ReadOnly));
        }
        if self.recovered_volumes().iter().any(|volume| volume.scrubber.recovers_in_steps()) {
            return Err(self.refuse(Refusal::Recovering));
        }
        let expires = self.expires(options, now);
        if options.expiry != Expiry::Never && expires != 0 && expires <= now || options.expiry == Expiry::At(0) {
            return Err(self.refuse(Refusal::Expired));
        }
        if len.is_some_and(|len| len > self.object_max()) {
            return Err(self.refuse(Refusal::TooLarge));
        }
        if shared.options.admission.as_ref().is_some_and(|admits| !admits(key, len)) {
            return Err(self.refuse(Refusal::NotAdmitted));
        }
        if shared.index_is_above(8) && self.recovered_volumes().iter().any(|volume| volume.catalog.is_loaded()) {
            return Err(self.refuse(Refusal::IndexFull));
        }
        if self.recovered_volumes().iter().any(|volume| volume.room.checkpoints_are_above(8)) {
            return Err(self.refuse(Refusal::IndexFull));
        }
        Ok(expires)
    }

    /// When it expires, in milliseconds since 1970; 0 is never.
    pub(crate) fn expires(&self, options: &PutOptions, now: u64) -> u64 {
        let after = |time: Duration| now.saturating_add(u64::try_from(time.as_millis()).unwrap_or(u64::MAX));
        match options.expiry {
            Expiry::Never => 0,
            Expiry::At(millis) => millis,
            Expiry::After(time) => after(time),
            Expiry::Default => self.shared().options.default_ttl.map_or(0, after),
        }
    }

    pub(crate) fn refuse(&self, why: Refusal) -> Error {
        self.shared().counters.refused(why);
        Error::Refused(why)
    }

    pub(crate) fn class(volume: &Volume, kind: Kind, options: &PutOptions) -> Class {
        let placer = &volume.catalog.placer;
        match options.bypass_memory && !placer.keeps_apart() {
            true => Class::Bypass,
            false => placer.class(kind, options.group, options.server),
        }
    }

    /// The class of an object, and the server in its header. The affinity stands for the server of an object
    /// that names none; where objects wait for each other, for that of every object without a group: a page is asked
    /// for at once, a site is not. Chunks fill clusters anyway.
    pub(crate) fn affinity_of(
        volume: &Volume,
        class: Class,
        parts: &Parts<'_>,
        (hash, beside): (u64, Option<u64>),
    ) -> (Class, u32) {
        let server = parts.options.server;
        let affinity = match parts.kind {
            Kind::Chunk => 0,
            _ => volume.catalog.placer.affinity_of(hash, beside),
        };
        match class {
            // The head of a large object does not wait, and goes to where the others are packed.
            Class::Rest | Class::Server(_) if affinity != 0 && volume.packer.gathers().is_some() => {
                (Class::Rest, affinity)
            }
            Class::Rest if affinity != 0 && server == 0 => (Class::Server(affinity), affinity),
            _ => (class, server),
        }
    }

    /// Sees to it that a put becomes durable in its time. Returns what the caller has to wait for.
    pub(crate) fn settle_put(&self, volume: Arc<Volume>, group: u32) -> Awaited {
        let shared = self.shared();
        let within = match (shared.groups.interval(group), shared.options.durability) {
            (_, Durability::EveryPut) => {
                let number = volume.log.commits.next();
                return Some((volume, number));
            }
            (CheckpointInterval::Off, _) => None,
            (CheckpointInterval::Every(time), _) => Some(time),
            // What is told to the journal waits in memory.
            (CheckpointInterval::OfStore, _)
                if volume
                    .catalog
                    .places
                    .as_ref()
                    .is_some_and(|places| volume.log.has_much_to_tell(places.are_files())) =>
            {
                let number = volume.log.commits.next();
                return Some((volume, number));
            }
            (CheckpointInterval::OfStore, Durability::None) => None,
            (CheckpointInterval::OfStore, Durability::Bounded { time, puts }) => {
                // What would not become durable in time is not acknowledged.
                let refusing = volume.log.commits.is_refusing();
                if refusing || volume.log.queue.volatile_puts.fetch_add(1, Relaxed) + 1 >= puts {
                    let number = volume.log.commits.next();
                    return Some((volume, number));
                }
                Some(time)
            }
        };
        if let Some(within) = within {
            volume.log.due_within(within);
        }
        None
    }
}

/// A commit to wait for.
pub(crate) type Awaited = Option<(Arc<Volume>, u64)>;

/// What a put of a task came to at once.
enum Begun {
    Inserted(Awaited),
    Later(BoxFuture<()>),
}

/// Waits for it in a task.
pub(crate) async fn wait_async(awaited: Awaited) -> Result<()> {
    match awaited {
        Some((volume, number)) => Arc::clone(&volume.room).commit_async(number).await,
        None => Ok(()),
    }
}

/// Waits for it on this thread.
pub(crate) fn wait(awaited: Awaited) -> Result<()> {
    awaited.map_or(Ok(()), |(volume, number)| volume.room.wait_commit_in_time(number))
}
