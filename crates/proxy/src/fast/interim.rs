//! What an origin says ahead of its answer (103 Early Hints and the like, RFC 9110 15.2), written to the client before
//! hyper has anything to write: hyper's server side has no interim answers. Only in a turn of one request, where
//! nothing of an earlier one can be left in hyper; so not after a chunked upload or `Expect`, and not for HTTP/1.0.

use std::sync::Arc;

use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;

use super::socket::FastIo;
use crate::{outgoing::Interim, wire::push_line};

/// Most bytes of one.
const LONGEST: usize = 16 << 10;

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
            push_line(&mut head, name.as_str(), value.as_bytes());
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
            self.out.clear();
        }
    }
}
