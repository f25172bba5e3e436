//! Reads that are not waited for: a preset that batches them answers when the batch is done.

use std::{
    pin::Pin,
    task::{Context, Poll, Waker},
};

use picaflor::Object;

use crate::trace::Request;

type Get = Pin<Box<dyn Future<Output = picaflor::Result<Option<Object>>> + Send>>;

pub(super) struct Reads {
    pub(super) lazy: bool,
    waiting: Vec<(Get, Request)>,
}

impl Reads {
    pub(super) fn new(lazy: bool) -> Self {
        Self { lazy, waiting: Vec::new() }
    }

    pub(super) fn add(&mut self, get: Get, request: Request) {
        self.waiting.push((get, request));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    /// Asks all that are out; those that are done leave.
    pub(super) fn poll(&mut self) -> picaflor::Result<Vec<(Request, Option<Object>)>> {
        let mut context = Context::from_waker(Waker::noop());
        let (mut done, mut failure) = (Vec::new(), None);
        self.waiting.retain_mut(|(get, request)| match get.as_mut().poll(&mut context) {
            Poll::Pending => true,
            Poll::Ready(Ok(object)) => {
                done.push((*request, object));
                false
            }
            Poll::Ready(Err(error)) => {
                failure = Some(error);
                false
            }
        });
        failure.map_or(Ok(done), Err)
    }
}
