//! Asking origins: connections are made, kept and reused by hyper-util's client, one pool a worker and a level of
//! trust; here are the connector with its guards, the hop-by-hop fields, and the names of what can fail.

use std::{
    error::Error as StdError,
    future::Future,
    net::{IpAddr, SocketAddr},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Request, Response, StatusCode, Uri, Version, header};
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::Client,
    rt::{TokioExecutor, TokioIo, TokioTimer},
};
use tokio::net::TcpStream;

use crate::{
    config::LimitsConfig,
    front,
    origin_tls::{OriginStream, OriginTls},
    pace::Pace,
    reason::{Denied, NoAnswer, OriginFailure},
    silent::Silent,
    target::{self, Target, Trust},
    turns::{Turn, Turns},
};

/// A request body: none, or a client's, passed on. Each piece counts, so that a long upload is not taken for an
/// origin that does not answer.
pub(crate) enum Payload {
    None,
    Client {
        body: Incoming,
        pieces: Arc<AtomicU64>,
        /// Bytes that may still come.
        room: u64,
        pace: Option<Pace>,
    },
}

/// The body of an answer; the origin's next request may have its turn when this is dropped.
#[derive(Debug)]
pub(crate) struct Arriving {
    incoming: Incoming,
    _turn: Turn,
}

impl http_body::Body for Arriving {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        Pin::new(&mut self.get_mut().incoming).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// Gets the interim answers to a request, those of 100 and 101 excepted.
pub(crate) type Interim = Arc<dyn Fn(StatusCode, &HeaderMap) + Send + Sync>;

/// Why a request body is not sent to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadBody {
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    #[error("longer than limits.upload_max")]
    TooLong,
    #[error("slower than limits.upload_rate")]
    TooSlow,
}

impl http_body::Body for Payload {
    type Data = Bytes;
    type Error = BadBody;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BadBody>>> {
        match self.get_mut() {
            Self::None => Poll::Ready(None),
            Self::Client { body, pieces, room, pace } => {
                let Poll::Ready(next) = Pin::new(body).poll_frame(cx) else {
                    let Some(pace) = pace else { return Poll::Pending };
                    return pace.poll_slow(cx).map(|()| Some(Err(BadBody::TooSlow)));
                };
                pieces.fetch_add(1, Relaxed);
                Poll::Ready(next.map(|next| {
                    let frame = next?;
                    let len = frame.data_ref().map_or(0, Bytes::len);
                    pace.iter_mut().for_each(|pace| pace.came(len));
                    *room = room.checked_sub(len as u64).ok_or(BadBody::TooLong)?;
                    Ok(frame)
                }))
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Client { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Client { body, .. } => body.size_hint(),
        }
    }
}

/// Which destinations may be connected to.
#[derive(Debug, Clone)]
pub(crate) struct Guard {
    /// Our own listeners.
    pub(crate) own: Arc<[SocketAddr]>,
    pub(crate) trust: Trust,
}

/// A destination that must not be reached.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DialError {
    #[error("the destination is this proxy")]
    Own,
    #[error("the destination is this machine or its link, and the client is not")]
    Near,
    #[error("cannot resolve: {0}")]
    Resolve(std::io::Error),
    #[error("cannot connect: {0}")]
    Connect(std::io::Error),
    #[error("connecting took too long")]
    Timeout,
    #[error("no TLS: {0}")]
    Tls(OriginFailure),
}

impl From<&DialError> for NoAnswer {
    fn from(error: &DialError) -> Self {
        match error {
            DialError::Own => Self::Denied(Denied::SelfDestination),
            DialError::Near => Self::Denied(Denied::LocalDestination),
            DialError::Resolve(_) => Self::Failed(OriginFailure::Resolve),
            DialError::Connect(_) => Self::Failed(OriginFailure::Connect),
            DialError::Timeout => Self::Failed(OriginFailure::ConnectTimeout),
            DialError::Tls(why) => Self::Failed(*why),
        }
    }
}

impl Guard {
    fn check(&self, to: SocketAddr) -> Result<(), DialError> {
        let ip = to.ip().to_canonical();
        let to_us = self.own.iter().any(|own| {
            own.port() == to.port()
                && (own.ip().to_canonical() == ip || ip.is_unspecified() || ip.is_loopback() || is_this_machine(ip))
        });
        let near = || ip.is_loopback() || ip.is_unspecified() || is_link_local(ip) || is_this_machine(ip);
        match self.trust {
            _ if to_us => Err(DialError::Own),
            Trust::RemoteClient if near() => Err(DialError::Near),
            _ => Ok(()),
        }
    }
}

fn is_link_local(ip: IpAddr) -> bool {
    match ip {
        IpAddr::V4(ip) => ip.is_link_local(),
        IpAddr::V6(ip) => ip.is_unicast_link_local(),
    }
}

/// An address of this machine is one that can be bound.
fn is_this_machine(ip: IpAddr) -> bool {
    std::net::UdpSocket::bind((ip, 0)).is_ok()
}

/// Connects to the first address of a name that is allowed and answers.
pub(crate) async fn dial(host: &str, port: u16, guard: &Guard, limit: Duration) -> Result<TcpStream, DialError> {
    let attempt = async {
        let addresses: Vec<_> = match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(ip) => vec![SocketAddr::new(ip, port)],
            Err(_) => tokio::net::lookup_host((host, port)).await.map_err(DialError::Resolve)?.collect(),
        };
        let mut last = DialError::Resolve(std::io::ErrorKind::NotFound.into());
        for (n, address) in addresses.iter().enumerate() {
            if let Err(why) = guard.check(*address) {
                last = why;
                continue;
            }
            // A dead first address must not use up the time of those after it.
            let left = u32::try_from(addresses.len() - n).unwrap_or(1);
            match tokio::time::timeout(limit / left, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => {
                    let _ = stream.set_nodelay(true);
                    return Ok(stream);
                }
                Ok(Err(e)) => last = DialError::Connect(e),
                Err(_) => last = DialError::Timeout,
            }
        }
        Err(last)
    };
    tokio::time::timeout(limit, attempt).await.unwrap_or(Err(DialError::Timeout))
}

/// Connects for the pool.
#[derive(Clone)]
pub(crate) struct Connector {
    guard: Guard,
    limit: Duration,
    tls: Arc<OriginTls>,
}

impl tower_service::Service<Uri> for Connector {
    type Response = TokioIo<OriginStream>;
    type Error = DialError;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, DialError>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DialError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, uri: Uri) -> Self::Future {
        let (guard, limit, tls) = (self.guard.clone(), self.limit, self.tls.clone());
        Box::pin(async move {
            let host = uri.host().unwrap_or_default();
            let Some(authority) = uri.authority().filter(|_| uri.scheme_str() == Some("https")) else {
                let tcp = dial(host, uri.port_u16().unwrap_or(80), &guard, limit).await?;
                return Ok(TokioIo::new(OriginStream::Plain(tcp)));
            };
            let attempt = async {
                let tcp = dial(host, uri.port_u16().unwrap_or(443), &guard, limit).await?;
                tls.connect(authority, tcp).await.map_err(DialError::Tls)
            };
            tokio::time::timeout(limit, attempt).await.unwrap_or(Err(DialError::Timeout)).map(TokioIo::new)
        })
    }
}

type Pool = Client<Connector, Payload>;

/// More than any sane response has; their bytes have a limit of their own.
const RESPONSE_FIELDS_MAX: usize = 512;

/// A worker's connections to origins.
pub(crate) struct Pools {
    configured: Pool,
    local_client: Pool,
    remote_client: Pool,
    silent: Arc<Silent>,
    turns: Arc<Turns>,
    limit: Duration,
}

impl Pools {
    /// With the bounds of `limits`, and what all workers know of origins.
    pub(crate) fn new(
        limits: &LimitsConfig,
        own: &Arc<[SocketAddr]>,
        tls: &Arc<OriginTls>,
        (silent, turns): (&Arc<Silent>, &Arc<Turns>),
    ) -> Self {
        let pool = |trust| {
            let guard = Guard { own: own.clone(), trust };
            Client::builder(TokioExecutor::new())
                .pool_timer(TokioTimer::new())
                .pool_idle_timeout(limits.origin_idle_timeout.0)
                .pool_max_idle_per_host(limits.origin_idle)
                .http1_max_buf_size(64 << 10)
                .http1_max_headers(RESPONSE_FIELDS_MAX)
                // Folded lines become spaces (RFC 9112 5.2): there are still servers that send them.
                .http1_allow_obsolete_multiline_headers_in_responses(true)
                .set_host(false)
                .build(Connector { guard, limit: limits.connect_timeout.0, tls: tls.clone() })
        };
        Self {
            configured: pool(Trust::Configured),
            local_client: pool(Trust::LocalClient),
            remote_client: pool(Trust::RemoteClient),
            silent: silent.clone(),
            turns: turns.clone(),
            limit: limits.response_timeout.0,
        }
    }

    /// Sends a request, unless the origin is one that does not answer; returns at the response head.
    pub(crate) async fn send(
        &self,
        target: &Target,
        request: Request<Payload>,
    ) -> Result<Response<Arriving>, NoAnswer> {
        let origin = &target.upstream.authority;
        if !self.silent.may_ask(origin, Instant::now()) {
            return Err(OriginFailure::Paused.into());
        }
        let turn = self.turns.take(origin).await.ok_or(OriginFailure::Busy)?;
        // One that has a body may wait for its client.
        let waits_for_client = matches!(request.body(), Payload::Client { .. });
        let result = self.try_send(target, request).await;
        match &result {
            Err(NoAnswer::Failed(OriginFailure::ResponseTimeout)) if waits_for_client => {}
            Err(NoAnswer::Failed(why @ (OriginFailure::ConnectTimeout | OriginFailure::ResponseTimeout))) => {
                self.silent.not_heard(origin, *why, Instant::now());
            }
            Err(NoAnswer::Denied(_) | NoAnswer::Failed(OriginFailure::Resolve)) => {}
            _ => self.silent.heard(origin),
        }
        result.map(|response| response.map(|incoming| Arriving { incoming, _turn: turn }))
    }

    async fn try_send(&self, target: &Target, request: Request<Payload>) -> Result<Response<Incoming>, NoAnswer> {
        let pool = match target.upstream.trust {
            Trust::Configured => &self.configured,
            Trust::LocalClient => &self.local_client,
            Trust::RemoteClient => &self.remote_client,
        };
        let pieces = match request.body() {
            Payload::None => None,
            Payload::Client { pieces, .. } => Some(pieces.clone()),
        };
        let sent = || pieces.as_ref().map_or(0, |pieces| pieces.load(Relaxed));
        let mut response = std::pin::pin!(pool.request(request));
        loop {
            let before = sent();
            match tokio::time::timeout(self.limit, response.as_mut()).await {
                Ok(Ok(response)) => return framed(response),
                Ok(Err(e)) => return Err(no_answer(&e)),
                Err(_) if sent() == before => return Err(OriginFailure::ResponseTimeout.into()),
                Err(_) => {}
            }
        }
    }

    /// A GET without a body, tried a second time when a kept connection turned out to be dead.
    pub(crate) async fn get(
        &self,
        target: &Target,
        method: &http::Method,
        headers: &HeaderMap,
        interim: Option<&Interim>,
    ) -> Result<Response<Arriving>, NoAnswer> {
        let request = || {
            let mut request = request(target, method, headers.clone(), Payload::None)?;
            pass_on(&mut request, interim);
            Ok::<_, NoAnswer>(request)
        };
        match self.send(target, request()?).await {
            Err(NoAnswer::Failed(OriginFailure::Closed)) => self.send(target, request()?).await,
            first => first,
        }
    }
}

/// Has the interim answers to a request passed on. 100 is for a client that waits to send a body, 101 for
/// one that wants another protocol, and we ask for neither.
pub(crate) fn pass_on(request: &mut Request<Payload>, interim: Option<&Interim>) {
    let Some(interim) = interim.cloned() else { return };
    hyper::ext::on_informational(request, move |answer| {
        if !matches!(answer.status(), StatusCode::CONTINUE | StatusCode::SWITCHING_PROTOCOLS) {
            let mut fields = answer.headers().clone();
            strip_hop_by_hop(&mut fields);
            fields.remove(header::CONTENT_LENGTH);
            interim(answer.status(), &fields);
        }
    });
}

/// Puts a request to an origin together; `headers` are already what is to be sent.
pub(crate) fn request(
    target: &Target,
    method: &http::Method,
    headers: HeaderMap,
    payload: Payload,
) -> Result<Request<Payload>, OriginFailure> {
    let mut request = Request::new(payload);
    *request.method_mut() = method.clone();
    *request.uri_mut() = target.uri().map_err(|_| OriginFailure::Protocol)?;
    *request.version_mut() = Version::HTTP_11;
    *request.headers_mut() = headers;
    Ok(request)
}

/// One meaning of where the body ends (RFC 9112 6.3), and no protocol that nobody asked for.
fn framed(mut response: Response<Incoming>) -> Result<Response<Incoming>, NoAnswer> {
    let headers = response.headers_mut();
    if headers.contains_key(header::TRANSFER_ENCODING) {
        if !target::is_chunked(headers) {
            return Err(OriginFailure::Protocol.into());
        }
        // The coding has it; the length may be an attempt to have the next hop see another end.
        headers.remove(header::CONTENT_LENGTH);
    }
    // `Upgrade` is never passed on.
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        Err(OriginFailure::Protocol.into())
    } else {
        Ok(response)
    }
}

/// What the origin did wrong.
pub(crate) fn failure(error: &hyper::Error) -> OriginFailure {
    if error.is_parse() { OriginFailure::Protocol } else { OriginFailure::Closed }
}

fn no_answer(error: &hyper_util::client::legacy::Error) -> NoAnswer {
    let mut source = error.source();
    while let Some(cause) = source {
        if let Some(error) = cause.downcast_ref::<DialError>() {
            return error.into();
        }
        if let Some(error) = cause.downcast_ref::<hyper::Error>() {
            // `is_user`: what we were to send could not be read.
            return match error.source().and_then(|why| why.downcast_ref()) {
                Some(BadBody::TooLong) => NoAnswer::Denied(Denied::UploadTooLong),
                Some(BadBody::TooSlow) => NoAnswer::Denied(Denied::UploadTooSlow),
                _ if error.is_user() => NoAnswer::Denied(Denied::BrokenBody),
                _ => failure(error).into(),
            };
        }
        source = cause.source();
    }
    OriginFailure::Closed.into()
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

/// Whether who sent these fields reads trailers (RFC 9110 10.1.4).
pub(crate) fn takes_trailers(headers: &HeaderMap) -> bool {
    let lines = headers.get_all(header::TE).iter().filter_map(|line| line.to_str().ok());
    lines.flat_map(|line| line.split(',')).any(|coding| coding.trim().eq_ignore_ascii_case("trailers"))
}

/// `Via`: earlier proxies, then us.
pub(crate) fn add_via(headers: &mut HeaderMap, via: &HeaderValue) {
    headers.append(header::VIA, via.clone());
}
