//! Requests that go to the origin past the store: methods other than GET and HEAD, requests with bodies, and those
//! that may not or need not be stored. One that may change something is seen to its end though its client leaves.

use std::sync::Arc;

use http::{HeaderMap, Method, Request, Response, header};

use super::ask::Ask;
use crate::{
    body::Kind,
    clock::unix_millis,
    keep, key,
    lookup::Hit,
    origin::Arriving,
    outgoing::{self, Outgoing},
    pace::Pace,
    passed::Passed,
    payload::Payload,
    purge::{sequence::Begun, tags, taking},
    reason::{Bypass, Denied, NoAnswer, NotStored, OriginFailure, Outcome},
    respond::{Answer, CACHE_STATUS, denied, failed},
    rules::{self, Failure, admit::Exchange, validate},
    upload::Upload,
};

impl Ask {
    /// With the client's body.
    pub(crate) async fn pass(self, body: Option<Upload>, why: Bypass) -> Answer {
        self.worker.counters.bypasses.one(why);
        let limits = &self.worker.proxy.config.limits;
        let room = limits.upload_max.map_or(u64::MAX, |max| max.0);
        if body.as_ref().is_some_and(|body| http_body::Body::size_hint(body).lower() > room) {
            self.worker.counters.denials.one(Denied::UploadTooLong);
            return denied(Denied::UploadTooLong);
        }
        let payload = body.map_or(Payload::None, |body| Payload::Client {
            body,
            pieces: Arc::default(),
            room,
            pace: Pace::new(limits.upload_rate, limits.rate_window),
            spoiled: Arc::default(),
        });
        let request = outgoing::request(&self.target.path, &self.method, self.outgoing(), payload);
        let ask = Arc::new(self);
        let result = if rules::is_unsafe(&ask.method) {
            let asking = ask.clone();
            let seen = taking::to_its_end(&ask.worker.proxy, async move { asking.change(request).await });
            seen.await.unwrap_or(Err(OriginFailure::Closed.into()))
        } else {
            ask.worker.pools.send(&ask.target.upstream, Outgoing::Whole(Box::new(request)), Some(&ask.interim)).await
        };
        let fwd = if why == Bypass::Method { "method" } else { "bypass" };
        match result {
            Ok(response) => ask.passed(response, fwd, why.name()),
            Err(why) => {
                ask.worker.counters.no_answer(why);
                failed(why)
            }
        }
    }

    /// Asks for a change, and takes out what it makes invalid: also where the origin ends without a word, for it may
    /// have done it.
    async fn change(&self, request: Request<Payload>) -> Result<Response<Arriving>, NoAnswer> {
        let result = self
            .worker
            .pools
            .send(&self.target.upstream, Outgoing::Whole(Box::new(request)), Some(&self.interim))
            .await;
        match &result {
            Ok(response) if rules::invalidates(response.status()) => self.invalidate(response.headers()).await,
            Err(why) if why.may_be_done() => self.invalidate(&HeaderMap::new()).await,
            _ => {}
        }
        result
    }

    /// Without a body.
    pub(crate) async fn pass_empty(&self, why: Bypass) -> Answer {
        self.worker.counters.bypasses.one(why);
        match self.worker.pools.get(&self.target, &self.method, &self.outgoing(), Some(&self.interim)).await {
            Ok(response) => self.passed(response, "bypass", why.name()),
            Err(why) => {
                self.worker.counters.no_answer(why);
                failed(why)
            }
        }
    }

    /// HEAD that nothing fresh answers. What it brings updates or drops the stored response (RFC 9111 4.3.5).
    pub(crate) async fn pass_head(&self, stale: Option<Hit>, fwd: &'static str) -> Answer {
        let begun = self.worker.proxy.purges.begin(&self.target.key);
        let sent = unix_millis();
        match self.worker.pools.get(&self.target, &self.method, &self.outgoing(), Some(&self.interim)).await {
            Ok(response) => {
                if let Some(hit) = &stale {
                    if rules::is_server_error(response.status()) && self.survives(hit, Failure::ServerError) {
                        return self.stale(hit, "stale-if-error");
                    }
                    if response.status() == http::StatusCode::OK {
                        self.update_from_head(hit, &response, begun, sent).await;
                    }
                }
                let mut answer = self.passed(response, fwd, "");
                answer.outcome = Outcome::Miss;
                answer
            }
            Err(why) => {
                self.worker.counters.no_answer(why);
                self.without_origin(stale.as_ref(), why)
            }
        }
    }

    async fn update_from_head(&self, hit: &Hit, response: &Response<Arriving>, begun: Begun, sent: u64) {
        let proxy = &self.worker.proxy;
        let mut fields = hit.fields();
        let new = response.headers();
        let same = |name: &http::HeaderName| new.get(name).is_none_or(|value| fields.get(name) == Some(value));
        let len = new.get(header::CONTENT_LENGTH).and_then(|len| len.to_str().ok()?.parse::<u64>().ok());
        let unchanged = same(&header::ETAG) && same(&header::LAST_MODIFIED) && len.is_none_or(|len| len == hit.len());
        if !unchanged {
            taking::drop_response(proxy, &self.target.key, &hit.key).await;
            return;
        }
        let mut new = new.clone();
        outgoing::strip_hop_by_hop(&mut new);
        self.target.action.on_response(&mut new);
        validate::freshen(&mut fields, &new);
        let received = unix_millis();
        fields.entry(header::DATE).or_insert_with(|| crate::clock::date(received));
        let request = &self.headers;
        let exchange = Exchange {
            method: &Method::GET,
            request,
            status: hit.head.status,
            response: &fields,
            sent,
            received,
            for_origin: self.target.side.is_for_origin(),
        };
        match self.target.action.admit(&exchange, &proxy.config.cache) {
            Ok(policy) => {
                let new = keep::Fresh { fields: &fields, policy, received };
                if let Some(written) = keep::freshen(proxy, &self.target.key, &begun, hit, &new, &self.hints()).await {
                    drop(tokio::spawn(async move {
                        written.await;
                        drop(begun);
                    }));
                }
            }
            // An answer to one client's credentials says nothing of what everybody gets.
            Err(NotStored::Authorization) => {}
            Err(why) => {
                self.worker.counters.not_stored.one(why);
                taking::drop_response(proxy, &self.target.key, &hit.key).await;
            }
        }
    }

    /// The origin's response, passed on.
    pub(crate) fn passed(&self, response: Response<Arriving>, fwd: &str, detail: &'static str) -> Answer {
        let (parts, body) = response.into_parts();
        let mut answer = self.head_of(parts, fwd, detail);
        if self.method != Method::HEAD {
            answer.kind = Kind::Origin(Box::new(Passed::new(body, &self.worker.proxy.config.limits)));
        }
        answer
    }

    /// Its head.
    pub(super) fn head_of(&self, mut parts: http::response::Parts, fwd: &str, detail: &'static str) -> Answer {
        let trailer = parts.headers.get(header::TRAILER).cloned();
        self.clean(&mut parts);
        // hyper passes on the trailers that are named here, behind chunks and to who asked for them.
        if let Some(trailer) = trailer.filter(|_| self.takes_trailers) {
            parts.headers.insert(header::TRAILER, trailer);
        }
        let mut status = format!("picaflor; fwd={fwd}; fwd-status={}", parts.status.as_u16());
        if !detail.is_empty() {
            status.push_str("; detail=");
            status.push_str(detail);
        }
        parts.headers.append(&CACHE_STATUS, validate::text(status));
        Answer::new(parts, Kind::Empty, Outcome::Bypass).because(detail)
    }

    async fn invalidate(&self, answered: &HeaderMap) {
        let mut keys = vec![self.target.key.clone()];
        for name in [header::LOCATION, header::CONTENT_LOCATION] {
            keys.extend(answered.get_all(name).iter().filter_map(|value| self.target.sibling(value)));
        }
        let others: Vec<_> = keys.iter().filter_map(|key| key::by_the_other_scheme(key)).collect();
        keys.extend(others);
        keys.sort_unstable();
        keys.dedup();
        for name in tags::invalidated(answered) {
            taking::invalidate_group(&self.worker.proxy, &self.target.key, &name);
        }
        // Where the store cannot delete it, it is not served any more: the request has succeeded all the same.
        let _ = taking::invalidate(&self.worker.proxy, keys).await;
    }
}
