//! What an origin says ahead of its answer (103 Early Hints and the like, RFC 9110 15.2), written to the client before
//! hyper has anything to write: hyper's server side has no interim answers. Only in a turn of one request, where
//! nothing of an earlier one can be left in hyper; so not after a chunked upload or `Expect`, and not for HTTP/1.0.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::{FastIo, answer::Out};
use crate::origin::Interim;

/// The most that are passed on ahead of one answer, and bytes of one.
const MOST: u32 = 16;
const LONGEST: usize = 16 << 10;

/// Whether something may be written ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// The number of the request: what comes for an earlier one is too late.
    request: u64,
    /// How many more may come.
    left: u32,
}

impl Ahead {
    /// A request goes to hyper, alone or not.
    pub(super) fn begin(&mut self, is_alone: bool) {
        self.request += 1;
        self.left = if is_alone { MOST } else { 0 };
    }

    /// Hyper writes.
    pub(super) fn end(&mut self) {
        self.left = 0;
    }
}

impl FastIo {
    /// Where interim answers to the request that hyper has now are passed on.
    pub(crate) fn interim(io: &Arc<Mutex<Self>>) -> Interim {
        let (request, io) = (io.lock().ahead.request, Arc::downgrade(io));
        Arc::new(move |status, fields| {
            if let Some(io) = io.upgrade() {
                io.lock().write_ahead(request, status, fields);
            }
        })
    }

    fn write_ahead(&mut self, request: u64, status: StatusCode, fields: &HeaderMap) {
        if self.ahead.request != request || self.ahead.left == 0 {
            return;
        }
        let mut head = format!("HTTP/1.1 {status}\r\n").into_bytes();
        for (name, value) in fields {
            head.extend_from_slice(name.as_str().as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value.as_bytes());
            head.extend_from_slice(b"\r\n");
        }
        head.extend_from_slice(b"\r\n");
        if head.len() > LONGEST {
            return;
        }
        self.ahead.left -= 1;
        self.out.head.extend_from_slice(&head);
        // What the socket does not take now goes before what hyper writes.
        self.out.at += self.io.try_write_vectored(&self.out.slices()).unwrap_or(0);
        if self.out.is_empty() {
            self.out = Out::default();
        }
    }
}
