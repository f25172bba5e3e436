//! Requests carried out on the submitter's own thread, for devices that never wait.
//!
//! Invariant: the stack does not grow when `done` submits again. A submit from within a `done` is queued
//! and run by the outermost submit of the same thread, in order.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use crate::{AlignedBuf, Op, Request};

/// A device that can answer a request at once.
pub trait Perform: Send + Sync {
    /// Carries the operation out; what it returns is what `done` is called with.
    ///
    /// # Errors
    /// As the device's blocking calls.
    fn perform(&self, offset: u64, op: Op) -> io::Result<AlignedBuf>;
}

thread_local! {
    /// `Some` while a submit is running on this thread.
    static WAITING: RefCell<Option<VecDeque<Job>>> = const { RefCell::new(None) };
}

type Job = (Arc<dyn Perform>, Request);

/// Performs the batch in order and calls each `done`: the whole of [`Device::submit`](crate::Device::submit).
pub fn submit_inline(device: Arc<dyn Perform>, batch: Vec<Request>) {
    let nested = WAITING.with_borrow_mut(|waiting| match waiting {
        Some(queue) => {
            queue.extend(batch.into_iter().map(|request| (Arc::clone(&device), request)));
            None
        }
        None => {
            *waiting = Some(VecDeque::new());
            Some(batch)
        }
    });
    let Some(batch) = nested else { return };
    let _end = EndOfSubmit;
    for request in batch {
        run(device.as_ref(), request);
    }
    while let Some((device, request)) = next_waiting() {
        run(device.as_ref(), request);
    }
}

fn run(device: &dyn Perform, request: Request) {
    let outcome = device.perform(request.offset, request.op);
    (request.done)(outcome);
}

fn next_waiting() -> Option<Job> {
    WAITING.with_borrow_mut(|waiting| waiting.as_mut().and_then(VecDeque::pop_front))
}

/// Clears the thread's queue, also when a `done` panics.
struct EndOfSubmit;

impl Drop for EndOfSubmit {
    fn drop(&mut self) {
        // Taken out first: dropping a request may run code that submits.
        let left = WAITING.with_borrow_mut(Option::take);
        drop(left);
    }
}
