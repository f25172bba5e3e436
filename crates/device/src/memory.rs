//! A device in memory: for tests, for caches that need no disk, and as the ground under the faulty wrapper.
//!
//! Invariants: bytes never written read as zeros and take no memory; a request is atomic with respect
//! to others only within one chunk, as on a disk it would be within one block; `sync` has nothing to do.

use std::io;
use std::sync::Arc;

use parking_lot::RwLock;

use crate::inline::{self, Perform};
use crate::{AlignedBuf, Device, Op, Request, check_request};

/// Memory is taken in pieces of this many bytes, when first written.
const CHUNK: usize = 256 * 1024;

/// Bytes in memory behind the [`Device`] seam. Clones share the bytes. Submitted requests complete inline.
#[derive(Clone)]
pub struct MemoryDevice {
    inner: Arc<Inner>,
}

struct Inner {
    capacity: u64,
    block_size: usize,
    chunks: Box<[Chunk]>,
}

impl MemoryDevice {
    /// `capacity` zero bytes in blocks of 4096.
    ///
    /// # Panics
    /// If `capacity` is not a multiple of 4096.
    #[must_use]
    pub fn new(capacity: u64) -> Self {
        Self::with_block_size(capacity, 4096)
    }

    /// `capacity` zero bytes in blocks of `block_size`.
    ///
    /// # Panics
    /// If `block_size` is not a power of two of at most 256 KiB, or `capacity` not a multiple of it.
    #[must_use]
    pub fn with_block_size(capacity: u64, block_size: usize) -> Self {
        assert!(block_size.is_power_of_two() && block_size <= CHUNK, "block size {block_size}");
        assert!(capacity.is_multiple_of(block_size as u64), "capacity {capacity}");
        let chunks = (0..capacity.div_ceil(CHUNK as u64)).map(|_| RwLock::new(None)).collect();
        Self { inner: Arc::new(Inner { capacity, block_size, chunks }) }
    }

    /// Bytes of memory held for contents.
    #[must_use]
    pub fn resident_bytes(&self) -> u64 {
        let held = self.inner.chunks.iter().filter(|chunk| chunk.read().is_some()).count();
        (held * CHUNK) as u64
    }
}

/// `None` until first written.
type Chunk = RwLock<Option<Box<[u8]>>>;

/// A part of a request that lies in one chunk: which chunk, and from where in it.
struct Piece {
    chunk: usize,
    start: usize,
    len: usize,
}

/// Cuts a range into pieces, in order.
fn pieces(mut offset: u64, mut len: u64) -> impl Iterator<Item = Piece> {
    std::iter::from_fn(move || {
        if len == 0 {
            return None;
        }
        let start = (offset % CHUNK as u64) as usize;
        let take = len.min((CHUNK - start) as u64);
        let piece = Piece { chunk: (offset / CHUNK as u64) as usize, start, len: take as usize };
        offset += take;
        len -= take;
        Some(piece)
    })
}

impl Inner {
    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        check_request(self.capacity, self.block_size, offset, len)
    }

    /// As of a disk of sectors of 512 bytes that is written in larger blocks.
    fn read_unit(&self) -> usize {
        self.block_size.min(512)
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_request(self.capacity, self.read_unit(), offset, buf.len() as u64)?;
        let mut rest = buf;
        for piece in pieces(offset, rest.len() as u64) {
            let (now, later) = rest.split_at_mut(piece.len);
            match self.chunks[piece.chunk].read().as_ref() {
                Some(bytes) => now.copy_from_slice(&bytes[piece.start..][..piece.len]),
                None => now.fill(0),
            }
            rest = later;
        }
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.check(offset, buf.len() as u64)?;
        let mut rest = buf;
        for piece in pieces(offset, rest.len() as u64) {
            let (now, later) = rest.split_at(piece.len);
            let mut chunk = self.chunks[piece.chunk].write();
            let bytes = chunk.get_or_insert_with(|| vec![0; CHUNK].into_boxed_slice());
            bytes[piece.start..][..piece.len].copy_from_slice(now);
            rest = later;
        }
        Ok(())
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.check(offset, len)?;
        for piece in pieces(offset, len) {
            let mut chunk = self.chunks[piece.chunk].write();
            if piece.len == CHUNK {
                *chunk = None;
            } else if let Some(bytes) = chunk.as_mut() {
                bytes[piece.start..][..piece.len].fill(0);
            }
        }
        Ok(())
    }
}

impl Perform for Inner {
    fn perform(&self, offset: u64, op: Op) -> io::Result<AlignedBuf> {
        op.carry_out(|buf| self.read(offset, buf), |bytes| self.write(offset, bytes), || Ok(()))
    }
}

impl Device for MemoryDevice {
    fn capacity(&self) -> u64 {
        self.inner.capacity
    }

    fn block_size(&self) -> usize {
        self.inner.block_size
    }

    fn read_unit(&self) -> usize {
        self.inner.read_unit()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.inner.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    /// Frees the memory of whole chunks; a discarded range reads as zeros.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn submit(&self, batch: Vec<Request>) {
        inline::submit_inline(Arc::clone(&self.inner) as Arc<dyn Perform>, batch);
    }

    fn backend(&self) -> String {
        "memory".to_owned()
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn reads_what_was_written_across_chunks_and_zeros_elsewhere() {
        let device = MemoryDevice::with_block_size(4 * CHUNK as u64, 512);
        let at = CHUNK as u64 - 512;
        device.write(at, &[9; 1024]).unwrap();
        let mut buf = vec![1; 2048];
        device.read(at - 512, &mut buf).unwrap();
        assert!(buf[..512].iter().all(|&b| b == 0));
        assert!(buf[512..1536].iter().all(|&b| b == 9));
        assert!(buf[1536..].iter().all(|&b| b == 0));
        assert_eq!(device.resident_bytes(), 2 * CHUNK as u64);
        device.discard(0, 4 * CHUNK as u64).unwrap();
        assert_eq!(device.resident_bytes(), 0);
        device.read(at, &mut buf).unwrap();
        assert!(buf.iter().all(|&b| b == 0));
    }

    #[test]
    fn refuses_what_is_unaligned_or_outside() {
        let device = MemoryDevice::new(8192);
        for (offset, len) in [(1, 4096), (0, 1), (8192, 4096), (4096, 8192), (u64::MAX - 4095, 4096)] {
            let kind = device.read(offset, &mut vec![0; len]).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::InvalidInput, "{offset}+{len}");
            let kind = device.write(offset, &vec![0; len]).unwrap_err().kind();
            assert_eq!(kind, io::ErrorKind::InvalidInput, "{offset}+{len}");
        }
        device.read(8192, &mut []).unwrap();
    }

    #[test]
    fn a_done_may_submit_again_without_growing_the_stack() {
        fn chain(device: MemoryDevice, left: u32, end: mpsc::Sender<()>) {
            let next = device.clone();
            let done = Box::new(move |outcome: io::Result<AlignedBuf>| {
                outcome.unwrap();
                if left == 0 { end.send(()).unwrap() } else { chain(next, left - 1, end) }
            });
            device.submit(vec![Request { offset: 0, op: Op::Read(AlignedBuf::zeroed(4096)), done }]);
        }
        let (end, ended) = mpsc::channel();
        chain(MemoryDevice::new(4096), 100_000, end);
        ended.try_recv().unwrap();
    }

    #[test]
    fn a_panic_in_a_done_leaves_the_thread_usable() {
        let device = MemoryDevice::new(4096);
        let bad = Request { offset: 0, op: Op::Sync, done: Box::new(|_| panic!("done")) };
        let caught = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| device.submit(vec![bad])));
        assert!(caught.is_err());
        let (tell, told) = mpsc::channel();
        let good = Request { offset: 0, op: Op::Sync, done: Box::new(move |_| tell.send(()).unwrap()) };
        device.submit(vec![good]);
        told.try_recv().unwrap();
    }
}
