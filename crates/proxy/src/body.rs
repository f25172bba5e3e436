//! The body of a response to a client: nothing, bytes in memory, pieces of a stored object, a fetch that is still
//! arriving, or an origin's body passed on. Where pieces break off, the origin is asked for the rest. It ends in a
//! [`Guard`] that tells the connection, the counters and the access log.

use picaflor::{Chunks, Object};
use std::{
    collections::VecDeque,
    future::Future,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::{Duration, Instant},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use tokio::time::Sleep;

use crate::{
    config::LimitsConfig,
    conn::Conn,
    log::Line,
    origin::{self, Arriving},
    pace::Pace,
    reader::Reader,
    reason::{Broken, OriginFailure, Outcome, REST_FROM_ORIGIN},
    rest::{Rest, Tail},
    server::Worker,
};

/// Where the bytes come from.
pub(crate) enum Kind {
    /// No body.
    Empty,
    /// In memory.
    Full(Bytes),
    /// Parts of stored objects and of text between them, in order.
    Pieces(Pieces),
    /// A fetch in progress.
    Fill(Box<Reader>),
    /// An origin's body, passed on.
    Origin(Box<Passed>),
}

/// A response body.
pub(crate) struct Body {
    kind: Kind,
    guard: Guard,
}

impl Body {
    pub(crate) fn new(kind: Kind, guard: Guard) -> Self {
        Self { kind, guard }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        let next = match &mut this.kind {
            Kind::Empty => None,
            Kind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                if bytes.is_empty() { None } else { Some(Ok(bytes)) }
            }
            Kind::Pieces(pieces) => {
                let next = ready!(pieces.poll(cx));
                this.guard.mended = pieces.mended;
                next
            }
            Kind::Fill(reader) => {
                let next = ready!(reader.poll(cx));
                this.guard.mended = reader.is_mended();
                next
            }
            Kind::Origin(passed) => {
                let frame = ready!(passed.poll(cx, &this.guard.worker));
                match &frame {
                    Some(Ok(frame)) => this.guard.sent += frame.data_ref().map_or(0, Bytes::len) as u64,
                    Some(Err(broken)) => this.guard.broken = Some(*broken),
                    None => {}
                }
                return Poll::Ready(frame);
            }
        };
        Poll::Ready(match next {
            Some(Ok(bytes)) => {
                this.guard.sent += bytes.len() as u64;
                Some(Ok(Frame::data(bytes)))
            }
            Some(Err(broken)) => {
                this.guard.broken = Some(broken);
                Some(Err(broken))
            }
            None => None,
        })
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            Kind::Empty => true,
            Kind::Full(bytes) => bytes.is_empty(),
            _ => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            Kind::Empty => SizeHint::with_exact(0),
            Kind::Full(bytes) => SizeHint::with_exact(bytes.len() as u64),
            Kind::Pieces(pieces) => SizeHint::with_exact(pieces.left),
            Kind::Fill(reader) => reader.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Kind::Origin(passed) => http_body::Body::size_hint(&passed.arriving),
        }
    }
}

/// A part of a body.
pub(crate) enum Piece {
    Text(Bytes),
    Stored(Object, Range<u64>),
}

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
    pub(crate) fn new(queue: VecDeque<Piece>) -> Self {
        let left = queue
            .iter()
            .map(|piece| match piece {
                Piece::Text(text) => text.len() as u64,
                Piece::Stored(_, range) => range.end - range.start,
            })
            .sum();
        Self { queue, way: Way::Between, part: 0..0, left, rest: None, mended: false }
    }

    /// Bytes left.
    pub(crate) fn left(&self) -> u64 {
        self.left
    }

    /// A range of one object.
    pub(crate) fn stored(object: Object, range: Range<u64>) -> Self {
        Self::new(VecDeque::from([Piece::Stored(object, range)]))
    }

    /// A range of an object that the store has lost: why.
    pub(crate) fn from_origin(rest: Arc<Rest>, range: Range<u64>, why: &str) -> Self {
        let left = range.end.saturating_sub(range.start);
        let way = Way::Asking(Box::pin(rest.fetch(range, why.to_owned())));
        Self { queue: VecDeque::new(), way, part: 0..0, left, rest: None, mended: false }
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
                Way::Between => match self.queue.pop_front() {
                    Some(Piece::Text(text)) => return Poll::Ready(Some(Ok(text))),
                    Some(Piece::Stored(object, range)) => {
                        self.part = range.clone();
                        self.way = Way::Store(read_on(object.chunks(range)));
                    }
                    None => return Poll::Ready(None),
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

/// An origin's body with a limit on silence: on how long we wait for it, not on how long the client takes.
pub(crate) struct Passed {
    arriving: Arriving,
    limit: Duration,
    silence: Pin<Box<Sleep>>,
    waiting: bool,
    pace: Option<Pace>,
}

impl Passed {
    pub(crate) fn new(arriving: Arriving, limits: &LimitsConfig) -> Self {
        let limit = limits.body_timeout.0;
        let pace = Pace::new(limits.origin_rate, limits.rate_window);
        Self { arriving, limit, silence: Box::pin(tokio::time::sleep(limit)), waiting: false, pace }
    }

    /// The next piece of data, or the trailers.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, worker: &Worker) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        match http_body::Body::poll_frame(Pin::new(&mut self.arriving), cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                self.waiting = false;
                if let Some(trailers) = frame.trailers_mut() {
                    origin::strip_hop_by_hop(trailers);
                }
                let len = frame.data_ref().map_or(0, Bytes::len);
                self.pace.iter_mut().for_each(|pace| pace.came(len));
                worker.counters.origin_bytes.add(len as u64);
                Poll::Ready(Some(Ok(frame)))
            }
            Poll::Ready(Some(Err(error))) => {
                worker.counters.failures.one(origin::failure(&error));
                Poll::Ready(Some(Err(Broken::Origin)))
            }
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                if !std::mem::replace(&mut self.waiting, true) {
                    self.silence.as_mut().reset(tokio::time::Instant::now() + self.limit);
                }
                let is_slow = self.pace.as_mut().is_some_and(|pace| pace.poll_slow(cx).is_ready());
                let why = if is_slow { OriginFailure::BodySlow } else { OriginFailure::BodyTimeout };
                if !is_slow {
                    ready!(self.silence.as_mut().poll(cx));
                }
                worker.counters.failures.one(why);
                Poll::Ready(Some(Err(Broken::Origin)))
            }
        }
    }
}

/// What the access log wants to know of a request, gathered while it is answered; only made when the log is on.
pub(crate) struct Record {
    pub(crate) began: u64,
    pub(crate) start: Instant,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: http::Version,
    pub(crate) url: String,
    pub(crate) referer: String,
    pub(crate) agent: String,
    pub(crate) content_type: String,
    pub(crate) status: u16,
    pub(crate) outcome: Outcome,
    pub(crate) detail: &'static str,
}

/// Runs when the body has been handed over, or dropped because the client left.
pub(crate) struct Guard {
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    record: Option<Box<Record>>,
    sent: u64,
    broken: Option<Broken>,
    mended: bool,
}

impl Guard {
    pub(crate) fn new(worker: Arc<Worker>, conn: Arc<Conn>, record: Option<Box<Record>>) -> Self {
        Self { worker, conn, record, sent: 0, broken: None, mended: false }
    }

    /// Counts bytes that went to the client past a [`Body`].
    pub(crate) fn sent(&mut self, bytes: u64) {
        self.sent += bytes;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        self.conn.end_response();
        let counters = &self.worker.counters;
        counters.sent_bytes.add(self.sent);
        let ending = match (self.broken, self.mended) {
            (Some(broken), _) => {
                counters.broken.one(broken);
                broken.name()
            }
            (None, true) => {
                counters.mended.add(1);
                REST_FROM_ORIGIN
            }
            (None, false) => "",
        };
        if let Some(record) = &self.record {
            self.worker.log(&Line {
                client: self.conn.client,
                began: record.began,
                took: u64::try_from(record.start.elapsed().as_millis()).unwrap_or(u64::MAX),
                method: &record.method,
                target: &record.target,
                protocol: if record.version == http::Version::HTTP_10 { "HTTP/1.0" } else { "HTTP/1.1" },
                url: &record.url,
                status: record.status,
                bytes: self.sent,
                referer: &record.referer,
                agent: &record.agent,
                content_type: &record.content_type,
                outcome: record.outcome,
                detail: record.detail,
                ending,
                is_cut: self.broken.is_some(),
            });
        }
    }
}
