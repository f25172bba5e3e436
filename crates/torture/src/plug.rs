//! Between a store and its device: a plug that can be pulled.
//!
//! A pulled plug is a killed process: nothing more reaches the device, and the device itself goes on. Dropping
//! the store behind it is then harmless. The plug also counts operations, keeps what was submitted in flight, and can
//! be told to lie for a canary.
//!
//! Invariants: once pulled, no byte of the device changes through this plug; every request that was submitted is told
//! of once, at the latest when the plug is thrown away.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use crate::{flight::Flights, report::tracing};
use picaflor_device::{AlignedBuf, Device, Op, Request};
use picaflor_sim::{Crashed, FaultyDevice};

/// How the plugs of one life behave.
#[derive(Clone, Copy, Default)]
pub(crate) struct Wiring {
    /// They say that they have synced and have not.
    pub(crate) sync_lies: bool,
    /// What is submitted stays in flight and lands in any order, as this seed has it.
    pub(crate) flights: Option<u64>,
}

/// One life's connection to a device.
pub(crate) struct Plug {
    device: FaultyDevice,
    /// All devices of the machine: when the power fails it fails for all of them.
    machine: Arc<[FaultyDevice]>,
    pulled: AtomicBool,
    operations: AtomicU64,
    changes: AtomicU64,
    sync_lies: bool,
    flights: Option<Flights>,
}

impl Plug {
    /// Connections to these devices.
    #[must_use]
    pub(crate) fn all(devices: &[FaultyDevice], wiring: Wiring) -> Vec<Arc<Self>> {
        let machine: Arc<[_]> = devices.into();
        let plug = |(number, device): (usize, &FaultyDevice)| Self {
            device: device.clone(),
            machine: Arc::clone(&machine),
            pulled: AtomicBool::new(false),
            operations: AtomicU64::new(0),
            changes: AtomicU64::new(0),
            sync_lies: wiring.sync_lies,
            flights: wiring.flights.map(|seed| Flights::new(seed, number as u64)),
        };
        devices.iter().enumerate().map(|device| Arc::new(plug(device))).collect()
    }

    /// From now on nothing gets through.
    pub(crate) fn pull(&self) {
        self.pulled.store(true, Relaxed);
    }

    /// Operations asked for so far.
    pub(crate) fn operations(&self) -> u64 {
        self.operations.load(Relaxed)
    }

    /// Of those, the ones that are for changing something: writes, syncs and discards.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(Relaxed)
    }

    /// Time passes for the device: some of what is in flight lands.
    pub(crate) fn let_some_land(&self) {
        let count = self.flights.as_ref().map_or(0, Flights::how_many_land);
        for _ in 0..count {
            self.advance();
        }
    }

    /// The end of the process, by whatever: some writes in flight still reach the device, others do not.
    pub(crate) fn let_go(&self) {
        let Some(flights) = self.flights.as_ref().filter(|_| !self.device.is_crashed()) else { return };
        flights.reaching().into_iter().for_each(|(offset, bytes)| drop(self.device.write(offset, &bytes)));
    }

    /// Tells of everything that is still in flight that it failed. Only when nothing acts on that any more.
    pub(crate) fn throw_away(&self) {
        self.flights.iter().for_each(Flights::fail_all);
    }

    fn pass(&self) -> io::Result<()> {
        self.operations.fetch_add(1, Relaxed);
        if self.pulled.load(Relaxed) {
            return Err(io::Error::other("the process was killed"));
        }
        let dark = self.machine.len() > 1 && self.machine.iter().any(FaultyDevice::is_crashed);
        if dark { Err(Crashed.into()) } else { Ok(()) }
    }

    fn pass_change(&self) -> io::Result<()> {
        self.changes.fetch_add(1, Relaxed);
        self.pass()
    }

    fn carry_out(&self, offset: u64, op: Op) -> io::Result<AlignedBuf> {
        op.carry_out(|buf| self.read(offset, buf), |bytes| self.write(offset, bytes), || self.sync())
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
        self.pass_change()?;
        told("write", offset, buf.len(), self.device.write(offset, buf))
    }

    fn sync(&self) -> io::Result<()> {
        self.pass_change()?;
        if self.sync_lies { Ok(()) } else { told("sync", 0, 0, self.device.sync()) }
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.pass_change()?;
        self.device.discard(offset, len)
    }

    fn submit(&self, batch: Vec<Request>) {
        if let Some(flights) = &self.flights {
            return flights.take_off(batch, |offset, op| self.carry_out(offset, op));
        }
        let mut through = Vec::new();
        for request in batch {
            let passed = if matches!(request.op, Op::Read(_)) { self.pass() } else { self.pass_change() };
            match (passed, &request.op) {
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

    fn run(&self, mut batch: Vec<Request>) {
        self.flights.iter().for_each(|flights| flights.shuffle(&mut batch));
        for Request { offset, op, done } in batch {
            done(self.carry_out(offset, op));
        }
    }

    fn advance(&self) -> bool {
        self.flights.as_ref().is_some_and(|flights| flights.land_one(|offset, op| self.carry_out(offset, op)))
    }

    fn backend(&self) -> String {
        self.device.backend()
    }
}
