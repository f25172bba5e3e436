//! How many requests one origin has at one time, all workers together, and how many wait for their turn: an origin that
//! takes few is not asked more of it, and a slow one does not gather all requests of the proxy.
//!
//! A request has its turn from when it is sent to when the body of its answer has come or is given up. It waits for it
//! in the order of coming, for no longer than `limits.connect_timeout`.

use std::{
    collections::HashMap,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::Duration,
};

use http::uri::Authority;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::config::LimitsConfig;

/// More origins than these are remembered only while they are asked.
const MOST: usize = 4096;

struct Queue {
    turns: Arc<Semaphore>,
    waiting: AtomicUsize,
}

/// The turns of all origins.
pub(crate) struct Turns {
    /// For each origin; where it is not bounded nothing is counted.
    most: Option<usize>,
    most_waiting: usize,
    patience: Duration,
    origins: Mutex<HashMap<Authority, Arc<Queue>>>,
}

/// One request's turn, until it is dropped.
#[derive(Debug, Default)]
pub(crate) struct Turn {
    _permit: Option<OwnedSemaphorePermit>,
}

impl Turns {
    pub(crate) fn new(limits: &LimitsConfig) -> Self {
        Self {
            most: limits.origin_connections,
            most_waiting: limits.origin_waiting,
            patience: limits.connect_timeout.0,
            origins: Mutex::default(),
        }
    }

    /// Waits for a turn; `None` if too many wait, or it does not come in time.
    pub(crate) async fn take(&self, origin: &Authority) -> Option<Turn> {
        let Some(most) = self.most else { return Some(Turn::default()) };
        let queue = self.queue(origin, most);
        let turns = queue.turns.clone();
        if let Ok(permit) = turns.clone().try_acquire_owned() {
            return Some(Turn { _permit: Some(permit) });
        }
        let waiting = Waiting(&queue);
        if queue.waiting.fetch_add(1, Relaxed) >= self.most_waiting {
            return None;
        }
        let permit = tokio::time::timeout(self.patience, turns.acquire_owned()).await;
        drop(waiting);
        Some(Turn { _permit: Some(permit.ok()?.ok()?) })
    }

    fn queue(&self, origin: &Authority, most: usize) -> Arc<Queue> {
        let mut origins = self.origins.lock();
        if origins.len() >= MOST {
            origins.retain(|_, queue| Arc::strong_count(queue) > 1 || queue.turns.available_permits() < most);
        }
        let new = || Arc::new(Queue { turns: Arc::new(Semaphore::new(most)), waiting: AtomicUsize::new(0) });
        origins.entry(origin.clone()).or_insert_with(new).clone()
    }
}

struct Waiting<'a>(&'a Queue);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.waiting.fetch_sub(1, Relaxed);
    }
}
