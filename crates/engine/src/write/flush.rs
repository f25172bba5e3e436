//! Flush: the only writer of object data.
//!
//! Whoever holds the writer's turn takes sealed buffers from the queue and hands them to the device, a few at a time
//! (`log/flush_queue.rs`); a commit also writes what is new in the open buffers and the journal's pages, and then
//! syncs. A buffer whose write is done stays in memory as a resident cluster until S3-FIFO lets it go.
//!
//! Steps of a commit: gather pieces of open buffers → write them, the journal's pages and what was queued, in no order
//! → sync → everything appended before the commit began is durable.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use bytes::Bytes;
use parking_lot::MutexGuard;
use picaflor_common::Turn;
use picaflor_device::{Op, Request};

use crate::{
    Error, Result, base::medium::Medium, base::stats::add, cache::buffers::Slot, cache::catalog::Catalog,
    cache::memory::Resident, cache::residents::Residents, in_place::placing::Placing, log::recorder::Log,
    read::parts::Parts, shared::Shared, space::Space, space::State, write::append::Appender, write::packing::Packer,
};

pub(crate) struct Committer {
    pub(crate) medium: Arc<Medium>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) log: Arc<Log>,
    pub(crate) space: Arc<Space>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) residents: Arc<Residents>,
    pub(crate) appender: Arc<Appender>,
    pub(crate) packer: Arc<Packer>,
    pub(crate) placing: Option<Arc<Placing>>,
}

impl Committer {
    pub(crate) fn new(parts: &Parts, packer: &Arc<Packer>, placing: Option<&Arc<Placing>>) -> Self {
        let Parts { medium, shared, log, space, catalog, residents, .. } = parts.clone();
        let (packer, appender) = (Arc::clone(packer), Arc::clone(&packer.appender));
        Self { medium, shared, log, space, catalog, residents, appender, packer, placing: placing.cloned() }
    }

    /// Writes what is queued. With `drain`, returns only when what was queued at the call is on the device.
    pub(crate) fn write_queued(&self, drain: bool) {
        let turn = self.log.queue.turn.lock();
        self.pump(&turn, drain);
    }

    fn pump(&self, _turn: &MutexGuard<'_, ()>, drain: bool) {
        // Not what is queued meanwhile: puts may fill buffers as fast as they are written, for ever.
        let mut awaited: Vec<u32> = match drain {
            true => self.log.queue.state.lock().unlanded().collect(),
            false => Vec::new(),
        };
        loop {
            let (landed, start) = {
                let mut state = self.log.queue.state.lock();
                let (landed, start) = (std::mem::take(&mut state.landed), state.start());
                if landed.is_empty() && start.is_empty() {
                    // Who was to write it may be the daemon that ended, and then it never lands.
                    if awaited.is_empty() || matches!(self.log.commits.failure(), Some(Error::Daemon { .. })) {
                        return;
                    }
                    let moved = MutexGuard::unlocked(&mut state, || self.medium.device.advance());
                    if !moved && state.landed.is_empty() {
                        self.log.queue.changed.wait(&mut state);
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

    fn requests(&self, slots: Vec<u32>) -> Vec<Request> {
        slots.into_iter().filter_map(|slot| self.write_request(slot)).collect()
    }

    pub(crate) fn write_request(&self, slot: u32) -> Option<Request> {
        let guard = self.catalog.buffers.slot(slot).read();
        let Slot::Filled(filled) = &*guard else { return None };
        let bytes = filled.bytes.slice(filled.flushed..);
        let offset = self.medium.map.cluster_start(filled.cluster) + filled.flushed as u64;
        self.medium.count_write(bytes.len());
        let log = Arc::clone(&self.log);
        let done = Box::new(move |outcome: io::Result<_>| {
            let mut state = log.queue.state.lock();
            state.flying.retain(|flying| *flying != slot);
            state.landed.push((slot, outcome.map(drop)));
            let wake = state.is_worth_waking();
            drop(state);
            if wake {
                log.queue.wake_writers();
            }
        });
        Some(Request { offset, op: Op::Write(bytes), done })
    }

    /// A cluster's write has come to its end.
    pub(crate) fn landed(&self, slot: u32, outcome: io::Result<()>) {
        let bytes = self.medium.cluster_len() as u64;
        if let Err(error) = outcome {
            // Its objects stay in memory, where gets still find them; nothing more is written.
            self.log.fail("writing a cluster", error);
            return;
        }
        let (keep, tables, group, number) = match &mut *self.catalog.buffers.slot(slot).write() {
            Slot::Filled(filled) => {
                filled.written = true;
                self.catalog.buffers.set_home(slot, filled.cluster);
                let group = self.residents.group_in(&filled.bytes, &filled.rows);
                (!filled.bypass, filled.table_bytes(), group, Arc::clone(&filled.number))
            }
            _ => return,
        };
        self.log.queue.unwritten.fetch_sub(bytes, Relaxed);
        let give_back = || self.shared.buffer_bytes.fetch_sub(bytes, Relaxed);
        let resident = Resident { volume: self.medium.number, slot, bytes: bytes + tables, group, number };
        if keep && self.residents.has_room_for_residents(self.medium.cluster_len()) {
            self.shared.reserve_memory(resident.bytes, || {
                give_back();
                self.shared.cache_cluster(resident);
            });
        } else {
            self.shared.release(vec![resident]);
            give_back();
        }
        self.log.queue.wake();
    }

    /// Returns when everything done before the call is durable.
    pub(crate) fn wait_commit(&self, number: u64) -> Result<()> {
        loop {
            match self.log.commits.wait(number)? {
                Turn::Durable => return Ok(()),
                Turn::Lead(number) => {
                    let began = self.shared.clock.now_nanos();
                    let volatile = self.log.queue.volatile_puts.load(Relaxed);
                    let result = self.commit();
                    let failed = result.is_err();
                    if !failed {
                        self.space.settle(number);
                        self.log.queue.volatile_puts.fetch_sub(volatile, Relaxed);
                        self.log.journal.lock().settle();
                    }
                    let took = Duration::from_nanos(self.shared.clock.now_nanos().saturating_sub(began));
                    self.log.commits.complete(number, result, took);
                    if failed {
                        self.log.tell_others();
                    }
                    self.log.queue.wake();
                }
            }
        }
    }

    fn commit(&self) -> Result<()> {
        let turn = self.log.queue.turn.lock();
        self.log.queue.deadline.store(u64::MAX, Relaxed);
        let sealed = self.log.next_seal.load(Relaxed).saturating_sub(1);
        if let Some(in_place) = self.catalog.in_place.as_ref().filter(|_| !self.shared.has_checkpoints()) {
            return in_place.commit_untold();
        }
        self.log.note_losses()?;
        // Before anything is taken: what a commit that is refused leaves behind the next one finds.
        if !self.log.journal.lock().has_room(0) {
            return Err(self.log.refused_journal());
        }
        // Before the note: whom it has to give up is told of by this commit.
        self.packer.pack_promised(|| self.pump(&turn, true))?;
        // In place there are no pieces, and all records keep their order.
        let begun = if self.catalog.in_place.is_some() { usize::MAX } else { self.log.journal.lock().pending() };
        // Before the records are taken: whatever these leave behind is told by them, or by what is in buffers.
        let ready = self.catalog.in_place.as_ref().map(|in_place| in_place.ready_extents());
        self.placing.as_ref().map_or(Ok(()), |placing| placing.empty_lanes())?;
        let mut writes = self.gather_pieces()?;
        // With the pieces: their clusters' reservations are among the records. And before the queue is looked at: a
        // buffer that is sealed from now on is forgotten only when what is taken here is on the device.
        let Some(pages) = self.log.journal.lock().take_pages(begun, &self.shared.pool) else {
            // Nobody knows any more which pieces are on the device.
            self.log.stop(self.log.refused_journal());
            return Err(self.log.refused_journal());
        };
        writes.extend(pages.into_iter().map(|(offset, page)| (offset, page.into_bytes())));
        // After them: what they tell of is in the packet by now.
        self.catalog.in_place.as_ref().map_or(Ok(()), |in_place| in_place.flush_packet())?;
        let written = self.write_gathered(&turn, writes);
        self.pump(&turn, true);
        if let Some(failure) = self.log.commits.failure() {
            return Err(failure);
        }
        let done = written.and_then(|()| self.medium.sync());
        done.map_err(|error| self.medium.io("making puts durable", error))?;
        self.log.durable_seal.fetch_max(sealed, Relaxed);
        self.catalog.in_place.iter().zip(ready).for_each(|(in_place, ready)| in_place.settle_extents(ready));
        add(&self.shared.counters.commits, 1);
        Ok(())
    }

    /// What is new in every open buffer, as device writes. Locking each lane in turn also makes sure that
    /// whatever was being sealed is queued by now.
    pub(crate) fn gather_pieces(&self) -> Result<Vec<(u64, Bytes)>> {
        let mut writes = Vec::new();
        if self.catalog.in_place.is_some() {
            return Ok(writes);
        }
        for lane in &self.appender.lanes {
            for open in lane.lock().iter_mut() {
                writes.extend(self.take_piece(open)?);
            }
        }
        Ok(writes)
    }

    /// What is new in one open buffer; seals it if there is no room to pad.
    pub(crate) fn take_piece(&self, lane: &mut Option<u32>) -> Result<Option<(u64, Bytes)>> {
        let Some(slot) = *lane else { return Ok(None) };
        let (granted, seq, site) = match &*self.catalog.buffers.slot(slot).read() {
            Slot::Open(open) if open.is_dirty() => (open.cluster, open.seq, open.class.site()),
            _ => return Ok(None),
        };
        let cluster = match granted {
            Some(cluster) => cluster,
            None => self.log.grant(State::Busy, seq, site)?,
        };
        let piece = match &mut *self.catalog.buffers.slot(slot).write() {
            Slot::Open(open) => {
                open.cluster = Some(cluster);
                open.take_piece(self.medium.store_id, cluster, &self.shared.pool)
            }
            _ => return Ok(None),
        };
        let Some(piece) = piece else {
            self.appender.seal(lane)?;
            return Ok(None);
        };
        Ok(Some((self.medium.map.cluster_start(cluster) + piece.offset as u64, piece.bytes.into_bytes())))
    }

    /// Writes what a commit gathered and as much of what is queued as may be on its way, as one batch on this thread:
    /// the way to the ring's thread and back takes as long as a write.
    pub(crate) fn write_gathered(&self, _turn: &MutexGuard<'_, ()>, writes: Vec<(u64, Bytes)>) -> io::Result<()> {
        self.medium.count_writes(&writes);
        let queued = self.log.queue.state.lock().start();
        picaflor_device::write_beside(self.medium.device.as_ref(), writes, self.requests(queued))
    }
}
