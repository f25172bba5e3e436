//! Reclaim: make room by emptying a cluster.
//!
//! Steps: eviction names a victim → its table says what was in it, the index what still is → what
//! deserves to live is put again, through the same door as any put, so reclaim has no write path of its
//! own → the rest leaves → the cluster is free once the survivors are durable.
//!
//! Invariants: a cluster is never freed while recovery could need a byte of it; the last copy of a
//! survivor is overwritten only after a commit that began after its reinsertion.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use parking_lot::{Condvar, Mutex};
use picaflor_format::{
    cluster::Row,
    frame::{ChunkKey, Header, Kind},
};

use crate::{
    Departure, Error, Mode, Result,
    background::ahead::Ahead,
    background::contents::{Bytes, Contents, VictimReader},
    background::eviction::Occupant,
    background::survivors::{Moved, Survivors},
    base::blocked::{PATIENCE, Purpose},
    base::frame::Draft,
    base::group::Priority,
    base::policy::Eviction,
    base::stats::add,
    index::{IndexEntry, Location},
    log::checkpoint::Checkpointer,
    read::parts::Parts,
    space::{SPARE, State, Victim},
    write::append::Appender,
    write::flush::Committer,
};

/// The reclaimer's bell.
pub(crate) struct ReclaimState {
    rung: Mutex<bool>,
    bell: Condvar,
    /// One reclaim at a time: two would compact into each other's victims.
    pub(crate) turn: Mutex<()>,
    /// The last second in which no cluster was too old.
    pub(crate) looked: AtomicU32,
    /// Bytes that objects of a store took when no room could be made; `u64::MAX` if that was not tried.
    pub(crate) in_vain: AtomicU64,
}

impl Default for ReclaimState {
    fn default() -> Self {
        Self {
            rung: Mutex::default(),
            bell: Condvar::new(),
            turn: Mutex::default(),
            looked: AtomicU32::new(0),
            in_vain: AtomicU64::new(u64::MAX),
        }
    }
}

impl ReclaimState {
    pub(crate) fn wake(&self) {
        *self.rung.lock() = true;
        self.bell.notify_all();
    }

    /// It is worth trying again, whatever objects take.
    pub(crate) fn forget_in_vain(&self) {
        self.in_vain.store(u64::MAX, Relaxed);
    }

    /// Sleeps until rung, or for `time`. Returns whether it was rung.
    pub(crate) fn rest(&self, time: Duration) -> bool {
        let mut rung = self.rung.lock();
        if !*rung {
            self.bell.wait_for(&mut rung, time);
        }
        std::mem::take(&mut *rung)
    }
}

/// What became of a victim.
enum Emptied {
    /// So many of its objects moved. Where no object leaves, some may still be in it, that were not found.
    Moved(usize),
    /// Nothing: there is more in it than there seemed to be.
    Dense,
    /// Nothing: it cannot be read, and no object is to leave. The read may succeed the next time.
    Unread(Error),
}

/// What became of one reclaim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reclaimed {
    /// A cluster was emptied.
    One,
    /// There is none to empty.
    Nothing,
}

/// Empties clusters. Its verbs are for the holder of [`ReclaimState::turn`]; where the journal lacks room meanwhile, a
/// checkpoint takes the clusters of the one before the last, for it cannot have others emptied.
pub(crate) struct Reclaimer {
    pub(crate) parts: Parts,
    pub(crate) appender: Arc<Appender>,
    pub(crate) committer: Arc<Committer>,
    pub(crate) checkpointer: Arc<Checkpointer>,
    victims: VictimReader,
    ahead: Mutex<Ahead>,
    pub(crate) survivors: Survivors,
    pub(crate) state: ReclaimState,
}

impl Reclaimer {
    pub(crate) fn new(parts: &Parts, checkpointer: &Arc<Checkpointer>) -> Self {
        let (victims, survivors) = (VictimReader::new(parts), Survivors::new(parts, checkpointer));
        let committer = Arc::clone(&checkpointer.committer);
        let (appender, checkpointer) = (Arc::clone(&checkpointer.appender), Arc::clone(checkpointer));
        Self {
            parts: parts.clone(),
            appender,
            committer,
            checkpointer,
            victims,
            ahead: Mutex::default(),
            survivors,
            state: ReclaimState::default(),
        }
    }

    /// Clean clusters that the reclaimer keeps ahead of puts.
    pub(crate) fn clean_target(&self) -> u32 {
        SPARE + self.parts.residents.checkpoint_reserve() + self.clean_ahead()
    }

    pub(crate) fn clean_ahead(&self) -> u32 {
        (4 * self.appender.lanes.len() as u32 + 32).min(self.parts.space.count() / 16)
    }

    /// Empties clusters until it is enough, or there is none.
    pub(crate) fn empty_until(&self, is_enough: impl Fn() -> bool) -> Result<()> {
        for _ in 0..self.parts.space.count() {
            if is_enough() {
                break;
            }
            if self.reclaim_one()? == Reclaimed::Nothing {
                self.parts.residents.retire_a_resident();
                if self.reclaim_one()? == Reclaimed::Nothing {
                    break;
                }
            }
            if self.parts.space.leaving() > 0 {
                // Not in time for the journal: that would take the checkpoint for which there is no room yet.
                self.committer.wait_commit(self.parts.log.commits.next())?;
            }
        }
        Ok(())
    }

    /// The same where no object leaves. False if there is none to empty, or no room for what is in it. So many are
    /// likely to be wanted after it.
    pub(crate) fn reclaim_one_of_store(&self, more: u32) -> Result<bool> {
        let mut ahead = self.ahead.lock();
        self.victims.fill(&mut ahead, more + 1);
        match self.reclaim_this(self.parts.shared.eviction().victim(), &mut ahead) {
            Ok(reclaimed) => Ok(reclaimed == Reclaimed::One),
            Err(Error::Full { .. }) => Ok(false),
            Err(error) => Err(error),
        }
    }

    /// Empties some clusters, `most` of them at the most. Returns whether it emptied any.
    ///
    /// # Errors
    /// As [`Reclaimer::reclaim_one`].
    pub(crate) fn reclaim_some(&self, most: u32) -> Result<bool> {
        let mut ahead = self.ahead.lock();
        self.victims.fill(&mut ahead, most);
        let mut emptied = false;
        for _ in 0..ahead.len().min(most).max(1) {
            self.victims.go_on(&mut ahead);
            match self.reclaim_this(self.parts.shared.eviction().victim(), &mut ahead)? {
                Reclaimed::One => emptied = true,
                Reclaimed::Nothing => break,
            }
        }
        Ok(emptied)
    }

    /// Nothing is to be emptied soon: what was read for it leaves memory.
    pub(crate) fn forget_ahead(&self) {
        *self.ahead.lock() = Ahead::default();
    }

    pub(crate) fn reclaim_one(&self) -> Result<Reclaimed> {
        self.reclaim_this(self.parts.shared.eviction().victim(), &mut Ahead::default())
    }

    /// Empties the cluster that is next by this rule; what is `ahead` was read of it, if it is there.
    pub(crate) fn reclaim_this(&self, which: Victim, ahead: &mut Ahead) -> Result<Reclaimed> {
        let eviction = self.parts.shared.eviction();
        let began = self.parts.shared.clock.now_nanos();
        let (victim, survivors) = loop {
            let Some(victim) = self.next_victim(which) else { return Ok(Reclaimed::Nothing) };
            // There every entry is accounted for.
            if eviction.keeps_all() && self.parts.space.live.grains(victim) == 0 {
                break (victim, 0);
            }
            let read = ahead.take(&self.parts.space, victim);
            let emptied = self.empty(victim, eviction, matches!(which, Victim::Aged(_)), read).inspect_err(|_| {
                self.parts.space.set(victim, State::Sealed);
            })?;
            let error = match emptied {
                Emptied::Moved(survivors) if !eviction.keeps_all() || self.parts.space.live.grains(victim) == 0 => {
                    break (victim, survivors);
                }
                Emptied::Moved(_) => None,
                Emptied::Unread(error) => Some(error),
                Emptied::Dense => {
                    self.parts.space.set(victim, State::Sealed);
                    continue;
                }
            };
            self.parts.space.victims().set_aside(victim, self.parts.shared.second());
            let is_late = u128::from(self.parts.shared.clock.now_nanos() - began) > PATIENCE.as_nanos();
            if let Some(error) = error.filter(|_| is_late) {
                return Err(error);
            }
        };
        if self.parts.space.live.grains(victim) > 0 {
            // No frame was found for them, and another may come to lie there.
            self.parts.catalog.drop_leading_to(victim, |_| false);
        }
        self.parts.space.live.clear(victim);
        add(&self.parts.shared.counters.reclaimed_clusters, 1);
        let wait = survivors > 0 || self.parts.shared.options.mode == Mode::Store;
        let next = if wait { State::Leaving(self.parts.log.commits.next()) } else { State::Free };
        self.parts.space.set(victim, next);
        self.parts.log.queue.wake();
        Ok(Reclaimed::One)
    }

    /// Where no other is left, those that were set aside are tried again after a while.
    fn next_victim(&self, which: Victim) -> Option<u32> {
        let victims = self.parts.space.victims();
        let recalled = || victims.recall(self.parts.shared.second()).then(|| victims.pick(which));
        victims.pick(which).or_else(|| recalled().flatten())
    }

    /// Moves or evicts what is live in the victim, all of it if that is too old.
    fn empty(&self, victim: u32, eviction: Eviction, aged: bool, read: Option<Contents>) -> Result<Emptied> {
        let keeps_all = eviction.keeps_all();
        if let Some(_no_leases) = self.parts.shared.leases.none()
            && let Some(listed) = self.parts.residents.listed_in(victim)
        {
            let why = if aged { Departure::Expired } else { Departure::Evicted };
            listed.into_iter().for_each(|(hash, entry)| self.evict_unseen(hash, entry, why));
            return Ok(Emptied::Moved(0));
        }
        let no_leases = self.parts.shared.leases.none();
        let needs_all = self.victims.needs_all(no_leases.is_some());
        let Contents { rows, bytes } = match self.victims.contents(victim, needs_all, read) {
            Err(error) if keeps_all => return Ok(Emptied::Unread(error)),
            found => found.unwrap_or_default(),
        };
        let mut live = self.parts.catalog.entries_of(victim, rows);
        if keeps_all && !self.parts.space.live.is_weighed(victim) {
            let bytes = live.iter().map(|(row, _)| row.taken()).sum();
            self.parts.space.live.weigh(victim, bytes, live.iter().map(|(_, entry)| u64::from(entry.grains())).sum());
            if self.parts.space.live.bytes(victim) + self.parts.space.live.least_gain() > self.parts.space.live.room {
                return Ok(Emptied::Dense);
            }
        }
        if eviction.has_queues() && !aged {
            let uses = live.iter().map(|(row, entry)| u64::from(self.victims.uses(row, *entry))).sum();
            self.parts.space.victims().learn(victim, uses, live.iter().map(|(row, _)| u64::from(row.len)).sum());
        }
        let bytes = match bytes {
            Bytes::None if !needs_all => self.victims.read_survivors(victim, &live),
            bytes => bytes,
        };
        if let (true, Bytes::All(bytes)) = (keeps_all, &bytes) {
            self.parts.catalog.add_unlisted(victim, bytes, &mut live);
        }
        let (read, unread): (Vec<_>, Vec<_>) =
            live.into_iter().partition(|(row, _)| keeps_all || bytes.frame(row).is_some());
        for (row, entry) in &unread {
            self.evict(row, *entry, None, if aged { Departure::Expired } else { Departure::Evicted });
        }
        // Until here there was to be none: no header was looked at.
        drop(no_leases);
        self.parts.shared.budget.begin_victim(self.parts.space.live.room);
        let mut survivors = 0;
        for (row, entry) in &read {
            let frame = bytes.frame(row).unwrap_or_default();
            // What cannot be read stays, and the cluster with it.
            let again = keeps_all.then(|| self.parts.frames.look_again(victim, row, *entry, frame)).transpose();
            let Ok(again) = again else { continue };
            let again = again.flatten();
            let frame = again.as_deref().unwrap_or(frame);
            match Header::verify(frame) {
                Ok(header) if header.generation == row.generation => {
                    let survives = self.reinsert_or_evict((&header, frame), (row, *entry), eviction, aged)?;
                    survivors += usize::from(survives);
                }
                _ => self.evict(row, *entry, None, Departure::Damaged),
            }
        }
        Ok(Emptied::Moved(survivors))
    }

    /// Puts an object of a victim again if it deserves that, or is being read; else it leaves. Returns whether it
    /// was put.
    fn reinsert_or_evict(
        &self,
        (header, frame): (&Header, &[u8]),
        (row, entry): (&Row, IndexEntry),
        eviction: Eviction,
        aged: bool,
    ) -> Result<bool> {
        let used = self.victims.is_used(row, entry);
        // What was asked for of late is in memory, though its cluster was not read for it.
        let aged = aged && !(used && self.parts.shared.options.cluster_age.is_by_use());
        let expired = aged || header.expires != 0 && header.expires <= self.parts.shared.clock.now_millis();
        let priority = self.parts.shared.groups.priority(header.group);
        let object = Occupant { len: header.payload_len() as u64, used, priority, expired };
        let chunk = Some(header.key(frame)).filter(|_| header.kind == Kind::Chunk);
        let is_orphan = chunk.is_some_and(|key| self.parts.frames.is_orphan(key));
        let keeps_whole = eviction.has_queues() && !expired;
        let stays = match keeps_whole.then(|| self.stays_with_others(header, frame, entry, &object)).flatten() {
            Some(true) => {
                self.parts.shared.budget.overdraw(object.len);
                true
            }
            Some(false) => false,
            None => eviction.deserves(&object, &self.parts.shared.budget),
        };
        if !is_orphan && stays {
            return self.reinsert(header, frame, row, entry);
        }
        let mut _no_new_leases = None;
        if let Some(key) = chunk {
            _no_new_leases = self.parts.shared.leases.keep(key, self.parts.frames.lease_max());
            if _no_new_leases.is_none() {
                return self.reinsert(header, frame, row, entry);
            }
        }
        let why = if expired { Departure::Expired } else { Departure::Evicted };
        self.evict(row, entry, Some((header.key(frame), header.kind)), why);
        Ok(false)
    }

    /// Whether a piece of a large object stays for what became of the piece before it, which was put again or is gone:
    /// the object stays whole, or leaves. None if this one is the first to be asked about.
    fn stays_with_others(&self, header: &Header, frame: &[u8], entry: IndexEntry, object: &Occupant) -> Option<bool> {
        let Parts { medium, catalog, space, frames, .. } = &self.parts;
        let key = match header.kind {
            Kind::Chunk => {
                let key = ChunkKey::decode(header.key(frame)).ok()?;
                let Some(number) = key.number.checked_sub(1) else {
                    // The first one decides for all. What would leave anyway need not be read for it.
                    let may_stay = object.used || object.priority == Priority::Loved;
                    let is_dear = |total: u64| self.parts.shared.budget.left() < total as i64;
                    return (may_stay && frames.total_of(&key).is_some_and(is_dear)).then_some(false);
                };
                ChunkKey { number, ..key }
            }
            Kind::Manifest => {
                let id = header.manifest(frame).filter(|manifest| manifest.chunks() > 0)?.id;
                ChunkKey { parent: medium.hasher.key(header.key(frame)).0, id, number: 0 }
            }
            Kind::Whole | Kind::Copy => return None,
        };
        let cluster = |entry: IndexEntry| match entry.location() {
            Location::OnDisk { grain } => medium.cluster_of(grain),
            Location::Buffered { .. } => None,
        };
        let here = cluster(entry)?;
        let found = catalog.index.candidates(medium.hasher.chunk(&key.encode()).short());
        let before = found.into_iter().next_back();
        match before.map(cluster) {
            None => Some(false),
            Some(Some(cluster)) if !space.victims().is_newer(cluster, here) => None,
            Some(_) => Some(true),
        }
    }

    fn reinsert(&self, header: &Header, frame: &[u8], row: &Row, entry: IndexEntry) -> Result<bool> {
        let cut = (header.kind == Kind::Whole)
            .then(|| self.appender.cut_to_pack(header.payload_len(), header.body_len as usize));
        if let Some(piece) = cut.flatten() {
            return self.survivors.reinsert_cut((header, frame), (row.hash, entry), piece);
        }
        let class = self.parts.catalog.placer.class(header.kind, header.group, header.server);
        let kind = if header.kind == Kind::Copy { Kind::Whole } else { header.kind };
        let draft = Draft::of_frame(row.hash, Header { kind, ..*header }, frame);
        let append = || {
            let beside = self.parts.catalog.placer.partners(row.hash).first().copied();
            self.survivors.append(&draft, class, beside, Some(entry), Purpose::Survivor)
        };
        match self.survivors.move_in((row.hash, Some(entry)), header.payload_len(), append)? {
            Moved::There => Ok(true),
            Moved::Gone => Ok(false),
            Moved::NoRoom => self.evict_for_want_of_room(row, entry, &draft).map(|()| false),
        }
    }

    /// Not even the spare clusters are left for a survivor.
    fn evict_for_want_of_room(&self, row: &Row, entry: IndexEntry, draft: &Draft<'_>) -> Result<()> {
        if self.parts.shared.options.mode == Mode::Store {
            return Err(self.appender.full(draft.header.payload_len() as u64));
        }
        if draft.header.kind == Kind::Chunk {
            self.parts.shared.leases.let_go(draft.key);
        }
        self.evict(row, entry, Some((draft.key, draft.header.kind)), Departure::Evicted);
        Ok(())
    }

    fn evict(&self, row: &Row, entry: IndexEntry, key: Option<(&[u8], Kind)>, why: Departure) {
        let _stripe = self.parts.shared.lock_key(row.hash);
        if !self.parts.catalog.drop_entry(row.hash, entry) {
            return;
        }
        if let Some((key, kind)) = key.filter(|_| self.parts.shared.options.mode == Mode::Store) {
            // A crash must not leave a checkpoint's entry that leads nowhere.
            self.parts.log.forget(self.parts.medium.hasher.frame(kind, key), row.generation);
        }
        self.count_departure(why);
        if let Some((key, kind)) = key
            && kind != Kind::Chunk
        {
            self.parts.shared.note_departure(key, why);
        }
    }

    /// An object leaves whose key is not wanted.
    fn evict_unseen(&self, hash: u64, entry: IndexEntry, why: Departure) {
        let _stripe = self.parts.shared.lock_key(hash);
        if self.parts.catalog.drop_entry(hash, entry) {
            self.count_departure(why);
        }
    }

    fn count_departure(&self, why: Departure) {
        let counters = &self.parts.shared.counters;
        let counter = match why {
            Departure::Evicted => &counters.evicted,
            Departure::Expired => &counters.expired,
            Departure::Damaged => &counters.damaged,
        };
        add(counter, 1);
    }
}
