//! The task that fetches one slice of an object of which the head is known, for all requests that want it.
//!
//! What comes is that slice of that version, or there is another version: then the head goes, so that the next request
//! begins with what there is now.

use std::sync::Arc;

use http::{HeaderMap, Method, Response, StatusCode, header};

use crate::{
    clock::unix_millis,
    fill::Fill,
    filling::{Ending, end, stream},
    keep::{Hints, Keeper},
    key,
    origin::Arriving,
    proxy::Worker,
    purge::{sequence::Begun, tags, taking},
    reason::NotStored,
    rules::{Policy, admit::Exchange},
    slices::{self, Manifest},
    target::Target,
    verdict::{FillHead, Verdict},
};

/// A slice to be fetched.
#[derive(Clone)]
pub(crate) struct SliceJob {
    pub(crate) worker: Arc<Worker>,
    pub(crate) target: Arc<Target>,
    /// As of every fetch: without conditions and ranges, with what we add.
    pub(crate) request: HeaderMap,
    pub(crate) manifest: Arc<Manifest>,
    pub(crate) hints: Hints,
}

/// Starts fetching it; `arriving` is what has come of it already, asked for when that began.
pub(crate) fn spawn(job: SliceJob, n: u64, fill: Arc<Fill>, arriving: Option<(Response<Arriving>, Arc<Begun>)>) {
    let ending = Ending::new(&job.worker, &job.target, &fill);
    // Boxed: a task is moved several times before it runs.
    tokio::spawn(Box::pin(async move {
        match arriving {
            Some((response, begun)) => came(&job, n, response, &fill, begun).await,
            None => ask(&job, n, &fill).await,
        }
        drop(ending);
    }));
}

/// Asks for a slice of a version that is known.
async fn ask(job: &SliceJob, n: u64, fill: &Arc<Fill>) {
    let SliceJob { worker, target, manifest, .. } = job;
    let begun = Arc::new(worker.proxy.purges.begin(&target.key));
    let mut headers = job.request.clone();
    headers.insert(header::RANGE, slices::field(&manifest.slicing.range(n)));
    let mut response = match worker.pools.get(target, &Method::GET, &headers, None).await {
        Ok(response) => response,
        Err(why) => {
            worker.counters.no_answer(why);
            return fill.decide(Verdict::Failed(why));
        }
    };
    target.action.on_response(response.headers_mut());
    let (status, received) = (response.status(), unix_millis());
    let exchange = Exchange {
        method: &Method::GET,
        request: &job.request,
        status: StatusCode::OK,
        response: response.headers(),
        sent: received,
        received,
        for_origin: target.side.is_for_origin(),
    };
    if manifest.has(n, &response) && target.action.admit(&exchange, &worker.proxy.config.cache).is_ok() {
        return came(job, n, response, fill, begun).await;
    }
    // A refusal that says nothing of the object leaves it as it is.
    let is_another = status.is_success() || matches!(status.as_u16(), 404 | 410 | 416);
    if is_another {
        taking::drop_sliced(&worker.proxy, &target.key, &manifest.key, manifest.slicing).await;
    }
    fill.decide(if is_another { Verdict::Changed } else { Verdict::ServerError });
}

/// The slice that has come to its readers and into the store, though no reader may be left: it is not long.
async fn came(job: &SliceJob, n: u64, response: Response<Arriving>, fill: &Arc<Fill>, begun: Arc<Begun>) {
    let SliceJob { worker, target, manifest, hints, .. } = job;
    let (slicing, received, range) = (manifest.slicing, unix_millis(), manifest.slicing.range(n));
    let Ok(tags) = tags::of(response.headers(), &target.key) else { return fill.decide(Verdict::Changed) };
    let mut fields = HeaderMap::new();
    let described = [header::ETAG, header::LAST_MODIFIED, header::CONTENT_RANGE, header::CONTENT_ENCODING];
    for name in described.into_iter().chain([header::DATE]) {
        fields.extend(response.headers().get(&name).map(|value| (name, value.clone())));
    }
    // How long it counts its head says.
    let policy = Policy { no_cache: true, ..Policy::of(received, 0) };
    let head = FillHead {
        status: response.status(),
        fields,
        policy,
        received,
        len: Some(range.end - range.start),
        key: key::slice(&manifest.key, slicing.nonce, n),
        names: vec![],
        values: vec![],
        is_error: false,
        slicing: None,
    };
    let head = Arc::new(head);
    let mut keeper = Keeper::new(worker.clone(), target.key.clone(), head.clone(), (begun, tags), None, hints);
    keeper.longest = u64::MAX;
    if !keeper.is_on() {
        fill.give_up_storing();
    }
    fill.decide(Verdict::Streaming(head));
    let streamed = stream(worker, fill, response.into_body(), keeper, u64::MAX).await;
    let (result, stored) = match streamed {
        Ok(keeper) => (Ok(()), keeper.finish(fill).await),
        Err(broken) => (Err(broken), Err(NotStored::Truncated)),
    };
    end(worker, &target.key, fill, result, stored);
}
