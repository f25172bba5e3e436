//! The blocking pool: threads that do for a task what has to read the device under a key's lock, or to compact.
//!
//! A get is a future all the way down, for it holds nothing while it waits; but where objects are files or entries of
//! tables, which know no requests, or while the opening goes on, it is a call like the others. A put or delete of a
//! key that the index cannot tell from another one's holds the key's lock over the read, and so does a caller that
//! waits for it: on an executor's thread that would hold up every other task of it. So a thread of this pool makes the
//! very call that a synchronous caller would make.
//!
//! Invariants: nothing is handed over where there are no threads ([`Daemons::Manual`]); a thread of the
//! pool belongs to no store and ends when it had nothing to do for a while; what panics in it panics in the task that
//! asked.

use std::{
    collections::VecDeque,
    future::{Future, poll_fn},
    panic::{AssertUnwindSafe, catch_unwind, resume_unwind},
    pin::Pin,
    sync::Arc,
    task::{Poll, Waker},
    time::Duration,
};

use parking_lot::{Condvar, Mutex};

use crate::{Daemons, Result};

/// Most threads at once: a device answers that many small reads hardly later than one.
const MOST: usize = 8;
/// How long one stays that has nothing to do.
const IDLE: Duration = Duration::from_secs(10);

/// A future that may be kept, of a call that may fail.
pub(crate) type BoxFuture<T> = Pin<Box<dyn Future<Output = Result<T>> + Send>>;

type Job = Box<dyn FnOnce() + Send>;

#[derive(Default)]
pub(crate) struct BlockingPool {
    state: Mutex<State>,
    given: Condvar,
}

#[derive(Default)]
struct State {
    jobs: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

/// What a job came to, and what waits for it.
struct Outcome<R> {
    result: Option<std::thread::Result<R>>,
    waker: Option<Waker>,
}

impl BlockingPool {
    fn give(self: &Arc<Self>, job: Job) {
        let mut state = self.state.lock();
        state.jobs.push_back(job);
        if state.idle < state.jobs.len() && state.threads < MOST {
            let pool = Arc::clone(self);
            let thread = std::thread::Builder::new().name("picaflor-blocking".into());
            state.threads += usize::from(thread.spawn(move || pool.work()).is_ok());
        }
        // Without a single thread to be had, it is done here.
        let own = if state.threads == 0 { state.jobs.pop_back() } else { None };
        drop(state);
        self.given.notify_one();
        own.into_iter().for_each(|job| job());
    }

    fn work(&self) {
        let mut state = self.state.lock();
        loop {
            while let Some(job) = state.jobs.pop_front() {
                drop(state);
                job();
                state = self.state.lock();
            }
            state.idle += 1;
            let late = self.given.wait_for(&mut state, IDLE).timed_out();
            state.idle -= 1;
            if late && state.jobs.is_empty() {
                state.threads -= 1;
                return;
            }
        }
    }
}

/// What a call comes to that one of these threads makes.
pub(crate) fn later<R: Send + 'static, F: FnOnce() -> R + Send + 'static>(
    daemons: Daemons,
    hands: &Arc<BlockingPool>,
    act: F,
) -> impl Future<Output = R> + Send + 'static + use<R, F> {
    let outcome = Arc::new(Mutex::new(Outcome { result: None, waker: None }));
    let shown = Arc::clone(&outcome);
    let job = move || {
        // What it owns is dropped before the task goes on: that may be the last handle on the store.
        let result = catch_unwind(AssertUnwindSafe(act));
        let waker = {
            let mut outcome = shown.lock();
            outcome.result = Some(result);
            outcome.waker.take()
        };
        waker.into_iter().for_each(Waker::wake);
    };
    match daemons {
        Daemons::Manual => job(),
        Daemons::Threads => hands.give(Box::new(job)),
    }
    poll_fn(move |context| {
        let mut outcome = outcome.lock();
        match outcome.result.take() {
            Some(Ok(result)) => Poll::Ready(result),
            Some(Err(panic)) => resume_unwind(panic),
            None => {
                outcome.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    })
}
