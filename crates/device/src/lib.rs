//! Bytes at offsets. This floor knows nothing of objects.
//!
//! Everything above talks to [`Device`]: a regular file or a raw block device, or memory. Models of disks, and devices
//! that fail on demand, are in `picaflor-sim`.

#![deny(unsafe_op_in_unsafe_fn)]

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

// The same locks, under a seeded scheduler.
#[cfg(shuttle)]
extern crate picaflor_locks as parking_lot;

mod ahead;
mod buf;
mod clock;
mod counted;
mod file;
mod file_core;
mod flights;
mod folder;
mod gate;
mod inline;
mod memory;
mod open;
mod page_alloc;
mod pool;
mod section;
mod thread_ring;
mod uring;
mod words;

use std::io;
use std::panic::{self, AssertUnwindSafe};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex};

pub use ahead::{give_back_freed, prefetch, share_arenas, with_room};
pub use buf::{AlignedBuf, BufPool};
pub use clock::Clock;
pub use counted::{CountedDevice, Counts};
pub use file::FileDevice;
pub use folder::{Folder, RealFolder, check_path};
pub use inline::{Perform, submit_inline};
pub use memory::MemoryDevice;
pub use open::{Backend, OpenOptions, PRIVATE, Preallocate, lock};
pub use page_alloc::ALIGN;
pub use section::Section;
pub use thread_ring::{ThreadRing, number_here as thread_ring_number};
pub use words::Words;

/// Where bytes live. Offsets and lengths are in bytes and must be multiples of [`Device::block_size`]; of reads,
/// multiples of [`Device::read_unit`] will do.
///
/// The blocking calls run on the caller's thread. [`Device::submit`] hands over a batch and returns at
/// once; each request's `done` is called exactly once, from a thread of the device's choice (possibly
/// the caller's, before `submit` returns), and must not block. The batch has no order. A thread that would only
/// wait for the answer does better with the blocking calls: one wake-up instead of three.
pub trait Device: Send + Sync {
    /// Usable bytes. They change by [`Device::grow`] and [`Device::shrink`] only.
    fn capacity(&self) -> u64;

    /// Has so many usable bytes from here on, if there were fewer; those that come are reserved, durably. What has one
    /// size, as the default has, refuses.
    ///
    /// # Errors
    /// `Unsupported`; or any error of the medium, and then it is as it was.
    fn grow(&self, capacity: u64) -> io::Result<()> {
        match self.capacity() {
            now if now >= capacity => Ok(()),
            now => Err(io::Error::new(io::ErrorKind::Unsupported, format!("it has {now} bytes and cannot have more"))),
        }
    }

    /// Has so many usable bytes from here on, if there were more; what lay behind them is gone, and a file gives that
    /// back. The default, as what has one size, keeps it.
    ///
    /// # Errors
    /// Any error of the medium, and then it is as it was.
    fn shrink(&self, capacity: u64) -> io::Result<()> {
        let _ = capacity;
        Ok(())
    }

    /// Smallest unit of writing, in bytes; a power of two.
    fn block_size(&self) -> usize;

    /// Smallest unit of reading, in bytes; a power of two, and never more than [`Device::block_size`], which is the
    /// default.
    fn read_unit(&self) -> usize {
        self.block_size()
    }

    /// Fills `buf` from `offset`.
    ///
    /// # Errors
    /// Any error of the medium; `InvalidInput` for an unaligned or out-of-range request.
    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()>;

    /// Writes all of `buf` at `offset`. Not durable before the next [`Device::sync`].
    ///
    /// # Errors
    /// As [`Device::read`].
    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()>;

    /// Makes every write that completed before this call durable.
    ///
    /// # Errors
    /// An error means that nothing is known of any write since the last successful sync.
    fn sync(&self) -> io::Result<()>;

    /// Tells the device that a range holds nothing of value. A hint; the default does nothing.
    ///
    /// # Errors
    /// Any error of the medium.
    fn discard(&self, _offset: u64, _len: u64) -> io::Result<()> {
        Ok(())
    }

    /// Starts a batch; see the trait's description for when and where `done` runs.
    fn submit(&self, batch: Vec<Request>);

    /// Starts a request that none but tasks of the calling thread wait for: a device of this machine gives it to the
    /// thread's [`ThreadRing`], if there is one, and then `done` runs when that is turned. The default is
    /// [`Device::submit`].
    fn submit_own(&self, request: Request) {
        self.submit(vec![request]);
    }

    /// As [`Device::submit`], and returns when every `done` has been called, on this thread: all of the batch is on its
    /// way at once where the device can, and no other thread is woken. The default carries out one request after the
    /// other.
    fn run(&self, batch: Vec<Request>) {
        for Request { offset, op, done } in batch {
            done(op.carry_out(|buf| self.read(offset, buf), |bytes| self.write(offset, bytes), || self.sync()));
        }
    }

    /// Where time is virtual and nothing else moves it: lets pass what comes next, on this thread, and says whether
    /// there was anything. A caller that waits for a submitted request calls this until it returns false before it
    /// blocks. A device that completes requests by itself has nothing to do here.
    fn advance(&self) -> bool {
        false
    }

    /// Gives the device back to other processes though it is still there: returns when no write is under way, and every
    /// request from then on fails. The default, for devices that no other process can have, does nothing.
    fn release(&self) {}

    /// What runs behind the seam, for logs and metrics: `io_uring`, `pread pool`, `memory` ...
    fn backend(&self) -> String;
}

/// Writes ranges that do not touch each other, as one batch, in no order; returns when all are written.
///
/// # Errors
/// As [`Device::write`], the first that is met; then any of them may have been written.
pub fn write_all(device: &dyn Device, writes: Vec<(u64, Bytes)>) -> io::Result<()> {
    write_beside(device, writes, Vec::new())
}

/// As [`write_all`], with other requests in the same batch, which tell of themselves.
///
/// # Errors
/// Those of the writes.
pub fn write_beside(device: &dyn Device, writes: Vec<(u64, Bytes)>, others: Vec<Request>) -> io::Result<()> {
    let failure = Arc::new(OnceLock::new());
    let request = |(offset, bytes)| {
        let failure = Arc::clone(&failure);
        let done: Done = Box::new(move |outcome| {
            if let Err(error) = outcome {
                let _ = failure.set(error);
            }
        });
        Request { offset, op: Op::Write(bytes), done }
    };
    device.run(writes.into_iter().map(request).chain(others).collect());
    let failure = Arc::into_inner(failure).ok_or_else(|| io::Error::other("a request of the batch is not over"))?;
    failure.into_inner().map_or(Ok(()), Err)
}

/// Fills buffers from their offsets, as one batch; each has an outcome of its own.
pub fn read_all(device: &dyn Device, reads: Vec<(u64, AlignedBuf)>) -> Vec<io::Result<AlignedBuf>> {
    let (batch, reads) = reads_of(reads);
    device.run(batch);
    reads.wait(device)
}

/// As [`read_all`], begun: the caller does something else before it [waits](Reads::wait).
pub fn begin_reads(device: &dyn Device, reads: Vec<(u64, AlignedBuf)>) -> Reads {
    let (batch, reads) = reads_of(reads);
    device.submit(batch);
    reads
}

/// Reads that are under way; see [`begin_reads`].
pub struct Reads(Arc<Told>);

struct Told {
    state: Mutex<Outcomes>,
    over: Condvar,
}

struct Outcomes {
    /// Of each request that was answered.
    all: Vec<Option<io::Result<AlignedBuf>>>,
    /// Requests that are not over.
    left: usize,
}

/// Tells of the end of one request, also if it was dropped.
struct Tell {
    told: Arc<Told>,
    number: usize,
    outcome: Option<io::Result<AlignedBuf>>,
}

impl Tell {
    fn end(mut self, outcome: io::Result<AlignedBuf>) {
        self.outcome = Some(outcome);
    }
}

impl Drop for Tell {
    fn drop(&mut self) {
        let mut state = self.told.state.lock();
        state.all[self.number] = self.outcome.take();
        state.left -= 1;
        if state.left == 0 {
            self.told.over.notify_all();
        }
    }
}

fn reads_of(reads: Vec<(u64, AlignedBuf)>) -> (Vec<Request>, Reads) {
    let outcomes = Outcomes { all: reads.iter().map(|_| None).collect(), left: reads.len() };
    let told = Arc::new(Told { state: Mutex::new(outcomes), over: Condvar::new() });
    let request = |(number, (offset, buf))| {
        let tell = Tell { told: Arc::clone(&told), number, outcome: None };
        let done: Done = Box::new(move |outcome| tell.end(outcome));
        Request { offset, op: Op::Read(buf), done }
    };
    (reads.into_iter().enumerate().map(request).collect(), Reads(Arc::clone(&told)))
}

impl Reads {
    /// The outcome of each, in order, when all are over.
    pub fn wait(self, device: &dyn Device) -> Vec<io::Result<AlignedBuf>> {
        while device.advance() {}
        let mut state = self.0.state.lock();
        while state.left > 0 {
            self.0.over.wait(&mut state);
        }
        let dropped = || Err(io::Error::other("the device dropped a request"));
        state.all.drain(..).map(|outcome| outcome.unwrap_or_else(dropped)).collect()
    }
}

impl std::fmt::Debug for Reads {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reads").field("left", &self.0.state.lock().left).finish()
    }
}

/// One asynchronous operation of a batch.
pub struct Request {
    /// Byte offset; ignored by [`Op::Sync`].
    pub offset: u64,
    /// What to do.
    pub op: Op,
    /// Called exactly once with the outcome.
    pub done: Done,
}

/// Called with the outcome of a [`Request`]: for a read, the filled buffer; otherwise an empty one.
pub type Done = Box<dyn FnOnce(io::Result<AlignedBuf>) + Send>;

/// What a [`Request`] asks for.
pub enum Op {
    /// Fill this buffer and hand it to `done`.
    Read(AlignedBuf),
    /// Write these bytes. Slices of an [`AlignedBuf`] at block offsets go to the medium as they are; bytes at an
    /// address that direct I/O cannot use are copied first.
    Write(Bytes),
    /// As [`Device::sync`], for the writes whose `done` ran before this request was submitted.
    Sync,
}

impl Op {
    /// Carries it out by blocking calls of a device; returns what its `done` is to be told.
    ///
    /// # Errors
    /// That of the call.
    pub fn carry_out(
        self,
        read: impl FnOnce(&mut [u8]) -> io::Result<()>,
        write: impl FnOnce(&[u8]) -> io::Result<()>,
        sync: impl FnOnce() -> io::Result<()>,
    ) -> io::Result<AlignedBuf> {
        match self {
            Self::Read(mut buf) => read(&mut buf).map(|()| buf),
            Self::Write(bytes) => write(&bytes).map(|()| AlignedBuf::empty()),
            Self::Sync => sync().map(|()| AlignedBuf::empty()),
        }
    }
}

/// Calls `done` on a device's own thread. A panic in it is its owner's affair and has been reported by the
/// panic hook; it must not end the thread that every other request needs.
pub fn finish(done: Done, outcome: io::Result<AlignedBuf>) {
    let _ = panic::catch_unwind(AssertUnwindSafe(|| done(outcome)));
}

/// Refuses what is unaligned or outside the device, with the numbers in the message.
///
/// # Errors
/// `InvalidInput`.
pub fn check_request(capacity: u64, block_size: usize, offset: u64, len: u64) -> io::Result<()> {
    let block = block_size as u64;
    let why = if !offset.is_multiple_of(block) || !len.is_multiple_of(block) {
        format!("not aligned to the block size {block}")
    } else if offset.checked_add(len).is_none_or(|end| end > capacity) {
        format!("outside the device of {capacity} bytes")
    } else {
        return Ok(());
    };
    let what = format!("request at {offset} of {len} bytes is {why}");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
