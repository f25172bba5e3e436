//! Clusters and pages in memory: what was read or written stays there until memory wants its room, and then the index
//! leads to the device again.
//!
//! Invariants: a cluster is resident at most once, and reclaim leaves it alone as long as it is; what a read brought is
//! verified frame by frame before the index leads to it.

use std::sync::{
    Arc,
    atomic::{AtomicU16, AtomicU32, Ordering::Relaxed},
};

use bytes::Bytes;
use picaflor_format::{
    checkpoint::{Begun, room},
    cluster::{self, Row},
    frame::{GRAIN, Header},
};

use crate::{
    base::{column::Column, frame::Frame, group::Priority, medium::Medium, stats::add},
    cache::pages::PageRead,
    cache::{
        buffers::{Filled, Slot},
        catalog::Catalog,
        cluster_contents::{ClusterContents, Content},
        memory::Resident,
        pages::Pages,
    },
    index::{IndexEntry, Location},
    read::reading::{Extent, Reader},
    shared::Shared,
    space::{Space, State},
};

/// Clusters that memory has to have room for before any stays there.
pub(crate) const FEWEST: u64 = 16;

pub(crate) struct Residents {
    pub(crate) medium: Arc<Medium>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) space: Arc<Space>,
    pub(crate) reader: Reader,
    /// What lies in clusters that left memory, where nothing else is asked of what leaves the device.
    pub(crate) listed: Option<ClusterContents>,
    /// Class of the objects in each cluster.
    pub(crate) classes: Column<AtomicU16>,
    /// Into which pages clusters are divided.
    pub(crate) pages: Pages,
    /// [`open_slots`] of all lanes.
    pub(crate) open_slots: usize,
    /// Clusters that checkpoints hold now.
    pub(crate) checkpoint_held: AtomicU32,
}

/// Slots that are kept for the buffers of so many lanes while they fill.
pub(crate) fn open_slots(lanes: usize) -> usize {
    2 * lanes + 16
}

impl Residents {
    pub(crate) fn loved_in(&self, slot: u32) -> Vec<(Row, Arc<Frame>)> {
        if !self.shared.memory.retention.holds_loved() || !self.shared.groups.any_loved() {
            return Vec::new();
        }
        let rows = match &*self.catalog.buffers.slot(slot).read() {
            crate::cache::buffers::Slot::Filled(filled) if !filled.bypass => filled.rows.clone(),
            _ => return Vec::new(),
        };
        let most = self.shared.tier_budget() / 10;
        let loved = |row: Row| {
            self.catalog.entry_in_slot(slot, &row)?;
            let is_loved = |header: &Header, _: &[u8]| self.shared.groups.priority(header.group) == Priority::Loved;
            let frame = self.catalog.buffers.read(slot, row.offset as usize, row.hash, is_loved)?;
            let new = frame.charge() <= most && self.shared.memory.peek(row.hash).is_none();
            new.then(|| (row, Arc::new(frame)))
        };
        rows.into_iter().filter_map(loved).collect()
    }

    pub(crate) fn retire(&self, slot: u32) {
        let (rows, cluster, learn, number, page) = match &*self.catalog.buffers.slot(slot).read() {
            crate::cache::buffers::Slot::Filled(filled) => {
                let served = filled.served.load(Relaxed);
                let learn = filled.read_in.then_some(served);
                (filled.rows.clone(), filled.cluster, learn, filled.number.load(Relaxed), filled.page)
            }
            _ => return,
        };
        self.space.uses.note(cluster, number);
        self.note_age(cluster);
        let lists = self.listed.as_ref().filter(|_| !self.shared.index_is_above(6));
        let (mut list, mut bytes, mut grains) = (Vec::new(), 0, 0);
        for row in &rows {
            let Some(entry) = self.catalog.entry_in_slot(slot, row) else { continue };
            bytes += row.taken();
            grains += u64::from(entry.grains());
            list.extend(lists.map(|_| Content { hash: row.hash, offset: row.offset }));
            let home = Location::OnDisk { grain: self.medium.grain(cluster, row.offset) };
            // Accounted before it can be seen: what replaces it subtracts.
            self.space.live.add(cluster, entry.grains());
            if self.catalog.index.change(row.hash, entry, |entry| entry.at(home)).is_none() {
                self.space.live.sub(cluster, entry.grains());
            }
        }
        self.space.live.weigh(cluster, bytes, grains);
        if let Some(listed) = lists {
            listed.set(cluster, list);
        }
        if let Some(served) = learn {
            // The object that was asked for is no neighbour.
            add(&self.shared.counters.neighbours_used, served.saturating_sub(1).into());
        }
        match page {
            Some((page, _)) => self.space.pages().release(cluster, page),
            None => drop(self.space.shift(cluster, State::Busy, State::Sealed)),
        }
        self.catalog.buffers.vacate(slot);
    }

    /// Something in a cluster is asked for, or it leaves memory.
    pub(crate) fn note_age(&self, cluster: u32) {
        if self.shared.options.cluster_age.is_by_use() {
            self.space.uses.note_second(cluster, self.shared.second());
        }
    }

    /// The device is asked to read at this grain.
    pub(crate) fn note_access(&self, grain: u64) {
        if self.catalog.places.is_none()
            && let Some(cluster) = self.medium.cluster_of(grain)
        {
            self.space.uses.note_access(cluster);
            self.note_age(cluster);
        }
    }

    /// What the objects of a cluster have in common is forgotten at closing; the first that is read tells it.
    pub(crate) fn learn_class(&self, grain: u64, header: &Header) {
        let known = self.medium.cluster_of(grain).map(|cluster| &self.classes[cluster]);
        if let Some(class) = known.filter(|class| class.load(Relaxed) == 0) {
            class.store(self.catalog.placer.class(header.kind, header.group, header.server).short(), Relaxed);
        }
        self.medium.cluster_of(grain).inspect(|cluster| self.pages.learn_page(*cluster, header.group));
    }

    /// The class of the cluster that holds this object, as clusters keep it.
    pub(crate) fn class_of(&self, hash: u64) -> Option<u16> {
        self.catalog.index.candidates(hash).into_iter().find_map(|entry| {
            let cluster = match entry.location() {
                Location::OnDisk { grain } => self.medium.cluster_of(grain)?,
                Location::Buffered { slot, .. } => match &*self.catalog.buffers.slot_if_any(slot)?.read() {
                    Slot::Open(open) => return Some(open.class.short()),
                    Slot::Filled(filled) => return Some(filled.class),
                    Slot::Free => return None,
                },
            };
            Some(self.classes[cluster].load(Relaxed))
        })
    }

    /// From here on the objects of what was read in are served from it. Not if no slot is left.
    pub(crate) fn reside(self: &Arc<Self>, filled: Filled, group: u32) -> bool {
        let (cluster, number) = (filled.cluster, Arc::clone(&filled.number));
        let held = filled.bytes.len() as u64 + filled.table_bytes();
        let rows = filled.rows.clone();
        let Some(slot) = self.catalog.buffers.occupy(Slot::Filled(filled)) else { return false };
        self.catalog.buffers.set_home(slot, cluster);
        let entered = rows.iter().filter(|row| self.catalog.enter(slot, cluster, row)).count();
        add(&self.shared.counters.neighbours_read, entered.saturating_sub(1) as u64);
        let resident = Resident { volume: self.medium.number, slot, bytes: held, group, number };
        self.shared.reserve_memory(held, || self.shared.cache_cluster(resident));
        true
    }

    /// The group whose objects a cluster holds; 0 where clusters are of no group alone.
    pub(crate) fn group_in(&self, cluster: &[u8], rows: &[Row]) -> u32 {
        let first = rows.first().filter(|_| self.catalog.placer.keeps_apart());
        let header = first.and_then(|row| Header::decode(cluster.get(row.offset as usize..)?).ok());
        header.map_or(0, |header| header.group)
    }

    /// Lets the clusters that were used least recently go until one more of so many bytes may stay. False if none may.
    pub(crate) fn make_room_for_a_resident(&self, bytes: usize) -> bool {
        while !self.has_room_for_residents(bytes) {
            match self.shared.memory.release_least_recent(self.medium.number) {
                Some(resident) => self.shared.release(vec![resident]),
                None => return false,
            }
        }
        true
    }

    /// Whether one more cluster or page of so many bytes may stay in memory: slots are left, and the device is not so
    /// small, or so full, that residents would keep it from being reclaimed.
    pub(crate) fn has_room_for_residents(&self, bytes: usize) -> bool {
        if self.catalog.packs_tightly() && !self.shared.memory.retention.holds_clusters() {
            return false;
        }
        let open = open_slots(self.catalog.placer.lanes_in_use());
        let most = (self.catalog.buffers.count() as usize - self.open_slots).min(self.space.count() as usize / 4);
        let (used, (pages, divided)) = (self.catalog.buffers.in_use(), self.space.pages().held());
        let clusters = (used + divided).saturating_sub(pages);
        used < self.catalog.buffers.count() as usize
            && clusters < open + most
            && bytes as u64 * FEWEST <= self.shared.tier_budget()
    }

    /// The entries that lead into a cluster, if memory knows all of them.
    pub(crate) fn listed_in(&self, victim: u32) -> Option<Vec<(u64, IndexEntry)>> {
        let list = self.listed.as_ref()?.take(victim)?;
        let entry = |content: &Content| {
            let location = Location::OnDisk { grain: self.medium.grain(victim, content.offset) };
            Some((content.hash, self.catalog.index.find(content.hash, location)?))
        };
        let entries: Vec<_> = list.iter().filter_map(entry).collect();
        let grains: u32 = entries.iter().map(|(_, entry)| entry.grains()).sum();
        (grains >= self.space.live.grains(victim)).then_some(entries)
    }

    /// No cluster stays in memory, nor any part of one.
    pub(crate) fn retire_all(&self) {
        let memory = &self.shared.memory;
        let mut left = memory.release_clusters(self.medium.number, 0);
        left.extend(memory.release_these(|resident| resident.volume == self.medium.number));
        self.shared.release(left);
    }

    /// Residents are no victims; on a small device they may be all there is.
    pub(crate) fn retire_a_resident(self: &Arc<Self>) {
        if self.shared.memory.retention.holds_clusters() {
            let least_recent = || self.shared.memory.release_least_recent(self.medium.number);
            let mut left: Vec<_> = std::iter::from_fn(least_recent).take(4).collect();
            // The other pages of their clusters too, or nothing is gained.
            let homes: Vec<_> = left.iter().filter_map(|resident| self.catalog.buffers.home(resident.slot)).collect();
            left.extend(self.shared.memory.release_these(|other| {
                other.volume == self.medium.number
                    && self.catalog.buffers.home(other.slot).is_some_and(|home| homes.contains(&home))
            }));
            return self.shared.release(left);
        }
        let budget = self.shared.memory.held().saturating_sub(4 * self.medium.cluster_len() as u64);
        let left = self.shared.memory.release_clusters(self.medium.number, budget);
        self.shared.release(left);
    }

    /// Clusters kept free for checkpoints: two are held, and a third is there before the oldest goes.
    pub(crate) fn checkpoint_reserve(&self) -> u32 {
        let own = self.checkpoint_clusters();
        (3 * own).saturating_sub(self.checkpoint_held.load(Relaxed)).max(own)
    }

    /// Clusters that one checkpoint may need.
    pub(crate) fn checkpoint_clusters(&self) -> u32 {
        self.clusters_of(self.checkpoint_bytes())
    }

    /// Bytes that a checkpoint keeps.
    pub(crate) fn checkpoint_bytes(&self) -> u64 {
        self.image_bytes() + self.shared.pins.image_bytes() + Begun::room(self.medium.cluster_len()) as u64
    }

    /// Clusters that a checkpoint of so many bytes may need: an eighth more for what is put while it is being taken.
    pub(crate) fn clusters_of(&self, bytes: u64) -> u32 {
        let parts = bytes / room(self.medium.cluster_len()) as u64;
        (parts + parts / 8) as u32 + 2
    }

    /// Bytes of what a checkpoint keeps of the index.
    pub(crate) fn image_bytes(&self) -> u64 {
        self.catalog.images().bytes() + self.pages.image_bytes()
    }

    /// Makes a page resident that was read for an object with this mark, if that was not done, nor its cluster
    /// granted anew, meanwhile. Returns whether it is.
    pub(crate) fn admit_page(
        self: &Arc<Self>,
        (cluster, granted): (u32, u32),
        read: PageRead,
        bytes: &Bytes,
        mark: u64,
    ) -> bool {
        let Some((page, len)) = read.page.filter(|_| bytes.len() == read.len) else { return false };
        if !self.make_room_for_a_resident(bytes.len()) || !self.space.pages().claim(cluster, page) {
            return false;
        }
        // As long as a page is resident its cluster is not granted.
        if self.space.grants.last(cluster) != granted {
            self.space.pages().release(cluster, page);
            return false;
        }
        // There is no table in a page: frames follow each other.
        let first = if read.offset == 0 { cluster::HEADER } else { 0 };
        let rows = self.medium.frames_in(bytes, first..len.min(bytes.len()), read.offset, Some(mark));
        let group = rows.first().and_then(|row| Header::decode(&bytes[row.offset as usize - read.offset..]).ok());
        let class = self.classes[cluster].load(Relaxed);
        let filled = Filled::read_in(bytes, rows, (cluster, class), Some((page, read.offset)));
        let resides = self.reside(filled, group.map_or(0, |header| header.group));
        if !resides {
            self.space.pages().release(cluster, page);
        }
        resides
    }

    /// What to read for an entry and its neighbours: its page where memory holds clusters, else so far behind the
    /// object, with which a page of a site begins, or its whole cluster.
    pub(crate) fn read_around(&self, cluster: u32, offset: usize, grains: u32, extent: Extent) -> PageRead {
        if self.shared.memory.retention.holds_clusters() {
            return self.pages.page_around(cluster, offset, grains);
        }
        let len = self.medium.cluster_len();
        let Extent::Behind(reach) = extent else { return PageRead { offset: 0, len, page: None } };
        let end = offset + grains as usize * GRAIN + reach.bytes(len);
        let unit = self.medium.device.read_unit();
        let start = offset / unit * unit;
        PageRead { offset: start, len: end.next_multiple_of(unit).min(len) - start, page: None }
    }
}
