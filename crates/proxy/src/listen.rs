//! One worker: a thread with a single-threaded runtime, sockets of its own (`SO_REUSEPORT`, so the kernel spreads
//! connections), and every connection that it accepted until it ends.
//!
//! Time limits of connections cost nothing per request: a connection notes what it is doing and since when
//! ([`crate::conn`]), and once a second the worker ends those that have done it for too long.

use std::{
    collections::HashMap,
    future::poll_fn,
    io,
    net::{SocketAddr, TcpListener},
    os::fd::{AsFd, OwnedFd},
    pin::Pin,
    sync::Arc,
    task::{Poll, ready},
    time::Duration,
};

use hyper::{body::Incoming, rt::Write, server::conn::http1, service::Service};
use parking_lot::Mutex;
use picaflor::ThreadRing;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use tokio::{
    io::{Interest, unix::AsyncFd},
    net::TcpStream,
    sync::watch,
    task::AbortHandle,
};

use crate::{
    body::Body,
    conn::{Conn, Phase},
    fast::{FastIo, Hypers},
    life,
    server::{Clock, Proxy, StartError, Stop, Worker},
};

/// An address that is ours, at which nobody is answered yet.
pub(crate) struct Bound(Socket, SocketAddr);

impl Bound {
    /// Lets clients connect.
    pub(crate) fn listen(self) -> Result<TcpListener, StartError> {
        self.0.listen(4096).map_err(|e| StartError::Listen(self.1, e))?;
        Ok(self.0.into())
    }

    /// Which one it is, a port that the system chose included.
    pub(crate) fn address(&self) -> Result<SocketAddr, StartError> {
        let missing = || io::ErrorKind::AddrNotAvailable.into();
        let address = self.0.local_addr().and_then(|address| address.as_socket().ok_or_else(missing));
        address.map_err(|e| StartError::Listen(self.1, e))
    }
}

/// Binds one address.
pub(crate) fn bind(address: SocketAddr, shared: bool) -> Result<Bound, StartError> {
    let attempt = || {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
        socket.set_reuse_address(true)?;
        if address.is_ipv6() {
            socket.set_only_v6(true)?;
        }
        if shared {
            socket.set_reuse_port(true)?;
        }
        socket.set_nonblocking(true)?;
        socket.bind(&SockAddr::from(address))?;
        Ok(Bound(socket, address))
    };
    attempt().map_err(|e| StartError::Listen(address, e))
}

/// Binds every address once for each worker; port 0 becomes one and the same port.
pub(crate) fn bind_all(addresses: &[SocketAddr], workers: usize) -> Result<Vec<Vec<Bound>>, StartError> {
    let mut all: Vec<Vec<Bound>> = (0..workers).map(|_| Vec::new()).collect();
    for &address in addresses {
        let mut actual = address;
        for (n, sockets) in all.iter_mut().enumerate() {
            if n == 0 {
                // The first one alone, so that another program's socket on this address is noticed.
                drop(bind(address, false)?);
            }
            let socket = bind(actual, true)?;
            actual = socket.address()?;
            sockets.push(socket);
        }
    }
    Ok(all)
}

/// The connections of a worker.
#[derive(Default)]
struct Open {
    next: u64,
    /// Most at once since memory was last given back.
    most: usize,
    by_number: HashMap<u64, (Arc<Conn>, Option<AbortHandle>)>,
}

/// So many closed connections leave memory that is worth giving back to the system.
const MANY_CLOSED: usize = 512;

impl Open {
    /// Whether most of many connections have gone: once for each time that they have.
    fn have_many_gone(&mut self) -> bool {
        let now = self.by_number.len();
        let gone = now * 2 <= self.most && self.most - now >= MANY_CLOSED;
        if gone {
            self.most = now;
            self.by_number.shrink_to_fit();
        }
        gone
    }
}

type Connections = Arc<Mutex<Open>>;

/// Runs a worker until it is told to stop and has drained.
pub(crate) fn work(proxy: Arc<Proxy>, number: usize, sockets: Vec<TcpListener>, stopped: watch::Receiver<Stop>) {
    let runtime = match tokio::runtime::Builder::new_current_thread().enable_all().build() {
        Ok(runtime) => runtime,
        Err(e) => return eprintln!("picaflor: worker {number}: {e}"),
    };
    let counters = proxy.counters[number].clone();
    // Where the system refuses it, reads go through the store's own.
    let ring = ThreadRing::new().ok();
    runtime.block_on(async {
        if let Some(readable) = ring.as_ref().and_then(|ring| ring.as_fd().try_clone_to_owned().ok()) {
            tokio::spawn(turn(readable));
        }
        let worker = Arc::new(Worker::new(proxy, counters));
        let connections = Connections::default();
        let limit = worker.proxy.config.limits.connections.div_ceil(worker.proxy.config.workers);
        let accepting: Vec<_> = sockets
            .into_iter()
            .filter_map(|socket| tokio::net::TcpListener::from_std(socket).ok())
            .map(|socket| tokio::spawn(accept(worker.clone(), socket, connections.clone(), limit, stopped.clone())))
            .collect();
        let ticking = tokio::spawn(tick(worker.clone(), connections.clone()));
        for accepting in accepting {
            let _ = accepting.await;
        }
        let mut stop = stopped;
        let _ = stop.wait_for(|stop| *stop == Stop::All).await;
        let drained = async {
            while !connections.lock().by_number.is_empty()
                || worker.fills_running()
                || worker.proxy.epochs.invalidating()
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        let _ = tokio::time::timeout(worker.proxy.config.limits.drain.0, drained).await;
        ticking.abort();
        worker.flush_log();
    });
}

/// Turns this thread's ring whenever something was asked of it or has arrived.
async fn turn(readable: OwnedFd) -> io::Result<()> {
    #[allow(
        deprecated,
        reason = "unsound for a type that changes its descriptor, as ours does not; the other is unsafe"
    )]
    let readable = AsyncFd::with_interest(readable, Interest::READABLE)?;
    poll_fn(|context| {
        loop {
            ThreadRing::turn(context);
            ready!(readable.poll_read_ready(context))?.clear_ready();
        }
    })
    .await
}

async fn accept(
    worker: Arc<Worker>,
    socket: tokio::net::TcpListener,
    connections: Connections,
    limit: usize,
    stopped: watch::Receiver<Stop>,
) {
    let accepting = async {
        loop {
            if connections.lock().by_number.len() >= limit {
                tokio::time::sleep(Duration::from_millis(10)).await;
                continue;
            }
            match socket.accept().await {
                Ok((stream, peer)) => begin(&worker, stream, peer, &connections, stopped.clone()),
                // Out of descriptors, or the client left already: others may still be served.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
        }
    };
    let mut stop = stopped.clone();
    tokio::select! {
        () = accepting => {}
        _ = stop.wait_for(|stop| *stop != Stop::Not) => {}
    }
    // Those whom the system has let in already would be hung up on with the listener.
    let Ok(socket) = socket.into_std() else { return };
    while let Ok((stream, peer)) = socket.accept() {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            begin(&worker, stream, peer, &connections, stopped.clone());
        }
    }
}

fn begin(
    worker: &Arc<Worker>,
    stream: TcpStream,
    peer: SocketAddr,
    connections: &Connections,
    stopped: watch::Receiver<Stop>,
) {
    let _ = stream.set_nodelay(true);
    worker.counters.accepted.add(1);
    let client = peer.ip().to_canonical();
    let may_forward = worker.proxy.config.forward.clients.iter().any(|net| net.contains(&client));
    let conn = Arc::new(Conn::new(client, may_forward, worker.clock.tick()));
    let number = {
        let mut open = connections.lock();
        open.next += 1;
        let number = open.next;
        open.by_number.insert(number, (conn.clone(), None));
        open.most = open.most.max(open.by_number.len());
        number
    };
    let left = Arc::new(Left { worker: worker.clone(), connections: connections.clone(), number });
    let task = tokio::spawn(serve(worker.clone(), conn, stream, left, stopped));
    if let Some((_, abort)) = connections.lock().by_number.get_mut(&number) {
        *abort = Some(task.abort_handle());
    }
}

/// Takes the connection off the list when its task ends, however it ends, and the tunnel that it may have become.
pub(crate) struct Left {
    worker: Arc<Worker>,
    connections: Connections,
    number: u64,
}

impl Drop for Left {
    fn drop(&mut self) {
        self.connections.lock().by_number.remove(&self.number);
        self.worker.counters.closed.add(1);
    }
}

#[derive(Clone)]
struct Serve {
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    left: Arc<Left>,
}

impl Service<http::Request<Incoming>> for Serve {
    type Response = http::Response<Body>;
    type Error = std::convert::Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn call(&self, request: http::Request<Incoming>) -> Self::Future {
        let answer = life::serve(self.worker.clone(), self.conn.clone(), self.left.clone(), request);
        Box::pin(async move { Ok(answer.await) })
    }
}

async fn serve(
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    stream: TcpStream,
    left: Arc<Left>,
    mut stopped: watch::Receiver<Stop>,
) {
    let io = Arc::new(Mutex::new(FastIo::new(stream, worker.clone(), conn.clone())));
    let service = Serve { worker, conn, left };
    let begin = || {
        let connection = http1::Builder::new()
            .header_read_timeout(None)
            .max_buf_size(64 << 10)
            // A client that says that it will ask no more is still to be answered.
            .half_close(true)
            .serve_connection(FastIo::for_hyper(&io), service.clone())
            .with_upgrades();
        Box::pin(connection)
    };
    // There, with its buffers, from a request that needs it to the end of the answer.
    let mut hyper: Option<Pin<Box<http1::UpgradeableConnection<Hypers, Serve>>>> = None;
    let told = stopped.clone();
    let mut stop = std::pin::pin!(async {
        let _ = stopped.wait_for(|stop| *stop == Stop::All).await;
        // A turn of the reactor, however late this worker is: a request that has come is seen before the end is.
        tokio::time::sleep(Duration::from_millis(1)).await;
    });
    let mut waits = false;
    let is_over = poll_fn(|context| {
        loop {
            if let Some(connection) = &mut hyper {
                if connection.as_mut().poll(context).is_ready() {
                    return Poll::Ready(true);
                }
                if !io.lock().is_hyper_idle() {
                    break;
                }
                hyper = None;
            }
            let mut io = io.lock();
            match io.poll_own(context) {
                Poll::Pending => break,
                Poll::Ready(Ok(())) if io.is_hypers() => hyper = Some(begin()),
                Poll::Ready(Ok(())) => return Poll::Ready(false),
                Poll::Ready(Err(_)) => return Poll::Ready(true),
            }
        }
        // Once it waits, nothing but the socket wakes us, until we are told to stop.
        if waits && !told.has_changed().unwrap_or(true) {
            return Poll::Pending;
        }
        waits = true;
        stop.as_mut().poll(context).map(|()| false)
    });
    if is_over.await {
        return;
    }
    match hyper {
        Some(mut connection) => {
            connection.as_mut().graceful_shutdown();
            let _ = connection.await;
        }
        None => {
            let mut io = FastIo::for_hyper(&io);
            let _ = poll_fn(|context| Pin::new(&mut io).poll_shutdown(context)).await;
        }
    }
}

/// The clock, the log, and the time limits.
async fn tick(worker: Arc<Worker>, connections: Connections) {
    let limits = &worker.proxy.config.limits;
    let seconds = |span: crate::config::Span| u32::try_from(span.0.as_secs().max(1)).unwrap_or(u32::MAX);
    let (head, idle, send) =
        (seconds(limits.header_timeout), seconds(limits.idle_timeout), seconds(limits.send_timeout));
    let mut last = 0;
    loop {
        tokio::time::sleep(Clock::STEP).await;
        worker.clock.set();
        let now = worker.clock.tick();
        if now == last {
            continue;
        }
        last = now;
        worker.flush_log();
        let late = |conn: &Conn| {
            let (phase, since) = conn.phase();
            let limit = match phase {
                Phase::Idle => idle,
                Phase::Head => head,
                Phase::Sending => send,
                Phase::Busy => return false,
            };
            now.saturating_sub(since) > limit
        };
        // Collected first: ending a task takes its connection off the list.
        let ended: Vec<_> = {
            let open = connections.lock();
            open.by_number.values().filter(|(conn, _)| late(conn)).filter_map(|(_, abort)| abort.clone()).collect()
        };
        for abort in ended {
            worker.counters.timed_out.add(1);
            abort.abort();
        }
        if connections.lock().have_many_gone() {
            // Not here: it takes as long as some requests do.
            tokio::task::spawn_blocking(picaflor::device::give_back_freed);
        }
    }
}
