//! A volume: one device, and the parts that work on it. Each part owns its state and knows those below it;
//! `recovery/build.rs` puts them together.
//!
//! From the ground up: the medium (bytes of the device), log, space, catalog (which object lies where), residents
//! (clusters in memory), frames (read and verified) → appender, packer → committer → checkpointer → reclaimer → room,
//! where these two meet; beside them batches of reads and the scrubber.
//!
//! Lock order, outermost first: the reclaimer's turn → the checkpointer's state → key stripe → writer's turn → lane →
//! slot, or what replaced objects in it → index segment → space, journals in the order of the volumes. No thread waits
//! for a device while it holds a lane or anything below.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use picaflor_format::{cluster::Row, frame::GRAIN};

use crate::{
    Error, Result,
    background::room::Room,
    background::scrub::Scrubber,
    base::blocked::{Blocked, Purpose},
    base::frame::Draft,
    base::frame::Frame,
    base::medium::Medium,
    base::places::Fill,
    base::stats::VolumeStats,
    cache::catalog::Catalog,
    cache::residents::Residents,
    index::IndexEntry,
    log::checkpoint::Checkpointer,
    log::recorder::Log,
    read::batch::ReadBatch,
    read::parts::Parts,
    read::verify::Frames,
    shared::{Member, Shared},
    space::Space,
    write::append::Appender,
    write::flush::Committer,
    write::packing::Packer,
    write::placement::Class,
};

pub(crate) struct Volume {
    pub(crate) medium: Arc<Medium>,
    pub(crate) log: Arc<Log>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) residents: Arc<Residents>,
    pub(crate) frames: Arc<Frames>,
    pub(crate) appender: Arc<Appender>,
    pub(crate) packer: Arc<Packer>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) space: Arc<Space>,
    pub(crate) checkpointer: Arc<Checkpointer>,
    pub(crate) room: Arc<Room>,
    pub(crate) batch: ReadBatch,
    pub(crate) scrubber: Scrubber,
    /// This device failed, and another one of the cache says so durably.
    pub(crate) loss_noted: AtomicBool,
    pub(crate) shared: Arc<Shared>,
}

impl Volume {
    /// The parts that all others stand on.
    pub(crate) fn parts(&self) -> &Parts {
        &self.appender.parts
    }

    /// Frames an object into an open buffer and enters it in the index, in place of `old`; or lets it wait, or places
    /// it, where that is how its layout has it. The outer result is the device's; the inner one says whether there was
    /// room and `old` was still there.
    pub(crate) fn append(
        self: &Arc<Self>,
        draft: &Draft<'_>,
        class: Class,
        beside: Option<u64>,
        old: Option<IndexEntry>,
        purpose: Purpose,
    ) -> Result<Result<(), Blocked>> {
        if let Some(failure) = self.log.commits.failure() {
            return Err(failure);
        }
        if let Some(places) = &self.catalog.places {
            return places.put(self.parts(), draft, class != Class::Bypass, old);
        }
        if let Some(staging) = self.packer.waits(draft, class, purpose) {
            return Ok(self.packer.stage(staging, draft, class, old));
        }
        self.appender.append(draft, class, beside, old, purpose)
    }

    /// Seals and writes everything, takes a checkpoint, takes no more puts, and says that this was a close.
    pub(crate) fn close(self: &Arc<Self>) -> Result<()> {
        if let Some(failure) = self.log.commits.failure() {
            return if matches!(failure, Error::Closed) { Ok(()) } else { Err(failure) };
        }
        if self.catalog.waiting().count() > 0 {
            self.room.promise_waiting()?;
            self.room.wait_commit_in_time(self.log.commits.next())?;
        }
        self.appender.seal_all()?;
        // What is under way began earlier and does not cover all there is.
        if self.checkpointer.is_running() {
            self.room.checkpoint_now()?;
        }
        // The grants of what was just sealed come before the checkpoint: the next opening finds nothing to scan.
        self.committer.wait_commit(self.log.commits.next())?;
        self.room.checkpoint_now()?;
        if self.scrubber.known.crashed {
            self.checkpointer.outlive_doubt()?;
        }
        // Nothing is placed between what is made durable last and the end of writing.
        let _turn = self.catalog.places.as_ref().map(|places| places.turn());
        self.catalog.places.as_ref().map_or(Ok(()), |places| places.close())?;
        self.log.commits.fail(Error::Closed);
        if self.log.superblock().running {
            self.log.write_superblock(|block| block.running = false)?;
        }
        Ok(())
    }

    pub(crate) fn stats(&self) -> VolumeStats {
        let on_ring = || {
            let live: u64 = (0..self.space.count()).map(|id| u64::from(self.space.live.grains(id))).sum();
            Fill { live: live * GRAIN as u64, free: 0, room: self.medium.map().clusters.len }
        };
        let fill = self.catalog.places.as_ref().map_or_else(on_ring, |places| places.fill());
        VolumeStats {
            place: self.medium.place.clone(),
            backend: self.medium.device.backend(),
            clusters: self.space.count(),
            clusters_free: self.space.available(),
            clusters_aside: self.space.victims().aside(),
            live_bytes: fill.live,
            room_bytes: fill.room,
            journal_pages: self.log.journal.lock().pages(),
            failed: self.log.commits.failure().map(|why| why.to_string()),
        }
    }
}

impl Member for Volume {
    fn loved_in(&self, slot: u32) -> Vec<(Row, Arc<Frame>)> {
        self.residents.loved_in(slot)
    }

    fn retire(&self, slot: u32) {
        self.residents.retire(slot);
    }

    fn is_in_slot(&self, slot: u32, row: &Row) -> bool {
        self.catalog.entry_in_slot(slot, row).is_some()
    }

    fn is_broken(&self) -> bool {
        self.log.commits.is_broken()
    }

    fn commit_soon(&self) {
        self.log.due_within(Duration::ZERO);
    }

    fn loss_is_noted(&self) {
        self.loss_noted.store(true, Relaxed);
    }
}
