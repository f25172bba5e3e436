//! What is stored, one response after another, as `GET /objects` answers: JSON, an object a line.
//!
//! The last line says how many places could not be read. So an answer without it is not whole.

use std::sync::Arc;

use bytes::Bytes;
use picaflor::Entry;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use crate::{
    clock::unix_millis,
    head::{Head, Stored, decode},
    key,
    proxy::Proxy,
    purge::{marks::Validity, tags},
};

/// Lines are sent in pieces of so many bytes.
const PIECE: usize = 32 << 10;

/// Lists what is stored, all or what is of a host, until the client goes.
pub(crate) async fn list(proxy: Arc<Proxy>, host: Option<Vec<u8>>, to: Sender<Bytes>) {
    let mut keys = proxy.store.keys_with_metadata();
    let mut piece = Vec::new();
    while let Some(entry) = keys.next_async().await {
        let is_wanted = host.as_ref().is_none_or(|host| key::host_of(&entry.key) == &host[..]);
        let Some(line) = is_wanted.then(|| line(&proxy, &entry)).flatten() else { continue };
        piece.extend_from_slice(line.to_string().as_bytes());
        piece.push(b'\n');
        if piece.len() >= PIECE && to.send(std::mem::take(&mut piece).into()).await.is_err() {
            return;
        }
    }
    piece.extend_from_slice(format!("{}\n", json!({"unreadable": keys.unreadable()})).as_bytes());
    let _ = to.send(piece.into()).await;
}

/// A response or a slice of one. Not an index of variants, nor fields that a later answer brought.
fn line(proxy: &Proxy, entry: &Entry) -> Option<Value> {
    let url_key = key::url_of(&entry.key);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let common = json!({
        "key": text(url_key), "host": text(key::host_of(url_key)), "bytes": entry.len, "group": entry.group,
    });
    let with = |more: Value| {
        let (Value::Object(mut line), Value::Object(more)) = (common, more) else { return None };
        line.extend(more);
        Some(Value::Object(line))
    };
    if entry.key.ends_with(key::NEWER) {
        return None;
    }
    if key::is_slice(&entry.key) {
        return with(json!({"part": "slice"}));
    }
    let Stored::Response(head) = decode(&entry.metadata) else { return None };
    let mut policy = head.policy;
    let is_purged = match proxy.purges.check(url_key, head.seq, Head::tags(&entry.metadata)) {
        Validity::Valid => false,
        Validity::StaleSince(at) => {
            policy.end(at);
            false
        }
        Validity::Gone => true,
    };
    let state = match policy.fresh_until() {
        _ if is_purged => "purged",
        0 => "to be confirmed each time",
        until if until > unix_millis() => "fresh",
        _ => "stale",
    };
    let fields = Head::fields(&entry.metadata);
    let kind = fields.get(http::header::CONTENT_TYPE).map(|kind| text(kind.as_bytes()));
    with(json!({
        "variant": entry.key.len() > url_key.len(),
        "status": head.status.as_u16(),
        "type": kind,
        "state": state,
        "received": head.received,
        "fresh_until": policy.birth.saturating_add(policy.lifetime),
        "tags": tags::named(&fields).unwrap_or_default(),
    }))
}
