//! A simulated device on virtual time: a disk with an arm, or a volume with a budget.
//!
//! Invariants:
//! - the same profile, seed and requests at the same times give the same answers at the same times;
//! - the clock moves only here and where the caller moves it: a blocking call moves it to its completion, and what
//!   else falls due on the way is delivered at its own time;
//! - nothing is delivered twice, and nothing before its time; late only if the clock was moved past it elsewhere;
//! - no lock is held while a `done` runs, so it may submit again;
//! - bytes are read and written at the completion of a request.
//!
//! What drives it: a blocking call itself; else [`SimulatedDisk::next_event`] says when something happens next and
//! [`SimulatedDisk::run_until`] lets it happen. A thread that waits for a submitted request in another way calls
//! [`Device::advance`] meanwhile.

use std::{
    collections::{HashMap, HashSet},
    io,
    sync::Arc,
};

use bytes::Bytes;
use parking_lot::Mutex;
use picaflor_device::{AlignedBuf, Clock, Device, Done, Op, Request, check_request, finish};

use super::{
    budget::Budget,
    command::{Command, Kind, Times},
    contents::SparseBytes,
    drive::Drive,
    geometry::SECTOR,
    options::SimulatedOptions,
    profile::Profile,
};

/// A device of a [`Profile`] behind the [`Device`] seam. Clones share everything.
#[derive(Clone)]
pub struct SimulatedDisk {
    shared: Arc<Shared>,
}

struct Shared {
    name: String,
    clock: Clock,
    /// Bytes before the part that is used.
    base: u64,
    capacity: u64,
    block_size: usize,
    state: Mutex<State>,
}

struct State {
    model: Model,
    next_id: u64,
    waiting: HashMap<u64, Work>,
    /// Blocking calls that are done and have not noticed yet.
    done: HashSet<u64>,
    contents: SparseBytes,
}

enum Model {
    Drive(Box<Drive>),
    Budget(Box<Budget>),
}

/// What is to be done at a request's completion.
enum Work {
    /// A thread waits for it.
    Blocking,
    Read(u64, AlignedBuf, Done),
    Write(u64, Bytes, Done),
    Sync(Done),
    /// Only its time counts.
    Touch(Box<dyn FnOnce() + Send>),
}

impl Model {
    fn submit(&mut self, command: Command) {
        match self {
            Self::Drive(drive) => drive.submit(command),
            Self::Budget(budget) => budget.submit(&command),
        }
    }

    fn next_event(&mut self) -> Option<u64> {
        match self {
            Self::Drive(drive) => drive.next_event(),
            Self::Budget(budget) => budget.next_event(),
        }
    }

    fn pop(&mut self, to: u64) -> Option<(u64, u64)> {
        match self {
            Self::Drive(drive) => {
                drive.settle(to);
                drive.pop(to)
            }
            Self::Budget(budget) => budget.pop(to),
        }
    }
}

impl State {
    fn submit(&mut self, command: Command, work: Work) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.model.submit(Command { id, ..command });
        self.waiting.insert(id, work);
        id
    }

    /// Does what a completed request asks for; what is left is to tell its owner, without the lock.
    fn complete(&mut self, id: u64) -> Option<Box<dyn FnOnce() + Send>> {
        match self.waiting.remove(&id)? {
            Work::Blocking => {
                self.done.insert(id);
                None
            }
            Work::Read(offset, mut buf, done) => {
                self.contents.read(offset, &mut buf);
                Some(Box::new(move || finish(done, Ok(buf))))
            }
            Work::Write(offset, bytes, done) => {
                self.contents.write(offset, &bytes);
                Some(Box::new(move || finish(done, Ok(AlignedBuf::empty()))))
            }
            Work::Sync(done) => Some(Box::new(move || finish(done, Ok(AlignedBuf::empty())))),
            Work::Touch(done) => Some(done),
        }
    }
}

impl SimulatedDisk {
    /// A device of `profile` on `clock`, all zeros.
    ///
    /// # Errors
    /// `InvalidInput` if the clock is real, or the part or block size does not fit the device.
    pub fn new(profile: &Profile, clock: Clock, options: &SimulatedOptions) -> io::Result<Self> {
        let refused = |what: String| io::Error::new(io::ErrorKind::InvalidInput, format!("{}: {what}", profile.name));
        if !clock.is_virtual() {
            return Err(refused("a simulated device needs a virtual clock".to_owned()));
        }
        let block = options.block_size;
        if !block.is_power_of_two() || (block as u64) < SECTOR {
            return Err(refused(format!("block size {block} is not a power of two from 512 up")));
        }
        let (model, sectors) = match (&profile.disk, &profile.budget) {
            (Some(disk), _) => {
                let write_cache = options.write_cache.map_or(disk.cache.write_sectors, |bytes| bytes / SECTOR);
                let drive = Drive::new(disk, options.order.unwrap_or(disk.order), write_cache);
                let sectors = drive.arm.geometry.capacity;
                (Model::Drive(Box::new(drive)), sectors)
            }
            (None, Some(budget)) => (Model::Budget(Box::new(Budget::new(budget, options.seed))), budget.blocks),
            (None, None) => return Err(refused("the profile describes no device".to_owned())),
        };
        let whole = sectors * SECTOR / block as u64 * block as u64;
        let part = options.part.clone().unwrap_or(0..whole);
        let aligned = part.start.is_multiple_of(block as u64) && part.end.is_multiple_of(block as u64);
        if part.is_empty() || part.end > whole || !aligned {
            return Err(refused(format!("the part {part:?} is empty, unaligned, or beyond {whole} bytes")));
        }
        let state =
            State { model, next_id: 0, waiting: HashMap::new(), done: HashSet::new(), contents: SparseBytes::new() };
        let shared = Shared {
            name: profile.name.clone(),
            clock,
            base: part.start,
            capacity: part.end - part.start,
            block_size: block,
            state: Mutex::new(state),
        };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// The clock it moves.
    #[must_use]
    pub fn clock(&self) -> &Clock {
        &self.shared.clock
    }

    /// What was done so far, and what the time went into.
    #[must_use]
    pub fn times(&self) -> Times {
        match &self.shared.state.lock().model {
            Model::Drive(drive) => drive.times,
            Model::Budget(budget) => budget.times,
        }
    }

    /// Bytes of memory that the contents take.
    #[must_use]
    pub fn held_bytes(&self) -> u64 {
        self.shared.state.lock().contents.held()
    }

    /// When, by the clock, something happens next on the device if nothing is submitted before: a completion, or a
    /// step within the drive. `None`: nothing is outstanding.
    #[must_use]
    pub fn next_event(&self) -> Option<u64> {
        self.shared.state.lock().model.next_event()
    }

    /// Requests that were submitted and are not done.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.shared.state.lock().waiting.len()
    }

    /// Lets time pass until `nanos` by the clock: completions that fall due are delivered, each at its time.
    pub fn run_until(&self, nanos: u64) {
        loop {
            let next = self.shared.state.lock().model.next_event();
            let Some(next) = next.filter(|next| *next <= nanos) else { break };
            self.shared.clock.advance_to(next);
            self.deliver(next);
        }
        self.shared.clock.advance_to(nanos);
    }

    /// Delivers what is done by `nanos`.
    fn deliver(&self, nanos: u64) {
        loop {
            let mut state = self.shared.state.lock();
            let Some((_, id)) = state.model.pop(nanos) else { return };
            let told = state.complete(id);
            drop(state);
            if let Some(told) = told {
                told();
            }
        }
    }

    /// As a read or write of `len` bytes, without the bytes: `done` is called when it would be done. For models whose
    /// contents are elsewhere.
    ///
    /// # Errors
    /// `InvalidInput` for an unaligned or out-of-range request.
    pub fn touch(&self, offset: u64, len: u64, write: bool, done: impl FnOnce() + Send + 'static) -> io::Result<()> {
        self.shared.check(offset, len)?;
        let command = self.shared.command(offset, len, if write { Kind::Write } else { Kind::Read });
        self.shared.state.lock().submit(command, Work::Touch(Box::new(done)));
        Ok(())
    }

    /// As [`SimulatedDisk::touch`], and waits for it.
    ///
    /// # Errors
    /// As [`SimulatedDisk::touch`].
    pub fn touch_and_wait(&self, offset: u64, len: u64, write: bool) -> io::Result<()> {
        self.shared.check(offset, len)?;
        self.wait_for(self.shared.command(offset, len, if write { Kind::Write } else { Kind::Read }));
        Ok(())
    }

    /// Submits a command and lets time pass until it is done.
    fn wait_for(&self, command: Command) {
        let id = self.shared.state.lock().submit(command, Work::Blocking);
        loop {
            let mut state = self.shared.state.lock();
            if state.done.remove(&id) {
                return;
            }
            let next = state.model.next_event();
            drop(state);
            // Another thread may have delivered it since: then there is nothing left to happen.
            if let Some(next) = next {
                self.shared.clock.advance_to(next);
                self.deliver(next);
            }
        }
    }
}

impl Shared {
    fn check(&self, offset: u64, len: u64) -> io::Result<()> {
        check_request(self.capacity, self.block_size, offset, len)
    }

    fn command(&self, offset: u64, len: u64, kind: Kind) -> Command {
        let lba = (self.base + offset) / SECTOR;
        Command { id: 0, lba, sectors: len / SECTOR, kind, arrived: self.clock.now_nanos() }
    }
}

impl Device for SimulatedDisk {
    fn capacity(&self) -> u64 {
        self.shared.capacity
    }

    fn block_size(&self) -> usize {
        self.shared.block_size
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.shared.check(offset, buf.len() as u64)?;
        if !buf.is_empty() {
            self.wait_for(self.shared.command(offset, buf.len() as u64, Kind::Read));
            self.shared.state.lock().contents.read(offset, buf);
        }
        Ok(())
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.shared.check(offset, buf.len() as u64)?;
        if !buf.is_empty() {
            self.wait_for(self.shared.command(offset, buf.len() as u64, Kind::Write));
            self.shared.state.lock().contents.write(offset, buf);
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        self.wait_for(self.shared.command(0, 0, Kind::Sync));
        Ok(())
    }

    /// Takes no time; a discarded range reads as zeros.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.shared.check(offset, len)?;
        self.shared.state.lock().contents.clear(offset, len);
        Ok(())
    }

    fn submit(&self, batch: Vec<Request>) {
        for Request { offset, op, done } in batch {
            let (len, kind) = match &op {
                Op::Read(buf) => (buf.len(), Kind::Read),
                Op::Write(bytes) => (bytes.len(), Kind::Write),
                Op::Sync => (0, Kind::Sync),
            };
            let offset = if kind == Kind::Sync { 0 } else { offset };
            if let Err(error) = self.shared.check(offset, len as u64) {
                finish(done, Err(error));
                continue;
            }
            let command = self.shared.command(offset, len as u64, kind);
            let work = match op {
                Op::Read(buf) => Work::Read(offset, buf, done),
                Op::Write(bytes) => Work::Write(offset, bytes, done),
                Op::Sync => Work::Sync(done),
            };
            self.shared.state.lock().submit(command, work);
        }
    }

    fn advance(&self) -> bool {
        match self.next_event() {
            Some(next) => {
                self.run_until(next);
                true
            }
            None => false,
        }
    }

    fn backend(&self) -> String {
        format!("simulated {}", self.shared.name)
    }
}
