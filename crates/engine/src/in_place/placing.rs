//! Putting an object in place: the second half of a put for layouts without clusters. A buffer that seals at once.
//!
//! Steps: slots are taken → the frame is written there, alone or through the packetizer → table and index say *on
//! disk* → the journal is told → what it replaced begins to leave → it may stay in memory.
//!
//! Invariants: one object is placed at a time; index, journal and what leaves change in this order, under the key's
//! lock, so that a checkpoint that misses the one finds the other (`docs/FORMAT.md`, "In place").

use std::sync::{Arc, atomic::Ordering::Relaxed};

use picaflor_format::{
    frame::{self, Kind},
    journal::{Placed, Record},
    zone::SLOT,
};

use crate::{
    Result,
    base::frame::Draft,
    base::frame::Frame,
    in_place::place::InPlace,
    index::{Entered, IndexEntry, Location},
    read::parts::Parts,
    space::Place,
    write::append::Appender,
    write::blocked::Blocked,
    write::placement::Class,
};

/// What places objects, and lets them leave.
pub(crate) struct Placing {
    pub(crate) parts: Parts,
    pub(crate) in_place: Arc<InPlace>,
    /// Its lanes have the locality buffers.
    pub(crate) appender: Arc<Appender>,
}

impl Placing {
    pub(crate) fn new(parts: &Parts, appender: &Arc<Appender>) -> Option<Self> {
        let in_place = parts.catalog.in_place.clone()?;
        Some(Self { parts: parts.clone(), in_place, appender: Arc::clone(appender) })
    }

    /// Writes an object to a place of its own and enters it in the index, instead of `old`.
    /// The outer result is the device's; the inner one says whether there was room and `old` was still there.
    pub(crate) fn place(
        &self,
        draft: &Draft<'_>,
        class: Class,
        old: Option<IndexEntry>,
    ) -> Result<Result<(), Blocked>> {
        // Twice: as it is written, and as it stays in memory.
        let bytes = 2 * (draft.header.frame_len() as u64).next_multiple_of(SLOT);
        let buffers = &self.parts.shared.buffer_bytes;
        let turn = self.in_place.turn();
        self.parts.shared.reserve_memory(bytes, || buffers.fetch_add(bytes, Relaxed));
        let placed = self.place_in_turn(draft, old, 0);
        buffers.fetch_sub(bytes, Relaxed);
        drop(turn);
        let (frame, location) = match placed? {
            Ok((frame, location)) => (Arc::new(frame), location),
            Err(blocked) => return Ok(Err(blocked)),
        };
        if class != Class::Bypass {
            self.parts.shared.cache_object(&frame, || self.parts.catalog.index.find(draft.hash, location).is_some());
        }
        Ok(Ok(()))
    }

    /// As [`Placing::place`] by the holder of the turn, with `own` promised slots. Without the key's lock, if `old` is
    /// in a buffer that the caller has.
    pub(crate) fn place_in_turn(
        &self,
        draft: &Draft<'_>,
        old: Option<IndexEntry>,
        own: u64,
    ) -> Result<Result<(Frame, Location), Blocked>> {
        // A close has had the turn: what it vouches for is all there is.
        if let Some(failure) = self.parts.log.commits.failure() {
            return Err(failure);
        }
        let extents = &self.in_place.extents;
        let slots = draft.header.frame_len().div_ceil(SLOT as usize) as u32;
        let piece = matches!(draft.header.kind, Kind::Chunk | Kind::Manifest);
        let Some((slot, slots)) = extents.take(slots, piece, own) else { return Ok(Err(Blocked::Space)) };
        let mut frame = vec![0; slots as usize * SLOT as usize];
        let header = draft.lay(self.parts.medium.hasher.mark(u64::from(slot)), &mut frame);
        let location = InPlace::location(slot);
        let hash = self.parts.medium.hasher.frame(header.kind, draft.key).0;
        match &self.in_place.files {
            None => self.in_place.write_frame(u64::from(slot) * SLOT, &frame)?,
            Some(files) => self.in_place.write_file(files, Place { hash, slot, slots }, &header, &frame)?,
        }
        // Before the index has it: what drops the entry finds the row.
        self.in_place.enter_row(Place { hash, slot, slots });
        if self.parts.catalog.index.put(draft.hash, location, slots * InPlace::GRAINS, old) == Entered::OldGone {
            extents.release(slot);
            return Ok(Err(Blocked::Moved));
        }
        self.parts.log.record(Record::Placed(Placed { hash, generation: header.generation, slot, slots }));
        self.parts.catalog.replaced(draft.hash, old);
        // The end of the last slot is given back; the rest stays where it is.
        frame.truncate(frame::HEADER + header.payload_len());
        frame.shrink_to_fit();
        Ok(Ok((Frame::new(draft.hash, header, frame.into()), location)))
    }
}
