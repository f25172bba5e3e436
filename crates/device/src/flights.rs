//! Requests that are with the kernel: what the shared ring and a thread's own ring have in common.
//!
//! Invariants:
//! - a request's buffer stays in its slot from before its entry is pushed until its completion is seen, and the slot
//!   keeps the file open as long;
//! - at most [`MAX_IN_FLIGHT`] requests are with the kernel, so neither ring can overflow;
//! - nothing here calls `done`: the owner of the ring does, with nothing locked or borrowed;
//! - a ring that was lost answers everything with an error, now and for ever.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use io_uring::types::{Fd, FsyncFlags};
use io_uring::{IoUring, cqueue, opcode, squeue};
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::file_core::FileCore;
use crate::gate::Passage;
use crate::{AlignedBuf, Done, Op, Request};

/// Entries of the submission ring.
pub(crate) const ENTRIES: u32 = 256;
/// Requests with the kernel at once; one entry is left for the poll that wakes the ring's thread.
pub(crate) const MAX_IN_FLIGHT: usize = ENTRIES as usize - 1;
/// Most bytes of one kernel operation; longer requests are continued. Below what Linux moves at once.
const MAX_PIECE: usize = 1 << 30;
/// `user_data` of the poll on the eventfd; slots are numbered from 0.
const WAKE: u64 = u64::MAX;

/// Ends a wait in a ring, from any thread.
pub(crate) struct Alarm(OwnedFd);

impl Alarm {
    fn new() -> io::Result<Arc<Self>> {
        Ok(Arc::new(Self(rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?)))
    }

    pub(crate) fn ring(&self) {
        // Fails only when 2^64 of them are unread.
        let _ = rustix::io::write(&self.0, &1u64.to_ne_bytes());
    }
}

/// A request that is over, and how; `finish` is to be called on it.
pub(crate) type Over = (Done, io::Result<AlignedBuf>);

/// A ring and what it was given.
pub(crate) struct Flights {
    ring: IoUring,
    slots: Box<[Option<InFlight>]>,
    /// Numbers of the empty slots; the last freed is taken first.
    free: Vec<usize>,
    alarm: Arc<Alarm>,
    poll_armed: bool,
    /// Why the ring is of no use any more.
    lost: Option<(io::ErrorKind, String)>,
}

/// One request with the kernel.
struct InFlight {
    core: Arc<FileCore>,
    offset: u64,
    /// Bytes moved so far, a multiple of the block size.
    moved: usize,
    op: Op,
    done: Done,
    /// Of a write.
    _under_way: Option<Passage>,
}

impl Flights {
    /// On the thread that is to own the ring. Sees that the alarm works: the one path that no request would show
    /// broken.
    pub(crate) fn new(ring: IoUring) -> io::Result<Self> {
        let mut flights = Self {
            ring,
            slots: (0..MAX_IN_FLIGHT).map(|_| None).collect(),
            free: (0..MAX_IN_FLIGHT).rev().collect(),
            alarm: Alarm::new()?,
            poll_armed: false,
            lost: None,
        };
        flights.arm();
        flights.alarm.ring();
        loop {
            match flights.ring.submit_and_wait(1) {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => {}
            }
            let Some(entry) = flights.ring.completion().next() else { continue };
            flights.poll_armed = cqueue::more(entry.flags());
            return outcome(entry.result()).map(|_| flights);
        }
    }

    pub(crate) fn alarm(&self) -> Arc<Alarm> {
        Arc::clone(&self.alarm)
    }

    /// Has the kernel write to this eventfd when something completes.
    pub(crate) fn tell(&self, eventfd: BorrowedFd<'_>) -> io::Result<()> {
        self.ring.submitter().register_eventfd(eventfd.as_raw_fd())
    }

    pub(crate) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.free.len() == MAX_IN_FLIGHT
    }

    /// Requests with the kernel.
    pub(crate) fn in_flight(&self) -> usize {
        MAX_IN_FLIGHT - self.free.len()
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.lost.is_some()
    }

    /// Puts the request into a slot and pushes its entry, or says how it is over already. There must be room.
    pub(crate) fn start(&mut self, core: &Arc<FileCore>, request: Request) -> Option<Over> {
        let Request { offset, op, done } = request;
        if let Some(error) = self.lost_error(core) {
            return Some((done, Err(error)));
        }
        let checked = match &op {
            Op::Read(buf) => core.check_read(offset, buf.len()).map(|()| (buf.is_empty(), None)),
            Op::Write(bytes) => core.begin_write(offset, bytes.len()).map(|passage| (bytes.is_empty(), Some(passage))),
            // What was not written needs no sync.
            Op::Sync => core.check_sound().map(|()| (core.read_only, None)),
        };
        let under_way = match checked {
            Err(error) => return Some((done, Err(error))),
            Ok((true, _)) => return Some((done, Ok(into_answer(op)))),
            Ok((false, under_way)) => under_way,
        };
        let op = match op {
            Op::Write(bytes) => Op::Write(core.aligned(bytes)),
            other => other,
        };
        if let Some(slot) = self.free.pop() {
            let core = Arc::clone(core);
            self.slots[slot] = Some(InFlight { core, offset, moved: 0, op, done, _under_way: under_way });
            self.push(slot);
        }
        None
    }

    /// Pushes the entry for what the slot's request still has to do.
    fn push(&mut self, slot: usize) {
        let Some(request) = self.slots[slot].as_mut() else { return };
        let moved = request.moved;
        let at = request.offset + moved as u64;
        let file = Fd(request.core.fd().as_raw_fd());
        let entry = match &mut request.op {
            Op::Read(buf) => {
                let rest = &mut buf[moved..];
                opcode::Read::new(file, rest.as_mut_ptr(), piece_len(rest.len())).offset(at).build()
            }
            Op::Write(bytes) => {
                let rest = &bytes[moved..];
                opcode::Write::new(file, rest.as_ptr(), piece_len(rest.len())).offset(at).build()
            }
            Op::Sync => opcode::Fsync::new(file).flags(FsyncFlags::DATASYNC).build(),
        };
        // SAFETY: the entry points into the heap memory of a buffer that its slot owns until the completion is
        // seen, and that nothing else touches: a read's buffer is ours alone, a write's bytes are immutable. The
        // slot keeps the file open for as long.
        unsafe { self.push_entry(&entry.user_data(slot as u64)) };
    }

    /// Makes the alarm end the next wait, and all that follow.
    pub(crate) fn arm(&mut self) {
        if !self.poll_armed {
            const POLLIN: u32 = 1;
            let poll = opcode::PollAdd::new(Fd(self.alarm.0.as_raw_fd()), POLLIN).multi(true);
            // SAFETY: a poll refers to no memory, and the eventfd outlives the ring.
            unsafe { self.push_entry(&poll.build().user_data(WAKE)) };
            self.poll_armed = true;
        }
    }

    /// # Safety
    /// Whatever the entry points to must stay valid until its completion is seen.
    unsafe fn push_entry(&mut self, entry: &squeue::Entry) {
        loop {
            // SAFETY: passed on to our caller.
            match unsafe { self.ring.submission().push(entry) } {
                Ok(()) => return,
                // Cannot be: fewer requests than entries. If it were, the kernel would take some.
                Err(_) => drop(self.ring.submit()),
            }
        }
    }

    /// Whether entries were pushed that the kernel has not taken.
    pub(crate) fn has_entries(&mut self) -> bool {
        !self.ring.submission().is_empty()
    }

    /// Whether the kernel says that there are completions to be fetched. It may say so when there are none any more, so
    /// none is to ask again before something else has happened.
    pub(crate) fn has_news(&mut self) -> bool {
        let entries = self.ring.submission();
        entries.taskrun() || entries.cq_overflow()
    }

    /// Hands the pushed entries to the kernel and waits for so many completions. False: nothing moved for now, and
    /// a caller that does not wait should come back.
    pub(crate) fn enter(&mut self, wait: usize) -> bool {
        if self.lost.is_some() {
            // Everything is answered at once, so no caller waits for long; but a loop that waits is not to spin.
            thread::sleep(Duration::from_millis(wait.min(1) as u64));
            return false;
        }
        let Err(error) = self.ring.submit_and_wait(wait) else { return true };
        if !self.ring.completion().is_empty() {
            return true;
        }
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::INTR) => {}
            // Out of memory or of room for a moment.
            Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => thread::sleep(Duration::from_millis(1)),
            // Not known to happen: a ring that once worked has no documented way of failing for good.
            _ => self.lost = Some((error.kind(), error.to_string())),
        }
        false
    }

    /// The next request that is over. One that has more to do goes on.
    pub(crate) fn next_over(&mut self) -> Option<Over> {
        if self.lost.is_some() {
            return self.next_lost();
        }
        loop {
            let entry = self.ring.completion().next()?;
            if entry.user_data() == WAKE {
                self.poll_armed = cqueue::more(entry.flags());
            } else if let Some(over) = self.complete(entry.user_data() as usize, entry.result()) {
                return Some(over);
            }
        }
    }

    fn complete(&mut self, slot: usize, result: i32) -> Option<Over> {
        let mut request = self.slots[slot].take()?;
        match request.advance(outcome(result)) {
            None => {
                self.slots[slot] = Some(request);
                self.push(slot);
                None
            }
            Some(outcome) => {
                self.free.push(slot);
                Some((request.done, outcome.map(|()| into_answer(request.op))))
            }
        }
    }

    fn next_lost(&mut self) -> Option<Over> {
        let slot = self.slots.iter().position(Option::is_some)?;
        let InFlight { core, op, done, .. } = self.slots[slot].take()?;
        self.free.push(slot);
        // The kernel may still be using this memory, so it is never freed.
        std::mem::forget(op);
        self.lost_error(&core).map(|error| (done, Err(error)))
    }

    fn lost_error(&self, core: &FileCore) -> Option<io::Error> {
        let (kind, why) = self.lost.as_ref()?;
        Some(core.error("use io_uring", io::Error::new(*kind, format!("the ring was lost: {why}"))))
    }
}

impl InFlight {
    /// Whether the request is over, and how. `None`: it has more to do.
    fn advance(&mut self, result: io::Result<usize>) -> Option<io::Result<()>> {
        let (action, len) = match &self.op {
            Op::Read(buf) => ("read", buf.len()),
            Op::Write(bytes) => ("write", bytes.len()),
            Op::Sync => ("sync", 0),
        };
        let at = self.offset + self.moved as u64;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) if len == 0 => Some(self.core.sync_outcome(Err(error))),
            Err(error) => Some(Err(self.core.error_at(action, at, error))),
            Ok(_) if len == 0 => Some(Ok(())),
            Ok(count) => {
                let count = self.core.progress(count, len - self.moved);
                self.moved += count;
                match count {
                    0 => Some(Err(self.core.ended(action, at))),
                    _ if self.moved == len => Some(Ok(())),
                    _ => None,
                }
            }
        }
    }
}

/// A completion's result: a count, or an error number below 0.
fn outcome(result: i32) -> io::Result<usize> {
    usize::try_from(result).map_err(|_| io::Error::from_raw_os_error(result.wrapping_neg()))
}

fn piece_len(rest: usize) -> u32 {
    rest.min(MAX_PIECE) as u32
}

/// What `done` gets: the buffer of a read, otherwise an empty one.
fn into_answer(op: Op) -> AlignedBuf {
    match op {
        Op::Read(buf) => buf,
        Op::Write(_) | Op::Sync => AlignedBuf::empty(),
    }
}
