//! Several clients in virtual time, on one thread, repeatable.
//!
//! Invariants:
//! - the processor takes no time but what a client asks for: clients run one after another, in the order in which they
//!   were woken, until all of them wait; then the clock moves to the next event of a device or timer;
//! - what happens at one time happens in a fixed order: devices as they were given, then timers as they were set;
//! - a client that calls a blocking operation takes the clock with it. What falls due meanwhile on that device is
//!   delivered on the way, other devices and timers when the call returns.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use parking_lot::Mutex;
use picaflor_device::Clock;
use picaflor_sim::SimulatedDisk;

use crate::{Error, Result};

/// Runs clients on virtual time.
pub struct Executor {
    time: Time,
    disks: Vec<SimulatedDisk>,
    clients: Vec<Option<Client>>,
    ready: Ready,
    /// Clients that `run` waits for and that are not done.
    awaited: usize,
}

struct Client {
    future: Pin<Box<dyn Future<Output = ()>>>,
    waker: Waker,
    token: Arc<Token>,
    awaited: bool,
}

type Ready = Arc<Mutex<VecDeque<usize>>>;

/// Wakes one client.
struct Token {
    client: usize,
    /// Whether it is in the queue already.
    queued: AtomicBool,
    ready: Ready,
}

impl Wake for Token {
    fn wake(self: Arc<Self>) {
        if !self.queued.swap(true, Relaxed) {
            self.ready.lock().push_back(self.client);
        }
    }
}

/// Virtual time as clients see it. Clones share it.
#[derive(Clone)]
pub struct Time {
    clock: Clock,
    timers: Arc<Mutex<Timers>>,
}

#[derive(Default)]
struct Timers {
    /// By time, then by when they were set.
    waiting: BTreeMap<(u64, u64), Waker>,
    set: u64,
}

impl Time {
    /// Nanoseconds since the clock was made.
    #[must_use]
    pub fn now(&self) -> u64 {
        self.clock.now_nanos()
    }

    /// Waits so long.
    pub fn sleep(&self, duration: Duration) -> Sleep {
        let until = self.now().saturating_add(u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX));
        self.sleep_until(until)
    }

    /// Waits until the clock says `nanos`.
    pub fn sleep_until(&self, nanos: u64) -> Sleep {
        Sleep { time: self.clone(), until: nanos, key: None }
    }

    /// What `future` says, or `None` if it takes longer than this.
    pub async fn timeout<F: Future>(&self, duration: Duration, future: F) -> Option<F::Output> {
        let mut future = std::pin::pin!(future);
        let mut sleep = std::pin::pin!(self.sleep(duration));
        std::future::poll_fn(|context| match future.as_mut().poll(context) {
            Poll::Ready(outcome) => Poll::Ready(Some(outcome)),
            Poll::Pending => sleep.as_mut().poll(context).map(|()| None),
        })
        .await
    }
}

/// Done when its time has come.
pub struct Sleep {
    time: Time,
    until: u64,
    key: Option<(u64, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.time.now() >= self.until {
            return Poll::Ready(());
        }
        let time = self.time.clone();
        let mut timers = time.timers.lock();
        let until = self.until;
        let key = *self.key.get_or_insert_with(|| {
            timers.set += 1;
            (until, timers.set)
        });
        timers.waiting.insert(key, context.waker().clone());
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.key {
            self.time.timers.lock().waiting.remove(&key);
        }
    }
}

/// A processor that clients share: it works for them one by one, in the order in which they ask. Clones share it.
#[derive(Clone, Default)]
pub struct Processor {
    free_at: Arc<Mutex<u64>>,
}

impl Processor {
    /// Waits until it has worked so many nanoseconds for this client.
    pub async fn work(&self, time: &Time, nanos: u64) {
        let until = {
            let mut free_at = self.free_at.lock();
            *free_at = time.now().max(*free_at) + nanos;
            *free_at
        };
        time.sleep_until(until).await;
    }
}

/// Lets the other clients that are ready run first, as a thread does whose slice of the processor is over.
pub async fn turn() {
    let mut passed = false;
    std::future::poll_fn(|context| {
        if std::mem::replace(&mut passed, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// What a client returned, once it is done.
pub struct Outcome<T>(Rc<RefCell<Option<T>>>);

impl<T> Outcome<T> {
    /// The value, if the client is done and it was not taken.
    #[must_use]
    pub fn take(&self) -> Option<T> {
        self.0.borrow_mut().take()
    }
}

impl Executor {
    /// No clients yet. `disks` are on `clock`, all of those that clients will wait for.
    #[must_use]
    pub fn new(clock: &Clock, disks: &[SimulatedDisk]) -> Self {
        let time = Time { clock: clock.clone(), timers: Arc::default() };
        Self { time, disks: disks.to_vec(), clients: Vec::new(), ready: Ready::default(), awaited: 0 }
    }

    /// The time, for clients.
    #[must_use]
    pub fn time(&self) -> Time {
        self.time.clone()
    }

    /// Adds a client that [`Executor::run`] waits for.
    pub fn spawn<T: 'static>(&mut self, client: impl Future<Output = T> + 'static) -> Outcome<T> {
        let outcome = Rc::new(RefCell::new(None));
        let told = Rc::clone(&outcome);
        self.add(true, async move {
            let value = client.await;
            *told.borrow_mut() = Some(value);
        });
        Outcome(outcome)
    }

    /// Adds one that runs beside the clients, and need not end: a daemon.
    pub fn spawn_daemon(&mut self, daemon: impl Future<Output = ()> + 'static) {
        self.add(false, daemon);
    }

    fn add(&mut self, awaited: bool, future: impl Future<Output = ()> + 'static) {
        let client = self.clients.len();
        let token = Arc::new(Token { client, queued: AtomicBool::new(true), ready: Arc::clone(&self.ready) });
        let waker = Waker::from(Arc::clone(&token));
        self.clients.push(Some(Client { future: Box::pin(future), waker, token, awaited }));
        self.ready.lock().push_back(client);
        self.awaited += usize::from(awaited);
    }

    /// Runs until all clients are done. Daemons stay where they are, for the next run.
    ///
    /// # Errors
    /// [`Error::Experiment`] if a client waits for what no device and no timer will bring.
    pub fn run(&mut self) -> Result<()> {
        while self.awaited > 0 {
            self.poll_ready();
            if self.awaited > 0 && !self.move_on() {
                let why = format!("{} clients wait for what no device and no timer will bring", self.awaited);
                return Err(Error::Experiment { name: "clients".to_owned(), why });
            }
        }
        Ok(())
    }

    fn poll_ready(&mut self) {
        loop {
            let Some(number) = self.ready.lock().pop_front() else { return };
            let Some(client) = &mut self.clients[number] else { continue };
            // Before it runs: what wakes it from here on counts.
            client.token.queued.store(false, Relaxed);
            let waker = client.waker.clone();
            if client.future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready() {
                self.awaited -= usize::from(client.awaited);
                self.clients[number] = None;
                if self.awaited == 0 {
                    return;
                }
            }
        }
    }

    /// Lets time pass until something happens; false if nothing ever will.
    fn move_on(&self) -> bool {
        let timer = self.time.timers.lock().waiting.keys().next().map(|(time, _)| *time);
        let next = self.disks.iter().filter_map(SimulatedDisk::next_event).chain(timer).min();
        let Some(next) = next else { return false };
        self.disks.iter().for_each(|disk| disk.run_until(next));
        self.time.clock.advance_to(next);
        let now = self.time.now();
        loop {
            let mut timers = self.time.timers.lock();
            let Some(first) = timers.waiting.first_entry().filter(|first| first.key().0 <= now) else { return true };
            let waker = first.remove();
            drop(timers);
            waker.wake();
        }
    }
}

#[cfg(test)]
mod tests {
    use picaflor::{Daemons, Options, Store};
    use picaflor_device::{AlignedBuf, Device, Op, Request};
    use picaflor_sim::{Order, Profile, SimulatedOptions};

    use super::*;

    fn disk(clock: &Clock, profile: &str, order: Order) -> SimulatedDisk {
        let options = SimulatedOptions {
            part: Some(0..256 << 20),
            order: Some(order),
            block_size: 4096,
            ..SimulatedOptions::default()
        };
        SimulatedDisk::new(&Profile::find(profile).unwrap(), clock.clone(), &options).unwrap()
    }

    #[test]
    fn time_passes_only_while_everybody_waits() {
        let clock = Clock::virtual_at(0);
        let mut executor = Executor::new(&clock, &[]);
        let log = Rc::new(RefCell::new(Vec::new()));
        for (name, millis) in [("a", 30), ("b", 10), ("c", 20), ("d", 10)] {
            let (time, log) = (executor.time(), Rc::clone(&log));
            executor.spawn(async move {
                for _ in 0..2 {
                    time.sleep(Duration::from_millis(millis)).await;
                    log.borrow_mut().push((name, time.now() / 1_000_000));
                }
            });
        }
        executor.run().unwrap();
        let expected = [("b", 10), ("d", 10), ("c", 20), ("b", 20), ("d", 20), ("a", 30), ("c", 40), ("a", 60)];
        assert_eq!(*log.borrow(), expected);
    }

    #[test]
    fn clients_take_turns() {
        let mut executor = Executor::new(&Clock::virtual_at(0), &[]);
        let log = Rc::new(RefCell::new(String::new()));
        for name in ["a", "b", "c"] {
            let log = Rc::clone(&log);
            executor.spawn(async move {
                for _ in 0..2 {
                    log.borrow_mut().push_str(name);
                    turn().await;
                }
            });
        }
        executor.run().unwrap();
        assert_eq!(*log.borrow(), "abcabc");
    }

    #[test]
    fn a_processor_works_for_one_at_a_time_in_the_order_in_which_they_ask() {
        let mut executor = Executor::new(&Clock::virtual_at(0), &[]);
        let processor = Processor::default();
        let done: Vec<_> = [(0, 30), (20, 5), (10, 7), (90, 1)]
            .map(|(after, nanos)| {
                let (time, processor) = (executor.time(), processor.clone());
                executor.spawn(async move {
                    time.sleep(Duration::from_nanos(after)).await;
                    processor.work(&time, nanos).await;
                    time.now()
                })
            })
            .into();
        executor.run().unwrap();
        assert_eq!(done.iter().map(|done| done.take().unwrap()).collect::<Vec<_>>(), [30, 42, 37, 91]);
    }

    #[test]
    fn timeouts() {
        let clock = Clock::virtual_at(0);
        let mut executor = Executor::new(&clock, &[]);
        let time = executor.time();
        let outcome = executor.spawn(async move {
            let slow = time.timeout(Duration::from_millis(5), time.sleep(Duration::from_millis(9))).await;
            let fast = time.timeout(Duration::from_millis(5), async { 7 }).await;
            (slow, fast, time.now())
        });
        executor.run().unwrap();
        assert_eq!(outcome.take(), Some((None, Some(7), 5_000_000)));
        assert!(executor.time.timers.lock().waiting.is_empty(), "a timer that nobody waits for is gone");
    }

    #[test]
    fn a_client_that_nothing_will_wake_is_an_error_and_a_daemon_is_not() {
        let clock = Clock::virtual_at(0);
        let mut executor = Executor::new(&clock, &[]);
        executor.spawn_daemon(std::future::pending());
        executor.run().unwrap();
        executor.spawn(std::future::pending::<()>());
        assert!(executor.run().unwrap_err().to_string().contains("1 clients wait"));
    }

    /// Clients that each read some places of a disk, one after another. When each read was done, and by whom.
    fn readers(clients: u64, reads: u64, order: Order) -> Vec<(u64, u64)> {
        let clock = Clock::virtual_at(0);
        let disk = disk(&clock, "barracuda4", order);
        let mut executor = Executor::new(&clock, std::slice::from_ref(&disk));
        let log = Rc::new(RefCell::new(Vec::new()));
        for client in 0..clients {
            let (disk, log, clock) = (disk.clone(), Rc::clone(&log), clock.clone());
            executor.spawn(async move {
                for read in 0..reads {
                    let place = crate::synth::mix(client * reads + read) % (255 << 8) * 4096;
                    let done = Arc::new(Mutex::new((false, None::<Waker>)));
                    let told = Arc::clone(&done);
                    let tell = Box::new(move |outcome: std::io::Result<AlignedBuf>| {
                        assert_eq!(outcome.unwrap().len(), 4096);
                        let mut state = told.lock();
                        state.0 = true;
                        if let Some(waker) = state.1.take() {
                            waker.wake();
                        }
                    });
                    let op = Op::Read(AlignedBuf::zeroed(4096));
                    disk.submit(vec![Request { offset: place, op, done: tell }]);
                    std::future::poll_fn(|context| {
                        let mut state = done.lock();
                        state.1 = Some(context.waker().clone());
                        if state.0 { Poll::Ready(()) } else { Poll::Pending }
                    })
                    .await;
                    log.borrow_mut().push((client, clock.now_nanos()));
                }
            });
        }
        executor.run().unwrap();
        Rc::into_inner(log).unwrap().into_inner()
    }

    #[test]
    fn more_in_flight_and_an_elevator_are_faster_than_one() {
        let time = |log: Vec<(u64, u64)>| log.last().unwrap().1;
        let one = time(readers(1, 400, Order::Fifo));
        let fifo = time(readers(16, 25, Order::Fifo));
        let elevator = time(readers(16, 25, Order::OneWay));
        assert!(elevator < one * 85 / 100 && elevator < fifo * 9 / 10, "{one} {fifo} {elevator}");
        assert_eq!(readers(16, 25, Order::OneWay), readers(16, 25, Order::OneWay));
    }

    /// Objects put into a store on a disk, then read by some clients in an order of their own. What each got, when.
    fn clients_of_a_store(clients: usize, seed: u64) -> (Vec<(usize, u64)>, u64) {
        let clock = Clock::virtual_at(1_000_000_000_000);
        let disk = disk(&clock, "ultrastar18lzx", Order::Nearest);
        let options = Options::on(Arc::new(disk.clone())).memory(6 << 20).with(|options| {
            options.clock = clock.clone();
            options.daemons = Daemons::Manual;
            options.seed = Some(7);
        });
        let store = Store::open(options).unwrap();
        let objects = 4_000;
        // Mostly zeros, which the disk keeps for nothing.
        let body = |object: u64| [&object.to_le_bytes()[..], &[0; 20_000]].concat();
        for object in 0..objects {
            store.put(format!("key {object}").as_bytes(), &body(object)).unwrap();
            while store.step().unwrap() {}
        }
        store.flush().unwrap();
        let begun = clock.now_nanos();
        let mut executor = Executor::new(&clock, std::slice::from_ref(&disk));
        let log = Rc::new(RefCell::new(Vec::new()));
        for client in 0..clients {
            let (store, log, clock) = (store.clone(), Rc::clone(&log), clock.clone());
            executor.spawn(async move {
                for round in 0..240 / clients as u64 {
                    let object = crate::synth::mix(seed ^ (client as u64 * 1_000 + round)) % objects;
                    let found = store.get_async(format!("key {object}").as_bytes()).await.unwrap().unwrap();
                    assert_eq!(found.body().unwrap()[..], body(object));
                    log.borrow_mut().push((client, clock.now_nanos() - begun));
                }
            });
        }
        let (time, daemon) = (executor.time(), store.clone());
        executor.spawn_daemon(async move {
            loop {
                time.sleep(Duration::from_millis(10)).await;
                while daemon.step().unwrap() {}
            }
        });
        executor.run().unwrap();
        (Rc::into_inner(log).unwrap().into_inner(), clock.now_nanos() - begun)
    }

    #[test]
    fn the_engine_runs_on_virtual_time_and_repeats_itself() {
        let (log, sixteen) = clients_of_a_store(16, 1);
        assert_eq!(clients_of_a_store(16, 1), (log.clone(), sixteen));
        assert_ne!(clients_of_a_store(16, 2).0, log);
        let (_, one) = clients_of_a_store(1, 1);
        assert!(sixteen < one, "{sixteen} for {one}");
        assert!(one > 240 * 500_000, "reads take time: {one}");
    }
}
