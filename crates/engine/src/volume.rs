//! A volume: one device with its index, space, buffers and journal. The verbs are in files of their own.
//!
//! Lock order, outermost first: key stripe → writer's turn (`write/flush.rs`) → lane → slot →
//! index segment → space, journals in the order of the volumes. Nobody waits for a device while holding a lane or
//! anything below.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU16, AtomicU32, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::Mutex;
use picaflor_format::{
    cluster::Row,
    frame::{GRAIN, Header},
    zone::SLOT,
};

use crate::{
    Mode,
    background::reclaim::Reclaimer,
    background::scrub::Scrubber,
    base::frame::Frame,
    base::group::Priority,
    base::medium::Medium,
    base::policy::Eviction,
    base::stats::{VolumeStats, add},
    cache::buffers::Buffers,
    cache::cluster_contents::{ClusterContents, Content},
    cache::pages::Pages,
    in_place::place::InPlace,
    index::{Index, IndexEntry, Location},
    log::checkpoint::Checkpointer,
    log::known::Known,
    log::recorder::Log,
    read::reading::Reader,
    shared::{Member, Shared},
    space::{Space, State},
    write::append::Lane,
    write::placement::Placer,
};

pub(crate) struct Volume {
    pub(crate) medium: Arc<Medium>,
    pub(crate) log: Arc<Log>,
    pub(crate) index: Index,
    /// The clusters: of objects, or, where these lie in place, of checkpoints only.
    pub(crate) space: Arc<Space>,
    /// For layouts that place objects one by one.
    pub(crate) in_place: Option<Arc<InPlace>>,
    pub(crate) placer: Placer,
    /// Slots of each lane's open buffers.
    pub(crate) lanes: Box<[Mutex<Lane>]>,
    pub(crate) buffers: Buffers,
    pub(crate) checkpointer: Mutex<Checkpointer>,
    /// Clusters that checkpoints hold now.
    pub(crate) checkpoint_held: AtomicU32,
    pub(crate) reader: Reader,
    pub(crate) reclaimer: Reclaimer,
    /// What lies in clusters that left memory, where nothing else is asked of who leaves the device.
    pub(crate) listed: Option<ClusterContents>,
    pub(crate) scrubber: Scrubber,
    /// What its opening knew of.
    pub(crate) known: Known,
    /// Class of the objects in each cluster.
    pub(crate) classes: Box<[AtomicU16]>,
    /// Pages that clusters are divided into.
    pub(crate) pages: Pages,
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

    /// Takes an entry out of the accounts of its cluster.
    pub(crate) fn forget_live(&self, entry: IndexEntry) {
        let grain = match entry.location() {
            Location::OnDisk { grain } => grain,
            Location::Buffered { slot, .. } => return self.unstage(slot),
        };
        if let Some(in_place) = &self.in_place {
            in_place.extents.release(InPlace::slot_of(grain));
            in_place.remove_if_careless();
        } else if let Some(cluster) = self.medium.cluster_of(grain) {
            self.space.sub_live(cluster, entry.grains());
        }
    }

    /// Removes an entry from the index and the accounts. The caller has made sure that it is the key's.
    pub(crate) fn drop_entry(&self, hash: u64, entry: IndexEntry) -> bool {
        let removed = self.index.remove(hash, entry);
        if let Some(entry) = removed {
            self.forget_live(entry);
            self.placer.drop_copies(hash);
            self.placer.drop_hints(hash);
            self.shared.memory.remove(hash);
        }
        removed.is_some()
    }

    /// A key has a new entry, in place of `old` if that is given: what it replaced leaves the accounts and memory.
    pub(crate) fn replaced(&self, hash: u64, old: Option<IndexEntry>) {
        if let Some(old) = old {
            self.forget_live(old);
        }
        // In a cache an older version may be in memory though its entry went to another key of its place.
        if old.is_some() || self.shared.options.mode == Mode::Cache {
            self.placer.drop_copies(hash);
            self.shared.memory.remove(hash);
        }
    }

    /// The entry that a row of this slot has in the index, if it still has one.
    pub(crate) fn entry_in_slot(&self, slot: u32, row: &Row) -> Option<IndexEntry> {
        self.index.find(row.hash, Location::Buffered { slot, offset: row.offset / GRAIN as u32 })
    }

    /// Something in a cluster is asked for, or it leaves memory.
    fn note_age(&self, cluster: u32) {
        if self.shared.options.cluster_age.is_by_use() {
            self.space.note_second(cluster, self.shared.second());
        }
    }

    /// The device is asked to read at this grain.
    pub(crate) fn note_access(&self, grain: u64) {
        if self.in_place.is_none()
            && let Some(cluster) = self.medium.cluster_of(grain)
        {
            self.space.note_access(cluster);
            self.note_age(cluster);
        }
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

    /// Whether more objects mean more memory for where they lie.
    pub(crate) fn is_loaded(&self) -> bool {
        self.in_place.as_ref().map_or_else(|| self.index.is_loaded(), |in_place| in_place.extents.is_loaded())
    }

    /// Bytes of what a checkpoint keeps of the index.
    fn image_bytes(&self) -> u64 {
        let index = || self.index.image_bytes() + self.pages.image_bytes();
        self.in_place.as_ref().map_or_else(index, |in_place| in_place.extents.image_bytes())
    }

    pub(crate) fn stats(&self) -> VolumeStats {
        let (live, room) = match &self.in_place {
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
        if !self.shared.memory.holds_loved() || !self.shared.groups.any_loved() {
            return Vec::new();
        }
        let rows = match &*self.buffers.slot(slot).read() {
            crate::cache::buffers::Slot::Filled(filled) if !filled.bypass => filled.rows.clone(),
            _ => return Vec::new(),
        };
        let most = self.shared.tier_budget() / 10;
        let loved = |row: Row| {
            self.entry_in_slot(slot, &row)?;
            let is_loved = |header: &Header, _: &[u8]| self.shared.groups.priority(header.group) == Priority::Loved;
            let frame = self.buffers.read(slot, row.offset as usize, row.hash, is_loved)?;
            let new = frame.charge() <= most && self.shared.memory.peek(row.hash).is_none();
            new.then(|| (row, Arc::new(frame)))
        };
        rows.into_iter().filter_map(loved).collect()
    }

    fn retire(&self, slot: u32) {
        let (rows, cluster, learn, number, page) = match &*self.buffers.slot(slot).read() {
            crate::cache::buffers::Slot::Filled(filled) => {
                let served = filled.served.load(Relaxed);
                let learn = filled.read_in.then_some((filled.class, served));
                (filled.rows.clone(), filled.cluster, learn, filled.number.load(Relaxed), filled.page)
            }
            _ => return,
        };
        self.space.note_use(cluster, number);
        self.note_age(cluster);
        let lists = self.listed.as_ref().filter(|_| !self.shared.index_is_above(6));
        let (mut list, mut bytes, mut grains) = (Vec::new(), 0, 0);
        for row in &rows {
            let Some(entry) = self.entry_in_slot(slot, row) else { continue };
            bytes += row.taken();
            grains += u64::from(entry.grains());
            list.extend(lists.map(|_| Content { hash: row.hash, offset: row.offset }));
            let home = Location::OnDisk { grain: self.medium.grain(cluster, row.offset) };
            // Accounted before it can be seen: whoever replaces it subtracts.
            self.space.add_live(cluster, entry.grains());
            if self.index.change(row.hash, entry, |entry| entry.at(home)).is_none() {
                self.space.sub_live(cluster, entry.grains());
            }
        }
        self.space.weigh(cluster, bytes, grains);
        if let Some(listed) = lists {
            listed.set(cluster, list);
        }
        if let Some((class, served)) = learn {
            // The object that was asked for is no neighbour.
            let neighbours = served.saturating_sub(1);
            add(&self.shared.counters.neighbours_used, neighbours.into());
            self.reader.paid(class, neighbours);
        }
        match page {
            Some((page, _)) => self.space.release_page(cluster, page),
            None => drop(self.space.shift(cluster, State::Busy, State::Sealed)),
        }
        self.buffers.vacate(slot);
    }

    fn is_in_slot(&self, slot: u32, row: &Row) -> bool {
        self.entry_in_slot(slot, row).is_some()
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
