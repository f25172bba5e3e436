//! Flush: the only writer of object data.
//!
//! The holder of the writer's turn takes sealed buffers from the queue and hands them to the device, a few at a time
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
use picaflor_common::{Turn, panics};
use picaflor_device::{Op, Request};

use crate::{
    Error, Result, base::stats::add, cache::buffers::Slot, cache::memory::Resident, read::parts::Parts, space::State,
    write::append::Appender, write::packing::Packer,
};

pub(crate) struct Committer {
    parts: Parts,
    pub(crate) appender: Arc<Appender>,
    pub(crate) packer: Arc<Packer>,
}

impl Committer {
    pub(crate) fn new(parts: &Parts, packer: &Arc<Packer>) -> Self {
        let (packer, appender) = (Arc::clone(packer), Arc::clone(&packer.appender));
        Self { parts: parts.clone(), appender, packer }
    }

    /// Writes what is queued. With `drain`, returns only when what was queued at the call is on the device.
    pub(crate) fn write_queued(&self, drain: bool) {
        let turn = self.parts.log.queue.turn.lock();
        self.pump(&turn, drain);
    }

    fn pump(&self, _turn: &MutexGuard<'_, ()>, drain: bool) {
        // Not what is queued meanwhile: puts may fill buffers as fast as they are written, for ever.
        let mut awaited: Vec<u32> = match drain {
            true => self.parts.log.queue.state.lock().unlanded().collect(),
            false => Vec::new(),
        };
        loop {
            let (landed, start) = {
                let mut state = self.parts.log.queue.state.lock();
                let (landed, start) = (std::mem::take(&mut state.landed), state.start());
                if landed.is_empty() && start.is_empty() {
                    // The daemon that was to write it may have ended, and then it never lands.
                    if awaited.is_empty() || matches!(self.parts.log.commits.failure(), Some(Error::Daemon { .. })) {
                        return;
                    }
                    let moved = MutexGuard::unlocked(&mut state, || self.parts.medium.device.advance());
                    if !moved && state.landed.is_empty() {
                        self.parts.log.queue.changed.wait(&mut state);
                    }
                    continue;
                }
                (landed, start)
            };
            if !start.is_empty() {
                self.parts.medium.device.submit(self.requests(start));
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
        let guard = self.parts.catalog.buffers.slot(slot).read();
        let Slot::Filled(filled) = &*guard else { return None };
        let bytes = filled.bytes.slice(filled.flushed..);
        let offset = self.parts.medium.map().cluster_start(filled.cluster) + filled.flushed as u64;
        self.parts.medium.count_write(bytes.len());
        let log = Arc::clone(&self.parts.log);
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
        let bytes = self.parts.medium.cluster_len() as u64;
        if let Err(error) = outcome {
            // Its objects stay in memory, where gets still find them; nothing more is written.
            self.parts.log.fail("writing a cluster", error);
            return;
        }
        let (keep, tables, group, number) = match &mut *self.parts.catalog.buffers.slot(slot).write() {
            Slot::Filled(filled) => {
                filled.written = true;
                self.parts.catalog.buffers.set_home(slot, filled.cluster);
                let group = self.parts.residents.group_in(&filled.bytes, &filled.rows);
                (!filled.bypass, filled.table_bytes(), group, Arc::clone(&filled.number))
            }
            _ => return,
        };
        self.parts.log.queue.unwritten.fetch_sub(bytes, Relaxed);
        let give_back = || self.parts.shared.buffer_bytes.fetch_sub(bytes, Relaxed);
        let resident = Resident { volume: self.parts.medium.number, slot, bytes: bytes + tables, group, number };
        if keep && self.parts.residents.has_room_for_residents(self.parts.medium.cluster_len()) {
            self.parts.shared.reserve_memory(resident.bytes, || {
                give_back();
                self.parts.shared.cache_cluster(resident);
            });
        } else {
            self.parts.shared.release(vec![resident]);
            give_back();
        }
        self.parts.log.queue.wake();
    }

    /// Returns when everything done before the call is durable.
    pub(crate) fn wait_commit(&self, number: u64) -> Result<()> {
        loop {
            match self.parts.log.commits.wait(number)? {
                Turn::Durable => return Ok(()),
                Turn::Lead(number) => {
                    let began = self.parts.shared.clock.now_nanos();
                    let volatile = self.parts.log.queue.volatile_puts.load(Relaxed);
                    let result = panics::for_others("commit", || self.commit(), |daemon, why| self.ended(daemon, why));
                    let failed = result.is_err();
                    if !failed {
                        self.parts.space.settle(number);
                        self.parts.log.queue.volatile_puts.fetch_sub(volatile, Relaxed);
                        self.parts.log.journal.lock().settle();
                    }
                    let took = Duration::from_nanos(self.parts.shared.clock.now_nanos().saturating_sub(began));
                    self.parts.log.commits.complete(number, result, took);
                    if failed {
                        self.parts.log.tell_others();
                    }
                    self.parts.log.queue.wake();
                }
            }
        }
    }

    /// The thread that committed for others panicked: in this crate, or in a device of the caller's own.
    fn ended(&self, daemon: &'static str, why: String) {
        self.parts.log.stop(Error::Daemon { place: self.parts.medium.place.clone(), daemon, why });
    }

    fn commit(&self) -> Result<()> {
        let turn = self.parts.log.queue.turn.lock();
        self.parts.log.queue.deadline.store(u64::MAX, Relaxed);
        let sealed = self.parts.log.next_seal.load(Relaxed).saturating_sub(1);
        let places = self.parts.catalog.places.as_ref();
        if let Some(places) = places.filter(|_| !self.parts.shared.has_checkpoints()) {
            places.commit_untold()?;
            add(&self.parts.shared.counters.commits, 1);
            return Ok(());
        }
        self.parts.log.note_losses()?;
        // Before anything is taken: what a commit that is refused leaves behind the next one finds.
        if !self.parts.log.journal.lock().has_room(0) {
            return Err(self.parts.log.refused_journal());
        }
        // Before the note: this commit tells of what it has to give up.
        self.packer.pack_promised(|| self.pump(&turn, true))?;
        // Where objects have places there are no pieces, and all records keep their order.
        let begun = if places.is_some() { usize::MAX } else { self.parts.log.journal.lock().pending() };
        // Before the records are taken: whatever left is told by them.
        let settle = places.map(|places| places.begin_commit(&self.parts)).transpose()?;
        let mut writes = self.gather_pieces()?;
        // With the pieces: their clusters' reservations are among the records. And before the queue is looked at: a
        // buffer that is sealed from now on is forgotten only when what is taken here is on the device.
        let Some(pages) = self.parts.log.journal.lock().take_pages(begun, &self.parts.shared.pool) else {
            // Which pieces are on the device is not known any more.
            self.parts.log.stop(self.parts.log.refused_journal());
            return Err(self.parts.log.refused_journal());
        };
        writes.extend(pages.into_iter().map(|(offset, page)| (offset, page.into_bytes())));
        // After them: what they tell of is held by now.
        places.map_or(Ok(()), |places| places.write_held())?;
        let written = self.write_gathered(&turn, writes);
        self.pump(&turn, true);
        if let Some(failure) = self.parts.log.commits.failure() {
            return Err(failure);
        }
        let done = written.and_then(|()| self.parts.medium.sync());
        done.map_err(|error| self.parts.medium.io("making puts durable", error))?;
        self.parts.log.durable_seal.fetch_max(sealed, Relaxed);
        if let Some(settle) = settle {
            settle();
        }
        add(&self.parts.shared.counters.commits, 1);
        Ok(())
    }

    /// What is new in every open buffer, as device writes. Locking each lane in turn also makes sure that
    /// whatever was being sealed is queued by now.
    pub(crate) fn gather_pieces(&self) -> Result<Vec<(u64, Bytes)>> {
        let mut writes = Vec::new();
        for lane in self.appender.all_lanes() {
            for open in lane.lock().iter_mut() {
                writes.extend(self.take_piece(open)?);
            }
        }
        Ok(writes)
    }

    /// What is new in one open buffer; seals it if there is no room to pad.
    pub(crate) fn take_piece(&self, lane: &mut Option<u32>) -> Result<Option<(u64, Bytes)>> {
        let Some(slot) = *lane else { return Ok(None) };
        let (granted, seq, site) = match &*self.parts.catalog.buffers.slot(slot).read() {
            Slot::Open(open) if open.is_dirty() => (open.cluster, open.seq, open.class.site()),
            _ => return Ok(None),
        };
        let cluster = match granted {
            Some(cluster) => cluster,
            None => self.parts.log.grant(State::Busy, seq, site)?,
        };
        let piece = match &mut *self.parts.catalog.buffers.slot(slot).write() {
            Slot::Open(open) => {
                open.cluster = Some(cluster);
                open.take_piece(self.parts.medium.store_id, cluster, &self.parts.shared.pool)
            }
            _ => return Ok(None),
        };
        let Some(piece) = piece else {
            self.appender.seal(lane)?;
            return Ok(None);
        };
        Ok(Some((self.parts.medium.map().cluster_start(cluster) + piece.offset as u64, piece.bytes.into_bytes())))
    }

    /// Writes what a commit gathered and as much of what is queued as may be on its way, as one batch on this thread:
    /// the way to the ring's thread and back takes as long as a write.
    pub(crate) fn write_gathered(&self, _turn: &MutexGuard<'_, ()>, writes: Vec<(u64, Bytes)>) -> io::Result<()> {
        self.parts.medium.count_writes(&writes);
        let queued = self.parts.log.queue.state.lock().start();
        picaflor_device::write_beside(self.parts.medium.device.as_ref(), writes, self.requests(queued))
    }
}
