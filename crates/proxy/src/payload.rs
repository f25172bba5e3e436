//! What is sent to an origin as a request's body.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

use crate::pace::Pace;

/// A request body: none, or a client's, passed on. Each piece counts, so that a long upload is not taken for an
/// origin that does not answer.
pub(crate) enum Payload {
    None,
    Client {
        body: Incoming,
        pieces: Arc<AtomicU64>,
        /// Bytes that may still come.
        room: u64,
        pace: Option<Pace>,
    },
}

/// Why a request body is not sent to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BadBody {
    #[error(transparent)]
    Broken(#[from] hyper::Error),
    #[error("longer than limits.upload_max")]
    TooLong,
    #[error("slower than limits.upload_rate")]
    TooSlow,
}

impl http_body::Body for Payload {
    type Data = Bytes;
    type Error = BadBody;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, BadBody>>> {
        match self.get_mut() {
            Self::None => Poll::Ready(None),
            Self::Client { body, pieces, room, pace } => {
                let Poll::Ready(next) = Pin::new(body).poll_frame(cx) else {
                    let Some(pace) = pace else { return Poll::Pending };
                    return pace.poll_slow(cx).map(|()| Some(Err(BadBody::TooSlow)));
                };
                pieces.fetch_add(1, Relaxed);
                Poll::Ready(next.map(|next| {
                    let frame = next?;
                    let len = frame.data_ref().map_or(0, Bytes::len);
                    pace.iter_mut().for_each(|pace| pace.came(len));
                    *room = room.checked_sub(len as u64).ok_or(BadBody::TooLong)?;
                    Ok(frame)
                }))
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
