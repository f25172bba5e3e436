//! The device read that a get needs: of the object, or of what lies around it, here and now or as a batch of one.
//!
//! Invariants: a read is counted once, when it starts; a get that joins its flight is told when it lands.

use std::{
    io,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use bytes::Bytes;
use picaflor_device::{BufPool, Op, Request};
use picaflor_format::frame::{self, GRAIN, Header};

use crate::{
    base::{frame::Frame, places::Overlay, stats::add},
    cache::pages::PageRead,
    index::IndexEntry,
    read::reading::{Extent, InFlight, Outcome, Sought},
    volume::Volume,
};

/// Set in the place of a window, which no offset of a device reaches.
const WINDOW: u64 = 1 << 62;

/// A device read that a get needs.
pub(crate) struct Plan {
    pub(super) volume: Arc<Volume>,
    pub(super) entry: IndexEntry,
    pub(super) grain: u64,
    /// When that place was given last, as of before the entry was seen to lead there.
    pub(super) granted: u32,
    pub(super) extent: Extent,
    pub(super) start: u64,
    pub(super) len: usize,
    /// What is read of a cluster, where that is more than the object.
    pub(super) page: Option<(u32, PageRead)>,
}

impl Plan {
    /// For an entry of this hash; `None` if it leads there no more. `neighbours`: whether more than the object may be
    /// read.
    pub(super) fn new(
        volume: &Arc<Volume>,
        hash: u64,
        (entry, grain): (IndexEntry, u64),
        neighbours: bool,
    ) -> Option<Self> {
        let granted = volume.catalog.grants().last(grain);
        volume.catalog.index.find(hash, entry.location())?;
        if let Some(places) = &volume.catalog.places {
            let (start, end) = places.range_of(grain, entry.grains());
            let volume = Arc::clone(volume);
            let (extent, len) = (Extent::Object, (end - start) as usize);
            return Some(Self { volume, entry, grain, granted, extent, start, len, page: None });
        }
        let offset = grain * GRAIN as u64;
        let cluster = volume.medium.cluster_of(grain).unwrap_or(0);
        let class = volume.residents.classes[cluster].load(Relaxed);
        let residents = &volume.residents;
        let extent = match neighbours {
            true => {
                let len = volume.medium.cluster_len();
                residents.reader.extent(class, residents.has_room_for_residents(len), len)
            }
            false => Extent::Object,
        };
        let cluster_start = volume.medium.map().cluster_start(cluster);
        let cluster_end = cluster_start + u64::from(volume.medium.map().cluster);
        let (start, len, page) = match extent {
            Extent::Cluster | Extent::Behind(_) => {
                let at = (offset - cluster_start) as usize;
                let read = residents.read_around(cluster, at, entry.grains(), extent);
                (cluster_start + read.offset as u64, read.len, Some((cluster, read)))
            }
            Extent::Object => {
                let end = offset + u64::from(entry.grains()) * GRAIN as u64;
                let unit = volume.medium.device.read_unit() as u64;
                let start = offset / unit * unit;
                (start, (end.next_multiple_of(unit).min(cluster_end) - start) as usize, None)
            }
        };
        Some(Self { volume: Arc::clone(volume), entry, grain, granted, extent, start, len, page })
    }

    /// Whether it is a file that is to be read: a folder knows no requests.
    pub(super) fn is_of_a_file(&self) -> bool {
        self.volume.catalog.places.as_ref().is_some_and(|places| places.is_file(self.grain))
    }

    /// Whether it may be begun before it is waited for: it is of no batch, which waits for others itself.
    pub(super) fn may_go_ahead(&self) -> bool {
        !self.is_of_a_file() && !self.volume.residents.reader.reads_in_batches()
    }

    /// What makes two reads the same one. Starts are block-aligned, so the low bits are free for the extent.
    pub(super) fn sought(&self, ring: u64) -> Sought {
        let place = match self.extent {
            Extent::Object => self.grain << 1,
            Extent::Behind(_) => self.grain << 1 | 1 | WINDOW,
            Extent::Cluster => self.start << 1 | 1,
        };
        Sought { place, granted: self.granted, ring }
    }

    /// Whether the entry leads to what was read, if it leads there still.
    pub(super) fn is_current(&self) -> bool {
        self.volume.catalog.grants().last(self.grain) == self.granted
    }

    fn count(&self) {
        let shared = &self.volume.shared;
        let kind = match self.extent {
            Extent::Object => &shared.counters.object_reads,
            Extent::Cluster | Extent::Behind(_) => &shared.counters.cluster_reads,
        };
        add(kind, 1);
        self.volume.medium.count_read(self.len);
        shared.last_read.store(shared.clock.now_nanos(), Relaxed);
        self.volume.residents.note_access(self.grain);
        self.volume.residents.reader.begin();
    }

    /// What of it is not on the device yet. Asked before the device is read.
    fn overlay(&self) -> Option<Overlay> {
        self.volume.catalog.places.as_ref()?.overlay(self.start, self.len)
    }

    pub(super) fn read_here(&self) -> Outcome {
        self.count();
        let clock = &self.volume.shared.clock;
        let began = clock.now_nanos();
        let file = self.volume.catalog.places.as_ref().and_then(|places| places.read_file(self.grain));
        let outcome = file.map_or_else(|| self.read_device(), |read| read.map(Bytes::from));
        self.volume.residents.reader.took(self.len, clock.now_nanos() - began);
        outcome.map_err(Arc::new)
    }

    fn read_device(&self) -> io::Result<Bytes> {
        let mut buf = self.volume.shared.pool.take(self.len);
        let overlay = self.overlay();
        self.volume.medium.device.read(self.start, &mut buf)?;
        overlay.into_iter().for_each(|lay_over| lay_over(&mut buf));
        Ok(buf.into_bytes())
    }

    /// Starts the read, or joins one that is under way: a read that only this ring's thread waits for, but for ring 0.
    pub(super) fn begin(&self, ring: u64) -> (Arc<InFlight>, bool) {
        let place = self.sought(ring);
        let (flight, lead) = self.volume.residents.reader.join(place);
        if lead {
            self.read_elsewhere(place, &flight);
        }
        (flight, lead)
    }

    /// Starts the read, which is not of a file; every get that joined the flight is told.
    fn read_elsewhere(&self, place: Sought, flight: &Arc<InFlight>) {
        self.count();
        let (volume, flight) = (Arc::clone(&self.volume), Arc::clone(flight));
        let (len, began) = (self.len, self.volume.shared.clock.now_nanos());
        let overlay = self.overlay();
        let done = Box::new(move |mut outcome: io::Result<picaflor_device::AlignedBuf>| {
            if let (Some(lay_over), Ok(read)) = (overlay, &mut outcome) {
                lay_over(read);
            }
            volume.residents.reader.took(len, volume.shared.clock.now_nanos() - began);
            let outcome = outcome.map(picaflor_device::AlignedBuf::into_bytes).map_err(Arc::new);
            volume.residents.reader.land(place, &flight, outcome);
        });
        let buf = self.volume.shared.pool.take(self.len);
        let request = Request { offset: self.start, op: Op::Read(buf), done };
        if self.volume.residents.reader.reads_in_batches() {
            self.volume.batch.hold_read(request);
        } else if place.ring != 0 {
            self.volume.medium.device.submit_own(request);
        } else {
            self.volume.medium.device.submit(vec![request]);
        }
    }

    /// The frame: without a copy where that pins little more than the frame, or what memory holds anyway.
    pub(super) fn lift(&self, bytes: &Bytes, at: usize, hash: u64, header: Header, held: bool) -> Frame {
        let len = frame::HEADER + header.payload_len();
        let frame = |bytes| Frame::new(hash, header, bytes);
        if held {
            frame(bytes.slice(at..at + len))
        } else if BufPool::taken(bytes.len()) - len <= len / 16 {
            frame(bytes.slice(at..at + len)).part_of_buffer(bytes.len())
        } else {
            frame(self.volume.shared.pool.copy(&bytes[at..at + len]))
        }
    }
}
