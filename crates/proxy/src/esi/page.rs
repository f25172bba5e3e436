//! Which responses are pages that are put together here, and what can be said of one that is (the Edge Architecture
//! note of 2001, which comes with ESI: `Surrogate-Capability`, `Surrogate-Control`).
//!
//! * An origin is told that ESI is known here. What it says in `Surrogate-Control` is for us, and goes no further: with
//!   `content="ESI/1.0"` the response is a page, with anything else it is none. Where it says nothing, the operator's
//!   rule has said it, of text.
//! * The length and the validators of the template are not those of the page, which has none: it changes with each
//!   fragment. So nothing confirms it, and there are no ranges of it.

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header, response::Parts};

use crate::{
    replace::{OF_BODY, is_coded},
    rules::directives,
};

static CAPABILITY: HeaderName = HeaderName::from_static("surrogate-capability");
static CONTROL: HeaderName = HeaderName::from_static("surrogate-control");

/// Of a request for what may be a page.
pub(crate) fn announce(headers: &mut HeaderMap) {
    headers.insert(&CAPABILITY, HeaderValue::from_static("picaflor=\"ESI/1.0\""));
}

/// Takes from a response what is meant for us; whether it is a page.
pub(crate) fn take(parts: &mut Parts) -> bool {
    let said = controls(&parts.headers);
    parts.headers.remove(&CONTROL);
    let whole = parts.status == StatusCode::OK && is_plain(&parts.headers);
    let is_page = whole && said.unwrap_or_else(|| is_text(&parts.headers));
    if is_page {
        for name in OF_BODY {
            parts.headers.remove(name);
        }
        parts.headers.remove(header::ETAG);
        parts.headers.remove(header::LAST_MODIFIED);
    }
    is_page
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
            assert_eq!(take(&mut parts), is_page, "{fields:?}");
            assert!(!parts.headers.contains_key(&CONTROL));
            for name in ["etag", "content-length"] {
                assert_eq!(parts.headers.contains_key(name), !is_page, "{fields:?}");
            }
        }
        let mut missing = Response::builder().status(404).header("surrogate-control", own);
        missing = missing.header("content-type", "text/html");
        assert!(!take(&mut missing.body(()).unwrap().into_parts().0));
    }
}
