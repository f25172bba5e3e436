//! Asking origins: which pool of connections a request goes by, one a worker and a level of trust; whether an origin is
//! asked at all, and how long it is waited for.

use std::{
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Response, StatusCode, header, uri::PathAndQuery};
use http_body::{Frame, SizeHint};

use crate::{
    config::LimitsConfig,
    dial::Guard,
    origin_tls::OriginTls,
    outgoing::{Interim, Outgoing},
    pool::{Answering, Pool},
    reason::{NoAnswer, OriginFailure},
    redirect::{Chain, Step},
    replace::Replacing,
    silent::Silent,
    target::{self, Origins, Target, Trust, Upstream},
    turns::{Turn, Turns},
    upgrade,
};

/// The body of an answer; the origin's next request may have its turn when this is dropped.
#[derive(Debug)]
pub(crate) struct Arriving {
    answering: Answering,
    replacing: Option<Box<Replacing>>,
    _turn: Turn,
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = OriginFailure;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, OriginFailure>>> {
        let Self { answering, replacing, .. } = self.get_mut();
        let Some(changed) = replacing else { return Pin::new(answering).poll_frame(cx) };
        loop {
            let bytes = match ready!(Pin::new(&mut *answering).poll_frame(cx)?) {
                // Trailers are of the body that came.
                Some(frame) => frame.into_data().map(|bytes| changed.add(&bytes)).unwrap_or_default(),
                None => {
                    let bytes = changed.end();
                    *replacing = None;
                    return Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))));
                }
            };
            if !bytes.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(bytes))));
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.replacing.is_none() && self.answering.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        if self.replacing.is_some() { SizeHint::default() } else { self.answering.size_hint() }
    }
}

/// A worker's connections to origins.
pub(crate) struct Pools {
    configured: Pool,
    local_client: Pool,
    remote_client: Pool,
    redirect: Pool,
    origins: Origins,
    silent: Arc<Silent>,
    turns: Arc<Turns>,
    limit: Duration,
}

impl Pools {
    /// With the bounds of `limits`, and what all workers know of origins.
    pub(crate) fn new(
        limits: &LimitsConfig,
        own: &Arc<[SocketAddr]>,
        (origins, tls): (Origins, &Arc<OriginTls>),
        (silent, turns): (&Arc<Silent>, &Arc<Turns>),
    ) -> Self {
        let pool = |trust| Pool::new(limits, Guard { own: own.clone(), trust }, tls);
        Self {
            configured: pool(Trust::Configured),
            local_client: pool(Trust::LocalClient),
            remote_client: pool(Trust::RemoteClient),
            redirect: pool(Trust::Redirect),
            origins,
            silent: silent.clone(),
            turns: turns.clone(),
            limit: limits.response_timeout.0,
        }
    }

    /// Closes connections that have not been needed for too long.
    pub(crate) fn tidy(&self) {
        let all = [&self.configured, &self.local_client, &self.remote_client, &self.redirect];
        all.into_iter().for_each(Pool::tidy);
    }

    /// Sends a request, unless the origin is one that does not answer; returns at the response head.
    pub(crate) async fn send(
        &self,
        upstream: &Upstream,
        request: Outgoing<'_>,
        interim: Option<&Interim>,
    ) -> Result<Response<Arriving>, NoAnswer> {
        let origin = &upstream.authority;
        if !self.silent.may_ask(origin, Instant::now()) {
            return Err(OriginFailure::Paused.into());
        }
        let turn = self.turns.take(origin).await.ok_or(OriginFailure::Busy)?;
        // One that has a body may wait for its client.
        let pieces = request.pieces();
        let result = self.try_send(upstream, request, pieces.as_deref(), interim).await;
        match &result {
            Err(NoAnswer::Failed(OriginFailure::ResponseTimeout)) if pieces.is_some() => {}
            Err(NoAnswer::Failed(why @ (OriginFailure::ConnectTimeout | OriginFailure::ResponseTimeout))) => {
                self.silent.not_heard(origin, *why, Instant::now());
            }
            Err(NoAnswer::Denied(_) | NoAnswer::Failed(OriginFailure::Resolve)) => {}
            _ => self.silent.heard(origin),
        }
        result.map(|response| response.map(|answering| Arriving { answering, replacing: None, _turn: turn }))
    }

    async fn try_send(
        &self,
        upstream: &Upstream,
        request: Outgoing<'_>,
        pieces: Option<&AtomicU64>,
        interim: Option<&Interim>,
    ) -> Result<Response<Answering>, NoAnswer> {
        let pool = match upstream.trust {
            Trust::Configured => &self.configured,
            Trust::LocalClient => &self.local_client,
            Trust::RemoteClient => &self.remote_client,
            Trust::Redirect => &self.redirect,
        };
        let asked = request.headers().get(header::UPGRADE).cloned();
        let sent = || pieces.map_or(0, |pieces| pieces.load(Relaxed));
        let mut response = std::pin::pin!(pool.request(upstream, request, interim));
        loop {
            let before = sent();
            match tokio::time::timeout(self.limit, response.as_mut()).await {
                Ok(Ok(response)) => return Ok(framed(response, asked.as_ref())?),
                Ok(Err(why)) => return Err(why),
                Err(_) if sent() == before => return Err(OriginFailure::ResponseTimeout.into()),
                Err(_) => {}
            }
        }
    }

    /// A GET or HEAD without a body, its redirects followed and its body changed as rules say.
    pub(crate) async fn get(
        &self,
        target: &Target,
        method: &http::Method,
        headers: &HeaderMap,
        interim: Option<&Interim>,
    ) -> Result<Response<Arriving>, NoAnswer> {
        if target.action.changes_answers() {
            return Box::pin(self.get_ruled(target, method, headers.clone(), interim)).await;
        }
        self.get_from((&target.upstream, &target.path, headers), method, interim).await
    }

    async fn get_ruled(
        &self,
        target: &Target,
        method: &http::Method,
        mut headers: HeaderMap,
        interim: Option<&Interim>,
    ) -> Result<Response<Arriving>, NoAnswer> {
        let replace = target.action.replace.as_ref();
        if replace.is_some() {
            // Bytes of the changed body are not those of the origin's.
            headers.remove(header::RANGE);
            headers.remove(header::IF_RANGE);
        }
        let mut chain = Chain::new(target, &self.origins, headers);
        let mut response = loop {
            let told = interim.filter(|_| chain.is_first());
            let response = self.get_from(chain.asked(), method, told).await.map_err(|why| chain.failure(why))?;
            match chain.step(response.status(), response.headers()) {
                Step::Answer => break response,
                // Its turn is over before the next one begins.
                Step::Follow => drop(response),
                Step::Loop => return Err(OriginFailure::RedirectLoop.into()),
            }
        };
        chain.finish(response.status(), response.headers_mut());
        let begun = replace.and_then(|replace| replace.begin(response.status(), response.headers_mut()));
        response.body_mut().replacing = begun.filter(|_| method != http::Method::HEAD).map(Box::new);
        Ok(response)
    }

    /// One without redirects, tried a second time when a kept connection turned out to be dead.
    async fn get_from(
        &self,
        (upstream, path, headers): (&Upstream, &PathAndQuery, &HeaderMap),
        method: &http::Method,
        interim: Option<&Interim>,
    ) -> Result<Response<Arriving>, NoAnswer> {
        let request = || Outgoing::Bare(method, path, headers);
        match self.send(upstream, request(), interim).await {
            Err(NoAnswer::Failed(OriginFailure::Closed)) => self.send(upstream, request(), interim).await,
            first => first,
        }
    }
}

/// One meaning of where the body ends (RFC 9112 6.3), and no protocol but one of those that were `asked` for.
pub(crate) fn framed<B>(mut response: Response<B>, asked: Option<&HeaderValue>) -> Result<Response<B>, OriginFailure> {
    let headers = response.headers_mut();
    if headers.contains_key(header::TRANSFER_ENCODING) {
        if !target::is_chunked(headers) {
            return Err(OriginFailure::Protocol);
        }
        // The coding has it; the length may be an attempt to have the next hop see another end.
        headers.remove(header::CONTENT_LENGTH);
    }
    let is_fit = response.status() != StatusCode::SWITCHING_PROTOCOLS
        || asked.is_some_and(|asked| upgrade::is_to_one_of(asked, response.headers()));
    is_fit.then_some(response).ok_or(OriginFailure::Protocol)
}
