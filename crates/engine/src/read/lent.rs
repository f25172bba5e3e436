//! What places of objects are lent of their volume: [`VolumeEnv`] over the parts that all others stand on.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use bytes::Bytes;
use picaflor_format::{
    cluster::Row,
    frame::{Header, Kind},
};

use crate::{
    Result,
    base::{
        blocked::Blocked,
        frame::{Draft, Frame},
        places::VolumeEnv,
    },
    cache::buffers::{Open, Slot},
    index::{Entered, IndexEntry, Location},
    read::parts::Parts,
    space::Queue,
};

impl VolumeEnv for Parts {
    fn find(&self, hash: u64, grain: u64) -> Option<IndexEntry> {
        self.catalog.index.find(hash, Location::OnDisk { grain })
    }

    fn enter(&self, hash: u64, grain: u64, grains: u32, old: Option<IndexEntry>) -> bool {
        self.catalog.grants().note(grain);
        self.catalog.index.put(hash, Location::OnDisk { grain }, grains, old) != Entered::OldGone
    }

    fn replaced(&self, hash: u64, old: Option<IndexEntry>) {
        self.catalog.replaced(hash, old);
    }

    fn drop_entry(&self, hash: u64, entry: IndexEntry) -> bool {
        self.catalog.drop_entry(hash, entry)
    }

    fn cache_placed(&self, frame: Frame, grain: u64) {
        let hash = frame.hash;
        self.shared.cache_object(&Arc::new(frame), || self.find(hash, grain).is_some());
    }

    fn read_frame(&self, grain: u64, grains: u32) -> Result<(Header, Bytes)> {
        self.frames.read_frame(grain, grains)
    }

    fn read_unverified(&self, grain: u64, grains: u32) -> Result<Bytes> {
        self.frames.read_unverified(grain, grains)
    }

    fn is_left_over(&self, header: &Header, frame: &[u8]) -> bool {
        self.frames.is_left_over(header, frame)
    }

    fn has_leases(&self) -> bool {
        self.shared.leases.none().is_none()
    }

    fn is_kept(&self, header: &Header, frame: &[u8]) -> bool {
        header.kind == Kind::Chunk && self.shared.leases.keep(header.key(frame), self.frames.lease_max()).is_none()
    }

    fn lane(&self, header: &Header) -> usize {
        let placer = &self.catalog.placer;
        placer.lane(placer.class(header.kind, header.group, header.server), Queue::Small, header.generation)
    }

    fn open_buffer(&self, header: &Header, bytes: u64) -> Option<u32> {
        self.shared.reserve_memory(bytes, || self.shared.buffer_bytes.fetch_add(bytes, Relaxed));
        let since = self.log.journal.lock().next_page();
        let seq = self.log.number_cluster();
        let class = self.catalog.placer.class(header.kind, header.group, header.server);
        let buf = self.shared.pool.take(bytes as usize);
        let slot =
            self.catalog.buffers.occupy(Slot::Open(Open::new(buf, (seq, self.medium.hasher.mark(seq)), class, since)));
        if slot.is_none() {
            self.shared.buffer_bytes.fetch_sub(bytes, Relaxed);
        }
        slot
    }

    fn fits_in(&self, slot: u32, frame_len: usize) -> bool {
        matches!(&*self.catalog.buffers.slot(slot).read(), Slot::Open(open) if open.fits(frame_len))
    }

    fn enter_in(
        &self,
        slot: u32,
        draft: &Draft<'_>,
        stays: bool,
        old: Option<IndexEntry>,
    ) -> Result<Box<dyn FnOnce() + '_>, Blocked> {
        let location = self.catalog.enter_in(slot, draft, old)?;
        let kept = stays.then(|| self.catalog.buffered(draft.hash, location)).flatten();
        Ok(Box::new(move || {
            let is_there = |frame: &Frame| self.catalog.index.find(frame.hash, location).is_some();
            kept.map(Arc::new).into_iter().for_each(|frame| self.shared.cache_object(&frame, || is_there(&frame)));
        }))
    }

    fn rows_in(&self, slot: u32) -> Vec<Row> {
        match &*self.catalog.buffers.slot(slot).read() {
            Slot::Open(open) => open.rows().to_vec(),
            _ => Vec::new(),
        }
    }

    fn frame_in(&self, slot: u32, row: &Row) -> Option<(IndexEntry, Frame)> {
        let entry = self.catalog.entry_in_slot(slot, row)?;
        Some((entry, self.catalog.buffered(row.hash, entry.location())?))
    }

    fn close_buffer(&self, slot: u32, bytes: u64) {
        self.catalog.buffers.vacate(slot);
        self.shared.buffer_bytes.fetch_sub(bytes, Relaxed);
    }
}
