//! A device before whose every operation a test does something: notes it, waits, sleeps, panics, or changes what is to
//! be read.

use std::{io, sync::Arc};

use picaflor_device::{Device, Op, Request};

use crate::On;

/// What a [`HookedDevice`] is about to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Asked {
    /// A read, a write or a sync.
    pub on: On,
    /// First byte; 0 of a sync.
    pub offset: u64,
    /// Bytes; 0 of a sync.
    pub len: usize,
    /// The caller does not wait for it.
    pub is_submitted: bool,
}

/// A device with a hook, which runs on the thread that asks.
pub struct HookedDevice {
    inner: Arc<dyn Device>,
    before: Box<dyn Fn(Asked) + Send + Sync>,
}

impl HookedDevice {
    /// Hands on to `inner` what it is asked for, after `before` was told.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, before: impl Fn(Asked) + Send + Sync + 'static) -> Self {
        Self { inner, before: Box::new(before) }
    }

    fn tell(&self, on: On, offset: u64, len: usize) {
        (self.before)(Asked { on, offset, len, is_submitted: false });
    }
}

impl std::fmt::Debug for HookedDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("HookedDevice").field("inner", &self.inner.backend()).finish_non_exhaustive()
    }
}

impl Device for HookedDevice {
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
        self.tell(On::Read, offset, buf.len());
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.tell(On::Write, offset, buf.len());
        self.inner.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.tell(On::Sync, 0, 0);
        self.inner.sync()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn submit(&self, batch: Vec<Request>) {
        for Request { offset, op, .. } in &batch {
            let (on, offset, len) = match op {
                Op::Read(buf) => (On::Read, *offset, buf.len()),
                Op::Write(bytes) => (On::Write, *offset, bytes.len()),
                Op::Sync => (On::Sync, 0, 0),
            };
            (self.before)(Asked { on, offset, len, is_submitted: true });
        }
        self.inner.submit(batch);
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
