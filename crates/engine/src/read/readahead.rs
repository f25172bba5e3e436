//! What a read of a whole cluster brought beside the object it was for. Where memory holds clusters, this one becomes
//! resident: its objects are served from its buffer until it is let go. Elsewhere those stay, one by one, that belong
//! to the object.
//!
//! Invariants: only frames that verify, and that the index (or the list of copies) says are current, are
//! entered; while resident the cluster is busy, so reclaim leaves it alone.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;
use parking_lot::MutexGuard;
use picaflor_format::{
    cluster::{self, Row, Table},
    frame::{self, GRAIN, Header, Kind},
};

use crate::{
    Mode,
    base::frame::{Brought, Frame, ReadaheadStats},
    base::stats::add,
    cache::buffers::{Filled, Slot},
    cache::memory::Resident,
    index::{IndexEntry, Location},
    space::State,
    volume::Volume,
    write::placement::Class,
};

impl ReadaheadStats for Volume {
    fn was_used(&self, hash: u64, class: u16) {
        // For reclaim, which asks the index who was used.
        self.index.touch(hash);
        add(&self.shared.counters.neighbours_used, 1);
        self.reader.used(class, 1);
    }
}

impl Volume {
    /// Takes in what a read of a cluster, or of the part of it that begins at `base`, brought. Returns whether the
    /// cluster became resident.
    pub(crate) fn admit_neighbours(self: &Arc<Self>, grain: u64, base: usize, bytes: &Bytes, sought: &Header) -> bool {
        if self.shared.memory.holds_clusters() {
            return self.admit_cluster(grain, bytes);
        }
        self.read_ahead(grain, base, bytes, sought);
        false
    }

    /// Lets those stay in memory, each by itself, that lie in the same cluster as the object at `grain` and belong to
    /// it: what else is in the cluster would take memory from them.
    fn read_ahead(self: &Arc<Self>, grain: u64, base: usize, bytes: &Bytes, sought: &Header) {
        let around = match bytes.len() == self.medium.cluster_len() {
            true => self.sealed(grain, bytes).map(|(cluster, own, rows)| (cluster, own.class, rows)),
            false => self.behind(grain, base, bytes, sought),
        };
        let Some((cluster, class, rows)) = around else { return };
        let weak = Arc::downgrade(self);
        let brought = Arc::new(Brought { by: weak, class });
        let mut count = 0_u32;
        for row in &rows {
            let at = self.medium.grain(cluster, row.offset);
            if at == grain || self.shared.memory.peek(row.hash).is_some() {
                continue;
            }
            let frame = bytes.get(row.offset as usize - base..).unwrap_or_default();
            let Ok(header) = Header::decode(frame) else { continue };
            if header.kind == Kind::Chunk || !belong_together(&header, sought) || !is_intact(frame, row, sought.mark) {
                continue;
            }
            let Some(entry) = self.current_at(row, at) else { continue };
            let frame = self.shared.pool.copy(&frame[..frame::HEADER + header.payload_len()]);
            let frame = Arc::new(Frame::new(row.hash, header, frame).brought_by(&brought));
            self.shared.cache_object(&frame, || self.index.find(row.hash, entry.location()).is_some());
            count += 1;
        }
        add(&self.shared.counters.neighbours_read, count.into());
        self.reader.brought(class, count);
    }

    /// The cluster around `grain`, its class, and the rows of what lies behind the object there in these bytes, which
    /// begin at `base`. There is no table in them: frames follow each other, and have the mark of one use.
    fn behind(&self, grain: u64, base: usize, bytes: &[u8], sought: &Header) -> Option<(u32, u16, Vec<Row>)> {
        let cluster = self.medium.cluster_of(grain).filter(|cluster| self.space.state(*cluster) == State::Sealed)?;
        let first = (grain - self.medium.grain(cluster, 0)) as usize * GRAIN - base + sought.frame_len();
        let rows = self.medium.frames_in(bytes, first..bytes.len(), base, Some(sought.mark));
        Some((cluster, self.classes[cluster as usize].load(Relaxed), rows))
    }

    /// The cluster around `grain` with its header and rows, if these bytes are of one use of it, and nobody made it
    /// resident or reclaimed it meanwhile: all gets that waited for the same read ask.
    fn sealed(&self, grain: u64, bytes: &[u8]) -> Option<(u32, cluster::Header, Vec<Row>)> {
        let cluster = self.medium.cluster_of(grain).filter(|cluster| self.space.state(*cluster) == State::Sealed)?;
        let header = cluster::Header::decode(bytes).ok()?;
        let Ok(Table::Rows(last, rows)) = cluster::decode_table(bytes) else { return None };
        (last.seq == header.seq).then_some((cluster, header, rows))
    }

    /// The entry of the object of which a row's frame is the present version, or a copy of that.
    fn current_at(&self, row: &Row, grain: u64) -> Option<IndexEntry> {
        let own = self.index.find(row.hash, Location::OnDisk { grain });
        own.or_else(|| self.owner_of_copy(row, grain).map(|(_, entry)| entry))
    }

    /// The entry of the object of which a row's frame is a copy, with the key's lock: it makes sure that no put or
    /// delete makes the copy an old version meanwhile.
    fn owner_of_copy(&self, row: &Row, grain: u64) -> Option<(MutexGuard<'_, ()>, IndexEntry)> {
        let stripe = self.placer.has_copy(row.hash, grain).then(|| self.shared.try_lock_key(row.hash))??;
        // With two candidates, one is another key's, and only reading would tell which.
        let [entry] = self.index.candidates(row.hash)[..] else { return None };
        self.placer.has_copy(row.hash, grain).then_some((stripe, entry))
    }

    /// Makes the cluster around `grain` resident, where memory holds clusters, if nobody did or reclaimed it meanwhile.
    /// Returns whether it is.
    pub(crate) fn admit_cluster(self: &Arc<Self>, grain: u64, bytes: &Bytes) -> bool {
        let Some((cluster, header, rows)) = self.sealed(grain, bytes) else { return false };
        // Objects that were to bypass memory are given to who asked, and that is all.
        let passes = header.class == Class::Bypass.short() || !self.make_room_for_a_resident(bytes.len());
        if passes || !self.space.shift(cluster, State::Sealed, State::Busy) {
            return false;
        }
        let mark = self.medium.hasher.mark(header.seq);
        let at = |row: &Row| bytes.get(row.offset as usize..).unwrap_or_default();
        let rows: Vec<Row> = rows.into_iter().filter(|row| is_intact(at(row), row, mark)).collect();
        let filled = Filled::read_in(bytes, rows, (cluster, header.class), None);
        let group = self.group_in(bytes, &filled.rows);
        let resides = self.reside(filled, group);
        if !resides {
            self.space.shift(cluster, State::Busy, State::Sealed);
        }
        resides
    }

    /// From here on the objects of what was read in are served from it. Not if no slot is left.
    pub(crate) fn reside(self: &Arc<Self>, filled: Filled, group: u32) -> bool {
        let (cluster, number) = (filled.cluster, Arc::clone(&filled.number));
        let held = filled.bytes.len() as u64 + filled.table_bytes();
        let rows = filled.rows.clone();
        let Some(slot) = self.buffers.occupy(Slot::Filled(filled)) else { return false };
        self.buffers.set_home(slot, cluster);
        let entered = rows.iter().filter(|row| self.enter(slot, cluster, row)).count();
        add(&self.shared.counters.neighbours_read, entered.saturating_sub(1) as u64);
        let resident = Resident { volume: self.medium.number, slot, bytes: held, group, number };
        self.shared.reserve_memory(held, || self.shared.cache_cluster(resident));
        true
    }

    /// The group whose objects a cluster holds; 0 where clusters are of no group alone.
    pub(crate) fn group_in(&self, cluster: &[u8], rows: &[Row]) -> u32 {
        let first = rows.first().filter(|_| self.placer.keeps_apart());
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

    /// Points the index at a row's frame in the buffer, if that frame is current.
    fn enter(&self, slot: u32, cluster: u32, row: &Row) -> bool {
        let grain = self.medium.grain(cluster, row.offset);
        match self.index.find(row.hash, Location::OnDisk { grain }) {
            Some(entry) => self.move_into(slot, row, entry).is_some(),
            None => self.enter_copy(slot, row, grain),
        }
    }

    fn move_into(&self, slot: u32, row: &Row, entry: IndexEntry) -> Option<IndexEntry> {
        let place = Location::Buffered { slot, offset: row.offset / GRAIN as u32 };
        let old = self.index.change(row.hash, entry, |entry| entry.at(place))?;
        self.forget_live(old);
        Some(old)
    }

    /// Serves an object from its copy. A cache lets the index point at the copy from now on. A store does not:
    /// recovery knows no copies, and nothing would keep reclaim from the original; it keeps the object as a
    /// single one.
    fn enter_copy(&self, slot: u32, row: &Row, grain: u64) -> bool {
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
}

/// Whether two objects belong together, by what their headers say.
fn belong_together(one: &Header, other: &Header) -> bool {
    if one.group | other.group != 0 { one.group == other.group } else { one.server == other.server }
}

fn is_intact(frame: &[u8], row: &Row, mark: u64) -> bool {
    Header::verify(frame).is_ok_and(|header| header.mark == mark && header.generation == row.generation)
}
