//! Placing an object: the second half of a put. A buffer that seals at once.
//!
//! Steps: slots are taken → the frame is written there, alone or through the packetizer → table and index say *on
//! disk* → the log is told → what it replaced begins to leave → it may stay in memory.

use picaflor::{
    Result,
    layout::{Blocked, Draft, Frame, IndexEntry, VolumeEnv},
};
use picaflor_format::{
    frame::{self, Kind},
    journal::{Placed, Record},
    zone::SLOT,
};

use super::{
    place::{InPlace, grain_of},
    space::Place,
};

impl InPlace {
    /// Writes an object to a place of its own and enters it in the index, instead of `old`.
    /// The outer result is the device's; the inner one says whether there was room and `old` was still there.
    pub(super) fn place(
        &self,
        volume: &dyn VolumeEnv,
        draft: &Draft<'_>,
        stays: bool,
        old: Option<IndexEntry>,
    ) -> Result<Result<(), Blocked>> {
        // Twice: as it is written, and as it stays in memory.
        let bytes = 2 * (draft.header.frame_len() as u64).next_multiple_of(SLOT);
        let turn = self.turn();
        self.env.take_memory(bytes);
        let placed = self.place_in_turn(volume, draft, old, 0);
        self.env.give_memory(bytes);
        drop(turn);
        let (frame, grain) = match placed? {
            Ok(placed) => placed,
            Err(blocked) => return Ok(Err(blocked)),
        };
        if stays {
            volume.cache_placed(frame, grain);
        }
        Ok(Ok(()))
    }

    /// As [`InPlace::place`] by the holder of the turn, with `own` promised slots. Without the key's lock, if `old` is
    /// in a buffer that the caller has. Returns the frame, and where it is.
    pub(super) fn place_in_turn(
        &self,
        volume: &dyn VolumeEnv,
        draft: &Draft<'_>,
        old: Option<IndexEntry>,
        own: u64,
    ) -> Result<Result<(Frame, u64), Blocked>> {
        // A close has had the turn: what it vouches for is all there is.
        if let Some(failure) = self.log.failure() {
            return Err(failure);
        }
        let slots = draft.header.frame_len().div_ceil(SLOT as usize) as u32;
        let piece = matches!(draft.header.kind, Kind::Chunk | Kind::Manifest);
        let Some((slot, slots)) = self.extents.take(slots, piece, own) else { return Ok(Err(Blocked::Space)) };
        let mut frame = vec![0; slots as usize * SLOT as usize];
        let header = draft.lay(self.medium.hasher.mark(u64::from(slot)), &mut frame);
        let hash = self.medium.hasher.frame(header.kind, draft.key).0;
        let place = Place { hash, slot, slots };
        match self.file_of(slot) {
            None => self.write_frame(u64::from(slot) * SLOT, &frame)?,
            Some(files) => self.write_file(files, place, &header, &frame)?,
        }
        // Before the index has it: what drops the entry finds the row.
        self.enter_row(place, header.kind == Kind::Whole);
        if !volume.enter(draft.hash, place.grain(), place.grains(), old) {
            self.extents.release(slot);
            return Ok(Err(Blocked::Moved));
        }
        self.log.record(Record::Placed(Placed { hash, generation: header.generation, slot, slots }));
        volume.replaced(draft.hash, old);
        // The end of the last slot is given back; the rest stays where it is.
        frame.truncate(frame::HEADER + header.payload_len());
        frame.shrink_to_fit();
        Ok(Ok((Frame::new(draft.hash, header, frame.into()), grain_of(slot))))
    }
}
