#![doc = include_str!("../README.md")]
#![forbid(unsafe_code)]

mod fill;
mod hit;
mod record;
mod shutdown;

use std::{
    any::Any,
    collections::HashMap,
    hash::{BuildHasher, RandomState},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::SystemTime,
};

use async_trait::async_trait;
use bytes::Bytes;
use parking_lot::Mutex;
pub use picaflor;
use picaflor::{Expiry, Object, Options, PutOptions, Store};
use pingora_cache::{
    CacheKey, CacheMeta, PurgeType, Storage,
    eviction::CacheEntryKey,
    storage::{HitHandler, MissHandler, PurgeOutcome, PurgeTarget, streaming_write::U64WriteId},
    trace::SpanHandle,
};
use pingora_error::{Error, ErrorType::InternalError, Result};
use tokio::sync::MutexGuard;

use crate::{
    fill::{Fill, Share, Writer},
    hit::Hit,
};

/// Keys that share a lock; callers of different locks share a sync where every put is durable.
const LOCKS: usize = 1024;

/// Pingora's cache storage on a picaflor store.
///
/// Evicting is picaflor's, within its capacity, if Pingora is given no eviction manager. With a manager, give that a
/// limit below the capacity: what it names leaves the store.
///
/// What the store refuses (a filter, a full device, a failed one) is sent to the client all the same, and logged; the
/// store counts the reasons ([`picaflor::Stats::refusals`]).
pub struct Picaflor {
    store: Store,
    fills: Mutex<HashMap<Bytes, Vec<Arc<Fill>>>>,
    share: Arc<Share>,
    /// A look at what is stored and the put after it, of one key.
    locks: Vec<tokio::sync::Mutex<()>>,
    hasher: RandomState,
    /// Fills before this one.
    count: AtomicU64,
}

impl Picaflor {
    /// Opens a store, for as long as the program runs: Pingora wants its storage `'static`. Fills that are under way
    /// hold at most an eighth of [`Options::memory`](picaflor::Options).
    ///
    /// # Errors
    /// Those of [`Store::open`], as Pingora's, in picaflor's words.
    pub fn open(options: Options) -> Result<&'static Self> {
        let share = options.memory / 8;
        Ok(Self::with(Store::open(options).map_err(failed)?, share))
    }

    /// The same on a store that is open; fills hold at most so many bytes.
    pub fn with(store: Store, fill_bytes: u64) -> &'static Self {
        Box::leak(Box::new(Self {
            store,
            fills: Mutex::default(),
            share: Arc::new(Share::new(fill_bytes)),
            locks: (0..LOCKS).map(|_| tokio::sync::Mutex::new(())).collect(),
            hasher: RandomState::new(),
            count: AtomicU64::new(0),
        }))
    }

    /// The store, for statistics, groups and [`Store::flush`].
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// The longest response that can be stored, for `HttpCache::set_max_file_size_bytes`.
    pub fn max_file_size(&self) -> usize {
        self.store.object_max() as usize
    }

    /// The store's key of a response: to name it as a [neighbour](PutOptions::neighbour).
    pub fn store_key(&self, key: &CacheKey) -> Bytes {
        record::response_key(key)
    }

    async fn lock(&self, key: &[u8]) -> MutexGuard<'_, ()> {
        self.locks[self.hasher.hash_one(key) as usize % LOCKS].lock().await
    }

    fn note_refusal(&self, error: &picaflor::Error) {
        log::warn!("picaflor: a response is not stored: {error}");
    }

    fn forget_fill(&self, key: &Bytes, number: u64) {
        let mut fills = self.fills.lock();
        if let Some(of_key) = fills.get_mut(key) {
            of_key.retain(|fill| fill.number != number);
            if of_key.is_empty() {
                fills.remove(key);
            }
        }
    }

    /// The newest fill of this key that no purge has met.
    fn newest_fill(&self, key: &[u8]) -> Option<Arc<Fill>> {
        self.fills.lock().get(key)?.iter().rev().find(|fill| !fill.is_purged()).cloned()
    }

    /// Metadata of a stored response: of a large one, newer headers stand in a note beside it.
    async fn meta_of(&self, object: &Object) -> Result<(u64, CacheMeta)> {
        let (fill, meta) = record::decode(object.metadata())?;
        if object.body_in_memory().is_some() {
            return Ok((fill, meta));
        }
        let note = self.store.get_async(&record::note_key(object.key())).await.map_err(failed)?;
        let note = note.and_then(|note| record::decode(note.metadata()).ok());
        Ok(note.filter(|(of, _)| *of == fill).unwrap_or((fill, meta)))
    }

    /// Puts a response again, with other headers: of a large one a chunk is in memory.
    async fn put_again(&self, object: &Object, metadata: Bytes) -> Result<()> {
        let expiry = object.expires().map_or(Expiry::Never, Expiry::At);
        let options = PutOptions::new().metadata(metadata).group(object.group()).expiry(expiry);
        if let Some(body) = object.body_in_memory() {
            return self.store.put_with_async(object.key(), &body, &options).await.map_err(failed);
        }
        let mut stream = self.store.put_stream(object.key(), Some(object.len()), options).map_err(failed)?;
        let mut chunks = object.chunks(0..object.len());
        while let Some(piece) = chunks.next_async().await {
            stream.write_async(piece.map_err(failed)?).await.map_err(failed)?;
        }
        stream.finish_async().await.map_err(failed)
    }
}

fn failed(error: picaflor::Error) -> Box<Error> {
    Error::because(InternalError, "picaflor", error)
}

fn filling(fill: Arc<Fill>) -> Result<Option<(CacheMeta, HitHandler)>> {
    let (_, meta) = record::decode(&fill.metadata)?;
    Ok(Some((meta, Box::new(Hit::filling(fill)))))
}

#[async_trait]
impl Storage for Picaflor {
    async fn lookup(&'static self, key: &CacheKey, _: &SpanHandle) -> Result<Option<(CacheMeta, HitHandler)>> {
        let key = record::response_key(key);
        // What comes is newer than what is there.
        if let Some(fill) = self.newest_fill(&key) {
            return filling(fill);
        }
        let Some(object) = self.store.get_async(&key).await.map_err(failed)? else { return Ok(None) };
        match self.meta_of(&object).await {
            Ok((_, meta)) => Ok(Some((meta, Box::new(Hit::stored(object))))),
            // Another version of Pingora wrote it, perhaps: a miss, and replaced by what is fetched.
            Err(error) => {
                log::warn!("picaflor: a stored response cannot be used: {error}");
                Ok(None)
            }
        }
    }

    async fn lookup_streaming_write(
        &'static self,
        key: &CacheKey,
        tag: Option<&[u8]>,
        trace: &SpanHandle,
    ) -> Result<Option<(CacheMeta, HitHandler)>> {
        let Some(tag) = tag else { return self.lookup(key, trace).await };
        let tag = U64WriteId::try_from(tag);
        let number = tag.map_err(|error| Error::because(InternalError, "picaflor: the tag of a write", error))?.into();
        let fills = self.fills.lock();
        let mut of_key = fills.get(&record::response_key(key)).into_iter().flatten();
        of_key.find(|fill| fill.number == number).cloned().map_or(Ok(None), filling)
    }

    async fn get_miss_handler(&'static self, key: &CacheKey, meta: &CacheMeta, _: &SpanHandle) -> Result<MissHandler> {
        let options = key.extensions.get::<PutOptions>().cloned().unwrap_or_default();
        let key = record::response_key(key);
        // Not that of any fill before, in this run or another.
        let number = self.hasher.hash_one(self.count.fetch_add(1, Relaxed));
        let metadata = record::encode(number, meta)?;
        let len = meta.headers().get(http::header::CONTENT_LENGTH);
        let len = len.and_then(|len| len.to_str().ok()?.parse().ok());
        let stream = self.store.put_stream(&key, len, options.metadata(metadata.clone()));
        let stream = stream.inspect_err(|error| self.note_refusal(error)).ok();
        let fill = Fill::new(number, metadata, &self.store, &self.share);
        self.fills.lock().entry(key.clone()).or_default().push(Arc::clone(&fill));
        Ok(Box::new(Writer { storage: self, key, fill, stream, tag: number.into() }))
    }

    /// An invalidation also keeps a fill that is under way out of the store: what it brings may be older.
    async fn purge(&'static self, target: PurgeTarget<'_>, kind: PurgeType, _: &SpanHandle) -> Result<PurgeOutcome> {
        // A key has one entry, which Pingora's contract gives no identity of its own: this names none.
        if matches!(target, PurgeTarget::Exact(CacheEntryKey::Identified { .. })) {
            return Ok(PurgeOutcome::NotFound);
        }
        let key = record::response_key(target.key());
        let _one_at_a_time = self.lock(&key).await;
        let mut found = false;
        if let PurgeType::Invalidation = kind {
            for fill in self.fills.lock().get(&key).into_iter().flatten() {
                found |= !fill.is_purged();
                fill.purge();
            }
        }
        found |= self.store.delete_async(&key).await.map_err(failed)?;
        Ok(if found { PurgeOutcome::Purged(None) } else { PurgeOutcome::NotFound })
    }

    /// The response is put again as stale; of a larger one each chunk is read and written, as a note on it could be
    /// evicted before it. A fill that is under way is let alone, as Pingora's contract has it.
    async fn expire(&'static self, target: PurgeTarget<'_>, _: &SpanHandle) -> Result<PurgeOutcome> {
        if matches!(target, PurgeTarget::Exact(CacheEntryKey::Identified { .. })) {
            return Ok(PurgeOutcome::NotFound);
        }
        let key = record::response_key(target.key());
        let _one_at_a_time = self.lock(&key).await;
        let Some(object) = self.store.get_async(&key).await.map_err(failed)? else { return Ok(PurgeOutcome::NotFound) };
        let meta = self.meta_of(&object).await;
        // Deletes have a bound of their own: a crash does not bring the fresh one back, nor a note that it is fresh.
        let keys = [&key[..], &record::note_key(&key)];
        self.store.delete_many_async(&keys).await.map_err(failed)?;
        let Ok((fill, mut meta)) = meta else { return Ok(PurgeOutcome::Purged(None)) };
        meta.expire_at(SystemTime::now());
        let put = self.put_again(&object, record::encode(fill, &meta)?).await;
        Ok(if put.is_ok() { PurgeOutcome::Expired } else { PurgeOutcome::Purged(None) })
    }

    /// False, and nothing is changed, if the response is there no more, or was fetched anew since `meta` was read.
    async fn update_meta(&'static self, key: &CacheKey, meta: &CacheMeta, _: &SpanHandle) -> Result<bool> {
        let key = record::response_key(key);
        let _one_at_a_time = self.lock(&key).await;
        let Some(object) = self.store.get_async(&key).await.map_err(failed)? else { return Ok(false) };
        let (fill, before) = record::decode(object.metadata())?;
        if before.created() != meta.created() {
            return Ok(false);
        }
        let metadata = record::encode(fill, meta)?;
        match object.body_in_memory() {
            Some(_) => self.put_again(&object, metadata).await?,
            None => {
                let options = PutOptions::new().metadata(metadata).neighbour(key.clone());
                self.store.put_with_async(&record::note_key(&key), b"", &options).await.map_err(failed)?;
            }
        }
        Ok(true)
    }

    fn support_streaming_partial_write(&self) -> bool {
        true
    }

    fn as_any(&self) -> &(dyn Any + Send + Sync + 'static) {
        self
    }
}
