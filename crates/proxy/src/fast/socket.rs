//! The socket of a connection, what was read from it, and what it has not taken. The invariants stand in `fast`.

use std::{
    cell::Cell,
    fs::File,
    io::{self, IoSlice},
    mem,
    ops::Range,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use picaflor::Object;
use tokio::io::{AsyncRead, ReadBuf};

use super::request::SlowRequest;
use crate::{conn::Conn, proxy::Worker, reason::Denied, stream::Stream};

const BUFFER: usize = 8 << 10;

thread_local! {
    /// What the next connection of this worker reads into, and the key that it asks the store for.
    static SPARE: Cell<(Vec<u8>, Vec<u8>)> = const { Cell::new((Vec::new(), Vec::new())) };

    /// Where the next answer of this worker is put together. One for all its connections stays in the processor's
    /// cache, and those that have nothing to send hold nothing.
    static HEAD: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// Longest that is kept for the next answer.
const LONGEST_SPARE: usize = 32 << 10;

/// What to do with the bytes read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// A request was answered; that many bytes are done with.
    Answered(usize),
    /// The last one was answered.
    Last,
    /// The head is not complete.
    Partial,
    /// Perhaps the device has the answer.
    Reading,
    /// That many bytes, those to come included, are one request for hyper.
    ForHyper(u64),
    /// hyper is to have everything from here on.
    ForHyperForGood,
    /// A request of that many bytes is for the slow path, and perhaps the last one.
    ForSlow { len: usize, is_last: bool },
    /// What hyper would refuse without a word is refused here, with a reason; the connection ends.
    Refused(Denied),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Turn {
    /// The next head is looked at here first.
    Ours,
    /// hyper has one request.
    Hyper,
    /// hyper has the connection.
    HyperForGood,
    /// The slow path has one request, without hyper.
    Slow,
}

/// What the socket has not taken.
#[derive(Default)]
pub(super) struct Out {
    pub(super) head: Vec<u8>,
    pub(super) body: Bytes,
    /// Behind the body: the end of its chunk.
    pub(super) tail: &'static [u8],
    /// What comes behind head and body instead.
    pub(super) file: Option<(Arc<File>, Range<usize>)>,
    pub(super) at: usize,
}

impl Out {
    /// Takes memory for an answer, if it has none.
    pub(super) fn reserve(&mut self) {
        if self.head.capacity() == 0 {
            self.head = HEAD.take();
        }
    }

    /// All is sent. Its memory is for the next answer.
    pub(super) fn clear(&mut self) {
        let mut head = mem::take(self).head;
        if (1..=LONGEST_SPARE).contains(&head.capacity()) {
            head.clear();
            HEAD.set(head);
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        let file = self.file.as_ref().map_or(0, |(_, part)| part.len());
        self.at == self.head.len() + self.body.len() + self.tail.len() + file
    }

    /// The file, and what is still to be sent of it, if that comes next.
    pub(super) fn rest_of_file(&self) -> Option<(&File, Range<usize>)> {
        let (file, part) = self.file.as_ref()?;
        let sent = self.at.checked_sub(self.head.len() + self.body.len())?;
        Some((file, part.start + sent..part.end))
    }

    pub(super) fn slices(&self) -> [IoSlice<'_>; 3] {
        let mut sent = self.at;
        [&self.head, &*self.body, self.tail].map(|part| {
            let gone = sent.min(part.len());
            sent -= gone;
            IoSlice::new(&part[gone..])
        })
    }
}

/// The most that are passed on ahead of one answer.
const MOST: u32 = 16;

/// Whether something may be written ahead.
#[derive(Default)]
pub(super) struct Ahead {
    /// The number of the request: what comes for an earlier one is too late.
    pub(super) request: u64,
    /// How many more may come.
    pub(super) left: u32,
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

/// A read of the device for the head at `start`.
type Reading = Pin<Box<dyn Future<Output = picaflor::Result<Option<Object>>> + Send>>;

/// See `fast`.
pub(crate) struct FastIo {
    pub(super) io: Stream,
    pub(super) worker: Arc<Worker>,
    pub(super) conn: Arc<Conn>,
    pub(super) buffer: Vec<u8>,
    pub(super) start: usize,
    pub(super) end: usize,
    pub(super) granted: u64,
    pub(super) turn: Turn,
    pub(super) eof: bool,
    pub(super) refused: bool,
    pub(super) out: Out,
    pub(super) key: Vec<u8>,
    pub(super) reading: Option<Reading>,
    /// How often notes of purges had ended when the store was asked.
    pub(super) ends: u64,
    /// hyper has asked for the next head: it is between two requests, and holds nothing that is still needed.
    pub(super) hyper_idle: bool,
    pub(super) ahead: Ahead,
    /// What it is to take.
    pub(super) slow: Option<SlowRequest>,
}

impl FastIo {
    pub(crate) fn new(io: Stream, worker: Arc<Worker>, conn: Arc<Conn>) -> Self {
        Self {
            io,
            worker,
            conn,
            start: 0,
            end: 0,
            buffer: Vec::new(),
            granted: 0,
            turn: Turn::Ours,
            eof: false,
            refused: false,
            out: Out::default(),
            key: Vec::new(),
            reading: None,
            ends: 0,
            hyper_idle: false,
            ahead: Ahead::default(),
            slow: None,
        }
    }

    pub(super) fn tick(&self) -> u32 {
        self.worker.clock.tick()
    }

    /// Leaves the buffer, of which nothing is needed, to the next connection that reads.
    pub(super) fn give_buffer(&mut self) {
        (self.start, self.end) = (0, 0);
        SPARE.set((mem::take(&mut self.buffer), mem::take(&mut self.key)));
    }

    /// Reads more behind what is there.
    pub(super) fn poll_fill(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
            if self.buffer.len() != BUFFER {
                (self.buffer, self.key) = SPARE.take();
                self.buffer.resize(BUFFER, 0);
            }
        } else if self.end == self.buffer.len() {
            if self.start > 0 {
                self.buffer.copy_within(self.start..self.end, 0);
                self.end -= self.start;
                self.start = 0;
            } else {
                self.buffer.resize((self.buffer.len() * 2).max(BUFFER), 0);
            }
        }
        let mut room = ReadBuf::new(&mut self.buffer[self.end..]);
        let polled = Pin::new(&mut self.io).poll_read(cx, &mut room);
        let n = room.filled().len();
        if polled.is_pending() && self.end == 0 {
            self.give_buffer();
        }
        ready!(polled)?;
        self.end += n;
        Poll::Ready(Ok(n))
    }
}
