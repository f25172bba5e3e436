//! Finding what may answer a request: the response stored under its URL, or, where that is an index of variants,
//! the variant that the request's fields select. Memory is asked first and answers at once; only the device is
//! waited for. A store that fails is a store that has nothing.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use picaflor::{Object, Store, TryGet};

use crate::{
    head::{Head, Index, Stored, decode},
    key,
    purge::{marks::Validity, sequence::Purges},
    rules::vary,
};

/// A stored response.
#[derive(Clone)]
pub(crate) struct Hit {
    /// Its key: of the URL, or of the variant.
    pub(crate) key: Vec<u8>,
    pub(crate) object: Object,
    pub(crate) head: Head,
    /// Where a later 304 left its fields, for objects too large to be written again.
    pub(crate) newer: Option<Object>,
    pub(crate) from_device: bool,
}

/// What a lookup found.
pub(crate) enum Found {
    /// A response.
    Hit(Hit),
    /// Nothing, and the key that a fetch for this request goes by.
    Nothing {
        /// The URL is known, this variant is not.
        variant: bool,
        key: Vec<u8>,
    },
}

impl Hit {
    /// Bytes of its body.
    pub(crate) fn len(&self) -> u64 {
        self.head.slicing.map_or_else(|| self.object.len(), |slicing| slicing.total)
    }

    /// The stored fields.
    pub(crate) fn fields(&self) -> HeaderMap {
        Head::fields(self.metadata())
    }

    /// The hashes of its tags and groups.
    pub(crate) fn tags(&self) -> impl Iterator<Item = u64> + '_ {
        Head::tags(self.metadata())
    }

    fn metadata(&self) -> &[u8] {
        self.newer.as_ref().unwrap_or(&self.object).metadata()
    }
}

/// An object, and whether the device was asked.
pub(crate) async fn object(store: &Store, key: &[u8]) -> Option<(Object, bool)> {
    match store.try_get(key) {
        TryGet::Hit(object) => Some((object, false)),
        TryGet::Absent(_) => None,
        // Boxed: most need no room for it.
        TryGet::OnDevice => Box::pin(store.get_async(key)).await.ok().flatten().map(|object| (object, true)),
    }
}

/// The index of variants at `url_key`, if there is one.
pub(crate) async fn index(store: &Store, url_key: &[u8]) -> Option<Index> {
    match &*what(store, url_key).await? {
        Stored::Vary(index) => Some(index.clone()),
        _ => None,
    }
}

/// What lies at this key.
pub(crate) async fn what(store: &Store, key: &[u8]) -> Option<Arc<Stored>> {
    object(store, key).await.map(|(object, _)| object.decoded(decode))
}

/// Whether a URL, in any variant, has a 200 that is fresh.
pub(crate) async fn has_fresh((store, purges): (&Store, &Purges), url_key: &[u8], now: u64) -> bool {
    let is_fresh = |object: &Object| match &*object.decoded(decode) {
        Stored::Response(head) => {
            let is_valid = || purges.check(url_key, head.seq, Head::tags(object.metadata())) == Validity::Valid;
            head.status == StatusCode::OK && now < head.policy.fresh_until() && is_valid()
        }
        _ => false,
    };
    let Some((plain, _)) = object(store, url_key).await else { return false };
    let Stored::Vary(index) = &*plain.decoded(decode) else { return is_fresh(&plain) };
    for hash in &index.variants {
        if object(store, &key::variant(url_key, *hash)).await.is_some_and(|(found, _)| is_fresh(&found)) {
            return true;
        }
    }
    false
}

/// Looks for what answers a request with these fields.
pub(crate) async fn find((store, purges): (&Store, &Purges), url_key: &[u8], request: &HeaderMap) -> Found {
    // The second time memory has it, or nothing has.
    for _ in 0..3 {
        let ends = purges.ends();
        let found = match stored(store, url_key, request).await {
            Found::Hit(hit) => judged(purges, url_key, hit),
            found => found,
        };
        if purges.ends() == ends || matches!(found, Found::Nothing { .. }) {
            return found;
        }
    }
    Found::Nothing { variant: false, key: url_key.to_vec() }
}

fn judged(purges: &Purges, url_key: &[u8], mut hit: Hit) -> Found {
    match purges.check(url_key, hit.head.seq, hit.tags()) {
        Validity::Valid => {}
        Validity::StaleSince(at) => hit.head.policy.end(at),
        Validity::Gone => return Found::Nothing { variant: false, key: hit.key },
    }
    Found::Hit(hit)
}

async fn stored(store: &Store, url_key: &[u8], request: &HeaderMap) -> Found {
    let Some((first, from_device)) = object(store, url_key).await else {
        return Found::Nothing { variant: false, key: url_key.to_vec() };
    };
    match &*first.decoded(decode) {
        Stored::Response(head) => Found::Hit(hit(store, url_key.to_vec(), first.clone(), *head, from_device).await),
        Stored::Unreadable => Found::Nothing { variant: false, key: url_key.to_vec() },
        Stored::Vary(index) => {
            let values = vary::values(&index.names, request);
            let hash = key::variant_hash(index.nonce, values.iter().map(Vec::as_slice));
            let key = key::variant(url_key, hash);
            match object(store, &key).await {
                Some((object, from_device)) => match &*object.decoded(decode) {
                    Stored::Response(head) => Found::Hit(hit(store, key, object.clone(), *head, from_device).await),
                    _ => Found::Nothing { variant: true, key },
                },
                None => Found::Nothing { variant: true, key },
            }
        }
    }
}

/// The response at this key, which is this object.
pub(crate) async fn hit(store: &Store, key: Vec<u8>, object: Object, head: Head, from_device: bool) -> Hit {
    let mut hit = Hit { key, object, head, newer: None, from_device };
    if hit.object.body_in_memory().is_none()
        && let Some((newer, _)) = self::object(store, &key::newer_head(&hit.key)).await
        && let Stored::Response(head) = &*newer.decoded(decode)
        && head.generation == hit.object.generation()
    {
        hit.head = *head;
        hit.newer = Some(newer);
    }
    hit
}
