//! Get or fetch: of many who miss the same key at once, one fetches and the others wait for it.

use std::{
    future::{Future, poll_fn},
    sync::Arc,
    task::{Poll, Waker},
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use picaflor_common::HashKeyed;
use picaflor_format::frame::{self, Header, Kind};

use crate::{Error, Object, PutOptions, Result, base::frame::Frame, base::stats::add, store::Store};

/// What a fetch brings.
#[derive(Debug, Clone, Default)]
pub struct Fetched {
    /// The body.
    pub body: Bytes,
    /// Metadata, expiry and placement.
    pub options: PutOptions,
}

/// Fetches under way, by the key's hash.
#[derive(Default)]
pub(crate) struct Fetches {
    running: Mutex<HashKeyed<Arc<Fetch>>>,
}

struct Fetch {
    key: Bytes,
    state: Mutex<FetchState>,
    done: Condvar,
}

#[derive(Default)]
struct FetchState {
    outcome: Option<Result<Object>>,
    wakers: Vec<Waker>,
}

impl Fetch {
    fn finish(&self, outcome: Result<Object>) {
        let wakers = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            std::mem::take(&mut state.wakers)
        };
        self.done.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }
}

/// The one who fetches. Dropped without an outcome (a panic, a cancelled task), it lets the waiters know.
struct Leader<'a> {
    store: &'a Store,
    hash: u64,
    fetch: Arc<Fetch>,
    /// Others can find it. Not so where a key of the same hash is being fetched.
    listed: bool,
    outcome: Option<Result<Object>>,
}

impl Drop for Leader<'_> {
    fn drop(&mut self) {
        if self.listed {
            self.store.inner().fetches.running.lock().remove(&self.hash);
        }
        let gone = || Err(Error::Fetch("it was abandoned".into()));
        self.fetch.finish(self.outcome.take().unwrap_or_else(gone));
    }
}

impl Store {
    /// The object with this key; if there is none, `fetch` brings it and it is put. Calls for the same key
    /// at the same time share one fetch. A put that is refused does not fail the call.
    ///
    /// # Errors
    /// Those of [`Store::get`]; [`Error::Fetch`] with the words of a failed fetch, for all who waited.
    pub fn get_or_fetch<E: std::fmt::Display>(
        &self,
        key: &[u8],
        fetch: impl FnOnce() -> Result<Fetched, E>,
    ) -> Result<Object> {
        if let Some(object) = self.get(key)? {
            return Ok(object);
        }
        match self.lead_fetch(key) {
            Ok(mut leader) => {
                let outcome = self.fetch_now(key, fetch);
                leader.outcome = Some(outcome.clone());
                outcome
            }
            Err(other) => {
                let mut state = other.state.lock();
                loop {
                    if let Some(outcome) = &state.outcome {
                        return outcome.clone();
                    }
                    other.done.wait(&mut state);
                }
            }
        }
    }

    /// As [`Store::get_or_fetch`] for tasks. What is fetched is put as [`Store::put_async`] does it.
    ///
    /// # Errors
    /// As [`Store::get_or_fetch`].
    pub async fn get_or_fetch_async<E: std::fmt::Display>(
        &self,
        key: &[u8],
        fetch: impl Future<Output = Result<Fetched, E>>,
    ) -> Result<Object> {
        if let Some(object) = self.get_async(key).await? {
            return Ok(object);
        }
        match self.lead_fetch(key) {
            Ok(mut leader) => {
                let outcome = self.fetch_now_async(key, fetch).await;
                leader.outcome = Some(outcome.clone());
                outcome
            }
            Err(other) => {
                poll_fn(|context| {
                    let mut state = other.state.lock();
                    match &state.outcome {
                        Some(outcome) => Poll::Ready(outcome.clone()),
                        None => {
                            state.wakers.push(context.waker().clone());
                            Poll::Pending
                        }
                    }
                })
                .await
            }
        }
    }

    fn lead_fetch(&self, key: &[u8]) -> Result<Leader<'_>, Arc<Fetch>> {
        let hash = self.hasher().key(key).short();
        let mut running = self.inner().fetches.running.lock();
        let other = running.get(&hash);
        if let Some(other) = other.filter(|other| other.key == key) {
            add(&self.shared().counters.fetches_shared, 1);
            return Err(Arc::clone(other));
        }
        let listed = other.is_none();
        let fetch =
            Arc::new(Fetch { key: Bytes::copy_from_slice(key), state: Mutex::default(), done: Condvar::default() });
        if listed {
            running.insert(hash, Arc::clone(&fetch));
        }
        add(&self.shared().counters.fetches, 1);
        Ok(Leader { store: self, hash, fetch, listed, outcome: None })
    }

    /// By who leads: puts what the fetch brings and returns it, stored or not. Between the look before and this,
    /// another fetch may have ended.
    fn fetch_now<E: std::fmt::Display>(
        &self,
        key: &[u8],
        fetch: impl FnOnce() -> Result<Fetched, E>,
    ) -> Result<Object> {
        if let Some(object) = self.get(key)? {
            return Ok(object);
        }
        let fetched = fetch().map_err(|why| Error::Fetch(why.to_string()))?;
        let put = self.put(key, &fetched.body, &fetched.options);
        let found = if put.is_ok() { self.get(key)? } else { None };
        self.fetched(key, fetched, put, found)
    }

    /// The same for tasks.
    async fn fetch_now_async<E: std::fmt::Display>(
        &self,
        key: &[u8],
        fetch: impl Future<Output = Result<Fetched, E>>,
    ) -> Result<Object> {
        if let Some(object) = self.get_async(key).await? {
            return Ok(object);
        }
        let fetched = fetch.await.map_err(|why| Error::Fetch(why.to_string()))?;
        let put = self.put_async(key, &fetched.body, &fetched.options).await;
        let found = if put.is_ok() { self.get_async(key).await? } else { None };
        self.fetched(key, fetched, put, found)
    }

    /// What was found after the put, or else what was fetched.
    fn fetched(&self, key: &[u8], fetched: Fetched, put: Result<()>, found: Option<Object>) -> Result<Object> {
        match put {
            Ok(())
            | Err(
                Error::Refused(_)
                | Error::Full { .. }
                | Error::JournalFull { .. }
                | Error::Io { .. }
                | Error::Daemon { .. }
                | Error::Closed,
            ) => Ok(found.unwrap_or_else(|| self.detached(key, fetched))),
            Err(error) => Err(error),
        }
    }

    /// An object that is not in the store.
    fn detached(&self, key: &[u8], fetched: Fetched) -> Object {
        let metadata = &fetched.options.metadata;
        let header = Header {
            mark: 0,
            generation: 0,
            expires: self.expires(&fetched.options, self.shared().clock.now_millis()),
            body_len: 0,
            meta_len: metadata.len() as u32,
            key_len: key.len() as u16,
            kind: Kind::Whole,
            group: fetched.options.group,
            server: fetched.options.server,
            payload_crc: 0,
        };
        let mut bytes = vec![0; frame::HEADER];
        bytes.extend_from_slice(key);
        bytes.extend_from_slice(metadata);
        Object::detached(Frame::new(self.hasher().key(key).short(), header, bytes.into()), fetched.body)
    }
}
