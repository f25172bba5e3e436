//! The life of a request that the fast path did not answer.
//!
//! 1. What is it for ([`Target`]), and may this client ask for it?
//! 2. GET and HEAD without a body: look in the store. Fresh: answer. Stale: revalidate, or serve while revalidating.
//! 3. Nothing there: fetch, together with everyone else who wants the same ([`collapse`]).
//! 4. Everything else passes to the origin; after an unsafe method that succeeded, what was stored is invalid.
//!
//! Every way ends in an [`Answer`], whose `Cache-Status` says what happened and why.

mod collapse;
mod connect;
mod pass;

use std::{sync::Arc, time::Instant};

use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header, request::Parts};
use hyper::{body::Incoming, ext::ReasonPhrase};

use crate::{
    body::{Body, Guard, Kind, Record},
    clock::unix_millis,
    config::ClientDirectives,
    conn::{Conn, Phase},
    connections::Left,
    front,
    head::{Head, NO_REASON},
    keep::Hints,
    key::{self, Side},
    lookup::{self, Found, Hit},
    origin::{self, Interim},
    proxy::Worker,
    reason::{Bypass, Denied, Outcome},
    respond::{Answer, Source, denied, options, respond},
    rest::Rest,
    rules::{Asked, Reuse, validate},
    target::{self, Target},
};

/// A request on its way, without its body.
pub(crate) struct Ask {
    pub(crate) worker: Arc<Worker>,
    pub(crate) now: u64,
    pub(crate) method: Method,
    pub(crate) target: Arc<Target>,
    /// Those that the origin gets, and that may select a stored response: what was meant for us alone is not among
    /// them, and what the origin is told of the client is.
    pub(crate) headers: HeaderMap,
    /// Whether the client reads trailers.
    pub(crate) takes_trailers: bool,
    pub(crate) asked: Asked,
    /// Where the client is told of interim answers.
    pub(crate) interim: Interim,
}

/// Answers one request.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    left: Arc<Left>,
    interim: Interim,
    request: Request<Incoming>,
) -> Response<Body> {
    let start = Instant::now();
    let record = worker.proxy.log.on().then(|| record(&request, start));
    let answer = answer(&worker, &conn, interim, request).await;
    worker.counters.head_after(start.elapsed());
    worker.counters.outcomes.one(answer.outcome);
    let mut record = record.map(|mut record| {
        let kind = answer.parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        record.content_type = kind.unwrap_or_default().to_owned();
        record.status = answer.parts.status.as_u16();
        record.outcome = answer.outcome;
        record.detail = answer.detail;
        record
    });
    let mut parts = answer.parts;
    if parts.status.canonical_reason().is_none() && parts.extensions.get::<ReasonPhrase>().is_none() {
        parts.extensions.insert(ReasonPhrase::from_static(NO_REASON.as_bytes()));
    }
    if (conn.is_last() || worker.proxy.is_stopping()) && answer.outcome != Outcome::Tunnel {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(tunnel) = answer.tunnel {
        conn.enter(Phase::Busy, worker.clock.tick());
        let silence = worker.proxy.config.limits.tunnel_timeout.0;
        tunnel.begin(Guard::new(worker.clone(), conn.clone(), record.take()), left, silence);
    }
    let guard = Guard::new(worker, conn, record);
    Response::from_parts(parts, Body::new(answer.kind, guard))
}

fn record(request: &Request<Incoming>, start: Instant) -> Box<Record> {
    let field = |name| {
        let value: Option<&HeaderValue> = request.headers().get(name);
        String::from_utf8_lossy(value.map_or(b"", HeaderValue::as_bytes)).into_owned()
    };
    let target = request.uri().to_string();
    let url = if target.starts_with('/') { format!("http://{}{target}", field(header::HOST)) } else { target.clone() };
    Box::new(Record {
        began: unix_millis(),
        start,
        method: request.method().to_string(),
        version: request.version(),
        target,
        url,
        referer: field(header::REFERER),
        agent: field(header::USER_AGENT),
        content_type: String::new(),
        status: 0,
        outcome: Outcome::Failed,
        detail: "",
    })
}

async fn answer(worker: &Arc<Worker>, conn: &Arc<Conn>, interim: Interim, request: Request<Incoming>) -> Answer {
    if request.method() == Method::OPTIONS && request.uri() == "*" {
        return options();
    }
    match check(worker, conn, &request) {
        Err(why) => {
            worker.counters.denials.one(why);
            denied(why)
        }
        Ok(None) => connect::connect(worker, conn, request).await,
        Ok(Some(target)) => {
            let (parts, body) = request.into_parts();
            let bypass = bypass(&parts, &target, &body);
            let ask = Ask::new(worker, conn, target, interim, parts);
            if ask.method == Method::OPTIONS && ask.headers.get(header::MAX_FORWARDS).is_some_and(|n| n == "0") {
                return options();
            }
            match bypass {
                Some(_) if ask.asked.directives.only_if_cached && matches!(ask.method, Method::GET | Method::HEAD) => {
                    ask.only_if_cached()
                }
                Some(why) => ask.pass(body, why).await,
                None => ask.cached().await,
            }
        }
    }
}

/// `None` is a tunnel.
fn check(worker: &Worker, conn: &Conn, request: &Request<Incoming>) -> Result<Option<Target>, Denied> {
    let proxy = &worker.proxy;
    target::method(request.method())?;
    if came_through(request.headers(), &proxy.pseudonym) {
        return Err(Denied::Loop);
    }
    if request.method() == Method::CONNECT {
        return target::bodiless(request.headers()).map(|()| None);
    }
    Target::of(request, &proxy.config, &proxy.origins, conn).map(Some)
}

/// Whether our pseudonym stands in `Via`.
fn came_through(headers: &HeaderMap, pseudonym: &str) -> bool {
    headers.get_all(header::VIA).iter().any(|line| {
        line.to_str().is_ok_and(|line| line.split(',').any(|hop| hop.split_whitespace().nth(1) == Some(pseudonym)))
    })
}

/// Why the store is not asked.
fn bypass(request: &Parts, target: &Target, body: &Incoming) -> Option<Bypass> {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Some(Bypass::Method);
    }
    if !http_body::Body::is_end_stream(body) {
        return Some(Bypass::RequestBody);
    }
    if target.is_disputed {
        return Some(Bypass::Disputed);
    }
    let has = |name| request.headers.contains_key(name);
    if !target.side.is_for_origin() && validate::has_precondition(&request.headers) {
        return Some(Bypass::Precondition);
    }
    has(header::UPGRADE).then_some(Bypass::Upgrade)
}

impl Ask {
    fn new(worker: &Arc<Worker>, conn: &Conn, target: Target, interim: Interim, request: Parts) -> Self {
        let mut headers = request.headers;
        let mut asked = Asked::of(&headers);
        let takes_trailers = origin::takes_trailers(&headers);
        origin::strip_hop_by_hop(&mut headers);
        headers.remove(header::EXPECT);
        if target.side.is_for_origin() {
            let scheme = if target.side == Side::Encrypted { "https" } else { "http" };
            front::tell(&mut headers, conn, &target.host_field, scheme);
            // Whether it holds is seen by what the origin has now, or by what is fresh.
            asked.directives.no_cache |= validate::has_precondition(&headers);
            if worker.proxy.config.cache.client_directives == ClientDirectives::Ignore {
                asked.ignore();
            }
        }
        Self {
            worker: worker.clone(),
            now: unix_millis(),
            method: request.method,
            target: Arc::new(target),
            headers,
            takes_trailers,
            asked,
            interim,
        }
    }

    /// GET and HEAD: the store first.
    async fn cached(self) -> Answer {
        let found = lookup::find(self.worker.proxy.stored(), &self.target.key, &self.headers).await;
        match found {
            Found::Hit(hit) => match hit.head.policy.reuse(&self.asked, self.now) {
                Reuse::Fresh => self.fresh(&hit),
                Reuse::StaleAccepted => self.stale(&hit, "max-stale"),
                Reuse::StaleWhileRevalidate => {
                    self.revalidate_behind(&hit);
                    self.stale(&hit, "stale-while-revalidate")
                }
                Reuse::ValidateStale => self.forward(hit.key.clone(), Some(hit), "stale").await,
                Reuse::ValidateRequest => self.forward(hit.key.clone(), Some(hit), "request").await,
            },
            Found::Nothing { variant: true, key } => self.forward(key, None, "vary-miss").await,
            Found::Nothing { variant: false, key } => self.forward(key, None, "uri-miss").await,
        }
    }

    fn only_if_cached(&self) -> Answer {
        self.worker.counters.denials.one(Denied::OnlyIfCached);
        denied(Denied::OnlyIfCached)
    }

    async fn forward(self, key: Vec<u8>, stale: Option<Hit>, fwd: &'static str) -> Answer {
        if self.asked.directives.only_if_cached {
            return self.only_if_cached();
        }
        if self.asked.directives.no_store {
            return self.pass_empty(Bypass::RequestNoStore).await;
        }
        if self.method == Method::HEAD {
            return self.pass_head(stale, fwd).await;
        }
        self.fetch(key, stale, fwd).await
    }

    /// A fresh response from the store.
    pub(crate) fn fresh(&self, hit: &Hit) -> Answer {
        let ttl = hit.head.policy.remaining(self.now) / 1000;
        let outcome = if hit.from_device { Outcome::HitDevice } else { Outcome::HitMemory };
        let source = Source::stored(hit, self.now);
        self.stored(hit, source, &format!("picaflor; hit; ttl={ttl}"), outcome)
    }

    /// A stale response, with the reason why it is served.
    pub(crate) fn stale(&self, hit: &Hit, why: &'static str) -> Answer {
        let ttl = hit.head.policy.remaining(self.now).div_euclid(1000);
        let status = format!("picaflor; hit; ttl={ttl}; detail={why}");
        self.stored(hit, Source::stored(hit, self.now), &status, Outcome::HitStale).because(why)
    }

    /// An answer out of the store; where its body breaks off, the origin is asked for the rest.
    fn stored(&self, hit: &Hit, source: Source, status: &str, outcome: Outcome) -> Answer {
        let (parts, kind) = respond(source, &self.method, &self.headers, status);
        let kind = match kind {
            Kind::Pieces(pieces) => {
                // The fields that came with this body: a 304 may have brought a strong validator for a weak one.
                let fields = Head::fields(hit.object.metadata());
                Kind::Pieces(pieces.or_from(Some(Arc::new(self.rest(&fields, hit.object.len())))))
            }
            kind => kind,
        };
        Answer::new(parts, kind, outcome)
    }

    /// Whom to ask for the rest of a body of `len` bytes that came with these fields.
    fn rest(&self, fields: &HeaderMap, len: u64) -> Rest {
        let only_if_cached = self.asked.directives.only_if_cached;
        let request = self.outgoing_for_all();
        Rest::new(self.worker.clone(), self.target.clone(), request, only_if_cached, (fields, len))
    }

    /// The fields to ask the origin with.
    pub(crate) fn outgoing(&self) -> HeaderMap {
        let mut headers = self.headers.clone();
        if self.takes_trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        }
        headers.insert(header::HOST, self.target.host_field.clone());
        origin::add_via(&mut headers, &self.worker.proxy.via);
        // RFC 9110 7.6.2; for other methods it means nothing.
        let forwards = headers.get(header::MAX_FORWARDS).and_then(|n| n.to_str().ok()?.parse::<u32>().ok());
        if let (Some(n), &Method::OPTIONS) = (forwards, &self.method) {
            headers.insert(header::MAX_FORWARDS, HeaderValue::from(n.saturating_sub(1)));
        }
        headers
    }

    /// The same without conditions, ranges and trailers: what everybody can use.
    pub(crate) fn outgoing_for_all(&self) -> HeaderMap {
        let mut headers = self.outgoing();
        headers.remove(header::TE);
        headers.remove(header::CONNECTION);
        for name in validate::CONDITIONS {
            headers.remove(name);
        }
        headers
    }

    /// Where the response is to lie.
    pub(crate) fn hints(&self) -> Hints {
        let referer = self.headers.get(header::REFERER).map(HeaderValue::as_bytes);
        Hints {
            server: key::server(self.target.host()),
            neighbour: referer.and_then(|page| key::neighbour(self.target.side, self.target.host(), page)),
        }
    }

    /// The origin's response head as the client gets it.
    pub(crate) fn clean(&self, parts: &mut http::response::Parts) {
        origin::strip_hop_by_hop(&mut parts.headers);
        origin::add_via(&mut parts.headers, &self.worker.proxy.via);
        parts.version = Version::HTTP_11;
        parts.headers.entry(header::DATE).or_insert_with(|| crate::clock::date(unix_millis()));
    }
}
