//! Putting a response into the store while it arrives, and taking what is out of date out of it.
//!
//! A body that ends within [`SMALL`] bytes is gathered and put at once; a longer one goes into the store as a stream.
//! Nothing here can fail a request: whatever the store says, the response goes on to the client, and the reason why
//! it was not stored is counted.
//!
//! A purge or an unsafe request during a fetch wins over that fetch: see `epochs`.

use picaflor::{Error, Expiry, PutOptions, PutStream, Store};
use std::{future::Future, pin::Pin, sync::Arc};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};

use crate::{
    config::CacheConfig,
    fill::{Fill, FillHead},
    head::{self, Index},
    key, lookup,
    lookup::Hit,
    proxy::{Proxy, Worker},
    reason::NotStored,
    rules::Policy,
};

/// Longest body that is put in one piece.
pub(crate) const SMALL: u64 = 64 << 10;

/// How a response is laid down.
#[derive(Clone, Default)]
pub(crate) struct Hints {
    pub(crate) server: u32,
    pub(crate) neighbour: Option<Bytes>,
}

impl Hints {
    fn options(&self, metadata: Vec<u8>, expiry: Expiry) -> PutOptions {
        PutOptions::new()
            .metadata(Bytes::from(metadata))
            .expiry(expiry)
            .server(self.server)
            .maybe_neighbour(self.neighbour.clone())
            .no_wait(true)
    }
}

/// When a response is of no more use: never while it can be confirmed, else when nothing lets it be served stale.
fn expiry(fields: &HeaderMap, policy: &Policy, config: &CacheConfig) -> Expiry {
    if fields.contains_key(header::ETAG) || fields.contains_key(header::LAST_MODIFIED) {
        return Expiry::Never;
    }
    let stale = policy.stale_if_error.unwrap_or(0).max(policy.stale_while_revalidate);
    let until =
        policy.birth.saturating_add(policy.lifetime).saturating_add(stale.max(config.disconnected_stale.millis()));
    Expiry::At(until)
}

enum Way {
    Gathering,
    Stream(Box<PutStream>),
    Off(NotStored),
}

/// One response on its way into the store.
pub(crate) struct Keeper {
    worker: Arc<Worker>,
    url_key: Vec<u8>,
    epoch: u64,
    head: Arc<FillHead>,
    /// Of the variant, when the response has `Vary`: the index it belongs to and its hash.
    variant: Option<(Index, u128)>,
    options: PutOptions,
    len: u64,
    way: Way,
}

impl Keeper {
    pub(crate) fn new(
        worker: Arc<Worker>,
        url_key: Vec<u8>,
        epoch: u64,
        head: Arc<FillHead>,
        variant: Option<(Index, u128)>,
        hints: &Hints,
    ) -> Self {
        let metadata = head::encode(head.status, &head.fields, &head.policy, head.received, None);
        let way = if metadata.len() > head::MAX {
            Way::Off(NotStored::HeadTooLarge)
        } else if !worker.proxy.store.failures().is_empty() {
            Way::Off(NotStored::StoreFailed)
        } else {
            Way::Gathering
        };
        let expiry = expiry(&head.fields, &head.policy, &worker.proxy.config.cache);
        let options = hints.options(metadata, expiry);
        Self { worker, url_key, epoch, head, variant, options, len: 0, way }
    }

    /// The head, for the readers.
    pub(crate) fn head(&self) -> &Arc<FillHead> {
        &self.head
    }

    /// Takes the next piece, before it is pushed into the fill.
    pub(crate) async fn add(&mut self, fill: &Fill, bytes: &Bytes) {
        self.len += bytes.len() as u64;
        if self.len > self.worker.proxy.config.cache.max_object.0 {
            self.off(fill, NotStored::TooLarge);
        }
        if matches!(self.way, Way::Gathering) && self.len > SMALL {
            self.open(fill).await;
        }
        if let Way::Stream(stream) = &mut self.way
            && let Err(e) = stream.write_async(bytes.clone()).await
        {
            self.off(fill, refused(&e));
        }
    }

    /// It is not stored after all.
    pub(crate) fn off(&mut self, fill: &Fill, why: NotStored) {
        if !matches!(self.way, Way::Off(_)) {
            self.way = Way::Off(why);
            fill.give_up_storing();
        }
    }

    async fn open(&mut self, fill: &Fill) {
        // A stream may wait for the device: the origin waits with it, and readers have what arrived before.
        let options = self.options.clone().no_wait(false);
        let stream = self.worker.proxy.store.put_stream(&self.head.key, self.head.len, options);
        let (mut stream, before) = match (stream, fill.whole()) {
            (Ok(stream), Some(before)) => (stream, before),
            (Ok(_), None) => return self.off(fill, NotStored::StoreFailed),
            (Err(e), _) => return self.off(fill, refused(&e)),
        };
        for piece in before {
            if let Err(e) = stream.write_async(piece).await {
                return self.off(fill, refused(&e));
            }
        }
        self.way = Way::Stream(Box::new(stream));
    }

    /// Whether the body is still on its way into the store.
    pub(crate) fn is_on(&self) -> bool {
        !matches!(self.way, Way::Off(_))
    }

    /// The body is complete.
    pub(crate) async fn finish(self, fill: &Fill) -> Result<(), NotStored> {
        let Self { worker, url_key, epoch, head, variant, options, len, way } = self;
        let proxy = worker.proxy.clone();
        let indexes = proxy.epochs.index_of(&url_key).lock().await;
        let old = lookup::index(&proxy.store, &url_key).await;
        let max = proxy.config.cache.max_variants;
        let key = head.key.clone();
        match way {
            Way::Off(why) => return Err(why),
            Way::Gathering => {
                let body = concat(&fill.whole().ok_or(NotStored::StoreFailed)?);
                let (durable, indexed) = {
                    let _held = proxy.epochs.hold(&url_key, epoch).ok_or(NotStored::Invalidated)?;
                    let durable = proxy.store.begin_put(&key, &body, &options);
                    (durable, put_index(&proxy.store, &url_key, variant, old, max)?)
                };
                durable.await.map_err(|e| refused(&e))?;
                indexed.settle(&proxy.store, &url_key).await?;
            }
            // Its end may wait for the device, and the epoch is held over it, which no task may do.
            Way::Stream(stream) => {
                let (indexed, url_key) = tokio::task::spawn_blocking({
                    let proxy = proxy.clone();
                    move || {
                        let _held = proxy.epochs.hold(&url_key, epoch).ok_or(NotStored::Invalidated)?;
                        stream.finish().map_err(|e| refused(&e))?;
                        Ok((put_index(&proxy.store, &url_key, variant, old, max)?, url_key))
                    }
                })
                .await
                .unwrap_or(Err(NotStored::StoreFailed))?;
                indexed.settle(&proxy.store, &url_key).await?;
            }
        }
        drop(indexes);
        proxy.unshared.forget(&fill.key);
        worker.counters.stored.add(1);
        worker.counters.stored_bytes.add(len);
        Ok(())
    }
}

/// What is left to do when the index of a URL's variants is in the store: by who still holds the URL's lock, and not
/// its epoch's, for it may wait for the device.
struct Indexed {
    durable: Option<Durable>,
    /// Hashes of variants that are not in the index any more.
    gone: Vec<u128>,
}

type Durable = Pin<Box<dyn Future<Output = Result<(), Error>> + Send>>;

impl Indexed {
    async fn settle(self, store: &Store, url_key: &[u8]) -> Result<(), NotStored> {
        if let Some(durable) = self.durable {
            durable.await.map_err(|e| refused(&e))?;
        }
        for hash in self.gone {
            let _ = store.delete_async(&key::variant(url_key, hash)).await;
        }
        Ok(())
    }
}

/// Notes the new variant in the index, or says which variants a plain response replaced.
fn put_index(
    store: &Store,
    url_key: &[u8],
    variant: Option<(Index, u128)>,
    old: Option<Index>,
    max: usize,
) -> Result<Indexed, NotStored> {
    let (mut gone, mut durable) = (Vec::new(), None);
    match (variant, old) {
        (None, None) => {}
        (None, Some(old)) => gone = old.variants,
        (Some((mut index, hash)), old) => {
            match old {
                Some(old) if old.nonce == index.nonce => index.variants = old.variants,
                Some(old) => gone = old.variants,
                None => {}
            }
            index.variants.retain(|known| *known != hash);
            index.variants.push(hash);
            let excess = index.variants.len().saturating_sub(max);
            gone.extend(index.variants.drain(..excess));
            let metadata = head::encode_index(&index).ok_or(NotStored::HeadTooLarge)?;
            let options = PutOptions::new().metadata(metadata).no_wait(true);
            durable = Some(Box::pin(store.begin_put(url_key, b"", &options)) as Durable);
        }
    }
    Ok(Indexed { durable, gone })
}

fn concat(pieces: &[Bytes]) -> Bytes {
    match pieces {
        [one] => one.clone(),
        _ => {
            let mut all = BytesMut::with_capacity(pieces.iter().map(Bytes::len).sum());
            pieces.iter().for_each(|piece| all.extend_from_slice(piece));
            all.freeze()
        }
    }
}

fn refused(error: &Error) -> NotStored {
    match error {
        Error::Refused(_) | Error::Full { .. } => NotStored::StoreRefused,
        _ => NotStored::StoreFailed,
    }
}

/// What a 304, or a HEAD, made of a stored response.
pub(crate) struct Fresh<'a> {
    pub(crate) fields: &'a HeaderMap,
    pub(crate) policy: Policy,
    pub(crate) received: u64,
}

/// Writes the fields that a 304 brought: a small object anew, a large one's beside it.
pub(crate) fn freshen(proxy: &Proxy, url_key: &[u8], epoch: u64, old: &Hit, new: &Fresh<'_>, hints: &Hints) {
    let large = old.object.body_in_memory().is_none().then(|| old.object.generation());
    let metadata = head::encode(old.head.status, new.fields, &new.policy, new.received, large);
    let Some(_held) = proxy.epochs.hold(url_key, epoch).filter(|_| metadata.len() <= head::MAX) else { return };
    let options = hints.options(metadata, expiry(new.fields, &new.policy, &proxy.config.cache));
    // Not waited for: what a crash takes is the confirmation, and the origin will give it again.
    match old.object.body_in_memory() {
        Some(body) => drop(proxy.store.begin_put(&old.key, &body, &options)),
        None => drop(proxy.store.begin_put(&key::newer_head(&old.key), b"", &options)),
    }
}

/// Takes URLs, all their variants included, out of the store, and keeps fetches in progress from bringing them back.
/// As durable, when this returns, as `store.delete_durability` says. Says how many responses were there, or what went
/// wrong last.
pub(crate) async fn invalidate(proxy: &Arc<Proxy>, url_keys: Vec<Vec<u8>>) -> Result<usize, Error> {
    let taking = proxy.clone();
    to_its_end(proxy, async move { take_all_out(&taking, &url_keys).await }).await.unwrap_or(Err(Error::Closed))
}

/// The same, durable when this returns, whatever the configuration says: whoever is told that something was purged does
/// not ask again.
pub(crate) async fn purge(proxy: &Arc<Proxy>, url_keys: Vec<Vec<u8>>) -> Result<usize, Error> {
    let taking = proxy.clone();
    let purged = to_its_end(proxy, async move {
        let count = take_all_out(&taking, &url_keys).await?;
        taking.store.flush_deletes_async().await.map(|()| count)
    });
    purged.await.unwrap_or(Err(Error::Closed))
}

async fn take_all_out(proxy: &Proxy, url_keys: &[Vec<u8>]) -> Result<usize, Error> {
    let mut result = Ok(0);
    for url_key in url_keys {
        result = match (take_out(proxy, url_key).await, result) {
            (Ok(n), Ok(before)) => Ok(before + n),
            (Err(e), _) | (_, Err(e)) => Err(e),
        };
    }
    result
}

/// Does what ends in an invalidation on a task of its own: a client that leaves in the middle leaves no half of it
/// undone, and no stop comes before its end. Without an answer it ends only with the whole proxy.
pub(crate) async fn to_its_end<T: Send + 'static>(
    proxy: &Arc<Proxy>,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let invalidating = proxy.epochs.begin_invalidating();
    let task = tokio::spawn(async move {
        let _invalidating = invalidating;
        work.await
    });
    task.await.ok()
}

async fn take_out(proxy: &Proxy, url_key: &[u8]) -> Result<usize, Error> {
    proxy.fills.forget(url_key);
    let _indexes = proxy.epochs.index_of(url_key).lock().await;
    let found = lookup::object(&proxy.store, url_key).await;
    let index = lookup::index(&proxy.store, url_key).await;
    // Who held the epoch before has put what is deleted now, and whoever comes later began later.
    proxy.epochs.move_on(url_key);
    let plain = usize::from(found.is_some() && index.is_none());
    let variants = index.map(|index| index.variants).unwrap_or_default();
    let variants: Vec<_> = variants.into_iter().map(|hash| key::variant(url_key, hash)).collect();
    let keys = || variants.iter().map(Vec::as_slice).chain([url_key]);
    let delete = async {
        // All are begun before one is waited for: where each is to be durable, they share a commit.
        let heads: Vec<_> = keys().map(|key| proxy.store.begin_delete(&key::newer_head(key))).collect();
        let responses: Vec<_> = keys().map(|key| proxy.store.begin_delete(key)).collect();
        for head in heads {
            head.await?;
        }
        let mut count = plain;
        for (n, response) in responses.into_iter().enumerate() {
            // The last one is the URL itself: counted, unless it is an index.
            count += usize::from(response.await? && n < variants.len());
        }
        Ok(count)
    };
    delete.await.inspect_err(|_| proxy.epochs.note_gone(url_key))
}

/// Takes one response, at `key`, of a URL out of the store.
pub(crate) async fn drop_response(proxy: &Proxy, url_key: &[u8], key: &[u8]) {
    if proxy.store.delete_async(key).await.is_err() {
        proxy.epochs.note_gone(url_key);
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::{Low, Server};

    #[test]
    fn an_invalidation_that_nobody_waits_for_any_more_is_done() {
        let folder = tempfile::tempdir().unwrap();
        let mut low =
            Low::parse("test.toml", "workers = 1\n[store]\ncapacity = \"64MiB\"\nmemory = \"32MiB\"\n").unwrap();
        low.listen = Some(vec![([127, 0, 0, 1], 0).into()]);
        low.admin.listen = Some(([127, 0, 0, 1], 0).into());
        low.store.path = Some(folder.path().join("store"));
        let server = Server::start(low.resolve().unwrap()).unwrap();
        let proxy = server.proxy().clone();
        let keys = [b"http://a/".to_vec(), b"http://b/".to_vec()];
        keys.iter().for_each(|key| proxy.store.put(key, b"body").unwrap());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // It has begun, and waits, when the client goes.
            let held = proxy.epochs.index_of(&keys[0]).lock().await;
            let mut asked = Box::pin(invalidate(&proxy, keys.to_vec()));
            assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(asked);
            drop(held);
            while proxy.epochs.invalidating() {
                tokio::task::yield_now().await;
            }
            for key in &keys {
                assert!(lookup::object(&proxy.store, key).await.is_none());
                assert!(proxy.epochs.now(key) > 0, "a fetch in progress does not bring it back");
            }
        });
        drop(proxy);
        server.stop().unwrap();
    }
}
