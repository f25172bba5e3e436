//! What is known of a URL: what is stored under each key that it may have, whether that is served, and which purge took
//! it; else why the last response was not stored, as long as that is remembered.

use http::header;
use picaflor::{Object, TryGet};
use serde_json::{Value, json};

use crate::{
    clock::unix_millis,
    head::{Stored, decode},
    key,
    lookup::{self, Hit},
    proxy::Proxy,
    purge::record::Record,
};

/// What is stored under a key that a URL may have.
pub(crate) struct Found {
    url_key: Vec<u8>,
    key: Vec<u8>,
    object: Object,
    from_device: bool,
    varies_by: Option<Vec<String>>,
}

impl Found {
    /// The response, if this version can read it.
    pub(crate) async fn hit(&self, proxy: &Proxy) -> Option<Hit> {
        let Stored::Response(head) = &*self.object.decoded(decode) else { return None };
        Some(lookup::hit(&proxy.store, self.key.clone(), self.object.clone(), *head, self.from_device).await)
    }

    /// The purge that took it.
    pub(crate) fn purge(&self, proxy: &Proxy, hit: &Hit) -> Option<Record> {
        let tags: Vec<u64> = hit.tags().collect();
        proxy.purges.taker(&self.url_key, hit.head.seq, &tags)
    }
}

/// The keys that a URL may have; `None` if it is no URL.
fn keys_of(proxy: &Proxy, text: &str) -> Option<[Vec<u8>; 4]> {
    let asked = key::of_url(text).ok()?;
    // Rules may store it under another query.
    let stored_as = proxy.rules.stored_as(&asked[0]);
    Some(stored_as.and_then(|url| key::of_url(&url).ok()).unwrap_or(asked))
}

async fn under(proxy: &Proxy, keys: &[Vec<u8>]) -> Vec<Found> {
    let mut all = Vec::new();
    for url_key in keys {
        let Some((object, from_device)) = lookup::object(&proxy.store, url_key).await else { continue };
        let Stored::Vary(index) = &*object.decoded(decode) else {
            let key = url_key.clone();
            all.push(Found { url_key: url_key.clone(), key, object, from_device, varies_by: None });
            continue;
        };
        for hash in &index.variants {
            let key = key::variant(url_key, *hash);
            let Some((object, from_device)) = lookup::object(&proxy.store, &key).await else { continue };
            let varies_by = Some(index.names.clone());
            all.push(Found { url_key: url_key.clone(), key, object, from_device, varies_by });
        }
    }
    all
}

/// All that is stored of a URL, in the order in which it is told; `None` if it is no URL.
pub(crate) async fn stored(proxy: &Proxy, text: &str) -> Option<Vec<Found>> {
    Some(under(proxy, &keys_of(proxy, text)?).await)
}

/// As `GET /explain?url=` answers; `None` if it is no URL.
pub(crate) async fn url(proxy: &Proxy, text: &str) -> Option<Value> {
    let keys = keys_of(proxy, text)?;
    let refused = |key: &Vec<u8>| {
        let why = proxy.unshared.recently(key)?;
        Some(json!({"key": String::from_utf8_lossy(key), "why": why.name()}))
    };
    let not_stored: Vec<Value> = keys.iter().filter_map(refused).collect();
    let mut stored = Vec::new();
    for found in under(proxy, &keys).await {
        stored.push(response(proxy, &found).await);
    }
    Some(json!({"url": text, "now": unix_millis(), "stored": stored, "not_stored": not_stored}))
}

/// How it is cut, and how many of its slices are stored.
fn slices(proxy: &Proxy, hit: &Hit) -> Option<Value> {
    let slicing = hit.head.slicing?;
    let stored = slicing.keys(&hit.key).filter(|key| !matches!(proxy.store.try_get(key), TryGet::Absent(_))).count();
    Some(json!({"bytes": slicing.size, "count": slicing.count(), "stored": stored}))
}

async fn response(proxy: &Proxy, found: &Found) -> Value {
    let text = String::from_utf8_lossy(&found.key).replace('\n', " variant ");
    let Some(hit) = found.hit(proxy).await else {
        return json!({"key": text, "state": "unreadable: of another version"});
    };
    let (mut policy, purge) = (hit.head.policy, found.purge(proxy, &hit));
    let state = match &purge {
        Some(purge) if !purge.soft => "purged",
        _ => {
            purge.iter().for_each(|purge| policy.end(purge.at));
            policy.state(unix_millis())
        }
    };
    let kind = hit.fields().get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    let places = proxy.store.locate_async(&found.key).await.ok().flatten().unwrap_or_default();
    json!({
        "key": text,
        "state": state,
        "status": hit.head.status.as_u16(),
        "type": kind,
        "bytes": hit.len(),
        "slices": slices(proxy, &hit),
        "received": hit.head.received,
        "fresh_until": policy.birth.saturating_add(policy.lifetime),
        "expires": hit.object.expires(),
        "tags": hit.tags().count(),
        "varies_by": found.varies_by,
        "was_in_memory": !found.from_device,
        "places": places.iter().map(|at| json!({"volume": at.volume, "offset": at.offset, "bytes": at.len}))
            .collect::<Vec<_>>(),
        "purge": purge.map(|purge| json!({
            "kind": purge.selector.kind.name(), "text": purge.selector.text, "soft": purge.soft, "at": purge.at,
        })),
    })
}
