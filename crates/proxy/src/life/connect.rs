//! CONNECT: who may, and to which ports, is configuration; where to is guarded by the connector's rules.

use std::sync::Arc;

use http::{Request, Response, StatusCode};

use crate::{
    access::Going,
    body::Kind,
    conn::Conn,
    dial::{Guard, dial},
    proxy::Worker,
    reason::{Denied, NoAnswer, Outcome},
    respond::{Answer, denied, failed},
    target::{self, Trust},
    tunnel::{Server, Tunnel},
    upload::Upload,
};

/// Answers a CONNECT.
pub(super) async fn connect(worker: &Arc<Worker>, conn: &Arc<Conn>, request: Request<Option<Upload>>) -> Answer {
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
    let user = match worker.proxy.accounts.of(request.headers()).await {
        Ok(user) => user,
        Err(why) => return refuse(why),
    };
    let (host, port) = match target::tunnel(request.uri()) {
        Ok(found) => found,
        Err(why) => return refuse(why),
    };
    if !config.forward.connect_ports.contains(&port) {
        return refuse(Denied::ConnectPort);
    }
    let going = Going { user: user.as_deref(), client: conn.client, host: host.as_bytes(), port };
    if let Err(why) = worker.proxy.accounts.may(&going) {
        return Answer { user, ..refuse(why) };
    }
    let trust = if conn.client.is_loopback() { Trust::LocalClient } else { Trust::RemoteClient };
    let guard = Guard { own: worker.proxy.own.clone(), trust };
    let server = match dial(host.trim_matches(['[', ']']), port, &guard, config.limits.connect_timeout.0).await {
        Ok(server) => server,
        Err(e) => {
            let why = NoAnswer::from(&e);
            worker.counters.no_answer(why);
            return Answer { user, ..failed(why) };
        }
    };
    let mut parts = Response::new(()).into_parts().0;
    parts.status = StatusCode::OK;
    let mut answer = Answer::new(parts, Kind::Empty, Outcome::Tunnel);
    answer.user = user;
    answer.tunnel = Some(Tunnel::new(hyper::upgrade::on(request), Server::Connected(server)));
    answer
}
