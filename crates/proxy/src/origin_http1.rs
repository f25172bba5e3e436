//! HTTP/1 with an origin, for requests without a body, as misses are: head and body are read from the socket by the
//! task that wants them, with no other task and no channel between. hyper has the requests with a body, and those that
//! may go on with another protocol (`pool`).
//!
//! 1. The request's head is written at once.
//! 2. Heads are read up to the first that is no interim answer.
//! 3. The body is read as it is asked for.
//!
//! A connection serves another request if the answer came to its end, nothing stands behind it, and both sides keep the
//! connection (RFC 9112 9.3). Whatever else becomes of an answer, the connection closes with it.

pub(crate) mod framing;
mod head;

use std::{
    future::poll_fn,
    io,
    pin::Pin,
    task::{Context, Poll, Waker, ready},
};

use bytes::{Bytes, BytesMut};
use http::{Response, StatusCode};
use http_body::{Frame, SizeHint};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf};

use self::framing::{Framing, Piece};
pub(crate) use self::head::{LONGEST_HEAD, MOST_FIELDS};
use crate::{
    origin_tls::{self, OriginStream},
    outgoing::{self, Interim, Outgoing},
    reason::OriginFailure,
};

/// Bytes that are read at once: at first, and where reads do not fill that. A head and a small body fit.
const SHORT_READ: usize = 8 << 10;

/// At most.
const LONG_READ: usize = 64 << 10;

/// A connection to an origin.
pub(crate) struct Connection<S = OriginStream> {
    stream: S,
    /// What was read and is not yet given on. Nothing between two requests.
    buffer: BytesMut,
    /// Bytes that the next read may bring.
    room: usize,
    /// Of the answer that is arriving.
    framing: Framing,
    /// Whether another request may follow, if the answer comes to its end.
    is_kept: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Connection<S> {
    pub(crate) fn new(stream: S) -> Self {
        Self { stream, buffer: BytesMut::new(), room: SHORT_READ, framing: Framing::Over, is_kept: true }
    }

    /// Whether another request may be sent: the last answer has come to its end, with nothing behind it.
    pub(crate) fn is_over(&self) -> bool {
        self.is_kept && self.buffer.is_empty() && matches!(self.framing, Framing::Over)
    }

    /// Holds no buffer until the next request.
    pub(crate) fn rest(&mut self) {
        self.buffer = BytesMut::new();
    }

    /// Whether the other end has been silent since: neither an end nor an answer to nothing has come.
    pub(crate) fn is_quiet(&mut self) -> bool {
        let mut room = [0; 1];
        let mut context = Context::from_waker(Waker::noop());
        Pin::new(&mut self.stream).poll_read(&mut context, &mut ReadBuf::new(&mut room)).is_pending()
    }

    /// Sends a request without a body; returns at the head of the answer. `interim` gets the heads before that.
    pub(crate) async fn ask(
        &mut self,
        request: &Outgoing<'_>,
        interim: Option<&Interim>,
    ) -> Result<Response<()>, OriginFailure> {
        self.framing = Framing::UntilClose;
        let (wire, is_head) = head::encode(request);
        self.stream.write_all(&wire).await.map_err(|error| failure(&error))?;
        self.stream.flush().await.map_err(|error| failure(&error))?;
        loop {
            let Some(head) = head::parse(&mut self.buffer)? else {
                if self.buffer.len() >= LONGEST_HEAD {
                    return Err(OriginFailure::Protocol);
                }
                if poll_fn(|cx| self.poll_fill(cx, u64::MAX)).await? == 0 {
                    return Err(OriginFailure::Closed);
                }
                continue;
            };
            let status = head.response.status();
            if !status.is_informational() {
                self.framing = Framing::of(is_head, &head)?;
                self.is_kept = head.is_kept && !matches!(self.framing, Framing::UntilClose);
                return Ok(head.response);
            }
            // Another protocol was not asked for.
            if status == StatusCode::SWITCHING_PROTOCOLS {
                return Err(OriginFailure::Protocol);
            }
            outgoing::tell(interim, status, head.response.headers());
        }
    }

    /// The next of the body.
    pub(crate) fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, OriginFailure>>> {
        loop {
            let wanted = match self.framing.next(&mut self.buffer) {
                Ok(Piece::Data(bytes)) => return Poll::Ready(Some(Ok(Frame::data(bytes)))),
                Ok(Piece::Trailers(fields)) => return Poll::Ready(Some(Ok(Frame::trailers(fields)))),
                Ok(Piece::End) => return Poll::Ready(None),
                Ok(Piece::More(wanted)) => wanted,
                Err(why) => return Poll::Ready(Some(Err(self.broken(why)))),
            };
            match ready!(self.poll_fill(cx, wanted)) {
                Ok(0) if matches!(self.framing, Framing::UntilClose) => self.framing = Framing::Over,
                Ok(0) => return Poll::Ready(Some(Err(self.broken(OriginFailure::Closed)))),
                Ok(_) => {}
                Err(why) => return Poll::Ready(Some(Err(self.broken(why)))),
            }
        }
    }

    /// Reads more; not much more than is `wanted`.
    fn poll_fill(&mut self, cx: &mut Context<'_>, wanted: u64) -> Poll<Result<usize, OriginFailure>> {
        let room = usize::try_from(wanted).unwrap_or(usize::MAX).clamp(SHORT_READ, self.room);
        self.buffer.reserve(room);
        let read = std::pin::pin!(self.stream.read_buf(&mut self.buffer));
        let len = ready!(read.poll(cx)).map_err(|error| failure(&error))?;
        if len >= self.room {
            self.room = (2 * self.room).min(LONG_READ);
        } else if len < self.room / 4 {
            self.room = (self.room / 2).max(SHORT_READ);
        }
        Poll::Ready(Ok(len))
    }

    /// Nothing more comes of it.
    fn broken(&mut self, why: OriginFailure) -> OriginFailure {
        (self.framing, self.is_kept) = (Framing::Over, false);
        why
    }

    pub(crate) fn is_end_stream(&self) -> bool {
        matches!(self.framing, Framing::Over)
    }

    pub(crate) fn size_hint(&self) -> SizeHint {
        match self.framing {
            Framing::Over => SizeHint::with_exact(0),
            Framing::Length(left) => SizeHint::with_exact(left),
            Framing::Chunked(_) | Framing::UntilClose => SizeHint::default(),
        }
    }
}

/// What the origin did wrong, if the socket says this.
fn failure(error: &io::Error) -> OriginFailure {
    // By TLS 1.3 it says so only behind the handshake.
    if origin_tls::is_refused(error) { OriginFailure::TlsRefused } else { OriginFailure::Closed }
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, Method, uri::PathAndQuery};
    use tokio::io::duplex;

    use super::*;

    /// Whether a connection may be used again after this answer, and whether it seems to live.
    async fn after(answer: &[u8]) -> (bool, bool) {
        let (ours, mut theirs) = duplex(1 << 16);
        let mut connection = Connection::new(ours);
        assert!(connection.is_quiet() && connection.is_over());
        theirs.write_all(answer).await.unwrap();
        let (path, fields) = (PathAndQuery::from_static("/"), HeaderMap::new());
        connection.ask(&Outgoing::Bare(&Method::GET, &path, &fields), None).await.unwrap();
        while poll_fn(|cx| connection.poll_frame(cx)).await.is_some_and(|frame| frame.is_ok()) {
            assert!(!connection.is_over() || connection.is_end_stream());
        }
        (connection.is_over(), connection.is_quiet())
    }

    #[tokio::test]
    async fn a_connection_is_used_again_if_its_answer_ended_with_nothing_behind_it() {
        for (answer, is_over) in [
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello", true),
            ("HTTP/1.1 204 No Content\r\n\r\n", true),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\n", true),
            ("HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ncontent-length: 5\r\n\r\nhello", true),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhello!", false),
            ("HTTP/1.1 200 OK\r\ncontent-length: 5\r\nconnection: x, Close\r\n\r\nhello", false),
            ("HTTP/1.1 200 OK\r\nconnection: keep-alive\r\nconnection: close\r\ncontent-length: 0\r\n\r\n", false),
            ("HTTP/1.0 200 OK\r\ncontent-length: 5\r\n\r\nhello", false),
            ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\naX", false),
        ] {
            assert_eq!(after(answer.as_bytes()).await, (is_over, true), "{answer}");
        }
    }

    #[tokio::test]
    async fn an_answer_to_nothing_is_noticed() {
        let (ours, mut theirs) = duplex(1 << 10);
        let mut connection = Connection::new(ours);
        theirs.write_all(b"HTTP/1.1 408 Request Timeout\r\n\r\n").await.unwrap();
        assert!(!connection.is_quiet());
    }
}
