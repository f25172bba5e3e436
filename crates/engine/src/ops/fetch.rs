//! Get or fetch: of many callers that miss the same key at once, one fetches and the others wait for it.

use std::{
    any::Any,
    future::{Future, poll_fn},
    sync::Arc,
};

use bytes::Bytes;
use picaflor_format::frame::{self, Header, Kind};

use crate::{
    Error, FetchError, Object, PutOptions, PutStream, Result,
    base::frame::Frame,
    base::options::PLAIN,
    base::stats::add,
    handle::Store,
    ops::fetches::{Fetch, Outcome, again, shared},
};

/// What a fetch brings: a body that is in memory, or a stream that has taken one piece by piece.
#[derive(Debug)]
pub struct Fetched(Brought);

#[derive(Debug)]
enum Brought {
    Whole { body: Bytes, options: PutOptions },
    Stream(Box<PutStream>),
}

impl Fetched {
    /// A body, to be put as [`Store::put`] would.
    pub fn new(body: impl Into<Bytes>) -> Self {
        Self::with(body, PLAIN.clone())
    }

    /// A body, to be put as [`Store::put_with`] would.
    pub fn with(body: impl Into<Bytes>, options: PutOptions) -> Self {
        Self(Brought::Whole { body: body.into(), options })
    }

    /// A body that was written to a stream of this store and this key, which the fetch began with
    /// [`Store::put_stream`] and did not finish. It is never in memory as a whole; so, where a body in memory is handed
    /// out though the store refuses it, the refusal of this one is the caller's error.
    pub fn stream(stream: PutStream) -> Self {
        Self(Brought::Stream(Box::new(stream)))
    }
}

/// The caller that fetches. Dropped without an outcome (a panic, a cancelled task), it lets the waiters know.
struct Leader<'a> {
    store: &'a Store,
    hash: u64,
    fetch: Arc<Fetch>,
    /// Others can find it. Not so where a key of the same hash is being fetched.
    listed: bool,
    outcome: Option<Outcome>,
}

impl Leader<'_> {
    /// Lets the waiters have what the leader has.
    fn end<E: Send + Sync + 'static>(mut self, found: Result<Object, FetchError<E>>) -> Result<Object, FetchError<E>> {
        self.outcome = Some(found.as_ref().cloned().map_err(|error| match again(error) {
            FetchError::Store(error) => FetchError::Store(error),
            FetchError::Fetch(error) => FetchError::Fetch(error as Arc<dyn Any + Send + Sync>),
            FetchError::Abandoned => FetchError::Abandoned,
            FetchError::Gone => FetchError::Gone,
        }));
        found
    }
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if self.listed {
            self.store.inner.fetches.running.lock().remove(&self.hash);
        }
        self.fetch.finish(self.outcome.take().unwrap_or(Err(FetchError::Abandoned)));
    }
}

impl Store {
    /// The object with this key; if there is none, `fetch` brings it and it is put. Calls for the same key
    /// at the same time share one fetch, and its error if that is of the type that they expect; a caller that expects
    /// another type fetches itself. A put of a body in memory that is refused does not fail the call.
    ///
    /// ```
    /// use picaflor::{FetchError, Fetched, Options, Store, device::MemoryDevice};
    ///
    /// # let options = Options::on(std::sync::Arc::new(MemoryDevice::new(64 << 20)));
    /// let store = Store::open(options)?;
    /// let object = store.get_or_fetch(b"/news", || Ok::<_, std::io::Error>(Fetched::new("<h1>News</h1>")));
    /// match object {
    ///     Ok(object) => assert_eq!(object.body()?, "<h1>News</h1>"),
    ///     Err(FetchError::Fetch(error)) => println!("the origin: {error}"),
    ///     Err(error) => println!("the store: {error}"),
    /// }
    /// # Ok::<(), picaflor::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`FetchError::Store`] with those of [`Store::get`], and, where a stream was fetched, of its end;
    /// [`FetchError::Fetch`] with that of the fetch, for all that waited; [`FetchError::Abandoned`] and
    /// [`FetchError::Gone`].
    pub fn get_or_fetch<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        fetch: impl FnOnce() -> Result<Fetched, E>,
    ) -> Result<Object, FetchError<E>> {
        if let Some(object) = self.get(key)? {
            return Ok(object);
        }
        loop {
            match self.lead_fetch(key) {
                Ok(leader) => return leader.end(self.fetch_now(key, fetch)),
                Err(other) => {
                    if let Some(found) = shared(other.wait()) {
                        return found;
                    }
                }
            }
        }
    }

    /// As [`Store::get_or_fetch`] for tasks. What is fetched is put as [`Store::put_with_async`] does it.
    ///
    /// # Errors
    /// As [`Store::get_or_fetch`].
    pub async fn get_or_fetch_async<E: Send + Sync + 'static>(
        &self,
        key: &[u8],
        fetch: impl Future<Output = Result<Fetched, E>>,
    ) -> Result<Object, FetchError<E>> {
        if let Some(object) = self.get_async(key).await? {
            return Ok(object);
        }
        loop {
            match self.lead_fetch(key) {
                Ok(leader) => {
                    let found = self.fetch_now_async(key, fetch).await;
                    return leader.end(found);
                }
                Err(other) => {
                    if let Some(found) = shared(poll_fn(|context| other.poll(context)).await) {
                        return found;
                    }
                }
            }
        }
    }

    fn lead_fetch(&self, key: &[u8]) -> Result<Leader<'_>, Arc<Fetch>> {
        let hash = self.hasher().key(key).short();
        let mut running = self.inner.fetches.running.lock();
        let other = running.get(&hash);
        if let Some(other) = other.filter(|other| other.key == key) {
            add(&self.shared().counters.fetches_shared, 1);
            return Err(Arc::clone(other));
        }
        let listed = other.is_none();
        let fetch = Fetch::of(key);
        if listed {
            running.insert(hash, Arc::clone(&fetch));
        }
        add(&self.shared().counters.fetches, 1);
        Ok(Leader { store: self, hash, fetch, listed, outcome: None })
    }

    /// By the leader: puts what the fetch brings and returns it, stored or not. Between the look before and this,
    /// another fetch may have ended.
    fn fetch_now<E>(&self, key: &[u8], fetch: impl FnOnce() -> Result<Fetched, E>) -> Result<Object, FetchError<E>> {
        if let Some(object) = self.get(key)? {
            return Ok(object);
        }
        match fetch().map_err(|error| FetchError::Fetch(Arc::new(error)))?.0 {
            Brought::Whole { body, options } => {
                let put = self.put_with(key, &body, &options);
                let found = if put.is_ok() { self.get(key)? } else { None };
                Ok(self.fetched(key, (body, options), put, found)?)
            }
            Brought::Stream(stream) => {
                stream.is_of(self, key)?;
                stream.finish()?;
                self.get(key)?.ok_or(FetchError::Gone)
            }
        }
    }

    /// The same for tasks.
    async fn fetch_now_async<E>(
        &self,
        key: &[u8],
        fetch: impl Future<Output = Result<Fetched, E>>,
    ) -> Result<Object, FetchError<E>> {
        if let Some(object) = self.get_async(key).await? {
            return Ok(object);
        }
        match fetch.await.map_err(|error| FetchError::Fetch(Arc::new(error)))?.0 {
            Brought::Whole { body, options } => {
                let put = self.put_with_async(key, &body, &options).await;
                let found = if put.is_ok() { self.get_async(key).await? } else { None };
                Ok(self.fetched(key, (body, options), put, found)?)
            }
            Brought::Stream(stream) => {
                stream.is_of(self, key)?;
                stream.finish_async().await?;
                self.get_async(key).await?.ok_or(FetchError::Gone)
            }
        }
    }

    /// What was found after the put, or else what was fetched.
    fn fetched(
        &self,
        key: &[u8],
        (body, options): (Bytes, PutOptions),
        put: Result<()>,
        found: Option<Object>,
    ) -> Result<Object> {
        match put {
            Ok(())
            | Err(
                Error::Refused(_)
                | Error::Full { .. }
                | Error::JournalFull { .. }
                | Error::Io { .. }
                | Error::Daemon { .. }
                | Error::Closed,
            ) => Ok(found.unwrap_or_else(|| self.detached(key, body, &options))),
            Err(error) => Err(error),
        }
    }

    /// An object that is not in the store.
    fn detached(&self, key: &[u8], body: Bytes, options: &PutOptions) -> Object {
        let metadata = &options.metadata;
        let header = Header {
            mark: 0,
            generation: 0,
            expires: self.expires(options, self.shared().clock.now_millis()),
            body_len: 0,
            meta_len: metadata.len() as u32,
            key_len: key.len() as u16,
            kind: Kind::Whole,
            group: options.group,
            server: options.server,
            payload_crc: 0,
        };
        let mut bytes = vec![0; frame::HEADER];
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(metadata);
        Object::detached(Frame::new(self.hasher().key(key).short(), header, bytes.into()), body)
    }
}
