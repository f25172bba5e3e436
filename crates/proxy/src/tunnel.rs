//! A tunnel: bytes both ways, nothing looked at, to a server that CONNECT named or that switched to another protocol.
//! One that is silent in both directions for `limits.tunnel_timeout` is closed, and a stop closes those that are left
//! when `limits.drain` is over.
//!
//! The end of one direction is passed on, so that the other may still finish. A client of WebSocket by HTTP/2 ends its
//! stream with its Close frame; by HTTP/1.1 it would leave that to the server (RFC 6455 7.1.1), and nginx before one
//! takes it for a client that is gone. So that end is told to the server when it has ended itself, or [`CLOSING`]
//! later.

use std::{
    any::Any,
    sync::{Arc, Mutex},
    time::Duration,
};

use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
    sync::{oneshot, watch},
};

use crate::{body::Guard, connections::Left};

/// What a connection, or a stream of one, is counted by while it is held.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// The far end.
pub(crate) enum Server {
    /// What CONNECT named.
    Connected(TcpStream),
    /// An origin that answered 101, and its request's turn.
    Switched(OnUpgrade, Box<dyn Any + Send>),
}

/// A tunnel whose client has yet to be told.
pub(crate) struct Tunnel {
    client: OnUpgrade,
    server: Server,
    /// How long the end of what the client sends is kept from the server, where it is.
    patience: Option<Duration>,
}

/// Longest time that a server has for its own end of a WebSocket.
const CLOSING: Duration = Duration::from_secs(2);

/// Longest time that the ends of one that is closed here are told so.
const LAST_WORDS: Duration = Duration::from_millis(500);

impl Tunnel {
    /// Between these.
    pub(crate) fn new(client: OnUpgrade, server: Server) -> Self {
        Self { client, server, patience: None }
    }

    /// It is a WebSocket of HTTP/2.
    pub(crate) fn of_stream(self) -> Self {
        Self { patience: Some(CLOSING), ..self }
    }

    /// Runs it until one side, the limits or the end of a stop (`cut`) end it: in the log it is one request, in the
    /// limits one connection.
    pub(crate) fn begin(self, mut guard: Guard, held: Held, silence: Duration, cut: watch::Receiver<bool>) {
        let (tell, told) = oneshot::channel();
        let task = tokio::spawn(async move {
            // What the client sent ahead of the answer is in here, and goes out only now.
            if let Ok(client) = self.client.await {
                if let (Ok(task), Some(left)) = (told.await, held.downcast_ref::<Left>()) {
                    left.goes_on_as(task);
                }
                let client = TokioIo::new(client);
                let limits = Limits { silence, patience: self.patience, cut };
                match self.server {
                    Server::Connected(server) => both_ways(client, server, limits, &mut guard).await,
                    Server::Switched(server, turn) => {
                        if let Ok(server) = server.await {
                            both_ways(client, TokioIo::new(server), limits, &mut guard).await;
                        }
                        drop(turn);
                    }
                }
            }
            drop(guard);
            drop(held);
        });
        let _ = tell.send(task.abort_handle());
    }
}

struct Limits {
    silence: Duration,
    patience: Option<Duration>,
    cut: watch::Receiver<bool>,
}

async fn both_ways(
    client: impl AsyncRead + AsyncWrite,
    server: impl AsyncRead + AsyncWrite,
    Limits { silence, patience, mut cut }: Limits,
    guard: &mut Guard,
) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = tokio::io::split(server);
    let last = Mutex::new(tokio::time::Instant::now());
    let touch = || {
        if let Ok(mut last) = last.lock() {
            *last = tokio::time::Instant::now();
        }
    };
    let watch = async {
        loop {
            let quiet = last.lock().map_or(silence, |last| last.elapsed());
            if quiet >= silence {
                return;
            }
            tokio::time::sleep(silence - quiet).await;
        }
    };
    let copies = async {
        let (over, is_over) = oneshot::channel::<()>();
        let up = async {
            copy(&mut from_client, &mut to_server, &touch, |_| {}).await;
            if let Some(patience) = patience {
                let _ = tokio::time::timeout(patience, is_over).await;
            }
            let _ = to_server.shutdown().await;
        };
        let down = async {
            copy(&mut from_server, &mut to_client, &touch, |n| guard.sent(n as u64)).await;
            drop(over);
            let _ = to_client.shutdown().await;
        };
        tokio::join!(up, down);
    };
    tokio::select! {
        () = copies => return,
        () = watch => {}
        _ = cut.wait_for(|cut| *cut) => {}
    }
    let last_words = async { tokio::join!(to_client.shutdown(), to_server.shutdown()) };
    let _ = tokio::time::timeout(LAST_WORDS, last_words).await;
}

/// One direction, to its end.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    touch: &impl Fn(),
    mut count: impl FnMut(usize),
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        touch();
        // TLS keeps what is not flushed.
        if to.write_all(&buffer[..n]).await.is_err() || to.flush().await.is_err() {
            break;
        }
        count(n);
        touch();
    }
}
