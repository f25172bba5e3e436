//! The rest of a stored body that breaks off in the middle: a chunk of it rotted, left, or cannot be read, and the
//! client has had the head and what came before.
//!
//! 1. The origin is asked for what is missing, with `If-Range` and the strong validator that came with the body.
//! 2. A 206 with that very part of that very version is sent on; so is what a 200 of it has from there on.
//! 3. Else the body ends in an error, which closes the connection, so that no client takes it for whole.
//!
//! Either way one line on standard error says so, and so do the access log and the metrics.

use std::{
    ops::Range,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, StatusCode, header};

use crate::{
    origin::Arriving,
    passed::Passed,
    proxy::Worker,
    range,
    reason::Broken,
    rules::{self, validate},
    slices,
    target::Target,
};

/// The origin to ask for the rest of one stored body, and how to know it.
pub(crate) struct Rest {
    worker: Arc<Worker>,
    target: Arc<Target>,
    /// The client's fields, without its conditions and ranges, with what we add.
    request: HeaderMap,
    /// The client wants nothing of the origin.
    only_if_cached: bool,
    /// Of the body as it was stored.
    validator: Option<(HeaderName, HeaderValue)>,
    encoding: Option<HeaderValue>,
    len: u64,
    /// Of a slice: where it begins in the whole, and the length of that.
    within: (u64, u64),
}

impl Rest {
    /// Of a body of `len` bytes that came with `fields`.
    pub(crate) fn new(
        worker: Arc<Worker>,
        target: Arc<Target>,
        request: HeaderMap,
        only_if_cached: bool,
        (fields, len): (&HeaderMap, u64),
    ) -> Self {
        let validator = validate::strong(fields);
        let encoding = fields.get(header::CONTENT_ENCODING).cloned();
        Self { worker, target, request, only_if_cached, validator, encoding, len, within: (0, len) }
    }

    /// Of a body that is itself the part of another which begins there, of `total` bytes.
    pub(crate) fn within(mut self, begin: u64, total: u64) -> Self {
        self.within = (begin, total);
        self
    }

    /// Whether the origin may be asked, and can say whether it has this version.
    pub(crate) fn can_be_asked_for(&self) -> bool {
        !self.only_if_cached && self.validator.is_some()
    }

    /// Length of the body.
    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    /// The bytes of `range` from the origin, for the store's broke off: `why`.
    pub(crate) async fn fetch(self: Arc<Self>, range: Range<u64>, why: String) -> Result<Tail, Broken> {
        let response = self.ask(&range).await;
        let then = match &response {
            Ok(_) => "the origin sends the rest",
            Err(Broken::NoValidator) => "it has no strong validator; the connection is closed",
            Err(Broken::OnlyIfCached) => "the client wants nothing of the origin; the connection is closed",
            Err(Broken::OriginChanged) => "the origin has another version, or not the rest; the connection is closed",
            Err(_) => "the origin does not answer; the connection is closed",
        };
        self.tell(range.start, &why, then);
        let (arriving, skip) = response?;
        let passed = Passed::new(arriving, &self.worker.proxy.config.limits);
        let left = range.end.saturating_sub(range.start);
        Ok(Tail { rest: self, passed, skip, at: range.start, left })
    }

    /// A body that has the range, and how much of it comes before that.
    async fn ask(&self, range: &Range<u64>) -> Result<(Arriving, u64), Broken> {
        if self.only_if_cached {
            return Err(Broken::OnlyIfCached);
        }
        let Some((_, validator)) = &self.validator else { return Err(Broken::NoValidator) };
        let mut headers = self.request.clone();
        let range = &(self.within.0 + range.start..self.within.0 + range.end);
        headers.insert(header::RANGE, slices::field(range));
        headers.insert(header::IF_RANGE, validator.clone());
        match self.worker.pools.get(&self.target, &Method::GET, &headers, None).await {
            Ok(response) if rules::is_server_error(response.status()) => Err(Broken::OriginFailed),
            Ok(response) => {
                let skip = self.before(&response, range).ok_or(Broken::OriginChanged)?;
                Ok((response.into_body(), skip))
            }
            Err(why) => {
                self.worker.counters.no_answer(why);
                Err(Broken::OriginFailed)
            }
        }
    }

    /// How many bytes of a response come before the range; `None` if they are of another version, or others. What it
    /// does not say of itself is not taken on trust: there are servers that know ranges and not `If-Range`.
    fn before(&self, response: &Response<Arriving>, range: &Range<u64>) -> Option<u64> {
        let fields = response.headers();
        let (name, value) = self.validator.as_ref()?;
        if fields.get(name) != Some(value) || fields.get(header::CONTENT_ENCODING) != self.encoding.as_ref() {
            return None;
        }
        let len = http_body::Body::size_hint(response.body()).exact();
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {
                let part = validate::text(range::content_range(range, self.within.1));
                (fields.get(header::CONTENT_RANGE) == Some(&part)).then_some(0)
            }
            StatusCode::OK if len.is_none_or(|len| len == self.within.1) => Some(range.start),
            _ => None,
        }
    }

    fn tell(&self, at: u64, why: &str, then: &str) {
        let url = String::from_utf8_lossy(&self.target.key);
        eprintln!(
            "picaflor: {url:?}: what is sent from the store broke off at byte {} of {}: {why}; {then}",
            self.within.0 + at,
            self.within.1
        );
    }
}

/// What the origin sends in place of the store.
pub(crate) struct Tail {
    rest: Arc<Rest>,
    passed: Passed,
    /// Bytes to pass by.
    skip: u64,
    at: u64,
    left: u64,
}

impl Tail {
    /// The next bytes of the range; `None` when all have come.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        while self.left > 0 {
            let Some(Ok(frame)) = ready!(self.passed.poll(cx, &self.rest.worker.counters)) else {
                self.rest.tell(self.at, "the origin broke off, too", "the connection is closed");
                return Poll::Ready(Some(Err(Broken::OriginFailed)));
            };
            let Ok(mut bytes) = frame.into_data() else { continue };
            let before = usize::try_from(self.skip).map_or(bytes.len(), |skip| skip.min(bytes.len()));
            bytes.advance(before);
            self.skip -= before as u64;
            bytes.truncate(usize::try_from(self.left).unwrap_or(usize::MAX));
            if !bytes.is_empty() {
                self.at += bytes.len() as u64;
                self.left -= bytes.len() as u64;
                return Poll::Ready(Some(Ok(bytes)));
            }
        }
        Poll::Ready(None)
    }
}
