//! Asking origins: which pool of connections a request goes by, one a worker and a level of trust; whether an origin is
//! asked at all, how long it is waited for, and the hop-by-hop fields.

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
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Version, header, uri::PathAndQuery};
use http_body::{Frame, SizeHint};

use crate::{
    config::LimitsConfig,
    dial::Guard,
    front,
    origin_tls::OriginTls,
    payload::Payload,
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

/// A request to an origin, whose fields are already what is to be sent.
pub(crate) enum Outgoing<'a> {
    /// Without a body.
    Bare(&'a http::Method, &'a PathAndQuery, &'a HeaderMap),
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
    fn pieces(&self) -> Option<Arc<AtomicU64>> {
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
                Ok(Ok(response)) => return framed(response, asked.as_ref()),
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
pub(crate) fn request(
    path: &PathAndQuery,
    method: &http::Method,
    headers: HeaderMap,
    payload: Payload,
) -> Request<Payload> {
    let mut request = Request::new(payload);
    *request.method_mut() = method.clone();
    *request.uri_mut() = path.clone().into();
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    request
}

/// One meaning of where the body ends (RFC 9112 6.3), and no protocol but one of those that were `asked` for.
fn framed(mut response: Response<Answering>, asked: Option<&HeaderValue>) -> Result<Response<Answering>, NoAnswer> {
    let headers = response.headers_mut();
    if headers.contains_key(header::TRANSFER_ENCODING) {
        if !target::is_chunked(headers) {
            return Err(OriginFailure::Protocol.into());
        }
        // The coding has it; the length may be an attempt to have the next hop see another end.
        headers.remove(header::CONTENT_LENGTH);
    }
    let is_fit = response.status() != StatusCode::SWITCHING_PROTOCOLS
        || asked.is_some_and(|asked| upgrade::is_to_one_of(asked, response.headers()));
    if is_fit { Ok(response) } else { Err(OriginFailure::Protocol.into()) }
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
