//! One request on its way: what is asked of it, what the origin is told, and answers from what is stored.

use std::sync::Arc;

use http::{HeaderMap, HeaderValue, Method, StatusCode, Version, header, request::Parts};

use crate::{
    body::Kind,
    clock::{date, unix_millis},
    config::ClientDirectives,
    conn::Conn,
    esi::page,
    front,
    head::Head,
    keep::Hints,
    key::{self, Side},
    lookup::Hit,
    outgoing::{self, Interim},
    proxy::Worker,
    reason::{Denied, NoAnswer, Outcome},
    respond::{Answer, Source, denied, failed, respond},
    rest::Rest,
    rules::{Asked, Failure, validate},
    slice::SliceJob,
    sliced::Slices,
    slices::{Manifest, Slicing},
    target::Target,
};

/// A request on its way, without its body.
#[derive(Clone)]
pub(crate) struct Ask {
    pub(crate) worker: Arc<Worker>,
    pub(crate) now: u64,
    pub(crate) method: Method,
    pub(crate) target: Arc<Target>,
    /// Those that the origin gets, and that may select a stored response: what was meant for us alone is not among
    /// them, and what the origin is told of the client is.
    pub(crate) headers: Arc<HeaderMap>,
    /// Whether the client reads trailers.
    pub(crate) takes_trailers: bool,
    pub(crate) asked: Asked,
    /// Where the client is told of interim answers.
    pub(crate) interim: Interim,
}

impl Ask {
    pub(super) fn new(worker: &Arc<Worker>, conn: &Conn, target: Target, interim: Interim, request: Parts) -> Self {
        let mut headers = request.headers;
        let mut asked = Asked::of(&headers);
        let takes_trailers = outgoing::takes_trailers(&headers);
        outgoing::strip_hop_by_hop(&mut headers);
        headers.remove(header::EXPECT);
        if !conn.is_front {
            page::forget(&mut headers);
        }
        target.action.on_request(&mut headers);
        if target.side.is_for_origin() {
            let scheme = if target.side == Side::Encrypted { "https" } else { "http" };
            front::tell(&mut headers, conn, &target.host_field, scheme);
            // Whether it holds is seen by what the origin has now, or by what is fresh.
            asked.directives.no_cache |= validate::has_precondition(&headers);
            let directives = target.action.client_directives.unwrap_or(worker.proxy.config.cache.client_directives);
            if directives == ClientDirectives::Ignore {
                asked.ignore();
            }
        }
        Self {
            worker: worker.clone(),
            now: unix_millis(),
            method: request.method,
            target: Arc::new(target),
            headers: Arc::new(headers),
            takes_trailers,
            asked,
            interim,
        }
    }

    pub(super) fn only_if_cached(&self) -> Answer {
        self.worker.counters.denials.one(Denied::OnlyIfCached);
        denied(Denied::OnlyIfCached)
    }

    /// A fresh response from the store.
    pub(crate) fn fresh(&self, hit: &Hit) -> Answer {
        let ttl = hit.head.policy.remaining(self.now) / 1000;
        let outcome = if hit.from_device { Outcome::HitDevice } else { Outcome::HitMemory };
        let source = self.source(hit, self.now);
        self.stored(hit, source, &format!("picaflor; hit; ttl={ttl}"), outcome)
    }

    /// A stale response, with the reason why it is served.
    pub(crate) fn stale(&self, hit: &Hit, why: &'static str) -> Answer {
        let ttl = hit.head.policy.remaining(self.now).div_euclid(1000);
        let status = format!("picaflor; hit; ttl={ttl}; detail={why}");
        self.stored(hit, self.source(hit, self.now), &status, Outcome::HitStale).because(why)
    }

    /// An answer out of the store; where its body breaks off, the origin is asked for the rest.
    pub(super) fn stored(&self, hit: &Hit, source: Source, status: &str, outcome: Outcome) -> Answer {
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

    /// Whether the body of a stored response is to be had: not where the rule is gone by which it is in slices, or the
    /// validator that they are known by.
    pub(super) fn has_body(&self, hit: &Hit) -> bool {
        let can_be_told = |slicing| Manifest::of(&hit.key, slicing, &hit.fields()).is_some();
        hit.head.slicing.is_none_or(|slicing| self.target.action.slice.is_some() && can_be_told(slicing))
    }

    /// A stored response, as one to answer with.
    pub(super) fn source(&self, hit: &Hit, now: u64) -> Source {
        let slices = hit.head.slicing.and_then(|slicing| self.slices(&hit.key, slicing, &hit.fields()));
        Source::stored(hit, slices, now)
    }

    /// The slices of the response at `key`, which has these fields.
    pub(super) fn slices(&self, key: &[u8], slicing: Slicing, fields: &HeaderMap) -> Option<Slices> {
        // What it brings is for everybody, and its head came without credentials.
        let mut request = self.outgoing_for_all();
        request.remove(header::AUTHORIZATION);
        let job = SliceJob {
            worker: self.worker.clone(),
            target: self.target.clone(),
            request,
            manifest: Arc::new(Manifest::of(key, slicing, fields)?),
            hints: self.hints(),
        };
        Some(Slices { job, only_if_cached: self.asked.directives.only_if_cached, is_first: false })
    }

    /// The origin to ask for the rest of a body of `len` bytes that came with these fields.
    pub(super) fn rest(&self, fields: &HeaderMap, len: u64) -> Rest {
        let only_if_cached = self.asked.directives.only_if_cached;
        let request = self.outgoing_for_all();
        Rest::new(self.worker.clone(), self.target.clone(), request, only_if_cached, (fields, len))
    }

    /// The fields to ask the origin with.
    pub(crate) fn outgoing(&self) -> HeaderMap {
        let mut headers = HeaderMap::clone(&self.headers);
        if self.takes_trailers {
            headers.insert(header::TE, HeaderValue::from_static("trailers"));
            headers.insert(header::CONNECTION, HeaderValue::from_static("te"));
        }
        headers.insert(header::HOST, self.target.sent_host().clone());
        outgoing::add_via(&mut headers, &self.worker.proxy.via);
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
        validate::remove_conditions(&mut headers);
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
        outgoing::strip_hop_by_hop(&mut parts.headers);
        self.target.action.on_response(&mut parts.headers);
        outgoing::add_via(&mut parts.headers, &self.worker.proxy.via);
        parts.version = Version::HTTP_11;
        parts.headers.entry(header::DATE).or_insert_with(|| date(unix_millis()));
    }

    /// Whether a stale response may be served although the origin failed.
    pub(crate) fn survives(&self, hit: &Hit, failure: Failure) -> bool {
        hit.head.policy.survives(&self.asked, failure, &self.worker.proxy.config.cache, self.now)
    }

    /// Something stale where it may be served; where it must not be, that the origin could not be asked is what counts
    /// (RFC 9111 5.2.2.2).
    pub(crate) fn without_origin(&self, stale: Option<&Hit>, why: NoAnswer) -> Answer {
        let (Some(hit), NoAnswer::Failed(failure)) = (stale, why) else { return failed(why) };
        if self.survives(hit, Failure::Disconnected) {
            return self.stale(hit, failure.name());
        }
        let mut answer = failed(why);
        if hit.head.policy.must_revalidate {
            answer.parts.status = StatusCode::GATEWAY_TIMEOUT;
        }
        answer
    }
}
