//! Cluster buffers in memory: open (being filled), filled (in flight), resident (written or read in).
//!
//! A buffer has a number, its *slot*; index entries of the objects in it name slot and offset until the
//! buffer is retired. Open buffers change under their lock, so their objects are copied out; filled ones
//! never change again.
//!
//! Invariants: a slot is reused only after no index entry names it; `used` and `flushed` only grow;
//! `flushed` is a multiple of the block, and bytes below it are never changed again.

use std::sync::{
    Arc,
    atomic::{
        AtomicU32, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use picaflor_device::{AlignedBuf, BufPool};
use picaflor_format::{
    BLOCK,
    cluster::{self, Content, Row, Trailer},
    frame,
};

use crate::{
    base::frame::{Draft, Frame},
    base::policy::PackOrder,
    index::{IndexEntry, Location, SLOTS_MAX},
    space::Queue,
    write::placement::Class,
    write::staging::Staging,
};

pub(crate) enum Slot {
    Free,
    Open(Open),
    Filled(Filled),
}

/// A cluster being filled.
pub(crate) struct Open {
    bytes: AlignedBuf,
    used: usize,
    rows: Vec<Row>,
    pub(crate) seq: u64,
    /// What its frames carry for it.
    mark: u64,
    pub(crate) class: Class,
    /// The queue that its cluster will be in.
    pub(crate) queue: Queue,
    /// Granted at the first write, at the latest when it is sealed.
    pub(crate) cluster: Option<u32>,
    /// Journal page that was next when it was opened: whatever happens to its objects is told from there on.
    pub(crate) since: u64,
    flushed: usize,
    /// Bytes of the pages that it is divided into: no frame lies in two of them, but one that is longer.
    page: usize,
    /// When the objects in it were asked for last, if that is known; else 0.
    pub(crate) number: u64,
}

/// A cluster that will not change.
pub(crate) struct Filled {
    pub(crate) bytes: Bytes,
    pub(crate) rows: Vec<Row>,
    pub(crate) class: u16,
    /// Its objects are not to stay in memory.
    pub(crate) bypass: bool,
    pub(crate) cluster: u32,
    /// As in [`Open`].
    pub(crate) since: u64,
    /// Bytes from the front that are on the device already.
    pub(crate) flushed: usize,
    /// On the device, every byte.
    pub(crate) written: bool,
    /// Came from the device rather than from puts.
    pub(crate) read_in: bool,
    /// Objects in it that were asked for.
    pub(crate) served: AtomicU32,
    /// When it was asked for last, for LRU: see [`crate::cache::memory::Resident`].
    pub(crate) number: Arc<AtomicU64>,
    /// Of a page that was read in alone: its number, and where it begins in the cluster. Its rows are this page's.
    pub(crate) page: Option<(u32, usize)>,
}

impl Filled {
    /// What was read from the device for one object: a cluster, or a page of one.
    pub(crate) fn read_in(
        bytes: &Bytes,
        mut rows: Vec<Row>,
        (cluster, class): (u32, u16),
        page: Option<(u32, usize)>,
    ) -> Self {
        rows.shrink_to_fit();
        Self {
            bytes: bytes.clone(),
            rows,
            class,
            bypass: false,
            cluster,
            since: u64::MAX,
            flushed: bytes.len(),
            written: true,
            read_in: true,
            served: AtomicU32::new(1),
            number: Arc::default(),
            page,
        }
    }

    /// The number of this use of its cluster, by the cluster's header.
    fn seq(&self) -> u64 {
        cluster::Header::decode(&self.bytes).map_or(0, |header| header.seq)
    }

    /// Memory that the rows take beside the cluster's bytes.
    pub(crate) fn table_bytes(&self) -> u64 {
        (self.rows.len() * size_of::<Row>()) as u64
    }
}

/// A part of an open buffer to be written now, so that what is in it becomes durable.
pub(crate) struct Piece {
    /// Offset in the cluster.
    pub(crate) offset: usize,
    pub(crate) bytes: AlignedBuf,
}

impl Open {
    pub(crate) fn new(mut bytes: AlignedBuf, (seq, mark): (u64, u64), class: Class, since: u64) -> Self {
        bytes[..cluster::HEADER].fill(0);
        let (rows, page) = (Vec::with_capacity(64), bytes.len());
        Self {
            bytes,
            used: cluster::HEADER,
            rows,
            seq,
            mark,
            class,
            queue: Queue::Small,
            cluster: None,
            since,
            flushed: 0,
            page,
            number: 0,
        }
    }

    /// Divides it into pages of so many bytes from here on; as long as it is empty.
    pub(crate) fn divide(&mut self, page: u32) {
        if self.is_empty() {
            self.page = (page as usize).min(self.bytes.len());
        }
    }

    /// Bytes of the pages that it is divided into.
    pub(crate) fn page(&self) -> u32 {
        self.page as u32
    }

    /// Bytes that frames may still take; of the longest that fits, where it is not divided.
    pub(crate) fn room(&self) -> usize {
        self.bytes.len().saturating_sub(self.used + cluster::table_len(self.rows.len() + 1))
    }

    /// Whether a frame of this many bytes still fits. The padding of one that has a cluster to itself may be cut.
    pub(crate) fn fits(&self, frame_len: usize) -> bool {
        let end = next_place(self.used, frame_len, self.page) + frame_len;
        let table = if self.is_empty() { cluster::TRAILER } else { cluster::table_len(self.rows.len() + 1) };
        end + table <= self.bytes.len()
    }

    /// Whether nothing was put into it.
    pub(crate) fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// Frames an object; the caller has asked [`Open::fits`]. Returns its offset in bytes.
    pub(crate) fn push(&mut self, draft: &Draft<'_>) -> usize {
        let len = draft.header.frame_len();
        let offset = next_place(self.used, len, self.page);
        self.bytes[self.used..offset].fill(0);
        let header = draft.lay(self.mark, &mut self.bytes[offset..offset + len]);
        self.used = offset + len;
        self.rows.push(Row {
            hash: draft.hash,
            generation: header.generation,
            offset: offset as u32,
            len: len as u32,
            kind: header.kind,
        });
        offset
    }

    /// Takes back the frame that was pushed last; the lane has been locked since, so nothing of it is written.
    pub(crate) fn take_back(&mut self) {
        if let Some(row) = self.rows.pop() {
            self.used = row.offset as usize;
        }
    }

    /// Drops the dead ones of the frames that are not on the device, and moves the others up: each once, and none that
    /// lies before the first hole. `moves` is told of each, where it was and its new offset. Returns the bytes gained.
    pub(crate) fn compact(&mut self, mut is_dead: impl FnMut(&Row) -> bool, mut moves: impl FnMut(&Row, u32)) -> usize {
        let (flushed, before) = (self.flushed, self.used);
        let volatile = self.rows.split_off(self.rows.partition_point(|row| (row.offset as usize) < flushed));
        let mut end = volatile.first().map_or(before, |row| row.offset as usize);
        for mut row in volatile {
            if is_dead(&row) {
                continue;
            }
            let at = row.offset as usize;
            // Never behind where it is: that was the next place behind what lay at least as far.
            let to = next_place(end, row.len as usize, self.page);
            self.bytes[end..to].fill(0);
            if at != to {
                self.bytes.copy_within(at..at + row.len as usize, to);
                moves(&row, to as u32);
                row.offset = to as u32;
            }
            end = to + row.len as usize;
            self.rows.push(row);
        }
        self.used = end;
        before - end
    }

    pub(crate) fn header(&self, row: &Row) -> Option<frame::Header> {
        frame::Header::decode(self.bytes.get(row.offset as usize..)?).ok()
    }

    pub(crate) fn rows(&self) -> &[Row] {
        &self.rows
    }

    fn encode_header(&mut self, store: u64, id: u32) {
        if self.flushed == 0 {
            let class = self.class.short();
            cluster::Header { seq: self.seq, store, id, content: Content::Objects, class }.encode(&mut self.bytes);
        }
    }

    /// Whether it holds bytes that are not on the device.
    pub(crate) fn is_dirty(&self) -> bool {
        self.used > self.flushed.max(cluster::HEADER)
    }

    /// Copies out what is not yet on the device, padded to a block, so that no later write touches the
    /// same block. `None` if the padding would leave no room for the table: then it must be sealed.
    pub(crate) fn take_piece(&mut self, store: u64, id: u32, pool: &BufPool) -> Option<Piece> {
        let end = self.used.next_multiple_of(BLOCK);
        if end + cluster::table_len(self.rows.len()) > self.bytes.len() {
            return None;
        }
        self.encode_header(store, id);
        self.bytes[self.used..end].fill(0);
        let mut bytes = pool.take(end - self.flushed);
        bytes.copy_from_slice(&self.bytes[self.flushed..end]);
        let piece = Piece { offset: self.flushed, bytes };
        self.used = end;
        self.flushed = end;
        Some(piece)
    }

    /// Closes it: writes the table. It names replaced and deleted objects too: what replaced them may not
    /// survive a crash that they do.
    pub(crate) fn seal(mut self, store: u64, id: u32, last: Trailer) -> Filled {
        self.encode_header(store, id);
        let table = self.bytes.len() - cluster::table_len(self.rows.len());
        self.bytes[self.used.min(table)..table].fill(0);
        cluster::encode_table(&mut self.bytes, last, &self.rows);
        self.rows.shrink_to_fit();
        Filled {
            bytes: self.bytes.into_bytes(),
            rows: self.rows,
            class: self.class.short(),
            bypass: self.class == Class::Bypass,
            cluster: id,
            since: self.since,
            flushed: self.flushed,
            written: false,
            read_in: false,
            served: AtomicU32::new(0),
            number: Arc::new(AtomicU64::new(self.number)),
            page: None,
        }
    }
}

/// Where a frame of so many bytes goes behind what ends at `end`: right there, unless that page has no room for all of
/// it; then the next page begins with it. One that is longer than a page begins one too.
fn next_place(end: usize, len: usize, page: usize) -> usize {
    let begins = end.is_multiple_of(page) || end == cluster::HEADER;
    let page_end = (end / page + 1) * page;
    if begins || end + len <= page_end { end } else { page_end }
}

const NO_HOME: u32 = u32::MAX;

/// Hash and generation of what replaced objects in a buffer.
pub(crate) type Replacing = Vec<(u64, u64)>;

/// Buffers that are not wholly on the device.
#[derive(Default)]
pub(crate) struct Unfinished {
    /// Their clusters, where they are granted.
    pub(crate) clusters: Vec<u32>,
    /// Their sequence numbers.
    pub(crate) seqs: Vec<u64>,
    /// The journal page from which on the story of every object in them is told; none where there are no objects.
    pub(crate) since: Option<u64>,
    /// What replaced objects in them.
    pub(crate) replacing: Replacing,
}

pub(crate) struct Buffers {
    slots: Box<[RwLock<Slot>]>,
    /// The cluster of each slot whose bytes are all on the device, else [`NO_HOME`]. Read by checkpoints
    /// under an index segment's lock: an entry that names a slot keeps the slot from being vacated.
    homes: Box<[AtomicU32]>,
    /// Of each slot, while it is not wholly on the device.
    replacing: Box<[Mutex<Replacing>]>,
    free: Mutex<Vec<u32>>,
    /// Whether what is read from a cluster that will not change shares its bytes.
    shares: bool,
    /// Objects that wait to be packed; their numbers go on where those of buffers end.
    staging: Option<Staging>,
}

impl Buffers {
    pub(crate) fn new(slots: usize, shares: bool, packs: Option<PackOrder>) -> Self {
        Self {
            shares,
            staging: packs.map(|order| Staging::new(slots as u32, SLOTS_MAX - slots, order)),
            slots: (0..slots).map(|_| RwLock::new(Slot::Free)).collect(),
            homes: (0..slots).map(|_| AtomicU32::new(NO_HOME)).collect(),
            replacing: (0..slots).map(|_| Mutex::default()).collect(),
            free: Mutex::new((0..slots as u32).rev().collect()),
        }
    }

    pub(crate) fn slot(&self, slot: u32) -> &RwLock<Slot> {
        &self.slots[slot as usize]
    }

    /// The buffer with this number, if it is one: the number may be of an object that waits.
    pub(crate) fn slot_if_any(&self, slot: u32) -> Option<&RwLock<Slot>> {
        self.slots.get(slot as usize)
    }

    pub(crate) fn count(&self) -> u32 {
        self.slots.len() as u32
    }

    /// Hashes and offsets, in bytes, of the frames that are or were in a buffer.
    pub(crate) fn frames(&self, slot: u32) -> Vec<(u64, usize)> {
        let of = |rows: &[Row]| rows.iter().map(|row| (row.hash, row.offset as usize)).collect();
        match self.slot_if_any(slot).map(|buffer| buffer.read()).as_deref() {
            Some(Slot::Open(open)) => of(&open.rows),
            Some(Slot::Filled(filled)) => of(&filled.rows),
            Some(Slot::Free) => Vec::new(),
            None => {
                let staged = self.staging.as_ref().and_then(|staging| staging.get(slot));
                staged.iter().map(|staged| (staged.frame.hash, 0)).collect()
            }
        }
    }

    /// Objects that wait to be packed, where any do.
    pub(crate) fn staging(&self) -> Option<&Staging> {
        self.staging.as_ref()
    }

    /// Buffers that are not wholly on the device. No lane is free meanwhile: none is opened, filled or sealed.
    pub(crate) fn unfinished(&self) -> Unfinished {
        let mut all = Unfinished::default();
        for (slot, replacing) in self.slots.iter().zip(&self.replacing) {
            let (seq, cluster, since) = match &*slot.read() {
                Slot::Open(open) => (open.seq, open.cluster, (!open.is_empty()).then_some(open.since)),
                Slot::Filled(filled) if !filled.written => (filled.seq(), Some(filled.cluster), Some(filled.since)),
                _ => continue,
            };
            all.seqs.push(seq);
            all.clusters.extend(cluster);
            all.since = all.since.into_iter().chain(since).min();
            all.replacing.extend(&*replacing.lock());
        }
        all
    }

    /// What replaced objects in the buffer that an entry leads to, if that is not wholly on the device.
    pub(crate) fn replacing(&self, old: IndexEntry) -> Option<MutexGuard<'_, Replacing>> {
        let Location::Buffered { slot, .. } = old.location() else { return None };
        self.replacing.get(slot as usize).filter(|_| self.home(slot).is_none()).map(Mutex::lock)
    }

    /// Whether a buffer is not wholly on the device.
    pub(crate) fn is_unfinished(&self, slot: u32) -> bool {
        match self.slot_if_any(slot).map(|buffer| buffer.read()).as_deref() {
            Some(Slot::Open(_)) => true,
            Some(Slot::Filled(filled)) => !filled.written,
            Some(Slot::Free) | None => false,
        }
    }

    /// Whether this slot is a buffer that was opened before that journal page was next.
    pub(crate) fn is_older_than(&self, slot: u32, page: u64) -> bool {
        matches!(&*self.slot(slot).read(), Slot::Open(open) if open.since < page)
    }

    /// Puts a buffer into a free slot; none if there is none.
    pub(crate) fn occupy(&self, buffer: Slot) -> Option<u32> {
        let slot = self.free.lock().pop()?;
        *self.slots[slot as usize].write() = buffer;
        Some(slot)
    }

    /// Bytes that an open buffer has left; none if it is sealed.
    pub(crate) fn room_in(&self, slot: u32) -> usize {
        match &*self.slot(slot).read() {
            Slot::Open(open) => open.room(),
            _ => 0,
        }
    }

    /// Whether the buffer that an entry names holds this very version.
    pub(crate) fn holds(&self, entry: IndexEntry, frame: &Frame) -> bool {
        let Location::Buffered { slot, offset } = entry.location() else { return false };
        let mut holds = false;
        self.read(slot, offset as usize * frame::GRAIN, frame.hash, |header, key| {
            holds = header.generation == frame.header.generation && key == frame.key();
            false
        });
        holds
    }

    /// The cluster that holds every byte of this slot, if one does.
    pub(crate) fn home(&self, slot: u32) -> Option<u32> {
        Some(self.homes.get(slot as usize)?.load(Acquire)).filter(|home| *home != NO_HOME)
    }

    /// The cluster that this slot is written to, or came from; none is known of one that was not begun to be written.
    pub(crate) fn cluster(&self, slot: u32) -> Option<u32> {
        match &*self.slot_if_any(slot)?.read() {
            Slot::Open(open) => open.cluster,
            Slot::Filled(filled) => Some(filled.cluster),
            Slot::Free => None,
        }
    }

    /// Every byte of this slot is on the device, in this cluster.
    pub(crate) fn set_home(&self, slot: u32, cluster: u32) {
        self.homes[slot as usize].store(cluster, Release);
    }

    /// Frees a slot that no index entry names any more.
    pub(crate) fn vacate(&self, slot: u32) {
        self.homes[slot as usize].store(NO_HOME, Release);
        *self.replacing[slot as usize].lock() = Vec::new();
        *self.slots[slot as usize].write() = Slot::Free;
        self.free.lock().push(slot);
    }

    pub(crate) fn in_use(&self) -> usize {
        self.slots.len() - self.free.lock().len()
    }

    /// An object of this buffer was asked for; the number of that, where LRU wants it.
    pub(crate) fn count_served(&self, slot: u32, number: Option<u64>) {
        let Some(buffer) = self.slots.get(slot as usize) else {
            let staging = self.staging.as_ref().zip(number);
            return staging.map_or((), |(staging, number)| staging.touch(slot, number));
        };
        if let Slot::Filled(filled) = &*buffer.read() {
            filled.served.fetch_add(1, Relaxed);
            number.inspect(|number| filled.number.store(*number, Relaxed));
        }
    }

    /// The frame at this place, if it is intact and `accept`s. A copy, so that one hot object does not pin a whole
    /// cluster; but where clusters are what memory holds, a part of the cluster.
    pub(crate) fn read(
        &self,
        slot: u32,
        offset: usize,
        hash: u64,
        accept: impl FnOnce(&frame::Header, &[u8]) -> bool,
    ) -> Option<Frame> {
        let Some(buffer) = self.slots.get(slot as usize) else {
            let frame = self.staging.as_ref()?.get(slot)?.frame;
            let accepted = frame.hash == hash && accept(&frame.header, frame.key());
            return accepted.then(|| Frame::new(hash, frame.header, frame.shared_bytes()));
        };
        let guard = buffer.read();
        let (bytes, whole, base): (&[u8], _, _) = match &*guard {
            Slot::Free => return None,
            Slot::Open(open) => (&open.bytes[..open.used], None, 0),
            Slot::Filled(filled) => (&filled.bytes, Some(&filled.bytes), filled.page.map_or(0, |(_, offset)| offset)),
        };
        let offset = offset.checked_sub(base)?;
        let bytes = bytes.get(offset..)?;
        let header = frame::Header::decode(bytes).ok()?;
        let bytes = bytes.get(..frame::HEADER + header.payload_len())?;
        if !accept(&header, header.key(bytes)) {
            return None;
        }
        let bytes = match whole.filter(|_| self.shares) {
            Some(whole) => whole.slice(offset..offset + bytes.len()),
            None => Bytes::copy_from_slice(bytes),
        };
        Some(Frame::new(hash, header, bytes))
    }
}

#[cfg(test)]
mod tests {
    use frame::{Header, Kind};

    use super::*;

    fn draft(generation: u64, body: &[u8]) -> Draft<'_> {
        let header = Header {
            mark: 0,
            generation,
            expires: 0,
            body_len: body.len() as u32,
            meta_len: 0,
            key_len: 3,
            kind: Kind::Whole,
            group: 0,
            server: 0,
            payload_crc: frame::payload_crc(b"key", b"", body),
        };
        Draft { hash: 5, header, key: b"key", metadata: b"", body }
    }

    #[test]
    fn a_frame_that_is_taken_back_is_in_no_piece_and_no_table() {
        let pool = BufPool::new(1 << 20);
        let mut open = Open::new(pool.take(64 << 10), (1, 77), Class::Rest, 1);
        open.push(&draft(1, b"stays"));
        let room = open.room();
        open.push(&draft(2, &[9; 6000]));
        open.take_back();
        assert_eq!((open.rows().len(), open.room()), (1, room));
        let piece = open.take_piece(3, 0, &pool).expect("there is room");
        assert_eq!(piece.bytes.len(), BLOCK, "header and one small frame");
        let used = cluster::HEADER + open.rows()[0].len as usize;
        assert!(piece.bytes[used..].iter().all(|byte| *byte == 0));
    }

    #[test]
    fn compaction_moves_what_lies_behind_a_hole_once_and_nothing_that_is_written() {
        let pool = BufPool::new(1 << 20);
        let mut open = Open::new(pool.take(64 << 10), (1, 77), Class::Rest, 1);
        open.push(&draft(1, &[1; 500]));
        open.take_piece(3, 0, &pool).expect("there is room");
        let bodies: Vec<Vec<u8>> = (2..8u8).map(|i| vec![i; 700 * usize::from(i)]).collect();
        for (i, body) in bodies.iter().enumerate() {
            open.push(&draft(i as u64 + 2, body));
        }
        let full = open.used;
        let mut moved = Vec::new();
        // The first is on the device; the last needs none to move.
        let gained = open.compact(|row| [1, 4, 5, 7].contains(&row.generation), |row, _| moved.push(row.generation));
        assert_eq!(moved, [6]);
        assert_eq!(open.rows().iter().map(|row| row.generation).collect::<Vec<_>>(), [1, 2, 3, 6]);
        assert_eq!(gained, full - open.used);
        for row in &open.rows()[1..] {
            let frame = &open.bytes[row.offset as usize..open.used];
            let header = Header::verify(frame).expect("moved whole");
            let body = header.body_start();
            assert_eq!(header.generation, row.generation);
            assert_eq!(frame[body..body + header.body_len as usize], bodies[row.generation as usize - 2]);
        }
        // All are dead: nothing moves.
        let gained = open.compact(|_| true, |_, _| panic!("nobody is left to move"));
        assert_eq!((gained + BLOCK, open.used), (open.used + gained, BLOCK));
    }
}
