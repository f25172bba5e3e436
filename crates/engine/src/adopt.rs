//! A cluster that was read whole becomes resident: its objects are served from its buffer until S3-FIFO
//! lets it go.
//!
//! Invariants: only frames that verify, and that the index (or the list of copies) says are current, are
//! entered; while resident the cluster is busy, so reclaim leaves it alone.

use std::sync::{Arc, atomic::AtomicU32};

use bytes::Bytes;
use picaflor_format::{
    cluster::{self, Row, Table},
    frame::{GRAIN, Header},
};

use crate::{
    buffers::{Filled, Slot},
    index::Location,
    memory::Resident,
    space::State,
    stats::add,
    volume::Volume,
};

impl Volume {
    /// Makes the cluster around `grain` resident, if nobody did or reclaimed it meanwhile.
    pub(crate) fn adopt(self: &Arc<Self>, grain: u64, bytes: &Bytes) {
        let Some(cluster) = self.cluster_of(grain) else { return };
        let Ok(header) = cluster::Header::decode(bytes) else { return };
        let Ok(Table::Rows(last, rows)) = cluster::decode_table(bytes) else { return };
        if last.seq != header.seq || !self.space.shift(cluster, State::Sealed, State::Busy) {
            return;
        }
        let rows: Vec<Row> = rows.into_iter().filter(|row| is_intact(bytes, row, header.seq)).collect();
        let filled = Filled {
            bytes: bytes.clone(),
            rows: rows.clone(),
            class: header.class,
            bypass: false,
            cluster,
            since: u64::MAX,
            flushed: bytes.len(),
            written: true,
            read_in: true,
            served: AtomicU32::new(1),
        };
        let held = bytes.len() as u64 + filled.table_bytes();
        let Ok(slot) = self.buffers.occupy(Slot::Filled(filled)) else {
            self.space.shift(cluster, State::Busy, State::Sealed);
            return;
        };
        self.buffers.set_home(slot, cluster);
        let entered = rows.iter().filter(|row| self.enter(slot, cluster, row)).count();
        add(&self.shared.counters.neighbours_read, entered.saturating_sub(1) as u64);
        let resident = Resident { volume: self.number, slot, bytes: held };
        self.shared.take(held, || self.shared.memory.retain(resident));
    }

    /// Points the index at a row's frame in the buffer, if that frame is current.
    fn enter(&self, slot: u32, cluster: u32, row: &Row) -> bool {
        let grain = self.grain(cluster, row.offset);
        let own = self.index.find(row.hash, Location::OnDisk { grain });
        // With two candidates, one is another key's, and only reading would tell which.
        let copied = || match self.index.candidates(row.hash)[..] {
            [word] if matches!(word.location(), Location::OnDisk { .. }) => Some(word),
            _ => None,
        };
        let is_copy = own.is_none() && self.placer.has_copy(row.hash, grain);
        let Some(word) = own.or_else(|| if is_copy { copied() } else { None }) else { return false };
        let place = Location::Buffered { slot, offset: row.offset / GRAIN as u32 };
        let Some(old) = self.index.change(row.hash, word, |word| word.at(place)) else { return false };
        self.forget_live(old);
        if let (true, Location::OnDisk { grain: elsewhere }) = (is_copy, old.location()) {
            // The entry will come back to this cluster; the frame it pointed to is now the copy.
            self.placer.add_copy(row.hash, elsewhere);
        }
        true
    }
}

fn is_intact(cluster: &[u8], row: &Row, seq: u64) -> bool {
    let frame = cluster.get(row.offset as usize..).unwrap_or_default();
    Header::verify(frame).is_ok_and(|header| header.cluster_seq == seq && header.generation == row.generation)
}
