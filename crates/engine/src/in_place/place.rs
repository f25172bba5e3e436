//! Putting an object in place: the second half of a put for layouts without clusters. A buffer that seals at once.
//!
//! Steps: slots are taken → the frame is written there, alone or through the packetizer → table and index say *on
//! disk* → the journal is told → what it replaced begins to leave → it may stay in memory.
//!
//! Invariants: one object is placed at a time; index, journal and what leaves change in this order, under the key's
//! lock, so that a checkpoint that misses the one finds the other (`docs/FORMAT.md`, "In place").

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, MutexGuard};
use picaflor_common::Hasher;
use picaflor_device::{AlignedBuf, Folder};
use picaflor_format::{
    frame::{self, GRAIN, Header, Kind},
    journal::{Placed, Record},
    zone::{Map, SLOT},
};

use crate::{
    Durability, Error, Mode, Options, Result,
    base::frame::Draft,
    base::frame::Frame,
    base::stats::add,
    in_place::files::Files,
    in_place::locality::piece,
    in_place::packet::{Packet, Pending},
    index::{Entered, IndexEntry, Location},
    space::{Extents, Freed, LayoutKind, Place},
    volume::Volume,
    write::append::Blocked,
    write::placement::Class,
};

/// What a volume has whose objects lie in place.
pub(crate) struct InPlace {
    pub(crate) extents: Extents,
    packet: Option<Mutex<Packet>>,
    /// Where each object has a file, and slots are but numbers.
    pub(crate) files: Option<Files>,
    /// Held by whoever places an object: cursor, packetizer and device see one stream.
    turn: Mutex<()>,
    /// Bytes of key, metadata and body of the longest object that lies in one piece.
    pub(crate) payload_max: usize,
    /// First byte behind the slots.
    end: u64,
}

const GRAINS: u32 = InPlace::GRAINS;
/// Longest object in one piece, whatever memory and device are: it is held in memory while it is put.
const PIECE_MAX: u64 = 4 << 20;
/// Records that wait in memory for a commit that nobody asked for, at most.
const RECORDS_MAX: usize = 8192;

impl InPlace {
    /// Grains of a slot.
    pub(crate) const GRAINS: u32 = (SLOT / GRAIN as u64) as u32;

    /// `None` for the ring.
    pub(crate) fn new(
        (layout, threshold): (LayoutKind, u32),
        map: &Map,
        options: &Options,
        folder: Option<Arc<dyn Folder>>,
    ) -> Option<Self> {
        if layout == LayoutKind::Ring {
            return None;
        }
        let (_, zone) = map.in_place();
        Some(Self {
            extents: Extents::new(layout, (zone.start / SLOT) as u32, (zone.len / SLOT) as u32, threshold),
            files: match (layout, folder) {
                (LayoutKind::Files(tree), Some(folder)) => Some(Files::new(folder, tree)),
                _ => None,
            },
            packet: (layout == LayoutKind::Packets).then(|| Mutex::new(Packet::new())),
            turn: Mutex::new(()),
            payload_max: payload_max(options, zone.len),
            end: zone.end(),
        })
    }

    /// The slot at which an entry's frame begins.
    pub(crate) fn slot_of(grain: u64) -> u32 {
        (grain / u64::from(GRAINS)) as u32
    }

    /// Brings what the table, and the names of files, take up to date. Returns whether that grew.
    pub(crate) fn account(&self, total: &AtomicU64) -> bool {
        self.extents.account(total, self.files.as_ref().map_or(0, Files::bytes))
    }

    /// Where a frame in this slot lies.
    pub(crate) fn grain_of(slot: u32) -> u64 {
        u64::from(slot) * u64::from(GRAINS)
    }

    pub(crate) fn location(slot: u32) -> Location {
        Location::OnDisk { grain: Self::grain_of(slot) }
    }

    /// Whether a frame that was read at this grain was written there. Files are read by their names.
    pub(crate) fn is_of_place(&self, hasher: &Hasher, grain: u64, header: &Header) -> bool {
        self.files.is_some() || header.mark == hasher.mark(Self::slot_of(grain).into())
    }

    /// Held by whoever places an object.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// Whether packets are held back.
    fn pending(&self, start: u64, len: usize) -> Option<Pending> {
        self.packet.as_ref()?.lock().pending(start, len)
    }
}

/// Bytes of key, metadata and body of the longest object that is written as one where objects are written one by one,
/// to so many bytes of device.
pub(crate) fn payload_max(options: &Options, room: u64) -> usize {
    let memory = options.memory / options.places.len() as u64;
    let piece = (memory / 32).min(longest_ever(room)) / SLOT * SLOT;
    piece as usize - frame::HEADER
}

/// Bytes of the longest frame that any opening of so many bytes of device has put, whatever memory it had.
pub(crate) fn longest_ever(room: u64) -> u64 {
    PIECE_MAX.min(room / 16) / SLOT * SLOT
}

impl Volume {
    /// Writes an object to a place of its own and enters it in the index, instead of `old`.
    /// The outer result is the device's; the inner one says whether there was room and `old` was still there.
    pub(crate) fn place(
        self: &Arc<Self>,
        in_place: &InPlace,
        draft: &Draft<'_>,
        class: Class,
        old: Option<IndexEntry>,
    ) -> Result<Result<(), Blocked>> {
        // Twice: as it is written, and as it stays in memory.
        let bytes = 2 * (draft.header.frame_len() as u64).next_multiple_of(SLOT);
        let buffers = &self.shared.buffer_bytes;
        let turn = in_place.turn.lock();
        self.shared.reserve_memory(bytes, || buffers.fetch_add(bytes, Relaxed));
        let placed = self.place_in_turn(in_place, draft, old, 0);
        buffers.fetch_sub(bytes, Relaxed);
        drop(turn);
        let (frame, location) = match placed? {
            Ok((frame, location)) => (Arc::new(frame), location),
            Err(blocked) => return Ok(Err(blocked)),
        };
        if class != Class::Bypass {
            self.shared.cache_object(&frame, || self.index.find(draft.hash, location).is_some());
        }
        Ok(Ok(()))
    }

    /// As [`Volume::place`] by who has the turn, and `own` promised slots. Without the key's lock, if `old` is in a
    /// buffer that the caller has.
    pub(crate) fn place_in_turn(
        &self,
        in_place: &InPlace,
        draft: &Draft<'_>,
        old: Option<IndexEntry>,
        own: u64,
    ) -> Result<Result<(Frame, Location), Blocked>> {
        // Whoever closes the store has had the turn: what it vouches for is all there is.
        if let Some(failure) = self.commits.failure() {
            return Err(failure);
        }
        let extents = &in_place.extents;
        let slots = draft.header.frame_len().div_ceil(SLOT as usize) as u32;
        let piece = matches!(draft.header.kind, Kind::Chunk | Kind::Manifest);
        let Some((slot, slots)) = extents.take(slots, piece, own) else { return Ok(Err(Blocked::Space)) };
        let mut frame = vec![0; slots as usize * SLOT as usize];
        let header = draft.lay(self.hasher.mark(u64::from(slot)), &mut frame);
        let location = InPlace::location(slot);
        let hash = self.hasher.frame(header.kind, draft.key).0;
        match &in_place.files {
            None => self.write_frame(in_place, u64::from(slot) * SLOT, &frame)?,
            Some(files) => self.write_file(files, Place { hash, slot, slots }, &header, &frame)?,
        }
        // Before the index has it: whoever drops the entry finds the row.
        self.enter_row(in_place, Place { hash, slot, slots });
        if self.index.put(draft.hash, location, slots * GRAINS, old) == Entered::OldGone {
            extents.release(slot);
            return Ok(Err(Blocked::Moved));
        }
        self.record(Record::Placed(Placed { hash, generation: header.generation, slot, slots }));
        self.replaced(draft.hash, old);
        // The end of the last slot is given back; the rest stays where it is.
        frame.truncate(frame::HEADER + header.payload_len());
        frame.shrink_to_fit();
        Ok(Ok((Frame::new(draft.hash, header, frame.into()), location)))
    }

    /// Adds a row to the table, which may grow.
    fn enter_row(&self, in_place: &InPlace, place: Place) {
        match in_place.extents.growth() {
            0 => in_place.extents.enter(place),
            more => self.shared.reserve_memory(more, || in_place.extents.enter(place)),
        }
        if in_place.account(&self.shared.index_bytes) {
            self.shared.shrink_memory();
        }
    }

    /// A failed write stops the volume. A block that cannot be read, though part of it is to be kept, stops this put
    /// only: its slots stay taken, and nobody tries them again in this run.
    fn write_frame(&self, in_place: &InPlace, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = match &in_place.packet {
            Some(packet) => packet.lock().append(offset, bytes, |offset, parts| self.write_parts(offset, parts)),
            None => {
                let blocks =
                    self.blocks_around(offset, bytes.len()).map_err(|error| self.io("reading blocks", error))?;
                self.write_into(blocks, offset, [bytes, &[]])
            }
        };
        written.map_err(|error| {
            self.fail("writing an object", error);
            self.commits.failure().unwrap_or(Error::Closed)
        })
    }

    fn io(&self, doing: &str, error: io::Error) -> Error {
        Error::io(format!("{}: {doing}", self.place), error)
    }

    /// Writes what the packetizer holds back.
    pub(crate) fn flush_packet(&self) -> Result<()> {
        let Some(packet) = self.in_place.as_ref().and_then(|in_place| in_place.packet.as_ref()) else { return Ok(()) };
        packet
            .lock()
            .flush(|offset, parts| self.write_parts(offset, parts))
            .map_err(|error| self.io("writing a packet", error))
    }

    /// Writes bytes at any slot.
    fn write_parts(&self, offset: u64, parts: [&[u8]; 2]) -> io::Result<()> {
        let blocks = self.blocks_around(offset, parts[0].len() + parts[1].len())?;
        self.write_into(blocks, offset, parts)
    }

    /// A buffer of the device's blocks around a range, with what of the first and the last one lies outside it: slots
    /// are shorter than most devices' blocks. First byte on the device, and the buffer.
    fn blocks_around(&self, offset: u64, len: usize) -> io::Result<(u64, AlignedBuf)> {
        let block = self.device.block_size() as u64;
        let end = offset + len as u64;
        let (start, padded) = (offset / block * block, end.next_multiple_of(block));
        let mut buf = self.shared.pool.take((padded - start) as usize);
        let last = padded - block;
        if start < offset {
            self.read_block(start, &mut buf[..block as usize])?;
        }
        if end < padded && (last > start || start == offset) {
            self.read_block(last, &mut buf[(last - start) as usize..])?;
        }
        Ok((start, buf))
    }

    fn write_into(&self, (start, mut buf): (u64, AlignedBuf), offset: u64, [a, b]: [&[u8]; 2]) -> io::Result<()> {
        let at = (offset - start) as usize;
        buf[at..at + a.len()].copy_from_slice(a);
        buf[at + a.len()..at + a.len() + b.len()].copy_from_slice(b);
        self.write_all(vec![(start, buf.into_bytes())])
    }

    fn read_block(&self, offset: u64, block: &mut [u8]) -> io::Result<()> {
        add(&self.shared.counters.device_reads, 1);
        add(&self.shared.counters.device_read, block.len() as u64);
        self.device.read(offset, block)
    }

    /// What of this range is not on the device yet. Asked before the device is read, and laid over what it says.
    pub(crate) fn pending(&self, start: u64, len: usize) -> Option<Pending> {
        self.in_place.as_ref()?.pending(start, len)
    }

    /// Bytes of body of the pieces into which an object has to be cut to find room; `None` if that would not help, or
    /// if it has not come to that: what is leaving is waited for, and before there are many pieces a cache lets others
    /// leave, a few times.
    pub(crate) fn cut_for(&self, payload: usize, rounds: u32) -> Option<usize> {
        const ROUNDS: u32 = 4;
        const PIECES: usize = 8;
        let extents = &self.in_place.as_ref()?.extents;
        let (_, leaving, _) = extents.slots();
        if leaving > 0 {
            return None;
        }
        // Their head takes a place too.
        let piece = extents.cut_for(|slots| payload.div_ceil(piece(slots)) as u64 + 1).map(piece)?;
        let is_time = self.shared.options.mode == Mode::Store || rounds >= ROUNDS;
        // What waits in locality buffers has more promised to it than it will take.
        let is_cheap = payload.div_ceil(piece) <= PIECES && !extents.has_promised();
        (is_time || is_cheap).then_some(piece)
    }

    /// Bytes of body of the pieces of a long object of at least `total` bytes. In place the free runs decide, for a
    /// piece is not cut again; where all of them are too little, pieces for which room is made without many leaving.
    pub(crate) fn piece_of_long(&self, total: usize) -> Option<usize> {
        const SHORT: u32 = 128;
        let in_place = self.in_place.as_ref().filter(|in_place| in_place.files.is_none())?;
        let found = in_place.extents.cut_for(|slots| total.div_ceil(piece(slots)) as u64 + 1);
        Some(piece(found.unwrap_or(SHORT)))
    }

    /// Whether the journal should be written though nobody asks for durability.
    pub(crate) fn has_much_to_tell(&self) -> bool {
        let Some(in_place) = &self.in_place else { return false };
        let mut journal = self.journal.lock();
        let is_long = journal.pending() >= RECORDS_MAX || journal.is_long();
        // Files have no journal: there it but counts deletes.
        if is_long && in_place.files.is_some() {
            journal.forget();
        }
        is_long && in_place.files.is_none()
    }

    /// First byte and end of the blocks around a frame in place.
    pub(crate) fn blocks_of(&self, in_place: &InPlace, entry: IndexEntry, grain: u64) -> (u64, u64) {
        let block = if in_place.files.is_some() { SLOT } else { self.device.block_size() as u64 };
        let offset = grain * GRAIN as u64;
        let slots = in_place.extents.len_at(InPlace::slot_of(grain));
        let len = slots.map_or(u64::from(entry.grains()) * GRAIN as u64, |slots| u64::from(slots) * SLOT);
        let most = if in_place.files.is_some() { u64::MAX } else { in_place.end.next_multiple_of(block) };
        let end = (offset + len).next_multiple_of(block).min(most);
        (offset / block * block, end)
    }

    /// Reads and verifies the frame of a row of the table.
    ///
    /// # Errors
    /// As [`Volume::read_frame`].
    pub(crate) fn read_placed(&self, place: &Place) -> Result<(Header, Vec<u8>)> {
        self.read_frame(InPlace::grain_of(place.slot), place.slots * GRAINS)
    }

    /// The object at this grain was read from the device.
    pub(crate) fn note_use(&self, grain: u64) {
        if let Some(in_place) = &self.in_place {
            in_place.extents.touch(InPlace::slot_of(grain));
        }
    }

    fn write_file(&self, files: &Files, place: Place, header: &Header, frame: &[u8]) -> Result<()> {
        let bytes = &frame[..frame::HEADER + header.payload_len()];
        add(&self.shared.counters.device_writes, 1);
        add(&self.shared.counters.device_written, bytes.len() as u64);
        files.write(place.slot, place.hash, header.generation, header.server, bytes).map_err(|error| {
            self.fail("writing a file", error);
            self.commits.failure().unwrap_or(Error::Closed)
        })
    }

    /// The file that this grain stands for, if objects have files.
    pub(crate) fn read_file(&self, grain: u64) -> Option<io::Result<Vec<u8>>> {
        let files = self.in_place.as_ref()?.files.as_ref()?;
        Some(files.read(InPlace::slot_of(grain)))
    }

    /// Whether this says that there is no file any more, where each object has one: it went while a get was on its way.
    pub(crate) fn is_file_gone(&self, error: &io::Error) -> bool {
        let has_files = self.in_place.as_ref().is_some_and(|in_place| in_place.files.is_some());
        has_files && error.kind() == io::ErrorKind::NotFound
    }

    /// A commit where objects speak for themselves, in files or in slots: what was replaced is removed once its
    /// replacement is durable. A file system keeps the order of removals; what was removed first is not there where
    /// what was removed later is gone. In slots an older version was removed by an earlier commit.
    pub(crate) fn commit_untold(&self, in_place: &InPlace) -> Result<()> {
        // Before what it covers is looked at: a delete that comes later waits for the next commit.
        self.journal.lock().take_untold();
        let ready = {
            // What somebody removes unasked is removed by now, or is not begun.
            let _removing = in_place.files.as_ref().map(Files::removing);
            in_place.extents.ready(|_| true)
        };
        let sync = || {
            add(&self.shared.counters.device_syncs, 1);
            in_place.files.as_ref().map_or_else(|| self.device.sync(), Files::sync)
        };
        let remove = |freed: &Freed| match &in_place.files {
            Some(files) => files.remove(freed.slot),
            None => self.wipe(in_place, freed.slot),
        };
        let removed = sync().and_then(|()| {
            ready.iter().try_for_each(remove)?;
            if ready.is_empty() { Ok(()) } else { sync() }
        });
        removed.map_err(|error| self.io("making puts durable", error))?;
        self.settle_extents(ready);
        add(&self.shared.counters.commits, 1);
        Ok(())
    }

    /// Makes what lies at a slot unreadable: its header is gone.
    pub(crate) fn wipe(&self, in_place: &InPlace, slot: u32) -> io::Result<()> {
        let _turn = in_place.turn();
        self.write_parts(u64::from(slot) * SLOT, [&[0; SLOT as usize], &[]])
    }

    /// Where nobody asks for durability, a file goes at once, as the paper's programs have it.
    pub(crate) fn remove_if_careless(&self, in_place: &InPlace) {
        let Some(files) = in_place.files.as_ref().filter(|_| self.shared.options.durability == Durability::None) else {
            return;
        };
        let removed = {
            let _removing = files.removing();
            let ready = in_place.extents.ready(|_| true);
            ready.iter().try_for_each(|freed| files.remove(freed.slot)).map(|()| self.settle_extents(ready))
        };
        removed.unwrap_or_else(|error| self.fail("removing a file", error));
    }

    /// What may be free after the commit that is about to begin: all whose end is told by now.
    pub(crate) fn ready_extents(&self) -> Vec<Freed> {
        let Some(in_place) = &self.in_place else { return Vec::new() };
        in_place.extents.ready(|hash| self.shared.try_lock_key(hash).is_some())
    }

    pub(crate) fn settle_extents(&self, ready: Vec<Freed>) {
        if let Some(in_place) = &self.in_place {
            in_place.extents.settle(ready);
            in_place.account(&self.shared.index_bytes);
        }
    }
}
