//! HTTP/3 to clients, at the ports of `tls.listen` (UDP): QUIC is quinn's, framing and header compression are h3's, and
//! each request goes the way of one by HTTP/2.
//!
//! * Each worker has a socket of its own for each address (`SO_REUSEPORT`), and the kernel gives all datagrams of one
//!   client's port to one of them. A client begins a new connection when its address changes: none is moved.
//! * Requests are not taken in the first flight (0-RTT), where they could be repeated by others.
//! * A request that names what belongs to one connection only is refused (RFC 9114, 4.2); a body that is not as long as
//!   it says breaks off (`upload`).
//! * CONNECT and upgrades are for HTTP/1.1 and HTTP/2. What an origin says ahead of its answer (103) is not passed on.

use std::{future::poll_fn, io, net::UdpSocket, pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use h3::error::Code;
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, header};
use http_body::Body;
use quinn::{
    Connecting, ConnectionError, Endpoint, EndpointConfig, Incoming, ServerConfig, TokioRuntime, TransportConfig,
    VarInt,
};
use tokio::{sync::watch, task::JoinSet, time::Instant};

use crate::{
    conn::{Conn, Phase},
    connections::Left,
    fast::seen::LONGEST_HEAD,
    http2::{CONNECTION_WINDOW, STREAM_WINDOW, as_http1},
    life,
    lifecycle::Stop,
    outgoing,
    proxy::Worker,
    reason::{Denied, TlsFailure},
    streams::{OpenStream, Resets, Sent},
    upload::{FromQuic, Upload},
};

/// A client that is not heard of for so long is gone; one that is waited for is asked whether it is there before.
const GONE: Duration = Duration::from_secs(30);
const ASKED: Duration = Duration::from_secs(10);
/// What was handed over last may still be on its way for so long, when a connection ends with the proxy: a client that
/// has all of it, and the word that this is the end, may end it before.
const LAST_BYTES: Duration = Duration::from_secs(2);
/// Streams of a client's own beside requests: control, and two of header compression; and some that mean nothing.
const ONE_WAY: u32 = 8;

type Connection = h3::server::Connection<h3_quinn::Connection, Bytes>;
type Resolver = h3::server::RequestResolver<h3_quinn::Connection, Bytes>;
type Sending = h3::server::RequestStream<h3_quinn::SendStream<Bytes>, Bytes>;

/// Where clients of HTTP/3 are heard.
pub(crate) struct Listener {
    pub(crate) endpoint: Endpoint,
    /// What all connections begin with, but for the certificates, which change while the proxy runs.
    offered: ServerConfig,
}

impl Listener {
    /// In the runtime of this worker.
    pub(crate) fn new(socket: UdpSocket, worker: &Worker) -> io::Result<Self> {
        let mut transport = TransportConfig::default();
        let streams = worker.proxy.config.limits.streams.try_into().unwrap_or(u32::MAX);
        transport
            .max_idle_timeout(GONE.try_into().ok())
            .keep_alive_interval(Some(ASKED))
            .max_concurrent_bidi_streams(VarInt::from_u32(streams))
            .max_concurrent_uni_streams(VarInt::from_u32(ONE_WAY))
            .stream_receive_window(VarInt::from_u32(STREAM_WINDOW))
            .receive_window(VarInt::from_u32(CONNECTION_WINDOW))
            .send_window(u64::from(CONNECTION_WINDOW))
            .datagram_receive_buffer_size(None);
        let certificates = certificates(worker).ok_or(io::ErrorKind::Unsupported)?;
        let mut offered = ServerConfig::with_crypto(certificates);
        offered.transport_config(Arc::new(transport)).migration(false);
        let runtime = Arc::new(TokioRuntime);
        let endpoint = Endpoint::new(EndpointConfig::default(), Some(offered.clone()), socket, runtime)?;
        Ok(Self { endpoint, offered })
    }

    /// Begins the handshake with a client, with the certificates that there are now.
    pub(crate) fn connect(&self, incoming: Incoming, worker: &Worker) -> Result<Connecting, ConnectionError> {
        let mut offered = self.offered.clone();
        offered.crypto = certificates(worker).unwrap_or(offered.crypto);
        incoming.accept_with(Arc::new(offered))
    }
}

fn certificates(worker: &Worker) -> Option<Arc<dyn quinn::crypto::ServerConfig>> {
    Some(worker.proxy.tls.as_ref()?.by_quic()?)
}

/// Serves one client until its connection or the proxy ends. Its streams end with it.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    connecting: Result<Connecting, ConnectionError>,
    left: Arc<Left>,
    mut stopped: watch::Receiver<Stop>,
) {
    let Some(mut connection) = begin(&worker, connecting).await else { return };
    worker.counters.http3_connections.add(1);
    conn.enter(Phase::Idle, worker.clock.tick());
    let resets = Arc::new(Resets::default());
    let mut answering = JoinSet::new();
    let (mut is_stopping, mut last) = (false, Instant::now());
    let mut stop = Box::pin(async {
        let _ = stopped.wait_for(|stop| *stop == Stop::All).await;
    });
    loop {
        let is_over = is_stopping && answering.is_empty();
        tokio::select! {
            accepted = connection.accept() => {
                let Ok(Some(resolver)) = accepted else { return };
                worker.counters.http3_requests.add(1);
                let open = OpenStream::new(worker.clone(), conn.clone(), left.clone(), resets.clone());
                let handed = open.handed.clone();
                let task = answering.spawn(answer(worker.clone(), conn.clone(), open, resolver));
                conn.remember_stream(handed, task);
            }
            Some(_) = answering.join_next() => last = Instant::now(),
            () = tokio::time::sleep_until(last + LAST_BYTES), if is_over => return,
            () = &mut stop, if !is_stopping => {
                is_stopping = true;
                if connection.shutdown(0).await.is_err() {
                    return;
                }
            }
        }
    }
}

/// The handshakes of QUIC, TLS and HTTP/3, within `limits.handshake_timeout` as those of other clients.
async fn begin(worker: &Worker, connecting: Result<Connecting, ConnectionError>) -> Option<Connection> {
    let connected = match connecting {
        Ok(connecting) => connecting.await,
        Err(why) => Err(why),
    };
    match connected {
        Ok(connection) => {
            worker.counters.tls_handshakes.add(1);
            let mut builder = h3::server::builder();
            builder.max_field_section_size(LONGEST_HEAD as u64);
            builder.build(h3_quinn::Connection::new(connection)).await.ok()
        }
        Err(why) => {
            worker.counters.tls_failures.one(failure(&why));
            None
        }
    }
}

/// Why a connection did not come to be. TLS says it by an alert, and QUIC's code has its number (RFC 9001, 4.8).
fn failure(why: &ConnectionError) -> TlsFailure {
    match why {
        ConnectionError::TimedOut => TlsFailure::Timeout,
        ConnectionError::TransportError(error) => match u64::from(error.code).checked_sub(0x100) {
            Some(40 | 70) => TlsFailure::NothingInCommon,
            Some(42..=49 | 116) => TlsFailure::ClientCertificate,
            Some(120) => TlsFailure::NoProtocol,
            _ => TlsFailure::Protocol,
        },
        ConnectionError::ConnectionClosed(close) if u64::from(close.error_code) >= 0x100 => TlsFailure::Refused,
        _ => TlsFailure::Closed,
    }
}

/// Answers a request.
async fn answer(worker: Arc<Worker>, conn: Arc<Conn>, open: OpenStream, resolver: Resolver) {
    let patience = worker.proxy.config.limits.header_timeout.0;
    let Ok(Some((mut reply, request, refused))) = tokio::time::timeout(patience, receive(resolver)).await else {
        return;
    };
    let is_head = request.method() == Method::HEAD;
    let counted = open.counted.clone();
    // Nothing can be said ahead.
    let interim = Arc::new(|_, _: &HeaderMap| {});
    let response = life::serve(worker, conn, counted, interim, Box::new(request), refused).await;
    let (mut parts, body) = response.into_parts();
    outgoing::strip_hop_by_hop(&mut parts.headers);
    if is_head || body.is_end_stream() {
        open.is_answered();
    }
    let mut sent = Sent { body, open };
    if reply.stream.send_response(Response::from_parts(parts, ())).await.is_ok()
        && (is_head || reply.send(&mut sent).await)
    {
        reply.is_whole = reply.stream.finish().await.is_ok();
    }
}

/// Takes a request, and what it is to be refused for; `None` where there is none.
async fn receive(resolver: Resolver) -> Option<(Reply, Request<Option<Upload>>, Option<Denied>)> {
    let (mut request, stream) = resolver.resolve_request().await.ok()?;
    let (stream, receiving) = stream.split();
    let mut reply = Reply { stream, is_whole: false };
    let body = FromQuic::new(receiving, request.headers());
    let refused = body.as_ref().err().copied().or_else(|| as_request(&mut request).err());
    if refused.is_none() && awaits_go_ahead(request.headers()) {
        let go_ahead = Response::builder().status(StatusCode::CONTINUE).body(()).ok()?;
        reply.stream.send_response(go_ahead).await.ok()?;
    }
    let mut body = body.ok();
    if let Some(body) = &mut body
        && (body.is_said_empty() || matches!(*request.method(), Method::GET | Method::HEAD))
    {
        body.begin().await.ok()?;
    }
    Some((reply, request.map(|()| body.map(|body| Upload::Quic(Box::new(body)))), refused))
}

/// The sending half of a stream. Where it is let go before its answer is whole its client is told by a reset: quinn
/// would end it as if it were.
struct Reply {
    stream: Sending,
    is_whole: bool,
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_whole {
            self.stream.stop_stream(Code::H3_INTERNAL_ERROR);
        }
    }
}

impl Reply {
    /// Sends a body; says whether it was sent to its end.
    async fn send(&mut self, body: &mut Sent) -> bool {
        while let Some(frame) = poll_fn(|context| Pin::new(&mut *body).poll_frame(context)).await {
            let Ok(frame) = frame else { return false };
            let sent = match frame.into_data() {
                Ok(bytes) => self.stream.send_data(bytes).await,
                Err(frame) => match frame.into_trailers() {
                    Ok(trailers) => self.stream.send_trailers(trailers).await,
                    Err(_) => Ok(()),
                },
            };
            if sent.is_err() {
                return false;
            }
        }
        true
    }
}

fn awaits_go_ahead(headers: &HeaderMap) -> bool {
    headers.get(header::EXPECT).is_some_and(|what| what.as_bytes().eq_ignore_ascii_case(b"100-continue"))
}

/// What the request would be by HTTP/1.1.
fn as_request<B>(request: &mut Request<B>) -> Result<(), Denied> {
    let of_one_hop = ["connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade"];
    let names = |value: &HeaderValue| value.as_bytes().eq_ignore_ascii_case(b"trailers");
    if of_one_hop.iter().any(|name| request.headers().contains_key(*name))
        || !request.headers().get_all(header::TE).iter().all(names)
    {
        return Err(Denied::Malformed);
    }
    if request.method() == Method::CONNECT {
        return Err(Denied::Method);
    }
    as_http1(request)
}
