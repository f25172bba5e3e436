//! Heads of HTTP/1: a request's as it is sent, an answer's as it came.

use std::mem::MaybeUninit;

use bytes::{Buf, BytesMut};
use http::{HeaderMap, Method, Response, StatusCode, Version, header, uri::PathAndQuery};
use httparse::{Header, ParserConfig, Status};
use hyper::ext::ReasonPhrase;

use crate::{
    outgoing::Outgoing,
    reason::OriginFailure,
    upgrade,
    wire::{Parsed, push_line},
};

/// Bytes of an answer's head.
pub(crate) const LONGEST_HEAD: usize = 64 << 10;

/// More than any sane answer has; their bytes have a limit of their own.
pub(crate) const MOST_FIELDS: usize = 512;

/// The head of an answer.
pub(super) struct Head {
    pub(super) response: Response<()>,
    /// The origin keeps the connection, if the body has an end.
    pub(super) is_kept: bool,
}

/// The head of a request, as it goes over the wire, and whether it is HEAD.
pub(super) fn encode(request: &Outgoing<'_>) -> (Vec<u8>, bool) {
    let (method, path, headers) = match request {
        Outgoing::Bare(method, path, headers) => (*method, Some(*path), *headers),
        Outgoing::Whole(request) => (request.method(), request.uri().path_and_query(), request.headers()),
    };
    let mut wire = Vec::with_capacity(64 + headers.len() * 48);
    let path = path.map_or("/", PathAndQuery::as_str);
    for part in [method.as_str(), " ", path, " HTTP/1.1\r\n"] {
        wire.extend_from_slice(part.as_bytes());
    }
    for (name, value) in headers {
        push_line(&mut wire, name.as_str(), value.as_bytes());
    }
    wire.extend_from_slice(b"\r\n");
    (wire, method == Method::HEAD)
}

/// Takes a head from the buffer, if it is complete.
pub(super) fn parse(buffer: &mut BytesMut) -> Result<Option<Head>, OriginFailure> {
    if buffer.is_empty() {
        return Ok(None);
    }
    let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
    let mut parsed = httparse::Response::new(&mut []);
    let mut config = ParserConfig::default();
    // Folded lines become spaces (RFC 9112 5.2): there are still servers that send them.
    config.allow_obsolete_multiline_headers_in_responses(true);
    let len = match config.parse_response_with_uninit_headers(&mut parsed, buffer, &mut fields) {
        Ok(Status::Complete(len)) => len,
        Ok(Status::Partial) => return Ok(None),
        Err(_) => return Err(OriginFailure::Protocol),
    };
    let mut response = Response::new(());
    let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok()).ok_or(OriginFailure::Protocol)?;
    *response.status_mut() = status;
    let is_old = parsed.version == Some(0);
    *response.version_mut() = if is_old { Version::HTTP_10 } else { Version::HTTP_11 };
    if let Some(reason) = parsed.reason.filter(|reason| Some(*reason) != status.canonical_reason())
        && let Ok(reason) = ReasonPhrase::try_from(reason.as_bytes())
    {
        response.extensions_mut().insert(reason);
    }
    *response.headers_mut() = Parsed::new(&buffer[..len]).fields(parsed.headers).ok_or(OriginFailure::Protocol)?;
    buffer.advance(len);
    let is_kept = is_kept(response.headers(), is_old);
    Ok(Some(Head { response, is_kept }))
}

/// Whether the sender keeps the connection. A `close` in any line counts, whatever else stands there.
fn is_kept(headers: &HeaderMap, is_old: bool) -> bool {
    let says = |what: &str| upgrade::listed(headers, &header::CONNECTION).any(|word| word.eq_ignore_ascii_case(what));
    !says("close") && (!is_old || says("keep-alive"))
}
