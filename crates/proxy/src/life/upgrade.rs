//! Requests that want another protocol of an origin of ours, WebSocket mostly: what the origin answers with 101 becomes
//! a tunnel, anything else is an answer like others, which is not stored.
//!
//! Only GET of HTTP/1.1 without a body: a body would have to be sent to its end first, so what has one is passed on
//! without `Upgrade` (RFC 9110 7.8). What a client sends ahead of the answer stays here until the origin has switched;
//! if it does not, the connection ends with its answer, so that nothing of that is ever taken for a request.
//!
//! By HTTP/2 it is an extended CONNECT (RFC 8441), which `http2` has made such a GET: 200 tells its client that the
//! origin has switched, so nothing else is answered with a 2xx.

use http::{HeaderValue, Method, Request, Response, StatusCode, Version, header};
use hyper::{ext::Protocol, upgrade::OnUpgrade};

use super::ask::Ask;
use crate::{
    origin::Arriving,
    outgoing::{self, Outgoing},
    payload::Payload,
    reason::{Bypass, NoAnswer, OriginFailure, Outcome},
    respond::{Answer, failed},
    target::Target,
    tunnel::{Server, Tunnel},
    upgrade::{self, Handshake},
    upload::Upload,
};

/// What a client wants to switch to, and may.
pub(super) struct Wanted {
    protocols: HeaderValue,
    client: OnUpgrade,
    is_extended: bool,
}

/// Whether it is an extended CONNECT.
pub(super) fn is_extended(request: &Request<Option<Upload>>) -> bool {
    request.extensions().get::<Protocol>().is_some()
}

impl Wanted {
    /// What `request` wants; `None` if it is a request like others.
    pub(super) fn of(request: &mut Request<Option<Upload>>, target: &Target) -> Option<Self> {
        let is_extended = is_extended(request);
        let can_be = request.method() == Method::GET
            && (request.version() == Version::HTTP_11 || is_extended)
            && request.body().as_ref().is_none_or(http_body::Body::is_end_stream)
            && target.side.is_for_origin();
        let protocols = upgrade::wanted(request.headers(), target.action.upgrade.as_deref()).filter(|_| can_be)?;
        Some(Self { protocols, client: hyper::upgrade::on(request), is_extended })
    }
}

impl Ask {
    /// The origin's answer; `None` if it does not switch, and what it answers is not to be passed on as it is.
    pub(super) async fn upgrade(&self, wanted: Wanted) -> Option<Answer> {
        let mut headers = self.outgoing();
        for name in [header::TE, header::CONTENT_LENGTH] {
            headers.remove(name);
        }
        let is_extended = wanted.is_extended;
        let handshake = is_extended.then(|| Handshake::begin(&wanted.protocols, &mut headers)).flatten();
        headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
        headers.insert(header::UPGRADE, wanted.protocols.clone());
        let request = outgoing::request(&self.target.path, &self.method, headers, Payload::None);
        let result = self
            .worker
            .pools
            .send(&self.target.upstream, Outgoing::Whole(Box::new(request)), Some(&self.interim))
            .await;
        let action = &self.target.action;
        let answer = match result {
            Ok(response) if response.status() == StatusCode::SWITCHING_PROTOCOLS => {
                match handshake.is_none_or(|handshake| handshake.is_answered(response.headers())) {
                    true => self.switched(wanted, response),
                    false => self.no_upgrade(OriginFailure::Protocol.into()),
                }
            }
            // To an extended CONNECT that would say that it has switched.
            Ok(response) if is_extended && response.status().is_success() => {
                self.no_upgrade(OriginFailure::Protocol.into())
            }
            Ok(_) if !is_extended && (action.esi || action.changes_answers()) => return None,
            Ok(response) => self.passed(response, "bypass", Bypass::Upgrade.name()),
            Err(why) => self.no_upgrade(why),
        };
        self.worker.counters.bypasses.one(Bypass::Upgrade);
        Some(answer)
    }

    fn no_upgrade(&self, why: NoAnswer) -> Answer {
        self.worker.counters.no_answer(why);
        failed(why)
    }

    fn switched(&self, wanted: Wanted, mut response: Response<Arriving>) -> Answer {
        let server = hyper::upgrade::on(&mut response);
        let protocol = response.headers().get(header::UPGRADE).cloned();
        let (parts, turn) = response.into_parts();
        let mut answer = self.head_of(parts, "bypass", Bypass::Upgrade.name());
        let headers = &mut answer.parts.headers;
        // It has no body (RFC 9110 8.6).
        headers.remove(header::CONTENT_LENGTH);
        let is_websocket = wanted.is_extended && protocol.as_ref().is_some_and(upgrade::is_websocket);
        if wanted.is_extended {
            upgrade::without_handshake(headers);
            answer.parts.status = StatusCode::OK;
        } else {
            headers.insert(header::CONNECTION, HeaderValue::from_static("upgrade"));
            headers.extend(protocol.map(|protocol| (header::UPGRADE, protocol)));
        }
        answer.outcome = Outcome::Tunnel;
        let tunnel = Tunnel::new(wanted.client, Server::Switched(server, Box::new(turn)));
        answer.tunnel = Some(if is_websocket { tunnel.of_stream() } else { tunnel });
        answer
    }
}
