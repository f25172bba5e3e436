//! A response as it is stored, as `GET /object` answers: its body, or a range of it, as plain bytes; or its status and
//! fields.
//!
//! The length is told first, so an answer that breaks off shows. A response in slices is put together of those that the
//! range touches; it is refused where one of them is not stored.

use std::{ops::Range, sync::Arc};

use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use picaflor::TryGet;
use tokio::sync::mpsc::Sender;

use crate::{
    explain, key,
    lookup::{self, Hit},
    proxy::Proxy,
    purge::asked::Asked,
    range::{self, Plan},
};

const WRONG: &str = "say of which URL: /object?url=http://host/path; head=1 before it is for status and fields, n=2 for the \
                     second of several, as /explain has them";

/// Why there is nothing to be seen.
pub(crate) type NotShown = (StatusCode, String);

fn wrong() -> NotShown {
    (StatusCode::BAD_REQUEST, WRONG.into())
}

/// What a query asks for.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Wanted {
    url: String,
    /// Which of several, from 1.
    n: Option<usize>,
    pub(crate) head: bool,
}

impl Wanted {
    /// The URL comes last, as in that of a purge.
    pub(crate) fn query(mut query: &str) -> Result<Self, NotShown> {
        let (mut n, mut head) = (None, false);
        while let Some((one, rest)) = query.split_once('&').filter(|(one, _)| !one.starts_with("url=")) {
            match one.split_once('=') {
                Some(("head", "1")) => head = true,
                Some(("n", text)) => n = Some(text.parse().map_err(|_| wrong())?),
                _ => return Err(wrong()),
            }
            query = rest;
        }
        match Asked::query(query) {
            Ok(Asked { selectors, url_keys: Some(_), soft: false }) => {
                Ok(Self { url: selectors[0].text.clone(), n, head })
            }
            _ => Err(wrong()),
        }
    }
}

/// The response that is wanted.
pub(crate) async fn find(proxy: &Proxy, wanted: &Wanted) -> Result<Hit, NotShown> {
    let found = explain::stored(proxy, &wanted.url).await.ok_or_else(wrong)?;
    let missing = |why: String| (StatusCode::NOT_FOUND, why);
    let one = match (wanted.n, &found[..]) {
        (_, []) => return Err(missing("it is not stored".into())),
        (None, [one]) => one,
        (None, all) => {
            let (count, why) = (all.len(), "are stored of it: say which by n, counted as /explain has them");
            return Err((StatusCode::CONFLICT, format!("{count} responses {why}")));
        }
        (Some(n), all) => {
            let one = n.checked_sub(1).and_then(|n| all.get(n));
            one.ok_or_else(|| missing(format!("{} of it stored, counted from 1", all.len())))?
        }
    };
    let Some(hit) = one.hit(proxy).await else {
        return Err((StatusCode::CONFLICT, "it was stored by another version, and cannot be read".into()));
    };
    match one.purge(proxy, &hit) {
        Some(purge) if !purge.soft => Err(missing("it is purged".into())),
        _ => Ok(hit),
    }
}

/// Status and fields, a line each.
pub(crate) fn head(hit: &Hit) -> Bytes {
    let mut text = format!("{}\n", hit.head.status).into_bytes();
    for (name, value) in &hit.fields() {
        text.extend_from_slice(&[name.as_str().as_bytes(), b": ", value.as_bytes(), b"\n"].concat());
    }
    text.into()
}

/// Which bytes of the body: all where no single range is asked for.
pub(crate) fn part(hit: &Hit, range: Option<&HeaderValue>) -> Result<Range<u64>, NotShown> {
    let len = hit.len();
    match range.map_or(Plan::Whole, |range| range::plan(range.as_bytes(), len)) {
        Plan::Whole | Plan::Several(_) => Ok(0..len),
        Plan::One(range) => Ok(range),
        Plan::Nothing => {
            Err((StatusCode::RANGE_NOT_SATISFIABLE, format!("it has {len} bytes, none of them in that range")))
        }
    }
}

/// An object of the store, by its key, and which bytes of it.
pub(crate) type Part = (Vec<u8>, Range<u64>);

/// The objects that have these bytes.
pub(crate) fn parts(proxy: &Proxy, hit: &Hit, part: &Range<u64>) -> Result<Vec<Part>, NotShown> {
    let Some(slicing) = hit.head.slicing else { return Ok(vec![(hit.key.clone(), part.clone())]) };
    let touched = slicing.at(part.start)..slicing.at(part.end.saturating_sub(1)) + 1;
    let slice = |n| {
        let (key, whole) = (key::slice(&hit.key, slicing.nonce, n), slicing.range(n));
        let start = part.start.max(whole.start) - whole.start;
        (key, start..part.end.min(whole.end).max(whole.start) - whole.start)
    };
    let all: Vec<_> = touched.filter(|_| !part.is_empty()).map(slice).collect();
    let missing = all.iter().filter(|(key, _)| matches!(proxy.store.try_get(key), TryGet::Absent(_))).count();
    if missing > 0 {
        let why = "of its slices are not stored; a range that touches none of them can be had";
        return Err((StatusCode::CONFLICT, format!("{missing} {why}")));
    }
    Ok(all)
}

/// Sends the bytes, until the client goes or one of them cannot be read.
pub(crate) async fn send(proxy: Arc<Proxy>, parts: Vec<Part>, to: Sender<Bytes>) {
    for (key, range) in parts {
        let Some((object, _)) = lookup::object(&proxy.store, &key).await else { return };
        let mut chunks = object.chunks(range);
        while let Some(piece) = chunks.next_async().await {
            let Ok(piece) = piece else { return };
            if to.send(piece).await.is_err() {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_query_names_one_url_at_its_end() {
        let wanted = |query| Wanted::query(query).ok();
        let url = "http://a.example/x?b=1&c=2";
        let plain = Wanted { url: url.into(), n: None, head: false };
        assert_eq!(wanted("url=http://a.example/x?b=1&c=2"), Some(plain));
        let second = Wanted { url: url.into(), n: Some(2), head: true };
        assert_eq!(wanted("head=1&n=2&url=http%3A%2F%2Fa.example%2Fx%3Fb%3D1%26c%3D2"), Some(second));
        for bad in ["", "url=", "n=x&url=http://a/", "host=a", "head=1", "soft=1&url=http://a/", "m=1&url=http://a/"] {
            assert_eq!(wanted(bad), None, "{bad}");
        }
    }
}
