//! A get as a future. Needs no runtime: the thread that completes the device read wakes it.
//!
//! What knows no requests, or holds the key's lock over a read, is left to the blocking pool, which makes the very
//! call that a thread makes.

use std::{
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
};

use picaflor_device::thread_ring_number;

use super::{Next, Query, plan::Plan};
use crate::{
    Result, base::blocking::BoxFuture, base::frame::Frame, base::stats::add, handle::Store, read::reading::InFlight,
};

/// A get under way.
pub(super) struct Seek {
    store: Store,
    query: Query,
    waiting: Waiting,
    begun: bool,
    counted: bool,
}

enum Waiting {
    Nothing,
    Read(Plan, Arc<InFlight>),
    Pool(BoxFuture<Option<Arc<Frame>>>),
}

impl Seek {
    pub(super) fn new(store: Store, query: Query) -> Self {
        Self { store, query, waiting: Waiting::Nothing, begun: false, counted: false }
    }

    /// Whether all of it may have to wait, but for what memory has.
    fn is_for_a_hand(&self) -> bool {
        !self.store.deferred().is_over()
    }

    /// The rest of it runs in the blocking pool.
    fn hand_over(&mut self) {
        let mut query = self.query.clone();
        self.waiting = Waiting::Pool(Box::pin(self.store.spawn_blocking(move |store| store.run(&mut query))));
    }

    /// Begins the device read, or joins it.
    fn begin(&mut self, plan: Plan) {
        // A batch waits for others, so it is not of this thread alone.
        let ring = if plan.volume.residents.reader.reads_in_batches() { 0 } else { thread_ring_number() };
        let (flight, lead) = plan.begin(ring);
        if !lead && !self.counted {
            self.counted = true;
            add(&self.store.shared().counters.reads_shared, 1);
        }
        self.waiting = Waiting::Read(plan, flight);
    }
}

impl Future for Seek {
    type Output = Result<Option<Arc<Frame>>>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if !std::mem::replace(&mut this.begun, true) && this.is_for_a_hand() {
            this.hand_over();
        }
        loop {
            match std::mem::replace(&mut this.waiting, Waiting::Nothing) {
                Waiting::Pool(mut answer) => {
                    let polled = answer.as_mut().poll(context);
                    this.waiting = Waiting::Pool(answer);
                    return polled;
                }
                Waiting::Read(plan, flight) => {
                    let Some(outcome) = flight.poll(context.waker()) else {
                        this.waiting = Waiting::Read(plan, flight);
                        return Poll::Pending;
                    };
                    if let Some(frame) = this.store.arrived(&mut this.query, &plan, outcome)? {
                        return Poll::Ready(this.store.answer(&this.query, Ok(frame)));
                    }
                }
                Waiting::Nothing => {}
            }
            match this.store.seek(&mut this.query) {
                Next::Found(frame) => return Poll::Ready(this.store.answer(&this.query, Ok(frame))),
                // What is damaged is buried under the key's lock.
                Next::Absent(why) if !this.query.dropped => {
                    return Poll::Ready(this.store.answer(&this.query, Err(why)));
                }
                Next::Read(plan) if !plan.is_of_a_file() => this.begin(plan),
                Next::Absent(_) | Next::Read(_) | Next::Ask(_) => this.hand_over(),
            }
        }
    }
}

impl Store {
    /// As [`Store::run`] for tasks.
    pub(crate) fn frame_async(&self, query: Query) -> impl Future<Output = Result<Option<Arc<Frame>>>> + Send + use<> {
        Seek::new(self.clone(), query)
    }
}
