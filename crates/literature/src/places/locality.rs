//! Locality buffers (Markatos et al. 1999, §3.6.1): objects of one origin server wait in memory for each other, and are
//! placed one behind the other when their buffer is full, when another server needs it, or at a commit.
//!
//! The paper says neither how large a buffer is nor which one is the victim: here it is [`BUFFER`] bytes, and that
//! which was added to least recently. Slots are promised when an object is gathered, as many as it needs in pieces of a
//! single slot, so that it finds room when its time comes, however free space is scattered by then.
//!
//! Invariants: an object is gathered or in place, and the index says which; a buffer is emptied under its lane's lock.

use picaflor::{
    Departure, Error, Mode, Result,
    layout::{Blocked, Draft, IndexEntry, VolumeEnv},
};
use picaflor_format::{
    cluster::Row,
    frame::{self, ChunkKey, Header, Kind, Manifest},
    journal::Record,
    zone::SLOT,
};

use super::{
    place::{InPlace, piece},
    waiting::{BUFFER, Waiting},
};

/// Slots that an object may need at the worst: each piece alone in a slot, and their head.
fn needs(frame_len: usize) -> u64 {
    frame_len.div_ceil(piece(1)) as u64 + 2
}

impl InPlace {
    /// Puts an object into its server's buffer; what is long, or a piece already, is placed at once.
    pub(super) fn gather(
        &self,
        volume: &dyn VolumeEnv,
        draft: &Draft<'_>,
        stays: bool,
        old: Option<IndexEntry>,
    ) -> Result<Result<(), Blocked>> {
        let len = draft.header.frame_len();
        // Its head must find a slot even if all else is in pieces.
        let head = frame::HEADER + draft.key.len() + draft.metadata.len() + Manifest::LEN;
        let may_fail = self.env.mode() == Mode::Store && head > SLOT as usize;
        if draft.header.kind != Kind::Whole || len as u64 > BUFFER / 2 || may_fail {
            return self.place(volume, draft, stays, old);
        }
        let mut lane = self.lanes[volume.lane(&draft.header)].lock();
        let Some(slot) = self.buffer_for(volume, &mut lane, &draft.header)? else {
            return Ok(Err(Blocked::Buffers));
        };
        if !self.extents.promise(needs(len)) {
            return Ok(Err(Blocked::Space));
        }
        match volume.enter_in(slot, draft, stays, old) {
            Ok(cache) => {
                drop(lane);
                cache();
                Ok(Ok(()))
            }
            Err(blocked) => {
                self.extents.keep_promise(needs(len));
                Ok(Err(blocked))
            }
        }
    }

    /// The buffer of this lane, if it is the server's and has room; else it is emptied and a new one begun.
    fn buffer_for(&self, volume: &dyn VolumeEnv, lane: &mut Option<Waiting>, header: &Header) -> Result<Option<u32>> {
        if let Some(Waiting { slot, server }) = lane {
            if *server == header.server && volume.fits_in(*slot, header.frame_len()) {
                return Ok(Some(*slot));
            }
            self.empty_lane(volume, lane)?;
        }
        let slot = volume.open_buffer(header, BUFFER);
        *lane = slot.map(|slot| Waiting { slot, server: header.server });
        Ok(slot)
    }

    /// Places everything that is gathered.
    pub(super) fn empty_lanes(&self, volume: &dyn VolumeEnv) -> Result<()> {
        self.lanes.iter().try_for_each(|lane| self.empty_lane(volume, &mut lane.lock()))
    }

    /// Places what a buffer holds, in the order in which it came, and gives the buffer up.
    fn empty_lane(&self, volume: &dyn VolumeEnv, lane: &mut Option<Waiting>) -> Result<()> {
        let Some(Waiting { slot, .. }) = *lane else { return Ok(()) };
        let _turn = self.turn();
        for row in volume.rows_in(slot) {
            self.settle_down(volume, slot, &row)?;
            self.extents.keep_promise(needs(row.len as usize));
        }
        *lane = None;
        volume.close_buffer(slot, BUFFER);
        Ok(())
    }

    /// Places one object of a buffer, if it is still its key's.
    fn settle_down(&self, volume: &dyn VolumeEnv, slot: u32, row: &Row) -> Result<()> {
        let Some((entry, frame)) = volume.frame_in(slot, row) else { return Ok(()) };
        let body = frame.body();
        let draft =
            Draft { hash: row.hash, header: frame.header, key: frame.key(), metadata: frame.metadata(), body: &body };
        let own = needs(row.len as usize);
        match self.place_in_turn(volume, &draft, Some(entry), own)? {
            Ok(_) | Err(Blocked::Moved | Blocked::Buffers | Blocked::Staging) => Ok(()),
            Err(Blocked::Space) if self.settle_in_pieces(volume, &draft, entry, own)? => Ok(()),
            Err(Blocked::Space) => self.give_up(volume, &draft, entry),
        }
    }

    /// No free run is long enough any more: the slots that were promised are scattered. False if even its head, with
    /// a long key or much metadata, finds no place.
    fn settle_in_pieces(&self, volume: &dyn VolumeEnv, draft: &Draft<'_>, entry: IndexEntry, own: u64) -> Result<bool> {
        let pieces = |slots: u32| draft.header.payload_len().div_ceil(piece(slots)) as u64 + 1;
        let Some(len) = self.extents.cut_for(pieces).map(piece) else { return Ok(false) };
        let parent = self.medium.hasher.key(draft.key).0;
        let id = self.env.next_generation();
        let manifest = Manifest { id, total: draft.body.len() as u64, chunk: len as u32, tail: 0 };
        for (number, body) in draft.body.chunks(len).enumerate() {
            let key = ChunkKey { parent, id: manifest.id, number: number as u32 }.encode();
            let header = header_of(draft, Kind::Chunk, self.env.next_generation(), &key, &[], body);
            let chunk = Draft { hash: self.medium.hasher.chunk(&key).short(), header, key: &key, metadata: &[], body };
            if self.place_in_turn(volume, &chunk, None, own)?.is_err() {
                return Ok(false);
            }
        }
        let body = manifest.encode();
        let header = header_of(draft, Kind::Manifest, draft.header.generation, draft.key, draft.metadata, &body);
        self.env.forget_object(draft.hash);
        // Replaced or deleted meanwhile, its pieces are no object's: the scrubber, or LRU, takes them.
        let placed = self.place_in_turn(volume, &Draft { header, body: &body, ..*draft }, Some(entry), own)?;
        Ok(!matches!(placed, Err(Blocked::Space)))
    }

    /// A cache loses what finds no place. In a store nothing is gathered that might not.
    fn give_up(&self, volume: &dyn VolumeEnv, draft: &Draft<'_>, entry: IndexEntry) -> Result<()> {
        if self.env.mode() == Mode::Store {
            return Err(Error::Damaged {
                place: self.medium.place.clone(),
                why: "promised slots are not there".into(),
                mend: "this is a defect in picaflor: please report it".into(),
            });
        }
        if volume.drop_entry(draft.hash, entry) {
            // Its own generation: what is put from now on has a larger one.
            let (hash, generation) = (self.medium.hasher.key(draft.key).0, draft.header.generation);
            self.log.record(Record::Delete { hash, generation });
            self.env.object_left(draft.key, Departure::Evicted);
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
