//! Answers of the fast path: written at once as far as the socket takes them; the rest when it is ready again.

use std::{
    io::{self, IoSlice},
    ops::Range,
    os::unix::fs::FileExt,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use tokio::io::AsyncWrite;

use super::{
    hit::FastHit,
    seen::Plain,
    socket::{FastIo, Step, Turn},
};
use crate::{clock::unix_millis, conn::Phase, head::Head, log::Line, reason::Outcome, rules::directives};

/// A body up to here is laid behind its head and both are sent from one place: of a short one that costs less than
/// having the kernel gather two.
pub(super) const SHORT: usize = 8 << 10;

impl FastIo {
    /// Sends what the socket takes at once, and keeps the rest; says how many bytes are done with.
    pub(super) fn answer(&mut self, hit: &FastHit, outcome: Outcome, plain: &Plain<'_, '_>) -> Step {
        let part = if plain.head_only { 0..0 } else { hit.part() };
        let bytes = part.len();
        self.out.reserve();
        hit.write_head(plain, &mut self.out.head);
        self.send(hit, part);
        self.worker.counters.outcomes.one(outcome);
        let phase = if self.is_all_out() { Phase::Idle } else { Phase::Sending };
        self.conn.enter(phase, self.tick());
        if self.worker.proxy.log.on() {
            self.log(hit, outcome, plain, bytes);
        }
        // What stands behind the last request is not looked at.
        self.eof |= plain.is_last;
        if plain.is_last { Step::Last } else { Step::Answered(plain.len) }
    }

    /// Sends the head that was written and a part of the body as far as the socket takes them at once, and keeps the
    /// rest.
    fn send(&mut self, hit: &FastHit, part: Range<usize>) {
        let whole = &mut self.out.head;
        let (head, len) = (whole.len(), whole.len() + part.len());
        let mut file = hit.file.as_ref();
        let body = match hit.object.body_slice() {
            Some(body) => &body[part.clone()],
            None => &[],
        };
        let sent = match file {
            Some(file) if part.len() > SHORT => self.io.try_write_file(whole, file, part.clone()),
            // The store has it in chunks.
            Some(short) if body.len() < part.len() => {
                whole.resize(len, 0);
                match short.read_exact_at(&mut whole[head..], part.start as u64) {
                    Ok(()) => self.io.try_write(whole),
                    Err(e) => Err(e),
                }
            }
            _ => {
                file = None;
                if body.len() <= SHORT {
                    whole.extend_from_slice(body);
                    self.io.try_write(whole)
                } else {
                    self.io.try_write_vectored(&[IoSlice::new(whole), IoSlice::new(body)])
                }
            }
        };
        // What is wrong with the socket is seen when the rest is written.
        let sent = sent.unwrap_or(0);
        self.worker.counters.sent_bytes.add(len as u64);
        if sent == len {
            return self.out.clear();
        }
        whole.truncate(head);
        self.out.at = sent;
        if let Some(file) = file.filter(|_| !part.is_empty()) {
            self.out.file = Some((file.clone(), part));
        } else if !part.is_empty() {
            self.out.body = hit.object.body_in_memory().map_or_else(Bytes::new, |body| body.slice(part));
        }
    }

    /// Whether the socket has all of our own answer.
    #[inline]
    pub(super) fn is_all_out(&self) -> bool {
        self.out.is_empty() && self.io.is_flushed()
    }

    /// Writes what is left of our own answer, if anything is.
    pub(super) fn poll_out_if_any(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.is_all_out() { Poll::Ready(Ok(())) } else { self.poll_out(cx) }
    }

    /// Writes it.
    pub(super) fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            let n = ready!(match self.out.rest_of_file() {
                Some((file, part)) => self.io.poll_write_file(cx, file, part),
                None => Pin::new(&mut self.io).poll_write_vectored(cx, &self.out.slices()),
            })?;
            if n == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            self.out.at += n;
            self.conn.take(n);
            self.conn.enter(Phase::Sending, self.tick());
        }
        ready!(self.poll_flush_io(cx))?;
        self.out.clear();
        self.conn.enter(if self.turn == Turn::Ours { Phase::Idle } else { Phase::Busy }, self.tick());
        Poll::Ready(Ok(()))
    }

    /// Has the socket take what TLS keeps. What it takes of that is progress, too.
    pub(super) fn poll_flush_io(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let before = self.io.taken();
        let flushed = Pin::new(&mut self.io).poll_flush(cx);
        if flushed.is_pending() {
            if self.io.taken() != before {
                self.conn.enter(Phase::Sending, self.tick());
            }
            self.conn.enter_once(Phase::Sending, self.tick());
        }
        flushed
    }

    fn log(&self, hit: &FastHit, outcome: Outcome, plain: &Plain<'_, '_>, bytes: usize) {
        let text = |name| String::from_utf8_lossy(plain.field(name).unwrap_or_default());
        let log = &self.worker.proxy.log;
        let mut fields = log.tells_types().then(|| Head::lines(hit.object.metadata())).into_iter().flatten();
        let kind = fields.find(|field| field.name == b"content-type");
        self.worker.log(&Line {
            client: self.conn.client,
            user: "",
            began: unix_millis(),
            took: 0,
            method: if plain.head_only { "HEAD" } else { "GET" },
            target: plain.target,
            protocol: if plain.is_old { "HTTP/1.0" } else { "HTTP/1.1" },
            is_encrypted: self.conn.is_encrypted,
            host: &String::from_utf8_lossy(plain.host),
            status: hit.status().as_u16(),
            bytes: bytes as u64,
            referer: &text("referer"),
            agent: &text("user-agent"),
            content_type: kind.and_then(|kind| directives::text(kind.value)).unwrap_or_default(),
            outcome,
            detail: "",
            ending: "",
            is_cut: false,
        });
    }
}
