//! A tunnel: bytes both ways, nothing looked at. One that is silent in both directions for `limits.tunnel_timeout` is
//! closed.

use std::{
    any::Any,
    sync::{Arc, Mutex},
    time::Duration,
};

use http::Request;
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::body::Guard;

/// What a connection, or a stream of one, is counted by while it is held.
pub(crate) type Held = Arc<dyn Any + Send + Sync>;

/// A tunnel whose client has yet to be told.
pub(crate) struct Tunnel {
    request: Request<Incoming>,
    server: TcpStream,
}

impl Tunnel {
    /// What `request` asked for, connected to `server`.
    pub(crate) fn new(request: Request<Incoming>, server: TcpStream) -> Self {
        Self { request, server }
    }

    /// Runs it until one side or the limits end it: in the log it is one request, in the limits one connection.
    pub(crate) fn begin(self, mut guard: Guard, held: Held, silence: Duration) {
        tokio::spawn(async move {
            if let Ok(client) = hyper::upgrade::on(self.request).await {
                both_ways(TokioIo::new(client), self.server, silence, &mut guard).await;
            }
            drop(held);
        });
    }
}

async fn both_ways(client: impl AsyncRead + AsyncWrite, server: TcpStream, silence: Duration, guard: &mut Guard) {
    let (mut from_client, mut to_client) = tokio::io::split(client);
    let (mut from_server, mut to_server) = server.into_split();
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
        let up = copy(&mut from_client, &mut to_server, &touch, |_| {});
        let down = copy(&mut from_server, &mut to_client, &touch, |n| guard.sent(n as u64));
        tokio::join!(up, down);
    };
    tokio::select! {
        () = copies => {}
        () = watch => {}
    }
}

/// One direction; its end is passed on, so that the other may still finish.
async fn copy(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
    touch: &impl Fn(),
    mut count: impl FnMut(usize),
) {
    let mut buffer = vec![0; 16 << 10];
    while let Ok(n @ 1..) = from.read(&mut buffer).await {
        touch();
        if to.write_all(&buffer[..n]).await.is_err() {
            break;
        }
        count(n);
        touch();
    }
    let _ = to.shutdown().await;
}
