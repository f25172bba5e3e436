//! The task that asks the origin for a GET, for the sake of one request or of many.
//!
//! 1. Send, with our own conditions when something stale is stored.
//! 2. Decide what the head means, and say so: confirmed, streaming, for one alone, server error, failed.
//! 3. Streaming: each piece goes to the store and to the readers; at the end the response is stored.
//!
//! It runs on its own, so no client that leaves can end it; only when all have left, and much is still to come, does
//! it stop. Whatever happens, the verdict is given and the fill is ended: nobody waits for ever.

use std::{sync::Arc, time::Duration};

use http::{HeaderMap, Method, Response, StatusCode, header};
use tokio::sync::oneshot;

use crate::{
    clock::date,
    clock::unix_millis,
    config::Size,
    fill::{Fill, FillHead, Verdict},
    head::Index,
    keep::{self, Fresh, Hints, Keeper},
    key, lookup,
    lookup::Hit,
    origin::{self, Arriving, Interim},
    passed::Passed,
    proxy::Worker,
    purge::{sequence::Begun, tags, taking},
    reason::{Broken, NotStored},
    rules::{
        self, Policy,
        admit::{self, Exchange},
        validate, vary,
    },
    target::Target,
};

/// A GET to be made.
pub(crate) struct Job {
    pub(crate) worker: Arc<Worker>,
    pub(crate) target: Arc<Target>,
    /// The first request's end-to-end fields, without its conditions and ranges, with what we add.
    pub(crate) request: HeaderMap,
    /// Its fields without what we add: `Vary` selects by these, for these are what later requests are compared by.
    pub(crate) client: HeaderMap,
    /// What is stored and needs confirmation.
    pub(crate) stale: Option<Hit>,
    pub(crate) fill: Arc<Fill>,
    pub(crate) hints: Hints,
    /// Where the first request's client is told of interim answers.
    pub(crate) interim: Option<Interim>,
    /// The request asked for a range; a body larger than `cache.range_whole_max` is then not fetched whole.
    pub(crate) for_range: bool,
}

/// A response that only the first request may have.
pub(crate) type Alone = oneshot::Receiver<Response<Arriving>>;

/// Starts it.
pub(crate) fn spawn(job: Job) -> Alone {
    let (sender, receiver) = oneshot::channel();
    job.worker.counters.fills.add(1);
    tokio::spawn(async move {
        let ending = Ending { worker: job.worker.clone(), target: job.target.clone(), fill: job.fill.clone() };
        run(job, sender).await;
        drop(ending);
    });
    receiver
}

/// Gives a verdict and an end where `run` did not come to it, and lets later requests begin anew.
struct Ending {
    worker: Arc<Worker>,
    target: Arc<Target>,
    fill: Arc<Fill>,
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.worker.proxy.fills.leave(&self.target.key, &self.fill);
        self.fill.abandon();
        self.worker.counters.fills_ended.add(1);
    }
}

async fn run(job: Job, alone: oneshot::Sender<Response<Arriving>>) {
    let worker = job.worker.clone();
    // Until the end of all this, or what a purge looks for could come after it has looked.
    let begun = Arc::new(worker.proxy.purges.begin(&job.target.key));
    let asking = job.stale.as_ref().and_then(|hit| {
        let mut headers = job.request.clone();
        validate::validators(&hit.fields(), &mut headers).then_some(headers)
    });
    let headers = asking.as_ref().unwrap_or(&job.request);
    let mut sent = unix_millis();
    let mut result = worker.pools.get(&job.target, &Method::GET, headers, job.interim.as_ref()).await;
    if asking.is_some()
        && let (Ok(response), Some(stale)) = (&result, &job.stale)
        && response.status() == StatusCode::NOT_MODIFIED
    {
        if validate::confirms(&stale.fields(), response.headers()) {
            return confirmed(&job, stale, response.headers(), &begun, sent).await;
        }
        // It confirms something we do not have. Its turn is over before the next one begins.
        drop(result);
        sent = unix_millis();
        result = worker.pools.get(&job.target, &Method::GET, &job.request, job.interim.as_ref()).await;
    }
    let response = match result {
        Ok(mut response) => {
            job.target.action.on_response(response.headers_mut());
            response
        }
        Err(why) => {
            worker.counters.no_answer(why);
            return job.fill.decide(Verdict::Failed(why));
        }
    };
    if job.stale.is_some() && rules::is_server_error(response.status()) {
        job.fill.decide(Verdict::ServerError);
        let _ = alone.send(response);
        return;
    }
    if fresh_stays(&job, &response).await {
        worker.counters.not_stored.one(NotStored::FreshStays);
        job.fill.decide(Verdict::Alone(NotStored::FreshStays));
        let _ = alone.send(response);
        return;
    }
    match prepare(&job, &response, &begun, sent).await {
        Ok(keeper) => {
            let head = keeper.head().clone();
            if !keeper.is_on() {
                job.fill.give_up_storing();
            }
            job.fill.decide(Verdict::Streaming(head.clone()));
            stream(&job, response.into_body(), keeper).await;
        }
        Err(why) => {
            worker.counters.not_stored.one(why);
            drop_stale(&job, why).await;
            worker.proxy.unshared.remember(&job.fill.key, why);
            job.fill.decide(Verdict::Alone(why));
            let _ = alone.send(response);
        }
    }
}

/// Whether the response is an error that says nothing of its lifetime, and something fresh is stored: then any client
/// that has the origin asked, or finds a request that it does not like, could put the error in its place. 410 is meant.
async fn fresh_stays(job: &Job, response: &Response<Arriving>) -> bool {
    let (proxy, status, now) = (&job.worker.proxy, response.status(), unix_millis());
    let is_error = (status.is_client_error() || status.is_server_error()) && status != StatusCode::GONE;
    is_error
        && !admit::has_lifetime(response.headers(), job.target.side.is_for_origin(), now)
        && lookup::has_fresh(proxy.stored(), &job.target.key, now).await
}

/// What was stored has been replaced by something that must not be. An answer to one client's credentials replaces
/// nothing.
async fn drop_stale(job: &Job, why: NotStored) {
    if let Some(stale) = &job.stale
        && why != NotStored::Authorization
    {
        taking::drop_response(&job.worker.proxy, &job.target.key, &stale.key).await;
    }
}

/// The stored response lives on with the fields of the 304.
async fn confirmed(job: &Job, stale: &Hit, not_modified: &HeaderMap, begun: &Begun, sent: u64) {
    let proxy = &job.worker.proxy;
    let received = unix_millis();
    let mut fields = stale.fields();
    let mut new = not_modified.clone();
    origin::strip_hop_by_hop(&mut new);
    job.target.action.on_response(&mut new);
    validate::freshen(&mut fields, &new);
    fields.entry(header::DATE).or_insert_with(|| date(received));
    let exchange = Exchange {
        method: &Method::GET,
        request: &job.request,
        status: stale.head.status,
        response: &fields,
        sent,
        received,
        for_origin: job.target.side.is_for_origin(),
    };
    let admitted = admit::admit(&exchange, &proxy.config.cache);
    let admitted = job.target.action.on_policy(admitted, exchange.status, received);
    let mut written = None;
    let policy = match admitted {
        Ok(policy) => {
            // One that is to be confirmed each time as it is need not be written each time.
            if policy.lifetime > 0 || !policy.no_cache {
                let new = Fresh { fields: &fields, policy, received };
                written = Some(keep::freshen(proxy, &job.target.key, begun, stale, &new, &job.hints));
            }
            policy
        }
        Err(why) => {
            // The 304 forbids what was allowed: this answer is the last from it, and its fields are one client's.
            job.worker.counters.not_stored.one(why);
            drop_stale(job, why).await;
            proxy.unshared.remember(&job.fill.key, why);
            Policy { birth: received, lifetime: 0, no_cache: true, must_revalidate: true, ..stale.head.policy }
        }
    };
    let mut hit = stale.clone();
    hit.head.policy = policy;
    hit.head.received = received;
    job.fill.decide(Verdict::Confirmed(hit, Arc::new(fields), admitted.err()));
    if let Some(written) = written {
        written.await;
    }
}

/// Whether and how the response is stored.
async fn prepare(job: &Job, response: &Response<Arriving>, begun: &Arc<Begun>, sent: u64) -> Result<Keeper, NotStored> {
    let proxy = &job.worker.proxy;
    let received = unix_millis();
    let mut fields = response.headers().clone();
    let len = http_body::Body::size_hint(response.body()).exact();
    let exchange = Exchange {
        method: &Method::GET,
        request: &job.request,
        status: response.status(),
        response: &fields,
        sent,
        received,
        for_origin: job.target.side.is_for_origin(),
    };
    let admitted = admit::admit(&exchange, &proxy.config.cache);
    let (policy, not_stored) = match job.target.action.on_policy(admitted, exchange.status, received) {
        Ok(policy) => (policy, None),
        Err(NotStored::NoFreshness) if is_for_all_who_wait(&job.client, response) => {
            let policy = Policy { no_cache: true, must_revalidate: true, ..Policy::of(received, 0) };
            (policy, Some(NotStored::NoFreshness))
        }
        Err(why) => return Err(why),
    };
    let largest = if job.for_range { proxy.config.cache.range_whole_max } else { Size(u64::MAX) };
    let longest = job.target.action.max_object.unwrap_or(proxy.config.cache.max_object.0);
    if len.is_some_and(|len| len > largest.0.min(longest)) {
        return Err(NotStored::TooLarge);
    }
    let tags = tags::of(&fields, &job.target.key)?;
    let names = vary::names(&fields, exchange.for_origin).ok_or(NotStored::VaryStar)?;
    let values = vary::values(&names, &job.client);
    let (key, variant) = if names.is_empty() {
        (job.target.key.clone(), None)
    } else {
        let index = match lookup::index(&proxy.store, &job.target.key).await {
            Some(index) if index.names == names => index,
            _ => Index {
                nonce: proxy.purges.nonce(&job.target.key, begun.seq, &names),
                names: names.clone(),
                variants: vec![],
            },
        };
        let hash = key::variant_hash(index.nonce, values.iter().map(Vec::as_slice));
        (key::variant(&job.target.key, hash), Some((index, hash)))
    };
    origin::strip_hop_by_hop(&mut fields);
    origin::add_via(&mut fields, &proxy.via);
    fields.entry(header::DATE).or_insert_with(|| date(received));
    let is_error = not_stored.is_some();
    let head = FillHead { status: response.status(), fields, policy, received, len, key, names, values, is_error };
    let mut keeper = Keeper::new(
        job.worker.clone(),
        job.target.key.clone(),
        Arc::new(head),
        (begun.clone(), tags),
        variant,
        &job.hints,
    );
    keeper.longest = longest;
    if let Some(why) = not_stored {
        keeper.off(&job.fill, why);
    }
    Ok(keeper)
}

/// Whether a response that is not stored is still the answer to all requests that wait for it: an error, for an origin
/// that fails is not to be asked by each of them, or where to go for the moment. What credentials or cookies were sent
/// with, or brought, may be for one client.
fn is_for_all_who_wait(client: &HeaderMap, response: &Response<Arriving>) -> bool {
    let status = response.status();
    (rules::is_server_error(status) || matches!(status, StatusCode::FOUND | StatusCode::TEMPORARY_REDIRECT))
        && !rules::is_personal(client)
        && !response.headers().contains_key(header::SET_COOKIE)
}

/// Body to store and readers.
async fn stream(job: &Job, arriving: Arriving, mut keeper: Keeper) {
    let config = &job.worker.proxy.config;
    let counters = &job.worker.counters;
    let patience = config.cache.collapse_patience.0.max(Duration::from_millis(1));
    let mut body = Passed::new(arriving, &config.limits);
    let (mut unheard, begun, head) = (0, tokio::time::Instant::now(), keeper.head().clone());
    let broken = loop {
        let bytes = match std::future::poll_fn(|cx| body.poll(cx, counters)).await {
            Some(Ok(frame)) => match frame.into_data() {
                Ok(bytes) => bytes,
                // Trailers are of this transfer, and no part of what is stored (RFC 9111 3.1).
                Err(_) => continue,
            },
            Some(Err(broken)) => break Some(broken),
            None => break None,
        };
        let len = bytes.len() as u64;
        keeper.add(&job.fill, &bytes).await;
        if !job.fill.push(bytes) {
            counters.throttled.add(1);
        }
        let readers = job.fill.room(patience).await;
        counters.left_behind.add(readers.dropped as u64);
        unheard = if readers.left == 0 { unheard + len } else { 0 };
        if readers.left == 0 && (!keeper.is_on() || unheard > config.cache.abandoned_max.0) {
            break Some(Broken::Abandoned);
        }
    };
    match broken {
        Some(broken) => {
            counters.not_stored.one(NotStored::Truncated);
            job.fill.end(Err(broken), false);
        }
        None => {
            let result = keeper.finish(&job.fill).await;
            if let Err(why) = result {
                counters.not_stored.one(why);
                // What clients were given is newer. A store that failed goes on with what it has.
                if job.worker.proxy.store.failures().is_empty() {
                    drop_stale(job, why).await;
                }
            }
            // New requests find the stored response; until now they could join.
            if head.is_error && job.target.side.is_for_origin() && rules::says_nothing(&head.fields) {
                job.fill.end(Ok(()), false);
                // No stop waits for it.
                while begun.elapsed() < config.cache.error_hold.0 && !job.worker.proxy.is_stopping() {
                    let left = config.cache.error_hold.0.saturating_sub(begun.elapsed());
                    tokio::time::sleep(left.min(Duration::from_millis(50))).await;
                }
            }
            job.worker.proxy.fills.leave(&job.target.key, &job.fill);
            job.fill.end(Ok(()), result.is_ok());
        }
    }
}
