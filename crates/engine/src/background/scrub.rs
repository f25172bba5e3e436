//! The scrubber: after an opening, warms the hot objects and then verifies the rest, one cluster a step.
//!
//! Invariants: an entry is dropped only if its frame does not verify or belongs to a large object that is
//! gone; gets are never made to wait for it beyond one read.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering::Relaxed},
};

use parking_lot::Mutex;
use picaflor_format::{
    BLOCK,
    frame::{GRAIN, Header, Kind},
};

use crate::{
    Departure, Mode,
    base::frame::Frame,
    base::group::Priority,
    base::policy::Reopening,
    base::stats::add,
    index::{IndexEntry, Location},
    log::known::Known,
    read::parts::Parts,
    space::State,
};

pub(crate) struct Scrubber {
    parts: Parts,
    /// What the opening knew.
    pub(crate) known: Known,
    scrub: Scrub,
}

/// How far the scrubber has come.
pub(crate) struct Scrub {
    state: Mutex<Progress>,
    /// Whether what is on the device has not all been looked at since a crash.
    verifying: AtomicBool,
}

struct Progress {
    hot: Vec<IndexEntry>,
    next: u32,
    done: bool,
}

/// Hot objects read in one step.
const WARM: usize = 32;

impl Scrub {
    /// First reads these hot places; with `verify`, then goes over all clusters.
    pub(crate) fn new(mut hot: Vec<u64>, verify: bool) -> Self {
        // In address order: the disk's arm goes over them once.
        hot.sort_unstable_by_key(|entry| {
            std::cmp::Reverse(match IndexEntry(*entry).location() {
                Location::OnDisk { grain } => grain,
                Location::Buffered { .. } => 0,
            })
        });
        let next = if verify { 0 } else { u32::MAX };
        let hot: Vec<IndexEntry> = hot.into_iter().map(IndexEntry).collect();
        let done = hot.is_empty() && !verify;
        Self { state: Mutex::new(Progress { hot, next, done }), verifying: AtomicBool::new(verify) }
    }
}

impl Scrubber {
    /// Whether an entry may still lead to what left before a crash: until the scrubber has gone over everything, and as
    /// long as the store is only read.
    pub(crate) fn may_mislead(&self) -> bool {
        self.known.may_mislead() && (self.parts.shared.options.read_only || self.is_verifying())
    }

    pub(crate) fn new(parts: &Parts, known: Known, scrub: Scrub) -> Self {
        Self { parts: parts.clone(), known, scrub }
    }

    pub(crate) fn is_verifying(&self) -> bool {
        self.scrub.verifying.load(Relaxed)
    }

    pub(crate) fn is_warming(&self) -> bool {
        !self.scrub.state.lock().hot.is_empty()
    }

    pub(crate) fn is_done(&self) -> bool {
        self.scrub.state.lock().done
    }

    /// One step. Returns whether there is more to do.
    pub(crate) fn step(&self) -> bool {
        let mut state = self.scrub.state.lock();
        if state.done {
            return false;
        }
        for _ in 0..WARM {
            match state.hot.pop() {
                Some(entry) => self.warm(entry),
                None => break,
            }
        }
        if !state.hot.is_empty() {
            return true;
        }
        let cluster = state.next;
        state.next = cluster.saturating_add(1);
        state.done = state.next >= self.parts.catalog.parts();
        let more = !state.done;
        drop(state);
        match &self.parts.catalog.places {
            Some(places) => {
                places.verify(&self.parts, cluster);
                add(&self.parts.shared.counters.clusters_scrubbed, 1);
            }
            None if cluster < self.parts.space.count() => self.verify_cluster(cluster),
            None => {}
        }
        if !more {
            self.scrub.verifying.store(false, Relaxed);
            self.parts.log.is_settled.store(true, Relaxed);
        }
        more
    }

    /// Whether puts wait for what the scrubber still has to look at: after a crash, and not where the run before was
    /// closed in spite of it.
    pub(crate) fn recovers_in_steps(&self) -> bool {
        let options = &self.parts.shared.options;
        let waits = options.reopening == Reopening::InSteps && options.mode == Mode::Cache;
        waits && self.known.crashed && self.is_verifying()
    }

    /// Reads one object into the memory tier, if the index still knows it there and the tier has room.
    fn warm(&self, entry: IndexEntry) {
        let shared = &self.parts.shared;
        let Location::OnDisk { grain } = entry.location() else { return };
        let Some(cluster) = self.parts.medium.cluster_of(grain) else { return };
        let granted = self.parts.catalog.grants().last(grain);
        // In this order: a cluster may have been granted before that, and not be written yet.
        let is_written = self.parts.catalog.places.is_some() || self.parts.space.state(cluster).is_read();
        if !is_written || shared.memory.held() > shared.tier_budget() / 4 * 3 {
            return;
        }
        if self.parts.residents.reader.is_by_cluster() {
            return self.warm_around((cluster, granted), grain, entry.grains());
        }
        let Ok((header, frame)) = self.parts.frames.read_frame(grain, entry.grains()) else { return };
        let hash = self.parts.medium.hasher.frame(header.kind, header.key(&frame)).short();
        let current = || {
            let is_there = self.parts.catalog.index.find(hash, Location::OnDisk { grain }).is_some();
            is_there && self.parts.catalog.grants().last(grain) == granted
        };
        let len = picaflor_format::frame::HEADER + header.payload_len();
        let frame = Arc::new(Frame::new(hash, header, frame[..len].to_vec().into()));
        frame.set_uses(u8::from(shared.groups.priority(header.group) != Priority::Hated));
        shared.cache_object(&frame, current);
    }

    /// Makes the cluster around an object resident, or its page.
    fn warm_around(&self, (cluster, granted): (u32, u32), grain: u64, grains: u32) {
        let offset = (grain - self.parts.medium.grain(cluster, 0)) as usize * GRAIN;
        let read = self.parts.residents.pages.page_around(cluster, offset, grains);
        let is_away = match read.page {
            Some((page, _)) => self.parts.space.pages().lacks(cluster, page),
            None => self.parts.space.state(cluster) == State::Sealed,
        };
        let Some(bytes) = is_away.then(|| self.parts.medium.read_at(cluster, read.offset, read.len).ok()).flatten()
        else {
            return;
        };
        let bytes = bytes.into_bytes();
        if read.page.is_none() {
            self.parts.residents.admit_cluster((grain, granted), &bytes);
        } else if let Ok(header) = Header::verify(&bytes[offset - read.offset..]) {
            self.parts.residents.admit_page((cluster, granted), read, &bytes, header.mark);
        }
    }

    /// A damaged object's header is intact: what it says is known to be gone.
    fn drop_for_good(&self, header: &Header, frame: &[u8], expected: u64) {
        let key = header.key(frame);
        let hash = self.parts.medium.hasher.frame(header.kind, key);
        // The key itself may be what is damaged.
        if hash.short() != expected {
            return;
        }
        if !self.parts.shared.options.read_only {
            self.parts.log.forget(hash, header.generation);
        }
        if header.kind != Kind::Chunk {
            self.parts.shared.note_departure(key, Departure::Damaged);
        }
    }

    fn verify_cluster(&self, cluster: u32) {
        let granted = self.parts.space.grants.last(cluster);
        // In this order: it may have been granted before that, and not be written yet.
        let is_read = self.parts.space.state(cluster).is_read();
        if !is_read {
            return;
        }
        let medium = &self.parts.medium;
        let Ok(bytes) = medium.read_at(cluster, 0, medium.cluster_len()) else { return };
        add(&self.parts.shared.counters.clusters_scrubbed, 1);
        let Ok(found) = self.parts.medium.last_use(cluster, None, BLOCK) else { return };
        let untold = self.known.is_untold(&self.parts.space, cluster, &found);
        let rows = self.parts.medium.rows_of(found, &bytes);
        if untold && !self.parts.shared.options.read_only {
            self.known.drop_outdated(&self.parts.catalog, cluster, &rows);
        }
        for row in rows {
            let location = Location::OnDisk { grain: self.parts.medium.grain(cluster, row.offset) };
            let Some(entry) = self.parts.catalog.index.find(row.hash, location) else { continue };
            let frame = bytes.get(row.offset as usize..).unwrap_or_default();
            let why = match Header::verify(frame) {
                Ok(header) if self.parts.frames.is_left_over(&header, frame) => Departure::Evicted,
                Ok(_) => continue,
                Err(_) => Departure::Damaged,
            };
            // With the lock no other version of the key comes to lie there behind the look.
            let stripe = self.parts.shared.lock_key(row.hash);
            let is_there = self.parts.space.grants.last(cluster) == granted;
            if !is_there || !self.parts.catalog.drop_entry(row.hash, entry) {
                continue;
            }
            drop(stripe);
            if why == Departure::Damaged {
                add(&self.parts.shared.counters.damaged, 1);
                if let Some(header) = Header::of_damaged(frame) {
                    self.drop_for_good(&header, frame, row.hash);
                }
            }
        }
    }
}
