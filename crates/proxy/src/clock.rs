//! The time: as the system has it, and as a worker has it at no cost.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    time::{Duration, SystemTime, UNIX_EPOCH},
};

use http::HeaderValue;

use crate::rules::validate;

/// Milliseconds since 1970.
pub(crate) fn unix_millis() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A `Date` of our own, for origins that have none (RFC 9110 6.6.1).
pub(crate) fn date(millis: u64) -> HeaderValue {
    validate::text(httpdate::fmt_http_date(UNIX_EPOCH + Duration::from_millis(millis)))
}

/// Time that costs nothing to read: written by the worker's own timer.
#[derive(Default)]
pub(crate) struct Clock {
    millis: AtomicU64,
    tick: AtomicU32,
}

impl Clock {
    /// How often it is set.
    pub(crate) const STEP: Duration = Duration::from_millis(50);

    /// A step ahead, so that until the next time it is never behind: nothing is served past its lifetime.
    pub(crate) fn set(&self) {
        let now = unix_millis() + Self::STEP.as_millis() as u64;
        self.millis.store(now, Relaxed);
        self.tick.store((now / 1000) as u32, Relaxed);
    }

    /// Milliseconds since 1970, at most a step ahead.
    #[inline]
    pub(crate) fn millis(&self) -> u64 {
        self.millis.load(Relaxed)
    }

    /// Seconds since 1970, for comparing.
    #[inline]
    pub(crate) fn tick(&self) -> u32 {
        self.tick.load(Relaxed)
    }
}
