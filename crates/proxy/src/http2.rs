//! HTTP/2 to clients that come by TLS and ask for it (ALPN): framing, flow control and header compression are hyper's,
//! each request goes the way of all that the fast path does not answer.
//!
//! * A request is made what it would be by HTTP/1.1 before anything looks at it: `:authority` is `Host`, cookies are
//!   one field, the target is a path, or, for `http` by a client of the forward side, a whole URL ([`as_http1`]).
//! * A client that opens streams and resets them at once has the origins asked for nothing (`streams`).
//! * A stream whose client gives no room for what is to be sent ends as a connection does that takes nothing.
//! * An extended CONNECT (RFC 8441) is what an upgrade is by HTTP/1.1, and is offered where one may be let through.
//! * What an origin says ahead of its answer (103) is not passed on: hyper has no way for it.

use std::{
    future::Future,
    io::{self, IoSlice},
    pin::Pin,
    sync::{Arc, atomic::AtomicU32},
    task::{Context, Poll},
};

use http::{HeaderMap, HeaderValue, Method, Request, Response, Uri, header};
use hyper::{body::Incoming, ext::Protocol, rt::Executor, server::conn::http2, service::Service};
use hyper_util::rt::{TokioIo, TokioTimer};
use parking_lot::Mutex;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    sync::watch,
};

use crate::{
    conn::{Conn, Phase},
    connections::Left,
    fast::seen::LONGEST_HEAD,
    life,
    lifecycle::Stop,
    proxy::Worker,
    reason::Denied,
    stream::Stream,
    streams::{OpenStream, Resets, Sent},
    upload::Upload,
};

/// What a client may send ahead of what is read of it: of one stream, and of all.
pub(crate) const STREAM_WINDOW: u32 = 256 << 10;
pub(crate) const CONNECTION_WINDOW: u32 = 1 << 20;
/// What is kept of an answer that a client has no room for.
const SEND_BUFFER: usize = 128 << 10;

/// Serves HTTP/2 until the connection or the proxy ends.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    stream: Stream,
    left: Arc<Left>,
    mut stopped: watch::Receiver<Stop>,
) {
    worker.counters.http2_connections.add(1);
    let io = Watched { stream, conn: conn.clone(), worker: worker.clone() };
    let streams = Streams { next: Arc::default(), conn: conn.clone() };
    let most = u32::try_from(worker.proxy.config.limits.streams).unwrap_or(u32::MAX);
    let may_upgrade = worker.proxy.origins.all().next().is_some() && worker.proxy.rules.may_upgrade();
    let service = Http2 { worker, conn, left, streams: streams.clone(), resets: Arc::default() };
    let mut builder = http2::Builder::new(streams);
    if may_upgrade {
        builder.enable_connect_protocol();
    }
    let connection = builder
        .timer(TokioTimer::new())
        .max_concurrent_streams(most)
        .max_header_list_size(LONGEST_HEAD as u32)
        .initial_stream_window_size(STREAM_WINDOW)
        .initial_connection_window_size(CONNECTION_WINDOW)
        .max_send_buf_size(SEND_BUFFER)
        .serve_connection(TokioIo::new(io), service);
    let mut connection = Box::pin(connection);
    tokio::select! {
        _ = &mut connection => return,
        _ = stopped.wait_for(|stop| *stop == Stop::All) => connection.as_mut().graceful_shutdown(),
    }
    let _ = connection.await;
}

/// Answers each request.
struct Http2 {
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    left: Arc<Left>,
    streams: Streams,
    resets: Arc<Resets>,
}

impl Service<Request<Incoming>> for Http2 {
    type Response = Response<Sent>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, mut request: Request<Incoming>) -> Self::Future {
        let (worker, conn) = (self.worker.clone(), self.conn.clone());
        worker.counters.http2_requests.add(1);
        let open = OpenStream::new(worker.clone(), conn.clone(), self.left.clone(), self.resets.clone());
        let counted = open.counted.clone();
        *self.streams.next.lock() = Some(open.handed.clone());
        let refused = as_http1(&mut request).err();
        let by_http3 = worker.proxy.by_http3.clone();
        Box::pin(async move {
            let head_only = request.method() == Method::HEAD;
            // Nothing can be said ahead.
            let interim = Arc::new(|_, _: &HeaderMap| {});
            let request = Box::new(request.map(|body| Some(Upload::Hyper(body))));
            let answer = life::serve(worker, conn, counted, interim, request, refused).await;
            if head_only || http_body::Body::is_end_stream(answer.body()) {
                open.is_answered();
            }
            let mut answer = answer.map(|body| Sent { body, open });
            if let Some(by_http3) = by_http3 {
                answer.headers_mut().insert(header::ALT_SVC, by_http3);
            }
            Ok(answer)
        })
    }
}

/// What the request would be by HTTP/1.1 (RFC 9113 8.2.3, 8.3.1). What belongs to one connection only, hyper refuses.
pub(crate) fn as_http1<B>(request: &mut Request<B>) -> Result<(), Denied> {
    let uri = request.uri().clone();
    if let Some(authority) = uri.authority() {
        let named = HeaderValue::from_str(authority.as_str()).map_err(|_| Denied::BadHost)?;
        let same = |host: &HeaderValue| host.as_bytes().eq_ignore_ascii_case(named.as_bytes());
        if !request.headers().get_all(header::HOST).iter().all(same) {
            return Err(Denied::BadHost);
        }
        request.headers_mut().insert(header::HOST, named);
    }
    join_cookies(request.headers_mut())?;
    if let Some(protocol) = request.extensions().get::<Protocol>() {
        let protocol = HeaderValue::from_bytes(protocol.as_ref()).map_err(|_| Denied::Malformed)?;
        *request.method_mut() = Method::GET;
        request.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        request.headers_mut().insert(header::UPGRADE, protocol);
    } else if request.method() == Method::CONNECT {
        return Ok(());
    }
    let path = uri.path_and_query().cloned().ok_or(Denied::BadTarget)?;
    let is_path = path.as_str().starts_with('/') || (path == "*" && request.method() == Method::OPTIONS);
    match uri.scheme_str() {
        _ if !is_path => Err(Denied::BadTarget),
        // One that was translated may name its host in `Host` alone; what comes by TLS is then taken for `https`.
        None if request.headers().contains_key(header::HOST) => Ok(()),
        None => Err(Denied::BadHost),
        Some("https") => {
            *request.uri_mut() = Uri::from(path);
            Ok(())
        }
        // For clients of the forward side that is what a whole URL is by HTTP/1.
        Some("http") => Ok(()),
        _ => Err(Denied::Scheme),
    }
}

/// Several fields by HTTP/2 are one by HTTP/1.
fn join_cookies(headers: &mut HeaderMap) -> Result<(), Denied> {
    if headers.get_all(header::COOKIE).iter().nth(1).is_some() {
        let all: Vec<_> = headers.get_all(header::COOKIE).iter().map(HeaderValue::as_bytes).collect();
        let joined = HeaderValue::from_bytes(&all.join(&b"; "[..])).map_err(|_| Denied::Malformed)?;
        headers.insert(header::COOKIE, joined);
    }
    Ok(())
}

/// Runs the streams of a connection, and remembers them, so that those can be ended whose clients take nothing.
#[derive(Clone)]
struct Streams {
    /// Of the request that was just taken: hyper hands over its stream next.
    next: Arc<Mutex<Option<Arc<AtomicU32>>>>,
    conn: Arc<Conn>,
}

impl<F> Executor<F> for Streams
where
    F: Future<Output = ()> + Send + 'static,
{
    fn execute(&self, stream: F) {
        let task = tokio::spawn(stream);
        if let Some(handed) = self.next.lock().take() {
            self.conn.remember_stream(handed, task.abort_handle());
        }
    }
}

/// The connection as hyper has it; notes when the client takes nothing.
struct Watched {
    stream: Stream,
    conn: Arc<Conn>,
    worker: Arc<Worker>,
}

impl Watched {
    fn note<T>(&self, before: u64, polled: &Poll<io::Result<T>>) {
        let tick = self.worker.clock.tick();
        let taken = self.stream.taken() - before;
        self.conn.take(usize::try_from(taken).unwrap_or(0));
        if polled.is_pending() {
            if taken > 0 {
                self.conn.enter(Phase::Sending, tick);
            }
            self.conn.enter_once(Phase::Sending, tick);
        } else if self.conn.phase().0 == Phase::Sending {
            self.conn.enter_streams(tick);
        }
    }
}

impl AsyncRead for Watched {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, room: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_read(cx, room)
    }
}

impl AsyncWrite for Watched {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let before = this.stream.taken();
        let written = Pin::new(&mut this.stream).poll_write(cx, bytes);
        this.note(before, &written);
        written
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let before = this.stream.taken();
        let written = Pin::new(&mut this.stream).poll_write_vectored(cx, slices);
        this.note(before, &written);
        written
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let before = this.stream.taken();
        let flushed = Pin::new(&mut this.stream).poll_flush(cx);
        this.note(before, &flushed);
        flushed
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What becomes of a request for `uri` with these fields.
    fn become_of(uri: &str, fields: &[(&'static str, &'static str)]) -> Result<(String, HeaderMap), Denied> {
        let mut request = Request::builder().uri(uri).body(()).unwrap();
        for (name, value) in fields {
            request.headers_mut().append(*name, HeaderValue::from_static(value));
        }
        as_http1(&mut request).map(|()| (request.uri().to_string(), request.headers().clone()))
    }

    #[test]
    fn an_extended_connect_is_an_upgrade() {
        let mut request = Request::builder().method("CONNECT").uri("https://a.example/chat?x").body(()).unwrap();
        request.extensions_mut().insert(Protocol::from_static("websocket"));
        as_http1(&mut request).unwrap();
        assert_eq!((request.method(), request.uri().to_string().as_str()), (&Method::GET, "/chat?x"));
        let fields = [header::HOST, header::CONNECTION, header::UPGRADE].map(|name| request.headers()[name].clone());
        assert_eq!(fields, ["a.example", "upgrade", "websocket"]);
    }

    #[test]
    fn a_host_is_named_once() {
        let (uri, headers) = become_of("https://a.example:8443/x?y", &[]).unwrap();
        assert!(uri == "/x?y" && headers[header::HOST] == "a.example:8443");
        let (uri, headers) = become_of("/x", &[("host", "a.example")]).unwrap();
        assert!(uri == "/x" && headers[header::HOST] == "a.example", "by `Host` alone");
        assert_eq!(become_of("http://a.example/x", &[]).unwrap().0, "http://a.example/x", "for the forward side");
        assert_eq!(become_of("/x", &[]), Err(Denied::BadHost));
        assert_eq!(become_of("https://a.example/", &[("host", "b.example")]), Err(Denied::BadHost));
        assert_eq!(become_of("ftp://a.example/", &[]), Err(Denied::Scheme));
        let (_, headers) = become_of("https://a/", &[("cookie", "a=1"), ("cookie", "b=2")]).unwrap();
        assert_eq!(headers.get_all(header::COOKIE).iter().collect::<Vec<_>>(), ["a=1; b=2"]);
    }
}
