//! An elevator: requests wait in the order of their places, and the device is given one at a time.
//!
//! For a disk with an arm and no queue of its own, or a queue that does not know how far the arm has to go (Ledlie
//! 2000, §4). A request, by a blocking call or in a batch, waits for the arm to come by.
//!
//! Invariants: at most one request is with the device; none is passed by for ever, for each request lies beyond the
//! one before it until the arm turns; no lock is held while a `done` runs. Syncs have no place and do not wait.

use std::{collections::BTreeMap, io, sync::Arc};

use parking_lot::{Condvar, Mutex, MutexGuard};

use picaflor_device::{Device, Op, Request};

/// Which of the waiting requests is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Elevator {
    /// None: all go to the device as they come.
    #[default]
    Absent,
    /// Upwards only: from the last back to the first.
    OneWay,
    /// Upwards and downwards in turn.
    TwoWay,
}

impl Elevator {
    /// What a preset's paper has before the device: Dámelo two ways, for which its groups are placed (Ledlie 2000, §3,
    /// §6); the others none.
    #[must_use]
    pub fn of_preset(name: &str) -> Self {
        if name == "damelo" { Self::TwoWay } else { Self::Absent }
    }

    /// The device behind this elevator, or as it is where there is none.
    #[must_use]
    pub fn before(self, device: Arc<dyn Device>) -> Arc<dyn Device> {
        if self == Self::Absent { device } else { Arc::new(ElevatorDevice::new(device, self)) }
    }
}

/// A device behind an elevator.
pub struct ElevatorDevice {
    inner: Arc<dyn Device>,
    shaft: Arc<Shaft>,
}

struct Shaft {
    way: Elevator,
    state: Mutex<State>,
    /// A thread's turn has come.
    called: Condvar,
}

#[derive(Default)]
struct State {
    /// By offset, and by number of those at the same place.
    waiting: BTreeMap<(u64, u64), Waiting>,
    numbers: u64,
    /// First byte of the last request, and the one behind it.
    last: (u64, u64),
    downwards: bool,
    busy: bool,
    /// The thread whose turn it is.
    turn: Option<u64>,
}

enum Waiting {
    Request(Request),
    Thread,
}

impl State {
    fn add(&mut self, offset: u64, waiting: Waiting) -> u64 {
        self.numbers += 1;
        self.waiting.insert((offset, self.numbers), waiting);
        self.numbers
    }

    /// Takes out who is next.
    fn next(&mut self, way: Elevator) -> Option<((u64, u64), Waiting)> {
        let places = || self.waiting.keys().copied();
        let above = self.waiting.range((self.last.1, 0)..).next().map(|(at, _)| *at);
        let below = self.waiting.range(..(self.last.0, 0)).next_back().map(|(at, _)| *at);
        let at = match way {
            Elevator::Absent | Elevator::OneWay => above.or_else(|| places().next())?,
            Elevator::TwoWay if self.downwards => below.or_else(|| places().next())?,
            Elevator::TwoWay => above.or_else(|| places().next_back())?,
        };
        self.downwards ^= if self.downwards { below.is_none() } else { above.is_none() };
        self.waiting.remove(&at).map(|waiting| (at, waiting))
    }
}

impl ElevatorDevice {
    /// Puts an elevator before a device; [`Elevator::Absent`] orders as [`Elevator::OneWay`] does.
    #[must_use]
    pub fn new(inner: Arc<dyn Device>, way: Elevator) -> Self {
        let shaft = Shaft { way, state: Mutex::default(), called: Condvar::new() };
        Self { inner, shaft: Arc::new(shaft) }
    }

    /// Waits for this thread's turn, does what it came for, and lets the next one go.
    fn in_turn<T>(&self, offset: u64, len: usize, act: impl FnOnce() -> T) -> T {
        let mut state = self.shaft.state.lock();
        let number = state.add(offset, Waiting::Thread);
        self.shaft.call_next(&self.inner, state);
        let mut state = self.shaft.state.lock();
        while state.turn != Some(number) {
            let moved = MutexGuard::unlocked(&mut state, || self.inner.advance());
            if !moved && state.turn != Some(number) {
                self.shaft.called.wait(&mut state);
            }
        }
        drop(state);
        let _leaving = Leaving { device: self, range: (offset, offset + len as u64) };
        act()
    }
}

/// Lets the next one go, also when a thread panics.
struct Leaving<'a> {
    device: &'a ElevatorDevice,
    range: (u64, u64),
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        self.device.shaft.left(&self.device.inner, self.range);
    }
}

impl Shaft {
    /// The request that was with the device has ended.
    fn left(self: &Arc<Self>, inner: &Arc<dyn Device>, range: (u64, u64)) {
        let mut state = self.state.lock();
        (state.busy, state.turn, state.last) = (false, None, range);
        self.call_next(inner, state);
    }

    /// Gives the device the next request, if it has none.
    fn call_next(self: &Arc<Self>, inner: &Arc<dyn Device>, mut state: MutexGuard<'_, State>) {
        if state.busy {
            return;
        }
        let Some(((_, number), waiting)) = state.next(self.way) else { return };
        state.busy = true;
        match waiting {
            Waiting::Thread => {
                state.turn = Some(number);
                drop(state);
                self.called.notify_all();
            }
            Waiting::Request(request) => {
                drop(state);
                let Request { offset, op, done } = request;
                let range = (offset, offset + len(&op) as u64);
                let (shaft, device) = (Arc::clone(self), Arc::clone(inner));
                let done = Box::new(move |outcome| {
                    shaft.left(&device, range);
                    done(outcome);
                });
                inner.submit(vec![Request { offset, op, done }]);
            }
        }
    }
}

/// Bytes that an operation reads or writes.
fn len(op: &Op) -> usize {
    match op {
        Op::Read(buf) => buf.len(),
        Op::Write(bytes) => bytes.len(),
        Op::Sync => 0,
    }
}

impl Device for ElevatorDevice {
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
        self.in_turn(offset, buf.len(), || self.inner.read(offset, buf))
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.in_turn(offset, buf.len(), || self.inner.write(offset, buf))
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn discard(&self, offset: u64, len: u64) -> io::Result<()> {
        self.inner.discard(offset, len)
    }

    fn submit(&self, batch: Vec<Request>) {
        let (syncs, placed): (Vec<_>, Vec<_>) = batch.into_iter().partition(|request| matches!(request.op, Op::Sync));
        if !syncs.is_empty() {
            self.inner.submit(syncs);
        }
        let mut state = self.shaft.state.lock();
        for request in placed {
            state.add(request.offset, Waiting::Request(request));
        }
        self.shaft.call_next(&self.inner, state);
    }

    fn advance(&self) -> bool {
        self.inner.advance()
    }

    fn backend(&self) -> String {
        self.inner.backend()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use picaflor_device::{AlignedBuf, MemoryDevice, finish};

    /// Holds what is submitted until it is told to go on, and remembers the places.
    struct Slow {
        inner: MemoryDevice,
        held: Mutex<VecDeque<Request>>,
        seen: Mutex<Vec<u64>>,
    }

    impl Device for Slow {
        fn capacity(&self) -> u64 {
            self.inner.capacity()
        }

        fn block_size(&self) -> usize {
            self.inner.block_size()
        }

        fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
            self.seen.lock().push(offset >> 12);
            self.inner.read(offset, buf)
        }

        fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
            self.inner.write(offset, buf)
        }

        fn sync(&self) -> io::Result<()> {
            self.inner.sync()
        }

        fn submit(&self, batch: Vec<Request>) {
            self.held.lock().extend(batch);
        }

        fn advance(&self) -> bool {
            let Some(Request { offset, op: Op::Read(buf), done }) = self.held.lock().pop_front() else { return false };
            self.seen.lock().push(offset >> 12);
            finish(done, Ok(buf));
            true
        }

        fn backend(&self) -> String {
            "slow".into()
        }
    }

    fn slow(way: Elevator) -> (Arc<Slow>, Arc<ElevatorDevice>) {
        let slow = Slow { inner: MemoryDevice::new(1 << 20), held: Mutex::default(), seen: Mutex::default() };
        let slow = Arc::new(slow);
        (Arc::clone(&slow), Arc::new(ElevatorDevice::new(slow, way)))
    }

    fn ask(device: &ElevatorDevice, blocks: &[u64]) {
        let read =
            |block: &u64| Request { offset: block << 12, op: Op::Read(AlignedBuf::zeroed(4096)), done: Box::new(drop) };
        device.submit(blocks.iter().map(read).collect());
    }

    /// The order in which requests are served that come while others are.
    fn order(way: Elevator) -> Vec<u64> {
        let (slow, device) = slow(way);
        ask(&device, &[50, 10, 90, 30]);
        assert_eq!(slow.held.lock().len(), 1, "one at a time");
        (0..3).for_each(|_| assert!(device.advance()));
        ask(&device, &[20, 60, 95, 50]);
        while device.advance() {}
        let seen = slow.seen.lock().clone();
        assert!(device.shaft.state.lock().waiting.is_empty() && !device.shaft.state.lock().busy);
        seen
    }

    #[test]
    fn one_way_begins_again_at_the_front_and_two_ways_turn() {
        assert_eq!(order(Elevator::OneWay), [10, 30, 50, 90, 95, 20, 50, 60]);
        assert_eq!(order(Elevator::TwoWay), [10, 30, 50, 90, 95, 60, 50, 20]);
    }

    #[test]
    fn a_blocking_call_waits_for_its_turn_and_lets_time_pass() {
        let (slow, device) = slow(Elevator::OneWay);
        ask(&device, &[70, 80]);
        device.read(75 << 12, &mut [0; 4096]).unwrap();
        device.read(5 << 12, &mut [0; 4096]).unwrap();
        assert_eq!(*slow.seen.lock(), [70, 75, 80, 5]);
    }

    #[test]
    fn eight_threads_and_batches_share_an_elevator() {
        for way in [Elevator::OneWay, Elevator::TwoWay] {
            let device = ElevatorDevice::new(Arc::new(MemoryDevice::new(1 << 20)), way);
            std::thread::scope(|scope| {
                for thread in 0..8u8 {
                    let device = &device;
                    scope.spawn(move || {
                        for round in 0..200u64 {
                            let offset = (round * 37 % 32 * 8 + u64::from(thread)) << 12;
                            device.write(offset, &[thread; 4096]).unwrap();
                            let (sender, receiver) = std::sync::mpsc::channel();
                            let done =
                                Box::new(move |read: io::Result<AlignedBuf>| sender.send(read.unwrap()).unwrap());
                            let op = Op::Read(AlignedBuf::zeroed(4096));
                            device.submit(vec![Request { offset, op, done }]);
                            assert!(receiver.recv().unwrap().iter().all(|byte| *byte == thread));
                        }
                    });
                }
            });
        }
    }
}
