//! Insertion: an object goes into an open buffer as soon as there is room for it.
//!
//! Steps: the key's lock → where it goes, and what it replaces there → the frame → what it replaced is
//! dropped. If there is no room the lock is given back, and the caller waits: a thread in [`Store::insert`], a task
//! in [`Store::insert_async`]. Both walk the same steps.

use std::{future::poll_fn, sync::Arc, task::Poll, time::Duration};

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_format::frame::{self, Header, Kind};

use crate::{
    Daemons, Error, Mode, PutOptions, Result,
    base::blocked::{Blocked, PATIENCE, Purpose},
    base::frame::Draft,
    base::layout::{Former, Layout},
    base::stats::add,
    handle::Store,
    index::{IndexEntry, Location},
    space::Promised,
    volume::Volume,
    write::placement::Class,
    write::staging::End,
};

/// A frame's fields that a put decides.
pub(crate) struct Parts<'a> {
    pub(crate) kind: Kind,
    pub(crate) key: &'a [u8],
    pub(crate) metadata: &'a [u8],
    pub(crate) body: &'a [u8],
    pub(crate) expires: u64,
    /// Where it goes, if not to its key's home: a large object's chunks lie where its manifest does.
    pub(crate) volume: Option<&'a Arc<Volume>>,
    /// Cluster of a run that is a chunk's.
    pub(crate) cluster: Option<&'a Promised>,
    pub(crate) options: &'a PutOptions,
}

impl<'a> Parts<'a> {
    /// Of an object that is one frame, where its key's home is.
    pub(crate) fn whole(key: &'a [u8], body: &'a [u8], expires: u64, options: &'a PutOptions) -> Self {
        let (kind, metadata) = (Kind::Whole, &options.metadata);
        Self { kind, key, metadata, body, expires, volume: None, cluster: None, options }
    }

    pub(crate) fn payload_crc(&self) -> u32 {
        frame::payload_crc(self.key, self.metadata, self.body)
    }

    pub(crate) fn draft(&self, hash: KeyHash, (generation, server): (u64, u32), payload_crc: u32) -> Draft<'a> {
        let header = Header {
            mark: 0,
            generation,
            expires: self.expires,
            body_len: self.body.len() as u32,
            meta_len: self.metadata.len() as u32,
            key_len: self.key.len() as u16,
            kind: self.kind,
            group: self.options.group,
            server,
            payload_crc,
        };
        Draft { hash: hash.short(), header, key: self.key, metadata: self.metadata, body: self.body }
    }
}

/// The same, owned: for tasks, which may have to wait.
#[derive(Clone)]
pub(crate) struct OwnParts {
    pub(crate) kind: Kind,
    pub(crate) key: Bytes,
    pub(crate) metadata: Bytes,
    pub(crate) body: Bytes,
    pub(crate) expires: u64,
    pub(crate) volume: Option<Arc<Volume>>,
    pub(crate) cluster: Option<Arc<Promised>>,
    pub(crate) options: PutOptions,
}

impl OwnParts {
    pub(crate) fn parts(&self) -> Parts<'_> {
        let Self { kind, key, metadata, body, expires, volume, cluster, options } = self;
        let (volume, cluster) = (volume.as_ref(), cluster.as_deref());
        Parts { kind: *kind, key, metadata, body, expires: *expires, volume, cluster, options }
    }
}

/// One object on its way into a volume.
pub(crate) struct Insertion {
    payload_crc: u32,
    waited_since: Option<u64>,
    /// Waits without threads: each compacted a cluster.
    rounds: u64,
    tries: u32,
    /// No room could be made for it. It is tried once more, for others may have left some in what is open.
    in_vain: bool,
}

impl Insertion {
    fn new(payload_crc: u32) -> Self {
        Self { payload_crc, waited_since: None, rounds: 0, tries: 0, in_vain: false }
    }
}

/// What a try was blocked by.
struct NoRoom {
    volume: Arc<Volume>,
    blocked: Blocked,
    /// What had changed there before the try.
    seen: u64,
}

/// What one try came to.
enum Step {
    Inserted(Inserted),
    /// There was no room in this volume.
    Blocked(NoRoom),
}

/// What became of an object that was to be framed.
pub(crate) enum Inserted {
    /// It is in this volume.
    In(Arc<Volume>),
    /// It is in a table, and durable.
    Durable,
    /// Nowhere: there is room for it in pieces of so many bytes of body only.
    Scattered(usize),
}

impl Store {
    /// Frames one object, waiting for room as long as the caller lets it.
    pub(crate) fn insert(&self, hash: KeyHash, parts: &Parts<'_>) -> Result<Inserted> {
        self.prefetch_index(hash, parts);
        let mut insertion = Insertion::new(parts.payload_crc());
        if let Some(layout) = self.layout() {
            return self.insert_in_layout(&**layout, hash, parts, insertion.payload_crc);
        }
        loop {
            match self.try_insert(&mut insertion, hash, parts)? {
                Step::Inserted(framed) => return Ok(framed),
                Step::Blocked(found) => {
                    let made = self.make_room(&found)?;
                    self.judge_wait(&mut insertion, made, &found, parts)?;
                }
            }
        }
    }

    /// As [`Store::insert`] for tasks: what may read the device is done in the blocking pool, and only the task
    /// waits for room. `payload_crc` is that of the [parts](Parts::payload_crc).
    pub(crate) async fn insert_async(&self, hash: KeyHash, own: OwnParts, payload_crc: u32) -> Result<Inserted> {
        if let Some(layout) = self.layout().cloned() {
            let put = move |store: &Self| store.insert_in_layout(&*layout, hash, &own.parts(), payload_crc);
            return self.spawn_blocking(put).await;
        }
        let mut insertion = Insertion::new(payload_crc);
        loop {
            let step = if self.needs_device(hash, &own.parts()) {
                let own = own.clone();
                let step;
                (insertion, step) = self
                    .spawn_blocking(move |store| {
                        let step = store.try_insert(&mut insertion, hash, &own.parts());
                        (insertion, step)
                    })
                    .await;
                step?
            } else {
                self.try_insert(&mut insertion, hash, &own.parts())?
            };
            match step {
                Step::Inserted(framed) => return Ok(framed),
                Step::Blocked(found) => {
                    let made = self.make_room_async(&found).await?;
                    self.judge_wait(&mut insertion, made, &found, &own.parts())?;
                }
            }
        }
    }

    /// Frames one object if that takes no wait and no look at the device. Nowhere, where the caller may wait for it.
    /// `payload_crc` is that of the [parts](Parts::payload_crc).
    pub(crate) fn insert_at_once(
        &self,
        hash: KeyHash,
        parts: &Parts<'_>,
        payload_crc: u32,
    ) -> Result<Option<Arc<Volume>>> {
        if self.layout().is_some() || self.needs_device(hash, parts) {
            return Ok(None);
        }
        match self.try_insert(&mut Insertion::new(payload_crc), hash, parts)? {
            Step::Inserted(Inserted::In(volume)) => Ok(Some(volume)),
            _ => Ok(None),
        }
    }

    /// Whether inserting this key may wait for the device: to tell it from another of its place, or because it is
    /// written at once.
    fn needs_device(&self, hash: KeyHash, parts: &Parts<'_>) -> bool {
        let volume = self.destination(hash, parts);
        let is_on_device = |entry: IndexEntry| matches!(entry.location(), Location::OnDisk { .. });
        let guesses = self.mode() == Mode::Cache && self.shared().options.eviction_listener.is_none();
        volume.catalog.places.is_some()
            || !guesses && volume.catalog.index.candidates(hash.short()).into_iter().any(is_on_device)
    }

    /// The volume that takes it.
    fn destination<'a>(&'a self, hash: KeyHash, parts: &Parts<'a>) -> &'a Arc<Volume> {
        parts.volume.unwrap_or_else(|| self.home(hash, parts.key))
    }

    /// Has the processor fetch the index entries of this key, while the caller makes the checksum.
    pub(crate) fn prefetch_index(&self, hash: KeyHash, parts: &Parts<'_>) {
        if self.layout().is_none() {
            self.destination(hash, parts).catalog.index.prefetch(hash.short());
        }
    }

    /// Whether it is worth another try; the error if not.
    fn judge_wait(
        &self,
        insertion: &mut Insertion,
        made: bool,
        &NoRoom { ref volume, blocked, .. }: &NoRoom,
        parts: &Parts<'_>,
    ) -> Result<()> {
        let now = self.shared().clock.now_nanos();
        // Others may have taken what was made, but a store that makes room has some: no put is refused for that.
        let is_done = std::mem::replace(&mut insertion.in_vain, !made) && !made;
        if blocked == Blocked::Space && volume.catalog.keeps_all_in_clusters() {
            return if is_done { Err(self.no_room(volume, blocked, parts)) } else { Ok(()) };
        }
        let patient = u128::from(now - insertion.waited_since.unwrap_or(now)) < PATIENCE.as_nanos()
            && insertion.rounds <= 2 * u64::from(volume.space.count());
        if made && patient { Ok(()) } else { Err(self.no_room(volume, blocked, parts)) }
    }

    fn try_insert(&self, insertion: &mut Insertion, hash: KeyHash, parts: &Parts<'_>) -> Result<Step> {
        let shared = self.shared();
        loop {
            let (volume, blocked, seen) = {
                let _stripe = self.lock_key(hash);
                let volume = Arc::clone(self.destination(hash, parts));
                let class = Self::class(&volume, parts.kind, parts.options);
                let payload = parts.key.len() + parts.metadata.len() + parts.body.len();
                let cut = (parts.kind == Kind::Whole).then(|| volume.appender.cut_to_pack(payload, parts.body.len()));
                if let Some(piece_max) = cut.flatten() {
                    return Ok(Step::Inserted(Inserted::Scattered(piece_max)));
                }
                // What may fail comes before the object is framed: a put that failed leaves the version before.
                let own = volume.frames.own(hash, parts.key, parts.kind)?;
                // Drawn under the key's lock, so that of two puts the later one has the larger generation.
                let generation = shared.next_generation();
                let beside = parts.options.neighbour.as_ref().map(|key| self.hasher().key(key).short());
                let (class, server) = Self::affinity_of(&volume, class, parts, (hash.short(), beside));
                let draft = parts.draft(hash, (generation, server), insertion.payload_crc);
                let old = own.as_ref().map(|own| own.entry);
                let purpose = parts.cluster.map_or(Purpose::Put, |promised| Purpose::Run(promised.id));
                let seen = volume.log.queue.changes();
                match volume.append(&draft, class, beside, old, purpose)? {
                    Ok(()) => {
                        parts.cluster.into_iter().for_each(Promised::is_filled);
                        let bytes = draft.header.payload_len() as u64;
                        add(&shared.counters.put_bytes, bytes);
                        shared.budget.earn(bytes, volume.medium.map().clusters.len);
                        old.into_iter().for_each(|old| volume.catalog.count_removed(old));
                        volume.catalog.placer.note_named(beside.is_some());
                        if let Some(beside) = beside {
                            volume.catalog.waiting().hint(beside, hash.short());
                        }
                        if let Some(manifest) = own.and_then(|own| own.manifest) {
                            volume.frames.drop_chunks(hash, manifest);
                        }
                        return Ok(Step::Inserted(Inserted::In(volume)));
                    }
                    // A buffer was retired, or a cluster read in, at this very moment.
                    Err(Blocked::Moved) => continue,
                    Err(blocked) => (volume, blocked, seen),
                }
            };
            let blocked = match blocked {
                Blocked::Staging => match volume.packer.pack_cluster(End::First)? {
                    Ok(()) => {
                        // Without daemons it is written as soon as it is made; then it can leave.
                        if shared.options.daemons == Daemons::Manual {
                            volume.committer.write_queued(true);
                        }
                        continue;
                    }
                    Err(blocked) => blocked,
                },
                blocked => blocked,
            };
            if parts.options.no_wait {
                return Err(self.refuse(blocked.into()));
            }
            let whole = parts.kind == Kind::Whole && blocked == Blocked::Space;
            let payload = parts.key.len() + parts.metadata.len() + parts.body.len();
            if let Some(piece_max) =
                whole.then(|| volume.catalog.places.as_ref()?.cut_for(payload, insertion.tries)).flatten()
            {
                return Ok(Step::Inserted(Inserted::Scattered(piece_max)));
            }
            insertion.tries += 1;
            insertion.waited_since.get_or_insert_with(|| shared.clock.now_nanos());
            // Compacting each cluster twice without finding room is to find none. Where objects have places, each wait
            // lets some leave, and at the end there are none.
            let compacts = blocked == Blocked::Space && volume.catalog.places.is_none();
            insertion.rounds += u64::from(compacts && shared.options.daemons == Daemons::Manual);
            return Ok(Step::Blocked(NoRoom { volume, blocked, seen }));
        }
    }

    /// The same where a table takes it.
    fn insert_in_layout(
        &self,
        layout: &dyn Layout,
        hash: KeyHash,
        parts: &Parts<'_>,
        payload_crc: u32,
    ) -> Result<Inserted> {
        let _stripe = self.lock_key(hash);
        let draft = parts.draft(hash, (self.shared().next_generation(), parts.options.server), payload_crc);
        let former = layout.insert(&draft, !parts.options.bypass_memory)?;
        former.into_iter().for_each(|former| self.drop_former(layout, hash, former));
        add(&self.shared().counters.put_bytes, draft.header.payload_len() as u64);
        Ok(Inserted::Durable)
    }

    fn class(volume: &Volume, kind: Kind, options: &PutOptions) -> Class {
        let placer = &volume.catalog.placer;
        match options.bypass_memory && !placer.keeps_apart() {
            true => Class::Bypass,
            false => placer.class(kind, options.group, options.server),
        }
    }

    /// The class of an object, and the server in its header. The affinity stands for the server of an object
    /// that names none; where objects wait for each other, for that of every object without a group: a page is asked
    /// for at once, a site is not. Chunks fill clusters anyway.
    fn affinity_of(
        volume: &Volume,
        class: Class,
        parts: &Parts<'_>,
        (hash, beside): (u64, Option<u64>),
    ) -> (Class, u32) {
        let server = parts.options.server;
        let affinity = match parts.kind {
            Kind::Chunk => 0,
            _ => volume.catalog.placer.affinity_of(hash, beside),
        };
        match class {
            // The head of a large object does not wait, and goes to where the others are packed.
            Class::Rest | Class::Server(_) if affinity != 0 && volume.packer.gathers().is_some() => {
                (Class::Rest, affinity)
            }
            Class::Rest if affinity != 0 && server == 0 => (Class::Server(affinity), affinity),
            _ => (class, server),
        }
    }

    /// Counts a version that a table does not hold any more, and drops its chunks, if it had any; by the holder of the
    /// key's lock.
    pub(crate) fn drop_former(&self, layout: &dyn Layout, hash: KeyHash, former: Former) {
        let chunks = former.manifest.map_or(0, |manifest| manifest.total);
        add(&self.shared().counters.removed_bytes, former.bytes + chunks);
        former.manifest.into_iter().for_each(|manifest| layout.drop_chunks(hash, manifest));
    }

    /// Does or awaits what a blocked put needs. False if there is nothing that would help.
    fn make_room(&self, &NoRoom { ref volume, blocked, seen }: &NoRoom) -> Result<bool> {
        match (blocked, self.shared().options.daemons) {
            (Blocked::Buffers, Daemons::Threads) => {
                volume.log.queue.wait_for_change(seen, Duration::from_millis(20));
                Ok(true)
            }
            (Blocked::Space, Daemons::Threads) if self.mode() == Mode::Cache => {
                volume.room.reclaimer.state.wake();
                volume.log.queue.wait_for_change(seen, Duration::from_millis(5));
                Ok(true)
            }
            // A store compacts here, so that `Full` is said only when compaction would gain nothing.
            _ => volume.room.unblock(blocked),
        }
    }

    /// As [`Store::make_room`] for tasks.
    async fn make_room_async(&self, found: &NoRoom) -> Result<bool> {
        if self.shared().options.daemons == Daemons::Manual {
            return self.make_room(found);
        }
        let &NoRoom { ref volume, blocked, seen } = found;
        match blocked {
            Blocked::Moved | Blocked::Staging => {}
            Blocked::Buffers if !volume.log.queue.has_room(volume.appender.unwritten_max()) => {
                let failed = || volume.log.commits.failure().is_some();
                poll_fn(|context| {
                    match volume.log.queue.wake_on_change(volume.appender.unwritten_max(), context.waker()) {
                        true if !failed() => Poll::Pending,
                        _ => Poll::Ready(()),
                    }
                })
                .await;
            }
            // No slot is free.
            Blocked::Buffers => volume.log.queue.next_change(seen).await,
            Blocked::Space if self.mode() == Mode::Cache => {
                volume.room.reclaimer.state.wake();
                volume.log.queue.next_change(seen).await;
            }
            Blocked::Space => {
                let volume = Arc::clone(volume);
                return self.spawn_blocking(move |_| volume.room.make_space()).await;
            }
        }
        Ok(true)
    }

    fn no_room(&self, volume: &Volume, blocked: Blocked, parts: &Parts<'_>) -> Error {
        if blocked == Blocked::Space && self.mode() == Mode::Store {
            let needed = (frame::HEADER + parts.key.len() + parts.metadata.len() + parts.body.len()) as u64;
            return volume.appender.full(needed);
        }
        self.refuse(blocked.into())
    }
}
