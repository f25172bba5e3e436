//! Flush: the only writer of object data.
//!
//! Whoever holds the writer's turn takes sealed buffers from the queue and hands them to the device,
//! [`DEPTH`] at a time; a commit also writes what is new in the open buffers and the journal's pages, and
//! then syncs. A buffer whose write is done stays in memory as a resident cluster until S3-FIFO lets it
//! go.
//!
//! Waking a thread costs as much as writing 32 KiB, so the flusher is woken for [`BATCH`] buffers at once as long
//! as the device has something to do meanwhile, and at once when it has not ([`WriterState::is_worth_waking`]).
//!
//! Steps of a commit: gather pieces of open buffers → write them, the journal's pages and what was queued, in no order
//! → sync → everything appended before the commit began is durable.

use std::{
    collections::VecDeque,
    future::poll_fn,
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::{Condvar, Mutex, MutexGuard};
use picaflor_common::Turn;
use picaflor_device::{Clock, Op, Request};

use crate::{
    Daemons, Error, Result, base::stats::add, cache::buffers::Slot, cache::memory::Resident, space::State,
    volume::Volume,
};

/// Cluster writes in flight at once: enough to keep a device busy while half of them are handled and replaced.
const DEPTH: usize = 8;

/// Clusters that memory has to have room for before any stays there.
pub(crate) const FEWEST: u64 = 16;

/// How long until a commit that was refused for want of room in the journal is tried again.
const RETRY: Duration = Duration::from_millis(50);

/// Buffers worth a wake-up of the flusher while the device is busy with others.
const BATCH: usize = 4;

pub(crate) struct Writer {
    /// Held by whoever writes object data.
    turn: Mutex<()>,
    state: Mutex<WriterState>,
    /// There is something to write, or to look at the time for: the flusher rests here.
    work: Condvar,
    /// A write was done, a buffer or clean space came free, or something was enqueued while somebody waits for it.
    changed: Condvar,
    /// Bytes of buffers that are open, queued or in flight.
    unwritten: AtomicU64,
    /// Clock nanoseconds by which the next commit is due; `u64::MAX` when nothing is volatile.
    deadline: AtomicU64,
    /// Puts that no commit has made durable yet.
    pub(crate) volatile_puts: AtomicU64,
}

#[derive(Default)]
struct WriterState {
    queue: VecDeque<u32>,
    flying: Vec<u32>,
    landed: Vec<(u32, io::Result<()>)>,
    stop: bool,
    /// Tasks that wait for a buffer.
    wakers: Vec<Waker>,
}

impl WriterState {
    /// Slots whose writes have not come to their end.
    fn unlanded(&self) -> impl Iterator<Item = u32> {
        self.queue.iter().chain(&self.flying).copied().chain(self.landed.iter().map(|(slot, _)| *slot))
    }

    /// As many of those queued as may be on their way are from now on.
    fn start(&mut self) -> Vec<u32> {
        let room = DEPTH.saturating_sub(self.flying.len()).min(self.queue.len());
        let start: Vec<u32> = self.queue.drain(..room).collect();
        self.flying.extend(&start);
        start
    }

    /// Whether whoever writes should look now. Whatever is left for later is seen when the device runs dry: the
    /// last write but one to land always says yes.
    fn is_worth_waking(&self) -> bool {
        let waiting = self.queue.len().max(self.landed.len());
        match self.flying.len() {
            0 | 1 => waiting > 0,
            flying => waiting >= BATCH && flying + BATCH <= DEPTH,
        }
    }
}

/// What [`Writer::rest`] was woken by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Woken {
    Work,
    Time,
    Stop,
}

impl Writer {
    pub(crate) fn new() -> Self {
        Self {
            turn: Mutex::new(()),
            state: Mutex::default(),
            work: Condvar::new(),
            changed: Condvar::new(),
            unwritten: AtomicU64::new(0),
            deadline: AtomicU64::new(u64::MAX),
            volatile_puts: AtomicU64::new(0),
        }
    }

    /// The writer's turn, if nobody has it: no commit is under way as long as it is held.
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

    /// Wakes whoever writes.
    fn wake_writers(&self) {
        self.work.notify_all();
        self.changed.notify_all();
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

    /// Waits for any change, as long as `time` at most: for puts that found no buffer.
    pub(crate) fn wait_for_change(&self, time: Duration) {
        let mut state = self.state.lock();
        self.changed.wait_for(&mut state, time);
    }

    /// Whether fewer bytes than this wait for the device.
    pub(crate) fn has_room(&self, limit: u64) -> bool {
        self.unwritten_bytes() < limit
    }

    /// As [`Writer::wait_for_change`] for a task: false if there is room already, else the waker is called
    /// when there may be. Asked under the lock that [`Writer::wake`] takes, so that no wake-up is missed.
    pub(crate) fn wake_on_change(&self, limit: u64, waker: &Waker) -> bool {
        let mut state = self.state.lock();
        let wait = !self.has_room(limit);
        if wait {
            state.wakers.push(waker.clone());
        }
        wait
    }

    /// Returns at the next change, or when the flusher looks round; for tasks that found no clean space.
    pub(crate) async fn next_change(&self) {
        let mut waits = false;
        poll_fn(|context| {
            if std::mem::replace(&mut waits, true) {
                return Poll::Ready(());
            }
            self.state.lock().wakers.push(context.waker().clone());
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

    /// Wakes who waits for a buffer or clean space.
    pub(crate) fn wake(&self) {
        self.changed.notify_all();
        self.wake_tasks();
    }
}

impl Volume {
    /// Writes what is queued. With `drain`, returns only when what was queued at the call is on the device.
    pub(crate) fn write_queued(self: &Arc<Self>, drain: bool) {
        let turn = self.writer.turn.lock();
        self.pump(&turn, drain);
    }

    fn pump(self: &Arc<Self>, _turn: &MutexGuard<'_, ()>, drain: bool) {
        // Not what is queued meanwhile: puts may fill buffers as fast as they are written, for ever.
        let mut awaited: Vec<u32> = match drain {
            true => self.writer.state.lock().unlanded().collect(),
            false => Vec::new(),
        };
        loop {
            let (landed, start) = {
                let mut state = self.writer.state.lock();
                let (landed, start) = (std::mem::take(&mut state.landed), state.start());
                if landed.is_empty() && start.is_empty() {
                    // Who was to write it may be the daemon that ended, and then it never lands.
                    if awaited.is_empty() || matches!(self.log.commits.failure(), Some(Error::Daemon { .. })) {
                        return;
                    }
                    let moved = MutexGuard::unlocked(&mut state, || self.medium.device.advance());
                    if !moved && state.landed.is_empty() {
                        self.writer.changed.wait(&mut state);
                    }
                    continue;
                }
                (landed, start)
            };
            if !start.is_empty() {
                self.medium.device.submit(self.requests(start));
            }
            for (slot, outcome) in landed {
                awaited.retain(|awaited| *awaited != slot);
                self.landed(slot, outcome);
            }
            if drain && awaited.is_empty() {
                return;
            }
        }
    }

    fn requests(self: &Arc<Self>, slots: Vec<u32>) -> Vec<Request> {
        slots.into_iter().filter_map(|slot| self.write_request(slot)).collect()
    }

    fn write_request(self: &Arc<Self>, slot: u32) -> Option<Request> {
        let guard = self.buffers.slot(slot).read();
        let Slot::Filled(filled) = &*guard else { return None };
        let bytes = filled.bytes.slice(filled.flushed..);
        let offset = self.medium.map.cluster_start(filled.cluster) + filled.flushed as u64;
        self.medium.count_write(bytes.len());
        let volume = Arc::clone(self);
        let done = Box::new(move |outcome: io::Result<_>| {
            let mut state = volume.writer.state.lock();
            state.flying.retain(|flying| *flying != slot);
            state.landed.push((slot, outcome.map(drop)));
            let wake = state.is_worth_waking();
            drop(state);
            if wake {
                volume.writer.wake_writers();
            }
        });
        Some(Request { offset, op: Op::Write(bytes), done })
    }

    /// A cluster's write has come to its end.
    fn landed(self: &Arc<Self>, slot: u32, outcome: io::Result<()>) {
        let bytes = self.medium.cluster_len() as u64;
        if let Err(error) = outcome {
            // Its objects stay in memory, where gets still find them; nothing more is written.
            self.fail("writing a cluster", error);
            return;
        }
        let (keep, tables, group, number) = match &mut *self.buffers.slot(slot).write() {
            Slot::Filled(filled) => {
                filled.written = true;
                self.buffers.set_home(slot, filled.cluster);
                let group = self.group_in(&filled.bytes, &filled.rows);
                (!filled.bypass, filled.table_bytes(), group, Arc::clone(&filled.number))
            }
            _ => return,
        };
        self.writer.unwritten.fetch_sub(bytes, Relaxed);
        let give_back = || self.shared.buffer_bytes.fetch_sub(bytes, Relaxed);
        let resident = Resident { volume: self.medium.number, slot, bytes: bytes + tables, group, number };
        if keep && self.has_room_for_residents(self.medium.cluster_len()) {
            self.shared.reserve_memory(resident.bytes, || {
                give_back();
                self.shared.cache_cluster(resident);
            });
        } else {
            self.shared.release(vec![resident]);
            give_back();
        }
        self.writer.wake();
    }

    /// Whether one more cluster or page of so many bytes may stay in memory: slots are left, and the device is not so
    /// small, or so full, that residents would keep it from being reclaimed.
    pub(crate) fn has_room_for_residents(&self, bytes: usize) -> bool {
        if self.packs_tightly() && !self.shared.memory.holds_clusters() {
            return false;
        }
        let open = 2 * self.lanes.len() + 16;
        let most = (self.buffers.count() as usize - open).min(self.space.count() as usize / 4);
        let (used, (pages, divided)) = (self.buffers.in_use(), self.space.pages_held());
        let clusters = (used + divided).saturating_sub(pages);
        used < self.buffers.count() as usize
            && clusters < open + most
            && bytes as u64 * FEWEST <= self.shared.tier_budget()
    }

    /// Stops writing to this volume.
    pub(crate) fn fail(&self, doing: &str, error: io::Error) {
        self.stop(Error::io(format!("{}: {doing}", self.medium.place), error));
    }

    /// As [`Volume::fail`], for this reason.
    pub(crate) fn stop(&self, why: Error) {
        self.log.commits.fail(why);
        self.writer.wake_flusher();
        self.writer.wake();
        self.tell_others();
    }

    /// Returns when everything done before the call is durable.
    pub(crate) fn wait_commit(self: &Arc<Self>, number: u64) -> Result<()> {
        loop {
            match self.log.commits.wait(number)? {
                Turn::Durable => return Ok(()),
                Turn::Lead(number) => {
                    let began = self.shared.clock.now_nanos();
                    let volatile = self.writer.volatile_puts.load(Relaxed);
                    let result = self.commit();
                    let failed = result.is_err();
                    if !failed {
                        self.space.settle(number);
                        self.writer.volatile_puts.fetch_sub(volatile, Relaxed);
                        self.log.journal.lock().settle();
                    }
                    let took = Duration::from_nanos(self.shared.clock.now_nanos().saturating_sub(began));
                    self.log.commits.complete(number, result, took);
                    if failed {
                        self.tell_others();
                    }
                    self.writer.wake();
                }
            }
        }
    }

    /// As [`Volume::wait_commit`], after making sure that the journal has room.
    pub(crate) fn wait_commit_in_time(self: &Arc<Self>, number: u64) -> Result<()> {
        self.relieve_journal()?;
        self.wait_commit(number)
    }

    /// A commit that is due was refused: the flusher tries again in a while.
    pub(crate) fn commit_later(&self) {
        self.writer.deadline.store(u64::MAX, Relaxed);
        self.due_within(RETRY);
    }

    /// Makes everything durable that was done before this call.
    pub(crate) fn commit_now(self: &Arc<Self>) -> Result<()> {
        self.wait_commit_in_time(self.log.commits.next())
    }

    /// As [`Volume::wait_commit_in_time`] for tasks: the flusher does it. Without one, this thread does.
    pub(crate) async fn commit_async(self: Arc<Self>, number: u64) -> Result<()> {
        if self.shared.options.daemons == Daemons::Manual {
            return self.wait_commit_in_time(number);
        }
        let mut counted = false;
        poll_fn(|context| match self.log.commits.poll(number, &mut counted, context.waker()) {
            Some(result) => Poll::Ready(result),
            None => {
                // Each time anew: a commit that began just before this put clears the deadline.
                self.writer.due(0);
                Poll::Pending
            }
        })
        .await
    }

    /// A commit is due no later than this from now.
    pub(crate) fn due_within(&self, time: Duration) {
        let nanos = u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        self.writer.due(self.shared.clock.now_nanos().saturating_add(nanos));
    }

    fn commit(self: &Arc<Self>) -> Result<()> {
        let turn = self.writer.turn.lock();
        self.writer.deadline.store(u64::MAX, Relaxed);
        let sealed = self.log.next_seal.load(Relaxed).saturating_sub(1);
        if let Some(in_place) = self.in_place.as_ref().filter(|_| !self.has_checkpoints()) {
            return self.commit_untold(in_place);
        }
        self.note_losses()?;
        // Before anything is taken: what a commit that is refused leaves behind the next one finds.
        if !self.log.journal.lock().has_room(0) {
            return Err(self.log.refused_journal());
        }
        // Before the note: whom it has to give up is told of by this commit.
        self.pack_promised(|| self.pump(&turn, true))?;
        // In place there are no pieces, and all records keep their order.
        let begun = if self.in_place.is_some() { usize::MAX } else { self.log.journal.lock().pending() };
        // Before the records are taken: whatever these leave behind is told by them, or by what is in buffers.
        let ready = self.ready_extents();
        self.empty_lanes()?;
        let mut writes = self.gather_pieces()?;
        // With the pieces: their clusters' reservations are among the records. And before the queue is looked at: a
        // buffer that is sealed from now on is forgotten only when what is taken here is on the device.
        let Some(pages) = self.log.journal.lock().take_pages(begun, &self.shared.pool) else {
            // Nobody knows any more which pieces are on the device.
            self.stop(self.log.refused_journal());
            return Err(self.log.refused_journal());
        };
        writes.extend(pages.into_iter().map(|(offset, page)| (offset, page.into_bytes())));
        // After them: what they tell of is in the packet by now.
        self.flush_packet()?;
        let written = self.write_gathered(&turn, writes);
        self.pump(&turn, true);
        if let Some(failure) = self.log.commits.failure() {
            return Err(failure);
        }
        let done = written.and_then(|()| self.medium.sync());
        done.map_err(|error| self.medium.io("making puts durable", error))?;
        self.log.durable_seal.fetch_max(sealed, Relaxed);
        self.settle_extents(ready);
        add(&self.shared.counters.commits, 1);
        Ok(())
    }

    /// What is new in every open buffer, as device writes. Locking each lane in turn also makes sure that
    /// whatever was being sealed is queued by now.
    fn gather_pieces(self: &Arc<Self>) -> Result<Vec<(u64, Bytes)>> {
        let mut writes = Vec::new();
        if self.in_place.is_some() {
            return Ok(writes);
        }
        for lane in &self.lanes {
            for open in lane.lock().iter_mut() {
                writes.extend(self.take_piece(open)?);
            }
        }
        Ok(writes)
    }

    /// What is new in one open buffer; seals it if there is no room to pad.
    fn take_piece(self: &Arc<Self>, lane: &mut Option<u32>) -> Result<Option<(u64, Bytes)>> {
        let Some(slot) = *lane else { return Ok(None) };
        let (granted, seq, site) = match &*self.buffers.slot(slot).read() {
            Slot::Open(open) if open.is_dirty() => (open.cluster, open.seq, open.class.site()),
            _ => return Ok(None),
        };
        let cluster = match granted {
            Some(cluster) => cluster,
            None => self.log.grant(State::Busy, seq, site)?,
        };
        let piece = match &mut *self.buffers.slot(slot).write() {
            Slot::Open(open) => {
                open.cluster = Some(cluster);
                open.take_piece(self.medium.store_id, cluster, &self.shared.pool)
            }
            _ => return Ok(None),
        };
        let Some(piece) = piece else {
            self.seal(lane)?;
            return Ok(None);
        };
        Ok(Some((self.medium.map.cluster_start(cluster) + piece.offset as u64, piece.bytes.into_bytes())))
    }

    /// Writes what a commit gathered and as much of what is queued as may be on its way, as one batch on this thread:
    /// the way to the ring's thread and back takes as long as a write.
    fn write_gathered(self: &Arc<Self>, _turn: &MutexGuard<'_, ()>, writes: Vec<(u64, Bytes)>) -> io::Result<()> {
        self.medium.count_writes(&writes);
        let queued = self.writer.state.lock().start();
        picaflor_device::write_beside(self.medium.device.as_ref(), writes, self.requests(queued))
    }
}
