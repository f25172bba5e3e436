//! Answers of the slow path on their way to the client, where hyper did not bring the request.
//!
//! 1. The head says where the body ends ([`Framing`]).
//! 2. The body is written as it comes: short pieces together, a long one when what came before is out.
//! 3. The body is dropped before its last bytes are sent: who has all of an answer finds it counted and logged.

use std::{future::poll_fn, io, pin::Pin, task::Poll};

use bytes::Bytes;
use http::{HeaderName, Response, StatusCode, header, response::Parts};
use http_body::{Body as _, Frame};
use hyper::ext::ReasonPhrase;
use parking_lot::Mutex;

use super::{
    answer::SHORT,
    socket::{FastIo, Out, Turn},
};
use crate::{
    body::Body,
    clock::{date, unix_millis},
    conn::Phase,
    reason::Broken,
    rules::directives::number,
    upgrade,
    wire::{push_field, push_line, push_status},
};

/// What of a body is still to be sent, and how the client sees its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Framing {
    Over,
    /// So many bytes, one at least.
    Length(u64),
    /// Trailers of these names may follow.
    Chunked(Vec<HeaderName>),
    UntilClose,
}

/// What kind of request is answered.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct To {
    pub(crate) is_head: bool,
    /// HTTP/1.0.
    pub(crate) is_old: bool,
}

/// Sends an answer to the request that was taken.
///
/// # Errors
/// The connection is over: the client is gone, or the body broke off and nothing else tells the client.
pub(crate) async fn deliver(io: &Mutex<FastIo>, response: Response<Body>, to: To) -> io::Result<()> {
    let (parts, mut body) = response.into_parts();
    let mut framing = {
        let io = &mut *io.lock();
        io.ahead.end();
        io.out.reserve();
        encode(&mut io.out.head, &parts, to, body.size_hint().exact())
    };
    let is_last = upgrade::listed(&parts.headers, &header::CONNECTION).any(|word| word == "close");
    drop(parts);
    let mut is_cut = false;
    while framing != Framing::Over && !is_cut {
        match next(io, &mut body).await? {
            Some(Ok(frame)) => framing.add(&mut io.lock().out, frame),
            None if !matches!(framing, Framing::Length(_)) => framing.end(&mut io.lock().out.head),
            None | Some(Err(_)) => is_cut = true,
        }
        if framing != Framing::Over && !io.lock().out.is_short() {
            poll_fn(|cx| io.lock().poll_out_if_any(cx)).await?;
        }
    }
    drop(body);
    poll_fn(|cx| io.lock().poll_out_if_any(cx)).await?;
    if is_cut {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    io.lock().end_answer(is_last);
    Ok(())
}

impl FastIo {
    /// What stands behind the last request is not looked at.
    fn end_answer(&mut self, is_last: bool) {
        self.turn = Turn::Ours;
        if is_last {
            (self.start, self.eof) = (self.end, true);
        }
        self.conn.enter(Phase::Idle, self.tick());
    }
}

/// The next of a body. While it is waited for, what came before goes out.
async fn next(io: &Mutex<FastIo>, body: &mut Body) -> io::Result<Option<Result<Frame<Bytes>, Broken>>> {
    poll_fn(|cx| {
        let polled = Pin::new(&mut *body).poll_frame(cx);
        if polled.is_pending()
            && let Poll::Ready(Err(error)) = io.lock().poll_out_if_any(cx)
        {
            return Poll::Ready(Err(error));
        }
        polled.map(Ok)
    })
    .await
}

/// Appends the head of an answer, whose body is of `len` bytes if that is known.
pub(super) fn encode(out: &mut Vec<u8>, parts: &Parts, to: To, len: Option<u64>) -> Framing {
    let (status, headers) = (parts.status, &parts.headers);
    let reason = parts.extensions.get::<ReasonPhrase>();
    push_status(out, to.is_old, status, reason.map(ReasonPhrase::as_bytes));
    let has_body = !to.is_head && !matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED);
    let said = || headers.get(header::CONTENT_LENGTH).and_then(|said| number(said.to_str().ok()?));
    let framing = match len.or_else(said) {
        _ if !has_body => Framing::Over,
        Some(0) => Framing::Over,
        Some(len) => Framing::Length(len),
        None if to.is_old => Framing::UntilClose,
        None => {
            let named = upgrade::listed(headers, &header::TRAILER);
            Framing::Chunked(named.filter_map(|name| name.parse().ok()).filter(may_trail).collect())
        }
    };
    for (name, value) in headers {
        let is_sent = match *name {
            // Of an answer to HEAD it is that of the body which GET would have.
            header::CONTENT_LENGTH => to.is_head,
            header::TRANSFER_ENCODING => false,
            header::TRAILER => matches!(framing, Framing::Chunked(_)),
            _ => true,
        };
        if is_sent {
            push_line(out, name.as_str(), value.as_bytes());
        }
    }
    match &framing {
        Framing::Length(len) => push_field(out, b"content-length: ", *len),
        Framing::Over if has_body => push_field(out, b"content-length: ", 0),
        Framing::Chunked(_) => push_line(out, "transfer-encoding", b"chunked"),
        Framing::Over | Framing::UntilClose => {}
    }
    if !headers.contains_key(header::DATE) {
        push_line(out, "date", date(unix_millis()).as_bytes());
    }
    out.extend_from_slice(b"\r\n");
    framing
}

/// Whether a field may come behind a body: not where it frames the message, or says how it is to be treated (RFC 9110
/// 6.5.1).
fn may_trail(name: &HeaderName) -> bool {
    !matches!(
        *name,
        header::AUTHORIZATION
            | header::CACHE_CONTROL
            | header::CONNECTION
            | header::CONTENT_ENCODING
            | header::CONTENT_LENGTH
            | header::CONTENT_RANGE
            | header::CONTENT_TYPE
            | header::HOST
            | header::MAX_FORWARDS
            | header::SET_COOKIE
            | header::TE
            | header::TRAILER
            | header::TRANSFER_ENCODING
    )
}

impl Framing {
    /// Adds what comes next. The body's end is in it, if its length says so or trailers come.
    fn add(&mut self, out: &mut Out, frame: Frame<Bytes>) {
        let mut bytes = match frame.into_data() {
            Ok(bytes) => bytes,
            Err(frame) => {
                if let (Self::Chunked(named), Ok(trailers)) = (&*self, frame.into_trailers()) {
                    out.head.extend_from_slice(b"0\r\n");
                    for (name, value) in trailers.iter().filter(|(name, _)| named.contains(name)) {
                        push_line(&mut out.head, name.as_str(), value.as_bytes());
                    }
                    out.head.extend_from_slice(b"\r\n");
                    *self = Self::Over;
                }
                return;
            }
        };
        match self {
            Self::Length(left) => {
                bytes.truncate(usize::try_from(*left).unwrap_or(usize::MAX));
                *left -= bytes.len() as u64;
                if *left == 0 {
                    *self = Self::Over;
                }
                out.push(bytes, b"");
            }
            // One of no bytes would be the last.
            Self::Chunked(_) if !bytes.is_empty() => {
                out.head.extend_from_slice(format!("{:x}\r\n", bytes.len()).as_bytes());
                out.push(bytes, b"\r\n");
            }
            Self::UntilClose => out.push(bytes, b""),
            Self::Chunked(_) | Self::Over => {}
        }
    }

    /// The body's end, where it is not in its length.
    fn end(&mut self, out: &mut Vec<u8>) {
        if matches!(self, Self::Chunked(_)) {
            out.extend_from_slice(b"0\r\n\r\n");
        }
        *self = Self::Over;
    }
}

impl Out {
    /// Whether more may be put behind it.
    fn is_short(&self) -> bool {
        self.body.is_empty() && self.head.len() < SHORT
    }

    /// Puts bytes behind the head, and what comes behind them. What is there is short.
    fn push(&mut self, bytes: Bytes, tail: &'static [u8]) {
        if bytes.len() <= SHORT {
            self.head.extend_from_slice(&bytes);
            self.head.extend_from_slice(tail);
        } else {
            (self.body, self.tail) = (bytes, tail);
        }
    }
}

#[cfg(test)]
mod tests;
