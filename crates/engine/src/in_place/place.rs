//! Slots of a device, or files, that objects have one by one: what writes them, reads around them, and makes them free.
//!
//! Invariant: what is written is in the order of the turn, so that cursor, packetizer and device see one stream.

use std::{io, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use picaflor_device::AlignedBuf;
use picaflor_format::{
    frame::{self, ChunkKey, GRAIN, Header},
    zone::SLOT,
};

use crate::{
    Durability, Error, Mode, Options, Result,
    base::medium::Medium,
    base::stats::add,
    in_place::files::Files,
    in_place::packet::{Packet, Pending},
    index::{IndexEntry, Location},
    log::recorder::Log,
    shared::Shared,
    space::{Extents, Freed, LayoutKind, Place},
};

/// What a volume has whose objects lie in place.
pub(crate) struct InPlace {
    medium: Arc<Medium>,
    shared: Arc<Shared>,
    log: Arc<Log>,
    pub(crate) extents: Extents,
    packet: Option<Mutex<Packet>>,
    /// Where each object has a file, and slots are but numbers.
    pub(crate) files: Option<Arc<Files>>,
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

    /// Slots of a volume, and files where `files` has them.
    pub(crate) fn new(
        (medium, shared, log): (&Arc<Medium>, &Arc<Shared>, &Arc<Log>),
        threshold: u32,
        files: Option<Arc<Files>>,
    ) -> Self {
        let layout = shared.preset.layout;
        let (_, zone) = medium.map.in_place();
        Self {
            medium: Arc::clone(medium),
            shared: Arc::clone(shared),
            log: Arc::clone(log),
            extents: Extents::new(layout, (zone.start / SLOT) as u32, (zone.len / SLOT) as u32, threshold),
            files,
            packet: (layout == LayoutKind::Packets).then(|| Mutex::new(Packet::new())),
            turn: Mutex::new(()),
            payload_max: payload_max(&shared.options, zone.len),
            end: zone.end(),
        }
    }

    /// The slot at which an entry's frame begins.
    pub(crate) fn slot_of(grain: u64) -> u32 {
        (grain / u64::from(GRAINS)) as u32
    }

    /// Brings what the table, and the names of files, take up to date. Returns whether that grew.
    pub(crate) fn account(&self) -> bool {
        self.extents.account(&self.shared.index_bytes, self.files.as_ref().map_or(0, |files| files.bytes()))
    }

    /// Where a frame in this slot lies.
    pub(crate) fn grain_of(slot: u32) -> u64 {
        u64::from(slot) * u64::from(GRAINS)
    }

    pub(crate) fn location(slot: u32) -> Location {
        Location::OnDisk { grain: Self::grain_of(slot) }
    }

    /// Whether a frame that was read at this grain was written there. Files are read by their names.
    pub(crate) fn is_of_place(&self, grain: u64, header: &Header) -> bool {
        self.files.is_some() || header.mark == self.medium.hasher.mark(Self::slot_of(grain).into())
    }

    /// Held by whoever places an object.
    pub(crate) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// What of this range is not on the device yet. Asked before the device is read, and laid over what it says.
    pub(crate) fn pending(&self, start: u64, len: usize) -> Option<Pending> {
        self.packet.as_ref()?.lock().pending(start, len)
    }

    /// A failed write stops the volume. A block that cannot be read, though part of it is to be kept, stops this put
    /// only: its slots stay taken, and nobody tries them again in this run.
    pub(crate) fn write_frame(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = match &self.packet {
            Some(packet) => packet.lock().append(offset, bytes, |offset, parts| self.write_parts(offset, parts)),
            None => {
                let blocks =
                    self.blocks_around(offset, bytes.len()).map_err(|error| self.medium.io("reading blocks", error))?;
                self.write_into(blocks, offset, [bytes, &[]])
            }
        };
        written.map_err(|error| {
            self.log.fail("writing an object", error);
            self.log.commits.failure().unwrap_or(Error::Closed)
        })
    }

    /// Writes what the packetizer holds back.
    pub(crate) fn flush_packet(&self) -> Result<()> {
        let Some(packet) = &self.packet else { return Ok(()) };
        packet
            .lock()
            .flush(|offset, parts| self.write_parts(offset, parts))
            .map_err(|error| self.medium.io("writing a packet", error))
    }

    /// Writes bytes at any slot.
    fn write_parts(&self, offset: u64, parts: [&[u8]; 2]) -> io::Result<()> {
        let blocks = self.blocks_around(offset, parts[0].len() + parts[1].len())?;
        self.write_into(blocks, offset, parts)
    }

    /// A buffer of the device's blocks around a range, with what of the first and the last one lies outside it: slots
    /// are shorter than most devices' blocks. First byte on the device, and the buffer.
    fn blocks_around(&self, offset: u64, len: usize) -> io::Result<(u64, AlignedBuf)> {
        let block = self.medium.device.block_size() as u64;
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
        self.medium.write_all(vec![(start, buf.into_bytes())])
    }

    fn read_block(&self, offset: u64, block: &mut [u8]) -> io::Result<()> {
        self.medium.read(offset, block)
    }

    /// Bytes of body of the pieces into which an object has to be cut to find room; `None` if that would not help, or
    /// if it has not come to that: what is leaving is waited for, and before there are many pieces a cache lets others
    /// leave, a few times.
    pub(crate) fn cut_for(&self, payload: usize, rounds: u32) -> Option<usize> {
        const ROUNDS: u32 = 4;
        const PIECES: usize = 8;
        let extents = &self.extents;
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
        let found = self.extents.cut_for(|slots| total.div_ceil(piece(slots)) as u64 + 1);
        self.files.is_none().then(|| piece(found.unwrap_or(SHORT)))
    }

    /// First byte and end of the blocks around a frame in place.
    pub(crate) fn blocks_of(&self, entry: IndexEntry, grain: u64) -> (u64, u64) {
        let block = if self.files.is_some() { SLOT } else { self.medium.device.block_size() as u64 };
        let offset = grain * GRAIN as u64;
        let slots = self.extents.len_at(Self::slot_of(grain));
        let len = slots.map_or(u64::from(entry.grains()) * GRAIN as u64, |slots| u64::from(slots) * SLOT);
        let most = if self.files.is_some() { u64::MAX } else { self.end.next_multiple_of(block) };
        let end = (offset + len).next_multiple_of(block).min(most);
        (offset / block * block, end)
    }

    /// The object at this grain was read from the device.
    pub(crate) fn note_use(&self, grain: u64) {
        self.extents.touch(Self::slot_of(grain));
    }

    pub(crate) fn write_file(&self, files: &Files, place: Place, header: &Header, frame: &[u8]) -> Result<()> {
        let bytes = &frame[..frame::HEADER + header.payload_len()];
        self.medium.count_write(bytes.len());
        files.write(place.slot, place.hash, header.generation, header.server, bytes).map_err(|error| {
            self.log.fail("writing a file", error);
            self.log.commits.failure().unwrap_or(Error::Closed)
        })
    }

    /// The file that this grain stands for, if objects have files.
    pub(crate) fn read_file(&self, grain: u64) -> Option<io::Result<Vec<u8>>> {
        let files = self.files.as_ref()?;
        Some(files.read(Self::slot_of(grain)))
    }

    /// Whether this says that there is no file any more, where each object has one: it went while a get was on its way.
    pub(crate) fn is_file_gone(&self, error: &io::Error) -> bool {
        self.files.is_some() && error.kind() == io::ErrorKind::NotFound
    }

    /// A commit where objects speak for themselves, in files or in slots: what was replaced is removed once its
    /// replacement is durable. A file system keeps the order of removals; what was removed first is not there where
    /// what was removed later is gone. In slots an older version was removed by an earlier commit.
    pub(crate) fn commit_untold(&self) -> Result<()> {
        // Before what it covers is looked at: a delete that comes later waits for the next commit.
        self.log.journal.lock().take_untold();
        let ready = {
            // What somebody removes unasked is removed by now, or is not begun.
            let _removing = self.files.as_ref().map(|files| files.removing());
            self.extents.ready(|_| true)
        };
        let sync = || match &self.files {
            Some(files) => {
                add(&self.shared.counters.device_syncs, 1);
                files.sync()
            }
            None => self.medium.sync(),
        };
        let remove = |freed: &Freed| match &self.files {
            Some(files) => files.remove(freed.slot),
            None => self.wipe(freed.slot),
        };
        let removed = sync().and_then(|()| {
            ready.iter().try_for_each(remove)?;
            if ready.is_empty() { Ok(()) } else { sync() }
        });
        removed.map_err(|error| self.medium.io("making puts durable", error))?;
        self.settle_extents(ready);
        add(&self.shared.counters.commits, 1);
        Ok(())
    }

    /// Makes what lies at a slot unreadable: its header is gone.
    pub(crate) fn wipe(&self, slot: u32) -> io::Result<()> {
        let _turn = self.turn();
        self.write_parts(u64::from(slot) * SLOT, [&[0; SLOT as usize], &[]])
    }

    /// Where nobody asks for durability, a file goes at once, as the paper's programs have it.
    pub(crate) fn remove_if_careless(&self) {
        let Some(files) = self.files.as_ref().filter(|_| self.shared.options.durability == Durability::None) else {
            return;
        };
        let removed = {
            let _removing = files.removing();
            let ready = self.extents.ready(|_| true);
            ready.iter().try_for_each(|freed| files.remove(freed.slot)).map(|()| self.settle_extents(ready))
        };
        removed.unwrap_or_else(|error| self.log.fail("removing a file", error));
    }

    /// What may be free after the commit that is about to begin: all whose end is told by now.
    pub(crate) fn ready_extents(&self) -> Vec<Freed> {
        self.extents.ready(|hash| self.shared.try_lock_key(hash).is_some())
    }

    pub(crate) fn settle_extents(&self, ready: Vec<Freed>) {
        self.extents.settle(ready);
        self.account();
    }

    /// Whether the journal should be written though no durability is asked.
    pub(crate) fn has_much_to_tell(&self) -> bool {
        let mut journal = self.log.journal.lock();
        let is_long = journal.pending() >= RECORDS_MAX || journal.is_long();
        // Files have no journal: there it but counts deletes.
        if is_long && self.files.is_some() {
            journal.forget();
        }
        is_long && self.files.is_none()
    }

    /// Adds a row to the table, which may grow.
    pub(crate) fn enter_row(&self, place: Place) {
        match self.extents.growth() {
            0 => self.extents.enter(place),
            more => self.shared.reserve_memory(more, || self.extents.enter(place)),
        }
        if self.account() {
            self.shared.shrink_memory();
        }
    }
}

/// Bytes of body that a piece in so many slots has.
pub(crate) fn piece(slots: u32) -> usize {
    slots as usize * SLOT as usize - frame::HEADER - ChunkKey::LEN
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
