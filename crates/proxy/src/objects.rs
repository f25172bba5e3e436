//! What is stored, one response after another, as `GET /objects` answers: JSON, an object a line.
//!
//! The last line says how many places could not be read. So an answer without it is not whole. It rests
//! ([`Duty`]), for the sake of hits beside it.

use std::{sync::Arc, time::Instant};

use bytes::Bytes;
use picaflor::Entry;
use serde_json::{Value, json};
use tokio::sync::mpsc::Sender;

use crate::{
    clock::unix_millis,
    duty::Duty,
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
    let (mut piece, mut duty) = (Vec::new(), Duty::default());
    loop {
        let began = Instant::now();
        let Some(entry) = keys.next_async().await else { break };
        let is_wanted = host.as_ref().is_none_or(|host| key::host_of(&entry.key) == &host[..]);
        if let Some(line) = is_wanted.then(|| line(&proxy, &entry)).flatten() {
            piece.extend_from_slice(line.to_string().as_bytes());
            piece.push(b'\n');
        }
        duty.rest(began.elapsed(), || false).await;
        if piece.len() >= PIECE && to.send(std::mem::take(&mut piece).into()).await.is_err() {
            return;
        }
    }
    piece.extend_from_slice(format!("{}\n", json!({"unreadable": keys.unreadable()})).as_bytes());
    let _ = to.send(piece.into()).await;
}

/// A response or a slice of one. Not an index of variants, nor fields that a later answer brought.
fn line(proxy: &Proxy, entry: &Entry) -> Option<Value> {
    if entry.key.ends_with(key::NEWER) {
        return None;
    }
    let url_key = key::url_of(&entry.key);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let mut line = json!({
        "key": text(url_key), "host": text(key::host_of(url_key)), "bytes": entry.len, "group": entry.group,
    });
    if key::is_slice(&entry.key) {
        line["part"] = json!("slice");
        return Some(line);
    }
    let Stored::Response(Head { status, mut policy, received, seq, .. }) = decode(&entry.metadata) else { return None };
    let state = match proxy.purges.check(url_key, seq, Head::tags(&entry.metadata)) {
        Validity::Gone => "purged",
        Validity::Valid => policy.state(unix_millis()),
        Validity::StaleSince(at) => {
            policy.end(at);
            policy.state(unix_millis())
        }
    };
    let fields = Head::fields(&entry.metadata);
    let kind = fields.get(http::header::CONTENT_TYPE).map(|kind| text(kind.as_bytes()));
    for (name, value) in [
        ("variant", json!(entry.key.len() > url_key.len())),
        ("status", json!(status.as_u16())),
        ("type", json!(kind)),
        ("state", json!(state)),
        ("received", json!(received)),
        ("fresh_until", json!(policy.birth.saturating_add(policy.lifetime))),
        ("tags", json!(tags::named(&fields).unwrap_or_default())),
        ("cache_groups", json!(tags::groups(&fields))),
    ] {
        line[name] = value;
    }
    Some(line)
}
