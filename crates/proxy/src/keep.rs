//! Putting a response into the store while it arrives.
//!
//! A body that ends within [`SMALL`] bytes is gathered and put at once; a longer one goes into the store as a stream.
//! Nothing here can fail a request: whatever the store says, the response goes on to the client, and the reason why
//! it was not stored is counted.
//!
//! A purge or an unsafe request during a fetch wins over that fetch: what is stored has the number of the last purge
//! when the fetch began, see `purge`.

use picaflor::{Error, Expiry, PutOptions, PutStream, Store};
use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::Arc,
    task::Poll,
};

use bytes::{Bytes, BytesMut};
use http::{HeaderMap, header};

use crate::{
    clock::unix_millis,
    config::CacheConfig,
    fill::Fill,
    head::{self, Index, Note, Stored},
    key, lookup,
    lookup::Hit,
    proxy::{Proxy, Worker},
    purge::{marks::Validity, sequence::Begun, tags},
    reason::NotStored,
    rules::Policy,
    verdict::FillHead,
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
    head: Arc<FillHead>,
    begun: Arc<Begun>,
    tags: Vec<u64>,
    /// Most bytes of body.
    pub(crate) longest: u64,
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
        head: Arc<FillHead>,
        (begun, tags): (Arc<Begun>, Vec<u64>),
        variant: Option<(Index, u128)>,
        hints: &Hints,
    ) -> Self {
        let note = Note { policy: &head.policy, received: head.received, seq: begun.seq, tags: &tags };
        let body = head.slicing.map_or(head::Body::Here, head::Body::Sliced);
        let metadata = head::encode(head.status, &head.fields, &note, body);
        let way = if metadata.len() > head::MAX {
            Way::Off(NotStored::HeadTooLarge)
        } else if !worker.proxy.store.failures().is_empty() {
            Way::Off(NotStored::StoreFailed)
        } else {
            Way::Gathering
        };
        let expiry = expiry(&head.fields, &head.policy, &worker.proxy.config.cache);
        let options = hints.options(metadata, expiry);
        let longest = worker.proxy.config.cache.max_object.0;
        Self { worker, url_key, head, begun, tags, longest, variant, options, len: 0, way }
    }

    /// The head, for the readers.
    pub(crate) fn head(&self) -> &Arc<FillHead> {
        &self.head
    }

    /// Takes the next piece, before it is pushed into the fill.
    pub(crate) async fn add(&mut self, fill: &Fill, bytes: &Bytes) {
        self.len += bytes.len() as u64;
        if self.len > self.longest {
            self.off(fill, NotStored::TooLarge);
        }
        if matches!(self.way, Way::Gathering) && self.len > SMALL {
            // Boxed, as what follows: short ones have no room for it.
            Box::pin(self.open(fill)).await;
        }
        if let Way::Stream(stream) = &mut self.way
            && let Err(e) = Box::pin(stream.write_async(bytes.clone())).await
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
        let Self { worker, url_key, head, begun, tags, variant, options, len, way, .. } = self;
        let proxy = worker.proxy.clone();
        let indexes = proxy.purges.index_of(&url_key).lock().await;
        let Stays { index: old, is_newer } = stays(&proxy.store, &url_key, &head).await;
        let max = proxy.config.cache.max_variants;
        let key = &head.key;
        let is_gone = || proxy.purges.check(&url_key, begun.seq, tags.iter().copied()) == Validity::Gone;
        if !begun.may_store() || is_gone() {
            return Err(NotStored::Invalidated);
        }
        match way {
            Way::Off(why) => return Err(why),
            _ if is_newer => return Err(NotStored::Superseded),
            Way::Gathering => {
                let body = concat(&fill.whole().ok_or(NotStored::StoreFailed)?);
                let durable = proxy.store.begin_put(key, &body, &options);
                let indexed = put_index(&proxy.store, &url_key, variant, old, max)?;
                durable.await.map_err(|e| refused(&e))?;
                indexed.settle(&proxy.store, &url_key).await?;
            }
            // Its end may wait for the device.
            Way::Stream(stream) => {
                let finished = tokio::task::spawn_blocking(move || stream.finish()).await;
                finished.unwrap_or(Err(Error::Closed)).map_err(|e| refused(&e))?;
                let indexed = put_index(&proxy.store, &url_key, variant, old, max)?;
                indexed.settle(&proxy.store, &url_key).await?;
            }
        }
        // A purge meanwhile holds whatever is stored; this gives the space back.
        if is_gone() {
            let _ = proxy.store.invalidate_async(key).await;
            return Err(NotStored::Invalidated);
        }
        drop(indexes);
        proxy.unshared.forget(&fill.key);
        worker.counters.stored.add(1);
        worker.counters.stored_bytes.add(len);
        Ok(())
    }
}

/// What is stored of a URL when a response of it is complete.
struct Stays {
    index: Option<Index>,
    /// It came after the head of that response did, whose body took longer (RFC 9111 4: the most recent one is used).
    is_newer: bool,
}

/// By the holder of the URL's lock.
async fn stays(store: &Store, url_key: &[u8], head: &FillHead) -> Stays {
    let stored = lookup::what(store, url_key).await;
    let index = match stored.as_deref() {
        Some(Stored::Vary(index)) => Some(index.clone()),
        _ => None,
    };
    // Of variants the same one, or the one that came last.
    let rival = match &index {
        Some(_) if head.key != url_key => lookup::what(store, &head.key).await,
        Some(Index { variants, .. }) => match variants.last() {
            Some(last) => lookup::what(store, &key::variant(url_key, *last)).await,
            None => None,
        },
        None => stored,
    };
    let is_newer = match rival.as_deref() {
        // A slice is of one version of its object, and what is of a time to come was stored before the clock was set.
        Some(Stored::Response(rival)) if !key::is_slice(&head.key) => {
            (head.received + 1..=unix_millis()).contains(&rival.received)
        }
        _ => false,
    };
    Stays { index, is_newer }
}

/// What is left to do when the index of a URL's variants is in the store: by the holder of the URL's lock. It may
/// wait for the device.
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
            let _ = store.invalidate_async(&key::variant(url_key, hash)).await;
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

/// Writes the fields that a 304 brought: a small object anew, a large one's beside it; nothing if another response has
/// taken its place meanwhile. What has to wait, for the URL's lock or for the device, is returned: until that ends the
/// answer may not be in the store. What a crash takes of it is the confirmation, and the origin will give it again.
pub(crate) async fn freshen(
    proxy: &Arc<Proxy>,
    url_key: &[u8],
    begun: &Begun,
    old: &Hit,
    new: &Fresh<'_>,
    hints: &Hints,
) -> Option<Pin<Box<dyn Future<Output = ()> + Send>>> {
    let generation = old.object.generation();
    let (body, place) = match (old.head.slicing, old.object.body_in_memory()) {
        (Some(slicing), body) => (body, head::Body::Sliced(slicing)),
        (None, Some(body)) => (Some(body), head::Body::Here),
        (None, None) => (None, head::Body::Of(generation)),
    };
    let tags = tags::of(new.fields, url_key).ok().filter(|_| begun.may_store())?;
    let seq = begun.seq;
    let note = Note { policy: &new.policy, received: new.received, seq, tags: &tags };
    let metadata = head::encode(old.head.status, new.fields, &note, place);
    if metadata.len() > head::MAX {
        return None;
    }
    let options = hints.options(metadata, expiry(new.fields, &new.policy, &proxy.config.cache));
    let (proxy, url_key, key) = (proxy.clone(), url_key.to_vec(), old.key.clone());
    let mut written = Box::pin(async move {
        let _turn = proxy.purges.index_of(&url_key).lock().await;
        let put = match body {
            Some(body) => {
                let stored = lookup::object(&proxy.store, &key).await;
                let is_there = stored.is_some_and(|(stored, _)| stored.generation() == generation);
                is_there.then_some((key, body))
            }
            // It names the object to which it belongs.
            None => Some((key::newer_head(&key), Bytes::new())),
        };
        let is_gone = || proxy.purges.check(&url_key, seq, tags.iter().copied()) == Validity::Gone;
        if let Some((key, body)) = put.filter(|_| !is_gone()) {
            let _ = proxy.store.begin_put(&key, &body, &options).await;
        }
    });
    let is_written = poll_fn(|context| Poll::Ready(written.as_mut().poll(context).is_ready())).await;
    (!is_written).then_some(written)
}
