//! A part of a device as a device of its own; and the same for an opening that may not write: what it writes stays in
//! memory, laid over what the device holds, and is gone with them.
//!
//! Invariants: nothing outside the part is reached; through a [`Section::read_only`] no byte of the device changes.

use std::{collections::BTreeMap, io, ops::Range, sync::Arc};

use parking_lot::RwLock;

use crate::{
    AlignedBuf, Device, Op, Request, check_request,
    inline::{self, Perform},
};

/// A part of a device; see the module.
#[derive(Clone)]
pub struct Section {
    inner: Arc<dyn Device>,
    start: u64,
    len: u64,
    /// Blocks that were written, by their first byte, where the device itself is not to be.
    over: Option<Arc<RwLock<BTreeMap<u64, AlignedBuf>>>>,
}

impl Section {
    /// The bytes `part` of a device, in whole blocks.
    ///
    /// # Errors
    /// `InvalidInput` if it does not begin at a block or reaches behind the device's end.
    pub fn new(inner: Arc<dyn Device>, part: Range<u64>) -> io::Result<Self> {
        let block = inner.block_size() as u64;
        let len = part.end.saturating_sub(part.start) / block * block;
        check_request(inner.capacity(), inner.block_size(), part.start, len)?;
        Ok(Self { inner, start: part.start, len, over: None })
    }

    /// The same for reading: writes succeed and are seen through this section and its clones only, in memory of their
    /// own length.
    #[must_use]
    pub fn read_only(self) -> Self {
        Self { over: Some(Arc::default()), ..self }
    }

    fn lay_over(&self, offset: u64, buf: &mut [u8]) {
        let Some(over) = &self.over else { return };
        let block = self.block_size() as u64;
        let end = offset + buf.len() as u64;
        for (&at, bytes) in over.read().range(offset.saturating_sub(block - 1)..end) {
            let (from, to) = (at.max(offset), (at + block).min(end));
            buf[(from - offset) as usize..(to - offset) as usize]
                .copy_from_slice(&bytes[(from - at) as usize..(to - at) as usize]);
        }
    }
}

impl Device for Section {
    fn capacity(&self) -> u64 {
        self.len
    }

    fn block_size(&self) -> usize {
        self.inner.block_size()
    }

    fn read_unit(&self) -> usize {
        self.inner.read_unit()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        check_request(self.len, self.read_unit(), offset, buf.len() as u64)?;
        self.inner.read(self.start + offset, buf)?;
        self.lay_over(offset, buf);
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        check_request(self.len, self.block_size(), offset, buf.len() as u64)?;
        let Some(over) = &self.over else { return self.inner.write(self.start + offset, buf) };
        let mut over = over.write();
        for (at, block) in (offset..).step_by(self.block_size()).zip(buf.chunks_exact(self.block_size())) {
            let mut bytes = AlignedBuf::zeroed(block.len());
            bytes.copy_from_slice(block);
            over.insert(at, bytes);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        if self.over.is_some() { Ok(()) } else { self.inner.sync() }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_request(self.len, self.block_size(), offset, len)?;
        if self.over.is_some() { Ok(()) } else { self.inner.discard(self.start + offset, len) }
    }

    fn submit(&self, batch: Vec<Request>) {
        match &self.over {
            Some(_) => inline::submit_inline(Arc::new(self.clone()), batch),
            None => self.inner.submit(self.inside(batch)),
        }
    }

    fn run(&self, batch: Vec<Request>) {
        match &self.over {
            Some(_) => batch.into_iter().for_each(|it| (it.done)(self.perform(it.offset, it.op))),
            None => self.inner.run(self.inside(batch)),
        }
    }

    fn advance(&self) -> bool {
        self.inner.advance()
    }

    fn backend(&self) -> String {
        self.inner.backend()
    }
}

impl Section {
    /// The requests as the device knows them; those that reach outside are answered.
    fn inside(&self, batch: Vec<Request>) -> Vec<Request> {
        let mut inside = Vec::with_capacity(batch.len());
        for request in batch {
            let asked = match &request.op {
                Op::Read(buf) => check_request(self.len, self.read_unit(), request.offset, buf.len() as u64),
                Op::Write(bytes) => check_request(self.len, self.block_size(), request.offset, bytes.len() as u64),
                Op::Sync => Ok(()),
            };
            match asked {
                Ok(()) => inside.push(Request { offset: self.start + request.offset, ..request }),
                Err(error) => (request.done)(Err(error)),
            }
        }
        inside
    }
}

impl Perform for Section {
    fn perform(&self, offset: u64, op: Op) -> io::Result<AlignedBuf> {
        op.carry_out(|buf| self.read(offset, buf), |bytes| self.write(offset, bytes), || self.sync())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    fn bytes(device: &dyn Device, at: u64, len: usize) -> Vec<u8> {
        let mut buf = vec![0; len];
        device.read(at, &mut buf).unwrap();
        buf
    }

    #[test]
    fn a_part_has_ends() {
        let whole: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_size(64 << 10, 512));
        let part = Section::new(Arc::clone(&whole), 4096..10_000).unwrap();
        assert_eq!(part.capacity(), 5632, "whole blocks");
        part.write(512, &[7; 1024]).unwrap();
        assert_eq!(bytes(&*whole, 4096 + 512, 1024), [7; 1024]);
        assert!(part.read(5632, &mut [0; 512]).is_err() && part.write(5632, &[0; 512]).is_err());
        let (tell, told) = std::sync::mpsc::channel();
        for (offset, len) in [(512, 512), (5120, 1024)] {
            let tell = tell.clone();
            let done = Box::new(move |read: io::Result<AlignedBuf>| tell.send(read.is_ok()).unwrap());
            part.submit(vec![Request { offset, op: Op::Read(AlignedBuf::zeroed(len)), done }]);
        }
        assert_eq!((told.recv(), told.recv()), (Ok(true), Ok(false)));
        assert!(Section::new(whole, 0..(64 << 10) + 512).is_err());
    }

    #[test]
    fn who_may_not_write_sees_what_it_wrote_and_nobody_else_does() {
        let whole: Arc<dyn Device> = Arc::new(MemoryDevice::with_block_size(64 << 10, 512));
        whole.write(0, &[1; 8192]).unwrap();
        let part = Section::new(Arc::clone(&whole), 4096..16_384).unwrap().read_only();
        part.write(512, &[2; 1024]).unwrap();
        part.write(1024, &[3; 512]).unwrap();
        part.sync().unwrap();
        let seen = bytes(&part, 0, 2048);
        assert!(seen[..512] == [1; 512] && seen[512..1024] == [2; 512]);
        assert!(seen[1024..1536] == [3; 512] && seen[1536..] == [1; 512]);
        assert_eq!(bytes(&part, 1024, 512), [3; 512]);
        assert_eq!(bytes(&*whole, 4096, 4096), [1; 4096], "not a byte of the device was changed");
    }
}
