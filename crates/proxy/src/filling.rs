//! What every fetch does that brings a body: it is streamed to the store and to the readers, and comes to an end,
//! whatever happens.

use std::{sync::Arc, time::Duration};

use crate::{
    fill::Fill, keep::Keeper, origin::Arriving, passed::Passed, proxy::Worker, reason::Broken, reason::NotStored,
    target::Target,
};

/// Gives a verdict and an end where `run` did not come to it, and lets later requests begin anew.
pub(crate) struct Ending {
    worker: Arc<Worker>,
    target: Arc<Target>,
    fill: Arc<Fill>,
}

impl Ending {
    pub(crate) fn new(worker: &Arc<Worker>, target: &Arc<Target>, fill: &Arc<Fill>) -> Self {
        worker.counters.fills.add(1);
        Self { worker: worker.clone(), target: target.clone(), fill: fill.clone() }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.worker.proxy.fills.leave(&self.target.key, &self.fill);
        self.fill.abandon();
        self.worker.counters.fills_ended.add(1);
    }
}

/// All has come, or it broke off, and the store has it or not: later requests look there.
pub(crate) fn end(
    worker: &Worker,
    url_key: &[u8],
    fill: &Arc<Fill>,
    result: Result<(), Broken>,
    stored: Result<(), NotStored>,
) {
    if let Err(why) = stored {
        worker.counters.not_stored.one(why);
    }
    worker.proxy.fills.leave(url_key, fill);
    fill.end(result, stored.is_ok());
}

/// Body to store and readers. With no reader left, it goes on for `unheard_max` bytes.
pub(crate) async fn stream(
    worker: &Worker,
    fill: &Fill,
    arriving: Arriving,
    mut keeper: Keeper,
    unheard_max: u64,
) -> Result<Keeper, Broken> {
    let (config, counters) = (&worker.proxy.config, &worker.counters);
    let patience = config.cache.collapse_patience.0.max(Duration::from_millis(1));
    let mut body = Passed::new(arriving, &config.limits);
    let mut unheard = 0;
    loop {
        let bytes = match std::future::poll_fn(|cx| body.poll(cx, counters)).await {
            Some(frame) => match frame?.into_data() {
                Ok(bytes) => bytes,
                // Trailers are of this transfer, and no part of what is stored (RFC 9111 3.1).
                Err(_) => continue,
            },
            None => return Ok(keeper),
        };
        let len = bytes.len() as u64;
        keeper.add(fill, &bytes).await;
        if !fill.push(bytes) {
            counters.throttled.add(1);
        }
        let readers = fill.room(patience).await;
        counters.left_behind.add(readers.dropped as u64);
        unheard = if readers.left == 0 { unheard + len } else { 0 };
        if readers.left == 0 && (!keeper.is_on() || unheard > unheard_max) {
            return Err(Broken::Abandoned);
        }
    }
}
