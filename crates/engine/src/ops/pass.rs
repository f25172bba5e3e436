//! One pass over all objects of a store's volumes that misses none, while others are put, moved, read in and evicted.
//!
//! 1. Of each volume its clusters, in the order of the device, by one read each: every frame that an entry leads to.
//! 2. Its index, segment by segment. An object may move from place to place, but its entry stays in its segment. What
//!    leads to a cluster that the first step went through, and that was not granted anew since, was told; the rest,
//!    mostly in memory, is looked at where it lies. What moved meanwhile is looked at again.
//!
//! Where objects have places of their own, these are gone through instead, and last what waited in buffers when the
//! pass began and was not met at its place.
//!
//! Invariant: each object that is there from the beginning to the end is told, if nothing was unreadable; twice, if it
//! was moved to make room meanwhile.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use bytes::Bytes;
use picaflor_format::{
    cluster::Row,
    frame::{GRAIN, Header, Kind},
};

use crate::{
    Error, Mode,
    base::places::Places,
    cache::buffers::Slot,
    handle::Store,
    index::{IndexEntry, Location},
    volume::Volume,
};

/// How often a segment is looked at again for what moved.
const ROUNDS: usize = 64;

pub(crate) struct Pass<T> {
    store: Store,
    /// How a frame, which is no piece of a large object, is told.
    tell: fn(&Header, &[u8]) -> Option<T>,
    volume: usize,
    place: u32,
    /// The grants of the clusters that were gone through; of a cluster to be looked at again, none.
    passed: Vec<Option<u32>>,
    /// Where frames lie whose entries led to memory when their cluster was gone through: they may lead back there.
    elsewhere: HashSet<u64>,
    /// What waited for places when the pass over this volume began.
    waiting: HashMap<Bytes, T>,
    unreadable: u64,
}

/// What an entry leads to.
enum Seen<T> {
    Object(T),
    Chunk,
    /// Not what it should.
    Nothing,
    Unreadable,
}

impl<T> Pass<T> {
    pub(crate) fn new(store: Store, tell: fn(&Header, &[u8]) -> Option<T>) -> Self {
        let (passed, elsewhere, waiting) = Default::default();
        Self { store, tell, volume: 0, place: 0, passed, elsewhere, waiting, unreadable: 0 }
    }

    /// One that has come to its end, and not to all places.
    pub(crate) fn ended(store: Store, tell: fn(&Header, &[u8]) -> Option<T>) -> Self {
        Self { volume: usize::MAX, unreadable: 1, ..Self::new(store, tell) }
    }

    /// Places met so far that could not be read, or whose bytes do not verify.
    pub(crate) fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// Places gone through, and places in all.
    pub(crate) fn progress(&self) -> (u64, u64) {
        let places = |volume: &Arc<Volume>| u64::from(places_of(volume));
        let volumes = self.store.recovered_volumes();
        let before: u64 = volumes.iter().take(self.volume).map(places).sum();
        (before + u64::from(self.place), volumes.iter().map(places).sum())
    }

    /// The volume that is gone through; none at the end.
    pub(crate) fn volume(&self) -> Option<&Arc<Volume>> {
        self.store.recovered_volumes().get(self.volume)
    }

    pub(crate) fn skip_volume(&mut self) {
        (self.volume, self.place) = (self.volume + 1, 0);
    }

    /// What lies in the next place, a cluster mostly: often nothing. `None` at the end. Reads the device.
    pub(crate) fn next_place(&mut self) -> Option<Vec<T>> {
        let volume = Arc::clone(self.volume()?);
        let (place, clusters) = (self.place, volume.catalog.parts());
        if place == 0 {
            self.begin(&volume);
        }
        self.place += 1;
        if self.place == places_of(&volume) {
            self.skip_volume();
        }
        Some(match &volume.catalog.places {
            Some(places) if place < clusters => self.part(&volume, &**places, place),
            Some(_) => std::mem::take(&mut self.waiting).into_values().collect(),
            None if place < clusters => self.cluster(&volume, place),
            None => self.segment(&volume, place - clusters),
        })
    }

    fn begin(&mut self, volume: &Volume) {
        if volume.catalog.places.is_some() {
            self.waiting = self.all_that_waits(volume);
        } else {
            self.elsewhere.clear();
            self.passed.clear();
        }
    }

    fn see(&self, header: &Header, frame: &[u8]) -> Seen<T> {
        match header.kind {
            Kind::Chunk => Seen::Chunk,
            Kind::Whole | Kind::Copy | Kind::Manifest => (self.tell)(header, frame).map_or(Seen::Nothing, Seen::Object),
        }
    }

    fn cluster(&mut self, volume: &Volume, cluster: u32) -> Vec<T> {
        let space = &volume.space;
        // Before it is looked at: what is granted anew meanwhile does not count as gone through.
        let granted = space.grants.last(cluster);
        let is_read = space.live.grains(cluster) > 0 && space.state(cluster).is_read();
        // Only a table vouches for all that lies there.
        let sealed = if is_read { volume.medium.sealed(cluster).ok().flatten() } else { None };
        let told = sealed.and_then(|(rows, bytes)| self.rows(volume, cluster, &rows, &bytes));
        self.passed.push(told.is_some().then_some(granted));
        told.unwrap_or_default()
    }

    /// What lies in a cluster of these rows and bytes; `None` if not each of its frames is intact.
    fn rows(&mut self, volume: &Volume, cluster: u32, rows: &[Row], bytes: &[u8]) -> Option<Vec<T>> {
        let mut all = Vec::new();
        for row in rows.iter().filter(|row| row.kind != Kind::Chunk) {
            let grain = volume.medium.grain(cluster, row.offset);
            let entries = volume.catalog.index.candidates(row.hash);
            if entries.iter().any(|entry| entry.location() == Location::OnDisk { grain }) {
                let frame = bytes.get(row.offset as usize..)?;
                let Seen::Object(object) = self.see(&Header::verify(frame).ok()?, frame) else { return None };
                all.push(object);
            } else if entries.iter().any(|entry| matches!(entry.location(), Location::Buffered { .. })) {
                self.elsewhere.insert(grain);
            }
        }
        Some(all)
    }

    fn segment(&mut self, volume: &Volume, segment: u32) -> Vec<T> {
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        let index = &volume.catalog.index;
        for _ in 0..ROUNDS {
            let mut has_moved = false;
            for (spot, entry) in index.entries_in(segment) {
                if !known.insert((spot, entry.location())) || self.is_told(volume, entry) {
                    continue;
                }
                let seen = self.look(volume, spot, entry);
                let is_there = || index.find(spot, entry.location()).is_some();
                match seen {
                    Seen::Object(object) => all.push(object),
                    Seen::Chunk => {}
                    _ if !is_there() => has_moved = true,
                    // As a get that finds nothing intact: no get will find it.
                    Seen::Nothing if self.store.mode() == Mode::Cache => volume.catalog.drop_damaged(spot, entry),
                    Seen::Nothing | Seen::Unreadable => self.unreadable += 1,
                }
            }
            if !has_moved {
                return all;
            }
        }
        self.unreadable += 1;
        all
    }

    fn is_told(&self, volume: &Volume, entry: IndexEntry) -> bool {
        let Location::OnDisk { grain } = entry.location() else { return false };
        let has_passed = |cluster: u32| {
            let granted = self.passed.get(cluster as usize).copied().flatten();
            granted == Some(volume.space.grants.last(cluster)) && !self.elsewhere.contains(&grain)
        };
        volume.medium.cluster_of(grain).is_some_and(has_passed)
    }

    /// Looks at what an entry of this spot leads to.
    fn look(&self, volume: &Volume, spot: u64, entry: IndexEntry) -> Seen<T> {
        let apart = volume.catalog.index.told_apart_by();
        let see = |header: &Header, frame: &[u8]| {
            let hash = volume.medium.hasher.frame(header.kind, header.key(frame)).short();
            if hash & apart == spot { self.see(header, frame) } else { Seen::Nothing }
        };
        // The spot is not all of the hash by which an object that waits is found.
        if let Location::Buffered { slot, .. } = entry.location()
            && let Some(staged) = volume.catalog.buffers.staging().and_then(|staging| staging.get(slot))
        {
            return see(&staged.frame.header, staged.frame.bytes());
        }
        match volume.frames.look_at(spot, entry, see) {
            Ok(seen) => seen.unwrap_or(Seen::Nothing),
            Err(Error::Damaged { .. }) => Seen::Nothing,
            Err(_) => Seen::Unreadable,
        }
    }

    fn part(&mut self, volume: &Volume, places: &dyn Places, part: u32) -> Vec<T> {
        let mut all = Vec::new();
        places.list(volume.parts(), part, &mut |read| {
            let Ok((header, frame)) = read else {
                self.unreadable += 1;
                return;
            };
            self.waiting.remove(header.key(&frame));
            if let Seen::Object(object) = self.see(&header, &frame) {
                all.push(object);
            }
        });
        all
    }

    /// By their keys.
    fn all_that_waits(&self, volume: &Volume) -> HashMap<Bytes, T> {
        let catalog = &volume.catalog;
        let mut all = HashMap::new();
        let mut add = |header: &Header, frame: &[u8]| {
            if let Seen::Object(object) = self.see(header, frame) {
                all.insert(Bytes::copy_from_slice(header.key(frame)), object);
            }
        };
        for slot in 0..catalog.buffers.count() {
            let rows = match &*catalog.buffers.slot(slot).read() {
                Slot::Free => continue,
                Slot::Open(open) => open.rows().to_vec(),
                Slot::Filled(filled) => filled.rows.clone(),
            };
            for row in rows.iter().filter(|row| catalog.entry_in_slot(slot, row).is_some()) {
                let at = row.offset as usize / GRAIN * GRAIN;
                let frame = catalog.buffers.read(slot, at, row.hash, |_, _| true);
                frame.inspect(|frame| add(&frame.header, frame.bytes()));
            }
        }
        catalog.waiting().all().iter().for_each(|staged| add(&staged.frame.header, staged.frame.bytes()));
        all
    }
}

/// Places in which a volume is gone through.
fn places_of(volume: &Volume) -> u32 {
    let catalog = &volume.catalog;
    catalog.parts() + if catalog.places.is_some() { 1 } else { catalog.index.segment_count() }
}
