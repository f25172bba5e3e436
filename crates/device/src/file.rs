//! A regular file or a raw block device behind the [`Device`] seam.
//!
//! Invariants:
//! - no byte outside `0..capacity` is touched but to reserve it, and nothing is written through a read-only device;
//! - after one failed sync every later write and sync fails: the kernel may already have dropped the
//!   dirty data and marked it clean, so a retried sync that succeeds would prove nothing;
//! - every error names the file;
//! - dropping the device completes everything that was submitted, but for what a [`crate::ThreadRing`] was given: that
//!   keeps the file open until the ring is turned or dropped.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use crate::file_core::FileCore;
use crate::inline::{self, Perform};
use crate::open::{self, OpenOptions, Preallocate};
use crate::pool::Pool;
use crate::thread_ring;
use crate::uring::{Lending, Ring};
use crate::{Backend, Device, Request, finish};

/// A regular file or raw block device; see [`OpenOptions`] for how it is opened.
///
/// Bytes in memory that are not aligned well enough for direct I/O are copied through an aligned
/// buffer; those of an [`AlignedBuf`](crate::AlignedBuf) never are.
pub struct FileDevice {
    core: Arc<FileCore>,
    wanted: Backend,
    preallocate: Preallocate,
    /// Started by the first request: blocking callers need no thread, and an opening does not wait until one runs.
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
    /// The thread that submits.
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
            // A caller that asks for one of them hears at once if it is not to be had.
            Backend::IoUring | Backend::Pool => {
                let queue = Queue::start(&core, wanted);
                OnceLock::from(queue.inspect_err(|_| core.before.restore(&core.path, &core.file))?)
            }
        };
        let preallocate = options.preallocate;
        Ok(Self { core, wanted, preallocate, queue, lending: Lending::default() })
    }

    fn queue(&self) -> &Queue {
        let start = || Queue::start(&self.core, self.wanted);
        self.queue.get_or_init(|| start().unwrap_or_else(|error| Queue::Caller { why: error.to_string() }))
    }

    /// Leaves the path as it was before this device made a file there; what was there already is not touched. For an
    /// opening that finds that there is to be no store after all. Nothing of it may be used afterwards.
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
        self.core.capacity()
    }

    fn grow(&self, capacity: u64) -> io::Result<()> {
        open::grow(&self.core, capacity, self.preallocate)
    }

    fn shrink(&self, capacity: u64) -> io::Result<()> {
        open::shrink(&self.core, capacity)
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
            .field("capacity", &self.core.capacity())
            .field("block_size", &self.core.block_size)
            .field("backend", &self.backend())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, Op};

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
        assert!(device.queue.get().is_none(), "a blocking caller asks by itself");
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
