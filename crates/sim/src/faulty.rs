//! A device that fails as real ones do, on demand and repeatably.
//!
//! Invariants:
//! - an oracle can always ask for the truth ([`FaultyDevice::pristine`]), and a lie is never mistaken for it;
//! - a write is volatile until a sync succeeds: at a crash it survives wholly, in part (some sectors) or not
//!   at all; a synced write always survives (but one that was acknowledged and lost was never there);
//! - the same seed, rules and operations on one thread give the same bytes and the same errors;
//! - a crash is total: until the device is revived every call fails.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;

use crate::fault::{Armed, Crashed, Fault, On, Rule};
use crate::medium::{SECTOR, State, Survivors, read_truth};
use picaflor_device::{AlignedBuf, Clock, Device, Op, Perform, Request, check_request, submit_inline};

/// Faults and crashes over any device. Clones share everything. Submitted requests complete inline.
#[derive(Clone)]
pub struct FaultyDevice {
    shared: Arc<Shared>,
}

struct Shared {
    inner: Arc<dyn Device>,
    clock: Clock,
    state: Mutex<State>,
}

impl FaultyDevice {
    /// Faultless until rules are added. Delays pass on a virtual clock of its own.
    ///
    /// # Panics
    /// If the blocks of `inner` are not multiples of 512 bytes.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, seed: u64) -> Self {
        Self::with_clock(inner, seed, Clock::virtual_at(0))
    }

    /// As [`FaultyDevice::new`]; delays pass on `clock`.
    ///
    /// # Panics
    /// As [`FaultyDevice::new`].
    #[must_use]
    pub fn with_clock(inner: Arc<dyn Device>, seed: u64, clock: Clock) -> Self {
        let block = inner.block_size();
        assert!(block.is_multiple_of(SECTOR), "blocks of {block} bytes are not made of sectors");
        let state = State::new(seed);
        Self { shared: Arc::new(Shared { inner, clock, state: Mutex::new(state) }) }
    }

    /// Adds a rule; it counts operations from now on.
    pub fn add(&self, rule: Rule) {
        let mut state = self.shared.state.lock();
        let armed = Armed::new(rule, state.seed, state.rules.len() as u64);
        state.rules.push(armed);
    }

    /// No new faults from now on. Those on the medium stay; see [`FaultyDevice::heal`].
    pub fn clear_rules(&self) {
        self.shared.state.lock().rules.clear();
    }

    /// How often the present rules have injected this fault.
    #[must_use]
    pub fn injected(&self, fault: Fault) -> u64 {
        let state = self.shared.state.lock();
        state.rules.iter().filter(|armed| armed.fault() == fault).map(|armed| armed.injected).sum()
    }

    /// The power fails now. Every call fails with [`Crashed`] until [`FaultyDevice::revive`].
    ///
    /// # Errors
    /// Any error of the inner device.
    pub fn crash(&self) -> io::Result<Survivors> {
        self.shared.state.lock().crash(self.shared.inner.as_ref())
    }

    /// The power of all of these fails at the same moment, as that of one machine: of a store that runs meanwhile, none
    /// sees another one fail and has time to note it.
    ///
    /// # Errors
    /// Any error of the inner devices.
    pub fn crash_all(devices: &[Arc<Self>]) -> io::Result<()> {
        let mut states: Vec<_> = devices.iter().map(|device| device.shared.state.lock()).collect();
        devices.iter().zip(&mut states).try_for_each(|(device, state)| state.crash(&*device.shared.inner).map(drop))
    }

    /// Whether the device has crashed and was not revived.
    #[must_use]
    pub fn is_crashed(&self) -> bool {
        self.shared.state.lock().crashed
    }

    /// Power is back: what survived can be read. Crashes first if that has not happened yet.
    ///
    /// # Errors
    /// Any error of the inner device.
    pub fn revive(&self) -> io::Result<()> {
        let mut state = self.shared.state.lock();
        if !state.crashed {
            state.crash(self.shared.inner.as_ref())?;
        }
        state.crashed = false;
        Ok(())
    }

    /// The truth: what a faultless device would show here, also while crashed.
    ///
    /// # Errors
    /// Any error of the inner device; `InvalidInput` if unaligned or out of range.
    pub fn pristine(&self, offset: u64, len: usize) -> io::Result<AlignedBuf> {
        let _state = self.shared.state.lock();
        read_truth(self.shared.inner.as_ref(), offset, len)
    }

    /// Whether the medium shows the truth here, transient faults aside.
    ///
    /// # Errors
    /// As [`FaultyDevice::pristine`].
    pub fn is_true(&self, offset: u64, len: usize) -> io::Result<bool> {
        let state = self.shared.state.lock();
        let truth = read_truth(self.shared.inner.as_ref(), offset, len)?;
        let mut shown = AlignedBuf::copy_from(&truth);
        state.show(offset, &mut shown);
        Ok(shown[..] == truth[..])
    }

    /// Puts `bytes` on the medium at any byte offset, as a lie; a later write there replaces them.
    ///
    /// # Errors
    /// Any error of the inner device; `InvalidInput` if out of range.
    pub fn damage(&self, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let inner = self.shared.inner.as_ref();
        check_request(inner.capacity(), 1, offset, bytes.len() as u64)?;
        self.shared.state.lock().damage(inner, offset, bytes)
    }

    /// The medium shows the truth again, everywhere.
    pub fn heal(&self) {
        self.shared.state.lock().heal();
    }
}

impl Shared {
    /// Refuses what a real device would, decides the faults, acts under the lock, waits outside it.
    fn operate(
        &self,
        on: On,
        offset: u64,
        len: usize,
        act: impl FnOnce(&mut State, &dyn Device, &[usize]) -> io::Result<()>,
    ) -> io::Result<()> {
        let inner = self.inner.as_ref();
        let unit = if on == On::Read { inner.read_unit() } else { inner.block_size() };
        check_request(inner.capacity(), unit, offset, len as u64)?;
        let mut state = self.state.lock();
        if state.crashed {
            return Err(Crashed.into());
        }
        let (fired, delay) = state.judge(on, &(offset..offset + len as u64));
        let outcome = act(&mut state, inner, &fired);
        drop(state);
        if !delay.is_zero() {
            self.clock.sleep(delay);
        }
        outcome
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.operate(On::Read, offset, buf.len(), |state, inner, fired| state.read(inner, offset, buf, fired))
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.operate(On::Write, offset, buf.len(), |state, inner, fired| state.write(inner, offset, buf, fired))
    }

    fn sync(&self) -> io::Result<()> {
        self.operate(On::Sync, 0, 0, |state, inner, fired| state.sync(inner, fired))
    }
}

impl Perform for Shared {
    fn perform(&self, offset: u64, op: Op) -> io::Result<AlignedBuf> {
        op.carry_out(|buf| self.read(offset, buf), |bytes| self.write(offset, bytes), || self.sync())
    }
}

impl Device for FaultyDevice {
    fn capacity(&self) -> u64 {
        self.shared.inner.capacity()
    }

    fn block_size(&self) -> usize {
        self.shared.inner.block_size()
    }

    fn read_unit(&self) -> usize {
        self.shared.inner.read_unit().max(SECTOR).min(self.block_size())
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.shared.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.shared.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.shared.sync()
    }

    /// Checked, then ignored: a device may do that, and the truth stays simple.
    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        check_request(self.capacity(), self.block_size(), offset, len)?;
        if self.is_crashed() { Err(Crashed.into()) } else { Ok(()) }
    }

    fn submit(&self, batch: Vec<Request>) {
        submit_inline(Arc::clone(&self.shared) as Arc<dyn Perform>, batch);
    }

    fn advance(&self) -> bool {
        self.shared.inner.advance()
    }

    fn backend(&self) -> String {
        format!("faulty over {}", self.shared.inner.backend())
    }
}
