//! Fetches under way: one for each key, which others wait for, and what came of it.

use std::{
    any::Any,
    fmt,
    sync::Arc,
    task::{Context, Poll, Waker},
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};
use picaflor_common::HashKeyed;

use crate::{Error, Object, Result};

/// Why [`Store::get_or_fetch`](crate::Store::get_or_fetch) has no object: `E` is the error of the caller's fetch.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum FetchError<E: ?Sized> {
    /// The store failed.
    Store(Error),
    /// The fetch failed: this caller's, or the one that it waited for.
    Fetch(Arc<E>),
    /// The fetch that this caller waited for was abandoned: its task was dropped, or it panicked.
    Abandoned,
    /// What a stream brought is in the store no more: it was deleted, or evicted, before it could be read.
    Gone,
}

impl<E: ?Sized> From<Error> for FetchError<E> {
    fn from(error: Error) -> Self {
        Self::Store(error)
    }
}

impl<E: fmt::Display + ?Sized> fmt::Display for FetchError<E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Store(error) => error.fmt(f),
            Self::Fetch(error) => write!(f, "fetch failed: {error}"),
            Self::Abandoned => f.write_str("the fetch that was waited for was abandoned; ask again"),
            Self::Gone => f.write_str("what was fetched left the store before it could be read; ask again"),
        }
    }
}

impl<E: std::error::Error + 'static> std::error::Error for FetchError<E> {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Store(error) => Some(error),
            Self::Fetch(error) => Some(&**error),
            Self::Abandoned | Self::Gone => None,
        }
    }
}

/// What became of a fetch, for callers whose errors may be of other types.
pub(crate) type Outcome = Result<Object, FetchError<dyn Any + Send + Sync>>;

/// The same error for another caller.
pub(crate) fn again<E: ?Sized>(error: &FetchError<E>) -> FetchError<E> {
    match error {
        FetchError::Store(error) => FetchError::Store(error.clone()),
        FetchError::Fetch(error) => FetchError::Fetch(Arc::clone(error)),
        FetchError::Abandoned => FetchError::Abandoned,
        FetchError::Gone => FetchError::Gone,
    }
}

/// Fetches under way, by the key's hash.
#[derive(Default)]
pub(crate) struct Fetches {
    pub(crate) running: Mutex<HashKeyed<Arc<Fetch>>>,
}

pub(crate) struct Fetch {
    pub(crate) key: Bytes,
    state: Mutex<FetchState>,
    done: Condvar,
}

#[derive(Default)]
struct FetchState {
    outcome: Option<Outcome>,
    wakers: Vec<Waker>,
}

impl Fetch {
    pub(crate) fn of(key: &[u8]) -> Arc<Self> {
        Arc::new(Self { key: Bytes::copy_from_slice(key), state: Mutex::default(), done: Condvar::default() })
    }

    pub(crate) fn finish(&self, outcome: Outcome) {
        let wakers = {
            let mut state = self.state.lock();
            state.outcome = Some(outcome);
            std::mem::take(&mut state.wakers)
        };
        self.done.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// The outcome, waiting on this thread.
    pub(crate) fn wait(&self) -> Outcome {
        let mut state = self.state.lock();
        loop {
            if let Some(outcome) = &state.outcome {
                return outcome.as_ref().cloned().map_err(again);
            }
            self.done.wait(&mut state);
        }
    }

    /// The same for tasks.
    pub(crate) fn poll(&self, context: &Context<'_>) -> Poll<Outcome> {
        let mut state = self.state.lock();
        match &state.outcome {
            Some(outcome) => Poll::Ready(outcome.as_ref().cloned().map_err(again)),
            None => {
                state.wakers.push(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// What a waiter makes of the outcome: nothing of an error of another type than its own, and then it fetches itself.
pub(crate) fn shared<E: Send + Sync + 'static>(outcome: Outcome) -> Option<Result<Object, FetchError<E>>> {
    Some(Err(match outcome {
        Ok(object) => return Some(Ok(object)),
        Err(FetchError::Fetch(error)) => FetchError::Fetch(error.downcast().ok()?),
        Err(FetchError::Store(error)) => FetchError::Store(error),
        Err(FetchError::Abandoned) => FetchError::Abandoned,
        Err(FetchError::Gone) => FetchError::Gone,
    }))
}
