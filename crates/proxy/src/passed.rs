//! An origin's body on its way through us: it may not be silent for too long, nor come too slowly.

use std::{
    future::Future,
    pin::Pin,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use crate::{
    config::LimitsConfig,
    metrics::Counters,
    origin::Arriving,
    outgoing,
    pace::Pace,
    reason::{Broken, OriginFailure},
};

/// An origin's body with a limit on silence: on how long we wait for it, not on how long the client takes.
pub(crate) struct Passed {
    arriving: Arriving,
    limit: Duration,
    silence: Pin<Box<Sleep>>,
    waiting: bool,
    pace: Option<Pace>,
}

impl Passed {
    pub(crate) fn new(arriving: Arriving, limits: &LimitsConfig) -> Self {
        let limit = limits.body_timeout.0;
        let pace = Pace::new(limits.origin_rate, limits.rate_window);
        Self { arriving, limit, silence: Box::pin(tokio::time::sleep(limit)), waiting: false, pace }
    }

    /// What is known of its length.
    pub(crate) fn size_hint(&self) -> SizeHint {
        http_body::Body::size_hint(&self.arriving)
    }

    /// The next piece of data, or the trailers.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        counters: &Counters,
    ) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match http_body::Body::poll_frame(Pin::new(&mut self.arriving), cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.waiting = false;
                if let Some(trailers) = frame.trailers_mut() {
                    outgoing::strip_hop_by_hop(trailers);
                }
                let len = frame.data_ref().map_or(0, Bytes::len);
                self.pace.iter_mut().for_each(|pace| pace.came(len));
                counters.origin_bytes.add(len as u64);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(why))) => {
                counters.failures.one(why);
                Poll::Ready(Some(Err(Broken::Origin)))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                if !std::mem::replace(&mut self.waiting, true) {
                    self.silence.as_mut().reset(tokio::time::Instant::now() + self.limit);
                }
                let is_slow = self.pace.as_mut().is_some_and(|pace| pace.poll_slow(cx).is_ready());
                let why = if is_slow { OriginFailure::BodySlow } else { OriginFailure::BodyTimeout };
                if !is_slow {
                    ready!(self.silence.as_mut().poll(cx));
                }
                counters.failures.one(why);
                Poll::Ready(Some(Err(Broken::Origin)))
            }
        }
    }
}
