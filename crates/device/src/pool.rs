//! Threads that perform requests one by one, for systems that refuse `io_uring`.
//!
//! Invariants: `submit` never waits; requests start in the order in which they were submitted; threads
//! are started as they are needed, up to [`MAX_THREADS`]; dropping the pool first performs everything
//! that was submitted.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;
use std::thread::{self, JoinHandle};

use parking_lot::{Condvar, Mutex};

use crate::inline::Perform;
use crate::{Request, finish};

/// As many requests as are in flight at once: enough to keep a solid-state disk busy.
const MAX_THREADS: usize = 32;

pub(crate) struct Pool {
    shared: Arc<Shared>,
}

struct Shared {
    device: Arc<dyn Perform>,
    state: Mutex<State>,
    work: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    /// Threads that wait for work.
    idle: usize,
    threads: Vec<JoinHandle<()>>,
    closing: bool,
}

impl Pool {
    /// Starts the first thread, so that a submitted request always finds one.
    pub(crate) fn start(device: Arc<dyn Perform>) -> io::Result<Self> {
        let state = Mutex::new(State::default());
        let shared = Arc::new(Shared { device, state, work: Condvar::new() });
        let first = spawn(&shared, 0)?;
        shared.state.lock().threads.push(first);
        Ok(Self { shared })
    }

    pub(crate) fn submit(&self, batch: Vec<Request>) {
        let mut state = self.shared.state.lock();
        state.waiting.extend(batch);
        let ready = state.idle;
        let short = state.waiting.len().saturating_sub(ready);
        for _ in 0..short.min(MAX_THREADS - state.threads.len()) {
            // Refused: the threads there are will do it.
            let Ok(thread) = spawn(&self.shared, state.threads.len()) else { break };
            state.threads.push(thread);
        }
        let wake = state.waiting.len().min(ready);
        drop(state);
        for _ in 0..wake {
            self.shared.work.notify_one();
        }
    }
}

fn spawn(shared: &Arc<Shared>, number: usize) -> io::Result<JoinHandle<()>> {
    let shared = Arc::clone(shared);
    thread::Builder::new().name(format!("picaflor-io-{number}")).spawn(move || shared.work())
}

impl Shared {
    fn work(&self) {
        while let Some(request) = self.next() {
            let outcome = self.device.perform(request.offset, request.op);
            finish(request.done, outcome);
        }
    }

    fn next(&self) -> Option<Request> {
        let mut state = self.state.lock();
        loop {
            if let Some(request) = state.waiting.pop_front() {
                return Some(request);
            }
            if state.closing {
                return None;
            }
            state.idle += 1;
            self.work.wait(&mut state);
            state.idle -= 1;
        }
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let threads = {
            let mut state = self.shared.state.lock();
            state.closing = true;
            std::mem::take(&mut state.threads)
        };
        self.shared.work.notify_all();
        for thread in threads {
            // The last owner may let go inside a `done`, on one of these threads: that one ends by itself.
            if thread.thread().id() != thread::current().id() {
                let _ = thread.join();
            }
        }
    }
}
