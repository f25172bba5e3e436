//! Locality buffers (Markatos et al. 1999, §3.6.1): objects of one origin server wait in memory for each other, and are
//! placed one behind the other when their buffer is full, when another server needs it, or at a commit.
//!
//! The paper says neither how large a buffer is nor which one is the victim: here it is [`BUFFER`] bytes, and that
//! which was added to least recently. Slots are promised when an object is gathered, as many as it needs in pieces of a
//! single slot, so that it finds room when its time comes, however free space is scattered by then.
//!
//! Invariants: an object is gathered or in place, and the index says which; a buffer is emptied under its lane's lock.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use picaflor_format::{
    cluster::Row,
    frame::{self, ChunkKey, GRAIN, Header, Kind, Manifest},
    zone::SLOT,
};

use crate::{
    Departure, Error, Mode, Options, Result,
    base::frame::Draft,
    base::stats::add,
    cache::buffers::{Open, Slot},
    in_place::place::{InPlace, piece},
    in_place::placing::Placing,
    index::{Entered, IndexEntry, Location},
    write::append::Lane,
    write::blocked::Blocked,
    write::placement::Class,
};

/// Bytes of a locality buffer: a dozen objects of mean size, and far more than a disk's track is read in one go.
const BUFFER: u64 = 64 << 10;

/// Locality buffers of a volume: as many as were asked for, in at most a quarter of its memory and an eighth of its
/// slots.
pub(crate) fn buffers(options: &Options, in_place: &InPlace) -> u64 {
    let memory = options.memory / options.places.len() as u64 / 4;
    let slots = u64::from(in_place.extents.count()) * SLOT / 8;
    (options.open_buffers as u64).min(memory / BUFFER).min(slots / BUFFER).max(1)
}

/// Slots that an object may need at the worst: each piece alone in a slot, and their head.
fn needs(frame_len: usize) -> u64 {
    frame_len.div_ceil(piece(1)) as u64 + 2
}

impl Placing {
    /// Puts an object into its server's buffer; what is long, or a piece already, is placed at once.
    pub(crate) fn gather(
        &self,
        draft: &Draft<'_>,
        class: Class,
        old: Option<IndexEntry>,
    ) -> Result<Result<(), Blocked>> {
        let len = draft.header.frame_len();
        // Its head must find a slot even if all else is in pieces.
        let head = frame::HEADER + draft.key.len() + draft.metadata.len() + Manifest::LEN;
        let may_fail = self.parts.shared.options.mode == Mode::Store && head > SLOT as usize;
        if draft.header.kind != Kind::Whole || len as u64 > BUFFER / 2 || may_fail {
            return self.place(draft, class, old);
        }
        let server = self.parts.catalog.placer.class(draft.header.kind, draft.header.group, draft.header.server);
        let mut lane = self.appender.lanes[self.parts.catalog.placer.lane(server, draft.header.generation)].lock();
        let slot = match self.buffer_for(&mut lane, server, len)? {
            Ok(slot) => slot,
            Err(blocked) => return Ok(Err(blocked)),
        };
        if !self.in_place.extents.promise(needs(len)) {
            return Ok(Err(Blocked::Space));
        }
        let offset = match &mut *self.parts.catalog.buffers.slot(slot).write() {
            Slot::Open(open) => open.push(draft),
            _ => return Ok(Err(Blocked::Buffers)),
        };
        let location = Location::Buffered { slot, offset: (offset / GRAIN) as u32 };
        if self.parts.catalog.index.put(draft.hash, location, (len / GRAIN) as u32, old) == Entered::OldGone {
            // Dead where it lies; its promise is taken back when the buffer is emptied.
            return Ok(Err(Blocked::Moved));
        }
        self.parts.catalog.replaced(draft.hash, old);
        let kept = (class != Class::Bypass)
            .then(|| self.parts.catalog.buffers.read(slot, offset, draft.hash, |_, _| true))
            .flatten();
        drop(lane);
        if let Some(frame) = kept {
            self.parts
                .shared
                .cache_object(&Arc::new(frame), || self.parts.catalog.index.find(draft.hash, location).is_some());
        }
        Ok(Ok(()))
    }

    /// The buffer of this lane, if it is the server's and has room; else it is emptied and a new one begun.
    pub(crate) fn buffer_for(&self, lane: &mut Lane, server: Class, len: usize) -> Result<Result<u32, Blocked>> {
        if let Some(slot) = lane[0] {
            let fits = |open: &Open| open.class == server && open.fits(len);
            if matches!(&*self.parts.catalog.buffers.slot(slot).read(), Slot::Open(open) if fits(open)) {
                return Ok(Ok(slot));
            }
            self.empty_lane(lane)?;
        }
        self.parts.shared.reserve_memory(BUFFER, || self.parts.shared.buffer_bytes.fetch_add(BUFFER, Relaxed));
        let since = self.parts.log.journal.lock().next_page();
        let seq = self.parts.log.number_cluster();
        let open = Open::new(
            self.parts.shared.pool.take(BUFFER as usize),
            (seq, self.parts.medium.hasher.mark(seq)),
            server,
            since,
        );
        Ok(match self.parts.catalog.buffers.occupy(Slot::Open(open)) {
            Some(slot) => {
                lane[0] = Some(slot);
                Ok(slot)
            }
            None => {
                self.parts.shared.buffer_bytes.fetch_sub(BUFFER, Relaxed);
                Err(Blocked::Buffers)
            }
        })
    }

    /// Places everything that is gathered.
    pub(crate) fn empty_lanes(&self) -> Result<()> {
        self.appender.lanes.iter().try_for_each(|lane| self.empty_lane(&mut lane.lock()))
    }

    /// Places what a buffer holds, in the order in which it came, and gives the buffer up.
    pub(crate) fn empty_lane(&self, lane: &mut Lane) -> Result<()> {
        let Some(slot) = lane[0] else { return Ok(()) };
        let rows = match &*self.parts.catalog.buffers.slot(slot).read() {
            Slot::Open(open) => open.rows().to_vec(),
            _ => Vec::new(),
        };
        let _turn = self.in_place.turn();
        for row in &rows {
            self.settle_down(slot, row)?;
            self.in_place.extents.keep_promise(needs(row.len as usize));
        }
        lane[0] = None;
        self.parts.catalog.buffers.vacate(slot);
        self.parts.shared.buffer_bytes.fetch_sub(BUFFER, Relaxed);
        Ok(())
    }

    /// Places one object of a buffer, if it is still its key's.
    pub(crate) fn settle_down(&self, slot: u32, row: &Row) -> Result<()> {
        let Some(entry) = self.parts.catalog.entry_in_slot(slot, row) else { return Ok(()) };
        let Some(frame) = self.parts.catalog.buffers.read(slot, row.offset as usize, row.hash, |_, _| true) else {
            return Ok(());
        };
        let body = frame.body();
        let draft =
            Draft { hash: row.hash, header: frame.header, key: frame.key(), metadata: frame.metadata(), body: &body };
        match self.place_in_turn(&draft, Some(entry), needs(row.len as usize))? {
            Ok(_) | Err(Blocked::Moved | Blocked::Buffers | Blocked::Staging) => Ok(()),
            Err(Blocked::Space) if self.settle_in_pieces(&draft, entry, needs(row.len as usize))? => Ok(()),
            Err(Blocked::Space) => self.give_up(&draft, entry),
        }
    }

    /// No free run is long enough any more: the slots that were promised are scattered. False if even its head, with
    /// a long key or much metadata, finds no place.
    pub(crate) fn settle_in_pieces(&self, draft: &Draft<'_>, entry: IndexEntry, own: u64) -> Result<bool> {
        let pieces = |slots: u32| draft.header.payload_len().div_ceil(piece(slots)) as u64 + 1;
        let Some(len) = self.in_place.extents.cut_for(pieces).map(piece) else { return Ok(false) };
        let parent = self.parts.medium.hasher.key(draft.key).0;
        let manifest =
            Manifest { id: self.parts.shared.next_generation(), total: draft.body.len() as u64, chunk: len as u32 };
        for (number, body) in draft.body.chunks(len).enumerate() {
            let key = ChunkKey { parent, id: manifest.id, number: number as u32 }.encode();
            let header = header_of(draft, Kind::Chunk, self.parts.shared.next_generation(), &key, &[], body);
            let chunk =
                Draft { hash: self.parts.medium.hasher.chunk(&key).short(), header, key: &key, metadata: &[], body };
            if self.place_in_turn(&chunk, None, own)?.is_err() {
                return Ok(false);
            }
        }
        let body = manifest.encode();
        let header = header_of(draft, Kind::Manifest, draft.header.generation, draft.key, draft.metadata, &body);
        self.parts.shared.memory.remove(draft.hash);
        // Replaced or deleted meanwhile, its pieces are nobody's: the scrubber, or LRU, takes them.
        let placed = self.place_in_turn(&Draft { header, body: &body, ..*draft }, Some(entry), own)?;
        Ok(!matches!(placed, Err(Blocked::Space)))
    }

    /// A cache loses what finds no place. In a store nothing is gathered that might not.
    pub(crate) fn give_up(&self, draft: &Draft<'_>, entry: IndexEntry) -> Result<()> {
        if self.parts.shared.options.mode == Mode::Store {
            return Err(Error::Damaged {
                place: self.parts.medium.place.clone(),
                why: "promised slots are not there".into(),
                mend: "this is a defect in picaflor: please report it".into(),
            });
        }
        if self.parts.catalog.drop_entry(draft.hash, entry) {
            // Its own generation: what is put from now on has a larger one.
            let generation = draft.header.generation;
            self.parts.log.forget(self.parts.medium.hasher.key(draft.key), generation);
            add(&self.parts.shared.counters.evicted, 1);
            self.parts.shared.note_departure(draft.key, Departure::Evicted);
        }
        Ok(())
    }
}

/// Of a piece or the head of it.
fn header_of(draft: &Draft<'_>, kind: Kind, generation: u64, key: &[u8], metadata: &[u8], body: &[u8]) -> Header {
    Header {
        kind,
        generation,
        key_len: key.len() as u16,
        meta_len: metadata.len() as u32,
        body_len: body.len() as u32,
        payload_crc: frame::payload_crc(key, metadata, body),
        ..draft.header
    }
}
