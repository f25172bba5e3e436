//! Between a store and its device: a plug that can be pulled.
//!
//! A pulled plug is a killed process: nothing more reaches the device, and the device itself goes on. Dropping
//! the store behind it is then harmless. The plug also counts operations, and can be told to lie for a canary.
//!
//! Invariant: once pulled, no byte of the device changes through this plug.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::report::tracing;
use picaflor_device::{AlignedBuf, Crashed, Device, FaultyDevice, Op, Request};

/// One life's connection to a device.
pub(crate) struct Plug {
    device: FaultyDevice,
    /// All devices of the machine: when the power fails it fails for all of them.
    machine: Arc<[FaultyDevice]>,
    pulled: AtomicBool,
    operations: AtomicU64,
    /// Says that it has synced and has not.
    sync_lies: bool,
}

impl Plug {
    /// Connections to these devices; with `sync_lies` their syncs do nothing.
    #[must_use]
    pub(crate) fn all(devices: &[FaultyDevice], sync_lies: bool) -> Vec<Arc<Self>> {
        let machine: Arc<[_]> = devices.into();
        let plug = |device: &FaultyDevice| Self {
            device: device.clone(),
            machine: Arc::clone(&machine),
            pulled: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            sync_lies,
        };
        devices.iter().map(|device| Arc::new(plug(device))).collect()
    }

    /// From now on nothing gets through.
    pub(crate) fn pull(&self) {
        self.pulled.store(true, Relaxed);
    }

    /// Operations asked for so far.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Relaxed)
    }

    fn pass(&self) -> io::Result<()> {
        self.operations.fetch_add(1, Relaxed);
        if self.pulled.load(Relaxed) {
            return Err(io::Error::other("the process was killed"));
        }
        let dark = self.machine.len() > 1 && self.machine.iter().any(FaultyDevice::is_crashed);
        if dark { Err(Crashed.into()) } else { Ok(()) }
    }
}

/// With tracing on, prints what was asked of the device and what it said.
fn told(what: &str, offset: u64, len: usize, answer: io::Result<()>) -> io::Result<()> {
    if tracing() {
        let error = answer.as_ref().err().map_or_else(String::new, ToString::to_string);
        println!("         {what} {len} at {offset} {error}");
    }
    answer
}

impl Device for Plug {
    fn capacity(&self) -> u64 {
        self.device.capacity()
    }

    fn block_size(&self) -> usize {
        self.device.block_size()
    }

    fn read_unit(&self) -> usize {
        self.device.read_unit()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.pass()?;
        told("read", offset, buf.len(), self.device.read(offset, buf))
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.pass()?;
        told("write", offset, buf.len(), self.device.write(offset, buf))
    }

    fn sync(&self) -> io::Result<()> {
        self.pass()?;
        if self.sync_lies { Ok(()) } else { told("sync", 0, 0, self.device.sync()) }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pass()?;
        self.device.discard(offset, len)
    }

    fn submit(&self, batch: Vec<Request>) {
        let mut through = Vec::new();
        for request in batch {
            match (self.pass(), &request.op) {
                (Err(error), _) => (request.done)(Err(error)),
                (Ok(()), Op::Sync) if self.sync_lies => (request.done)(Ok(AlignedBuf::empty())),
                (Ok(()), Op::Write(bytes)) => {
                    let _ = told("submit write", request.offset, bytes.len(), Ok(()));
                    through.push(request);
                }
                (Ok(()), _) => through.push(request),
            }
        }
        self.device.submit(through);
    }

    fn backend(&self) -> String {
        self.device.backend()
    }
}
