//! A client's socket, whose requests are one of three:
//!
//! * A plain GET or HEAD whose answer is fresh in the store is answered right here (`answer`), with one write of stored
//!   head, three fields, and the body, or what the request's conditions and range leave of them; from memory at once,
//!   from the device after one read.
//! * Any other plain GET or HEAD is for the slow path (`life`), whose answer the connection sends (`deliver`).
//! * What has a body, or may change the connection, is handed to hyper, one request at a time, byte by byte as it came.
//!   hyper reads and writes through this; a connection has one, with buffers, only as long as it is needed (`serve`).
//!
//! Invariants:
//! * `buffer[start..end]` is what was read from the socket and neither answered nor taken by hyper. A connection that
//!   waits for its next request has no buffer: each worker keeps one for the next connection that reads.
//! * hyper may take `granted` bytes: one whole request, so that it never holds the beginning of the next.
//! * `Turn::Hyper` ends when its response body is gone, hyper has flushed, and hyper took all that was granted.
//! * Nothing of hyper's is written while `out` is not empty, and nothing of ours while it is hyper's turn, except what
//!   the origin says ahead of its answer (`interim`), before the first byte of hyper's.
//! * A request is left to the slow path when all answers before it are out; nothing is read until its own is.
//! * A client that sends requests ahead has [`TURN`] of them answered, then others have theirs.
//! * A request that might change the framing of the connection (chunked body, CONNECT, upgrade, `Expect`, one of
//!   HTTP/1.0 that is not plain) makes it hyper's for good. What does not parse is answered here and ends the
//!   connection.
//!
//! Both sides parse with `httparse`, so they cannot disagree about where a head ends.

mod answer;
mod deliver;
mod hit;
mod interim;
mod refuse;
pub(crate) mod request;
pub(crate) mod seen;
mod socket;

use std::{
    io::{self, IoSlice},
    mem::{self, MaybeUninit},
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use http::Version;
use httparse::Header;
use parking_lot::Mutex;
use picaflor::{Object, TryGet};
use tokio::io::AsyncWrite;

pub(crate) use self::{
    deliver::{To, deliver},
    request::SlowRequest,
    socket::FastIo,
};
use self::{
    hit::FastHit,
    seen::{Judged, LONGEST_HEAD, MOST_FIELDS, Plain, judge, lower_version},
    socket::{Step, Turn},
};
use crate::{
    config::ClientDirectives,
    conn::{Conn, Phase},
    front::{self, Scheme},
    head::{Head, Stored, decode},
    key::{self, Side},
    mirrors,
    purge::marks::Validity,
    reason::{Denied, Outcome},
    rules::vary,
    target::Origins,
};

/// So many requests of one connection are answered in a row.
const TURN: usize = 64;

/// What the store's memory says.
enum Found {
    Hit(FastHit),
    OnDevice,
    Nothing,
}

impl FastIo {
    /// The same socket for hyper.
    pub(crate) fn for_hyper(io: &Arc<Mutex<Self>>) -> Hypers {
        Hypers(io.clone())
    }

    /// Looks at the head in the buffer.
    fn step(&mut self) -> Step {
        let mut buffer = mem::take(&mut self.buffer);
        let mut step = self.look(&buffer[self.start..self.end]);
        if step == Step::Refused(Denied::Malformed) && lower_version(&mut buffer[self.start..self.end]) {
            step = self.look(&buffer[self.start..self.end]);
        }
        self.buffer = buffer;
        step
    }

    fn look(&mut self, bytes: &[u8]) -> Step {
        let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
        let plain = match judge(bytes, &mut fields) {
            Judged::Partial => return Step::Partial,
            Judged::Refused(why) => return Step::Refused(why),
            Judged::ForGood => return Step::ForHyperForGood,
            Judged::One { len, body } => return Step::ForHyper(len as u64 + body),
            Judged::Plain(plain) => plain,
        };
        match self.find(&plain) {
            Found::Hit(hit) => self.answer(&hit, Outcome::HitFast, &plain),
            Found::OnDevice => {
                self.reading = Some(Box::pin(self.worker.proxy.store.get_async(&self.key)));
                Step::Reading
            }
            Found::Nothing => self.leave(&plain, bytes),
        }
    }

    /// Leaves a request, with whose head the bytes begin, to the slow path.
    fn leave(&mut self, plain: &Plain<'_, '_>, bytes: &[u8]) -> Step {
        self.slow = request::of(plain, bytes);
        match self.slow {
            Some(_) => Step::ForSlow { len: plain.len, is_last: plain.is_last },
            None => Step::Refused(Denied::BadTarget),
        }
    }

    /// What is in memory, fresh, and all there.
    fn find(&mut self, plain: &Plain<'_, '_>) -> Found {
        // While it stops, the slow path says that this is the last answer.
        if self.worker.proxy.is_stopping() || self.make_key(plain).is_none() {
            return Found::Nothing;
        }
        if !self.worker.proxy.rules.leaves_alone(&self.key) {
            return Found::Nothing;
        }
        let store = &self.worker.proxy.store;
        self.ends = self.worker.proxy.purges.ends();
        let object = match store.try_get(&self.key) {
            TryGet::Hit(object) => object,
            TryGet::OnDevice => return Found::OnDevice,
            TryGet::Absent(_) => return Found::Nothing,
        };
        let hit = match &*object.decoded(decode) {
            Stored::Response(head) => self.hit(&self.key, object, head, plain),
            Stored::Unreadable => None,
            Stored::Vary(index) => {
                let value = |name: &String| {
                    let lines = plain.fields.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
                    vary::selecting(name, lines.map(|field| field.value))
                };
                let values: Vec<_> = index.names.iter().map(value).collect();
                let hash = key::variant_hash(index.nonce, values.iter().map(Vec::as_slice));
                let key = key::variant(&self.key, hash);
                match store.try_get(&key) {
                    TryGet::Hit(object) => match &*object.decoded(decode) {
                        Stored::Response(head) => self.hit(&key, object, head, plain),
                        _ => None,
                    },
                    _ => None,
                }
            }
        };
        hit.map_or(Found::Nothing, Found::Hit)
    }

    /// What may go out at once of a response, `key`, of the URL whose key was made.
    fn hit(&self, key: &[u8], object: Object, head: &Head, plain: &Plain<'_, '_>) -> Option<FastHit> {
        let proxy = &self.worker.proxy;
        // What a purge made stale is for the slow path.
        let validity = proxy.purges.check(&self.key, head.seq, Head::tags(object.metadata()));
        if validity != Validity::Valid || proxy.purges.ends() != self.ends {
            return None;
        }
        let is_large = !plain.head_only && object.len() >= mirrors::SHORTEST && self.io.takes_files();
        let file = if is_large { proxy.mirrors.of(&object) } else { None };
        if file.is_some() && object.body_slice().is_none() {
            // A later 304 may have left its fields elsewhere (`lookup`).
            let TryGet::Absent(_) = proxy.store.try_get(&key::newer_head(key)) else { return None };
        }
        FastHit::new((object, file), head, self.worker.clock.millis(), plain, self.obeys(plain))
    }

    /// Whether what a request says of caches counts, if it does.
    fn obeys(&self, plain: &Plain<'_, '_>) -> bool {
        let has_directives = plain.wishes.is_some_and(|wishes| wishes.cache_control.or(wishes.pragma).is_some());
        // A path is of an origin of ours; what goes elsewhere is always obeyed.
        if !has_directives || !plain.target.starts_with('/') {
            return true;
        }
        let proxy = &self.worker.proxy;
        let ruled = proxy.rules.client_directives(&self.key);
        ruled.unwrap_or(proxy.config.cache.client_directives) == ClientDirectives::Obey
    }

    /// The key of a request that may be answered here.
    fn make_key(&mut self, plain: &Plain<'_, '_>) -> Option<()> {
        let proxy = &*self.worker.proxy;
        // Whose request it is, and whether it may go there, the slow path sees.
        let side = (&*self.conn, &proxy.origins, proxy.config.forward.enabled && proxy.accounts.is_open());
        plain_key(&mut self.key, plain, side)
    }

    /// Answers from what the device had, or leaves the request to the slow path.
    fn poll_reading(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(reading) = &mut self.reading else { return Poll::Ready(()) };
        let object = ready!(reading.as_mut().poll(cx));
        self.reading = None;
        let buffer = mem::take(&mut self.buffer);
        let mut fields = [const { MaybeUninit::<Header<'_>>::uninit() }; MOST_FIELDS];
        let bytes = &buffer[self.start..self.end];
        let step = match judge(bytes, &mut fields) {
            Judged::Plain(plain) => {
                let hit = object.ok().flatten().and_then(|object| match &*object.decoded(decode) {
                    Stored::Response(head) => self.hit(&self.key, object, head, &plain),
                    _ => None,
                });
                match hit {
                    Some(hit) => self.answer(&hit, Outcome::HitDevice, &plain),
                    None => self.leave(&plain, bytes),
                }
            }
            // It was one when the reading began, and nothing has been taken since.
            _ => Step::Refused(Denied::Malformed),
        };
        self.buffer = buffer;
        self.take(step);
        Poll::Ready(())
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
        let step = self.step();
        self.take(step)
    }

    fn take(&mut self, step: Step) -> bool {
        match step {
            Step::Answered(n) => self.start += n,
            Step::Last => self.start = self.end,
            Step::Partial => {
                self.conn.enter_once(Phase::Head, self.tick());
                return false;
            }
            Step::Reading => self.conn.enter(Phase::Busy, self.tick()),
            Step::Refused(why) => self.refuse(why),
            Step::ForHyper(n) => self.hand_over(n, Turn::Hyper),
            Step::ForHyperForGood => {
                self.conn.make_last();
                self.hand_over(u64::MAX, Turn::HyperForGood);
            }
            Step::ForSlow { len, is_last } => self.take_request(len, is_last),
        }
        true
    }

    fn hand_over(&mut self, granted: u64, turn: Turn) {
        self.granted = granted;
        (self.turn, self.hyper_idle) = (turn, false);
        self.ahead.begin(turn == Turn::Hyper);
        self.conn.begin_response();
        self.conn.enter(Phase::Busy, self.tick());
    }

    fn take_request(&mut self, len: usize, is_last: bool) {
        self.start += len;
        if is_last {
            self.conn.make_last();
        }
        if self.start == self.end {
            self.give_buffer();
        }
        let is_old = self.slow.as_ref().is_some_and(|request| request.version() == Version::HTTP_10);
        self.turn = Turn::Slow;
        self.ahead.begin(!is_old);
        self.conn.enter(Phase::Busy, self.tick());
    }

    /// After a write of hyper's.
    fn note_progress(&self, result: &Poll<io::Result<usize>>) {
        if let Poll::Ready(Ok(n)) = result {
            self.conn.take(*n);
        }
        let phase = if result.is_pending() { Phase::Sending } else { Phase::Busy };
        match result {
            Poll::Pending => self.conn.enter_once(phase, self.tick()),
            Poll::Ready(_) => self.conn.enter(phase, self.tick()),
        }
    }
}

impl FastIo {
    /// Answers what is answered here, until there is something for hyper, bytes or the end, or for the slow path.
    pub(crate) fn poll_own(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        for _ in 0..TURN {
            ready!(self.poll_reading(cx));
            // Also of what was read just now: the next answer begins behind it.
            ready!(self.poll_out_if_any(cx))?;
            let unread = self.end - self.start;
            if self.turn == Turn::Slow || (unread > 0 && self.granted > 0) {
                return Poll::Ready(Ok(()));
            }
            if unread > 0 && self.turn == Turn::Ours {
                if self.advance() {
                    continue;
                }
                if self.eof {
                    // Half a head, and no more to come: hyper would hang up without a word.
                    self.refuse(Denied::Malformed);
                    continue;
                }
            }
            if unread > 0 && self.turn == Turn::Hyper && (self.eof || unread >= LONGEST_HEAD) {
                // Requests sent ahead, or the last of them: each waits for its turn; `end_turn` wakes us.
                return Poll::Pending;
            }
            if self.eof {
                return Poll::Ready(Ok(()));
            }
            self.eof = ready!(self.poll_fill(cx))? == 0;
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }

    /// The request that was left to the slow path.
    pub(crate) fn take_slow(&mut self) -> Option<SlowRequest> {
        self.slow.take()
    }

    /// Whether a request was sent ahead.
    pub(crate) fn has_unread(&self) -> bool {
        self.start < self.end
    }

    /// Whether there is a request for hyper, or the rest of one.
    pub(crate) fn is_hypers(&self) -> bool {
        matches!(self.turn, Turn::Hyper | Turn::HyperForGood)
    }

    /// Whether hyper has nothing to do before the next request is handed to it.
    pub(crate) fn is_hyper_idle(&self) -> bool {
        self.hyper_idle
    }
}

/// The socket as hyper has it.
pub(crate) struct Hypers(Arc<Mutex<FastIo>>);

impl hyper::rt::Read for Hypers {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut to: hyper::rt::ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        let io = &mut *self.0.lock();
        if !io.is_hypers() {
            // It is dropped now: no wake is due to it.
            io.hyper_idle = true;
            return Poll::Pending;
        }
        ready!(io.poll_own(cx))?;
        let n = (io.end - io.start).min(to.remaining()).min(usize::try_from(io.granted).unwrap_or(usize::MAX));
        to.put_slice(&io.buffer[io.start..io.start + n]);
        io.start += n;
        if io.turn == Turn::Hyper {
            io.granted -= n as u64;
        }
        Poll::Ready(Ok(()))
    }
}

impl hyper::rt::Write for Hypers {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = &mut *self.0.lock();
        ready!(this.poll_out_if_any(cx))?;
        this.ahead.end();
        let result = Pin::new(&mut this.io).poll_write(cx, bytes);
        this.note_progress(&result);
        result
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.lock();
        ready!(this.poll_out_if_any(cx))?;
        this.end_turn(cx);
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = &mut *self.0.lock();
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
        let this = &mut *self.0.lock();
        ready!(this.poll_out_if_any(cx))?;
        this.ahead.end();
        let result = Pin::new(&mut this.io).poll_write_vectored(cx, slices);
        this.note_progress(&result);
        result
    }
}

/// Writes the key of a plain request into `key`, if it may be answered without asking the slow path.
pub(crate) fn plain_key(
    key: &mut Vec<u8>,
    &Plain { target, host, fields, .. }: &Plain<'_, '_>,
    (conn, origins, forward): (&Conn, &Origins, bool),
) -> Option<()> {
    let (authority, path, absolute) = match target.as_bytes() {
        target @ [b'/', ..] => (host, target, false),
        target => {
            let rest = target.strip_prefix(b"http://")?;
            let at = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
            (&rest[..at], &rest[at..], true)
        }
    };
    let side = match absolute {
        false => match front::scheme(conn, host, fields.iter().map(|field| (field.name, field.value))) {
            Scheme::Http => Side::Reverse,
            Scheme::Https => Side::Encrypted,
            Scheme::Disputed => return None,
        },
        true if conn.client.is_loopback() => Side::Forward,
        true => Side::Remote,
    };
    // With two names for the host, or one that is none, the slow path says what is wrong.
    if absolute && !host.eq_ignore_ascii_case(authority) {
        return None;
    }
    let at = key::url(key, side, authority, path).ok()?;
    let named = &key[at];
    if absolute {
        // For its own hosts a server accepts the absolute form; the slow path sorts that out.
        (conn.may_forward && forward && !origins.names(named)).then_some(())
    } else {
        origins.of(named).map(|_| ())
    }
}

#[cfg(test)]
mod tests;
