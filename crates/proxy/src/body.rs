//! The body of a response to a client: nothing, bytes in memory, pieces of a stored object, slices of one, a fetch
//! that is still arriving, an origin's body passed on, or a page of fragments. It ends in a [`Guard`] that tells the
//! connection, the counters and the access log.

use std::{
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{
    conn::Conn,
    esi::assembled::Assembled,
    log::Line,
    metrics::Counters,
    passed::Passed,
    pieces::Pieces,
    proxy::Worker,
    reader::Reader,
    reason::{Broken, Outcome, REST_FROM_ORIGIN},
    sliced::Sliced,
};

/// Where the bytes come from.
pub(crate) enum Kind {
    /// No body.
    Empty,
    /// In memory.
    Full(Bytes),
    /// Parts of stored objects and of text between them, in order.
    Pieces(Pieces),
    /// Slices of an object, in order.
    Sliced(Box<Sliced>),
    /// A fetch in progress.
    Fill(Box<Reader>),
    /// An origin's body, passed on.
    Origin(Box<Passed>),
    /// A page of fragments.
    Assembled(Box<Assembled>),
}

impl Kind {
    /// The next bytes; an origin's trailers are left out.
    pub(crate) fn poll_data(
        &mut self,
        cx: &mut Context<'_>,
        counters: &Counters,
    ) -> Poll<Option<Result<Bytes, Broken>>> {
        loop {
            match ready!(self.poll_frame(cx, counters)) {
                Some(Ok(frame)) => {
                    if let Ok(bytes) = frame.into_data() {
                        return Poll::Ready(Some(Ok(bytes)));
                    }
                }
                Some(Err(broken)) => return Poll::Ready(Some(Err(broken))),
                None => return Poll::Ready(None),
            }
        }
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>, counters: &Counters) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let next = match self {
            Self::Empty => None,
            Self::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                if bytes.is_empty() { None } else { Some(Ok(bytes)) }
            }
            Self::Pieces(pieces) => ready!(pieces.poll(cx)),
            Self::Sliced(sliced) => ready!(sliced.poll(cx)),
            Self::Fill(reader) => ready!(reader.poll(cx)),
            Self::Origin(passed) => return passed.poll(cx, counters),
            Self::Assembled(page) => ready!(page.poll(cx)),
        };
        Poll::Ready(next.map(|next| next.map(Frame::data)))
    }

    /// Whether bytes came from the origin that were to come from the store.
    fn is_mended(&self) -> bool {
        match self {
            Self::Pieces(pieces) => pieces.mended,
            Self::Sliced(sliced) => sliced.mended,
            Self::Fill(reader) => reader.is_mended(),
            Self::Empty | Self::Full(_) | Self::Origin(_) | Self::Assembled(_) => false,
        }
    }
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
        if let Some(broken) = this.guard.broken {
            return Poll::Ready(Some(Err(broken)));
        }
        let next = ready!(this.kind.poll_frame(cx, &this.guard.worker.counters));
        this.guard.mended = this.kind.is_mended();
        match &next {
            Some(Ok(frame)) => this.guard.sent += frame.data_ref().map_or(0, Bytes::len) as u64,
            Some(Err(broken)) => {
                // hyper sends what has come before, the head too, only if it does not hear of this at once.
                this.guard.broken = Some(*broken);
                cx.waker().wake_by_ref();
                return Poll::Pending;
            }
            None => {}
        }
        Poll::Ready(next)
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
            Kind::Pieces(pieces) => SizeHint::with_exact(pieces.left()),
            Kind::Sliced(sliced) => SizeHint::with_exact(sliced.left()),
            Kind::Fill(reader) => reader.left().map_or_else(SizeHint::default, SizeHint::with_exact),
            Kind::Origin(passed) => passed.size_hint(),
            Kind::Assembled(_) => SizeHint::default(),
        }
    }
}

/// What the access log wants to know of a request, gathered while it is answered; only made when the log is on.
pub(crate) struct Record {
    pub(crate) user: Option<Arc<str>>,
    pub(crate) began: u64,
    pub(crate) start: Instant,
    pub(crate) method: String,
    pub(crate) target: String,
    pub(crate) version: http::Version,
    pub(crate) host: String,
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
                user: record.user.as_deref().unwrap_or_default(),
                began: record.began,
                took: u64::try_from(record.start.elapsed().as_millis()).unwrap_or(u64::MAX),
                method: &record.method,
                target: &record.target,
                protocol: match record.version {
                    http::Version::HTTP_10 => "HTTP/1.0",
                    http::Version::HTTP_2 => "HTTP/2.0",
                    http::Version::HTTP_3 => "HTTP/3.0",
                    _ => "HTTP/1.1",
                },
                is_encrypted: self.conn.is_encrypted,
                host: &record.host,
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
