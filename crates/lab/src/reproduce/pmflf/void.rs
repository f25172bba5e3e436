//! A device of any size that keeps nothing: for runs that ask where blocks lie, and not what they hold.

use std::io;

use picaflor_device::{AlignedBuf, Device, Op, Request};

pub(super) struct Void(pub(super) u64);

impl Device for Void {
    fn capacity(&self) -> u64 {
        self.0
    }

    fn block_size(&self) -> usize {
        512
    }

    fn read(&self, _offset: u64, buf: &mut [u8]) -> io::Result<()> {
        buf.fill(0);
        Ok(())
    }

    fn write(&self, _offset: u64, _buf: &[u8]) -> io::Result<()> {
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn submit(&self, batch: Vec<Request>) {
        for request in batch {
            (request.done)(Ok(match request.op {
                Op::Read(buf) => AlignedBuf::zeroed(buf.len()),
                Op::Write(_) | Op::Sync => AlignedBuf::empty(),
            }));
        }
    }

    fn backend(&self) -> String {
        "void".into()
    }
}
