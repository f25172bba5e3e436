//! The life of a request that the fast path did not answer.
//!
//! 1. What is it for ([`Target`]), and may this client ask for it?
//! 2. GET and HEAD without a body: look in the store. Fresh: answer. Stale: revalidate, or serve while revalidating.
//! 3. Nothing there: fetch, together with everyone else who wants the same ([`collapse`]).
//! 4. Everything else passes to the origin; after an unsafe method that succeeded, what was stored is invalid.
//!
//! Every way ends in an [`Answer`], whose `Cache-Status` says what happened and why.

mod ask;
mod cached;
mod collapse;
mod connect;
mod esi;
mod pass;
mod purge;
mod slices;
mod upgrade;

use std::{sync::Arc, time::Instant};

use http::{HeaderMap, HeaderValue, Method, Request, Response, Version, header, request::Parts};
use hyper::ext::ReasonPhrase;

use self::ask::Ask;
use crate::{
    access::Going,
    body::{Body, Guard, Record},
    clock::unix_millis,
    conn::{Conn, Phase},
    outgoing::Interim,
    proxy::Worker,
    reason::{Bypass, Denied, Outcome},
    respond::{Answer, denied, options},
    rules::validate,
    target::{self, Target},
    tunnel::Held,
    upload::Upload,
    wire::NO_REASON,
};

/// Answers one request, or refuses it as it was already. `held` counts what it came by.
pub(crate) async fn serve(
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    held: Held,
    interim: Interim,
    request: Box<Request<Option<Upload>>>,
    refused: Option<Denied>,
) -> Response<Body> {
    let start = Instant::now();
    let has_streams = request.version() >= Version::HTTP_2;
    let record = worker.proxy.log.on().then(|| record(&request, start));
    let answer = answer(&worker, &conn, interim, request, refused).await;
    worker.counters.head_after(start.elapsed());
    worker.counters.outcomes.one(answer.outcome);
    let mut record = record.map(|mut record| {
        let kind = answer.parts.headers.get(header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        record.content_type = kind.unwrap_or_default().to_owned();
        record.status = answer.parts.status.as_u16();
        record.outcome = answer.outcome;
        record.detail = answer.detail;
        record.user = answer.user;
        record
    });
    let mut parts = answer.parts;
    if parts.status.canonical_reason().is_none() && parts.extensions.get::<ReasonPhrase>().is_none() {
        parts.extensions.insert(ReasonPhrase::from_static(NO_REASON.as_bytes()));
    }
    if !has_streams && (conn.is_last() || worker.proxy.is_stopping()) && answer.outcome != Outcome::Tunnel {
        parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(tunnel) = answer.tunnel {
        conn.enter(Phase::Busy, worker.clock.tick());
        let silence = worker.proxy.config.limits.tunnel_timeout.0;
        let cut = worker.cut.subscribe();
        tunnel.begin(Guard::new(worker.clone(), conn.clone(), record.take()), held, silence, cut);
    }
    let guard = Guard::new(worker, conn, record);
    Response::from_parts(parts, Body::new(answer.kind, guard))
}

fn record(request: &Request<Option<Upload>>, start: Instant) -> Box<Record> {
    let field = |name| {
        let value: Option<&HeaderValue> = request.headers().get(name);
        String::from_utf8_lossy(value.map_or(b"", HeaderValue::as_bytes)).into_owned()
    };
    Box::new(Record {
        user: None,
        began: unix_millis(),
        start,
        method: request.method().to_string(),
        version: request.version(),
        target: request.uri().to_string(),
        host: field(header::HOST),
        referer: field(header::REFERER),
        agent: field(header::USER_AGENT),
        content_type: String::new(),
        status: 0,
        outcome: Outcome::Failed,
        detail: "",
    })
}

async fn answer(
    worker: &Arc<Worker>,
    conn: &Arc<Conn>,
    interim: Interim,
    request: Box<Request<Option<Upload>>>,
    refused: Option<Denied>,
) -> Answer {
    if request.method() == Method::OPTIONS && request.uri() == "*" && refused.is_none() {
        return options();
    }
    if refused.is_none() && purge::is_one(worker, conn, &request) {
        return Box::pin(purge::purge(worker, conn, &request)).await.unwrap_or_else(|why| {
            worker.counters.denials.one(why);
            denied(why)
        });
    }
    match refused.map_or_else(|| check(worker, conn, &request), Err) {
        Err(why) => {
            worker.counters.denials.one(why);
            denied(why)
        }
        Ok(None) => Box::pin(connect::connect(worker, conn, *request)).await,
        Ok(Some(target)) => {
            let (user, refused) = user(worker, conn, &target, request.headers()).await;
            if let Some(why) = refused {
                worker.counters.denials.one(why);
                return Answer { user, ..denied(why) };
            }
            let answer = ruled(worker, conn, target, interim, request).await;
            Answer { user, ..answer }
        }
    }
}

/// Answers one that may go where it is for.
async fn ruled(
    worker: &Arc<Worker>,
    conn: &Arc<Conn>,
    target: Target,
    interim: Interim,
    mut request: Box<Request<Option<Upload>>>,
) -> Answer {
    let wanted = upgrade::Wanted::of(&mut request, &target);
    if wanted.is_none() && upgrade::is_extended(&request) {
        worker.counters.denials.one(Denied::UpgradeProtocol);
        return denied(Denied::UpgradeProtocol);
    }
    // What is not needed further on has no room while it waits.
    let (ask, bypass, client, body) = {
        let (parts, body) = request.into_parts();
        let bypass = bypass(&parts, &target, body.as_ref());
        let client = target.action.esi.then(|| esi::Client::new(conn, &parts.headers));
        (Ask::new(worker, conn, target, interim, parts), bypass, client, body)
    };
    if ask.method == Method::OPTIONS && ask.headers.get(header::MAX_FORWARDS).is_some_and(|n| n == "0") {
        return options();
    }
    let is_for_store = ask.asked.directives.only_if_cached && matches!(ask.method, Method::GET | Method::HEAD);
    if let Some(wanted) = wanted.filter(|_| !is_for_store)
        && let Some(answer) = Box::pin(ask.upgrade(wanted)).await
    {
        return answer;
    }
    match bypass {
        Some(_) if is_for_store => ask.only_if_cached(),
        Some(why @ (Bypass::Method | Bypass::RequestBody)) => Box::pin(ask.pass(body, why)).await,
        why => match client {
            Some(client) => esi::serve(ask, why, client, 0).await,
            None => ask.without_body(why).await,
        },
    }
}

/// Whose request it is, where that is asked, and why it must not go where it is for.
async fn user(
    worker: &Worker,
    conn: &Conn,
    target: &Target,
    headers: &HeaderMap,
) -> (Option<Arc<str>>, Option<Denied>) {
    if target.side.is_for_origin() {
        return (None, None);
    }
    let accounts = &worker.proxy.accounts;
    match accounts.of(headers).await {
        Ok(user) => {
            let (host, port) = target::parts(target.host());
            let going = Going { user: user.as_deref(), client: conn.client, host, port };
            let refused = accounts.may(&going).err();
            (user, refused)
        }
        Err(why) => (None, Some(why)),
    }
}

/// `None` is a tunnel.
fn check(worker: &Worker, conn: &Conn, request: &Request<Option<Upload>>) -> Result<Option<Target>, Denied> {
    let proxy = &worker.proxy;
    target::method(request.method())?;
    if came_through(request.headers(), &proxy.pseudonym) {
        return Err(Denied::Loop);
    }
    if request.method() == Method::CONNECT {
        return target::bodiless(request.headers()).map(|()| None);
    }
    let target = Target::of(request, &proxy.config, &proxy.origins, conn)?;
    target.ruled(&proxy.rules).map(Some)
}

/// Whether our pseudonym stands in `Via`.
fn came_through(headers: &HeaderMap, pseudonym: &str) -> bool {
    headers.get_all(header::VIA).iter().any(|line| {
        line.to_str().is_ok_and(|line| line.split(',').any(|hop| hop.split_whitespace().nth(1) == Some(pseudonym)))
    })
}

/// Why the store is not asked.
fn bypass(request: &Parts, target: &Target, body: Option<&Upload>) -> Option<Bypass> {
    if !matches!(request.method, Method::GET | Method::HEAD) {
        return Some(Bypass::Method);
    }
    if body.is_some_and(|body| !http_body::Body::is_end_stream(body)) {
        return Some(Bypass::RequestBody);
    }
    if target.is_disputed {
        return Some(Bypass::Disputed);
    }
    if target.action.bypass {
        return Some(Bypass::Rule);
    }
    if !target.side.is_for_origin() && validate::has_precondition(&request.headers) {
        return Some(Bypass::Precondition);
    }
    // By h2c a client says no more than that it could speak HTTP/2, too; cargo and others do, of all requests.
    let mut wanted = request.headers.get_all(header::UPGRADE).iter();
    wanted.any(|what| !what.as_bytes().eq_ignore_ascii_case(b"h2c")).then_some(Bypass::Upgrade)
}
