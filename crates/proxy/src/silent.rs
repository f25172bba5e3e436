//! Origins that say nothing: each request to one costs a client `limits.connect_timeout` or `limits.response_timeout`,
//! so they are remembered for `limits.origin_pause`. Until then nothing is asked of them, and what is stale may be
//! served at once; then one request in each pause tries whether they answer again.
//!
//! An origin is one if it could not be connected to in time, or let two requests in a row go unanswered: a single slow
//! URL makes none.

use std::{
    collections::HashMap,
    time::{Duration, Instant},
};

use http::uri::Authority;
use parking_lot::Mutex;

use crate::reason::OriginFailure;

/// How many origins are remembered at most; more than that have to be found out anew.
const MOST: usize = 4096;

#[derive(Debug, Clone, Copy)]
struct Silence {
    /// Requests that went unanswered in a row.
    unanswered: u32,
    /// When the next request may try; `None` while it may be one slow URL.
    until: Option<Instant>,
}

/// Those that did not answer lately.
#[derive(Debug)]
pub(crate) struct Silent {
    pause: Duration,
    origins: Mutex<HashMap<Authority, Silence>>,
}

impl Silent {
    pub(crate) fn new(pause: Duration) -> Self {
        Self { pause, origins: Mutex::default() }
    }

    /// Whether an origin may be asked at `now`. If it is silent, and its pause is over, this request tries it, and the
    /// others wait for another pause.
    pub(crate) fn may_ask(&self, origin: &Authority, now: Instant) -> bool {
        let mut origins = self.origins.lock();
        match origins.get_mut(origin).and_then(|silence| silence.until.as_mut()) {
            Some(until) if now < *until => false,
            Some(until) => {
                *until = now + self.pause;
                true
            }
            None => true,
        }
    }

    /// Whether it is not asked at `now`, but for the request that tries it.
    pub(crate) fn is_paused(&self, origin: &Authority, now: Instant) -> bool {
        let origins = self.origins.lock();
        origins.get(origin).and_then(|silence| silence.until).is_some_and(|until| now < until)
    }

    /// It has answered, or refused, so it is there.
    pub(crate) fn heard(&self, origin: &Authority) {
        self.origins.lock().remove(origin);
    }

    /// It has not answered in time.
    pub(crate) fn not_heard(&self, origin: &Authority, why: OriginFailure, now: Instant) {
        let mut origins = self.origins.lock();
        if origins.len() >= MOST {
            origins.clear();
        }
        let silence = origins.entry(origin.clone()).or_insert(Silence { unanswered: 0, until: None });
        silence.unanswered += 1;
        if !self.pause.is_zero() && (why == OriginFailure::ConnectTimeout || silence.unanswered > 1) {
            silence.until = Some(now + self.pause);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_origin_that_is_silent_twice_is_tried_once_in_each_pause() {
        let pause = Duration::from_secs(5);
        let (silent, origin, start) = (Silent::new(pause), Authority::from_static("a"), Instant::now());
        silent.not_heard(&origin, OriginFailure::ResponseTimeout, start);
        assert!(silent.may_ask(&origin, start), "it may be one URL");
        silent.not_heard(&origin, OriginFailure::ResponseTimeout, start);
        assert!(!silent.may_ask(&origin, start + pause / 2));
        assert!(silent.is_paused(&origin, start) && !silent.is_paused(&origin, start + pause));
        assert!(silent.may_ask(&Authority::from_static("b"), start), "another one");
        assert!(silent.may_ask(&origin, start + pause), "the one that tries");
        assert!(!silent.may_ask(&origin, start + pause * 3 / 2), "and no other while it does");
        silent.heard(&origin);
        assert!(silent.may_ask(&origin, start + pause));
        silent.not_heard(&origin, OriginFailure::ConnectTimeout, start);
        assert!(!silent.may_ask(&origin, start), "no origin is there");
    }
}
