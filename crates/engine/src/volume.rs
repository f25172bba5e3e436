//! A volume: one device with its index, space, buffers and journal. The verbs are in files of their own.
//!
//! Lock order, outermost first: key stripe → writer's turn (`write/flush.rs`) → lane → slot →
//! index segment → space, journals in the order of the volumes. Nobody waits for a device while holding a lane or
//! anything below.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicBool, AtomicU16, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::{Mutex, MutexGuard};
use picaflor_device::{BufPool, Clock};
use picaflor_format::{
    cluster::Row,
    frame::{GRAIN, Header},
    zone::SLOT,
};

use crate::{
    Departure, Mode, Options, Result,
    background::eviction::Budget,
    background::reclaim::Reclaimer,
    background::scrub::Scrubber,
    base::frame::Frame,
    base::group::{Groups, Priority},
    base::medium::Medium,
    base::policy::Eviction,
    base::preset::Preset,
    base::stats::{Counters, VolumeStats, add},
    cache::buffers::Buffers,
    cache::cluster_contents::{ClusterContents, Content},
    cache::leases::Leases,
    cache::memory::{Memory, Resident},
    cache::pages::Divisions,
    in_place::place::InPlace,
    index::{Index, IndexEntry, Location},
    log::checkpoint::Checkpointer,
    log::known::Known,
    log::recorder::Log,
    read::reading::Reader,
    space::{Space, State},
    write::append::Lane,
    write::flush::Writer,
    write::placement::{PAIR_BYTES, PAIRS_MAX, Placer},
};

/// What all volumes of a store have in common.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) preset: Preset,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) memory: Memory,
    pub(crate) groups: Groups,
    pub(crate) pool: BufPool,
    pub(crate) budget: Budget,
    /// Bytes of all indexes, and of the tables that have a row for every cluster.
    pub(crate) index_bytes: Arc<AtomicU64>,
    /// Most that `index_bytes` may be: what buffers and overhead leave.
    pub(crate) index_max: u64,
    /// Bytes of buffers that are open or in flight.
    pub(crate) buffer_bytes: AtomicU64,
    /// Bytes that are about to be taken; see [`Shared::reserve_memory`].
    pub(crate) claimed: AtomicU64,
    /// Memory that everything but index, buffers and tier may take: idle buffers, hints, reads in flight.
    pub(crate) overhead: u64,
    /// The last generation given out.
    pub(crate) generation: AtomicU64,
    /// When a get last needed the device, in clock nanoseconds: background work keeps out of its way.
    pub(crate) last_read: AtomicU64,
    pub(crate) volumes: OnceLock<Vec<Weak<Volume>>>,
    pub(crate) leases: Arc<Leases>,
    /// Puts, deletes and reinsertions of one key follow each other.
    pub(crate) stripes: Box<[Mutex<()>]>,
}

/// Number of key stripes.
pub(crate) const STRIPES: usize = 1024;

impl Shared {
    /// Bytes that the memory tier may hold now.
    pub(crate) fn tier_budget(&self) -> u64 {
        let accounts = [&self.index_bytes, &self.buffer_bytes, &self.claimed];
        let taken: u64 = accounts.iter().map(|account| account.load(Relaxed)).sum();
        self.options.memory.saturating_sub(taken + self.overhead)
    }

    /// Brings the memory tier back under its budget.
    pub(crate) fn shrink_memory(&self) {
        self.release(self.memory.shrink(self.tier_budget()));
    }

    /// Gives back to the system what objects that left memory were in, where that is much: an allocator keeps it, and
    /// neither the index nor clusters grow into it. Not before `next`, in clock nanoseconds, which moves on: at most
    /// ten times a second, and for a twentieth of the time.
    pub(crate) fn give_back_freed(&self, next: &mut u64) {
        let now = self.clock.now_nanos();
        if now < *next {
            return;
        }
        if self.memory.has_lost((self.options.memory / 128).max(512 << 10)) {
            picaflor_device::give_back_freed();
        }
        let took = self.clock.now_nanos() - now;
        *next = now + (20 * took).max(100_000_000);
    }

    /// Takes memory: room for these bytes is made first, so that the cap holds at every moment. `take` adds
    /// them to their account.
    pub(crate) fn reserve_memory<T>(&self, bytes: u64, take: impl FnOnce() -> T) -> T {
        self.claimed.fetch_add(bytes, Relaxed);
        self.shrink_memory();
        let taken = take();
        self.claimed.fetch_sub(bytes, Relaxed);
        taken
    }

    /// Lets an object stay in memory, if `current` says that it is the one to be found.
    pub(crate) fn cache_object(&self, frame: &Arc<Frame>, current: impl FnOnce() -> bool) {
        let charge = frame.charge();
        let priority = self.groups.priority(frame.header.group);
        // Where memory holds clusters, only who is loved outlives its own.
        let alone = !self.memory.holds_clusters() || priority == Priority::Loved && self.memory.holds_loved();
        // What is larger than a tenth of the tier would push out more than it is worth.
        if alone && charge <= self.tier_budget() / 10 {
            self.reserve_memory(charge, || self.memory.insert(frame, priority, current));
        }
    }

    /// Lets a cluster stay in memory, as its group wants.
    pub(crate) fn cache_cluster(&self, resident: Resident) {
        let priority = self.groups.priority(resident.group);
        self.memory.retain(resident, priority);
    }

    /// Retires clusters that are to leave memory. Loved objects in them stay behind, one by one.
    pub(crate) fn release(&self, mut clusters: Vec<Resident>) {
        while let Some(Resident { volume, slot, .. }) = clusters.pop() {
            let volumes = self.volumes.get().map_or(&[][..], |volumes| volumes);
            let Some(volume) = volumes.get(volume).and_then(Weak::upgrade) else { continue };
            for (row, frame) in volume.loved_in(slot) {
                self.claimed.fetch_add(frame.charge(), Relaxed);
                clusters.extend(self.memory.shrink(self.tier_budget()));
                let current = || volume.entry_in_slot(slot, &row).is_some();
                self.memory.insert(&frame, Priority::Loved, current);
                self.claimed.fetch_sub(frame.charge(), Relaxed);
            }
            volume.retire(slot);
        }
    }

    /// Hints, and copies, that each volume may remember: half of the overhead that is not idle buffers.
    pub(crate) fn hints_max(&self) -> usize {
        let each = self.options.memory / 32 / 2 / self.options.places.len() as u64 / 2 / PAIR_BYTES;
        (each as usize).clamp(16, PAIRS_MAX)
    }

    pub(crate) fn lock_key(&self, hash: u64) -> MutexGuard<'_, ()> {
        self.stripes[hash as usize % STRIPES].lock()
    }

    /// Locks all of these keys. Nobody who does so holds another already, so nobody waits for ever.
    pub(crate) fn lock_keys(&self, hashes: impl Iterator<Item = u64>) -> Vec<MutexGuard<'_, ()>> {
        let stripes: BTreeSet<usize> = hashes.map(|hash| hash as usize % STRIPES).collect();
        stripes.into_iter().map(|stripe| self.stripes[stripe].lock()).collect()
    }

    pub(crate) fn try_lock_key(&self, hash: u64) -> Option<MutexGuard<'_, ()>> {
        self.stripes[hash as usize % STRIPES].try_lock()
    }

    /// The second that it is on the store's clock.
    pub(crate) fn second(&self) -> u32 {
        (self.clock.now_nanos() / 1_000_000_000) as u32
    }

    pub(crate) fn next_generation(&self) -> u64 {
        self.generation.fetch_add(1, Relaxed) + 1
    }

    /// Tells the listener, if there is one. If that panics, the daemon that called it goes on: puts wait for it.
    pub(crate) fn note_departure(&self, key: &[u8], why: Departure) {
        if let Some(listener) = &self.options.eviction_listener
            && catch_unwind(AssertUnwindSafe(|| listener(key, why))).is_err()
        {
            add(&self.counters.listener_panics, 1);
        }
    }

    /// Whether the index has taken this part of what it may, in eighths.
    pub(crate) fn index_is_above(&self, eighths: u64) -> bool {
        self.index_bytes.load(Relaxed) > self.index_max / 8 * eighths
    }
}

pub(crate) struct Volume {
    pub(crate) medium: Arc<Medium>,
    pub(crate) log: Log,
    pub(crate) index: Index,
    /// The clusters: of objects, or, where these lie in place, of checkpoints only.
    pub(crate) space: Arc<Space>,
    /// For layouts that place objects one by one.
    pub(crate) in_place: Option<Box<InPlace>>,
    pub(crate) placer: Placer,
    /// Slots of each lane's open buffers.
    pub(crate) lanes: Box<[Mutex<Lane>]>,
    pub(crate) buffers: Buffers,
    pub(crate) writer: Writer,
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
    pub(crate) divisions: Divisions,
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
            self.remove_if_careless(in_place);
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

    /// Copies of the loved objects that live in this slot and in no other part of memory.
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

    /// The buffer's cluster is on the device: index entries go from memory to there, and the slot is free.
    pub(crate) fn retire(&self, slot: u32) {
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

    /// Before a commit of a cache vouches for anything, the superblock says which of its other devices failed: such a
    /// device may be back at the next opening, and knows neither what was deleted since nor what was to become durable.
    pub(crate) fn note_losses(&self) -> Result<()> {
        if self.shared.options.places.len() < 2 || self.shared.options.mode == Mode::Store {
            return Ok(());
        }
        let broken: Vec<_> = self.others().filter(|volume| volume.log.commits.is_broken()).collect();
        let lost = broken.iter().fold(0, |lost, volume| lost | 1 << volume.medium.number);
        let known = self.log.superblock().lost;
        if lost & !known != 0 {
            self.log.write_superblock(|block| block.lost |= lost)?;
        }
        broken.iter().for_each(|volume| volume.loss_noted.store(true, Relaxed));
        Ok(())
    }

    /// The other volumes of this store.
    fn others(&self) -> impl Iterator<Item = Arc<Self>> {
        let volumes = self.shared.volumes.get().map_or(&[][..], |volumes| volumes);
        volumes.iter().filter_map(Weak::upgrade).filter(|volume| volume.medium.number != self.medium.number)
    }

    /// This volume failed: the others commit soon, and with that note it.
    pub(crate) fn tell_others(&self) {
        self.others().for_each(|volume| volume.due_within(Duration::ZERO));
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
        let index = || self.index.image_bytes() + self.divisions.image_bytes();
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
