//! One client connection, from its first byte to its last: what stands before HTTP (a PROXY header, TLS), then the fast
//! path, and the slow path for what that does not answer, through hyper where the request needs it.

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use http::{Method, Version};
use hyper::{body::Incoming, rt::Write, server::conn::http1, service::Service};
use parking_lot::Mutex;
use tokio::{io::AsyncReadExt, net::TcpStream, sync::watch};

use crate::{
    body::Body,
    conn::{Client, Conn, Phase},
    connections::Left,
    fast::{self, FastIo, Hypers, SlowRequest, To},
    front::{self, Beginning, Told},
    http2, life,
    lifecycle::{LAST_REQUESTS, Stop},
    proxy::Worker,
    reason::{Denied, Outcome},
    stream::Stream,
    upload::Upload,
};

#[derive(Clone)]
struct Serve {
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    left: Arc<Left>,
    io: Arc<Mutex<FastIo>>,
}

impl Service<http::Request<Incoming>> for Serve {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let (service, request) = (self.clone(), Box::new(request.map(|body| Some(Upload::Hyper(body)))));
        Box::pin(async move { Ok(service.serve(request).await) })
    }
}

impl Serve {
    async fn serve(self, request: SlowRequest) -> http::Response<Body> {
        let interim = FastIo::interim(&self.io);
        life::serve(self.worker, self.conn, self.left, interim, request, None).await
    }

    /// Answers a request without hyper. The connection is over where this fails.
    async fn answer(self, request: SlowRequest) -> io::Result<()> {
        let to = To { is_head: request.method() == Method::HEAD, is_old: request.version() == Version::HTTP_10 };
        let io = self.io.clone();
        let response = self.serve(request).await;
        fast::deliver(&io, response, to).await
    }
}

/// A connection that does not begin with HTTP.
pub(crate) struct Opening {
    pub(crate) worker: Arc<Worker>,
    pub(crate) peer: Client,
    pub(crate) conn: Arc<Conn>,
    pub(crate) left: Arc<Left>,
    pub(crate) stopped: watch::Receiver<Stop>,
}

impl Opening {
    /// Goes through what stands before HTTP, and serves the client that is found behind it.
    pub(crate) async fn serve(mut self, mut tcp: TcpStream, is_behind: bool, is_tls: bool) {
        let mut stop = self.stopped.clone();
        let stopping = stop.wait_for(|stop| *stop == Stop::All);
        let opening = async {
            if is_behind && self.read_header(&mut tcp).await.is_none() {
                self.worker.counters.denials.one(Denied::ProxyHeader);
                self.worker.counters.outcomes.one(Outcome::Denied);
                return None;
            }
            if is_tls { self.secure(tcp).await } else { Some(Stream::Plain(tcp)) }
        };
        // Boxed: a connection that waits for its next request has no room for it.
        let mut opening = Box::pin(opening);
        let stream = tokio::select! {
            // Between two reads, so that one that has come is not forgotten.
            biased;
            stream = &mut opening => stream,
            _ = stopping => return,
        };
        drop(opening);
        let Some(stream) = stream else { return };
        self.conn.enter(Phase::Idle, self.worker.clock.tick());
        if stream.is_http2() {
            return Box::pin(http2::serve(self.worker, self.conn, stream, self.left, self.stopped)).await;
        }
        serve(self.worker, self.conn, stream, self.left, self.stopped).await;
    }

    /// Reads the PROXY header of a front: from then on the connection is that of the client which it names.
    async fn read_header(&mut self, tcp: &mut TcpStream) -> Option<()> {
        let told = read_header(tcp).await?;
        let is_encrypted = self.peer.is_encrypted;
        let mut client = self.peer.behind(told, &self.worker.proxy.config);
        client.is_encrypted |= is_encrypted;
        self.conn = Arc::new(Conn::new(&client, self.worker.clock.tick()));
        if let Some((listed, _)) = self.left.open.lock().by_number.get_mut(&self.left.number) {
            *listed = self.conn.clone();
        }
        Some(())
    }

    async fn secure(&self, tcp: TcpStream) -> Option<Stream> {
        let (worker, tls) = (&self.worker, self.worker.proxy.tls.as_ref()?);
        self.conn.enter(Phase::Handshake, worker.clock.tick());
        match tls.accept(tcp).await {
            Ok(stream) => {
                worker.counters.tls_handshakes.add(1);
                if stream.get_ref().1.handshake_kind() == Some(rustls::HandshakeKind::Resumed) {
                    worker.counters.tls_resumed.add(1);
                }
                Some(Stream::Tls(stream))
            }
            Err(why) => {
                worker.counters.tls_failures.one(why);
                None
            }
        }
    }
}

/// What the PROXY header says; `None` where there is no header. Nothing behind it is taken from the socket.
async fn read_header(tcp: &mut TcpStream) -> Option<Option<Told>> {
    let (mut bytes, mut room) = (Vec::new(), vec![0; front::LONGEST]);
    loop {
        let seen = tcp.peek(&mut room).await.ok().filter(|n| *n > 0)?;
        let before = bytes.len();
        bytes.extend_from_slice(&room[..seen]);
        let (mine, told) = match front::header(&bytes) {
            Beginning::Header(len, told) => (len - before, Some(told)),
            // What is not complete is all of it the header's.
            Beginning::Partial => (seen, None),
            Beginning::Bad => return None,
        };
        tcp.read_exact(&mut room[..mine]).await.ok()?;
        if told.is_some() {
            return told;
        }
    }
}

/// A connection: the fast path, the slow path for what that does not answer, and hyper for requests with a body and
/// what may change the connection.
struct Served {
    io: Arc<Mutex<FastIo>>,
    service: Serve,
    /// There from a request that needs no hyper to the end of the answer.
    slow: Option<Pin<Box<dyn Future<Output = io::Result<()>> + Send>>>,
    /// There, with its buffers, from a request that needs it to the end of the answer.
    hyper: Option<Pin<Box<http1::UpgradeableConnection<Hypers, Serve>>>>,
}

impl Served {
    /// Answers until the connection is over.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(slow) = &mut self.slow {
                if ready!(slow.as_mut().poll(context)).is_err() {
                    return Poll::Ready(());
                }
                self.slow = None;
                if self.io.lock().has_unread() {
                    // Others have their turn before what was sent ahead.
                    context.waker().wake_by_ref();
                    return Poll::Pending;
                }
            }
            if let Some(hyper) = &mut self.hyper {
                if hyper.as_mut().poll(context).is_ready() {
                    return Poll::Ready(());
                }
                if !self.io.lock().is_hyper_idle() {
                    return Poll::Pending;
                }
                self.hyper = None;
            }
            if ready!(self.io.lock().poll_own(context)).is_err() {
                return Poll::Ready(());
            }
            let slow = self.io.lock().take_slow();
            if let Some(request) = slow {
                self.slow = Some(Box::pin(self.service.clone().answer(request)));
                continue;
            }
            if !self.io.lock().is_hypers() {
                return self.poll_close(context);
            }
            let hyper = http1::Builder::new()
                .header_read_timeout(None)
                .max_buf_size(64 << 10)
                // A client that says that it will ask no more is still to be answered.
                .half_close(true)
                .serve_connection(FastIo::for_hyper(&self.io), self.service.clone())
                .with_upgrades();
            self.hyper = Some(Box::pin(hyper));
        }
    }

    fn poll_close(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut FastIo::for_hyper(&self.io)).poll_shutdown(context).map(drop)
    }

    /// Ends it with what is being answered.
    async fn end(mut self) {
        if let Some(slow) = self.slow.take()
            && slow.await.is_err()
        {
            return;
        }
        if let Some(mut hyper) = self.hyper.take() {
            hyper.as_mut().graceful_shutdown();
            let _ = hyper.await;
        } else {
            poll_fn(|context| self.poll_close(context)).await;
        }
    }
}

/// Serves HTTP/1 until the connection or the proxy ends.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    stream: Stream,
    left: Arc<Left>,
    mut stopped: watch::Receiver<Stop>,
) {
    let busy = conn.clone();
    let io = Arc::new(Mutex::new(FastIo::new(stream, worker.clone(), conn.clone())));
    let service = Serve { worker, conn, left, io: io.clone() };
    let mut served = Served { io, service, slow: None, hyper: None };
    let told = stopped.clone();
    let mut stop = std::pin::pin!(async {
        let _ = stopped.wait_for(|stop| *stop == Stop::All).await;
        // A turn of the reactor, however late this worker is: a request that has come is seen before the end is.
        tokio::time::sleep(Duration::from_millis(1)).await;
    });
    let mut waits = false;
    let is_over = poll_fn(|context| {
        if served.poll(context).is_ready() {
            return Poll::Ready(true);
        }
        // Once both wait, nothing but the socket wakes us, until we are told to stop.
        if waits && !told.has_changed().unwrap_or(true) {
            return Poll::Pending;
        }
        waits = true;
        stop.as_mut().poll(context).map(|()| false)
    });
    if is_over.await {
        return;
    }
    // What is being answered may be answered without a word of the stop: then the next request is told.
    let is_busy = || matches!(busy.phase().0, Phase::Busy | Phase::Sending);
    while is_busy() {
        let told = async {
            while is_busy() {
                tokio::time::sleep(STILL_BUSY).await;
            }
            tokio::time::sleep(LAST_REQUESTS).await;
        };
        tokio::select! {
            () = poll_fn(|context| served.poll(context)) => return,
            () = told => {}
        }
    }
    served.end().await;
}

/// How often it is looked whether a connection is answered, once we stop.
const STILL_BUSY: Duration = Duration::from_millis(5);
