//! Exact counts of what passes the seam, for tests and reports that ask how many device operations a put
//! or a get costs. Works around any device, the faulty one included.

use std::io;
use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::{Device, Op, Request};

/// Operations asked of a device, whether they succeeded or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Reads, blocking and submitted.
    pub reads: u64,
    /// Bytes of those reads.
    pub read_bytes: u64,
    /// Writes, blocking and submitted.
    pub writes: u64,
    /// Bytes of those writes.
    pub write_bytes: u64,
    /// Syncs, blocking and submitted.
    pub syncs: u64,
    /// Discards.
    pub discards: u64,
    /// Calls of [`Device::submit`] and [`Device::run`], however many requests each carried.
    pub batches: u64,
}

impl Sub for Counts {
    type Output = Self;

    /// What happened between an earlier (`before`) and this reading of the same device.
    fn sub(self, before: Self) -> Self {
        Self {
            reads: self.reads - before.reads,
            read_bytes: self.read_bytes - before.read_bytes,
            writes: self.writes - before.writes,
            write_bytes: self.write_bytes - before.write_bytes,
            syncs: self.syncs - before.syncs,
            discards: self.discards - before.discards,
            batches: self.batches - before.batches,
        }
    }
}

/// A device that counts. Clones share the counts.
#[derive(Clone)]
pub struct CountedDevice {
    inner: Arc<dyn Device>,
    counters: Arc<Counters>,
}

#[derive(Default)]
struct Counters {
    reads: AtomicU64,
    read_bytes: AtomicU64,
    writes: AtomicU64,
    write_bytes: AtomicU64,
    syncs: AtomicU64,
    discards: AtomicU64,
    batches: AtomicU64,
}

impl Counters {
    fn read(&self, len: usize) {
        self.reads.fetch_add(1, Ordering::Relaxed);
        self.read_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    fn write(&self, len: usize) {
        self.writes.fetch_add(1, Ordering::Relaxed);
        self.write_bytes.fetch_add(len as u64, Ordering::Relaxed);
    }

    fn sync(&self) {
        self.syncs.fetch_add(1, Ordering::Relaxed);
    }

    fn request(&self, request: &Request) {
        match &request.op {
            Op::Read(buf) => self.read(buf.len()),
            Op::Write(bytes) => self.write(bytes.len()),
            Op::Sync => self.sync(),
        }
    }
}

impl CountedDevice {
    /// Counts what passes to `inner`, from zero.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>) -> Self {
        Self { inner, counters: Arc::default() }
    }

    /// The counts so far. Exact when no call is under way.
    #[must_use]
    pub fn counts(&self) -> Counts {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Counts {
            reads: get(&self.counters.reads),
            read_bytes: get(&self.counters.read_bytes),
            writes: get(&self.counters.writes),
            write_bytes: get(&self.counters.write_bytes),
            syncs: get(&self.counters.syncs),
            discards: get(&self.counters.discards),
            batches: get(&self.counters.batches),
        }
    }
}

impl Device for CountedDevice {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> usize {
        self.inner.block_size()
    }

    fn read_unit(&self) -> usize {
        self.inner.read_unit()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.counters.read(buf.len());
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.counters.write(buf.len());
        self.inner.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.counters.sync();
        self.inner.sync()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.counters.discards.fetch_add(1, Ordering::Relaxed);
        self.inner.discard(offset, len)
    }

    fn run(&self, batch: Vec<Request>) {
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        batch.iter().for_each(|request| self.counters.request(request));
        self.inner.run(batch);
    }

    fn submit(&self, batch: Vec<Request>) {
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        batch.iter().for_each(|request| self.counters.request(request));
        self.inner.submit(batch);
    }

    fn submit_own(&self, request: Request) {
        self.counters.batches.fetch_add(1, Ordering::Relaxed);
        self.counters.request(&request);
        self.inner.submit_own(request);
    }

    fn advance(&self) -> bool {
        self.inner.advance()
    }

    fn release(&self) {
        self.inner.release();
    }

    fn backend(&self) -> String {
        self.inner.backend()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{AlignedBuf, MemoryDevice};

    #[test]
    fn counts_both_doors_exactly() {
        let device = CountedDevice::new(Arc::new(MemoryDevice::new(1 << 20)));
        device.write(0, &[1; 8192]).unwrap();
        let before = device.counts();
        let request = |op| Request { offset: 0, op, done: Box::new(|_| ()) };
        device.submit(vec![
            request(Op::Write(AlignedBuf::zeroed(4096).into_bytes())),
            request(Op::Read(AlignedBuf::zeroed(12_288))),
            request(Op::Sync),
        ]);
        device.read(0, &mut [0; 4096]).unwrap();
        device.sync().unwrap();
        device.discard(0, 4096).unwrap();
        let expected =
            Counts { reads: 2, read_bytes: 16_384, writes: 1, write_bytes: 4096, syncs: 2, discards: 1, batches: 1 };
        assert_eq!(device.counts() - before, expected);
        assert_eq!((before.writes, before.write_bytes), (1, 8192));
    }
}
