//! The request of a plain head, for the slow path.

use http::{Method, Request, Uri, Version};

use super::seen::Plain;
use crate::{upload::Upload, wire::Parsed};

/// A request as the slow path takes it: its body, if it has one, comes through hyper.
pub(crate) type SlowRequest = Box<Request<Option<Upload>>>;

/// Of a head that `bytes` begin with. `None` if the target is no URI.
pub(crate) fn of(plain: &Plain<'_, '_>, bytes: &[u8]) -> Option<SlowRequest> {
    let parsed = Parsed::new(&bytes[..plain.len]);
    let mut request = Box::new(Request::new(None));
    *request.method_mut() = if plain.head_only { Method::HEAD } else { Method::GET };
    *request.uri_mut() = Uri::from_maybe_shared(parsed.part(plain.target.as_bytes())).ok()?;
    *request.version_mut() = if plain.is_old { Version::HTTP_10 } else { Version::HTTP_11 };
    *request.headers_mut() = parsed.fields(plain.fields)?;
    Some(request)
}
