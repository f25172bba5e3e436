//! Submitted requests through `io_uring`.
//!
//! One thread owns the ring: it alone submits, waits and calls `done`. Others put requests into a queue
//! and wake it through an eventfd if it sleeps. So completions interrupt no thread of the engine, whatever
//! arrived meanwhile is one `io_uring_enter`, and a request lives on when the thread that submitted it
//! ends (a ring shared by threads cancels those).
//!
//! Flags, measured (CPU time per 4 KiB read at depth 32, by completions that submit the next read / by 32
//! threads that wait): `SINGLE_ISSUER | COOP_TASKRUN` 3.0 / 8.6 us, `SINGLE_ISSUER | DEFER_TASKRUN`
//! 3.5 / 10.3 us, none 3.1 / 10.1 us.
//!
//! Invariants:
//! - a request's buffer stays in its slot from before its entry is pushed until its completion is seen;
//! - at most [`MAX_IN_FLIGHT`] requests are with the kernel, so neither ring can overflow; the rest wait
//!   in memory, so `submit` never fails and never waits, also from within a `done`;
//! - `done` runs without a lock held;
//! - the thread ends when it is told to close and nothing is waiting or in flight.

use std::collections::VecDeque;
use std::io;
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use io_uring::types::{Fd, Fixed, FsyncFlags};
use io_uring::{CompletionQueue, IoUring, SubmissionQueue, Submitter, cqueue, opcode, squeue};
use parking_lot::Mutex;
use rustix::event::EventfdFlags;
use rustix::io::Errno;

use crate::file::FileCore;
use crate::{AlignedBuf, Done, Op, Request, finish};

/// Entries of the submission ring.
const ENTRIES: u32 = 256;
/// Requests with the kernel at once; one entry is left for the poll that wakes the thread.
const MAX_IN_FLIGHT: usize = ENTRIES as usize - 1;
/// Most bytes of one kernel operation; longer requests are continued. Below what Linux moves at once.
const MAX_PIECE: usize = 1 << 30;
/// `user_data` of the poll on the eventfd; slots are numbered from 0.
const WAKE: u64 = u64::MAX;
/// The file is the only one registered with the ring.
const FILE: Fixed = Fixed(0);

pub(crate) struct Ring {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<()>>,
    mode: &'static str,
}

/// What submitters and the ring's thread share.
struct Shared {
    state: Mutex<State>,
    wake: OwnedFd,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<Request>,
    /// The thread waits for completions and will not look here by itself.
    asleep: bool,
    closing: bool,
}

impl Shared {
    fn wake(&self) {
        // Fails only when 2^64 wake-ups are unread.
        let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
    }
}

impl Ring {
    /// Starts the thread and its ring; fails where the system refuses any part of it.
    pub(crate) fn start(core: Arc<FileCore>) -> io::Result<Self> {
        let wake = rustix::event::eventfd(0, EventfdFlags::CLOEXEC)?;
        let shared = Arc::new(Shared { state: Mutex::new(State::default()), wake });
        let (tell, told) = mpsc::sync_channel(1);
        let theirs = Arc::clone(&shared);
        let thread =
            thread::Builder::new().name("picaflor-uring".to_owned()).spawn(move || run(&core, &theirs, &tell))?;
        let started = told.recv().unwrap_or_else(|_| Err(io::Error::other("the ring's thread ended")));
        Ok(Self { shared, thread: Some(thread), mode: started? })
    }

    pub(crate) fn submit(&self, batch: Vec<Request>) {
        let mut state = self.shared.state.lock();
        state.waiting.extend(batch);
        let asleep = std::mem::take(&mut state.asleep);
        drop(state);
        if asleep {
            self.shared.wake();
        }
    }

    /// Which kind of ring the kernel gave.
    pub(crate) fn mode(&self) -> &'static str {
        self.mode
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        self.shared.state.lock().closing = true;
        self.shared.wake();
        if let Some(thread) = self.thread.take()
            // The last owner may let go inside a `done`: then the thread finishes by itself.
            && thread.thread().id() != thread::current().id()
        {
            let _ = thread.join();
        }
    }
}

/// The best ring that this kernel gives, and its kind.
fn build() -> io::Result<(IoUring, &'static str)> {
    let best = IoUring::builder().setup_single_issuer().setup_coop_taskrun().build(ENTRIES);
    match best {
        Ok(ring) => Ok((ring, "one issuer")),
        // Linux before 6.0 does not know these flags.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((IoUring::new(ENTRIES)?, "plain")),
        Err(error) => Err(error),
    }
}

/// The thread's life. Everything that can be refused is tried before `tell`.
fn run(core: &FileCore, shared: &Shared, tell: &mpsc::SyncSender<io::Result<&'static str>>) {
    let started = build().and_then(|(ring, mode)| {
        ring.submitter().register_files(&[core.fd().as_raw_fd()])?;
        Ok((ring, mode))
    });
    let (mut ring, mode) = match started {
        Ok(started) => started,
        Err(error) => {
            let _ = tell.send(Err(error));
            return;
        }
    };
    let (mut submitter, sq, cq) = ring.split();
    // Saves a look-up per call where the kernel (5.18) knows it.
    let _ = submitter.register_ring_fd();
    let mut driver = Driver {
        core,
        shared,
        submitter,
        sq,
        cq,
        slots: (0..MAX_IN_FLIGHT).map(|_| None).collect(),
        free: (0..MAX_IN_FLIGHT).rev().collect(),
        waiting: VecDeque::new(),
        seen: Vec::with_capacity(2 * ENTRIES as usize),
        poll_armed: false,
    };
    let ready = driver.prove_wake_up();
    let works = ready.is_ok();
    let _ = tell.send(ready.map(|()| mode));
    if works {
        driver.drive();
    }
    // The ring itself goes away in the background; the file must not wait for that.
    let _ = driver.submitter.unregister_files();
}

/// One request with the kernel.
struct InFlight {
    offset: u64,
    /// Bytes moved so far, a multiple of the block size.
    moved: usize,
    op: Op,
    done: Done,
}

struct Driver<'a> {
    core: &'a FileCore,
    shared: &'a Shared,
    submitter: Submitter<'a>,
    sq: SubmissionQueue<'a>,
    cq: CompletionQueue<'a>,
    slots: Box<[Option<InFlight>]>,
    /// Numbers of the empty slots; the last freed is taken first.
    free: Vec<usize>,
    /// Taken from the shared queue, not yet with the kernel.
    waiting: VecDeque<Request>,
    /// Completions being handled: (`user_data`, result, more to come).
    seen: Vec<(u64, i32, bool)>,
    poll_armed: bool,
}

impl Driver<'_> {
    /// Arms the poll and sees that an eventfd write completes it: the one path that no request would show broken.
    fn prove_wake_up(&mut self) -> io::Result<()> {
        self.arm_poll();
        self.shared.wake();
        loop {
            match self.enter() {
                Err(error) if error.kind() != io::ErrorKind::Interrupted => return Err(error),
                _ => self.gather(),
            }
            if let Some((_, result, more)) = self.seen.pop() {
                self.poll_armed = more;
                return outcome(result).map(|_| ());
            }
        }
    }

    fn drive(&mut self) {
        loop {
            if !self.admit() {
                return;
            }
            self.arm_poll();
            let entered = self.enter();
            self.shared.state.lock().asleep = false;
            self.gather();
            if let Err(error) = entered
                && self.seen.is_empty()
                && !self.survive(&error)
            {
                return;
            }
            while let Some((slot, result, more)) = self.seen.pop() {
                if slot == WAKE {
                    self.poll_armed = more;
                } else {
                    self.complete(slot as usize, result);
                }
            }
        }
    }

    /// Gives the kernel's ring what is waiting, until there is no more of it or no room. False: time to end.
    fn admit(&mut self) -> bool {
        loop {
            while !self.free.is_empty()
                && let Some(request) = self.waiting.pop_front()
            {
                self.start(request);
            }
            let mut state = self.shared.state.lock();
            if state.waiting.is_empty() || self.free.is_empty() {
                let finished = state.closing && self.free.len() == MAX_IN_FLIGHT;
                state.asleep = !finished && !self.free.is_empty();
                return !finished;
            }
            self.waiting.append(&mut state.waiting);
        }
    }

    /// Refuses the request, or puts it into a slot and pushes its entry. There is a free slot.
    fn start(&mut self, request: Request) {
        let Request { offset, op, done } = request;
        let checked = match &op {
            Op::Read(buf) => self.core.check_read(offset, buf.len()).map(|()| buf.is_empty()),
            Op::Write(bytes) => self.core.check_write(offset, bytes.len()).map(|()| bytes.is_empty()),
            // What was not written needs no sync.
            Op::Sync => self.core.check_sound().map(|()| self.core.read_only),
        };
        match checked {
            Err(error) => return finish(done, Err(error)),
            Ok(true) => return finish(done, Ok(into_answer(op))),
            Ok(false) => {}
        }
        let op = match op {
            Op::Write(bytes) => Op::Write(self.core.aligned(bytes)),
            other => other,
        };
        if let Some(slot) = self.free.pop() {
            self.slots[slot] = Some(InFlight { offset, moved: 0, op, done });
            self.push(slot);
        }
    }

    /// Pushes the entry for what the slot's request still has to do.
    fn push(&mut self, slot: usize) {
        let Some(request) = self.slots[slot].as_mut() else { return };
        let moved = request.moved;
        let at = request.offset + moved as u64;
        let entry = match &mut request.op {
            Op::Read(buf) => {
                let rest = &mut buf[moved..];
                opcode::Read::new(FILE, rest.as_mut_ptr(), piece_len(rest.len())).offset(at).build()
            }
            Op::Write(bytes) => {
                let rest = &bytes[moved..];
                opcode::Write::new(FILE, rest.as_ptr(), piece_len(rest.len())).offset(at).build()
            }
            Op::Sync => opcode::Fsync::new(FILE).flags(FsyncFlags::DATASYNC).build(),
        };
        // SAFETY: the entry points into the heap memory of a buffer that its slot owns until the
        // completion is seen, and that nothing else touches: a read's buffer is ours alone, a write's
        // bytes are immutable. The registered file outlives the ring (`core` is borrowed for longer).
        unsafe { self.push_entry(&entry.user_data(slot as u64)) };
    }

    fn arm_poll(&mut self) {
        if !self.poll_armed {
            const POLLIN: u32 = 1;
            let poll = opcode::PollAdd::new(Fd(self.shared.wake.as_raw_fd()), POLLIN).multi(true);
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
            match unsafe { self.sq.push(entry) } {
                Ok(()) => return,
                // Cannot be: fewer requests than entries. If it were, the kernel would take some.
                Err(_) => {
                    self.sq.sync();
                    let _ = self.submitter.submit();
                    self.sq.sync();
                }
            }
        }
    }

    /// Hands the pushed entries to the kernel and waits for at least one completion.
    fn enter(&mut self) -> io::Result<()> {
        self.sq.sync();
        self.submitter.submit_and_wait(1).map(|_| ())
    }

    /// Moves what has completed into `seen`, oldest last.
    fn gather(&mut self) {
        self.cq.sync();
        self.seen.extend((&mut self.cq).map(|entry| (entry.user_data(), entry.result(), cqueue::more(entry.flags()))));
        self.cq.sync();
        self.seen.reverse();
        self.sq.sync();
    }

    fn complete(&mut self, slot: usize, result: i32) {
        let Some(mut request) = self.slots[slot].take() else { return };
        match self.advance(&mut request, outcome(result)) {
            None => {
                self.slots[slot] = Some(request);
                self.push(slot);
            }
            Some(outcome) => {
                self.free.push(slot);
                finish(request.done, outcome.map(|()| into_answer(request.op)));
            }
        }
    }

    /// Whether the request is over, and how. `None`: it has more to do.
    fn advance(&self, request: &mut InFlight, result: io::Result<usize>) -> Option<io::Result<()>> {
        let (action, len) = match &request.op {
            Op::Read(buf) => ("read", buf.len()),
            Op::Write(bytes) => ("write", bytes.len()),
            Op::Sync => ("sync", 0),
        };
        let at = request.offset + request.moved as u64;
        match result {
            Err(error) if error.kind() == io::ErrorKind::Interrupted => None,
            Err(error) if len == 0 => Some(self.core.sync_outcome(Err(error))),
            Err(error) => Some(Err(self.core.error_at(action, at, error))),
            Ok(_) if len == 0 => Some(Ok(())),
            Ok(count) => {
                let count = self.core.progress(count, len - request.moved);
                request.moved += count;
                match count {
                    0 => Some(Err(self.core.ended(action, at))),
                    _ if request.moved == len => Some(Ok(())),
                    _ => None,
                }
            }
        }
    }

    /// What to do when the kernel took nothing and completed nothing. False: the ring is lost.
    fn survive(&mut self, error: &io::Error) -> bool {
        match error.raw_os_error().map(Errno::from_raw_os_error) {
            Some(Errno::INTR) => true,
            // Out of memory or of room for a moment.
            Some(Errno::AGAIN | Errno::BUSY | Errno::NOMEM) => {
                thread::sleep(Duration::from_millis(1));
                true
            }
            _ => {
                self.abandon(error);
                false
            }
        }
    }

    /// Answers everything with an error, now and for ever. Not known to happen: a ring that once worked
    /// has no documented way of failing for good.
    fn abandon(&mut self, error: &io::Error) {
        let lost = || io::Error::new(error.kind(), format!("the ring was lost: {error}"));
        for slot in &mut self.slots {
            if let Some(InFlight { op, done, .. }) = slot.take() {
                // The kernel may still be using this memory, so it is never freed.
                std::mem::forget(op);
                finish(done, Err(self.core.error("use io_uring", lost())));
            }
        }
        loop {
            let mut state = self.shared.state.lock();
            self.waiting.append(&mut state.waiting);
            let closing = state.closing;
            drop(state);
            for request in self.waiting.drain(..) {
                finish(request.done, Err(self.core.error("use io_uring", lost())));
            }
            if closing {
                return;
            }
            thread::sleep(Duration::from_millis(1));
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
