//! The smallest rate of a body that arrives: in each `limits.rate_window` of waiting for it so many bytes must come.
//! The time in which its bytes are not wanted does not count.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use tokio::time::{Instant, Sleep};

use crate::config::{Size, Span};

/// How a body comes.
pub(crate) struct Pace {
    least: u64,
    window: Duration,
    /// Of this window.
    bytes: u64,
    waited: Duration,
    since: Option<Instant>,
    over: Pin<Box<Sleep>>,
}

impl Pace {
    /// At least `rate` bytes a second; `None` where nothing is asked.
    pub(crate) fn new(rate: Option<Size>, window: Span) -> Option<Self> {
        let least = (rate?.0 as f64 * window.0.as_secs_f64()) as u64;
        let over = Box::pin(tokio::time::sleep(window.0));
        Some(Self { least, window: window.0, bytes: 0, waited: Duration::ZERO, since: None, over })
    }

    /// So many bytes have come.
    pub(crate) fn came(&mut self, bytes: usize) {
        self.bytes += bytes as u64;
        self.waited += self.since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// Nothing has come: ready when that has been so for too long.
    pub(crate) fn poll_slow(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if self.since.is_none() {
                let now = Instant::now();
                self.since = Some(now);
                self.over.as_mut().reset(now + self.window.saturating_sub(self.waited));
            }
            ready!(self.over.as_mut().poll(cx));
            if self.bytes < self.least {
                return Poll::Ready(());
            }
            (self.bytes, self.waited, self.since) = (0, Duration::ZERO, None);
        }
    }
}
