//! The request of a plain head, for the slow path.

use std::ops::Range;

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Uri, Version};
use hyper::body::Incoming;

use super::seen::Plain;

/// A request as the slow path takes it: its body, if it has one, comes through hyper.
pub(crate) type SlowRequest = Box<Request<Option<Incoming>>>;

/// Of a head that `bytes` begin with. URL and values share one copy of it. `None` if the target is no URI.
pub(crate) fn of(plain: &Plain<'_, '_>, bytes: &[u8]) -> Option<SlowRequest> {
    let head = Bytes::copy_from_slice(&bytes[..plain.len]);
    let copied = |part: &[u8]| head.slice(place(part, bytes));
    let mut request = Box::new(Request::new(None));
    *request.method_mut() = if plain.head_only { Method::HEAD } else { Method::GET };
    *request.uri_mut() = Uri::from_maybe_shared(copied(plain.target.as_bytes())).ok()?;
    *request.version_mut() = if plain.is_old { Version::HTTP_10 } else { Version::HTTP_11 };
    let mut fields = HeaderMap::with_capacity(plain.fields.len());
    for field in plain.fields {
        let name = HeaderName::from_bytes(field.name.as_bytes()).ok()?;
        fields.append(name, HeaderValue::from_maybe_shared(copied(field.value)).ok()?);
    }
    *request.headers_mut() = fields;
    Some(request)
}

/// Where in `all` a part of it lies.
fn place(part: &[u8], all: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr() - all.as_ptr().addr();
    start..start + part.len()
}
