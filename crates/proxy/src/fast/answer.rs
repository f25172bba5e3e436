//! Answers of the fast path: written at once as far as the socket takes them; the rest when it is ready again.

use std::{
    cell::RefCell,
    io::{self, IoSlice},
    mem::MaybeUninit,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use httparse::Header;

use super::{
    hit::FastHit,
    seen::MOST_FIELDS,
    socket::{FastIo, Out, Turn},
};
use crate::{clock::unix_millis, conn::Phase, head::Head, log::Line, reason::Outcome};

/// A body up to here is laid behind its head and both are sent from one place: of a short one that costs less than
/// having the kernel gather two.
const SHORT: usize = 8 << 10;

thread_local! {
    /// Where a worker puts answers together. One for all its connections stays in the processor's cache, and those
    /// that are idle hold nothing.
    static WHOLE: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

impl FastIo {
    /// Sends what the socket takes at once, and keeps the rest.
    pub(super) fn answer(&mut self, hit: &FastHit, head_only: bool, outcome: Outcome, request: &[u8]) {
        let body = if head_only { &[][..] } else { hit.body() };
        WHOLE.with_borrow_mut(|whole| {
            whole.clear();
            hit.write_head(whole);
            let head = whole.len();
            let sent = if body.len() <= SHORT {
                whole.extend_from_slice(body);
                self.io.try_write(whole)
            } else {
                self.io.try_write_vectored(&[IoSlice::new(whole), IoSlice::new(body)])
            };
            // What is wrong with the socket is seen when the rest is written.
            let sent = sent.unwrap_or(0);
            let len = head + body.len();
            self.worker.counters.sent_bytes.add(len as u64);
            if sent < len {
                self.out.head.extend_from_slice(&whole[..head]);
                self.out.body = if head_only { Bytes::new() } else { hit.object.body_in_memory().unwrap_or_default() };
                self.out.at = sent;
            }
        });
        self.worker.counters.outcomes.one(outcome);
        let phase = if self.out.is_empty() { Phase::Idle } else { Phase::Sending };
        self.conn.enter(phase, self.tick());
        if self.worker.proxy.log.on() {
            self.log(hit, outcome, request);
        }
    }

    /// Writes what is left of our own answer.
    pub(super) fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            match self.io.try_write_vectored(&self.out.slices()) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    self.out.at += n;
                    self.conn.take(n);
                    self.conn.enter(Phase::Sending, self.tick());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.io.poll_write_ready(cx))?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.out = Out::default();
        self.conn.enter(if self.turn == Turn::Ours { Phase::Idle } else { Phase::Busy }, self.tick());
        Poll::Ready(Ok(()))
    }

    fn log(&self, hit: &FastHit, outcome: Outcome, bytes: &[u8]) {
        let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut []);
        if request.parse_with_uninit_headers(bytes, &mut fields).is_err() {
            return;
        }
        let (method, path) = (request.method.unwrap_or_default(), request.path.unwrap_or_default());
        let field = |name: &str| {
            let found = request.headers.iter().find(|field| field.name.eq_ignore_ascii_case(name));
            String::from_utf8_lossy(found.map_or(&b""[..], |field| field.value)).into_owned()
        };
        let url = if path.starts_with('/') { format!("http://{}{path}", field("host")) } else { path.to_owned() };
        let stored = Head::fields(hit.object.metadata());
        let kind = stored.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        self.worker.log(&Line {
            client: self.conn.client,
            began: unix_millis(),
            took: 0,
            method,
            target: path,
            protocol: "HTTP/1.1",
            url: &url,
            status: hit.status,
            bytes: if method == "HEAD" { 0 } else { hit.body().len() as u64 },
            referer: &field("referer"),
            agent: &field("user-agent"),
            content_type: kind.unwrap_or_default(),
            outcome,
            detail: "",
            ending: "",
            is_cut: false,
        });
    }
}
