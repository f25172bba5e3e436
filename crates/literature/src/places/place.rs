//! Slots of a device, or files, that objects have one by one: what writes them, and reads around them.
//!
//! Invariant: what is written is in the order of the turn, so that cursor, packetizer and device see one stream.

use std::{io, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use picaflor::{
    Mode, Result,
    layout::{Env, LogEnv, Medium, Overlay, PlacesGround},
};
use picaflor_device::AlignedBuf;
use picaflor_format::{
    frame::{self, ChunkKey, GRAIN, Header},
    zone::SLOT,
};

use super::{
    files::{Files, Tree},
    packet::Packet,
    space::{Extents, Layout, Place},
    waiting::{self, Waiting},
};
use crate::piece::payload_max;

/// The places of a volume.
pub(super) struct InPlace {
    pub(super) medium: Arc<Medium>,
    pub(super) env: Arc<dyn Env>,
    pub(super) log: Arc<dyn LogEnv>,
    pub(super) extents: Extents,
    packet: Option<Mutex<Packet>>,
    /// Where objects have files, all or the long ones: those of numbers from `first_file` on.
    files: Option<Files>,
    first_file: u32,
    /// Held while an object is placed: cursor, packetizer and device see one stream.
    turn: Mutex<()>,
    /// Buffers in which objects of a server wait for each other.
    pub(super) lanes: Box<[Mutex<Option<Waiting>>]>,
    /// Bytes of key, metadata and body of the longest object that lies in one piece.
    pub(super) payload_max: usize,
    /// First byte behind the slots.
    end: u64,
}

/// Grains of a slot.
const GRAINS: u32 = (SLOT / GRAIN as u64) as u32;

impl Place {
    /// Where its frame lies.
    pub(super) fn grain(&self) -> u64 {
        grain_of(self.slot)
    }

    /// How long it is.
    pub(super) fn grains(&self) -> u32 {
        self.slots * GRAINS
    }
}

/// The slot at which the frame at a grain begins.
pub(super) fn slot_of(grain: u64) -> u32 {
    (grain / u64::from(GRAINS)) as u32
}

/// Where a frame in this slot lies.
pub(super) fn grain_of(slot: u32) -> u64 {
    u64::from(slot) * u64::from(GRAINS)
}

impl InPlace {
    pub(super) fn new(ground: PlacesGround, layout: Layout) -> Self {
        let PlacesGround { medium, env, log, folder, threshold } = ground;
        let (_, zone) = medium.map().in_place();
        let (first, slots) = ((zone.start / SLOT) as u32, (zone.len / SLOT) as u32);
        let (files, first_file) = match (layout, folder) {
            (Layout::Files(tree), Some(folder)) => (Some(Files::new(folder, tree)), 0),
            (Layout::Slots, Some(folder)) => (Some(Files::new(folder, Tree::Numbers)), first + slots),
            _ => (None, u32::MAX),
        };
        let mut extents = Extents::new(layout, first, slots, threshold);
        if files.is_some() && first_file > 0 {
            extents = extents.with_long_files(first_file, threshold);
        }
        Self {
            files,
            first_file,
            packet: (layout == Layout::Packets).then(|| Mutex::new(Packet::new())),
            turn: Mutex::new(()),
            lanes: (0..waiting::buffers(&*env, &extents)).map(|_| Mutex::new(None)).collect(),
            payload_max: payload_max(&*env, zone.len),
            end: zone.end(),
            extents,
            medium,
            env,
            log,
        }
    }

    /// Brings what the table, and the names of files, take up to date. Returns whether that grew.
    pub(super) fn account(&self) -> bool {
        let files = self.files.as_ref().map_or(0, Files::bytes);
        self.extents.account(files, |before, now| self.env.change_index_bytes(before, now))
    }

    /// The files, where all objects are files.
    pub(super) fn all_files(&self) -> Option<&Files> {
        self.files.as_ref().filter(|_| self.first_file == 0)
    }

    /// The files, where some are: the long ones beside slots.
    pub(super) fn long_files(&self) -> Option<&Files> {
        self.files.as_ref().filter(|_| self.first_file > 0)
    }

    /// The files, if this is the number of one.
    pub(super) fn file_of(&self, slot: u32) -> Option<&Files> {
        self.files.as_ref().filter(|_| slot >= self.first_file)
    }

    /// Numbers that a place takes: a file is one, however long.
    pub(super) fn end_of(&self, slot: u32, slots: u32) -> u32 {
        slot.saturating_add(if self.file_of(slot).is_some() { 1 } else { slots })
    }

    /// Whether a frame that was read at this slot was written there. Files are read by their names.
    pub(super) fn is_of_slot(&self, slot: u32, header: &Header) -> bool {
        self.all_files().is_some() || header.mark == self.medium.hasher.mark(slot.into())
    }

    /// Held while an object is placed.
    pub(super) fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn.lock()
    }

    /// What of this range is not on the device yet. Asked before the device is read, and laid over what it says.
    pub(super) fn overlay(&self, start: u64, len: usize) -> Option<Overlay> {
        let pending = self.packet.as_ref()?.lock().pending(start, len)?;
        Some(Box::new(move |read| pending.lay_over(start, read)))
    }

    /// A failed write stops the volume. A block that cannot be read, though part of it is to be kept, stops this put
    /// only: its slots stay taken, and they are not tried again in this run.
    pub(super) fn write_frame(&self, offset: u64, bytes: &[u8]) -> Result<()> {
        let written = match &self.packet {
            Some(packet) => packet.lock().append(offset, bytes, |offset, parts| self.write_parts(offset, parts)),
            None => {
                let blocks =
                    self.blocks_around(offset, bytes.len()).map_err(|error| self.medium.io("reading blocks", error))?;
                self.write_into(blocks, offset, [bytes, &[]])
            }
        };
        written.map_err(|error| self.log.fail("writing an object", error))
    }

    /// Writes what the packetizer holds back.
    pub(super) fn flush_packet(&self) -> Result<()> {
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
        let mut buf = self.medium.pool.take((padded - start) as usize);
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
    pub(super) fn cut_for(&self, payload: usize, rounds: u32) -> Option<usize> {
        const ROUNDS: u32 = 4;
        const PIECES: usize = 8;
        let extents = &self.extents;
        let (_, leaving, _) = extents.slots();
        // A file is never too long for what is free.
        if leaving > 0 || self.is_long(payload) {
            return None;
        }
        // Their head takes a place too.
        let piece = extents.cut_for(|slots| payload.div_ceil(piece(slots)) as u64 + 1).map(piece)?;
        let is_time = self.env.mode() == Mode::Store || rounds >= ROUNDS;
        // What waits in locality buffers has more promised to it than it will take.
        let is_cheap = payload.div_ceil(piece) <= PIECES && !extents.has_promised();
        (is_time || is_cheap).then_some(piece)
    }

    /// Bytes of body of the pieces of a long object of at least `total` bytes. In place the free runs decide, for a
    /// piece is not cut again; where all of them are too little, pieces for which room is made without many leaving.
    pub(super) fn piece_of_long(&self, total: usize) -> Option<usize> {
        const SHORT: u32 = 128;
        if self.all_files().is_some() || self.is_long(self.payload_max) {
            return None;
        }
        let found = self.extents.cut_for(|slots| total.div_ceil(piece(slots)) as u64 + 1);
        Some(piece(found.unwrap_or(SHORT)))
    }

    /// Whether an object of so many bytes is a file beside slots.
    fn is_long(&self, payload: usize) -> bool {
        self.long_files().is_some() && self.extents.is_long((frame::HEADER + payload).div_ceil(SLOT as usize) as u32)
    }

    /// First byte and end of the blocks around a frame of about so many grains.
    pub(super) fn blocks_of(&self, grain: u64, grains: u32) -> (u64, u64) {
        let is_file = self.file_of(slot_of(grain)).is_some();
        let block = if is_file { SLOT } else { self.medium.device.block_size() as u64 };
        let offset = grain * GRAIN as u64;
        let slots = self.extents.len_at(slot_of(grain));
        let len = slots.map_or(u64::from(grains) * GRAIN as u64, |slots| u64::from(slots) * SLOT);
        let most = if is_file { u64::MAX } else { self.end.next_multiple_of(block) };
        let end = (offset + len).next_multiple_of(block).min(most);
        (offset / block * block, end)
    }

    pub(super) fn write_file(&self, files: &Files, place: Place, header: &Header, frame: &[u8]) -> Result<()> {
        let bytes = &frame[..frame::HEADER + header.payload_len()];
        self.medium.count_write(bytes.len());
        files
            .write(place.slot, place.hash, header.generation, header.server, bytes)
            .map_err(|error| self.log.fail("writing a file", error))
    }

    /// Makes what lies at a slot unreadable: its header is gone.
    pub(super) fn wipe(&self, slot: u32) -> io::Result<()> {
        let _turn = self.turn();
        self.write_parts(u64::from(slot) * SLOT, [&[0; SLOT as usize], &[]])
    }

    /// Adds the row of an object, a `whole` one or not, to the table, which may grow.
    pub(super) fn enter_row(&self, place: Place, whole: bool) {
        match self.extents.growth() {
            0 => self.extents.enter(place, whole),
            more => self.env.claim_memory(more, &mut || self.extents.enter(place, whole)),
        }
        if self.account() {
            self.env.shrink_memory();
        }
    }
}

/// Bytes of body that a piece in so many slots has.
pub(super) fn piece(slots: u32) -> usize {
    slots as usize * SLOT as usize - frame::HEADER - ChunkKey::LEN
}
