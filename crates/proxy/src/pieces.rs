//! Parts of a body in order: text, and bytes of a stored object, read piece by piece. Where a stored part breaks off,
//! the origin is asked for the rest.

use picaflor::{Chunks, Object};
use std::{
    collections::VecDeque,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;

use crate::{
    range::{self, Piece},
    reason::Broken,
    rest::{Rest, Tail},
};

type Reading = Pin<Box<dyn Future<Output = (Chunks, Option<Result<Bytes, picaflor::Error>>)> + Send>>;

/// Where the next bytes of a stored part come from.
enum Way {
    /// There is no such part at the moment.
    Between,
    Store(Reading),
    Asking(Pin<Box<dyn Future<Output = Result<Tail, Broken>> + Send>>),
    Origin(Box<Tail>),
}

/// Parts in order, stored ones read piece by piece.
pub(crate) struct Pieces {
    object: Option<Object>,
    queue: VecDeque<Piece>,
    way: Way,
    /// What is still to come of the stored part that is being sent.
    part: Range<u64>,
    left: u64,
    rest: Option<Arc<Rest>>,
    /// Whether bytes come from the origin that were to come from the store.
    pub(crate) mended: bool,
}

fn read_on(mut chunks: Chunks) -> Reading {
    Box::pin(async move {
        let next = chunks.next_async().await;
        (chunks, next)
    })
}

impl Pieces {
    pub(crate) fn new(object: Object, queue: VecDeque<Piece>) -> Self {
        let left = range::len(&queue);
        Self { object: Some(object), queue, way: Way::Between, part: 0..0, left, rest: None, mended: false }
    }

    /// Bytes left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// A range of one object.
    pub(crate) fn stored(object: Object, range: Range<u64>) -> Self {
        Self::new(object, VecDeque::from([Piece::Part(range)]))
    }

    /// A range of an object that the store has lost: why.
    pub(crate) fn from_origin(rest: Arc<Rest>, range: Range<u64>, why: &str) -> Self {
        let left = range.end.saturating_sub(range.start);
        let way = Way::Asking(Box::pin(rest.fetch(range, why.to_owned())));
        Self { object: None, queue: VecDeque::new(), way, part: 0..0, left, rest: None, mended: false }
    }

    /// Where they break off, the rest comes from there.
    pub(crate) fn or_from(mut self, rest: Option<Arc<Rest>>) -> Self {
        self.rest = rest;
        self
    }

    pub(crate) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        let next = ready!(self.poll_part(cx));
        match &next {
            Some(Ok(bytes)) => self.left = self.left.saturating_sub(bytes.len() as u64),
            // Nothing comes behind it.
            Some(Err(_)) => (self.way, self.left) = (Way::Between, 0),
            None => {}
        }
        Poll::Ready(next)
    }

    fn poll_part(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            match &mut self.way {
                Way::Between => match (self.queue.pop_front(), &self.object) {
                    (Some(Piece::Text(text)), _) => return Poll::Ready(Some(Ok(text))),
                    (Some(Piece::Part(range)), Some(object)) => {
                        self.part = range.clone();
                        self.way = Way::Store(read_on(object.chunks(range)));
                    }
                    _ => return Poll::Ready(None),
                },
                Way::Store(reading) => {
                    let (chunks, next) = ready!(reading.as_mut().poll(cx));
                    let why = match next {
                        Some(Ok(bytes)) => {
                            self.part.start += bytes.len() as u64;
                            self.way = Way::Store(read_on(chunks));
                            return Poll::Ready(Some(Ok(bytes)));
                        }
                        None if self.part.is_empty() => {
                            self.way = Way::Between;
                            continue;
                        }
                        None => "it ends there".to_owned(),
                        Some(Err(error)) => error.to_string(),
                    };
                    let Some(rest) = self.rest.clone() else { return Poll::Ready(Some(Err(Broken::Store))) };
                    self.way = Way::Asking(Box::pin(rest.fetch(self.part.clone(), why)));
                }
                Way::Asking(asking) => match ready!(asking.as_mut().poll(cx)) {
                    Ok(tail) => (self.way, self.mended) = (Way::Origin(Box::new(tail)), true),
                    Err(broken) => return Poll::Ready(Some(Err(broken))),
                },
                Way::Origin(tail) => match ready!(tail.poll(cx)) {
                    None => self.way = Way::Between,
                    next => return Poll::Ready(next),
                },
            }
        }
    }
}
