//! What is sent to an origin as a request's body.

use std::{
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{
    pace::Pace,
    reason::Denied,
    upload::{BadBody, Upload},
};

/// A request body: none, or a client's, passed on. Each piece counts, so that a long upload is not taken for an
/// origin that does not answer.
pub(crate) enum Payload {
    None,
    Client {
        body: Upload,
        pieces: Arc<AtomicU64>,
        /// Bytes that may still come.
        room: u64,
        pace: Option<Pace>,
        /// Why its end did not come: by HTTP/2 the answer does not say it.
        spoiled: Arc<OnceLock<Denied>>,
    },
}

impl Payload {
    /// What keeps why the rest of it was not sent.
    pub(crate) fn keeps_why(&self) -> Option<Arc<OnceLock<Denied>>> {
        match self {
            Self::None => None,
            Self::Client { spoiled, .. } => Some(spoiled.clone()),
        }
    }
}

impl http_body::Body for Payload {
    type Data = Bytes;
    type Error = BadBody;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BadBody>>> {
        match self.get_mut() {
            Self::None => Poll::Ready(None),
            Self::Client { body, pieces, room, pace, spoiled } => {
                let next = match Pin::new(body).poll_frame(cx) {
                    Poll::Ready(next) => {
                        pieces.fetch_add(1, Relaxed);
                        next.map(|next| {
                            let frame = next?;
                            let len = frame.data_ref().map_or(0, Bytes::len);
                            pace.iter_mut().for_each(|pace| pace.came(len));
                            *room = room.checked_sub(len as u64).ok_or(BadBody::TooLong)?;
                            Ok(frame)
                        })
                    }
                    Poll::Pending => {
                        let Some(pace) = pace else { return Poll::Pending };
                        ready!(pace.poll_slow(cx));
                        Some(Err(BadBody::TooSlow))
                    }
                };
                if let Some(Err(why)) = &next {
                    let _ = spoiled.set(why.into());
                }
                Poll::Ready(next)
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::None => true,
            Self::Client { body, .. } => body.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::None => SizeHint::with_exact(0),
            Self::Client { body, .. } => body.size_hint(),
        }
    }
}
