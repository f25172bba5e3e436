//! The socket under hyper, and the fast path in it.
//!
//! hyper reads and writes through a [`FastIo`]. When hyper is between two requests and the next head is complete in
//! our buffer, that head is looked at first: a plain GET or HEAD whose answer is fresh in the store is answered right
//! here, with one vectored write of stored head, three fields, and the body where it lies; from memory at once, from
//! the device after one read. hyper never sees it. Everything else is handed to hyper, one request at a time, byte by
//! byte as it came.
//!
//! Invariants:
//! * `buffer[start..end]` is what was read from the socket and neither answered nor taken by hyper.
//! * hyper may take `granted` bytes: one whole request, so that it never holds the beginning of the next.
//! * `Turn::Hyper` ends when its response body is gone, hyper has flushed, and hyper took all that was granted.
//! * Nothing of hyper's is written while `out` is not empty, and nothing of ours while it is hyper's turn.
//! * A request that might change the framing of the connection (chunked body, CONNECT, upgrade, `Expect`, HTTP/1.0,
//!   is refused) makes it hyper's for good. What does not parse is answered here and ends the connection.
//!
//! Both sides parse with `httparse`, so they cannot disagree about where a head ends.

use picaflor::{Object, TryGet};
mod hit;
mod refuse;
mod seen;

use std::{
    io::{self, IoSlice},
    mem::MaybeUninit,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use httparse::Header;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};

use self::{
    hit::FastHit,
    seen::{NotPlain, Seen},
};
use crate::{
    conn::{Conn, Phase},
    head::{Head, Stored, decode},
    key::{self, Side},
    log::Line,
    reason::{Denied, Outcome},
    rules::vary,
    server::{Worker, unix_millis},
};

const BUFFER: usize = 8 << 10;
const LONGEST_HEAD: usize = 64 << 10;
/// As many as hyper takes.
const MOST_FIELDS: usize = 100;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The next head is looked at here first.
    Ours,
    /// hyper has one request.
    Hyper,
    /// hyper has the connection.
    HyperForGood,
}

/// What to do with the bytes read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    /// A request was answered; that many bytes are done with.
    Answered(usize),
    /// The head is not complete.
    Partial,
    /// Perhaps the device has the answer.
    Reading,
    /// That many bytes, those to come included, are one request for hyper.
    ForHyper(u64),
    /// hyper is to have everything from here on.
    ForHyperForGood,
    /// What hyper would refuse without a word is refused here, with a reason; the connection ends.
    Refused(Denied),
}

#[derive(Default)]
struct Out {
    head: Vec<u8>,
    body: Bytes,
    at: usize,
}

impl Out {
    fn len(&self) -> usize {
        self.head.len() + self.body.len()
    }

    fn is_empty(&self) -> bool {
        self.at == self.len()
    }

    /// All of it is gone; its memory, but for the head's, goes too.
    fn clear(&mut self) {
        self.body = Bytes::new();
        self.head.clear();
        self.at = 0;
    }

    fn slices(&self) -> [IoSlice<'_>; 2] {
        let head = &self.head[self.at.min(self.head.len())..];
        let body = &self.body[self.at.saturating_sub(self.head.len())..];
        [IoSlice::new(head), IoSlice::new(body)]
    }
}

/// A read of the device for the head at `start`.
struct Reading {
    object: Pin<Box<dyn Future<Output = picaflor::Result<Option<Object>>> + Send>>,
    /// Length of the head.
    len: usize,
    head_only: bool,
}

/// What the store's memory says.
enum Found {
    Hit(FastHit),
    OnDevice,
    Nothing,
}

/// See the head of this file.
pub(crate) struct FastIo {
    io: TcpStream,
    worker: Arc<Worker>,
    conn: Arc<Conn>,
    buffer: Vec<u8>,
    start: usize,
    end: usize,
    granted: u64,
    turn: Turn,
    eof: bool,
    refused: bool,
    out: Out,
    key: Vec<u8>,
    reading: Option<Reading>,
}

impl FastIo {
    pub(crate) fn new(io: TcpStream, worker: Arc<Worker>, conn: Arc<Conn>) -> Self {
        Self {
            io,
            worker,
            conn,
            buffer: vec![0; BUFFER],
            start: 0,
            end: 0,
            granted: 0,
            turn: Turn::Ours,
            eof: false,
            refused: false,
            out: Out::default(),
            key: Vec::with_capacity(256),
            reading: None,
        }
    }

    fn tick(&self) -> u32 {
        self.worker.clock.tick()
    }

    /// Reads more behind what is there.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() > BUFFER {
                self.buffer = vec![0; BUFFER];
            }
        } else if self.end == self.buffer.len() {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                self.buffer.resize(self.buffer.len() * 2, 0);
            }
        }
        let mut room = ReadBuf::new(&mut self.buffer[self.end..]);
        ready!(Pin::new(&mut self.io).poll_read(cx, &mut room))?;
        let n = room.filled().len();
        self.end += n;
        Poll::Ready(Ok(n))
    }

    /// Writes what is left of our own answer.
    fn poll_out(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        while !self.out.is_empty() {
            match self.io.try_write_vectored(&self.out.slices()) {
                Ok(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Ok(n) => {
                    self.out.at += n;
                    self.conn.enter(Phase::Sending, self.tick());
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => ready!(self.io.poll_write_ready(cx))?,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
        self.out.clear();
        self.conn.enter(Phase::Idle, self.tick());
        Poll::Ready(Ok(()))
    }

    /// Looks at the head in the buffer.
    fn step(&mut self) -> Step {
        let buffer = std::mem::take(&mut self.buffer);
        let step = self.look(&buffer[self.start..self.end]);
        self.buffer = buffer;
        step
    }

    fn look(&mut self, bytes: &[u8]) -> Step {
        let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
        let mut request = httparse::Request::new(&mut []);
        let len = match request.parse_with_uninit_headers(bytes, &mut fields) {
            Ok(httparse::Status::Complete(len)) => len,
            Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Step::Partial,
            Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
                return Step::Refused(Denied::HeadTooLarge);
            }
            Err(_) => return Step::Refused(Denied::Malformed),
        };
        let (Some(method), Some(path), Some(version)) = (request.method, request.path, request.version) else {
            return Step::Refused(Denied::Malformed);
        };
        let for_hyper = |step| if path.parse::<http::Uri>().is_ok() { step } else { Step::Refused(Denied::BadTarget) };
        let seen = match Seen::of(request.headers, version) {
            Ok(seen) => seen,
            Err(NotPlain::Framing) => return for_hyper(Step::ForHyperForGood),
            Err(NotPlain::Refused(why)) => return Step::Refused(why),
        };
        let (get, head) = (method == "GET", method == "HEAD");
        if method == "CONNECT" {
            return for_hyper(Step::ForHyperForGood);
        }
        let one = Step::ForHyper(len as u64 + seen.content_length);
        let Some(host) = seen.host.filter(|_| seen.plain && (get || head)) else { return for_hyper(one) };
        match self.find(path, host, request.headers) {
            Found::Hit(hit) => {
                self.answer(&hit, head, Outcome::HitFast, &bytes[..len]);
                Step::Answered(len)
            }
            Found::OnDevice => {
                let object = Box::pin(self.worker.proxy.store.get_async(&self.key));
                self.reading = Some(Reading { object, len, head_only: head });
                Step::Reading
            }
            Found::Nothing => for_hyper(one),
        }
    }

    /// What is in memory, fresh, and all there.
    fn find(&mut self, target: &str, host: &[u8], fields: &[Header<'_>]) -> Found {
        if self.make_key(target, host).is_none() {
            return Found::Nothing;
        }
        let (store, now) = (&self.worker.proxy.store, self.worker.clock.millis());
        let object = match store.try_get(&self.key) {
            TryGet::Hit(object) => object,
            TryGet::OnDevice => return Found::OnDevice,
            TryGet::Absent(_) => return Found::Nothing,
        };
        let hit = match &*object.decoded(decode) {
            Stored::Response(head) => self.hit(&object, head, now),
            Stored::Unreadable => None,
            Stored::Vary(index) => {
                let value = |name: &String| {
                    let lines = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
                    vary::selecting(name, lines.map(|field| field.value))
                };
                let values: Vec<_> = index.names.iter().map(value).collect();
                let hash = key::variant_hash(index.nonce, values.iter().map(Vec::as_slice));
                match store.try_get(&key::variant(&self.key, hash)) {
                    TryGet::Hit(object) => match &*object.decoded(decode) {
                        Stored::Response(head) => self.hit(&object, head, now),
                        _ => None,
                    },
                    _ => None,
                }
            }
        };
        hit.map_or(Found::Nothing, Found::Hit)
    }

    /// What may go out at once of a response of the URL whose key was made.
    fn hit(&self, object: &Object, head: &Head, now: u64) -> Option<FastHit> {
        let is_gone = self.worker.proxy.epochs.is_gone(&self.key, head.received);
        if is_gone { None } else { FastHit::new(object, head, now) }
    }

    /// The key of a request that may be answered here.
    fn make_key(&mut self, target: &str, host: &[u8]) -> Option<()> {
        let proxy = &*self.worker.proxy;
        let (authority, path, absolute) = match target.as_bytes() {
            target @ [b'/', ..] => (host, target, false),
            target => {
                let rest = target.strip_prefix(b"http://")?;
                let at = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
                (&rest[..at], &rest[at..], true)
            }
        };
        let side = match absolute {
            false => Side::Reverse,
            true if self.conn.client.is_loopback() => Side::Forward,
            true => Side::Remote,
        };
        // With two names for the host, or one that is none, the slow path says what is wrong.
        if absolute && !host.eq_ignore_ascii_case(authority) {
            return None;
        }
        let at = key::url(&mut self.key, side, authority, path).ok()?;
        let named = &self.key[at];
        if absolute {
            // For its own hosts a server accepts the absolute form; the slow path sorts that out.
            let allowed = self.conn.may_forward && proxy.config.forward.enabled;
            (allowed && !proxy.origins.names(named)).then_some(())
        } else {
            proxy.origins.of(named).map(|_| ())
        }
    }

    /// Answers from what the device had, or leaves the request to hyper.
    fn poll_reading(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(()) };
        let object = ready!(reading.object.as_mut().poll(cx));
        let (len, head_only) = (reading.len, reading.head_only);
        self.reading = None;
        let hit = object.ok().flatten().and_then(|object| match &*object.decoded(decode) {
            Stored::Response(head) => self.hit(&object, head, self.worker.clock.millis()),
            _ => None,
        });
        match hit {
            Some(hit) => {
                let buffer = std::mem::take(&mut self.buffer);
                self.answer(&hit, head_only, Outcome::HitDevice, &buffer[self.start..self.start + len]);
                self.buffer = buffer;
                self.start += len;
            }
            None => self.hand_over(len as u64, Turn::Hyper),
        }
        Poll::Ready(())
    }

    /// Queues the answer and writes what the socket takes at once.
    fn answer(&mut self, hit: &FastHit, head_only: bool, outcome: Outcome, request: &[u8]) {
        let out = &mut self.out;
        hit.write_head(&mut out.head);
        out.body = if head_only { Bytes::new() } else { hit.body.clone() };
        out.at = 0;
        if let Ok(n) = self.io.try_write_vectored(&out.slices()) {
            out.at = n;
        }
        let counters = &self.worker.counters;
        counters.outcomes.one(outcome);
        counters.sent_bytes.add(out.len() as u64);
        if out.is_empty() {
            out.clear();
            self.conn.enter(Phase::Idle, self.worker.clock.tick());
        } else {
            self.conn.enter(Phase::Sending, self.worker.clock.tick());
        }
        if self.worker.proxy.log.on() {
            self.log(hit, outcome, request);
        }
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
            bytes: if method == "HEAD" { 0 } else { hit.body.len() as u64 },
            referer: &field("referer"),
            agent: &field("user-agent"),
            content_type: kind.unwrap_or_default(),
            outcome,
            detail: "",
        });
    }

    /// Ends hyper's turn when it is over.
    fn end_turn(&mut self, cx: &Context<'_>) {
        if self.turn == Turn::Hyper && self.granted == 0 && self.conn.response_done() {
            self.turn = Turn::Ours;
            self.conn.enter(Phase::Idle, self.tick());
            // hyper may have seen us pending and would not come back for what is already in the buffer.
            if self.start < self.end {
                cx.waker().wake_by_ref();
            }
        }
    }

    /// Decides about the bytes in the buffer; false when more are needed.
    fn advance(&mut self) -> bool {
        match self.step() {
            Step::Answered(n) => self.start += n,
            Step::Partial => {
                self.conn.enter_once(Phase::Head, self.tick());
                return false;
            }
            Step::Reading => self.conn.enter(Phase::Busy, self.tick()),
            Step::Refused(why) => self.refuse(why),
            Step::ForHyper(n) => self.hand_over(n, Turn::Hyper),
            Step::ForHyperForGood => {
                self.conn.leave_to_hyper();
                self.hand_over(u64::MAX, Turn::HyperForGood);
            }
        }
        true
    }

    fn hand_over(&mut self, granted: u64, turn: Turn) {
        self.granted = granted;
        self.turn = turn;
        self.conn.begin_response();
        self.conn.enter(Phase::Busy, self.tick());
    }

    /// After a write of hyper's.
    fn note_progress(&self, result: &Poll<io::Result<usize>>) {
        let phase = if result.is_pending() { Phase::Sending } else { Phase::Busy };
        match result {
            Poll::Pending => self.conn.enter_once(phase, self.tick()),
            Poll::Ready(_) => self.conn.enter(phase, self.tick()),
        }
    }
}

impl hyper::rt::Read for FastIo {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut to: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        loop {
            if !this.out.is_empty() {
                ready!(this.poll_out(cx))?;
            }
            ready!(this.poll_reading(cx));
            let unread = this.end - this.start;
            if unread > 0 && this.granted > 0 {
                let n = unread.min(to.remaining()).min(usize::try_from(this.granted).unwrap_or(usize::MAX));
                to.put_slice(&this.buffer[this.start..this.start + n]);
                this.start += n;
                if this.turn == Turn::Hyper {
                    this.granted -= n as u64;
                }
                return Poll::Ready(Ok(()));
            }
            if unread > 0 && this.turn == Turn::Ours {
                if this.advance() {
                    continue;
                }
                if this.eof {
                    // Half a head, and no more to come: hyper would hang up without a word.
                    this.refuse(Denied::Malformed);
                    continue;
                }
            }
            if unread > 0 && this.turn == Turn::Hyper && (this.eof || unread >= LONGEST_HEAD) {
                // Requests sent ahead, or the last of them: each waits for its turn; `end_turn` wakes us.
                return Poll::Pending;
            }
            if this.eof {
                return Poll::Ready(Ok(()));
            }
            this.eof = ready!(this.poll_fill(cx))? == 0;
        }
    }
}

impl hyper::rt::Write for FastIo {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_out_if_any(cx))?;
        let result = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.note_progress(&result);
        result
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        ready!(this.poll_out_if_any(cx))?;
        ready!(Pin::new(&mut this.io).poll_flush(cx))?;
        this.end_turn(cx);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // A stop finds hyper idle although an answer is being read.
        ready!(this.poll_reading(cx));
        ready!(this.poll_out_if_any(cx))?;
        if this.refused { this.poll_linger(cx) } else { Pin::new(&mut this.io).poll_shutdown(cx) }
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        ready!(this.poll_out_if_any(cx))?;
        let result = Pin::new(&mut this.io).poll_write_vectored(cx, slices);
        this.note_progress(&result);
        result
    }
}

impl FastIo {
    fn poll_out_if_any(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.out.is_empty() { Poll::Ready(Ok(())) } else { self.poll_out(cx) }
    }
}
