//! The socket under hyper, and the fast path in it.
//!
//! hyper reads and writes through a [`FastIo`]. When hyper is between two requests and the next head is complete in
//! our buffer, that head is looked at first: a plain GET or HEAD whose answer is fresh in the store's memory is
//! answered right here, with one vectored write of stored head, three fields, and the body where it lies. hyper never
//! sees it. Everything else is handed to hyper, one request at a time, byte by byte as it came.
//!
//! Invariants:
//! * `buffer[start..end]` is what was read from the socket and neither answered nor taken by hyper.
//! * hyper may take `granted` bytes: one whole request, so that it never holds the beginning of the next.
//! * `Turn::Hyper` ends when its response body is gone, hyper has flushed, and hyper took all that was granted.
//! * Nothing of hyper's is written while `out` is not empty, and nothing of ours while it is hyper's turn.
//! * A request that might change the framing of the connection (chunked body, CONNECT, upgrade, `Expect`, HTTP/1.0,
//!   anything that does not parse) makes it hyper's for good.
//!
//! Both sides parse with `httparse`, so they cannot disagree about where a head ends.

use picaflor::{Object, TryGet};
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

use crate::{
    conn::{Conn, Phase},
    head::{Head, Stored, decode},
    key::{self, Side},
    log::Line,
    reason::Outcome,
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
    /// That many bytes, those to come included, are one request for hyper.
    ForHyper(u64),
    /// hyper is to have everything from here on.
    ForHyperForGood,
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

    fn slices(&self) -> [IoSlice<'_>; 2] {
        let head = &self.head[self.at.min(self.head.len())..];
        let body = &self.body[self.at.saturating_sub(self.head.len())..];
        [IoSlice::new(head), IoSlice::new(body)]
    }
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
    out: Out,
    key: Vec<u8>,
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
            out: Out::default(),
            key: Vec::with_capacity(256),
        }
    }

    fn tick(&self) -> u32 {
        self.worker.clock.tick()
    }

    /// Reads more behind what is there.
    fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
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
        self.out.body = Bytes::new();
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
            Ok(httparse::Status::Partial) | Err(_) => return Step::ForHyperForGood,
        };
        let (Some(method), Some(path), Some(1)) = (request.method, request.path, request.version) else {
            return Step::ForHyperForGood;
        };
        let seen = match Seen::of(request.headers) {
            Ok(seen) => seen,
            Err(NotPlain { ambiguous }) => {
                if ambiguous {
                    self.conn.mark_ambiguous();
                }
                return Step::ForHyperForGood;
            }
        };
        let (get, head) = (method == "GET", method == "HEAD");
        if method == "CONNECT" {
            return Step::ForHyperForGood;
        }
        if seen.plain
            && (get || head)
            && let Some(host) = seen.host
            && let Some(hit) = self.find(path, host, request.headers)
        {
            self.answer(&hit, head);
            if self.worker.proxy.log.on() {
                self.log(&hit, method, path, host, request.headers);
            }
            return Step::Answered(len);
        }
        Step::ForHyper(len as u64 + seen.content_length)
    }

    /// What is in memory, fresh, and all there.
    fn find(&mut self, target: &str, host: &[u8], fields: &[Header<'_>]) -> Option<FastHit> {
        let proxy = &*self.worker.proxy;
        let (authority, path, absolute) = match target.as_bytes() {
            target @ [b'/', ..] => (host, target, false),
            target => {
                let rest = target.strip_prefix(b"http://")?;
                let at = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
                (&rest[..at], &rest[at..], true)
            }
        };
        let side = if absolute { Side::Forward } else { Side::Reverse };
        let at = key::url(&mut self.key, side, authority, path).ok()?;
        let named = &self.key[at];
        if absolute {
            // For its own hosts a server accepts the absolute form; the slow path sorts that out.
            if !self.conn.may_forward || !proxy.config.forward.enabled || proxy.origins.names(named) {
                return None;
            }
        } else {
            proxy.origins.of(named)?;
        }
        let now = self.worker.clock.millis();
        let TryGet::Hit(object) = proxy.store.try_get(&self.key) else { return None };
        match &*object.decoded(decode) {
            Stored::Response(head) => FastHit::new(&object, head, now),
            Stored::Unreadable => None,
            Stored::Vary(index) => {
                let value = |name: &String| {
                    let lines = fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
                    vary::selecting(name, lines.map(|field| field.value))
                };
                let values: Vec<_> = index.names.iter().map(value).collect();
                let hash = key::variant_hash(index.nonce, values.iter().map(Vec::as_slice));
                let TryGet::Hit(object) = proxy.store.try_get(&key::variant(&self.key, hash)) else { return None };
                match &*object.decoded(decode) {
                    Stored::Response(head) => FastHit::new(&object, head, now),
                    _ => None,
                }
            }
        }
    }

    /// Queues the answer and writes what the socket takes at once.
    fn answer(&mut self, hit: &FastHit, head_only: bool) {
        let out = &mut self.out;
        out.head.clear();
        out.head.extend_from_slice(Head::wire(hit.object.metadata()));
        out.head.extend_from_slice(b"content-length: ");
        push_number(&mut out.head, hit.body.len() as u64);
        out.head.extend_from_slice(b"\r\nage: ");
        push_number(&mut out.head, hit.age / 1000);
        out.head.extend_from_slice(b"\r\ncache-status: picaflor; hit; ttl=");
        push_number(&mut out.head, hit.ttl / 1000);
        out.head.extend_from_slice(b"\r\n\r\n");
        out.body = if head_only { Bytes::new() } else { hit.body.clone() };
        out.at = 0;
        if let Ok(n) = self.io.try_write_vectored(&out.slices()) {
            out.at = n;
        }
        let counters = &self.worker.counters;
        counters.outcomes.one(Outcome::HitFast);
        counters.sent_bytes.add(out.len() as u64);
        if out.is_empty() {
            out.body = Bytes::new();
            out.at = 0;
            out.head.clear();
            self.conn.enter(Phase::Idle, self.worker.clock.tick());
        } else {
            self.conn.enter(Phase::Sending, self.worker.clock.tick());
        }
    }

    fn log(&self, hit: &FastHit, method: &str, path: &str, host: &[u8], fields: &[Header<'_>]) {
        let field = |name: &str| {
            let value = fields.iter().find(|field| field.name.eq_ignore_ascii_case(name)).map_or(&b""[..], |f| f.value);
            String::from_utf8_lossy(value).into_owned()
        };
        let url = if path.starts_with('/') {
            format!("http://{}{path}", String::from_utf8_lossy(host))
        } else {
            path.to_owned()
        };
        let stored = Head::fields(hit.object.metadata());
        let kind = stored.get(http::header::CONTENT_TYPE).and_then(|kind| kind.to_str().ok());
        self.worker.log(&Line {
            client: self.conn.client,
            began: unix_millis(),
            took: 0,
            method,
            target: path,
            url: &url,
            status: hit.status,
            bytes: hit.body.len() as u64,
            referer: &field("referer"),
            agent: &field("user-agent"),
            content_type: kind.unwrap_or_default(),
            outcome: Outcome::HitFast,
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

/// A response that can go out at once.
struct FastHit {
    object: Object,
    body: Bytes,
    status: u16,
    age: u64,
    ttl: u64,
}

impl FastHit {
    fn new(object: &Object, head: &Head, now: u64) -> Option<Self> {
        if now >= head.fast_until {
            return None;
        }
        let body = object.body()?;
        let age = head.policy.age(now);
        let ttl = head.fast_until - now;
        Some(Self { object: object.clone(), body, status: head.status.as_u16(), age, ttl })
    }
}

/// What the fields say that matters here.
struct Seen<'a> {
    host: Option<&'a [u8]>,
    content_length: u64,
    /// No condition, range, directive, or body: the fast path may answer.
    plain: bool,
}

/// The framing of the connection might change.
struct NotPlain {
    /// Two lengths, or a length and a coding. hyper would take the coding and forget the length; we refuse.
    ambiguous: bool,
}

impl<'a> Seen<'a> {
    #[inline]
    fn of(fields: &[Header<'a>]) -> Result<Self, NotPlain> {
        let mut seen = Self { host: None, content_length: 0, plain: true };
        let (mut lengths, mut codings, mut special) = (0, 0, false);
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                4 if is("host") => {
                    seen.plain &= seen.host.is_none();
                    seen.host = Some(field.value);
                }
                5 if is("range") => seen.plain = false,
                6 if is("expect") => special = true,
                6 if is("pragma") => seen.plain = false,
                7 if is("upgrade") => special = true,
                8 if is("if-match") || is("if-range") => seen.plain = false,
                10 if is("connection") => seen.plain &= field.value.eq_ignore_ascii_case(b"keep-alive"),
                13 if is("cache-control") || is("if-none-match") => seen.plain = false,
                14 if is("content-length") => {
                    lengths += 1;
                    seen.content_length = length(field.value).ok_or(NotPlain { ambiguous: false })?;
                    seen.plain = false;
                }
                17 if is("transfer-encoding") => codings += 1,
                17 if is("if-modified-since") => seen.plain = false,
                19 if is("if-unmodified-since") => seen.plain = false,
                _ => {}
            }
        }
        if lengths + codings > 1 {
            return Err(NotPlain { ambiguous: true });
        }
        if codings > 0 || special { Err(NotPlain { ambiguous: false }) } else { Ok(seen) }
    }
}

/// Digits only, and not so large that adding a head's length could overflow.
fn length(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?.filter(|n| *n < 1 << 62)
}

fn push_number(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
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
            if unread > 0 && this.turn == Turn::Ours && this.advance() {
                continue;
            }
            if this.eof {
                return Poll::Ready(Ok(()));
            }
            if this.turn == Turn::Hyper && this.granted == 0 && this.end - this.start >= LONGEST_HEAD {
                // A client that sends far ahead waits for its answers; `end_turn` wakes us.
                return Poll::Pending;
            }
            if ready!(this.poll_fill(cx))? == 0 {
                this.eof = true;
                if this.turn == Turn::Ours && this.start < this.end {
                    // Half a head: hyper knows what to say.
                    this.hand_over(u64::MAX, Turn::HyperForGood);
                }
            }
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
        ready!(this.poll_out_if_any(cx))?;
        Pin::new(&mut this.io).poll_shutdown(cx)
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
