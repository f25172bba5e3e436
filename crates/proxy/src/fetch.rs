//! The task that asks the origin for a GET, for the sake of one request or of many.
//!
//! 1. Send, with our own conditions when something stale is stored.
//! 2. Decide what the head means, and say so: confirmed, streaming, for one alone, server error, failed.
//! 3. Streaming: each piece goes to the store and to the readers; at the end the response is stored.
//! 4. Where slices are wanted, the first request is for one of them. What comes is then two things: the head of the
//!    whole, which is stored without a body, and the slice, which streams on as a fetch of its own. An origin that
//!    sends no part, or one that may be of any version, is asked as without.
//!
//! It runs on its own, so no client that leaves can end it; only when all have left, and much is still to come, does
//! it stop. Whatever happens, the verdict is given and the fill is ended: no request waits for ever.

use std::{borrow::Cow, mem, sync::Arc, time::Duration};

use http::{HeaderMap, HeaderValue, Method, Response, StatusCode, header};
use tokio::sync::oneshot;

use crate::{
    clock::date,
    clock::unix_millis,
    config::Size,
    fill::Fill,
    filling::{Ending, end, stream},
    fills::Role,
    head::Index,
    keep::{self, Fresh, Hints, Keeper},
    key, lookup,
    lookup::Hit,
    origin::Arriving,
    outgoing::{self, Interim},
    proxy::{Proxy, Worker},
    purge::{sequence::Begun, tags, taking},
    reason::{Broken, NoAnswer, NotStored, SliceOutcome},
    rules::{
        self, Policy,
        admit::{self, Exchange},
        validate, vary,
    },
    slice::{self, SliceJob},
    slices::{self, Came, First, Manifest, Slicing},
    target::Target,
    verdict::{FillHead, Verdict},
};

/// A GET to be made.
pub(crate) struct Job {
    pub(crate) worker: Arc<Worker>,
    pub(crate) target: Arc<Target>,
    /// The first request's end-to-end fields, without its conditions and ranges, with what we add.
    pub(crate) request: HeaderMap,
    /// Its fields without what we add: `Vary` selects by these, for these are what later requests are compared by.
    pub(crate) client: Arc<HeaderMap>,
    /// What is stored and needs confirmation.
    pub(crate) stale: Option<Hit>,
    pub(crate) fill: Arc<Fill>,
    pub(crate) hints: Hints,
    /// Where the first request's client is told of interim answers.
    pub(crate) interim: Option<Interim>,
    /// The object is wanted in slices.
    pub(crate) slices: Option<First>,
    /// The request asked for a range; a body larger than `cache.range_whole_max` is then not fetched whole.
    pub(crate) for_range: bool,
}

/// A response that only the first request may have.
pub(crate) type Alone = oneshot::Receiver<Response<Arriving>>;

/// Starts it.
pub(crate) fn spawn(job: Job) -> Alone {
    let (sender, receiver) = oneshot::channel();
    let ending = Ending::new(&job.worker, &job.target, &job.fill);
    // Boxed: a task is moved several times before it runs.
    tokio::spawn(Box::pin(async move {
        run(&job, sender).await;
        drop(ending);
    }));
    receiver
}

impl Job {
    /// What the origin is asked with, for a part or for all.
    fn headers(&self, first: Option<&First>) -> Cow<'_, HeaderMap> {
        let mut headers = Cow::Borrowed(&self.request);
        if let Some(first) = first {
            headers.to_mut().insert(header::RANGE, slices::field(&first.range));
        }
        headers
    }

    /// Asks it; with when that was.
    async fn ask(&self, headers: &HeaderMap) -> (u64, Result<Response<Arriving>, NoAnswer>) {
        let sent = unix_millis();
        (sent, self.worker.pools.get(&self.target, &Method::GET, headers, self.interim.as_ref()).await)
    }
}

async fn run(job: &Job, alone: oneshot::Sender<Response<Arriving>>) {
    let worker = job.worker.clone();
    // Until the end of all this, or what a purge looks for could come after it has looked.
    let begun = Arc::new(worker.proxy.purges.begin(&job.target.key));
    let first = job.slices.as_ref();
    let asking = job.stale.as_ref().and_then(|hit| {
        let mut headers = job.headers(first);
        validate::validators(&hit.fields(), headers.to_mut()).then_some(headers)
    });
    let is_asking = asking.is_some();
    let (mut sent, mut result) = job.ask(&asking.unwrap_or_else(|| job.headers(first))).await;
    if is_asking
        && let (Ok(response), Some(stale)) = (&result, &job.stale)
        && response.status() == StatusCode::NOT_MODIFIED
    {
        if validate::confirms(&stale.fields(), response.headers()) {
            return Box::pin(confirmed(job, stale, response.headers(), &begun, sent)).await;
        }
        // It confirms something we do not have. Its turn is over before the next one begins.
        drop(result);
        (sent, result) = job.ask(&job.headers(first)).await;
    }
    let told = match job.slices {
        None => arrived(job, result).map(|response| (response, sent)),
        Some(_) => Box::pin(part_or_whole(job, result, sent, &begun)).await,
    };
    let Some((mut response, sent)) = told else { return };
    if job.stale.is_some() && rules::is_server_error(response.status()) {
        job.fill.decide(Verdict::ServerError);
        let _ = alone.send(response);
        return;
    }
    if fresh_stays(job, &response).await {
        worker.counters.not_stored.one(NotStored::FreshStays);
        job.fill.decide(Verdict::Alone(NotStored::FreshStays));
        let _ = alone.send(response);
        return;
    }
    match prepare(job, &mut response, None, &begun, sent).await {
        Ok(keeper) => {
            let head = keeper.head().clone();
            if !keeper.is_on() {
                job.fill.give_up_storing();
            }
            job.fill.decide(Verdict::Streaming(head));
            let (began, unheard_max) = (tokio::time::Instant::now(), worker.proxy.config.cache.abandoned_max.0);
            let streamed = stream(&worker, &job.fill, response.into_body(), keeper, unheard_max).await;
            ended(job, streamed, began).await;
        }
        Err(why) => {
            worker.counters.not_stored.one(why);
            drop_stale(job, why).await;
            worker.proxy.unshared.remember(&job.fill.key, why);
            job.fill.decide(Verdict::Alone(why));
            let _ = alone.send(response);
        }
    }
}

/// An answer as rules want it; without one that is told.
fn arrived(job: &Job, result: Result<Response<Arriving>, NoAnswer>) -> Option<Response<Arriving>> {
    match result {
        Ok(mut response) => {
            job.target.action.on_response(response.headers_mut());
            Some(response)
        }
        Err(why) => {
            job.worker.counters.no_answer(why);
            job.fill.decide(Verdict::Failed(why));
            None
        }
    }
}

/// What there is to tell of, other than slices, and when it was asked for; `None` if all is told. Where no slices can
/// be made of it, it is asked for as without.
async fn part_or_whole(
    job: &Job,
    mut result: Result<Response<Arriving>, NoAnswer>,
    mut sent: u64,
    begun: &Arc<Begun>,
) -> Option<(Response<Arriving>, u64)> {
    let mut first = job.slices.clone();
    loop {
        let mut response = arrived(job, result)?;
        let Some(asked) = first.take() else { return Some((response, sent)) };
        match asked.came(&response) {
            Came::Other => return Some((response, sent)),
            Came::Whole => {
                *response.status_mut() = StatusCode::OK;
                response.headers_mut().remove(header::CONTENT_RANGE);
                return Some((response, sent));
            }
            Came::Part(total) => {
                let cut = Some((asked.size, total));
                if let Ok(keeper) = Box::pin(prepare(job, &mut response, cut, begun, sent)).await
                    && keeper.is_on()
                {
                    Box::pin(sliced(job, response, keeper, &asked, begun.clone())).await;
                    return None;
                }
            }
            Came::Less => first = Some(First::look(asked.size)),
            Came::Unfit => {}
        }
        if first.is_none() {
            job.worker.counters.slices.one(SliceOutcome::Unfit);
        }
        drop(response);
        (sent, result) = job.ask(&job.headers(first.as_ref())).await;
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
    outgoing::strip_hop_by_hop(&mut new);
    job.target.action.on_response(&mut new);
    let known_by = stale.head.slicing.and_then(|_| validate::strong(&fields));
    validate::freshen(&mut fields, &new);
    // A 304 may have a weak one, which says less: slices are told apart by the strong one.
    if let Some((name, value)) = known_by {
        fields.insert(name, value);
    }
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
    let admitted = job.target.action.admit(&exchange, &proxy.config.cache);
    let mut written = None;
    let policy = match admitted {
        Ok(policy) => {
            // One that is to be confirmed each time as it is need not be written each time.
            if policy.lifetime > 0 || !policy.no_cache {
                let new = Fresh { fields: &fields, policy, received };
                written = keep::freshen(proxy, &job.target.key, begun, stale, &new, &job.hints).await;
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

/// Whether and how the response is stored: then its fields are taken. If it is `cut`, a part of a whole, the head of
/// that is: bytes of a slice, and of the whole.
async fn prepare(
    job: &Job,
    response: &mut Response<Arriving>,
    cut: Option<(u64, u64)>,
    begun: &Arc<Begun>,
    sent: u64,
) -> Result<Keeper, NotStored> {
    let proxy = &job.worker.proxy;
    let received = unix_millis();
    let mut fields = Cow::Borrowed(response.headers());
    let (mut status, mut len) = (response.status(), http_body::Body::size_hint(response.body()).exact());
    if let Some((_, total)) = cut {
        // These are of the part that came.
        for name in ["content-range", "content-digest", "content-md5"] {
            fields.to_mut().remove(name);
        }
        (status, len) = (StatusCode::OK, Some(total));
    }
    let exchange = Exchange {
        method: &Method::GET,
        request: &job.request,
        status,
        response: &fields,
        sent,
        received,
        for_origin: job.target.side.is_for_origin(),
    };
    let (policy, not_stored) = match job.target.action.admit(&exchange, &proxy.config.cache) {
        Ok(policy) => (policy, None),
        Err(NotStored::NoFreshness) if is_for_all_who_wait(&job.client, response) => {
            let policy = Policy { no_cache: true, must_revalidate: true, ..Policy::of(received, 0) };
            (policy, Some(NotStored::NoFreshness))
        }
        Err(why) => return Err(why),
    };
    let largest = if job.for_range { proxy.config.cache.range_whole_max } else { Size(u64::MAX) };
    let longest = job.target.action.max_object.unwrap_or(proxy.config.cache.max_object.0);
    if cut.is_none() && len.is_some_and(|len| len > largest.0.min(longest)) {
        return Err(NotStored::TooLarge);
    }
    let tags = tags::of(&fields, &job.target.key)?;
    let names = job.target.action.selecting(&fields, exchange.for_origin).ok_or(NotStored::VaryStar)?;
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
    let mut fields = match fields {
        Cow::Owned(fields) => fields,
        Cow::Borrowed(_) => mem::take(response.headers_mut()),
    };
    outgoing::strip_hop_by_hop(&mut fields);
    outgoing::add_via(&mut fields, &proxy.via);
    fields.entry(header::DATE).or_insert_with(|| date(received));
    let is_error = not_stored.is_some();
    let slicing = cut.and_then(|(size, total)| slicing(proxy, &fields, (size, total), &job.target.key, begun));
    let head = FillHead { status, fields, policy, received, len, key, names, values, is_error, slicing };
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

/// How the version with these fields is cut; with it goes what was stored of another one.
fn slicing(
    proxy: &Proxy,
    fields: &HeaderMap,
    (size, total): (u64, u64),
    url_key: &[u8],
    begun: &Begun,
) -> Option<Slicing> {
    let (name, validator) = validate::strong(fields)?;
    let coding = fields.get(header::CONTENT_ENCODING).map_or(&b""[..], HeaderValue::as_bytes);
    let version = [
        name.to_string(),
        String::from_utf8_lossy(validator.as_bytes()).into_owned(),
        String::from_utf8_lossy(coding).into_owned(),
        format!("{size} {total}"),
    ];
    Some(Slicing { nonce: proxy.purges.nonce(url_key, begun.seq, &version), size, total })
}

/// The first slice has come, and with it the head of the whole, which `keeper` stores.
async fn sliced(job: &Job, response: Response<Arriving>, keeper: Keeper, first: &First, begun: Arc<Begun>) {
    let (proxy, head) = (&job.worker.proxy, keeper.head().clone());
    let Some(manifest) = head.slicing.and_then(|slicing| Manifest::of(&head.key, slicing, &head.fields)) else {
        return;
    };
    let slicing = manifest.slicing;
    // Slices of the version before.
    if let Some(stale) = job.stale.as_ref().filter(|stale| stale.head.slicing.is_some_and(|old| old != slicing)) {
        taking::drop_slices(proxy, &stale.key, &stale.object).await;
    }
    let n = slicing.at(first.range.start);
    if manifest.has(n, &response)
        && let Role::First(beginning) =
            proxy.fills.enter(&job.target.key, &key::slice(&manifest.key, slicing.nonce, n), false)
    {
        let Job { worker, target, request, hints, .. } = job;
        let (worker, target, request, hints) = (worker.clone(), target.clone(), request.clone(), hints.clone());
        let job = SliceJob { worker, target, request, manifest: Arc::new(manifest), hints };
        slice::spawn(job, n, beginning.begun(), Some((response, begun)));
    }
    job.fill.decide(Verdict::Sliced(head));
    let stored = keeper.finish(&job.fill).await;
    end(&job.worker, &job.target.key, &job.fill, Ok(()), stored);
}

/// All has come, or it broke off.
async fn ended(job: &Job, streamed: Result<Keeper, Broken>, began: tokio::time::Instant) {
    let (proxy, counters) = (&job.worker.proxy, &job.worker.counters);
    let config = &proxy.config;
    let keeper = match streamed {
        Ok(keeper) => keeper,
        Err(broken) => {
            counters.not_stored.one(NotStored::Truncated);
            return job.fill.end(Err(broken), false);
        }
    };
    let head = keeper.head().clone();
    let result = keeper.finish(&job.fill).await;
    if let Err(why) = result {
        counters.not_stored.one(why);
        // What clients were given is newer, mostly. A store that failed goes on with what it has.
        if why != NotStored::Superseded && proxy.store.failures().is_empty() {
            drop_stale(job, why).await;
        }
    }
    // New requests find the stored response; until now they could join.
    if head.is_error && job.target.side.is_for_origin() && rules::says_nothing(&head.fields) {
        job.fill.end(Ok(()), false);
        // No stop waits for it.
        while began.elapsed() < config.cache.error_hold.0 && !proxy.is_stopping() {
            let left = config.cache.error_hold.0.saturating_sub(began.elapsed());
            tokio::time::sleep(left.min(Duration::from_millis(50))).await;
        }
    }
    proxy.fills.leave(&job.target.key, &job.fill);
    job.fill.end(Ok(()), result.is_ok());
}
