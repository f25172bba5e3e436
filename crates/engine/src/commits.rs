//! Group commit: who waits for durability, and who makes it.
//!
//! Commits are numbered. What was appended before a commit began is durable when it completes. A waiter
//! that finds nobody at work becomes the leader and commits for all; the others sleep. A device that
//! failed once is never asked again: what it holds since its last sync is unknown.

use std::{
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    task::Waker,
};

use parking_lot::{Condvar, Mutex};

use crate::{Error, Result};

#[derive(Default)]
pub(crate) struct Commits {
    state: Mutex<State>,
    changed: Condvar,
    /// The device failed; closing a store sets no more than `failed`.
    broken: AtomicBool,
}

#[derive(Default)]
struct State {
    started: u64,
    completed: u64,
    leading: bool,
    failed: Option<Error>,
    wakers: Vec<Waker>,
}

/// What a waiter is to do.
pub(crate) enum Turn {
    /// Run the commit with this number, then call [`Commits::complete`].
    Lead(u64),
    /// What was waited for is durable.
    Durable,
}

impl Commits {
    /// The commit that will cover everything done so far.
    pub(crate) fn next(&self) -> u64 {
        self.state.lock().started + 1
    }

    /// Waits until commit `number` is complete or it is the caller's turn to run one.
    ///
    /// # Errors
    /// The failure that stopped the volume.
    pub(crate) fn wait(&self, number: u64) -> Result<Turn> {
        let mut state = self.state.lock();
        loop {
            if state.completed >= number {
                return Ok(Turn::Durable);
            }
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            if !state.leading {
                state.leading = true;
                state.started += 1;
                return Ok(Turn::Lead(state.started));
            }
            self.changed.wait(&mut state);
        }
    }

    /// As [`Commits::wait`] for a future: `None` means that the waker will be called.
    pub(crate) fn poll(&self, number: u64, waker: &Waker) -> Option<Result<()>> {
        let mut state = self.state.lock();
        if state.completed >= number {
            return Some(Ok(()));
        }
        if let Some(failed) = &state.failed {
            return Some(Err(failed.clone()));
        }
        state.wakers.push(waker.clone());
        None
    }

    /// The leader's commit came to its end.
    pub(crate) fn complete(&self, number: u64, result: Result<()>) {
        self.note(result.as_ref().err());
        let wakers = {
            let mut state = self.state.lock();
            state.leading = false;
            match result {
                Ok(()) => state.completed = state.completed.max(number),
                Err(error) => drop(state.failed.get_or_insert(error)),
            }
            std::mem::take(&mut state.wakers)
        };
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Stops the volume for writing.
    pub(crate) fn fail(&self, error: Error) {
        self.note(Some(&error));
        let wakers = {
            let mut state = self.state.lock();
            state.failed.get_or_insert(error);
            std::mem::take(&mut state.wakers)
        };
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn note(&self, error: Option<&Error>) {
        if matches!(error, Some(Error::Io { .. })) {
            self.broken.store(true, Relaxed);
        }
    }

    /// Whether the device failed, without a lock.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// Why the volume stopped writing, if it did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.state.lock().failed.clone()
    }
}
