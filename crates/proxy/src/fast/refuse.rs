//! Heads that hyper does not answer: it would close the connection on them without a reason, a count or a line in the
//! log.

use std::{
    io,
    pin::Pin,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use http::{HeaderValue, header};
use tokio::io::AsyncWrite;

use super::{
    deliver::{To, encode},
    socket::{FastIo, Out},
};
use crate::{
    body::Kind,
    clock::unix_millis,
    conn::Phase,
    log::Line,
    reason::{Denied, Outcome},
    respond::denied,
};

impl FastIo {
    /// Answers what is in the buffer with a refusal and reads no further.
    pub(super) fn refuse(&mut self, why: Denied) {
        let mut answer = denied(why);
        let status = answer.parts.status;
        answer.parts.headers.insert(header::CONNECTION, HeaderValue::from_static("close"));
        let body = if let Kind::Full(text) = answer.kind { text } else { Bytes::new() };
        let mut head = Vec::new();
        encode(&mut head, &answer.parts, To::default(), Some(body.len() as u64));
        self.out = Out { head, body, ..Out::default() };
        let counters = &self.worker.counters;
        counters.outcomes.one(Outcome::Denied);
        counters.denials.one(why);
        counters.sent_bytes.add(self.out.body.len() as u64);
        if self.worker.proxy.log.on() {
            self.log_refusal(why, status.as_u16());
        }
        self.start = self.end;
        (self.eof, self.refused) = (true, true);
        self.conn.enter(Phase::Sending, self.tick());
    }

    /// Ends our side, and takes what the client still sends until it ends its own: bytes that were not read when a
    /// socket is closed would take the refusal from the client (RFC 9112 9.6). It has as long as a head may take.
    pub(super) fn poll_linger(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let (phase, _) = self.conn.phase();
        if phase != Phase::Head {
            ready!(Pin::new(&mut self.io).poll_shutdown(cx))?;
            self.conn.enter(Phase::Head, self.tick());
        }
        loop {
            (self.start, self.end) = (0, 0);
            if ready!(self.poll_fill(cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// The first line as far as it is text; more is not known.
    fn log_refusal(&self, why: Denied, status: u16) {
        let bytes = &self.buffer[self.start..self.end];
        let line = String::from_utf8_lossy(bytes.split(|b| matches!(b, b'\r' | b'\n')).next().unwrap_or_default());
        let mut words = line.split(' ');
        let method = words.next().filter(|word| word.bytes().all(|b| b.is_ascii_alphabetic())).unwrap_or("-");
        let target = words.next().unwrap_or("-");
        self.worker.log(&Line {
            client: self.conn.client,
            user: "",
            began: unix_millis(),
            took: 0,
            method,
            target,
            protocol: words.next().unwrap_or("-"),
            is_encrypted: self.conn.is_encrypted,
            host: "",
            status,
            bytes: self.out.body.len() as u64,
            referer: "",
            agent: "",
            content_type: "",
            outcome: Outcome::Denied,
            detail: why.name(),
            ending: "",
            is_cut: false,
        });
    }
}
