//! Group commit: callers wait for durability, and one of them makes it for all.
//!
//! Commits are numbered. What was appended before a commit began is durable when it completes. One of the callers that
//! wait becomes the leader and commits for all; the others sleep. A device that failed once is never asked again: what
//! it holds since its last sync is unknown. A commit for which the journal has no room is refused to those that wait
//! for it, and nothing is lost: a later one covers it.
//!
//! Threads that put one object after the other are all released by one commit, and come back one after the other. If
//! the first of them led a commit for itself alone, the rest would wait for two. So none leads before as many have
//! come as took part last time. The last of them leads, for it is awake; the first keeps time, and leads with those
//! that are there when half of what a commit takes has passed: a guess that is wrong costs no more. Tasks count like
//! threads.
//!
//! The condition variables are those of the standard library: one system call wakes all waiting threads, where the ones
//! used elsewhere let each wake the next.

use std::{task::Waker, time::Duration};

use crate::sync::{
    Condvar, Instant, Mutex, MutexGuard, PoisonError,
    atomic::{
        AtomicBool,
        Ordering::{Acquire, Relaxed, Release},
    },
};

/// Longest wait of a leader, however slow the device.
const MOST_PATIENCE: Duration = Duration::from_millis(2);

/// How an error of a layout counts for the callers that wait for a commit.
pub trait Failure: Clone {
    /// Nothing is lost: a later commit covers what this one did not.
    fn is_refusal(&self) -> bool;

    /// The device failed, or a daemon; else the layout was closed.
    fn is_breakage(&self) -> bool;
}

/// The commits of one log, or of one place.
pub struct Commits<E> {
    state: Mutex<State<E>>,
    /// A commit is complete, writing has stopped, or a task's coming made it time for a commit.
    changed: Condvar,
    /// Nothing is written any more: `failed` says why.
    stopped: AtomicBool,
    /// The device failed, or a daemon; closing a store sets no more than `failed`.
    broken: AtomicBool,
    /// The last commit was refused: callers that may not lose more wait for the next.
    refusing: AtomicBool,
}

struct State<E> {
    started: u64,
    completed: u64,
    leading: bool,
    /// A thread keeps time until the next commit begins.
    timed: bool,
    /// Threads and tasks that wait for a commit that has not begun.
    waiting: usize,
    /// Callers that took part in the commit that began last.
    joined: usize,
    /// Callers that are likely to take part in the next.
    expected: usize,
    /// Longest that they are waited for.
    patience: Duration,
    /// Threads that sleep: without any, none need be woken.
    asleep: usize,
    failed: Option<E>,
    /// The last commit that was refused, and why.
    refused: Option<(u64, E)>,
    wakers: Vec<Waker>,
}

impl<E> Default for State<E> {
    fn default() -> Self {
        Self {
            started: 0,
            completed: 0,
            leading: false,
            timed: false,
            waiting: 0,
            joined: 0,
            expected: 0,
            patience: Duration::ZERO,
            asleep: 0,
            failed: None,
            refused: None,
            wakers: Vec::new(),
        }
    }
}

impl<E: Failure> State<E> {
    /// Whether as many have come as are likely to.
    fn is_full(&self) -> bool {
        self.waiting >= self.expected || self.patience.is_zero()
    }

    /// Why what waits for this commit will not be made durable, if so.
    fn hopeless(&self, number: u64) -> Option<E> {
        let refused = || self.refused.as_ref().filter(|(last, _)| *last >= number).map(|(_, why)| why.clone());
        self.failed.clone().or_else(refused)
    }

    fn lead(&mut self) -> Turn {
        (self.leading, self.timed) = (true, false);
        self.started += 1;
        self.joined = std::mem::take(&mut self.waiting);
        Turn::Lead(self.started)
    }
}

/// What a waiter is to do.
#[derive(Debug)]
pub enum Turn {
    /// Run the commit with this number, then call [`Commits::complete`].
    Lead(u64),
    /// What was waited for is durable.
    Durable,
}

impl<E> Default for Commits<E> {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            changed: Condvar::default(),
            stopped: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            refusing: AtomicBool::new(false),
        }
    }
}

impl<E: Failure> Commits<E> {
    /// The commit that will cover everything done so far.
    pub fn next(&self) -> u64 {
        self.state().started + 1
    }

    /// The last commit that is complete.
    pub fn completed(&self) -> u64 {
        self.state().completed
    }

    /// Waits until commit `number` is complete or it is the caller's turn to run one.
    ///
    /// # Errors
    /// The failure that stopped the volume, or why this commit was refused.
    pub fn wait(&self, number: u64) -> Result<Turn, E> {
        let mut state = self.state();
        let mut counted = false;
        // Set where this thread keeps time.
        let mut until = None;
        loop {
            if state.completed >= number {
                return Ok(Turn::Durable);
            }
            if let Some(error) = state.hopeless(number) {
                return Err(error);
            }
            if !counted && number > state.started {
                counted = true;
                state.waiting += 1;
            }
            if state.leading {
                until = None;
            } else if state.is_full() || until.is_some_and(|until| until <= Instant::now()) {
                return Ok(state.lead());
            } else if until.is_none() && !state.timed {
                state.timed = true;
                until = Some(Instant::now() + state.patience);
            }
            state.asleep += 1;
            state = match until {
                Some(until) => {
                    let left = until.saturating_duration_since(Instant::now());
                    self.changed.wait_timeout(state, left).unwrap_or_else(PoisonError::into_inner).0
                }
                None => self.changed.wait(state).unwrap_or_else(PoisonError::into_inner),
            };
            state.asleep -= 1;
        }
    }

    /// No panic leaves it half changed.
    fn state(&self) -> MutexGuard<'_, State<E>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// As [`Commits::wait`] for a future: `None` means that the waker will be called. `counted` is the future's own,
    /// and false at first.
    pub fn poll(&self, number: u64, counted: &mut bool, waker: &Waker) -> Option<Result<(), E>> {
        let mut state = self.state();
        if state.completed >= number {
            return Some(Ok(()));
        }
        if let Some(error) = state.hopeless(number) {
            return Some(Err(error));
        }
        state.wakers.push(waker.clone());
        if !std::mem::replace(counted, true) && number > state.started {
            state.waiting += 1;
            // A thread has to lead: the one that keeps time, or another that waits.
            let is_time = state.timed && state.is_full();
            drop(state);
            if is_time {
                self.changed.notify_all();
            }
        }
        None
    }

    /// The leader's commit came to its end, and took so long.
    pub fn complete(&self, number: u64, result: Result<(), E>, took: Duration) {
        let mut state = self.state();
        state.leading = false;
        state.expected = state.joined + state.waiting;
        state.patience = (took / 2).min(MOST_PATIENCE);
        match result {
            Ok(()) => {
                state.completed = state.completed.max(number);
                self.refusing.store(false, Relaxed);
            }
            Err(error) if error.is_refusal() => {
                state.refused = Some((number, error));
                self.refuse();
            }
            Err(error) => self.stop(&mut state, error),
        }
        self.tell(state);
    }

    /// A commit that was due cannot be made.
    pub fn refuse(&self) {
        self.refusing.store(true, Relaxed);
    }

    /// Whether the last commit was refused.
    pub fn is_refusing(&self) -> bool {
        self.refusing.load(Relaxed)
    }

    /// Stops the volume for writing.
    pub fn fail(&self, error: E) {
        let mut state = self.state();
        self.stop(&mut state, error);
        self.tell(state);
    }

    fn stop(&self, state: &mut State<E>, error: E) {
        if error.is_breakage() {
            self.broken.store(true, Relaxed);
        }
        state.failed.get_or_insert(error);
        self.stopped.store(true, Release);
    }

    /// Wakes all that wait.
    fn tell(&self, mut state: MutexGuard<'_, State<E>>) {
        let wakers = std::mem::take(&mut state.wakers);
        let asleep = state.asleep > 0;
        drop(state);
        if asleep {
            self.changed.notify_all();
        }
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Whether the device or a daemon failed, without a lock.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// Why the volume stopped writing, if it did.
    pub fn failure(&self) -> Option<E> {
        // Asked by every put: the lock is taken only where there is something.
        self.stopped.load(Acquire).then(|| self.state().failed.clone()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicU64, Ordering::SeqCst},
        thread,
    };

    use super::*;

    /// A log that is full, the only failure that these tests know.
    #[derive(Debug, Clone)]
    struct Full;

    impl Failure for Full {
        fn is_refusal(&self) -> bool {
            true
        }

        fn is_breakage(&self) -> bool {
            false
        }
    }

    type Commits = super::Commits<Full>;

    #[test]
    fn a_thread_alone_waits_for_nobody() {
        let commits = Commits::default();
        for number in 1..20 {
            let Ok(Turn::Lead(led)) = commits.wait(commits.next()) else { panic!("no other thread is here") };
            assert_eq!((led, commits.state().joined), (number, 1));
            commits.complete(led, Ok(()), Duration::from_secs(1));
            assert_eq!(commits.state().expected, 1);
        }
    }

    #[test]
    fn a_leader_waits_for_as_many_as_took_part_last_time() {
        let commits = Commits::default();
        commits.state().expected = 8;
        // No thread comes as late as that, however busy the machine.
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
    fn the_last_to_come_leads_for_it_is_awake() {
        let commits = Commits::default();
        commits.state().expected = 2;
        // No thread comes as late as that.
        commits.state().patience = Duration::from_secs(600);
        thread::scope(|scope| {
            let first = scope.spawn(|| matches!(commits.wait(1), Ok(Turn::Durable)));
            while commits.state().waiting == 0 {
                thread::yield_now();
            }
            let Ok(Turn::Lead(number)) = commits.wait(1) else { panic!("the last leads") };
            commits.complete(number, Ok(()), Duration::ZERO);
            assert!(first.join().unwrap(), "the first was not woken to lead");
        });
    }

    #[test]
    fn tasks_are_waited_for_like_threads() {
        struct Idle;
        impl std::task::Wake for Idle {
            fn wake(self: std::sync::Arc<Self>) {}
        }
        let waker = Waker::from(std::sync::Arc::new(Idle));
        let commits = Commits::default();
        commits.state().expected = 3;
        commits.state().patience = Duration::from_secs(600);
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                let Ok(Turn::Lead(number)) = commits.wait(1) else { panic!("tasks do not lead") };
                commits.complete(number, Ok(()), Duration::ZERO);
            });
            let mut counted = [false; 2];
            for counted in &mut counted {
                // Polled twice, counted once.
                assert!((0..2).all(|_| commits.poll(1, counted, &waker).is_none()) || commits.completed() == 1);
            }
            thread.join().unwrap();
            assert_eq!((commits.completed(), commits.state().joined), (1, 3));
            assert!(matches!(commits.poll(1, &mut counted[0], &waker), Some(Ok(()))));
        });
    }

    #[test]
    fn a_refused_commit_stops_nothing_and_the_next_covers_it() {
        let commits = Commits::default();
        let lead = |result: Result<(), Full>| {
            let number = commits.next();
            let Ok(Turn::Lead(led)) = commits.wait(number) else { panic!("no other thread is here") };
            commits.complete(led, result, Duration::ZERO);
            number
        };
        let refused = lead(Err(Full));
        assert!(matches!(commits.wait(refused), Err(Full)));
        assert!(commits.is_refusing() && commits.failure().is_none());
        lead(Ok(()));
        assert!(matches!(commits.wait(refused), Ok(Turn::Durable)) && !commits.is_refusing());
    }

    #[test]
    fn who_does_not_come_back_is_not_waited_for_twice() {
        let commits = Commits::default();
        commits.state().expected = 5;
        commits.state().patience = Duration::from_millis(20);
        let lead = |commits: &Commits| {
            let began = Instant::now();
            let Ok(Turn::Lead(number)) = commits.wait(commits.next()) else { panic!("no other thread is here") };
            let waited = began.elapsed();
            commits.complete(number, Ok(()), Duration::from_secs(1));
            waited
        };
        assert!(lead(&commits) >= Duration::from_millis(20));
        assert_eq!(commits.state().expected, 1);
        assert_eq!(commits.state().patience, MOST_PATIENCE);
    }
}
