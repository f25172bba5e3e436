//! A regular file or a raw block device behind the [`Device`] seam.
//!
//! Invariants:
//! - no byte outside `0..capacity` is touched, and nothing is written through a read-only device;
//! - after one failed sync every later write and sync fails: the kernel may already have dropped the
//!   dirty data and marked it clean, so a retried sync that succeeds would prove nothing;
//! - every error names the file;
//! - dropping the device completes everything that was submitted, but for what a [`crate::ThreadRing`] was given: that
//!   keeps the file open until the ring is turned or dropped.

use std::error::Error;
use std::fmt;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use bytes::Bytes;
use rustix::fs::FallocateFlags;

use crate::gate::{Gate, Passage};
use crate::inline::{self, Perform};
use crate::open::{self, Before, OpenOptions};
use crate::pool::Pool;
use crate::thread_ring;
use crate::uring::{Lending, Ring};
use crate::{AlignedBuf, Backend, Device, Op, Request, check_request, finish};

/// A regular file or raw block device; see [`OpenOptions`] for how it is opened.
///
/// Bytes in memory that are not aligned well enough for direct I/O are copied through an aligned
/// buffer; those of an [`AlignedBuf`] never are.
pub struct FileDevice {
    core: Arc<FileCore>,
    wanted: Backend,
    /// Started by the first request: who only blocks needs no thread, and an opening does not wait until one runs.
    queue: OnceLock<Queue>,
    lending: Lending,
}

/// What carries out submitted requests.
enum Queue {
    Ring(Ring),
    Pool {
        pool: Pool,
        why: String,
    },
    /// Whoever submits.
    Caller {
        why: String,
    },
}

impl FileDevice {
    /// Opens `path`, creating and preallocating it if `options` say so.
    ///
    /// # Errors
    /// Naming the file and the reason: missing, in use by another process, a directory, too short, no
    /// space, a capacity that is 0 or not a multiple of the block size, or any error of the system.
    pub fn open(path: impl AsRef<Path>, options: OpenOptions) -> io::Result<Self> {
        Self::open_with_progress(path, options, &mut |_, _| {})
    }

    /// As [`FileDevice::open`]; while a new file is written full, `progress` is told the bytes done and
    /// the bytes to do.
    ///
    /// # Errors
    /// As [`FileDevice::open`].
    pub fn open_with_progress(
        path: impl AsRef<Path>,
        options: OpenOptions,
        progress: &mut dyn FnMut(u64, u64),
    ) -> io::Result<Self> {
        let core = Arc::new(open::open(path.as_ref(), &options, progress)?);
        let wanted = options.backend;
        let queue = match wanted {
            Backend::Auto => OnceLock::new(),
            // Whoever asks for one of them hears at once if it is not to be had.
            Backend::IoUring | Backend::Pool => {
                let queue = Queue::start(&core, wanted);
                OnceLock::from(queue.inspect_err(|_| core.before.restore(&core.path, &core.file))?)
            }
        };
        Ok(Self { core, wanted, queue, lending: Lending::default() })
    }

    fn queue(&self) -> &Queue {
        let start = || Queue::start(&self.core, self.wanted);
        self.queue.get_or_init(|| start().unwrap_or_else(|error| Queue::Caller { why: error.to_string() }))
    }

    /// Leaves the path as it was before this device made a file there; what was there already is not touched. For who
    /// finds that there is to be no store after all. Nothing of it may be used afterwards.
    pub fn unmake(&self) {
        self.core.before.restore(&self.core.path, &self.core.file);
    }

    /// The path this device was opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.core.path
    }
}

impl Queue {
    fn start(core: &Arc<FileCore>, wanted: Backend) -> io::Result<Self> {
        let why = match wanted {
            Backend::Pool => "as asked".to_owned(),
            Backend::Auto | Backend::IoUring => match Ring::start(Arc::clone(core)) {
                Ok(ring) => return Ok(Self::Ring(ring)),
                Err(error) if wanted == Backend::IoUring => {
                    return Err(core.error("start io_uring", error));
                }
                Err(error) => format!("io_uring refused: {error}"),
            },
        };
        let pool = Pool::start(Arc::clone(core) as Arc<dyn Perform>)
            .map_err(|error| core.error("start I/O threads", error))?;
        Ok(Self::Pool { pool, why })
    }
}

impl Device for FileDevice {
    fn capacity(&self) -> u64 {
        self.core.capacity
    }

    fn block_size(&self) -> usize {
        self.core.block_size
    }

    fn read_unit(&self) -> usize {
        self.core.read_unit
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.core.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.core.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.core.sync()
    }

    /// Passes the hint on to a block device. In a regular file it would give extents back to the file
    /// system, and the next write there would pay for allocating them again, so there it does nothing.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.core.discard(offset, len)
    }

    fn submit(&self, batch: Vec<Request>) {
        match self.queue() {
            Queue::Ring(ring) => ring.submit(batch),
            Queue::Pool { pool, .. } => pool.submit(batch),
            Queue::Caller { .. } => inline::submit_inline(Arc::clone(&self.core) as Arc<dyn Perform>, batch),
        }
    }

    fn run(&self, batch: Vec<Request>) {
        let is_lent = batch.len() > 1 && self.wanted != Backend::Pool;
        match is_lent.then(|| self.lending.lend()).flatten() {
            Some(mut lent) => lent.run(&self.core, batch),
            None => {
                for Request { offset, op, done } in batch {
                    finish(done, self.core.perform(offset, op));
                }
            }
        }
    }

    fn submit_own(&self, request: Request) {
        // A thread that has a ring can have one.
        if self.wanted == Backend::Pool {
            return self.submit(vec![request]);
        }
        if let Err(request) = thread_ring::submit(&self.core, request) {
            self.submit(vec![request]);
        }
    }

    fn release(&self) {
        self.core.gate.shut();
        // As when it is dropped.
        let _ = self.core.file.unlock();
    }

    fn backend(&self) -> String {
        let access = &self.core.access;
        match self.queue() {
            Queue::Ring(ring) => format!("io_uring ({}), {access}", ring.mode()),
            Queue::Pool { why, .. } => format!("pread pool ({why}), {access}"),
            Queue::Caller { why } => format!("no threads ({why}), {access}"),
        }
    }
}

impl fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileDevice")
            .field("path", &self.core.path)
            .field("capacity", &self.core.capacity)
            .field("block_size", &self.core.block_size)
            .field("backend", &self.backend())
            .finish()
    }
}

/// Whether the page cache stands between us and the medium.
pub(crate) enum Access {
    Direct,
    /// Through the page cache, and why.
    Buffered(&'static str),
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Direct => f.write_str("O_DIRECT"),
            Self::Buffered(why) => write!(f, "buffered ({why})"),
        }
    }
}

/// The open file and what is known of it; shared with whatever carries out the requests.
pub(crate) struct FileCore {
    pub(crate) file: File,
    pub(crate) path: PathBuf,
    pub(crate) capacity: u64,
    pub(crate) block_size: usize,
    /// What the medium demands of direct I/O, or less than a block if it demands nothing.
    pub(crate) read_unit: usize,
    /// What direct I/O asks of addresses in memory; 1 when buffered.
    pub(crate) memory_align: usize,
    pub(crate) access: Access,
    pub(crate) read_only: bool,
    pub(crate) is_block_device: bool,
    pub(crate) before: Before,
    pub(crate) gate: Arc<Gate>,
    /// What the first failed sync said.
    pub(crate) sync_failure: OnceLock<String>,
}

impl FileCore {
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }

    /// Refuses what must not reach the file, before any byte moves.
    pub(crate) fn check_read(&self, offset: u64, len: usize) -> io::Result<()> {
        check_request(self.capacity, self.read_unit, offset, len as u64).map_err(|error| self.error("read", error))?;
        if self.gate.is_shut() { Err(self.released("read")) } else { Ok(()) }
    }

    /// As [`FileCore::check_read`], for a write that begins now, and is under way as long as what this returns.
    pub(crate) fn begin_write(&self, offset: u64, len: usize) -> io::Result<Passage> {
        check_request(self.capacity, self.block_size, offset, len as u64)
            .map_err(|error| self.error("write", error))?;
        if self.read_only {
            let error = io::Error::new(io::ErrorKind::PermissionDenied, "opened read-only");
            return Err(self.error("write", error));
        }
        self.check_sound()?;
        self.gate.pass().ok_or_else(|| self.released("write"))
    }

    fn released(&self, action: &'static str) -> io::Error {
        self.error(action, io::Error::new(io::ErrorKind::NotConnected, "closed, and given back to other processes"))
    }

    /// Refuses once a sync has failed.
    pub(crate) fn check_sound(&self) -> io::Result<()> {
        match self.sync_failure.get() {
            None if self.gate.is_shut() => Err(self.released("sync")),
            None => Ok(()),
            Some(what) => Err(self
                .error("write or sync", io::Error::other(format!("refused because an earlier sync failed: {what}")))),
        }
    }

    /// Remembers the failure of a sync; passes the outcome on with the file's name.
    pub(crate) fn sync_outcome(&self, outcome: io::Result<()>) -> io::Result<()> {
        outcome.map_err(|error| {
            // Only the first failure is kept: the later ones follow from it.
            let _ = self.sync_failure.set(error.to_string());
            self.error("sync", error)
        })
    }

    /// Whether direct I/O may use this memory.
    pub(crate) fn is_aligned(&self, memory: &[u8]) -> bool {
        (memory.as_ptr() as usize).is_multiple_of(self.memory_align)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.check_read(offset, buf.len())?;
        if self.is_aligned(buf) {
            return self.read_aligned(offset, buf);
        }
        let mut bounce = AlignedBuf::zeroed(buf.len());
        self.read_aligned(offset, &mut bounce)?;
        buf.copy_from_slice(&bounce);
        Ok(())
    }

    fn read_aligned(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.read_at(&mut buf[done..], at) {
                Ok(count) => match self.progress(count, buf.len() - done) {
                    0 => return Err(self.ended("read", at)),
                    count => done += count,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error_at("read", at, error)),
            }
        }
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let _under_way = self.begin_write(offset, buf.len())?;
        if self.is_aligned(buf) {
            return self.write_aligned(offset, buf);
        }
        self.write_aligned(offset, &AlignedBuf::copy_from(buf))
    }

    /// Also used while a new file is being written full, before it has its final checks.
    pub(crate) fn write_aligned(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        let mut done = 0;
        while done < buf.len() {
            let at = offset + done as u64;
            match self.file.write_at(&buf[done..], at) {
                Ok(count) => match self.progress(count, buf.len() - done) {
                    0 => return Err(self.ended("write", at)),
                    count => done += count,
                },
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(self.error_at("write", at, error)),
            }
        }
        Ok(())
    }

    /// How far a transfer of `count` out of `wanted` bytes has got: whole units, because direct I/O
    /// cannot go on from the middle of one.
    pub(crate) fn progress(&self, count: usize, wanted: usize) -> usize {
        if count >= wanted { wanted } else { count - count % self.read_unit }
    }

    fn sync(&self) -> io::Result<()> {
        self.check_sound()?;
        if self.read_only {
            return Ok(());
        }
        self.sync_outcome(self.file.sync_data())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_request(self.capacity, self.block_size, offset, len).map_err(|error| self.error("discard", error))?;
        let _under_way = self.begin_write(offset, len as usize)?;
        if !self.is_block_device || len == 0 {
            return Ok(());
        }
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(&self.file, flags, offset, len) {
            // A hint that the device does not take is no error.
            Ok(()) | Err(rustix::io::Errno::OPNOTSUPP) => Ok(()),
            Err(error) => Err(self.error_at("discard", offset, error.into())),
        }
    }

    /// The same error, saying in which file and while doing what.
    pub(crate) fn error(&self, action: &'static str, source: io::Error) -> io::Error {
        named(&self.path, action, None, source)
    }

    /// As [`FileCore::error`], with the offset.
    pub(crate) fn error_at(&self, action: &'static str, at: u64, source: io::Error) -> io::Error {
        named(&self.path, action, Some(at), source)
    }

    /// The file ended, or took no more bytes, inside its capacity: someone else shortened it.
    pub(crate) fn ended(&self, action: &'static str, at: u64) -> io::Error {
        let kind = io::ErrorKind::UnexpectedEof;
        self.error_at(action, at, io::Error::new(kind, "the file ends before its capacity"))
    }

    /// Bytes at an address that direct I/O accepts; copies only if they are not there already.
    pub(crate) fn aligned(&self, bytes: Bytes) -> Bytes {
        if self.is_aligned(&bytes) { bytes } else { AlignedBuf::copy_from(&bytes).into_bytes() }
    }
}

impl Drop for FileCore {
    fn drop(&mut self) {
        // Closing would do it too, but a ring that is being torn down may keep the file open for a moment
        // longer, and whoever drops a device may open it again at once.
        let _ = self.file.unlock();
    }
}

impl Perform for FileCore {
    fn perform(&self, offset: u64, op: Op) -> io::Result<AlignedBuf> {
        op.carry_out(|buf| self.read(offset, buf), |bytes| self.write(offset, bytes), || self.sync())
    }
}

/// An error of the system with the file's name; the kind is that of the source.
pub(crate) fn named(path: &Path, action: &'static str, at: Option<u64>, source: io::Error) -> io::Error {
    io::Error::new(source.kind(), FileError { path: path.to_owned(), action, at, source })
}

#[derive(Debug)]
struct FileError {
    path: PathBuf,
    action: &'static str,
    at: Option<u64>,
    source: io::Error,
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path.display(), self.action)?;
        if let Some(at) = self.at {
            write!(f, " at {at}")?;
        }
        write!(f, ": {}", self.source)
    }
}

impl Error for FileError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_thread_is_started_before_somebody_submits() {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions { capacity: Some(64 << 10), create: true, ..OpenOptions::default() };
        let device = FileDevice::open(directory.path().join("store"), options).unwrap();
        device.write(0, &[1; 4096]).unwrap();
        let writes = [4096, 16384].map(|at| (at, AlignedBuf::copy_from(&[2; 4096]).into_bytes()));
        crate::write_all(&device, writes.to_vec()).unwrap();
        device.sync().unwrap();
        let reads = [0, 4096, 16384].map(|at| (at, AlignedBuf::zeroed(4096)));
        let read = crate::read_all(&device, reads.into_iter().collect());
        assert!(device.queue.get().is_none(), "who waits asks by itself");
        assert_eq!(read.into_iter().map(|buf| buf.unwrap()[0]).collect::<Vec<_>>(), [1, 2, 2]);
        let (tell, told) = std::sync::mpsc::channel();
        let done = Box::new(move |outcome: io::Result<AlignedBuf>| tell.send(outcome.unwrap()[0]).unwrap());
        device.submit(vec![Request { offset: 4096, op: Op::Read(AlignedBuf::zeroed(4096)), done }]);
        assert_eq!(told.recv().unwrap(), 2);
        assert!(device.queue.get().is_some());
    }

    #[test]
    fn where_neither_ring_nor_thread_is_to_be_had_whoever_submits_does_it() {
        let directory = tempfile::tempdir().unwrap();
        let options = OpenOptions { capacity: Some(8192), create: true, ..OpenOptions::default() };
        let device = FileDevice::open(directory.path().join("store"), options).unwrap();
        assert!(device.queue.set(Queue::Caller { why: "no more threads".to_owned() }).is_ok());
        assert!(device.backend().contains("no more threads"), "{}", device.backend());
        device.write(4096, &[3; 4096]).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let done = Box::new(move |outcome: io::Result<AlignedBuf>| tell.send(outcome.unwrap()[0]).unwrap());
        device.submit(vec![Request { offset: 4096, op: Op::Read(AlignedBuf::zeroed(4096)), done }]);
        assert_eq!(told.try_recv().unwrap(), 3);
    }

    #[test]
    fn after_a_failed_sync_nothing_more_is_written_through_any_door() {
        for backend in [Backend::Auto, Backend::Pool] {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("store");
            let options = OpenOptions { capacity: Some(8192), create: true, backend, ..OpenOptions::default() };
            let device = FileDevice::open(&path, options).unwrap();
            device.write(0, &[1; 4096]).unwrap();
            let failed = device.core.sync_outcome(Err(io::Error::other("the medium is gone"))).unwrap_err();
            assert!(failed.to_string().contains("medium"), "{failed}");
            let (tell, told) = std::sync::mpsc::channel();
            for op in [Op::Write(AlignedBuf::zeroed(4096).into_bytes()), Op::Sync] {
                let tell = tell.clone();
                let done = Box::new(move |outcome: io::Result<AlignedBuf>| tell.send(outcome.map(drop)).unwrap());
                device.submit(vec![Request { offset: 0, op, done }]);
            }
            let submitted = [told.recv().unwrap(), told.recv().unwrap()];
            for outcome in submitted.into_iter().chain([device.write(0, &[2; 4096]), device.sync()]) {
                let error = outcome.unwrap_err().to_string();
                assert!(error.contains("earlier sync failed") && error.contains("medium"), "{error}");
                assert!(error.contains(&path.display().to_string()), "{error}");
            }
            let mut buf = [0; 4096];
            device.read(0, &mut buf).unwrap();
            assert_eq!(buf, [1; 4096], "reading goes on");
        }
    }
}
