//! What all volumes of a store have in common: options, clock, counters, memory, groups, the locks of keys. It knows
//! volumes as [`Member`]s only.

use std::{
    collections::BTreeSet,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, MutexGuard};
use picaflor_device::{BufPool, Clock};
use picaflor_format::cluster::Row;

use crate::{
    Departure, Options,
    background::eviction::Budget,
    base::beside::Beside,
    base::frame::Frame,
    base::group::{Groups, Priority},
    base::pinned::Pins,
    base::policy::{Eviction, Persistence},
    base::preset::Preset,
    base::stats::{Counters, add},
    cache::leases::Leases,
    cache::memory::{Memory, Resident},
    write::placement::{PAIR_BYTES, PAIRS_MAX},
};

/// What the volumes of a store ask of each other, and memory of the volume whose clusters it holds.
pub(crate) trait Member: Send + Sync {
    /// Copies of the loved objects that live in this slot and in no other part of memory.
    fn loved_in(&self, slot: u32) -> Vec<(Row, Arc<Frame>)>;
    /// Whether the index still leads to this row of a slot.
    fn is_in_slot(&self, slot: u32, row: &Row) -> bool;
    /// The cluster in this slot leaves memory: its objects are found on the device from now on.
    fn retire(&self, slot: u32);
    /// Whether its device failed.
    fn is_broken(&self) -> bool;
    /// A commit is due now.
    fn commit_soon(&self);
    /// Its superblock says durably which others failed.
    fn loss_is_noted(&self);
}

/// What all volumes of a store have in common.
pub(crate) struct Shared {
    pub(crate) options: Options,
    pub(crate) preset: Preset,
    pub(crate) clock: Clock,
    pub(crate) counters: Arc<Counters>,
    pub(crate) memory: Memory,
    pub(crate) groups: Groups,
    pub(crate) pins: Pins,
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
    pub(crate) members: OnceLock<Vec<Weak<dyn Member>>>,
    pub(crate) leases: Arc<Leases>,
    pub(crate) beside: Beside,
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

    /// Bytes in use. What goes from a buffer into the tier while the accounts are read would count twice: then they are
    /// read again, a few times.
    pub(crate) fn memory_used(&self) -> u64 {
        let mut buffers = self.buffer_bytes.load(Relaxed);
        let mut tries = 8;
        loop {
            let rest = self.index_bytes.load(Relaxed) + self.memory.held() + self.pool.idle_bytes() as u64;
            let now = self.buffer_bytes.load(Relaxed);
            if now == buffers || tries == 0 {
                return now + rest;
            }
            (buffers, tries) = (now, tries - 1);
        }
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

    /// Whether the memory tier takes one of so many bytes: what is larger than a tenth of it would push out more than
    /// it is worth.
    pub(crate) fn may_stay(&self, bytes: u64) -> bool {
        bytes <= self.tier_budget() / 10
    }

    /// Lets an object stay in memory, if `current` says that it is the one to be found.
    pub(crate) fn cache_object(&self, frame: &Arc<Frame>, current: impl FnOnce() -> bool) {
        let charge = frame.charge();
        let priority = self.groups.priority(frame.header.group);
        // Where memory holds clusters, only a loved object outlives its own.
        let alone = !self.memory.retention.holds_clusters()
            || priority == Priority::Loved && self.memory.retention.holds_loved();
        if alone && self.may_stay(charge) {
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
            let Some(member) = self.member(volume) else { continue };
            for (row, frame) in member.loved_in(slot) {
                self.claimed.fetch_add(frame.charge(), Relaxed);
                clusters.extend(self.memory.shrink(self.tier_budget()));
                self.memory.insert(&frame, Priority::Loved, || member.is_in_slot(slot, &row));
                self.claimed.fetch_sub(frame.charge(), Relaxed);
            }
            member.retire(slot);
        }
    }

    fn member(&self, number: usize) -> Option<Arc<dyn Member>> {
        self.members.get().and_then(|members| members.get(number)).and_then(Weak::upgrade)
    }

    /// The volumes of this store but one.
    pub(crate) fn others(&self, number: usize) -> impl Iterator<Item = (usize, Arc<dyn Member>)> {
        let members = self.members.get().map_or(&[][..], |members| members);
        let others = members.iter().enumerate().filter(move |(other, _)| *other != number);
        others.filter_map(|(other, member)| Some((other, member.upgrade()?)))
    }

    /// Hints, and copies, that each volume may remember: half of the overhead that is not idle buffers.
    pub(crate) fn hints_max(&self) -> usize {
        let each = self.options.memory / 32 / 2 / self.options.places.len() as u64 / 2 / PAIR_BYTES;
        (each as usize).clamp(16, PAIRS_MAX)
    }

    pub(crate) fn lock_key(&self, hash: u64) -> MutexGuard<'_, ()> {
        self.stripes[hash as usize % STRIPES].lock()
    }

    /// Locks all of these keys. Callers hold none already, so no two wait for each other.
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

    /// How room is made.
    pub(crate) fn eviction(&self) -> Eviction {
        self.preset.eviction(self.options.mode)
    }

    /// Whether journal and checkpoints are what survives.
    pub(crate) fn has_checkpoints(&self) -> bool {
        self.preset.persistence == Persistence::JournalAndCheckpoint
    }

    /// Raises the generation to at least this one.
    pub(crate) fn see_generation(&self, generation: u64) {
        self.generation.fetch_max(generation, Relaxed);
    }
}
