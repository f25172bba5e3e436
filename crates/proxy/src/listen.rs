//! One worker: a thread with a single-threaded runtime, sockets of its own (`SO_REUSEPORT`, so the kernel spreads
//! connections) or those that were handed over, and every connection that it accepted until it ends.
//!
//! Time limits of connections cost nothing per request: a connection notes what it is doing and since when
//! ([`crate::conn`]), and once a second the worker ends those that have done it for too long.

use std::{
    future::poll_fn,
    io,
    net::{SocketAddr, TcpListener, UdpSocket},
    os::fd::{AsFd, OwnedFd},
    sync::Arc,
    task::ready,
    time::Duration,
};

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
    clock::Clock,
    conn::{Client, Conn, Phase},
    connections::{Left, Open},
    handed::Handed,
    http3,
    lifecycle::{StartError, Stop},
    proxy::{Proxy, Worker},
    reason::{Denied, Outcome, TlsFailure},
    serve::{Opening, serve},
    stream::Stream,
};

/// An address that is ours, at which no client is answered yet.
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

/// Binds one address, unless it was handed over.
pub(crate) fn bind_one(address: SocketAddr, handed: &mut Handed) -> Result<Bound, StartError> {
    handed.take(address).map_or_else(|| bind(address, false), |socket| Ok(Bound(socket, address)))
}

fn bind(address: SocketAddr, shared: bool) -> Result<Bound, StartError> {
    let socket = bound(address, (Type::STREAM, Protocol::TCP), shared);
    socket.map(|socket| Bound(socket, address)).map_err(|e| StartError::Listen(address, e))
}

fn bound(address: SocketAddr, (kind, protocol): (Type, Protocol), shared: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), kind, Some(protocol))?;
    if kind == Type::STREAM {
        socket.set_reuse_address(true)?;
    }
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    if shared {
        socket.set_reuse_port(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&SockAddr::from(address))?;
    Ok(socket)
}

/// Binds every address for datagrams, once for each worker: the kernel gives all that comes from one address and port
/// to one of them.
pub(crate) fn bind_datagrams(addresses: &[SocketAddr], workers: usize) -> Result<Vec<Vec<UdpSocket>>, StartError> {
    let bind = |&address| {
        let socket = bound(address, (Type::DGRAM, Protocol::UDP), true);
        socket.map(UdpSocket::from).map_err(|e| StartError::Listen(address, e))
    };
    (0..workers).map(|_| addresses.iter().map(bind).collect()).collect()
}

/// Where one worker hears of clients.
pub(crate) struct Sockets {
    /// With each, whether TLS is spoken there.
    pub(crate) streams: Vec<(TcpListener, bool)>,
    /// For HTTP/3.
    pub(crate) datagrams: Vec<UdpSocket>,
}

/// Binds every address once for each worker, unless it was handed over: then all accept at that one; port 0 becomes one
/// and the same port.
pub(crate) fn bind_all(
    addresses: &[SocketAddr],
    workers: usize,
    handed: &mut Handed,
) -> Result<Vec<Vec<Bound>>, StartError> {
    let mut all: Vec<Vec<Bound>> = (0..workers).map(|_| Vec::new()).collect();
    for &address in addresses {
        if let Some(socket) = handed.take(address) {
            for sockets in &mut all {
                let own = socket.try_clone().map_err(|e| StartError::Listen(address, e))?;
                sockets.push(Bound(own, address));
            }
            continue;
        }
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

/// Runs a worker until it is told to stop and has drained.
pub(crate) fn work(proxy: Arc<Proxy>, number: usize, sockets: Sockets, stopped: watch::Receiver<Stop>) {
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
        let connections = worker.proxy.connections.of(number);
        let mut accepting: Vec<_> = sockets
            .streams
            .into_iter()
            .filter_map(|(socket, is_tls)| Some((tokio::net::TcpListener::from_std(socket).ok()?, is_tls)))
            .map(|socket| tokio::spawn(accept(worker.clone(), socket, connections.clone(), stopped.clone())))
            .collect();
        for socket in sockets.datagrams {
            let accepting_all = accept_quic(worker.clone(), socket, connections.clone(), stopped.clone());
            accepting.push(tokio::spawn(accepting_all));
        }
        let ticking = tokio::spawn(tick(worker.clone(), connections.clone()));
        for accepting in accepting {
            let _ = accepting.await;
        }
        let mut stop = stopped;
        let _ = stop.wait_for(|stop| *stop == Stop::All).await;
        let drained = async {
            while !connections.lock().by_number.is_empty()
                || worker.fills_running()
                || worker.proxy.purges.invalidating()
            {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        if tokio::time::timeout(worker.proxy.config.limits.drain.0, drained).await.is_err() {
            end_tunnels(&worker).await;
        }
        ticking.abort();
        worker.flush_log();
    });
}

/// Ends tunnels, so that both ends of each are told, and the log has its line.
async fn end_tunnels(worker: &Worker) {
    worker.cut.send_replace(true);
    let gone = async {
        while worker.cut.receiver_count() > 0 {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    let _ = tokio::time::timeout(Duration::from_secs(1), gone).await;
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
    (socket, is_tls): (tokio::net::TcpListener, bool),
    connections: Arc<Mutex<Open>>,
    stopped: watch::Receiver<Stop>,
) {
    // One that has come at the limit, and waits for its place.
    let mut next = None;
    let accepting = async {
        loop {
            match socket.accept().await {
                Ok(accepted) => next = Some(accepted),
                // Out of descriptors, or the client left already: others may still be served.
                Err(_) => tokio::time::sleep(Duration::from_millis(10)).await,
            }
            while worker.proxy.connections.count() >= worker.proxy.config.limits.connections {
                let is_ending = end_stillest(&worker, &connections);
                tokio::time::sleep(Duration::from_millis(if is_ending { 1 } else { 10 })).await;
            }
            if let Some((stream, peer)) = next.take() {
                begin(&worker, stream, (peer, is_tls), &connections, stopped.clone());
            }
        }
    };
    let mut stop = stopped.clone();
    tokio::select! {
        () = accepting => {}
        _ = stop.wait_for(|stop| *stop != Stop::Not) => {}
    }
    if let Some((stream, peer)) = next {
        begin(&worker, stream, (peer, is_tls), &connections, stopped.clone());
    }
    // Those whom the system has let in already would be hung up on with the listener.
    let Ok(socket) = socket.into_std() else { return };
    while let Ok((stream, peer)) = socket.accept() {
        if stream.set_nonblocking(true).is_ok()
            && let Ok(stream) = TcpStream::from_std(stream)
        {
            begin(&worker, stream, (peer, is_tls), &connections, stopped.clone());
        }
    }
}

/// As [`accept`], of clients of HTTP/3. At the limit one is refused unless another can go for it; from half of it on
/// each has to show that it is where it says, before anything is kept for it.
async fn accept_quic(
    worker: Arc<Worker>,
    socket: UdpSocket,
    connections: Arc<Mutex<Open>>,
    mut stopped: watch::Receiver<Stop>,
) {
    let listener = match http3::Listener::new(socket, &worker) {
        Ok(listener) => listener,
        Err(e) => return eprintln!("picaflor: tls.http3: {e}"),
    };
    let stop = stopped.clone();
    let accepting = async {
        while let Some(incoming) = listener.endpoint.accept().await {
            let (count, most) = (worker.proxy.connections.count(), worker.proxy.config.limits.connections);
            if count >= most && !end_stillest(&worker, &connections) {
                incoming.refuse();
            } else if count >= most / 2 && !incoming.remote_address_validated() {
                // It fails for one that is validated only.
                let _ = incoming.retry();
            } else {
                begin_quic(&worker, &listener, incoming, &connections, stop.clone());
            }
        }
    };
    tokio::select! {
        () = accepting => {}
        _ = stopped.wait_for(|stop| *stop != Stop::Not) => {}
    }
    // Nor is one begun that has come meanwhile; those that are open go on.
    listener.endpoint.set_server_config(None);
    let _ = stopped.wait_for(|stop| *stop == Stop::All).await;
}

fn begin_quic(
    worker: &Arc<Worker>,
    listener: &http3::Listener,
    incoming: quinn::Incoming,
    connections: &Arc<Mutex<Open>>,
    stopped: watch::Receiver<Stop>,
) {
    let peer = Client {
        is_encrypted: true,
        ..Client::peer(incoming.remote_address().ip().to_canonical(), &worker.proxy.config)
    };
    let Some((conn, left)) = admit(worker, &peer, connections) else { return incoming.refuse() };
    conn.enter(Phase::Handshake, worker.clock.tick());
    let connecting = listener.connect(incoming, worker);
    let task = tokio::spawn(http3::serve(worker.clone(), conn, connecting, left.clone(), stopped));
    left.goes_on_as(task.abort_handle());
}

/// Puts a connection on the list; `None` if its client has its most.
fn admit(worker: &Arc<Worker>, peer: &Client, connections: &Arc<Mutex<Open>>) -> Option<(Arc<Conn>, Arc<Left>)> {
    worker.counters.accepted.add(1);
    let conn = Arc::new(Conn::new(peer, worker.clock.tick()));
    let Some(number) = worker.proxy.connections.add(connections, &conn) else {
        worker.counters.denials.one(Denied::ClientConnections);
        worker.counters.closed.add(1);
        worker.counters.outcomes.one(Outcome::Denied);
        return None;
    };
    let left = Arc::new(Left {
        all: worker.proxy.connections.clone(),
        open: connections.clone(),
        number,
        peer: conn.clone(),
        counters: worker.counters.clone(),
    });
    Some((conn, left))
}

/// Ends a connection that says nothing, so that it keeps none out that does; says whether there is one.
fn end_stillest(worker: &Worker, connections: &Arc<Mutex<Open>>) -> bool {
    // Ending a task takes its connection off the list.
    let Some(abort) = worker.proxy.connections.stillest(connections, worker.clock.tick()) else { return false };
    worker.counters.timed_out.add(1);
    abort.abort();
    true
}

fn begin(
    worker: &Arc<Worker>,
    stream: TcpStream,
    (peer, is_tls): (SocketAddr, bool),
    connections: &Arc<Mutex<Open>>,
    stopped: watch::Receiver<Stop>,
) {
    let _ = stream.set_nodelay(true);
    let config = &worker.proxy.config;
    let peer = Client { is_encrypted: is_tls, ..Client::peer(peer.ip().to_canonical(), config) };
    let Some((conn, left)) = admit(worker, &peer, connections) else { return };
    let goes_on = left.clone();
    let worker = worker.clone();
    let is_behind = config.front.proxy_protocol && peer.is_front;
    let task = if is_behind || is_tls {
        // Its first bytes are due as those of a request are.
        conn.enter(if is_behind { Phase::Head } else { Phase::Handshake }, worker.clock.tick());
        tokio::spawn(Opening { worker, peer, conn, left, stopped }.serve(stream, is_behind, is_tls))
    } else {
        tokio::spawn(serve(worker, conn, Stream::Plain(stream), left, stopped))
    };
    goes_on.goes_on_as(task.abort_handle());
}

/// The clock, the log, and the time limits.
async fn tick(worker: Arc<Worker>, connections: Arc<Mutex<Open>>) {
    let limits = &worker.proxy.config.limits;
    let seconds = |span: crate::config::Span| u32::try_from(span.0.as_secs().max(1)).unwrap_or(u32::MAX);
    let (head, idle, send) =
        (seconds(limits.header_timeout), seconds(limits.idle_timeout), seconds(limits.send_timeout));
    let handshake = seconds(limits.handshake_timeout);
    let (rate, window) = (limits.download_rate, seconds(limits.rate_window));
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
        worker.pools.tidy();
        let late = |conn: &Conn| {
            let (phase, since) = conn.phase();
            let limit = match phase {
                Phase::Idle => idle,
                Phase::Head => head,
                Phase::Sending => send,
                Phase::Handshake => handshake,
                Phase::Busy => u32::MAX,
            };
            now.saturating_sub(since) > limit || rate.is_some_and(|rate| conn.is_slow(rate.0, window))
        };
        // Collected first: ending a task takes its connection off the list.
        let mut stalled = Vec::new();
        let ended: Vec<_> = {
            let open = connections.lock();
            stalled.extend(open.by_number.values().flat_map(|(conn, _)| conn.stalled(now, send)));
            let late = open.by_number.values().filter(|(conn, _)| late(conn));
            late.filter_map(|(conn, abort)| Some((conn.phase().0, abort.clone()?))).collect()
        };
        worker.counters.streams_timed_out.add(stalled.len() as u64);
        stalled.iter().for_each(AbortHandle::abort);
        for (phase, abort) in ended {
            worker.counters.timed_out.add(1);
            if phase == Phase::Handshake {
                worker.counters.tls_failures.one(TlsFailure::Timeout);
            }
            abort.abort();
        }
        if connections.lock().have_many_gone() {
            // Not here: it takes as long as some requests do.
            tokio::task::spawn_blocking(picaflor::device::give_back_freed);
        }
    }
}
