//! How an object gets into an open buffer: the second half of a put, and of a reinsertion.
//!
//! Steps: the lane of its class, or of its neighbour → room in the lane's open buffer, else that one is
//! sealed and a new one opened → frame → the index says *buffered*.

use std::sync::atomic::Ordering::Relaxed;

use parking_lot::Mutex;
use picaflor_format::{
    cluster::{Row, Trailer, table_len},
    frame::{self, ChunkKey, GRAIN, Kind},
};

use crate::{
    Options, Result,
    base::blocked::{Blocked, Purpose},
    base::frame::Draft,
    base::policy::{Eviction, Placement},
    base::stats::add,
    cache::buffers::{Open, Slot},
    index::{IndexEntry, Location},
    read::parts::Parts,
    space::{Queue, SPARE, State},
    write::pieces::{SMALL, fills_with_others},
    write::placement::Class,
};

/// A lane's open buffers: the one being filled, and one for what did not fit in it.
pub(crate) type Lane = [Option<u32>; 2];

/// A buffer is kept open while at least this part of it is free: one object of median size.
const WORTH_FILLING: usize = 64;

/// Filled buffers that may wait for the device before puts do.
const QUEUE: u64 = 8;

pub(crate) struct Appender {
    pub(crate) parts: Parts,
    /// Slots of each lane's open buffers.
    pub(crate) lanes: Box<[Mutex<Lane>]>,
    /// Where chunks go that have a cluster of a run each: sealed as soon as they are there.
    run: Mutex<Lane>,
}

impl Appender {
    pub(crate) fn new(parts: &Parts, lanes: usize) -> Self {
        let lanes = (0..lanes).map(|_| Mutex::new([None; 2])).collect();
        Self { parts: parts.clone(), lanes, run: Mutex::default() }
    }

    /// The lanes, and that of runs.
    pub(crate) fn all_lanes(&self) -> impl Iterator<Item = &Mutex<Lane>> {
        self.lanes.iter().chain([&self.run])
    }

    /// Frames an object into an open buffer and enters it in the index, in place of `old`.
    /// The outer result is the device's; the inner one says whether there was room and `old` was still there.
    pub(crate) fn append(
        &self,
        draft: &Draft<'_>,
        class: Class,
        beside: Option<u64>,
        old: Option<IndexEntry>,
        purpose: Purpose,
    ) -> Result<Result<(), Blocked>> {
        if let Purpose::Run(cluster) = purpose {
            return self.append_in_run(draft, class, old, cluster);
        }
        let beside = beside.filter(|_| !self.parts.catalog.placer.keeps_apart() && !self.parts.catalog.packs_tightly());
        let queue = self.queue_of(old, purpose);
        let joined = beside.and_then(|hash| self.lane_of(hash, draft.header.frame_len()));
        let joined = joined.filter(|lane| queue == Queue::Small || self.parts.catalog.placer.is_of(*lane, queue));
        if joined.is_some() {
            add(&self.parts.shared.counters.neighbours_joined, 1);
        }
        let placer = &self.parts.catalog.placer;
        let lane = joined.or_else(|| placer.lane_of_class(self.parts.residents.class_of(beside?)?, queue));
        let snug = || self.snug_lane(draft.header.frame_len());
        let lane = lane.or_else(snug).unwrap_or_else(|| placer.lane(class, queue, draft.header.generation));
        let mut lane = self.lanes[lane].lock();
        if self.parts.catalog.placer.keeps_apart() && self.affords_apart() {
            self.part_from_others(&mut lane, class)?;
        }
        let slot = match self.lane_with_room(&mut lane, draft.header.frame_len(), class, purpose)? {
            Ok(slot) => slot,
            Err(blocked) => return Ok(Err(blocked)),
        };
        if queue == Queue::Main
            && let Slot::Open(open) = &mut *self.parts.catalog.buffers.slot(slot).write()
        {
            open.queue = queue;
        }
        Ok(self.parts.catalog.enter_in(slot, draft, old).map(drop))
    }

    /// The queue of a cluster for this object: survivors go to main, and what replaces an object there.
    fn queue_of(&self, old: Option<IndexEntry>, purpose: Purpose) -> Queue {
        match (self.parts.shared.eviction(), purpose, old.map(IndexEntry::location)) {
            (Eviction::S3Fifo, Purpose::Survivor, _) => Queue::Main,
            (Eviction::S3Fifo, _, Some(Location::OnDisk { grain })) => self
                .parts
                .medium
                .cluster_of(grain)
                .map_or(Queue::Small, |cluster| self.parts.space.victims().queue(cluster)),
            _ => Queue::Small,
        }
    }

    /// Fills a cluster of a run with a chunk, and seals it.
    fn append_in_run(
        &self,
        draft: &Draft<'_>,
        class: Class,
        old: Option<IndexEntry>,
        cluster: u32,
    ) -> Result<Result<(), Blocked>> {
        let mut lane = self.run.lock();
        // One that was not entered left its buffer empty.
        let opened =
            lane[0].or_else(|| self.parts.log.queue.has_room(self.unwritten_max()).then(|| self.occupy(class))?);
        let Some(slot) = opened else { return Ok(Err(Blocked::Buffers)) };
        lane[0] = Some(slot);
        if let Slot::Open(open) = &mut *self.parts.catalog.buffers.slot(slot).write() {
            (open.class, open.cluster) = (class, Some(cluster));
            self.parts.log.tell_of_grant(cluster, open.seq);
        }
        if let Err(blocked) = self.parts.catalog.enter_in(slot, draft, old) {
            if let Slot::Open(open) = &mut *self.parts.catalog.buffers.slot(slot).write() {
                open.cluster = None;
            }
            return Ok(Err(blocked));
        }
        match self.parts.catalog.buffers.room_in(slot) {
            0 => {}
            empty => self.parts.space.note_end(cluster, empty as u64),
        }
        self.seal(&mut lane[0])?;
        Ok(Ok(()))
    }

    /// Most bytes of buffers that are open or wait for the device.
    pub(crate) fn unwritten_max(&self) -> u64 {
        unwritten_max(&self.parts.shared.options, self.parts.catalog.placer.lanes_in_use() as u64)
    }

    /// The lane whose open buffer holds this object and has room for `len` bytes more.
    pub(crate) fn lane_of(&self, hash: u64, len: usize) -> Option<usize> {
        let slot = self.parts.catalog.index.candidates(hash).into_iter().find_map(|entry| match entry.location() {
            Location::Buffered { slot, .. } => Some(slot).filter(|slot| *slot < self.parts.catalog.buffers.count()),
            Location::OnDisk { .. } => None,
        })?;
        let fits = matches!(&*self.parts.catalog.buffers.slot(slot).read(), Slot::Open(open) if open.fits(len));
        fits.then(|| self.lanes.iter().position(|lane| lane.try_lock().is_some_and(|lane| lane.contains(&Some(slot)))))?
    }

    /// The slot of an open buffer of this lane with room for `len` bytes; a new one if need be.
    pub(crate) fn lane_with_room(
        &self,
        lane: &mut Lane,
        len: usize,
        class: Class,
        purpose: Purpose,
    ) -> Result<Result<u32, Blocked>> {
        let fits =
            |slot: u32| matches!(&*self.parts.catalog.buffers.slot(slot).read(), Slot::Open(open) if open.fits(len));
        let snug = self.parts.catalog.packs_tightly();
        let fitting = |lane: &Lane| {
            let mut fitting = lane.iter().flatten().copied().filter(|slot| fits(*slot));
            if snug { fitting.min_by_key(|slot| self.parts.catalog.buffers.room_in(*slot)) } else { fitting.next() }
        };
        let mut found = fitting(lane);
        if found.is_none() && self.parts.catalog.placer.keeps_apart() && self.compact(lane) {
            found = fitting(lane);
        }
        if let Some(slot) = found {
            return Ok(Ok(slot));
        }
        let rooms = lane.map(|slot| slot.map(|slot| self.parts.catalog.buffers.room_in(slot)));
        // An object that does not fit goes to the lane's second buffer while the first still has room
        // worth filling; the fuller of two that cannot take it is sealed.
        let place = match rooms {
            [None, _] => 0,
            [Some(first), None] if first >= self.parts.medium.cluster_len() / WORTH_FILLING => 1,
            [Some(_), None] => 0,
            [Some(first), Some(second)] => usize::from(second < first),
        };
        self.seal(&mut lane[place])?;
        if lane[place].is_some() {
            return Ok(Err(Blocked::Buffers));
        }
        let opened = self.open_buffer(class, purpose)?;
        lane[place] = opened.ok();
        Ok(opened)
    }

    /// Whether there are clusters for classes to lie apart. When hardly any is left, they share what is open: more
    /// groups than lanes would else make a full store of half-empty clusters, and reclaim would gain nothing.
    pub(crate) fn affords_apart(&self) -> bool {
        self.parts.space.available() > SPARE + self.parts.residents.checkpoint_reserve() + 2
    }

    /// A lane that another class had: its buffers are sealed as they are.
    pub(crate) fn part_from_others(&self, lane: &mut Lane, class: Class) -> Result<()> {
        for open in lane {
            let buffers = &self.parts.catalog.buffers;
            let is_others = |slot: u32| matches!(&*buffers.slot(slot).read(), Slot::Open(open) if open.class != class);
            if open.is_some_and(is_others) {
                self.seal(open)?;
            }
            // One with nothing in it is not sealed.
            if let Some(slot) = *open
                && let Slot::Open(open) = &mut *self.parts.catalog.buffers.slot(slot).write()
            {
                open.class = class;
                open.divide(self.parts.residents.pages.page_of(class));
            }
        }
        Ok(())
    }

    pub(crate) fn open_buffer(&self, class: Class, purpose: Purpose) -> Result<Result<u32, Blocked>> {
        if !self.parts.log.queue.has_room(self.unwritten_max()) {
            return Ok(Err(Blocked::Buffers));
        }
        let keep = match purpose {
            Purpose::Put | Purpose::Run(_) => SPARE + self.parts.residents.checkpoint_reserve(),
            // Where no object leaves, moving survivors is what makes room: one checkpoint is what has to be left.
            Purpose::Survivor if self.parts.shared.eviction().keeps_all() => self.parts.residents.checkpoint_clusters(),
            Purpose::Survivor => self.parts.residents.checkpoint_reserve(),
        };
        if !self.parts.space.reserve(keep) {
            return Ok(Err(Blocked::Space));
        }
        let opened = self.occupy(class);
        if opened.is_none() {
            self.parts.space.unreserve();
        }
        Ok(opened.ok_or(Blocked::Buffers))
    }

    /// A new buffer in a free slot; none if there is none.
    fn occupy(&self, class: Class) -> Option<u32> {
        let cluster_bytes = self.parts.medium.cluster_len() as u64;
        let bytes = &self.parts.shared.buffer_bytes;
        self.parts.shared.reserve_memory(cluster_bytes, || bytes.fetch_add(cluster_bytes, Relaxed));
        let seq = self.parts.log.number_cluster();
        let since = self.parts.log.journal.lock().next_page();
        let mut open = Open::new(
            self.parts.shared.pool.take(self.parts.medium.cluster_len()),
            (seq, self.parts.medium.hasher.mark(seq)),
            class,
            since,
        );
        open.divide(self.parts.residents.pages.page_of(class));
        let slot = self.parts.catalog.buffers.occupy(Slot::Open(open));
        match slot {
            Some(_) => self.parts.log.queue.add_unwritten(cluster_bytes),
            None => drop(bytes.fetch_sub(cluster_bytes, Relaxed)),
        }
        slot
    }

    /// Closes all open buffers.
    pub(crate) fn seal_all(&self) -> Result<()> {
        self.all_lanes().try_for_each(|lane| lane.lock().iter_mut().try_for_each(|open| self.seal(open)))
    }

    /// Closes an open buffer and queues it for the device. A buffer with nothing in it stays.
    pub(crate) fn seal(&self, lane: &mut Option<u32>) -> Result<()> {
        let Some(slot) = *lane else { return Ok(()) };
        let (granted, seq, site) = match &*self.parts.catalog.buffers.slot(slot).read() {
            Slot::Open(open) if !open.is_empty() => (open.cluster, open.seq, open.class.site()),
            _ => return Ok(()),
        };
        let cluster = match granted {
            Some(cluster) => cluster,
            None => self.parts.log.grant(State::Busy, seq, site)?,
        };
        self.lay_copies(slot, cluster);
        self.forget_hints(slot);
        let mut guard = self.parts.catalog.buffers.slot(slot).write();
        if let Slot::Open(open) = std::mem::replace(&mut *guard, Slot::Free) {
            let last = Trailer {
                seq: open.seq,
                seal: self.parts.log.next_seal.fetch_add(1, Relaxed),
                durable: self.parts.log.durable_seal.load(Relaxed),
                store: self.parts.medium.store_id,
                id: cluster,
                page: if open.page() < self.parts.medium.map().cluster {
                    open.page().trailing_zeros() as u8
                } else {
                    0
                },
            };
            self.parts.residents.classes[cluster].store(open.class.short(), Relaxed);
            self.parts.residents.pages.note(cluster, open.page());
            self.parts.space.victims().enqueue(cluster, open.queue);
            if self.parts.shared.options.cluster_age.limit().is_some() {
                self.parts.space.uses.note_second(cluster, self.parts.shared.second());
            }
            *guard = Slot::Filled(open.seal(self.parts.medium.store_id, cluster, last));
        }
        drop(guard);
        *lane = None;
        add(&self.parts.shared.counters.clusters_sealed, 1);
        self.parts.log.queue.enqueue(slot);
        Ok(())
    }

    /// Where hints are kept until their object is packed, it is.
    pub(crate) fn forget_hints(&self, slot: u32) {
        if self.parts.catalog.placer.packs()
            && let Slot::Open(open) = &*self.parts.catalog.buffers.slot(slot).read()
        {
            open.rows().iter().for_each(|row| self.parts.catalog.placer.drop_hints(row.hash));
        }
    }

    /// Fills what room is left in a buffer with copies of objects that are wanted beside those in it. A copy has the
    /// server of the object it lies beside: a reader of that one wants it too.
    pub(crate) fn lay_copies(&self, slot: u32, cluster: u32) {
        let wanted: Vec<(u64, u32)> = match &*self.parts.catalog.buffers.slot(slot).read() {
            Slot::Open(open) => {
                let here = |hash: u64| open.rows().iter().any(|row| row.hash == hash);
                let beside = |row: &Row| {
                    let partners = self.parts.catalog.placer.partners(row.hash);
                    // Mostly none is wanted there.
                    let header = if partners.is_empty() { None } else { open.header(row) };
                    partners.into_iter().filter_map(move |hash| Some((hash, header?.server)))
                };
                let mut wanted: Vec<_> = open.rows().iter().flat_map(beside).filter(|(hash, _)| !here(*hash)).collect();
                wanted.sort_unstable();
                wanted.dedup_by_key(|(hash, _)| *hash);
                wanted
            }
            _ => return,
        };
        for (hash, server) in wanted {
            let in_memory = || match self.parts.shared.preset.placement {
                Placement::Packing => self.parts.catalog.resident(hash),
                _ => self.parts.shared.memory.peek(hash).filter(|frame| self.parts.catalog.is_home_of(frame)),
            };
            let Some(frame) = in_memory() else { continue };
            if frame.header.kind != Kind::Whole {
                continue;
            }
            let mut guard = self.parts.catalog.buffers.slot(slot).write();
            let Slot::Open(open) = &mut *guard else { return };
            if !open.fits(frame.header.frame_len()) {
                continue;
            }
            let body = frame.body();
            let header = frame::Header { kind: Kind::Copy, server, ..frame.header };
            let draft = Draft { hash, header, key: frame.key(), metadata: frame.metadata(), body: &body };
            let offset = open.push(&draft) as u32;
            drop(guard);
            self.parts.catalog.placer.add_copy(hash, self.parts.medium.grain(cluster, offset));
            // Replaced in between? Then that put may have looked before the copy was noted.
            if in_memory().is_none_or(|now| now.header.generation != frame.header.generation) {
                self.parts.catalog.placer.drop_copies(hash);
            }
            add(&self.parts.shared.counters.copies_placed, 1);
        }
    }

    /// Where a store packs tightly, the lane with the open buffer that a frame of so many bytes fills best, or else the
    /// one in which a buffer is opened for it. Pieces that fill clusters together have buffers of their own.
    pub(crate) fn snug_lane(&self, len: usize) -> Option<usize> {
        if !self.parts.catalog.packs_tightly() || self.parts.catalog.placer.keeps_apart() && self.affords_apart() {
            return None;
        }
        let lanes = self.lanes.len();
        // Four buffers are a part of a small store that would be missed.
        let own = usize::from(
            lanes > 1 && self.parts.space.count() >= SMALL && fills_with_others(self.parts.medium.cluster_len(), len),
        );
        let fitting = |lane: usize| {
            let slots = self.lanes[lane].try_lock().map_or([None; 2], |lane| *lane);
            let rooms = slots.into_iter().flatten().map(|slot| self.parts.catalog.buffers.room_in(slot));
            rooms.filter(|room| *room >= len).min()
        };
        let snuggest = |is_good: &dyn Fn(usize) -> bool| {
            let good = (0..lanes).filter(|lane| is_good(*lane));
            good.filter_map(|lane| fitting(lane).map(|room| (room, lane))).min().map(|(_, lane)| lane)
        };
        // What other lanes have open is filled with what would else be in the way of those pieces; and so is any buffer
        // while there are hardly clusters for reclaim.
        let of_kind = snuggest(&|lane| lane == own || own == 0 && (lane != 1 || self.parts.space.count() < SMALL));
        let any = || snuggest(&|_| self.parts.space.available() <= self.kept_from_puts());
        of_kind.or_else(any).or(Some(own))
    }

    /// Clusters that puts leave to reclaim and to checkpoints.
    pub(crate) fn kept_from_puts(&self) -> u32 {
        SPARE + self.parts.residents.checkpoint_reserve()
    }
}

/// Lanes of a volume: their open buffers, two each, take at most a quarter of its memory.
pub(crate) fn lanes(options: &Options) -> u64 {
    let memory = options.memory / options.places.len() as u64;
    (options.open_buffers as u64).min(memory / 8 / u64::from(options.cluster)).max(1)
}

/// Most bytes of a volume's buffers that are open or wait for the device: at most half of its memory.
pub(crate) fn unwritten_max(options: &Options, lanes: u64) -> u64 {
    let memory = options.memory / options.places.len() as u64;
    ((2 * lanes + QUEUE) * u64::from(options.cluster)).min(memory / 2)
}

/// Longest payload that fits in one cluster of this many bytes.
pub(crate) fn payload_max(cluster: usize) -> usize {
    let room = cluster - picaflor_format::cluster::HEADER - table_len(1);
    room / GRAIN * GRAIN - frame::HEADER
}

/// Longest body of a chunk that has a cluster of this many bytes to itself: what would pad its frame is cut where its
/// row begins.
pub(crate) fn chunk_max(cluster: usize) -> usize {
    cluster - picaflor_format::cluster::HEADER - table_len(1) - frame::HEADER - ChunkKey::LEN
}
