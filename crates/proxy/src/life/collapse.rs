//! Fetching together: the first request that needs a URL starts the fetch, the others wait for its verdict and read
//! what it brings; those it does not fit fetch for themselves.

use std::sync::Arc;

use http::{StatusCode, header};

use super::{ask::Ask, slices::SLICES};
use crate::{
    clock::unix_millis,
    fetch::{self, Alone, Job},
    fill::{Cursor, Fill},
    fills::Role,
    keep,
    lookup::{self, Found, Hit},
    reader::Reader,
    reason::{Bypass, NotStored, OriginFailure, Outcome},
    respond::{Answer, Source, SourceBody, failed, respond},
    rules::{self, Failure, Reuse, validate, vary},
    sliced::Slices,
    slices::First,
    verdict::{FillHead, Verdict},
};

impl Ask {
    /// A GET that the store cannot answer as it is.
    pub(crate) async fn fetch(&self, key: Vec<u8>, stale: Option<Hit>, fwd: &'static str) -> Answer {
        let (worker, target) = (self.worker.clone(), self.target.clone());
        let proxy = &worker.proxy;
        let authorized = self.headers.contains_key(header::AUTHORIZATION).then_some(Bypass::Authorization);
        let unshared = proxy.unshared.recently(&key).or(authorized);
        if let Some(why) = unshared.filter(|_| self.is_particular() && stale.is_none()) {
            return Box::pin(self.pass_empty(why)).await;
        }
        if unshared.is_none() {
            match proxy.fills.enter(&target.key, &key, self.asked.is_for_new()) {
                Role::First(beginning) => {
                    // Between our look into the store and this, another fetch may have ended.
                    if let Some(hit) = self.look_again(stale.as_ref()).await {
                        return self.fresh(&hit);
                    }
                    let fill = beginning.begun();
                    return self.first(fill, stale, fwd).await;
                }
                Role::Waiter(fill) => {
                    let Some(cursor) = fill.join() else {
                        return Box::pin(self.late(&fill)).await;
                    };
                    if let Some(answer) = Box::pin(self.waiter(&fill, cursor, stale.as_ref(), fwd)).await {
                        return answer;
                    }
                    self.worker.counters.bypasses.one(Bypass::CollapseMismatch);
                }
            }
        }
        let fill = proxy.fills.alone(&key);
        self.first(fill, stale, fwd).await
    }

    /// Whether it asks for less than the whole response.
    fn is_particular(&self) -> bool {
        validate::CONDITIONS.iter().any(|name| self.headers.contains_key(name))
    }

    /// The beginning has gone by: the store will have it soon, or only the origin has it.
    async fn late(&self, fill: &Fill) -> Answer {
        if fill.over(self.worker.proxy.config.cache.collapse_patience.0).await
            && let Some(hit) = self.look_again(None).await
        {
            return self.fresh(&hit);
        }
        self.pass_empty(Bypass::CollapseLate).await
    }

    /// A fresh response in the store, other than the one that is known to be stale.
    async fn look_again(&self, stale: Option<&Hit>) -> Option<Hit> {
        let found = lookup::find(self.worker.proxy.stored(), &self.target.key, &self.headers).await;
        let Found::Hit(hit) = found else { return None };
        let other = stale.is_none_or(|stale| stale.head.received != hit.head.received) && self.has_body(&hit);
        (other && hit.head.policy.reuse(&self.asked, unix_millis()) == Reuse::Fresh).then_some(hit)
    }

    fn job(&self, fill: &Arc<Fill>, stale: Option<Hit>) -> Job {
        Job {
            worker: self.worker.clone(),
            target: self.target.clone(),
            request: self.outgoing_for_all(),
            client: self.headers.clone(),
            stale,
            fill: fill.clone(),
            hints: self.hints(),
            interim: Some(self.interim.clone()),
            slices: self.first_slice(&fill.key),
            for_range: self.headers.contains_key(header::RANGE),
        }
    }

    /// What of an object that is wanted in slices is asked for first. An answer to credentials is seldom shared.
    fn first_slice(&self, key: &[u8]) -> Option<First> {
        let size = self.target.action.slice.filter(|_| !self.headers.contains_key(header::AUTHORIZATION))?;
        let is_new = self.worker.proxy.unshared.recently(key).is_none();
        is_new.then(|| First::new(size, self.headers.get(header::RANGE)))
    }

    /// `stale-while-revalidate`: unless that is being done already. What it brings is for all clients, so it is not
    /// asked for in this client's name.
    pub(crate) fn revalidate_behind(&self, hit: &Hit) {
        if let Role::First(beginning) = self.worker.proxy.fills.enter(&self.target.key, &hit.key, false) {
            let fill = beginning.begun();
            let mut job = self.job(&fill, Some(hit.clone()));
            job.request.remove(header::AUTHORIZATION);
            job.interim = None;
            drop(fetch::spawn(job));
        }
    }

    /// Runs the fetch and answers from it.
    async fn first(&self, fill: Arc<Fill>, stale: Option<Hit>, fwd: &'static str) -> Answer {
        let Some(cursor) = fill.join() else { return failed(OriginFailure::Closed.into()) };
        let response = fetch::spawn(self.job(&fill, stale.clone()));
        match fill.verdict().await {
            Verdict::Streaming(head) => {
                // One without a length may yet turn out too large.
                let stored = if head.len.is_some() && fill.is_kept() { "; stored" } else { "" };
                let status = format!("picaflor; fwd={fwd}; fwd-status={}{stored}", head.status.as_u16());
                self.arriving(&head, cursor, false, &status, Outcome::Miss)
            }
            Verdict::Sliced(head) => self.sliced(&head, false, fwd),
            Verdict::Confirmed(hit, fields, _) => self.revalidated(&hit, &fields, fwd),
            Verdict::Alone(why) if self.is_particular() => {
                // It was asked for whole, to be stored; as it is not, this client's own words count.
                drop(response);
                let why = match why {
                    NotStored::TooLarge if self.headers.contains_key(header::RANGE) => Bypass::RangeTooLarge,
                    NotStored::Authorization => Bypass::Authorization,
                    why => Bypass::like(why),
                };
                Box::pin(self.pass_empty(why)).await
            }
            Verdict::Alone(why) => self.alone(response, fwd, why.name()).await,
            Verdict::ServerError => match &stale {
                Some(hit) if self.survives(hit, Failure::ServerError) => self.stale(hit, "stale-if-error"),
                _ => self.alone(response, fwd, "status").await,
            },
            Verdict::Failed(failure) => self.without_origin(stale.as_ref(), failure),
            Verdict::Waiting | Verdict::Stored | Verdict::Changed => failed(OriginFailure::Closed.into()),
        }
    }

    /// Answers from another request's fetch; `None` when it is not for this request.
    async fn waiter(&self, fill: &Arc<Fill>, cursor: Cursor, stale: Option<&Hit>, fwd: &'static str) -> Option<Answer> {
        match fill.verdict().await {
            Verdict::Streaming(head) => {
                let fits = vary::values(&head.names, &self.headers) == head.values
                    && !(head.is_error && rules::is_personal(&self.headers));
                let status = format!("picaflor; fwd={fwd}; fwd-status={}; collapsed", head.status.as_u16());
                fits.then(|| self.arriving(&head, cursor, true, &status, Outcome::Collapsed))
            }
            Verdict::Sliced(head) => {
                let fits = vary::values(&head.names, &self.headers) == head.values;
                fits.then(|| self.sliced(&head, true, fwd))
            }
            Verdict::Confirmed(hit, fields, None) => Some(self.revalidated(&hit, &fields, fwd)),
            Verdict::ServerError => {
                let hit = stale.filter(|hit| self.survives(hit, Failure::ServerError))?;
                Some(self.stale(hit, "stale-if-error"))
            }
            // Asking again at once would end the same way.
            Verdict::Failed(why) => Some(self.without_origin(stale, why)),
            Verdict::Stored => self.look_again(stale).await.map(|hit| self.fresh(&hit)),
            Verdict::Confirmed(_, _, Some(_)) | Verdict::Alone(_) | Verdict::Waiting | Verdict::Changed => None,
        }
    }

    fn arriving(&self, head: &FillHead, cursor: Cursor, shared: bool, status: &str, outcome: Outcome) -> Answer {
        let mut reader = Reader::new(cursor, &self.worker.proxy.store);
        // It may be left behind, and go on from the store.
        if let Some(len) = head.len.filter(|len| *len > keep::SMALL) {
            reader.or_from(self.rest(&head.fields, len));
        }
        let source = Source::arriving(head, SourceBody::Fill(Box::new(reader)), shared, unix_millis());
        let (parts, kind) = respond(source, &self.method, &self.headers, status);
        Answer::new(parts, kind, outcome)
    }

    /// Of an object whose head has come with a slice of it.
    fn sliced(&self, head: &FillHead, shared: bool, fwd: &'static str) -> Answer {
        let Some(slices) = head.slicing.and_then(|slicing| self.slices(&head.key, slicing, &head.fields)) else {
            return failed(OriginFailure::Closed.into());
        };
        let slices = Slices { is_first: !shared, ..slices };
        let source = Source::arriving(head, SourceBody::Sliced(slices), shared, unix_millis());
        let how = if shared { "collapsed" } else { "stored" };
        let outcome = if shared { Outcome::Collapsed } else { Outcome::Miss };
        let status = format!("picaflor; fwd={fwd}; fwd-status=206; {how}; detail={SLICES}");
        let (parts, kind) = respond(source, &self.method, &self.headers, &status);
        Answer::new(parts, kind, outcome).because(SLICES)
    }

    fn revalidated(&self, hit: &Hit, fields: &http::HeaderMap, fwd: &str) -> Answer {
        let now = unix_millis();
        let ttl = hit.head.policy.remaining(now).div_euclid(1000);
        let mut source = self.source(hit, now);
        let age = source.fields.remove(header::AGE);
        source.fields = fields.clone();
        if let Some(age) = age {
            source.fields.insert(header::AGE, age);
        }
        let status = format!("picaflor; fwd={fwd}; fwd-status={}; ttl={ttl}", StatusCode::NOT_MODIFIED.as_u16());
        self.stored(hit, source, &status, Outcome::Revalidated)
    }

    /// A response that only this request may have.
    async fn alone(&self, response: Alone, fwd: &str, why: &'static str) -> Answer {
        match response.await {
            Ok(response) => {
                let mut answer = self.passed(response, fwd, why);
                answer.outcome = Outcome::Miss;
                answer
            }
            Err(_) => failed(OriginFailure::Closed.into()),
        }
    }
}
