//! What there is to write: buffers that were sealed, the time of the next commit, and the waiters for either.
//!
//! Waking a thread costs as much as writing 32 KiB, so the flusher is woken for [`BATCH`] buffers at once as long
//! as the device has something to do meanwhile, and at once when it has not ([`State::is_worth_waking`]).

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    sync::atomic::{
        AtomicU64,
        Ordering::{Relaxed, SeqCst},
    },
    task::{Poll, Waker},
    time::Duration,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use picaflor_device::Clock;

/// Cluster writes in flight at once: enough to keep a device busy while half of them are handled and replaced.
const DEPTH: usize = 8;

/// Buffers worth a wake-up of the flusher while the device is busy with others.
const BATCH: usize = 4;

pub(crate) struct FlushQueue {
    /// Held by the writer of object data.
    pub(crate) turn: Mutex<()>,
    pub(crate) state: Mutex<State>,
    /// There is something to write, or to look at the time for: the flusher rests here.
    work: Condvar,
    /// A write was done, a buffer or clean space came free, or something was enqueued that is waited for.
    pub(crate) changed: Condvar,
    /// How often it was.
    changes: AtomicU64,
    /// Bytes of buffers that are open, queued or in flight.
    pub(crate) unwritten: AtomicU64,
    /// Clock nanoseconds by which the next commit is due; `u64::MAX` when nothing is volatile.
    pub(crate) deadline: AtomicU64,
    /// Puts that no commit has made durable yet.
    pub(crate) volatile_puts: AtomicU64,
}

#[derive(Default)]
pub(crate) struct State {
    pub(crate) queue: VecDeque<u32>,
    pub(crate) flying: Vec<u32>,
    pub(crate) landed: Vec<(u32, io::Result<()>)>,
    stop: bool,
    /// Tasks that wait for a buffer.
    wakers: Vec<Waker>,
}

impl State {
    /// Slots whose writes have not come to their end.
    pub(crate) fn unlanded(&self) -> impl Iterator<Item = u32> {
        self.queue.iter().chain(&self.flying).copied().chain(self.landed.iter().map(|(slot, _)| *slot))
    }

    /// As many of those queued as may be on their way are from now on.
    pub(crate) fn start(&mut self) -> Vec<u32> {
        let room = DEPTH.saturating_sub(self.flying.len()).min(self.queue.len());
        let start: Vec<u32> = self.queue.drain(..room).collect();
        self.flying.extend(&start);
        start
    }

    /// Whether the writer should look now. What is left for later is seen when the device runs dry: the
    /// last write but one to land always says yes.
    pub(crate) fn is_worth_waking(&self) -> bool {
        let waiting = self.queue.len().max(self.landed.len());
        match self.flying.len() {
            0 | 1 => waiting > 0,
            flying => waiting >= BATCH && flying + BATCH <= DEPTH,
        }
    }
}

/// What [`FlushQueue::rest`] was woken by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Work,
    Time,
    Stop,
}

impl FlushQueue {
    pub(crate) fn new() -> Self {
        Self {
            turn: Mutex::new(()),
            state: Mutex::default(),
            work: Condvar::new(),
            changed: Condvar::new(),
            changes: AtomicU64::new(0),
            unwritten: AtomicU64::new(0),
            deadline: AtomicU64::new(u64::MAX),
            volatile_puts: AtomicU64::new(0),
        }
    }

    /// The writer's turn, if it is free: no commit is under way as long as it is held.
    pub(crate) fn try_turn(&self) -> Option<MutexGuard<'_, ()>> {
        self.turn.try_lock()
    }

    pub(crate) fn enqueue(&self, slot: u32) {
        let mut state = self.state.lock();
        state.queue.push_back(slot);
        let wake = state.is_worth_waking();
        drop(state);
        if wake {
            self.wake_writers();
        }
    }

    /// Wakes the writers.
    pub(crate) fn wake_writers(&self) {
        // Before the lock is taken: a waiter sees the new number, or is asleep.
        self.changes.fetch_add(1, SeqCst);
        self.wake_flusher();
        self.changed.notify_all();
    }

    /// How often anything changed that a put may wait for: to be asked before the put looks for it.
    pub(crate) fn changes(&self) -> u64 {
        self.changes.load(SeqCst)
    }

    pub(crate) fn unwritten_bytes(&self) -> u64 {
        self.unwritten.load(Relaxed)
    }

    /// Filled buffers that are not on the device yet.
    pub(crate) fn unlanded(&self) -> usize {
        self.state.lock().unlanded().count()
    }

    pub(crate) fn add_unwritten(&self, bytes: u64) {
        self.unwritten.fetch_add(bytes, Relaxed);
    }

    /// A commit is due no later than this.
    pub(crate) fn due(&self, at_nanos: u64) {
        if self.deadline.fetch_min(at_nanos, Relaxed) > at_nanos {
            // Only the first volatile thing since a commit gets here: the flusher's sleep is cut short. Under
            // the lock, so that a flusher which has just read the old deadline is asleep, or reads the new one.
            self.wake_flusher();
        }
    }

    /// Has the flusher look at the time.
    pub(crate) fn wake_flusher(&self) {
        let _state = self.state.lock();
        self.work.notify_all();
    }

    pub(crate) fn deadline(&self) -> u64 {
        self.deadline.load(Relaxed)
    }

    /// Sleeps until there is something to write, the deadline or `most` has passed, or the store closes.
    pub(crate) fn rest(&self, clock: &Clock, most: Duration) -> Woken {
        let mut state = self.state.lock();
        if !state.is_worth_waking() && !state.stop {
            let until_due = Duration::from_nanos(self.deadline().saturating_sub(clock.now_nanos()));
            self.work.wait_for(&mut state, until_due.min(most));
        }
        match () {
            () if state.stop => Woken::Stop,
            () if state.is_worth_waking() => Woken::Work,
            () => Woken::Time,
        }
    }

    /// Waits for any change behind these, as long as `time` at most: for puts that found no buffer.
    pub(crate) fn wait_for_change(&self, seen: u64, time: Duration) {
        let mut state = self.state.lock();
        if self.changes() == seen {
            self.changed.wait_for(&mut state, time);
        }
    }

    /// Whether fewer bytes than this wait for the device.
    pub(crate) fn has_room(&self, limit: u64) -> bool {
        self.unwritten_bytes() < limit
    }

    /// As [`FlushQueue::wait_for_change`] for a task: false if there is room already, else the waker is called
    /// when there may be. Asked under the lock that [`FlushQueue::wake`] takes, so that no wake-up is missed.
    pub(crate) fn wake_on_change(&self, limit: u64, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        let wait = !self.has_room(limit);
        if wait {
            state.wakers.push(waker.clone());
        }
        wait
    }

    /// Returns at the next change behind these, or when the flusher looks round; for tasks that found no clean space.
    pub(crate) async fn next_change(&self, seen: u64) {
        let mut waits = false;
        poll_fn(|context| {
            let mut state = self.state.lock();
            if std::mem::replace(&mut waits, true) || self.changes() != seen {
                return Poll::Ready(());
            }
            state.wakers.push(context.waker().clone());
            Poll::Pending
        })
        .await;
    }

    /// Wakes the tasks that wait, and no thread.
    pub(crate) fn wake_tasks(&self) {
        let wakers = std::mem::take(&mut self.state.lock().wakers);
        wakers.into_iter().for_each(Waker::wake);
    }

    pub(crate) fn stop(&self) {
        self.state.lock().stop = true;
        self.wake_writers();
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.state.lock().stop
    }

    /// Wakes the waiters for a buffer or clean space.
    pub(crate) fn wake(&self) {
        // As for the writers.
        self.changes.fetch_add(1, SeqCst);
        self.wake_tasks();
        self.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_change_before_the_wait_is_not_waited_for() {
        let queue = FlushQueue::new();
        for change in [FlushQueue::wake, FlushQueue::wake_writers] {
            let seen = queue.changes();
            change(&queue);
            // Else for an hour.
            queue.wait_for_change(seen, Duration::from_secs(3600));
            let mut next = std::pin::pin!(queue.next_change(seen));
            let polled = next.as_mut().poll(&mut std::task::Context::from_waker(Waker::noop()));
            assert_eq!(polled, Poll::Ready(()));
        }
        let seen = queue.changes();
        queue.wait_for_change(seen, Duration::from_millis(1));
        assert_eq!(queue.changes(), seen);
    }
}
