//! Group commit: who waits for durability, and who makes it.
//!
//! Commits are numbered. What was appended before a commit began is durable when it completes. A waiter
//! that finds nobody at work becomes the leader and commits for all; the others sleep. A device that
//! failed once is never asked again: what it holds since its last sync is unknown.
//!
//! Threads that put one object after the other are all released by one commit, and come back one after the other. The
//! first of them would lead a commit for itself alone, and the rest would wait for two. So a leader waits for as many
//! as took part last time, but no longer than half of what a commit takes: a guess that is wrong costs no more.
//!
//! The condition variables are those of the standard library: one system call wakes all who wait, where the ones used
//! elsewhere let each wake the next.

use std::{
    sync::{
        Condvar, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    task::Waker,
    time::{Duration, Instant},
};

use crate::{Error, Result};

/// Longest wait of a leader, however slow the device.
const MOST_PATIENCE: Duration = Duration::from_millis(2);

#[derive(Default)]
pub(crate) struct Commits {
    state: Mutex<State>,
    changed: Condvar,
    /// As many as the leader waits for are there.
    gathered: Condvar,
    /// The device failed, or a daemon; closing a store sets no more than `failed`.
    broken: AtomicBool,
}

#[derive(Default)]
struct State {
    started: u64,
    completed: u64,
    leading: bool,
    /// Threads that wait for a commit that has not begun, its leader aside.
    waiting: usize,
    /// Threads that took part in the commit that began last.
    joined: usize,
    /// Threads that are likely to take part in the next.
    expected: usize,
    /// How long a leader waits for them.
    patience: Duration,
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
        self.state().started + 1
    }

    /// The last commit that is complete.
    pub(crate) fn completed(&self) -> u64 {
        self.state().completed
    }

    /// Waits until commit `number` is complete or it is the caller's turn to run one.
    ///
    /// # Errors
    /// The failure that stopped the volume.
    pub(crate) fn wait(&self, number: u64) -> Result<Turn> {
        let mut state = self.state();
        let mut counted = false;
        loop {
            if state.completed >= number {
                return Ok(Turn::Durable);
            }
            if let Some(failed) = &state.failed {
                return Err(failed.clone());
            }
            if !state.leading {
                state.leading = true;
                state.waiting -= usize::from(counted);
                state = self.gather(state);
                state.started += 1;
                state.joined = std::mem::take(&mut state.waiting) + 1;
                return Ok(Turn::Lead(state.started));
            }
            if !counted && number > state.started {
                counted = true;
                state.waiting += 1;
                if state.waiting + 1 >= state.expected {
                    self.gathered.notify_one();
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// The leader waits for those who are likely to come.
    fn gather<'a>(&self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        if state.waiting + 1 >= state.expected || state.patience.is_zero() {
            return state;
        }
        let until = Instant::now() + state.patience;
        while state.waiting + 1 < state.expected && state.failed.is_none() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            (state, _) = self.gathered.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner);
        }
        state
    }

    /// No panic leaves it half changed.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Commits::wait`] for a future: `None` means that the waker will be called.
    pub(crate) fn poll(&self, number: u64, waker: &Waker) -> Option<Result<()>> {
        let mut state = self.state();
        if state.completed >= number {
            return Some(Ok(()));
        }
        if let Some(failed) = &state.failed {
            return Some(Err(failed.clone()));
        }
        state.wakers.push(waker.clone());
        None
    }

    /// The leader's commit came to its end, and took so long.
    pub(crate) fn complete(&self, number: u64, result: Result<()>, took: Duration) {
        self.note(result.as_ref().err());
        let wakers = {
            let mut state = self.state();
            state.leading = false;
            state.expected = state.joined + state.waiting;
            state.patience = (took / 2).min(MOST_PATIENCE);
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
            let mut state = self.state();
            state.failed.get_or_insert(error);
            std::mem::take(&mut state.wakers)
        };
        self.changed.notify_all();
        wakers.into_iter().for_each(Waker::wake);
    }

    fn note(&self, error: Option<&Error>) {
        if matches!(error, Some(Error::Io { .. } | Error::Daemon { .. })) {
            self.broken.store(true, Relaxed);
        }
    }

    /// Whether the device or a daemon failed, without a lock.
    pub(crate) fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// Why the volume stopped writing, if it did.
    pub(crate) fn failure(&self) -> Option<Error> {
        self.state().failed.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering::SeqCst},
        thread,
    };

    use super::*;

    #[test]
    fn a_thread_alone_waits_for_nobody() {
        let commits = Commits::default();
        for number in 1..20 {
            let Ok(Turn::Lead(led)) = commits.wait(commits.next()) else { panic!("nobody else is here") };
            assert_eq!((led, commits.state().joined), (number, 1));
            commits.complete(led, Ok(()), Duration::from_secs(1));
            assert_eq!(commits.state().expected, 1);
        }
    }

    #[test]
    fn a_leader_waits_for_as_many_as_took_part_last_time() {
        let commits = Commits::default();
        commits.state().expected = 8;
        // Nobody comes as late as that, however busy the machine.
        commits.state().patience = Duration::from_secs(600);
        let led = AtomicU64::new(0);
        thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    if let Turn::Lead(number) = commits.wait(1).unwrap() {
                        led.fetch_add(1, SeqCst);
                        let joined = commits.state().joined;
                        commits.complete(number, Ok(()), Duration::ZERO);
                        assert_eq!((number, joined), (1, 8));
                    }
                });
            }
        });
        assert_eq!(led.load(SeqCst), 1, "one commit for all of them");
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for_twice() {
        let commits = Commits::default();
        commits.state().expected = 5;
        commits.state().patience = Duration::from_millis(20);
        let lead = |commits: &Commits| {
            let began = Instant::now();
            let Ok(Turn::Lead(number)) = commits.wait(commits.next()) else { panic!("nobody else is here") };
            let waited = began.elapsed();
            commits.complete(number, Ok(()), Duration::from_secs(1));
            waited
        };
        assert!(lead(&commits) >= Duration::from_millis(20));
        assert_eq!(commits.state().expected, 1);
        assert_eq!(commits.state().patience, MOST_PATIENCE);
    }
}
