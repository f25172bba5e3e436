//! What is known of a URL: what is stored under each key that it may have, whether that is served, and which purge took
//! it; else why the last response was not stored, as long as that is remembered.

use http::header;
use picaflor::{Object, TryGet};
use serde_json::{Value, json};

use crate::{
    clock::unix_millis,
    head::{Head, Stored, decode},
    key,
    lookup::{self, Hit},
    proxy::Proxy,
};

/// As `GET /explain?url=` answers; `None` if it is no URL.
pub(crate) async fn url(proxy: &Proxy, text: &str) -> Option<Value> {
    let asked = key::of_url(text).ok()?;
    // Rules may store it under another query.
    let stored_as = proxy.rules.stored_as(&asked[0]);
    let keys = stored_as.and_then(|url| key::of_url(&url).ok()).unwrap_or(asked);
    let (mut stored, mut not_stored) = (Vec::new(), Vec::new());
    for url_key in &keys {
        if let Some(why) = proxy.unshared.recently(url_key) {
            not_stored.push(json!({"key": String::from_utf8_lossy(url_key), "why": why.name()}));
        }
        let Some((object, from_device)) = lookup::object(&proxy.store, url_key).await else { continue };
        match &*object.decoded(decode) {
            Stored::Response(_) => stored.push(response(proxy, url_key, url_key, (object.clone(), from_device)).await),
            Stored::Unreadable => stored.push(json!({
                "key": String::from_utf8_lossy(url_key), "state": "unreadable: of another version"
            })),
            Stored::Vary(index) => {
                for hash in &index.variants {
                    let key = key::variant(url_key, *hash);
                    let Some(found) = lookup::object(&proxy.store, &key).await else { continue };
                    let mut variant = response(proxy, url_key, &key, found).await;
                    variant["varies_by"] = json!(index.names);
                    stored.push(variant);
                }
            }
        }
    }
    Some(json!({"url": text, "now": unix_millis(), "stored": stored, "not_stored": not_stored}))
}

/// How it is cut, and how many of its slices are stored.
fn slices(proxy: &Proxy, hit: &Hit) -> Option<Value> {
    let slicing = hit.head.slicing?;
    let stored = slicing.keys(&hit.key).filter(|key| !matches!(proxy.store.try_get(key), TryGet::Absent(_))).count();
    Some(json!({"bytes": slicing.size, "count": slicing.count(), "stored": stored}))
}

async fn response(proxy: &Proxy, url_key: &[u8], key: &[u8], (object, from_device): (Object, bool)) -> Value {
    let text = String::from_utf8_lossy(key).replace('\n', " variant ");
    let head = match &*object.decoded(decode) {
        Stored::Response(head) => *head,
        _ => return json!({"key": text, "state": "unreadable"}),
    };
    let hit: Hit = lookup::hit(&proxy.store, key.to_vec(), object, head, from_device).await;
    let (mut policy, tags) = (hit.head.policy, Head::tags(hit.newer.as_ref().unwrap_or(&hit.object).metadata()));
    let tags: Vec<u64> = tags.collect();
    let purge = proxy.purges.taker(url_key, hit.head.seq, &tags);
    let state = match &purge {
        Some(purge) if !purge.soft => "purged",
        _ => {
            purge.iter().for_each(|purge| policy.end(purge.at));
            policy.state(unix_millis())
        }
    };
    let kind = hit.fields().get(header::CONTENT_TYPE).map(|kind| String::from_utf8_lossy(kind.as_bytes()).into_owned());
    let places = proxy.store.locate_async(key).await.ok().flatten().unwrap_or_default();
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
        "tags": tags.len(),
        "was_in_memory": !from_device,
        "places": places.iter().map(|at| json!({"volume": at.volume, "offset": at.offset, "bytes": at.len}))
            .collect::<Vec<_>>(),
        "purge": purge.map(|purge| json!({
            "kind": purge.selector.kind.name(), "text": purge.selector.text, "soft": purge.soft, "at": purge.at,
        })),
    })
}
