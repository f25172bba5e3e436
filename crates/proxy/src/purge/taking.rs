//! Taking what is out of date out of the store: purges of every kind, and what unsafe requests make invalid (RFC 9111
//! 4.4).
//!
//! A URL is noted, deleted with all of its variants, and the note goes when no older fetch of it is under way: at once,
//! mostly; else the purge is pinned, and [`tidy`] ends it. Everything else is noted and pinned, and stays so until it
//! was [swept](super::sweep).

use std::{
    collections::VecDeque,
    future::Future,
    sync::Arc,
    time::{Duration, Instant},
};

use picaflor::{Error, Object, TryGet};

use super::{
    asked::Asked,
    record::Record,
    selector::{Kind, Selector},
    sequence::{Full, NotPinned},
};
use crate::{
    head::{Head, Stored, decode},
    key, lookup,
    proxy::Proxy,
    slices::Slicing,
};

/// How long a purge waits for others to be swept away, where there is no room to note it, before it is refused.
const PATIENCE: Duration = Duration::from_secs(5);
/// How often it looks.
const RETRY: Duration = Duration::from_millis(20);

/// Slices that are deleted at a time.
const TOGETHER: usize = 64;

/// Why a purge is not acknowledged.
#[derive(Debug, Clone, thiserror::Error)]
pub(crate) enum NotPurged {
    /// It does not count.
    #[error(transparent)]
    Full(#[from] Full),
    /// It does not count: the preset pins no records.
    #[error("the store's preset keeps no notes of purges; purge by url, or make the store with the default preset")]
    Preset,
    /// It counts until the next start, and may not after it.
    #[error(transparent)]
    Store(#[from] Error),
}

/// Takes URLs out that a request made invalid: as durably, when this returns, as `store.delete_durability` says.
pub(crate) async fn invalidate(proxy: &Arc<Proxy>, url_keys: Vec<Vec<u8>>) -> Result<usize, NotPurged> {
    let taking = proxy.clone();
    let taken = to_its_end(proxy, async move {
        let selector = Selector::keys(url_keys.iter().map(Vec::as_slice));
        take_urls(&taking, selector, &url_keys, false).await
    });
    taken.await.unwrap_or_else(closed)
}

/// Does what is asked, durably when this returns, whatever the configuration says: a caller that is told that something
/// was purged does not ask again. Says how many responses were there, if it is a URL's that are gone.
pub(crate) async fn purge(proxy: &Arc<Proxy>, mut asked: Asked) -> Result<Option<usize>, NotPurged> {
    // Rules may store it under another query.
    if let Some(url) = asked.url_keys.as_ref().and_then(|keys| proxy.rules.stored_as(&keys[0])) {
        asked = Asked::url(&url, asked.soft).unwrap_or(asked);
    }
    let taking = proxy.clone();
    let purged = to_its_end(proxy, async move {
        let Asked { mut selectors, url_keys, soft } = asked;
        match (url_keys, selectors.pop()) {
            (Some(url_keys), Some(selector)) if !soft => take_urls(&taking, selector, &url_keys, true).await.map(Some),
            (_, last) => take_all(&taking, selectors.into_iter().chain(last), soft).await.map(|()| None),
        }
    });
    purged.await.unwrap_or_else(closed)
}

async fn take_all(proxy: &Proxy, selectors: impl Iterator<Item = Selector>, soft: bool) -> Result<(), NotPurged> {
    if !proxy.purges.are_pinned() {
        return Err(NotPurged::Preset);
    }
    let purges = &proxy.purges;
    let until = Instant::now() + PATIENCE;
    let mut selectors: Vec<Selector> = selectors.collect();
    loop {
        // All are begun before one is waited for, so that they share a commit.
        let begin = |selector: Selector| match purges.note(selector.clone(), soft) {
            Ok(record) => (selector, Ok((purges.begin_pin(&record), record))),
            Err(full) => (selector, Err(full)),
        };
        let begun: Vec<_> = selectors.drain(..).map(begin).collect();
        proxy.fills.forget_all();
        let mut refused = None;
        for (selector, begun) in begun {
            let done = match begun {
                Ok((pin, record)) => purges.pinned(&record, pin.await),
                Err(full) => Err(full.into()),
            };
            match done {
                Err(NotPinned::Full(full)) => {
                    refused = Some(full);
                    selectors.push(selector);
                }
                done => done?,
            }
        }
        let Some(full) = refused else { return Ok(()) };
        if Instant::now() >= until {
            purges.count_refused();
            return Err(full.into());
        }
        tokio::time::sleep(RETRY).await;
    }
}

/// What the origin says of groups of its own (RFC 9875): where there is no room for another note, more is taken out.
/// Not waited for: durable in the time of deletes.
pub(crate) fn invalidate_group(proxy: &Arc<Proxy>, url_key: &[u8], name: &str) {
    let purges = &proxy.purges;
    let whole = purges.note(Selector::group_of(url_key, name), false);
    let noted = whole.or_else(|_| purges.note(Selector::origin_of(url_key), false));
    let Ok(record) = noted.or_else(|_| purges.note(Selector::all(), false)) else { return };
    proxy.fills.forget_all();
    let (pin, purges) = (purges.begin_pin(&record), purges.clone());
    // One that fails counts in this life all the same.
    drop(tokio::spawn(async move { purges.pinned(&record, pin.await) }));
}

/// Takes out the slices of the response at `key`, which is this object. Nothing finds them once that has gone: this
/// gives their space back.
pub(crate) async fn drop_slices(proxy: &Proxy, key: &[u8], object: &Object) {
    let Stored::Response(Head { slicing: Some(slicing), .. }) = *object.decoded(decode) else { return };
    let keys = slicing.keys(key).filter(|slice| !matches!(proxy.store.try_get(slice), TryGet::Absent(_)));
    let mut begun: VecDeque<_> = VecDeque::new();
    // Many share a commit.
    for slice in keys {
        begun.push_back(proxy.store.begin_invalidate(&slice));
        if begun.len() >= TOGETHER
            && let Some(oldest) = begun.pop_front()
        {
            let _ = oldest.await;
        }
    }
    for deleted in begun {
        let _ = deleted.await;
    }
}

/// Takes out the head of an object at `key` that is cut in this way, and its slices.
pub(crate) async fn drop_sliced(proxy: &Proxy, url_key: &[u8], key: &[u8], cut: Slicing) {
    let stored = lookup::what(&proxy.store, key).await;
    if matches!(stored.as_deref(), Some(Stored::Response(Head { slicing, .. })) if *slicing == Some(cut)) {
        drop_response(proxy, url_key, key).await;
    }
}

/// Takes one response, at `key`, of a URL out of the store.
pub(crate) async fn drop_response(proxy: &Proxy, url_key: &[u8], key: &[u8]) {
    if let Some((object, _)) = lookup::object(&proxy.store, key).await {
        drop_slices(proxy, key, &object).await;
    }
    if proxy.store.invalidate_async(key).await.is_err() {
        let _ = proxy.purges.note(Selector::keys([url_key].into_iter()), false);
    }
}

/// Does what ends in an invalidation on a task of its own: a client that leaves in the middle leaves no half of it
/// undone, and no stop comes before its end. Without an answer it ends only with the whole proxy.
pub(crate) async fn to_its_end<T: Send + 'static>(
    proxy: &Arc<Proxy>,
    work: impl Future<Output = T> + Send + 'static,
) -> Option<T> {
    let invalidating = proxy.purges.begin_invalidating();
    let task = tokio::spawn(async move {
        let _invalidating = invalidating;
        work.await
    });
    task.await.ok()
}

impl From<NotPinned> for NotPurged {
    fn from(why: NotPinned) -> Self {
        match why {
            NotPinned::Full(full) => Self::Full(full),
            NotPinned::Store(error) => Self::Store(error),
        }
    }
}

fn closed<T>() -> Result<T, NotPurged> {
    Err(NotPurged::Store(Error::Closed))
}

async fn take_urls(proxy: &Proxy, selector: Selector, url_keys: &[Vec<u8>], durably: bool) -> Result<usize, NotPurged> {
    let record = proxy.purges.note(selector, false)?;
    url_keys.iter().for_each(|url_key| proxy.fills.forget(url_key));
    let meets = proxy.purges.meets(&record) || record.selector.kind == Kind::All;
    let pinned = meets && durably && proxy.purges.are_pinned();
    if pinned {
        proxy.purges.pinned(&record, proxy.purges.begin_pin(&record).await)?;
    }
    let taken = take_out(proxy, url_keys, u64::MAX).await;
    let durable = match &taken {
        Ok(_) if durably && !pinned => proxy.store.flush_deletes_async().await,
        _ => Ok(()),
    };
    if !meets && taken.is_ok() && durable.is_ok() {
        proxy.purges.forget(&[record]);
    } else if record.selector.kind == Kind::Url {
        proxy.purges.leave(record, url_keys.to_vec());
    }
    Ok(taken.and_then(|count| durable.map(|()| count))?)
}

/// Ends the purges whose older fetches have ended, and tries again those that the store refused.
pub(crate) async fn tidy(proxy: &Proxy) {
    let mut done: Vec<Record> = Vec::new();
    for (record, url_keys) in proxy.purges.left() {
        if !proxy.purges.meets(&record) && take_out(proxy, &url_keys, record.seq).await.is_ok() {
            done.push(record);
        }
    }
    // Durably, or a crash would bring them back without a note.
    if !done.is_empty() && proxy.store.flush_deletes_async().await.is_ok() {
        proxy.purges.forget(&done);
    }
}

/// Deletes the responses of these URLs whose fetch began before the purge of this number. Says how many there were.
async fn take_out(proxy: &Proxy, url_keys: &[Vec<u8>], seq: u64) -> Result<usize, Error> {
    let mut result = Ok(0);
    for url_key in url_keys {
        result = match (take_one(proxy, url_key, seq).await, result) {
            (Ok(n), Ok(before)) => Ok(before + n),
            (Err(e), _) | (_, Err(e)) => Err(e),
        };
    }
    result
}

async fn take_one(proxy: &Proxy, url_key: &[u8], seq: u64) -> Result<usize, Error> {
    let _indexes = proxy.purges.index_of(url_key).lock().await;
    let index = lookup::index(&proxy.store, url_key).await;
    let is_index = index.is_some();
    let variants = index.map(|index| index.variants).unwrap_or_default();
    let mut variants: Vec<_> = variants.into_iter().map(|hash| key::variant(url_key, hash)).collect();
    let mut own = Some(url_key);
    if seq < u64::MAX {
        let mut older = Vec::new();
        for variant in variants {
            if is_older(proxy, &variant, seq).await {
                older.push(variant);
            }
        }
        variants = older;
        own = if is_older(proxy, url_key, seq).await { own } else { None };
    }
    let keys = || variants.iter().map(Vec::as_slice).chain(own);
    let mut count = 0;
    for key in keys() {
        if let Some((object, _)) = lookup::object(&proxy.store, key).await {
            drop_slices(proxy, key, &object).await;
            count += usize::from(key != url_key || !is_index);
        }
    }
    // All are begun before one is waited for: where each is to be durable, they share a commit.
    let begin = |key: &[u8]| [proxy.store.begin_invalidate(&key::newer_head(key)), proxy.store.begin_invalidate(key)];
    for gone in keys().flat_map(begin).collect::<Vec<_>>() {
        gone.await?;
    }
    Ok(count)
}

/// Whether there is no newer response at this key. What is not found is deleted too: a crash could bring an older
/// version back that memory does not know any more.
async fn is_older(proxy: &Proxy, key: &[u8], seq: u64) -> bool {
    match lookup::what(&proxy.store, key).await.as_deref() {
        Some(Stored::Response(head)) => head.seq < seq,
        Some(Stored::Vary(_)) => false,
        Some(Stored::Unreadable) | None => true,
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Waker};

    use super::*;
    use crate::{
        Low, Server,
        head::{self, Note},
        purge::marks::Validity,
        rules::Policy,
    };

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
        let fetch = proxy.purges.begin(&keys[1]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            // It has begun, and waits, when the client goes.
            let held = proxy.purges.index_of(&keys[0]).lock().await;
            let mut asked = Box::pin(invalidate(&proxy, keys.to_vec()));
            assert!(asked.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
            drop(asked);
            drop(held);
            while proxy.purges.invalidating() {
                tokio::task::yield_now().await;
            }
            for key in &keys {
                assert!(lookup::object(&proxy.store, key).await.is_none());
            }
            let brought = || proxy.purges.check(&keys[1], fetch.seq, std::iter::empty());
            assert_eq!(brought(), Validity::Gone, "a fetch in progress does not bring it back");
            tidy(&proxy).await;
            assert_eq!(brought(), Validity::Gone, "it is under way still");
            // What is fetched after the purge stays when the older fetch has ended.
            let policy = Policy::of(0, 1);
            let newer = proxy.purges.begin(&keys[1]).seq;
            let note = Note { policy: &policy, received: 0, seq: newer, tags: &[] };
            let metadata = head::encode(http::StatusCode::OK, &http::HeaderMap::new(), &note, head::Body::Here);
            proxy.store.put_with(&keys[1], b"new", &picaflor::PutOptions::new().metadata(metadata)).unwrap();
        });
        drop(fetch);
        // The admin thread does it too, from time to time.
        runtime.block_on(tidy(&proxy));
        assert_eq!(proxy.purges.stats()["noted"], 0);
        assert!(proxy.store.contains(&keys[1]).unwrap() && !proxy.store.contains(&keys[0]).unwrap());
        drop(proxy);
        server.stop().unwrap();
    }
}
