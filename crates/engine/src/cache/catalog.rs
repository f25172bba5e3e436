//! Which object lies where: the index, what of each cluster is live, and the buffers and copies that entries lead to.
//!
//! Invariants: an entry and its account change together, the account first where it grows, so that what replaces the
//! entry subtracts what was added; a slot is given back only when no entry names it.

mod grants;
mod images;
mod waiting;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::MutexGuard;
use picaflor_format::{
    cluster::Row,
    frame::{self, GRAIN, Kind},
};

use crate::{
    Mode,
    base::blocked::Blocked,
    base::frame::{Draft, Frame},
    base::medium::Medium,
    base::places::Places,
    base::stats::add,
    cache::buffers::{Buffers, Slot},
    cache::large::Large,
    index::{Entered, Index, IndexEntry, Location},
    shared::Shared,
    space::{SPARE, Space},
    write::placement::Placer,
};

/// Clusters that objects never have: those of three checkpoints at least, and the spare ones.
const KEPT: u32 = SPARE + 6;
/// From which part of the others on, in percent, a store packs tightly.
const TIGHT: u64 = 70;

pub(crate) struct Catalog {
    pub(crate) medium: Arc<Medium>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) index: Index,
    /// Which entries of it are of large objects.
    pub(crate) large: Large,
    /// The clusters: of objects, or, where these have places, of checkpoints only.
    pub(crate) space: Arc<Space>,
    pub(crate) buffers: Buffers,
    pub(crate) placer: Placer,
    /// Where each object has a place of its own; none on the ring.
    pub(crate) places: Option<Arc<dyn Places>>,
    /// Bytes that objects of a store take above which it packs tightly, because no room could be made otherwise.
    pub(crate) tight: AtomicU64,
}

impl Catalog {
    /// Takes an entry out of the accounts of its cluster.
    pub(crate) fn forget_live(&self, entry: IndexEntry) {
        let grain = match entry.location() {
            Location::OnDisk { grain } => grain,
            Location::Buffered { slot, .. } => return self.unstage(slot),
        };
        if let Some(places) = &self.places {
            places.release(grain);
        } else if let Some(cluster) = self.medium.cluster_of(grain) {
            self.space.live.sub(cluster, entry.grains());
        }
    }

    /// Removes an entry from the index and the accounts. The caller has made sure that it is the key's.
    pub(crate) fn drop_entry(&self, hash: u64, entry: IndexEntry) -> bool {
        let removed = self.take_out(hash, entry);
        if removed {
            self.placer.drop_copies(hash);
            self.placer.drop_hints(hash);
            self.shared.memory.remove(hash);
        }
        removed
    }

    /// An entry of this hash, or of one that is not told apart from it, leads to nothing intact.
    pub(crate) fn drop_damaged(&self, hash: u64, entry: IndexEntry) {
        add(&self.shared.counters.damaged, u64::from(self.take_out(hash, entry)));
    }

    fn take_out(&self, hash: u64, entry: IndexEntry) -> bool {
        let removed = self.index.remove(hash, entry);
        if let Some(entry) = removed {
            self.count_removed(entry);
            self.forget_live(entry);
        }
        removed.is_some()
    }

    /// What an entry leads to left the store.
    pub(crate) fn count_removed(&self, entry: IndexEntry) {
        add(&self.shared.counters.removed_bytes, u64::from(entry.grains()) * GRAIN as u64);
    }

    /// A key has a new entry, in place of `old` if that is given: what it replaced leaves the accounts and memory.
    pub(crate) fn replaced(&self, hash: u64, old: Option<IndexEntry>) {
        if let Some(old) = old {
            self.forget_live(old);
        }
        // In a cache an older version may be in memory though its entry went to another key of its place.
        if old.is_some() || self.shared.options.mode == Mode::Cache {
            self.placer.drop_copies(hash);
            self.shared.memory.replaced(hash);
        }
    }

    /// The entry that a row of this slot has in the index, if it still has one.
    pub(crate) fn entry_in_slot(&self, slot: u32, row: &Row) -> Option<IndexEntry> {
        self.index.find(row.hash, Location::Buffered { slot, offset: row.offset / GRAIN as u32 })
    }

    /// A frame in a buffer, whichever it is.
    pub(crate) fn buffered(&self, hash: u64, location: Location) -> Option<Frame> {
        let Location::Buffered { slot, offset } = location else { return None };
        self.buffers.read(slot, offset as usize * GRAIN, hash, |_, _| true)
    }

    /// Whether more objects mean more memory for where they lie.
    pub(crate) fn is_loaded(&self) -> bool {
        self.places.as_ref().map_or_else(|| self.index.is_loaded(), |places| places.is_loaded())
    }

    /// The rows that entries of the index lead to, with these.
    pub(crate) fn entries_of(&self, cluster: u32, rows: Vec<Row>) -> Vec<(Row, IndexEntry)> {
        let entry =
            |row: &Row| self.index.find(row.hash, Location::OnDisk { grain: self.medium.grain(cluster, row.offset) });
        rows.into_iter().filter_map(|row| entry(&row).map(|entry| (row, entry))).collect()
    }

    /// Where the rows do not account for all that is live in a cluster of these bytes, adds the frames that other
    /// entries lead to, whatever use they seem to be of: header and table may be damaged around them, and a get takes
    /// them as they are.
    pub(crate) fn add_unlisted(&self, cluster: u32, bytes: &[u8], listed: &mut Vec<(Row, IndexEntry)>) {
        let known: u32 = listed.iter().map(|(_, entry)| entry.grains()).sum();
        if known < self.space.live.grains(cluster) {
            let mut all = self.entries_of(cluster, self.medium.frames_in(bytes, 0..bytes.len(), 0, None));
            all.retain(|(row, _)| listed.iter().all(|(other, _)| other.offset != row.offset));
            listed.append(&mut all);
        }
    }

    /// No entry names this number any more.
    pub(crate) fn unstage(&self, slot: u32) {
        if let Some(charge) = self.buffers.staging().and_then(|staging| staging.remove(slot)) {
            self.shared.buffer_bytes.fetch_sub(charge, Relaxed);
        }
    }

    /// An object of a cluster that memory holds, if it is current.
    pub(crate) fn resident(&self, hash: u64) -> Option<Arc<Frame>> {
        // An entry of this place may be of another key.
        let own = |header: &frame::Header, key: &[u8]| {
            header.kind == Kind::Whole && self.medium.hasher.frame(header.kind, key).short() == hash
        };
        self.index.candidates(hash).into_iter().find_map(|entry| match entry.location() {
            Location::Buffered { slot, offset } if self.buffers.home(slot).is_some() => {
                self.buffers.read(slot, offset as usize * frame::GRAIN, hash, own).map(Arc::new)
            }
            _ => None,
        })
    }

    /// Frames an object into this open buffer, which has room for it and whose lane the caller has locked, and enters
    /// it in the index in place of `old`. Returns where it is.
    pub(crate) fn enter_in(&self, slot: u32, draft: &Draft<'_>, old: Option<IndexEntry>) -> Result<Location, Blocked> {
        let offset = match &mut *self.buffers.slot(slot).write() {
            Slot::Open(open) => open.push(draft),
            _ => return Err(Blocked::Buffers),
        };
        let location = Location::Buffered { slot, offset: (offset / GRAIN) as u32 };
        self.large.note(draft.hash, draft.header.kind);
        // The lane is locked, so the buffer cannot be sealed, written and retired before the index names it.
        if !self.put_in_memory(draft, location, old) {
            // The caller looks again; if that ends in a refusal, no crash may bring up what was refused.
            if let Slot::Open(open) = &mut *self.buffers.slot(slot).write() {
                open.take_back();
            }
            return Err(Blocked::Moved);
        }
        Ok(location)
    }

    /// Enters an object, which is in memory, in the index in place of `old`. False if that was not there any more.
    pub(crate) fn put_in_memory(&self, draft: &Draft<'_>, location: Location, old: Option<IndexEntry>) -> bool {
        let grains = (draft.header.frame_len() / GRAIN) as u32;
        let before = self.shared.index_bytes.load(Relaxed);
        {
            // A checkpoint that begins sees both, or neither.
            let mut replacing = old.and_then(|old| self.buffers.replacing(old));
            if self.index.put(draft.hash, location, grains, old) == Entered::OldGone {
                return false;
            }
            replacing.iter_mut().for_each(|all| all.push((draft.hash, draft.header.generation)));
        }
        self.replaced(draft.hash, old);
        if self.shared.index_bytes.load(Relaxed) != before {
            self.shared.shrink_memory();
        }
        true
    }

    /// The entry of the object of which a row's frame is the present version, or a copy of that.
    pub(crate) fn current_at(&self, row: &Row, grain: u64) -> Option<IndexEntry> {
        let own = self.index.find(row.hash, Location::OnDisk { grain });
        own.or_else(|| self.owner_of_copy(row, grain).map(|(_, entry)| entry))
    }

    /// The entry of the object of which a row's frame is a copy, with the key's lock: it makes sure that no put or
    /// delete makes the copy an old version meanwhile.
    pub(crate) fn owner_of_copy(&self, row: &Row, grain: u64) -> Option<(MutexGuard<'_, ()>, IndexEntry)> {
        let stripe = self.placer.has_copy(row.hash, grain).then(|| self.shared.try_lock_key(row.hash))??;
        // With two candidates, one is another key's, and only reading would tell which.
        let [entry] = self.index.candidates(row.hash)[..] else { return None };
        self.placer.has_copy(row.hash, grain).then_some((stripe, entry))
    }

    /// Points the index at a row's frame in the buffer, if that frame is current.
    pub(crate) fn enter(&self, slot: u32, cluster: u32, row: &Row) -> bool {
        let grain = self.medium.grain(cluster, row.offset);
        match self.index.find(row.hash, Location::OnDisk { grain }) {
            Some(entry) => self.move_into(slot, row, entry).is_some(),
            None => self.enter_copy(slot, row, grain),
        }
    }

    pub(crate) fn move_into(&self, slot: u32, row: &Row, entry: IndexEntry) -> Option<IndexEntry> {
        let place = Location::Buffered { slot, offset: row.offset / GRAIN as u32 };
        let old = self.index.change(row.hash, entry, |entry| entry.at(place))?;
        self.forget_live(old);
        Some(old)
    }

    /// Serves an object from its copy. A cache lets the index point at the copy from now on. A store does not:
    /// recovery knows no copies, and nothing would keep reclaim from the original; it keeps the object as a
    /// single one.
    pub(crate) fn enter_copy(&self, slot: u32, row: &Row, grain: u64) -> bool {
        let Some((_stripe, entry)) = self.owner_of_copy(row, grain) else { return false };
        let Location::OnDisk { grain: elsewhere } = entry.location() else { return false };
        if self.shared.options.mode == Mode::Store {
            let frame = self.buffers.read(slot, row.offset as usize, row.hash, |_, _| true);
            let current = || self.index.find(row.hash, entry.location()).is_some();
            frame.is_some_and(|frame| {
                self.shared.cache_object(&Arc::new(frame), current);
                true
            })
        } else {
            // The entry will come back to this cluster; the frame it pointed to is now the copy.
            self.placer.add_copy(row.hash, elsewhere);
            self.move_into(slot, row, entry).is_some()
        }
    }

    /// An object of this buffer was asked for.
    pub(crate) fn note_served(&self, slot: u32) {
        let memory = &self.shared.memory;
        self.buffers.count_served(slot, memory.retention.holds_clusters().then(|| memory.next_number()));
    }

    /// Drops the entries that lead into a cluster, but for those that stay where they are.
    pub(crate) fn drop_leading_to(&self, cluster: u32, stays: impl Fn(u64) -> bool) {
        self.index.update_all(|entry| match entry.location() {
            Location::OnDisk { grain } if self.medium.cluster_of(grain) == Some(cluster) && !stays(grain) => {
                self.forget_live(entry);
                IndexEntry::EMPTY
            }
            _ => entry,
        });
    }

    /// Whether objects lie in clusters and none is evicted.
    pub(crate) fn keeps_all_in_clusters(&self) -> bool {
        self.shared.options.mode == Mode::Store && self.places.is_none()
    }

    /// Whether the store is so full that it saves clusters rather than reads.
    pub(crate) fn packs_tightly(&self) -> bool {
        let most = u64::from(self.space.count().saturating_sub(KEPT)) * self.space.live.room / 100 * TIGHT;
        self.keeps_all_in_clusters() && self.space.fill_about().live > most.min(self.tight.load(Relaxed))
    }

    /// Whether this object, which memory has, lies here: memory is the store's.
    pub(crate) fn is_home_of(&self, frame: &Frame) -> bool {
        let options = &self.shared.options;
        let hash = || self.medium.hasher.key(frame.key());
        options.places.len() < 2
            || options.spread.home(self.medium.hasher, hash(), frame.key(), options.places.len()) == self.medium.number
    }

    /// Parts in which a volume is gone through: clusters, or those of its places.
    pub(crate) fn parts(&self) -> u32 {
        self.places.as_ref().map_or_else(|| self.space.count(), |places| places.parts())
    }

    /// Where writing goes on, as a checkpoint keeps it.
    pub(crate) fn cursor(&self) -> u32 {
        self.places.as_ref().map_or_else(|| self.space.cursor(), |places| places.cursor())
    }
}
