//! Put: limits and admission (`admission.rs`) → placement picks an open buffer → the object is framed into it → the
//! index says *buffered* → return, or wait for the group commit that durability asks for.
//!
//! A put of more than one cluster becomes a stream of chunks (`stream.rs`).

use std::future::Future;

use bytes::Bytes;
use picaflor_format::frame::Kind;

use crate::{
    PutOptions, Result,
    base::beside::Beside,
    base::blocking::BoxFuture,
    base::options::PLAIN,
    base::put::Put,
    base::stats::add,
    handle::Store,
    ops::awaited::{Awaited, wait, wait_async},
    ops::insert::{Inserted, OwnParts, Parts},
};

impl Store {
    /// Puts an object; an older one with this key is replaced. When this returns, the object is found by every get; it
    /// is durable as [`crate::Durability`] says. [`Store::put_with`] says more of the object than its body.
    ///
    /// ```
    /// # let device = std::sync::Arc::new(picaflor::device::MemoryDevice::new(64 << 20));
    /// # let store = picaflor::Store::open(picaflor::Options::on(device).memory(8 << 20))?;
    /// store.put(b"key", b"body")?;
    /// # Ok::<(), picaflor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`crate::Error::Refused`] if the put was declined, [`crate::Error::Full`] if a store has no room,
    /// [`crate::Error::Limit`] for a key of a forbidden length, [`crate::Error::Io`] after a device failure.
    pub fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        self.put_with(key, body, &PLAIN)
    }

    /// As [`Store::put`], with metadata, an expiry, and what the object is to lie beside.
    ///
    /// # Errors
    /// As [`Store::put`]; [`crate::Error::Limit`] for metadata of a forbidden length too.
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
            let parts = Parts::whole(key, body, expires, options);
            self.prefetch_index(hash, &parts);
            let made = *payload_crc.insert(parts.payload_crc());
            if let Some(volume) = self.insert_at_once(hash, &parts, made)? {
                add(&self.shared().counters.puts, 1);
                return Ok(Begun::Inserted(self.settle_put(volume, options.group)));
            }
        }
        let (key, body, options) = (Bytes::copy_from_slice(key), Bytes::copy_from_slice(body), options.clone());
        let metadata = options.metadata.clone();
        let own = OwnParts { kind: Kind::Whole, key, metadata, body, expires, volume: None, cluster: None, options };
        Ok(Begun::Later(Box::pin(self.clone().put_later(own, payload_crc))))
    }

    /// What of a put waits; of one that found the store full beside others a thread tries once more.
    async fn put_later(self, own: OwnParts, payload_crc: Option<u32>) -> Result<()> {
        let beside = &self.shared().beside;
        let inside = if payload_crc.is_some() { beside.watch() } else { beside.enter() };
        let first = match payload_crc {
            Some(payload_crc) => self.frame_later(own.clone(), payload_crc).await,
            None => self.stream_later(own.clone()).await,
        };
        if !inside.is_in_vain(&first) {
            return first;
        }
        drop(inside);
        let put = move |store: &Self| {
            let put = Put { key: &own.key, body: &own.body, options: &own.options };
            wait(store.put_admitted(&put, own.expires)?)
        };
        self.spawn_blocking(put).await
    }

    async fn stream_later(&self, own: OwnParts) -> Result<()> {
        let mut stream = self.admitted_stream(&own.key, Some(own.body.len() as u64), own.options, own.expires)?;
        stream.write_async(own.body).await?;
        stream.finish_async().await
    }

    async fn frame_later(&self, own: OwnParts, payload_crc: u32) -> Result<()> {
        let (hash, expires) = (self.hasher().key(&own.key), own.expires);
        let volume = match self.insert_async(hash, own.clone(), payload_crc).await? {
            Inserted::In(volume) => Some(volume),
            Inserted::Durable => None,
            Inserted::Scattered(piece_max) => {
                let _inside = self.shared().beside.enter();
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
        // One that must not wait is beside none.
        let own = Beside::default();
        let beside = if options.no_wait { &own } else { &self.shared().beside };
        // That no room could be made was true of a store with the others' pieces in it.
        let afresh = || self.volumes().iter().for_each(|volume| volume.room.reclaimer.state.forget_in_vain());
        if !self.is_small(key, body, options) {
            let put = || {
                let mut stream = self.admitted_stream(key, Some(body.len() as u64), options.clone(), expires)?;
                stream.write(body)?;
                stream.finish().map(|()| None)
            };
            return beside.put(afresh, put);
        }
        let hash = self.hasher().key(key);
        let parts = Parts::whole(key, body, expires, options);
        let insert = || self.insert(hash, &parts);
        let volume = match beside.put_whole(afresh, insert)? {
            Inserted::In(volume) => Some(volume),
            Inserted::Durable => None,
            Inserted::Scattered(piece_max) => {
                return beside.put(afresh, || self.put_cut(key, body, options, expires, piece_max).map(|()| None));
            }
        };
        add(&self.shared().counters.puts, 1);
        Ok(volume.and_then(|volume| self.settle_put(volume, options.group)))
    }
}

/// What a put of a task came to at once.
enum Begun {
    Inserted(Awaited),
    Later(BoxFuture<()>),
}
