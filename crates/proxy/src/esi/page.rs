//! Which responses are pages that are put together here, and what can be said of one that is (the Edge Architecture
//! note of 2001, which comes with ESI: `Surrogate-Capability`, `Surrogate-Control`).
//!
//! * An origin is told that ESI is known here. What it says in `Surrogate-Control` is for us, and goes no further: with
//!   `content="ESI/1.0"` the response is a page, with anything else it is none. Where it says nothing, the operator's
//!   rule has said it, of text.
//! * The length and the validators of the template are not those of the page, which has none: it changes with each
//!   fragment. So nothing confirms it, and there are no ranges of it.
//! * Nor is the lifetime: a page is as old as its oldest fragment, and what those are is not known when the head goes
//!   out. So clients ask for it each time, unless the template has a lifetime for us alone ([`lifetime`]).

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, response::Parts};

use crate::{
    clock::date,
    replace::{OF_BODY, is_coded},
    rules::directives::{self, CDN_CACHE_CONTROL, ResponseDirectives},
};

static CAPABILITY: HeaderName = HeaderName::from_static("surrogate-capability");
static CONTROL: HeaderName = HeaderName::from_static("surrogate-control");

/// Of a request for what may be a page.
pub(crate) fn announce(headers: &mut HeaderMap) {
    headers.insert(&CAPABILITY, HeaderValue::from_static("picaflor=\"ESI/1.0\""));
}

/// Takes out what a client says that is no front of ours: what an origin answers to it would be for it alone.
pub(crate) fn forget(headers: &mut HeaderMap) {
    headers.remove(&CAPABILITY);
}

/// Takes from a response what is meant for us; whether it is a page, which is made `now`. In front of an origin
/// (`for_origin`) some of it is in `CDN-Cache-Control`.
pub(crate) fn take(parts: &mut Parts, for_origin: bool, now: u64) -> bool {
    let said = controls(&parts.headers);
    parts.headers.remove(&CONTROL);
    let whole = parts.status == StatusCode::OK && is_plain(&parts.headers);
    let is_page = whole && said.unwrap_or_else(|| is_text(&parts.headers));
    if is_page {
        for name in OF_BODY {
            parts.headers.remove(name);
        }
        for name in [header::ETAG, header::LAST_MODIFIED, header::AGE] {
            parts.headers.remove(name);
        }
        parts.headers.insert(header::DATE, date(now));
        lifetime(&mut parts.headers, for_origin);
    }
    is_page
}

/// How long clients may keep a page. A template that has `CDN-Cache-Control` for us says in `Cache-Control` what is for
/// them, of all of the page. Any other lifetime is the template's, and of it only what forbids is left.
fn lifetime(headers: &mut HeaderMap, for_origin: bool) {
    let said = ResponseDirectives::parse(headers, for_origin);
    headers.remove(&CDN_CACHE_CONTROL);
    if said.targeted && (headers.contains_key(header::CACHE_CONTROL) || headers.contains_key(header::EXPIRES)) {
        return;
    }
    headers.remove(header::EXPIRES);
    headers.remove(header::PRAGMA);
    let left = match said {
        ResponseDirectives { no_store: true, .. } => "no-store",
        ResponseDirectives { private: true, .. } => "private, no-cache",
        _ => "no-cache",
    };
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static(left));
}

/// Whether a body can be put into another one as it is.
pub(crate) fn is_plain(headers: &HeaderMap) -> bool {
    !is_coded(headers) && !headers.contains_key(header::CONTENT_RANGE)
}

/// `None` if it does not say whether.
fn controls(headers: &HeaderMap) -> Option<bool> {
    headers.contains_key(&CONTROL).then(|| {
        let lines = headers.get_all(&CONTROL).iter().filter_map(|line| line.to_str().ok());
        let mut contents = lines.flat_map(directives::split_list).filter_map(|part| {
            let (name, value) = part.split_once('=')?;
            // A directive for another surrogate has its name behind a semicolon.
            name.trim().eq_ignore_ascii_case("content").then(|| value.split(';').next().unwrap_or("").trim())
        });
        contents.any(|value| value.trim_matches('"').split_ascii_whitespace().any(|what| what == "ESI/1.0"))
    })
}

fn is_text(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or("");
    let kind = kind.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    kind.starts_with("text/") || kind == "application/xml" || kind.ends_with("+xml")
}

#[cfg(test)]
mod tests {
    use http::Response;

    use super::*;

    #[test]
    fn a_page_is_what_says_so_or_text_that_says_nothing() {
        let own = "content=\"ESI/1.0\"";
        for (fields, is_page) in [
            (&[("surrogate-control", own)][..], true),
            (&[("surrogate-control", "max-age=60, Content=\"X/1 ESI/1.0\";abc")], true),
            (&[("surrogate-control", "max-age=60"), ("content-type", "text/html")], false),
            (&[("surrogate-control", "content=\"ESI-INV/1.0\"")], false),
            (&[("content-type", "Text/HTML; charset=utf-8")], true),
            (&[("content-type", "application/xhtml+xml")], true),
            (&[("content-type", "image/png")], false),
            (&[], false),
            (&[("surrogate-control", own), ("content-encoding", "gzip")], false),
            (&[("surrogate-control", own), ("content-encoding", "identity")], true),
            (&[("surrogate-control", own), ("content-range", "bytes 0-1/2")], false),
        ] {
            let mut response = Response::builder().header("etag", "\"1\"").header("content-length", "9");
            for (name, value) in fields {
                response = response.header(*name, *value);
            }
            let mut parts = response.body(()).unwrap().into_parts().0;
            assert_eq!(take(&mut parts, true, 0), is_page, "{fields:?}");
            assert!(!parts.headers.contains_key(&CONTROL));
            for name in ["etag", "content-length"] {
                assert_eq!(parts.headers.contains_key(name), !is_page, "{fields:?}");
            }
        }
        let mut missing = Response::builder().status(404).header("surrogate-control", own);
        missing = missing.header("content-type", "text/html");
        assert!(!take(&mut missing.body(()).unwrap().into_parts().0, true, 0));
    }
}
