//! One client's way through a body that grows.
//!
//! What the fetch holds is read from it. A reader that was left behind, and whose next byte has gone, is sent elsewhere
//! as soon as that is of use.

use std::{
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;

use super::{Fill, Kept, Place, State};
use crate::{
    reason::Broken,
    verdict::{FillHead, Verdict},
};

/// Where one client is in a growing body: its way through what the fetch holds.
pub(crate) struct Cursor {
    fill: Arc<Fill>,
    slot: usize,
    at: u64,
    until: u64,
}

/// What comes next.
pub(crate) enum Next {
    Bytes(Bytes),
    End,
    Broken(Broken),
    /// The fetch has gone on without this reader: the rest is to be read from the store, or, if it is not there, from
    /// the origin.
    Elsewhere,
}

impl Fill {
    /// A reader from the first byte; `None` when that byte has gone.
    pub(crate) fn join(self: &Arc<Self>) -> Option<Cursor> {
        let mut state = self.state.lock();
        if state.base > 0 {
            return None;
        }
        let slot = match state.places.iter().position(Option::is_none) {
            Some(slot) => slot,
            None => {
                state.places.push(None);
                state.places.len() - 1
            }
        };
        state.places[slot] = Some(Place { at: 0, waker: None, behind: false });
        drop(state);
        Some(Cursor { fill: self.clone(), slot, at: 0, until: u64::MAX })
    }
}

impl Cursor {
    /// Reads this part only; before the first `poll`.
    pub(crate) fn narrow(&mut self, range: std::ops::Range<u64>) {
        let mut state = self.fill.state.lock();
        let end = state.end;
        if let Some(place) = &mut state.places[self.slot] {
            place.at = range.start.min(end);
        }
        state.wake_filler();
        (self.at, self.until) = (range.start, range.end);
    }

    /// Bytes left, where the end is known.
    pub(crate) fn left(&self) -> Option<u64> {
        (self.until != u64::MAX).then(|| self.until - self.at)
    }

    /// What has not been read.
    pub(crate) fn range(&self) -> std::ops::Range<u64> {
        self.at..self.until
    }

    /// The head that this is the body of.
    pub(crate) fn head(&self) -> Option<Arc<FillHead>> {
        match &*self.fill.verdict.lock() {
            Verdict::Streaming(head) => Some(head.clone()),
            _ => None,
        }
    }

    /// So much has come.
    pub(crate) fn come(&self) -> u64 {
        self.fill.state.lock().end
    }

    /// The next bytes; `has_rest` says that a reader that is left behind can go on without the store.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, has_rest: bool) -> Poll<Next> {
        if self.at >= self.until {
            return Poll::Ready(Next::End);
        }
        let mut guard = self.fill.state.lock();
        let state = &mut *guard;
        let behind = state.places[self.slot].as_ref().is_none_or(|place| place.behind);
        if behind && self.at < state.base {
            return match (state.kept, state.ended) {
                (Kept::Stored, _) => Poll::Ready(Next::Elsewhere),
                (Kept::No, _) if !has_rest => Poll::Ready(Next::Broken(Broken::LeftBehind)),
                (Kept::No, _) => Poll::Ready(Next::Elsewhere),
                (Kept::Writing, _) if has_rest && !self.fill.is_near(state) => Poll::Ready(Next::Elsewhere),
                (Kept::Writing, _) => self.sleep(state, cx),
            };
        }
        if self.at < state.end {
            let Some(mut bytes) = state.next(self.at) else {
                return Poll::Ready(Next::Broken(Broken::LeftBehind));
            };
            let room = self.until - self.at;
            if bytes.len() as u64 > room {
                bytes.truncate(room as usize);
            }
            self.at += bytes.len() as u64;
            if let Some(place) = &mut state.places[self.slot] {
                place.at = self.at;
                place.behind = false;
            }
            state.wake_filler();
            return Poll::Ready(Next::Bytes(bytes));
        }
        match state.ended {
            Some(Ok(())) => Poll::Ready(Next::End),
            Some(Err(broken)) => Poll::Ready(Next::Broken(broken)),
            None => {
                // A range that begins later than what has come does not hold anything up.
                let end = state.end;
                if let Some(place) = &mut state.places[self.slot] {
                    place.at = end.min(self.at);
                }
                self.sleep(state, cx)
            }
        }
    }

    fn sleep<T>(&self, state: &mut State, cx: &mut Context<'_>) -> Poll<T> {
        if let Some(place) = &mut state.places[self.slot] {
            place.waker = Some(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl Drop for Cursor {
    fn drop(&mut self) {
        let mut state = self.fill.state.lock();
        state.places[self.slot] = None;
        state.wake_filler();
    }
}
