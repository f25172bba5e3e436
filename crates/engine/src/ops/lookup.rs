//! Looking a key up: index → memory, or one device read → checksum and full key verified → handle.
//!
//! The memory answer is synchronous; only a device read waits, on this thread or as a future. Both forms
//! walk the same steps: [`Store::seek`] says where to look next, [`Store::arrived`] judges what was read.
//!
//! Invariants: only a verified frame becomes a handle; an entry that leads to bytes it does not describe
//! is dropped; an entry that leads to another key's intact frame is that key's, and is passed by.

mod plan;
mod seek;

use std::sync::{Arc, atomic::AtomicU64};

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_format::frame::{self, GRAIN, Header, Kind};

use self::plan::Plan;
use crate::{
    Departure, Error, Miss, Mode, Result,
    base::frame::Frame,
    base::layout::Layout,
    base::stats::add,
    cache::catalog::Catalog,
    handle::Store,
    index::{IndexEntry, Location},
    read::reading::Outcome,
    volume::Volume,
};

/// What is looked for.
#[derive(Clone)]
pub(crate) struct Query {
    pub(crate) hash: KeyHash,
    key: Bytes,
    chunk: bool,
    /// Number of the volume where it lies.
    home: usize,
    /// Entries that turned out to be another key's.
    passed: Vec<IndexEntry>,
    /// An entry was dropped because its bytes did not verify.
    dropped: bool,
    /// Why nothing was found so far.
    why: Miss,
    tries: u32,
    /// The entry whose bytes did not fit it: read once more before it is dropped.
    doubted: Option<IndexEntry>,
}

/// Entries may move under a get's feet, by reclaim or a put; more often than this they do not.
const TRIES: u32 = 16;

pub(crate) enum Next {
    Found(Arc<Frame>),
    Absent(Miss),
    Read(Plan),
    /// This layout is to be asked, which looks at the device here and now.
    Ask(Arc<dyn Layout>),
}

impl Query {
    pub(crate) fn key(store: &Store, key: &[u8]) -> Self {
        let hash = store.hasher().key(key);
        Self::new(hash, Bytes::copy_from_slice(key), store.home_number(hash, key), false)
    }

    /// A chunk of an object that lies on this volume.
    pub(crate) fn chunk(store: &Store, home: usize, key: frame::ChunkKey) -> Self {
        let key = key.encode();
        Self::new(store.hasher().chunk(&key), Bytes::copy_from_slice(&key), home, true)
    }

    fn new(hash: KeyHash, key: Bytes, home: usize, chunk: bool) -> Self {
        let (passed, why) = (Vec::new(), Miss::Absent);
        Self { hash, key, chunk, home, passed, dropped: false, why, tries: 0, doubted: None }
    }

    /// Counts an answer; a chunk is a part of one.
    fn hit(&self, counter: &AtomicU64) {
        add(counter, u64::from(!self.chunk));
    }

    fn accepts(&self, header: &Header, key: &[u8]) -> bool {
        (header.kind == Kind::Chunk) == self.chunk && key == self.key
    }
}

impl Store {
    pub(crate) fn count_get(&self, missed: Option<Miss>) {
        add(&self.shared().counters.gets, 1);
        if let Some(why) = missed {
            self.shared().counters.missed(why);
        }
    }

    /// Finds a frame, waiting on this thread.
    pub(crate) fn run(&self, query: &mut Query) -> Result<Option<Arc<Frame>>> {
        loop {
            match self.seek(query) {
                Next::Found(frame) => return self.answer(query, Ok(frame)),
                Next::Absent(why) => return self.answer(query, Err(why)),
                Next::Ask(layout) => {
                    let found = layout.find(query.hash, &query.key, query.chunk)?;
                    if found.is_some() {
                        query.hit(&self.shared().counters.hits_device);
                    }
                    return self.answer(query, found.ok_or(Miss::Absent));
                }
                Next::Read(plan) => {
                    // A thread that blocks waits for no other's ring.
                    let outcome = if plan.volume.residents.reader.reads_in_batches() {
                        plan.volume.batch.wait_in_batch(&plan.begin(0).0)
                    } else {
                        let place = plan.sought(0);
                        let (flight, lead) = plan.volume.residents.reader.join(place);
                        if lead {
                            let outcome = plan.read_here();
                            plan.volume.residents.reader.land(place, &flight, outcome.clone());
                            outcome
                        } else {
                            add(&self.shared().counters.reads_shared, 1);
                            flight.wait(plan.volume.medium.device.as_ref())
                        }
                    };
                    if let Some(frame) = self.arrived(query, &plan, outcome)? {
                        return self.answer(query, Ok(frame));
                    }
                }
            }
        }
    }

    /// As [`Store::run`] in two steps: the device read begins now, and what is returned waits for it.
    pub(crate) fn begin_run(&self, mut query: Query) -> impl FnOnce() -> Result<Option<Arc<Frame>>> + Send + use<> {
        let store = self.clone();
        let next = match self.seek(&mut query) {
            Next::Read(plan) if plan.may_go_ahead() => {
                let (flight, lead) = plan.begin(0);
                add(&self.shared().counters.reads_shared, u64::from(!lead));
                Ok((plan, flight))
            }
            next => Err(next),
        };
        move || match next {
            Ok((plan, flight)) => {
                let outcome = flight.wait(plan.volume.medium.device.as_ref());
                match store.arrived(&mut query, &plan, outcome)? {
                    Some(frame) => store.answer(&query, Ok(frame)),
                    None => store.run(&mut query),
                }
            }
            Err(Next::Found(frame)) => store.answer(&query, Ok(frame)),
            Err(Next::Absent(why)) => store.answer(&query, Err(why)),
            Err(Next::Read(_) | Next::Ask(_)) => store.run(&mut query),
        }
    }

    fn answer(&self, query: &Query, found: Result<Arc<Frame>, Miss>) -> Result<Option<Arc<Frame>>> {
        if query.dropped && found.is_err() {
            self.log_loss(query);
        }
        let missed = match &found {
            // A chunk is a part of what was asked for, and that had not expired.
            Ok(frame) if !query.chunk && frame.is_expired(self.shared().clock.now_millis()) => Some(Miss::Expired),
            Ok(_) => None,
            Err(why) => Some(*why),
        };
        match missed {
            Some(why) if query.chunk => self.shared().counters.missed(why),
            None if query.chunk => {}
            missed => self.count_get(missed),
        }
        match (missed, found) {
            (None, Ok(frame)) => Ok(Some(frame)),
            (Some(why @ (Miss::Checksum | Miss::KeyMismatch)), _) if self.mode() == Mode::Store => {
                Err(Error::Damaged {
                    place: format!("object {:?}", String::from_utf8_lossy(&query.key)),
                    why: why.to_string(),
                    mend: "its entry was dropped; put it again".into(),
                })
            }
            _ => Ok(None),
        }
    }

    /// Where to look next.
    pub(crate) fn seek(&self, query: &mut Query) -> Next {
        let hash = query.hash.short();
        let shared = self.shared();
        self.deferred().merge_part_of(hash);
        let volume = self.volumes().get(query.home);
        // On its way from memory while the tier is asked.
        volume.iter().for_each(|volume| volume.catalog.index.prefetch(hash));
        if let Some(frame) = shared.memory.get(hash, &query.key)
            && query.accepts(&frame.header, frame.key())
        {
            frame.credit();
            query.hit(&shared.counters.hits_memory);
            return Next::Found(frame);
        }
        if let Some(layout) = self.layout() {
            return Next::Ask(Arc::clone(layout));
        }
        let Some(volume) = volume.filter(|volume| !self.is_lost(volume)) else { return Next::Absent(query.why) };
        'again: while query.tries < TRIES {
            query.tries += 1;
            for entry in volume.catalog.index.touch(hash) {
                let is_passed = query.passed.iter().any(|passed| passed.same(entry));
                if is_passed || volume.frames.is_of_another(entry, query.hash) {
                    continue;
                }
                match entry.location() {
                    Location::OnDisk { grain } => {
                        match Plan::new(volume, hash, (entry, grain), self.deferred().is_over()) {
                            Some(plan) => return Next::Read(plan),
                            None => continue 'again,
                        }
                    }
                    Location::Buffered { slot, offset } => {
                        let accept = |header: &Header, key: &[u8]| query.accepts(header, key);
                        let found = volume.catalog.buffers.read(slot, offset as usize * GRAIN, hash, accept);
                        if let Some(frame) = found {
                            query.hit(&shared.counters.hits_buffer);
                            volume.catalog.note_served(slot);
                            return Next::Found(self.keep(volume, None, frame));
                        }
                        if volume.catalog.index.find(hash, entry.location()).is_none() {
                            continue 'again;
                        }
                        query.passed.push(entry);
                    }
                }
            }
            break;
        }
        Next::Absent(query.why)
    }

    /// Judges the bytes of a read. `None`: look again.
    pub(crate) fn arrived(&self, query: &mut Query, plan: &Plan, outcome: Outcome) -> Result<Option<Arc<Frame>>> {
        let hash = query.hash.short();
        let volume = &plan.volume;
        let bytes = match outcome {
            Ok(bytes) => bytes,
            // It went while the get was on its way.
            Err(error) if plan.is_of_a_file() && error.kind() == std::io::ErrorKind::NotFound => {
                self.doubt(query, plan, Miss::KeyMismatch);
                return Ok(None);
            }
            Err(_) if volume.log.is_closed() => return Err(Error::Closed),
            Err(error) => {
                if self.mode() == Mode::Store {
                    return Err(Error::Io {
                        place: format!("{}: reading an object", volume.medium.place),
                        source: error,
                    });
                }
                query.passed.push(plan.entry);
                query.why = Miss::ReadError;
                return Ok(None);
            }
        };
        if !plan.is_current() {
            // By now it may be of an older version of this very key.
            return Ok(None);
        }
        let at = (plan.grain * GRAIN as u64 - plan.start) as usize;
        let frame = bytes.get(at..).unwrap_or_default();
        let is_asked_for = |header: &Header| query.accepts(header, header.key(frame));
        // A block that was written astray may hold an older version of the same key at the same place.
        let is_entered = |header: &Header| match &volume.catalog.places {
            Some(places) => places.is_of_place(plan.grain, header),
            None => plan.entry.is_of_grains((header.frame_len() / GRAIN) as u32),
        };
        let why = match Header::verify(frame) {
            Ok(header) if is_asked_for(&header) && is_entered(&header) => {
                query.hit(&self.shared().counters.hits_device);
                volume.catalog.places.iter().for_each(|places| places.note_use(plan.grain));
                volume.residents.learn_class(plan.grain, &header);
                let admitted = match plan.page {
                    Some((cluster, read)) if read.page.is_some() => {
                        volume.residents.admit_page((cluster, plan.granted), read, &bytes, header.mark)
                    }
                    Some((_, read)) => {
                        volume.residents.admit_neighbours((plan.grain, plan.granted), read.offset, &bytes, &header)
                    }
                    None => false,
                };
                return Ok(Some(self.keep(volume, Some(plan), plan.lift(&bytes, at, hash, header, admitted))));
            }
            Ok(header)
                if !is_asked_for(&header) && is_entry_of(&volume.catalog, plan.entry, plan.grain, &header, frame) =>
            {
                // Two keys share one place in the index: this entry is the other one's.
                query.passed.push(plan.entry);
                return Ok(None);
            }
            Ok(_) => Miss::KeyMismatch,
            Err(picaflor_format::Corrupt::Checksum) => Miss::Checksum,
            Err(_) => Miss::KeyMismatch,
        };
        if volume.log.is_closed() {
            // Another process may have written there.
            return Err(Error::Closed);
        }
        self.doubt(query, plan, why);
        Ok(None)
    }

    /// What was read is not what the entry leads to. Moved meanwhile? Then the index has another entry by now, and the
    /// next look finds it. Or its place was written anew, with this very key or under a read begun earlier: so look
    /// twice, and then drop it.
    fn doubt(&self, query: &mut Query, plan: &Plan, why: Miss) {
        let (hash, volume) = (query.hash.short(), &plan.volume);
        if !query.doubted.replace(plan.entry).is_some_and(|entry| entry.same(plan.entry)) {
            return;
        }
        if volume.catalog.index.find(hash, plan.entry.location()).is_some() {
            query.why = why;
            query.passed.push(plan.entry);
            // With the lock no other version of the key comes to lie there behind the look.
            let stripe = self.shared().try_lock_key(hash).filter(|_| plan.is_current());
            let may_drop = stripe.is_some() && !self.shared().options.read_only && self.deferred().is_over();
            query.dropped |= may_drop && volume.catalog.drop_entry(hash, plan.entry);
        }
    }

    /// Lets a found object stay in memory, if its group and the caller want that. `plan`: by what it was read.
    fn keep(&self, volume: &Volume, plan: Option<&Plan>, frame: Frame) -> Arc<Frame> {
        let frame = Arc::new(frame);
        let shared = self.shared();
        // A cluster read moves the entry into memory; anything else that moved it made it another version.
        let current = || {
            volume.catalog.index.candidates(frame.hash).iter().any(|now| match now.location() {
                Location::OnDisk { .. } => plan.is_some_and(|plan| now.same(plan.entry) && plan.is_current()),
                Location::Buffered { .. } => volume.catalog.buffers.holds(*now, &frame),
            })
        };
        shared.cache_object(&frame, current);
        frame
    }

    /// The only entry of a key led to bytes that do not verify. Recovery must not fall back on an older
    /// version whose entry a checkpoint still has.
    fn log_loss(&self, query: &Query) {
        let hash = query.hash;
        let _stripe = self.lock_key(hash);
        let volume = &self.recovered_volumes()[query.home];
        if !volume.frames.candidates(hash).is_empty() {
            return;
        }
        add(&self.shared().counters.damaged, 1);
        volume.log.forget(hash, self.shared().next_generation());
        if !query.chunk {
            self.shared().note_departure(&query.key, Departure::Damaged);
        }
    }
}

/// Whether an index entry at this grain can belong to this frame.
fn is_entry_of(catalog: &Catalog, entry: IndexEntry, grain: u64, header: &Header, frame: &[u8]) -> bool {
    let hash = catalog.medium.hasher.frame(header.kind, header.key(frame)).short();
    catalog.index.find(hash, Location::OnDisk { grain }).is_some_and(|found| found.same(entry))
}
