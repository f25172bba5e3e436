//! The chunks of an object as a [`Stream`], for bodies of servers and for combinators of streams.

use std::{
    fmt,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::Bytes;
use futures_core::Stream;
use parking_lot::Mutex;

use crate::{Chunks, Result};

/// The pieces of a range of an object's body, in order: [`Chunks::into_stream`]. Ends after the first error.
pub struct ChunkStream {
    /// Never locked: a future is no `Sync`, and a body of a server has to be.
    state: Mutex<State>,
}

type Next = Pin<Box<dyn Future<Output = (Chunks, Option<Result<Bytes>>)> + Send>>;

enum State {
    Idle(Chunks),
    Reading(Next),
    Ended,
}

impl Chunks {
    /// The same as a [`Stream`]. It reads a chunk when it is asked for it, as [`Chunks::next_async`] does; what is in
    /// memory comes at the first poll, without an allocation.
    pub fn into_stream(self) -> ChunkStream {
        ChunkStream { state: Mutex::new(State::Idle(self)) }
    }
}

impl Stream for ChunkStream {
    type Item = Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let state = self.state.get_mut();
        loop {
            match state {
                State::Ended => return Poll::Ready(None),
                State::Idle(chunks) => {
                    if let Some(ready) = chunks.ready() {
                        return Poll::Ready(Some(Ok(ready)));
                    }
                    let State::Idle(mut chunks) = std::mem::replace(state, State::Ended) else { continue };
                    *state = State::Reading(Box::pin(async move {
                        let next = chunks.next_async().await;
                        (chunks, next)
                    }));
                }
                State::Reading(next) => {
                    let Poll::Ready((chunks, next)) = next.as_mut().poll(context) else { return Poll::Pending };
                    *state = if next.is_some() { State::Idle(chunks) } else { State::Ended };
                    return Poll::Ready(next);
                }
            }
        }
    }
}

impl fmt::Debug for ChunkStream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ChunkStream").finish_non_exhaustive()
    }
}
