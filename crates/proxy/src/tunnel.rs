//! CONNECT: bytes both ways, nothing looked at. Who may, and to which ports, is configuration; where to is guarded
//! by the connector's rules. A tunnel that is silent in both directions for `limits.tunnel_timeout` is closed.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use http::{Request, Response, StatusCode};
use hyper::body::Incoming;
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};

use crate::{
    body::{Guard, Kind},
    conn::Conn,
    connections::Left,
    origin::{self, dial},
    proxy::Worker,
    reason::{Denied, NoAnswer, Outcome},
    respond::{Answer, denied, failed},
    target::{self, Trust},
};

/// Answers a CONNECT.
pub(crate) async fn connect(worker: &Arc<Worker>, conn: &Arc<Conn>, request: Request<Incoming>) -> Answer {
    let refuse = |why: Denied| {
        worker.counters.denials.one(why);
        denied(why)
    };
    let config = &worker.proxy.config;
    if !config.forward.enabled {
        return refuse(Denied::ForwardOff);
    }
    if !conn.may_forward {
        return refuse(Denied::ForwardClient);
    }
    let (host, port) = match target::tunnel(request.uri()) {
        Ok(found) => found,
        Err(why) => return refuse(why),
    };
    if !config.forward.connect_ports.contains(&port) {
        return refuse(Denied::ConnectPort);
    }
    let trust = if conn.client.is_loopback() { Trust::LocalClient } else { Trust::RemoteClient };
    let guard = origin::Guard { own: worker.proxy.own.clone(), trust };
    let server = match dial(&host, port, &guard, config.limits.connect_timeout.0).await {
        Ok(server) => server,
        Err(e) => {
            let why = NoAnswer::from(&e);
            worker.counters.no_answer(why);
            return failed(why);
        }
    };
    let mut parts = Response::new(()).into_parts().0;
    parts.status = StatusCode::OK;
    let mut answer = Answer::new(parts, Kind::Empty, Outcome::Tunnel);
    answer.tunnel = Some(Tunnel { request, server });
    answer
}

/// A tunnel whose client has yet to be told.
pub(crate) struct Tunnel {
    request: Request<Incoming>,
    server: TcpStream,
}

impl Tunnel {
    /// Runs it until one side or the limits end it: in the log it is one request, in the limits one connection.
    pub(crate) fn begin(self, mut guard: Guard, left: Arc<Left>, silence: Duration) {
        tokio::spawn(async move {
            if let Ok(client) = hyper::upgrade::on(self.request).await {
                both_ways(TokioIo::new(client), self.server, silence, &mut guard).await;
            }
            drop(left);
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
