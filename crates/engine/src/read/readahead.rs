//! What a read of a whole cluster brought beside the object it was for. Where memory holds clusters, this one becomes
//! resident: its objects are served from its buffer until it is let go. Elsewhere those stay, one by one, that belong
//! to the object.
//!
//! Invariants: only frames that verify, and that the index (or the list of copies) says are current, are
//! entered; while resident the cluster is busy, so reclaim leaves it alone.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;
use picaflor_format::{
    cluster::{self, Row, Table},
    frame::{self, GRAIN, Header, Kind},
};

use crate::{
    base::frame::{Brought, Frame, ReadaheadStats},
    base::reach::Reach,
    base::stats::add,
    cache::buffers::Filled,
    cache::residents::Residents,
    read::window::Neighbours,
    space::State,
    write::placement::Class,
};

impl ReadaheadStats for Residents {
    fn was_used(&self, hash: u64, class: u16, reach: Reach) {
        // For reclaim, which asks the index what was used.
        self.catalog.index.touch(hash);
        add(&self.shared.counters.neighbours_used, 1);
        self.reader.windows.iter().for_each(|windows| windows.used(class, reach));
    }
}

impl Residents {
    /// Takes in what a read of a cluster, or of the part of it that begins at `base`, brought. Returns whether the
    /// cluster became resident.
    pub(crate) fn admit_neighbours(
        self: &Arc<Self>,
        (grain, granted): (u64, u32),
        base: usize,
        bytes: &Bytes,
        sought: &Header,
    ) -> bool {
        if self.shared.memory.retention.holds_clusters() {
            return self.admit_cluster((grain, granted), bytes);
        }
        self.read_ahead((grain, granted), base, bytes, sought);
        false
    }

    /// Lets those stay in memory, each by itself, that lie in the same cluster as the object at `grain` and belong to
    /// it: what else is in the cluster would take memory from them.
    fn read_ahead(self: &Arc<Self>, (grain, granted): (u64, u32), base: usize, bytes: &Bytes, sought: &Header) {
        let around = match bytes.len() == self.medium.cluster_len() {
            true => self.sealed(grain, bytes).map(|(cluster, own, rows)| (cluster, own.class, rows)),
            false => self.behind(grain, base, bytes, sought),
        };
        let Some((cluster, class, rows)) = around else { return };
        let weak = Arc::downgrade(self);
        let brought = Arc::new(Brought { by: weak, class });
        // Where the object ends in its cluster, and how far behind it the bytes go.
        let (len, end) = (self.medium.cluster_len(), self.end_in_cluster(grain, cluster, sought));
        let reach = match base + bytes.len() {
            all if all < len => Reach::within(all.saturating_sub(end), len),
            _ if base == 0 => Reach::CLUSTER,
            _ => Reach::REST,
        };
        let mut neighbours = Neighbours::default();
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
            let Some(entry) = self.catalog.current_at(row, at) else { continue };
            let frame = self.shared.pool.copy(&frame[..frame::HEADER + header.payload_len()]);
            let needed = match at < grain {
                true => Reach::CLUSTER,
                false => Reach::needed((row.offset as usize + header.frame_len()).saturating_sub(end), len),
            };
            let frame = Arc::new(Frame::new(row.hash, header, frame).brought_by(&brought, needed));
            let is_there = || self.catalog.index.find(row.hash, entry.location()).is_some();
            self.shared.cache_object(&frame, || is_there() && self.space.grants.last(cluster) == granted);
            neighbours[needed.at()] += 1;
        }
        add(&self.shared.counters.neighbours_read, neighbours.iter().map(|count| u64::from(*count)).sum());
        self.reader.windows.iter().for_each(|windows| windows.brought(class, &neighbours, reach));
    }

    fn end_in_cluster(&self, grain: u64, cluster: u32, object: &Header) -> usize {
        (grain - self.medium.grain(cluster, 0)) as usize * GRAIN + object.frame_len()
    }

    /// The cluster around `grain`, its class, and the rows of what lies behind the object there in these bytes, which
    /// begin at `base`. There is no table in them: frames follow each other, and have the mark of one use.
    pub(crate) fn behind(
        &self,
        grain: u64,
        base: usize,
        bytes: &[u8],
        sought: &Header,
    ) -> Option<(u32, u16, Vec<Row>)> {
        let cluster = self.medium.cluster_of(grain).filter(|cluster| self.space.state(*cluster) == State::Sealed)?;
        let first = self.end_in_cluster(grain, cluster, sought) - base;
        let rows = self.medium.frames_in(bytes, first..bytes.len(), base, Some(sought.mark));
        Some((cluster, self.classes[cluster].load(Relaxed), rows))
    }

    /// The cluster around `grain` with its header and rows, if these bytes are of one use of it, and no other get made
    /// it resident or reclaimed it meanwhile: all gets that waited for the same read ask.
    pub(crate) fn sealed(&self, grain: u64, bytes: &[u8]) -> Option<(u32, cluster::Header, Vec<Row>)> {
        let cluster = self.medium.cluster_of(grain).filter(|cluster| self.space.state(*cluster) == State::Sealed)?;
        let header = cluster::Header::decode(bytes).ok()?;
        let Ok(Table::Rows(last, rows)) = cluster::decode_table(bytes) else { return None };
        (last.seq == header.seq).then_some((cluster, header, rows))
    }

    /// Makes the cluster around `grain` resident, where memory holds clusters, if it was not made so, reclaimed, or
    /// granted anew, meanwhile. Returns whether it is.
    pub(crate) fn admit_cluster(self: &Arc<Self>, (grain, granted): (u64, u32), bytes: &Bytes) -> bool {
        let Some((cluster, header, rows)) = self.sealed(grain, bytes) else { return false };
        // Objects that were to bypass memory are given to the caller, and that is all.
        let passes = header.class == Class::Bypass.short() || !self.make_room_for_a_resident(bytes.len());
        if passes || !self.space.shift(cluster, State::Sealed, State::Busy) {
            return false;
        }
        if self.space.grants.last(cluster) != granted {
            self.space.shift(cluster, State::Busy, State::Sealed);
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
}

/// Whether two objects belong together, by what their headers say.
fn belong_together(one: &Header, other: &Header) -> bool {
    if one.group | other.group != 0 { one.group == other.group } else { one.server == other.server }
}

fn is_intact(frame: &[u8], row: &Row, mark: u64) -> bool {
    Header::verify(frame).is_ok_and(|header| header.mark == mark && header.generation == row.generation)
}
