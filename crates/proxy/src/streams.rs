//! A request's stream on a connection that has many, by HTTP/2 or HTTP/3: what it counts for from its request to its
//! end, however that comes, and the body of its answer.
//!
//! * A client that opens streams and resets them at once ends its connection when it does so too often
//!   ([`Denied::RapidReset`]).
//! * A stream notes since when its client has given no room for what is to be sent.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Instant,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{
    body::Body,
    conn::Conn,
    connections::Left,
    proxy::Worker,
    reason::{Broken, Denied},
};

/// A reset within so many milliseconds is rapid; more of these than so many, within so many seconds, end a connection.
const RAPID_MILLIS: u128 = 1000;
const RAPID_MOST: u32 = 100;
const RAPID_PERIOD: u32 = 60;

/// How often the streams of a connection were reset rapidly, and since when that is counted.
#[derive(Default)]
pub(crate) struct Resets {
    count: AtomicU32,
    since: AtomicU32,
}

/// Counts a stream as open: until its answer has ended, and the tunnel that it may have become.
pub(crate) struct Counted {
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    left: Arc<Left>,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.conn.close_stream(self.worker.clock.tick());
    }
}

/// One stream, from its request to its end, however that comes.
pub(crate) struct OpenStream {
    pub(crate) counted: Arc<Counted>,
    resets: Arc<Resets>,
    began: Instant,
    /// All of the answer was handed over.
    is_answered: AtomicBool,
    /// Since when the client has had no room for more, in ticks; 0 where it is not the client that is waited for.
    pub(crate) handed: Arc<AtomicU32>,
}

impl OpenStream {
    pub(crate) fn new(worker: Arc<Worker>, conn: Arc<Conn>, left: Arc<Left>, resets: Arc<Resets>) -> Self {
        conn.open_stream(worker.clock.tick());
        Self {
            counted: Arc::new(Counted { worker, conn, left }),
            resets,
            began: Instant::now(),
            is_answered: AtomicBool::new(false),
            handed: Arc::default(),
        }
    }

    /// Its answer has no body.
    pub(crate) fn is_answered(&self) {
        self.is_answered.store(true, Relaxed);
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        let Counted { worker, left, .. } = &*self.counted;
        let now = worker.clock.tick();
        if self.is_answered.load(Relaxed) || self.began.elapsed().as_millis() > RAPID_MILLIS {
            return;
        }
        if now.saturating_sub(self.resets.since.load(Relaxed)) > RAPID_PERIOD {
            self.resets.since.store(now, Relaxed);
            self.resets.count.store(0, Relaxed);
        }
        if self.resets.count.fetch_add(1, Relaxed) == RAPID_MOST {
            worker.counters.denials.one(Denied::RapidReset);
            let abort = left.open.lock().by_number.get(&left.number).and_then(|(_, abort)| abort.clone());
            if let Some(abort) = abort {
                abort.abort();
            }
        }
    }
}

/// The body of an answer.
pub(crate) struct Sent {
    pub(crate) body: Body,
    pub(crate) open: OpenStream,
}

impl http_body::Body for Sent {
    type Data = Bytes;
    type Error = Broken;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Broken>>> {
        let this = self.get_mut();
        // It is asked for when the client has room.
        this.open.handed.store(0, Relaxed);
        let frame = Pin::new(&mut this.body).poll_frame(cx);
        match &frame {
            Poll::Ready(Some(Ok(_))) => this.open.handed.store(this.open.counted.worker.clock.tick(), Relaxed),
            // Nor is one reset by its client where the origin broke off.
            Poll::Ready(None | Some(Err(_))) => this.open.is_answered.store(true, Relaxed),
            Poll::Pending => {}
        }
        if this.body.is_end_stream() {
            this.open.is_answered.store(true, Relaxed);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
