//! A volume: one device with its index, space, buffers and journal. The verbs are in files of their own.
//!
//! Lock order, outermost first: key stripe → writer's turn (`write/flush.rs`) → lane → slot →
//! index segment → space, journals in the order of the volumes. Nobody waits for a device while holding a lane or
//! anything below.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use picaflor_format::{cluster::Row, frame::GRAIN, zone::SLOT};

use crate::{
    background::reclaim::Reclaimer,
    background::scrub::Scrubber,
    base::frame::Frame,
    base::medium::Medium,
    base::policy::Eviction,
    base::stats::VolumeStats,
    cache::catalog::Catalog,
    cache::residents::Residents,
    log::checkpoint::Checkpointer,
    log::known::Known,
    log::recorder::Log,
    shared::{Member, Shared},
    space::Space,
    write::append::Lane,
};

pub(crate) struct Volume {
    pub(crate) medium: Arc<Medium>,
    pub(crate) log: Arc<Log>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) residents: Arc<Residents>,
    pub(crate) space: Arc<Space>,
    /// Slots of each lane's open buffers.
    pub(crate) lanes: Box<[Mutex<Lane>]>,
    pub(crate) checkpointer: Mutex<Checkpointer>,
    /// Clusters that checkpoints hold now.
    pub(crate) checkpoint_held: AtomicU32,
    pub(crate) reclaimer: Reclaimer,
    pub(crate) scrubber: Scrubber,
    /// What its opening knew of.
    pub(crate) known: Known,
    /// Large objects being put: their chunks have no manifest yet.
    pub(crate) streams_open: AtomicU32,
    /// This device failed, and another one of the cache says so durably.
    pub(crate) loss_noted: AtomicBool,
    pub(crate) shared: Arc<Shared>,
}

impl Volume {
    pub(crate) fn eviction(&self) -> Eviction {
        self.shared.preset.eviction(self.shared.options.mode)
    }

    /// Clusters kept free for checkpoints: two are held, and a third is there before the oldest goes.
    pub(crate) fn checkpoint_reserve(&self) -> u32 {
        let own = self.checkpoint_clusters();
        (3 * own).saturating_sub(self.checkpoint_held.load(Relaxed)).max(own)
    }

    /// Clusters that one checkpoint may need.
    pub(crate) fn checkpoint_clusters(&self) -> u32 {
        let room = picaflor_format::checkpoint::room(self.medium.cluster_len()) as u64;
        // An eighth more for what is put while it is being taken.
        let parts = self.image_bytes() / room;
        (parts + parts / 8) as u32 + 2
    }

    /// Bytes of what a checkpoint keeps of the index.
    fn image_bytes(&self) -> u64 {
        let index = || self.catalog.index.image_bytes() + self.residents.pages.image_bytes();
        self.catalog.in_place.as_ref().map_or_else(index, |in_place| in_place.extents.image_bytes())
    }

    pub(crate) fn stats(&self) -> VolumeStats {
        let (live, room) = match &self.catalog.in_place {
            Some(in_place) => {
                (in_place.extents.slots().2 * (SLOT / GRAIN as u64), u64::from(in_place.extents.count()) * SLOT)
            }
            None => {
                ((0..self.space.count()).map(|id| u64::from(self.space.live(id))).sum(), self.medium.map.clusters.len)
            }
        };
        VolumeStats {
            place: self.medium.place.clone(),
            backend: self.medium.device.backend(),
            clusters: self.space.count(),
            clusters_free: self.space.available(),
            clusters_aside: self.space.aside(),
            live_bytes: live * GRAIN as u64,
            room_bytes: room,
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
