//! What is sent to an origin, what of its interim answers is told, and the fields of one hop.

use std::sync::{Arc, atomic::AtomicU64};

use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Version, header, uri::PathAndQuery};

use crate::{front, payload::Payload, upgrade};

/// A request to an origin, whose fields are already what is to be sent.
pub(crate) enum Outgoing<'a> {
    /// Without a body.
    Bare(&'a Method, &'a PathAndQuery, &'a HeaderMap),
    Whole(Box<Request<Payload>>),
}

impl Outgoing<'_> {
    pub(crate) fn headers(&self) -> &HeaderMap {
        match self {
            Self::Bare(_, _, headers) => headers,
            Self::Whole(request) => request.headers(),
        }
    }

    /// How many pieces of its body were sent.
    pub(crate) fn pieces(&self) -> Option<Arc<AtomicU64>> {
        match self {
            Self::Whole(request) => match request.body() {
                Payload::None => None,
                Payload::Client { pieces, .. } => Some(pieces.clone()),
            },
            Self::Bare(..) => None,
        }
    }

    /// As hyper takes it.
    pub(crate) fn whole(self) -> Request<Payload> {
        match self {
            Self::Bare(method, path, headers) => request(path, method, headers.clone(), Payload::None),
            Self::Whole(request) => *request,
        }
    }
}

/// Gets the interim answers to a request, those of 100 and 101 excepted.
pub(crate) type Interim = Arc<dyn Fn(StatusCode, &HeaderMap) + Send + Sync>;

/// Has the interim answers to a request of hyper's passed on.
pub(crate) fn pass_on(request: &mut Request<Payload>, interim: Option<&Interim>) {
    let Some(interim) = interim.cloned() else { return };
    hyper::ext::on_informational(request, move |answer| tell(Some(&interim), answer.status(), answer.headers()));
}

/// Passes an interim answer on. 100 is for a client that waits to send a body, 101 for one that wants another protocol,
/// and we ask for neither.
pub(crate) fn tell(interim: Option<&Interim>, status: StatusCode, headers: &HeaderMap) {
    let Some(interim) = interim else { return };
    if !matches!(status, StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
        let mut fields = headers.clone();
        strip_hop_by_hop(&mut fields);
        fields.remove(header::CONTENT_LENGTH);
        interim(status, &fields);
    }
}

/// Puts a request to an origin together; `headers` are already what is to be sent.
pub(crate) fn request(path: &PathAndQuery, method: &Method, headers: HeaderMap, payload: Payload) -> Request<Payload> {
    let mut request = Request::new(payload);
    *request.method_mut() = method.clone();
    *request.uri_mut() = path.clone().into();
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    request
}

static PROXY_CONNECTION: HeaderName = HeaderName::from_static("proxy-connection");
static KEEP_ALIVE: HeaderName = HeaderName::from_static("keep-alive");

/// Removes what is meant for the next hop only (RFC 9110 7.6.1), `Connection`'s own list first.
pub(crate) fn strip_hop_by_hop(headers: &mut HeaderMap) {
    if headers.contains_key(header::CONNECTION) {
        let named: Vec<HeaderName> = headers
            .get_all(header::CONNECTION)
            .iter()
            .flat_map(|value| value.as_bytes().split(|b| *b == b','))
            .filter_map(|name| HeaderName::from_bytes(name.trim_ascii()).ok())
            // What frames or addresses a message, forbids storing it, or tells of clients cannot be taken away so.
            .filter(|name| {
                !matches!(*name, header::HOST | header::CONTENT_LENGTH | header::CACHE_CONTROL | header::AUTHORIZATION)
                    && !front::is_ours(name)
            })
            .collect();
        for name in named {
            headers.remove(name);
        }
    }
    let fixed = [
        header::CONNECTION,
        header::TE,
        header::TRAILER,
        header::TRANSFER_ENCODING,
        header::UPGRADE,
        header::PROXY_AUTHENTICATE,
        header::PROXY_AUTHORIZATION,
    ];
    for name in fixed {
        headers.remove(name);
    }
    headers.remove(&PROXY_CONNECTION);
    headers.remove(&KEEP_ALIVE);
}

/// Whether the sender of these fields reads trailers (RFC 9110 10.1.4).
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    upgrade::listed(headers, &header::TE).any(|coding| coding.eq_ignore_ascii_case("trailers"))
}

/// `Via`: earlier proxies, then us.
pub(crate) fn add_via(headers: &mut HeaderMap, via: &HeaderValue) {
    headers.append(header::VIA, via.clone());
}
