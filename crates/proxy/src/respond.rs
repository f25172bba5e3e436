//! Turning a response we have, stored or arriving, into the answer to one request: the client's own conditions,
//! ranges, HEAD, `Age` and `Cache-Status`.
//!
//! 1. Preconditions that do not hold become 412, conditions that do become 304.
//! 2. A range, if `If-Range` agrees and the length is known, becomes 206 or 416.
//! 3. Otherwise the whole body, or none for HEAD.

use std::{collections::VecDeque, sync::Arc};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header, response::Parts};
use picaflor::Object;

use crate::{
    body::Kind,
    lookup::Hit,
    pieces::Pieces,
    range::{self, Piece, Plan},
    reader::Reader,
    reason::{Denied, NoAnswer, OriginFailure, Outcome},
    rules::validate,
    sliced::{Sliced, Slices},
    tunnel::Tunnel,
    verdict::FillHead,
};

/// RFC 9211.
pub(crate) static CACHE_STATUS: HeaderName = HeaderName::from_static("cache-status");

/// An answer, and what the log and the counters call it.
pub(crate) struct Answer {
    pub(crate) parts: Parts,
    pub(crate) kind: Kind,
    pub(crate) outcome: Outcome,
    pub(crate) detail: &'static str,
    /// What the connection becomes after it.
    pub(crate) tunnel: Option<Tunnel>,
    /// Whose request it answers, where that was asked.
    pub(crate) user: Option<Arc<str>>,
}

impl Answer {
    pub(crate) fn new(parts: Parts, kind: Kind, outcome: Outcome) -> Self {
        Self { parts, kind, outcome, detail: "", tunnel: None, user: None }
    }

    pub(crate) fn because(mut self, detail: &'static str) -> Self {
        self.detail = detail;
        self
    }
}

/// A response we have.
pub(crate) struct Source {
    pub(crate) status: StatusCode,
    pub(crate) fields: HeaderMap,
    /// Length of the body, where it is known.
    pub(crate) len: Option<u64>,
    pub(crate) received: u64,
    pub(crate) body: SourceBody,
}

/// Its body.
pub(crate) enum SourceBody {
    Stored(Object),
    Sliced(Slices),
    Fill(Box<Reader>),
}

impl Source {
    /// A stored response with its age; the body of one in slices is these.
    pub(crate) fn stored(hit: &Hit, slices: Option<Slices>, now: u64) -> Self {
        let mut fields = hit.fields();
        fields.insert(header::AGE, HeaderValue::from(hit.head.policy.age(now) / 1000));
        Self {
            status: hit.head.status,
            fields,
            len: Some(hit.len()),
            received: hit.head.received,
            body: slices.map_or_else(|| SourceBody::Stored(hit.object.clone()), SourceBody::Sliced),
        }
    }

    /// A response that is arriving; `shared` says that another request began it.
    pub(crate) fn arriving(head: &FillHead, body: SourceBody, shared: bool, now: u64) -> Self {
        let mut fields = head.fields.clone();
        let age = head.policy.age(now) / 1000;
        if shared || fields.contains_key(header::AGE) {
            fields.insert(header::AGE, HeaderValue::from(age));
        }
        Self { status: head.status, fields, len: head.len, received: head.received, body }
    }
}

/// Says otherwise what we say in `Cache-Status`: the last of its lines.
pub(crate) fn restate(fields: &mut HeaderMap, status: &str) {
    let mut lines: Vec<_> = fields.get_all(&CACHE_STATUS).iter().cloned().collect();
    lines.pop();
    fields.remove(&CACHE_STATUS);
    for line in lines.into_iter().chain([validate::text(status)]) {
        fields.append(&CACHE_STATUS, line);
    }
}

/// What a client that has the body already gets instead of it.
pub(crate) fn unchanged(answer: &mut Answer, request: &HeaderMap, received: u64) {
    let Parts { status, headers, .. } = &mut answer.parts;
    if validate::not_modified(request, *status, headers, received) {
        *status = StatusCode::NOT_MODIFIED;
        without_body(headers);
        answer.kind = Kind::Empty;
    }
}

/// Takes out what describes a body that is not sent.
fn without_body(fields: &mut HeaderMap) {
    let gone: Vec<HeaderName> =
        fields.keys().filter(|name| !validate::kept_in_304(name.as_str().as_bytes())).cloned().collect();
    for name in gone {
        fields.remove(name);
    }
}

/// The answer to a GET or HEAD out of a response we have.
pub(crate) fn respond(source: Source, method: &Method, request: &HeaderMap, status: &str) -> (Parts, Kind) {
    let Source { status: code, mut fields, len, received, body } = source;
    fields.append(&CACHE_STATUS, validate::text(status));
    let mut parts = Response::new(()).into_parts().0;
    parts.status = code;
    if validate::precondition_failed(request, code, &fields) {
        parts.status = StatusCode::PRECONDITION_FAILED;
        without_body(&mut fields);
        fields.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
        parts.headers = fields;
        return (parts, Kind::Empty);
    }
    if validate::not_modified(request, code, &fields, received) {
        parts.status = StatusCode::NOT_MODIFIED;
        without_body(&mut fields);
        parts.headers = fields;
        return (parts, Kind::Empty);
    }
    let plan = match (request.get(header::RANGE), len) {
        (Some(range), Some(len))
            if method == Method::GET && code == StatusCode::OK && validate::if_range(request, &fields) =>
        {
            range::plan(range.as_bytes(), len)
        }
        _ => Plan::Whole,
    };
    let kind = match (plan, body) {
        (Plan::Nothing, _) => {
            parts.status = StatusCode::RANGE_NOT_SATISFIABLE;
            fields.insert(header::CONTENT_RANGE, validate::text(format!("bytes */{}", len.unwrap_or(0))));
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
            Kind::Empty
        }
        (Plan::One(range), body) => {
            parts.status = StatusCode::PARTIAL_CONTENT;
            let whole = len.unwrap_or(range.end);
            fields.insert(header::CONTENT_RANGE, validate::text(range::content_range(&range, whole)));
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(range.end - range.start));
            part(body, range)
        }
        (Plan::Several(ranges), body @ (SourceBody::Stored(_) | SourceBody::Sliced(_))) => {
            parts.status = StatusCode::PARTIAL_CONTENT;
            let (number, len) = match &body {
                SourceBody::Stored(object) => (object.generation(), object.len()),
                SourceBody::Sliced(slices) => (slices.nonce(), slices.total()),
                SourceBody::Fill(_) => (0, 0),
            };
            let boundary = format!("picaflor-{:016x}", number ^ received.rotate_left(32));
            let kind = fields.remove(header::CONTENT_TYPE);
            let pieces = range::multipart(len, &ranges, &boundary, kind.as_ref());
            let multipart = format!("multipart/byteranges; boundary={boundary}");
            fields.insert(header::CONTENT_TYPE, validate::text(multipart));
            fields.insert(header::CONTENT_LENGTH, HeaderValue::from(range::len(&pieces)));
            match body {
                SourceBody::Stored(object) => Kind::Pieces(Pieces::new(object, pieces)),
                SourceBody::Sliced(slices) => Kind::Sliced(Box::new(Sliced::new(slices, pieces))),
                SourceBody::Fill(_) => Kind::Empty,
            }
        }
        // Parts in any order need a body that is all there; a server may answer a range with the whole.
        (Plan::Whole | Plan::Several(_), body) => {
            let bodiless = matches!(code.as_u16(), 204 | 304);
            match len {
                Some(len) if !bodiless => drop(fields.insert(header::CONTENT_LENGTH, HeaderValue::from(len))),
                _ => drop(fields.remove(header::CONTENT_LENGTH)),
            }
            if method == Method::HEAD || bodiless { Kind::Empty } else { part(body, 0..len.unwrap_or(u64::MAX)) }
        }
    };
    parts.headers = fields;
    (parts, kind)
}

fn part(body: SourceBody, range: std::ops::Range<u64>) -> Kind {
    match body {
        SourceBody::Fill(mut reader) => {
            reader.narrow(range);
            Kind::Fill(reader)
        }
        SourceBody::Sliced(slices) => Kind::Sliced(Box::new(Sliced::new(slices, VecDeque::from([Piece::Part(range)])))),
        SourceBody::Stored(object) => match object.body_in_memory() {
            Some(bytes) => {
                let start = usize::try_from(range.start).unwrap_or(usize::MAX).min(bytes.len());
                let end = usize::try_from(range.end).unwrap_or(usize::MAX).min(bytes.len());
                Kind::Full(bytes.slice(start..end))
            }
            None => Kind::Pieces(Pieces::stored(object, range)),
        },
    }
}

/// A refusal, with its name and the mend.
pub(crate) fn denied(why: Denied) -> Answer {
    let (status, mend) = match why {
        Denied::BadHost | Denied::AmbiguousLength | Denied::Malformed => {
            (StatusCode::BAD_REQUEST, "the request is malformed")
        }
        Denied::HeadTooLarge => {
            (StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE, "the limits are 100 fields and 64 KiB of them")
        }
        Denied::TransferCoding => (StatusCode::NOT_IMPLEMENTED, "the only transfer coding known here is chunked"),
        Denied::Expectation => (StatusCode::EXPECTATION_FAILED, "the only expectation known here is 100-continue"),
        Denied::ConnectBody => (StatusCode::BAD_REQUEST, "CONNECT has no body"),
        Denied::BrokenBody => (StatusCode::BAD_REQUEST, "the request's body is not HTTP, or it broke off"),
        Denied::UploadTooSlow => (StatusCode::REQUEST_TIMEOUT, "the request's body comes too slowly"),
        Denied::UploadTooLong => (StatusCode::PAYLOAD_TOO_LARGE, "the operator can raise limits.upload_max"),
        Denied::BadTarget => (StatusCode::BAD_REQUEST, "ask for a path, or for a whole http:// URL"),
        Denied::UrlTooLong => (StatusCode::URI_TOO_LONG, "the limit is 8,000 bytes"),
        Denied::ForwardClient => (StatusCode::FORBIDDEN, "the operator can add your network to forward.clients"),
        Denied::Credentials => (
            StatusCode::PROXY_AUTHENTICATION_REQUIRED,
            "send name and password, or a token, in Proxy-Authorization; the operator has the users in forward.users",
        ),
        Denied::ForwardAccess => {
            (StatusCode::FORBIDDEN, "you may not go there; the operator has who may go where in forward.access")
        }
        Denied::ForwardOff => (StatusCode::FORBIDDEN, "forward.enabled is false, as it is beside an origin"),
        Denied::ConnectPort => (StatusCode::FORBIDDEN, "the operator can add the port to forward.connect_ports"),
        Denied::SelfDestination => (StatusCode::FORBIDDEN, "the destination is this proxy"),
        Denied::LocalDestination => (StatusCode::FORBIDDEN, "the destination is the proxy's own machine or link"),
        Denied::Loop => (StatusCode::LOOP_DETECTED, "the request came through this proxy before"),
        Denied::NoOrigin => (
            StatusCode::MISDIRECTED_REQUEST,
            "no origin is configured for this host; the operator can name it in origin.host, with its port if that is not \
             80",
        ),
        Denied::PlainHttp2 => {
            (StatusCode::HTTP_VERSION_NOT_SUPPORTED, "HTTP/2 is spoken on tls.listen alone; here it is HTTP/1.1")
        }
        Denied::Method => (
            StatusCode::METHOD_NOT_ALLOWED,
            "TRACE is not served, and PURGE is for the admin listener and for purge.clients",
        ),
        Denied::OnlyIfCached => (StatusCode::GATEWAY_TIMEOUT, "nothing usable is stored"),
        Denied::UpgradeProtocol => {
            (StatusCode::NOT_IMPLEMENTED, "no rule lets this be switched to the protocol; see rule.upgrade")
        }
        Denied::ClientConnections => {
            (StatusCode::TOO_MANY_REQUESTS, "you have as many connections as a client may have")
        }
        Denied::ProxyHeader => (StatusCode::BAD_REQUEST, "the connection does not begin with a PROXY header"),
        Denied::RapidReset => (StatusCode::TOO_MANY_REQUESTS, "too much of what was asked for is taken back at once"),
        Denied::Scheme => (StatusCode::BAD_REQUEST, "https goes through CONNECT"),
    };
    message(status, why.name(), mend, Outcome::Denied)
}

const CHALLENGES: [HeaderValue; 2] = [
    HeaderValue::from_static("Basic realm=\"picaflor\", charset=\"UTF-8\""),
    HeaderValue::from_static("Bearer realm=\"picaflor\""),
];

const METHODS: HeaderValue = HeaderValue::from_static("GET, HEAD, POST, PUT, PATCH, DELETE, OPTIONS, CONNECT");

/// OPTIONS that is for us: of the whole server, or `Max-Forwards: 0`.
pub(crate) fn options() -> Answer {
    let mut parts = Response::new(()).into_parts().0;
    parts.headers.insert(header::ALLOW, METHODS);
    parts.headers.insert(header::CONTENT_LENGTH, HeaderValue::from(0));
    parts.headers.insert(&CACHE_STATUS, HeaderValue::from_static("picaflor; detail=options"));
    Answer::new(parts, Kind::Empty, Outcome::Bypass).because("options")
}

/// There is no response, and nothing stored may be served.
pub(crate) fn failed(why: NoAnswer) -> Answer {
    let why = match why {
        NoAnswer::Failed(why) => why,
        NoAnswer::Denied(why) => return denied(why),
    };
    let (status, mend) = match why {
        OriginFailure::ConnectTimeout
        | OriginFailure::ResponseTimeout
        | OriginFailure::BodyTimeout
        | OriginFailure::BodySlow => (StatusCode::GATEWAY_TIMEOUT, "the origin did not answer in time"),
        OriginFailure::Paused => (
            StatusCode::GATEWAY_TIMEOUT,
            "the origin did not answer a moment ago; it is tried again in limits.origin_pause",
        ),
        OriginFailure::Busy => (StatusCode::SERVICE_UNAVAILABLE, "the origin has as many requests as it may have"),
        OriginFailure::Resolve => (StatusCode::BAD_GATEWAY, "the origin's name does not resolve"),
        OriginFailure::Connect => (StatusCode::BAD_GATEWAY, "the origin does not accept connections"),
        OriginFailure::TlsUntrusted => {
            (StatusCode::BAD_GATEWAY, "no authority that is trusted issued the origin's certificate; see origin.ca")
        }
        OriginFailure::TlsExpired => (StatusCode::BAD_GATEWAY, "the origin's certificate has expired"),
        OriginFailure::TlsName => {
            (StatusCode::BAD_GATEWAY, "the origin's certificate is not for its name; see origin.name")
        }
        OriginFailure::TlsCertificate => (StatusCode::BAD_GATEWAY, "the origin's certificate is not one of a server"),
        OriginFailure::TlsRefused => {
            (StatusCode::BAD_GATEWAY, "the origin wants another certificate of the proxy; see origin.certificate")
        }
        OriginFailure::TlsHandshake => (StatusCode::BAD_GATEWAY, "there is no TLS that the origin and the proxy share"),
        OriginFailure::RedirectLoop => {
            (StatusCode::BAD_GATEWAY, "the origin's redirects do not end; see rule.follow_redirects")
        }
        OriginFailure::Esi => {
            (StatusCode::BAD_GATEWAY, "the page's ESI is not well formed, or a fragment of it is not to be had")
        }
        OriginFailure::RedirectRefused => (
            StatusCode::BAD_GATEWAY,
            "the origin redirects to this machine or a private network; see rule.follow_hosts",
        ),
        OriginFailure::Protocol => (StatusCode::BAD_GATEWAY, "the origin's answer is not HTTP that is understood here"),
        OriginFailure::Closed => (StatusCode::BAD_GATEWAY, "the origin closed the connection without an answer"),
    };
    message(status, why.name(), mend, Outcome::Failed)
}

fn message(status: StatusCode, name: &'static str, mend: &str, outcome: Outcome) -> Answer {
    let text = Bytes::from(format!("picaflor: {name}: {mend}\n"));
    let mut parts = Response::new(()).into_parts().0;
    parts.status = status;
    let headers = &mut parts.headers;
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(header::CONTENT_LENGTH, HeaderValue::from(text.len()));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(&CACHE_STATUS, validate::text(format!("picaflor; detail={name}")));
    if status == StatusCode::PROXY_AUTHENTICATION_REQUIRED {
        for challenge in CHALLENGES {
            headers.append(header::PROXY_AUTHENTICATE, challenge);
        }
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        headers.insert(header::ALLOW, METHODS);
    }
    Answer::new(parts, Kind::Full(text), outcome).because(name)
}
