//! Question 3, memory: what stays in RAM.
//!
//! S3-FIFO over single objects and whole clusters, as they were written or read in; its rules are in `s3fifo`. Here one
//! use in the small queue is enough for main. Clusters pass through the small queue only.
//!
//! LRU for the presets whose papers have it: objects in the order in which they were asked for. A hit notes its
//! number, and who is to leave is moved to where that number belongs before anybody leaves: so a hit takes no lock.
//! [`Retention::LruClusters`] is the same over whole clusters: an object that was asked for is a hit of its cluster,
//! and is not held by itself. [`Retention::Frames`] adds the priorities of groups to it.
//!
//! *Loved* groups have a queue of their own that is emptied last, in LRU order; *hated* ones leave first,
//! the newest of them first (MRU: Dámelo §3).
//!
//! Invariants: an object found here is current, because puts and deletes remove it after changing the
//! index and an insert asks the index under the same shard lock; queues hold weak references, so of a removed object
//! all but the [`Frame`] itself is free at once. That is counted until a sweep, when such entries are a fifth of all.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use parking_lot::{Mutex, RwLock};
use picaflor_common::{HashKeyed, S3Fifo, Standing, Step};
use smallvec::SmallVec;

use crate::{base::frame::Frame, base::group::Priority, base::policy::Retention};

pub(crate) const SHARDS: usize = 64;

pub(crate) struct Memory {
    retention: Retention,
    shards: Box<[RwLock<HashKeyed<Arc<Frame>>>]>,
    queues: Mutex<Queues>,
    /// Bytes of all frames in `shards`.
    bytes: AtomicU64,
    /// Most that `bytes` were since memory was last given back to the system.
    most: AtomicU64,
    /// Objects that left by themselves, but for their entry in a queue.
    gone: AtomicU64,
    /// As many of them are swept out.
    sweep_at: AtomicU64,
    /// Bytes of all clusters in the small queue.
    cluster_bytes: AtomicU64,
    /// Numbers hits and insertions, for LRU.
    tick: AtomicU64,
}

/// What was evicted. Objects are let go of with nothing locked: to give back their memory may be a call of the system,
/// and every get that reads from the device comes by here.
#[derive(Default)]
struct Left {
    clusters: Vec<Resident>,
    objects: SmallVec<[Arc<Frame>; 4]>,
}

struct Queues {
    fifo: S3Fifo<Unit>,
    loved: VecDeque<Weak<Frame>>,
    hated: Vec<Weak<Frame>>,
    /// For LRU, by a number that the object's own has passed or not.
    order: BTreeMap<u64, Unit>,
    /// Clusters of hated groups.
    hated_clusters: Vec<Resident>,
}

/// Fewest entries of objects that left by themselves that are worth a sweep.
const SWEEP_MIN: u64 = 512;

/// Bytes of such an entry: the frame without what it held, and its places in queues.
pub(crate) const GONE: u64 = (size_of::<Frame>() + 2 * size_of::<usize>() + 16 + 32) as u64;

impl Queues {
    fn len(&self) -> usize {
        self.fifo.queued() + self.loved.len() + self.hated.len() + self.order.len()
    }

    /// Takes a cluster in where its priority puts it.
    fn hold(&mut self, resident: Resident, priority: Priority) {
        match priority {
            Priority::Hated if resident.group != 0 => self.hated_clusters.push(resident),
            _ => drop(self.order.insert(resident.number.load(Relaxed), Unit::Cluster(Box::new(resident)))),
        }
    }

    /// Takes out all clusters that are `sought`.
    fn take_clusters(&mut self, sought: impl Fn(&Resident) -> bool) -> Vec<Resident> {
        let mut taken: Vec<Resident> = self.hated_clusters.extract_if(.., |resident| sought(resident)).collect();
        self.order.retain(|_, unit| match unit {
            Unit::Cluster(resident) if sought(resident) => {
                taken.push(Resident::clone(resident));
                false
            }
            _ => true,
        });
        taken
    }

    /// Takes out all objects that are `sought`, of each queue those first that would leave first.
    fn take_objects(&mut self, sought: impl Fn(&Frame) -> bool) -> Vec<Arc<Frame>> {
        let mut taken = Vec::new();
        let mut stays = |weak: &Weak<Frame>| match weak.upgrade() {
            Some(frame) if sought(&frame) => {
                taken.push(frame);
                false
            }
            frame => frame.is_some(),
        };
        self.hated.retain(&mut stays);
        let mut unit_stays = |unit: &Unit| match unit {
            Unit::Object(weak) => stays(weak),
            Unit::Cluster(_) => true,
        };
        self.fifo.sweep(&mut unit_stays);
        self.order.retain(|_, unit| unit_stays(unit));
        self.loved.retain(stays);
        taken
    }

    /// Takes out the cluster of a hated group that was used last.
    fn pop_hated(&mut self, sought: impl Fn(&Resident) -> bool) -> Option<Resident> {
        let hated = self.hated_clusters.iter().enumerate().filter(|(_, resident)| sought(resident));
        let last = hated.max_by_key(|(_, resident)| resident.number.load(Relaxed)).map(|(at, _)| at)?;
        Some(self.hated_clusters.swap_remove(last))
    }

    /// Drops entries whose objects were replaced or deleted: nothing else takes them out while there is room.
    fn sweep(&mut self) {
        self.fifo.sweep(Unit::is_here);
        self.loved.retain(|weak| weak.strong_count() > 0);
        self.hated.retain(|weak| weak.strong_count() > 0);
        self.order.retain(|_, unit| unit.is_here());
    }
}

/// What is queued; boxed, for main holds millions of the other kind.
enum Unit {
    Object(Weak<Frame>),
    Cluster(Box<Resident>),
}

impl Unit {
    fn is_here(&self) -> bool {
        match self {
            Self::Object(weak) => weak.strong_count() > 0,
            Self::Cluster(_) => true,
        }
    }

    /// When it was asked for last; `None` if it left by itself.
    fn number(&self) -> Option<u64> {
        match self {
            Self::Object(weak) => weak.upgrade().map(|frame| frame.number()),
            Self::Cluster(resident) => Some(resident.number.load(Relaxed)),
        }
    }

    /// Memory that it takes.
    fn bytes(&self) -> u64 {
        match self {
            Self::Object(weak) => weak.upgrade().map_or(0, |frame| frame.charge()),
            Self::Cluster(resident) => resident.bytes,
        }
    }

    fn standing(&self) -> Standing {
        match self {
            Self::Cluster(_) => Standing::Passing,
            Self::Object(weak) => {
                weak.upgrade().map_or(Standing::Gone, |frame| Standing::Here(frame.hash, frame.uses()))
            }
        }
    }

    fn leave_with(&self, uses: u8) {
        if let Self::Object(weak) = self {
            weak.upgrade().inspect(|frame| frame.set_uses(uses));
        }
    }

    fn frame(&self) -> Option<Arc<Frame>> {
        match self {
            Self::Object(weak) => weak.upgrade(),
            Self::Cluster(_) => None,
        }
    }
}

/// A whole cluster in memory, by its buffer.
#[derive(Debug, Clone)]
pub(crate) struct Resident {
    pub(crate) volume: usize,
    pub(crate) slot: u32,
    pub(crate) bytes: u64,
    /// The group whose objects it holds; 0 where clusters are of no group alone.
    pub(crate) group: u32,
    /// When something of it was asked for last, for LRU; the buffer's own. 0: not yet.
    pub(crate) number: Arc<AtomicU64>,
}

impl Memory {
    /// A tier that will be given about `room` bytes.
    pub(crate) fn new(retention: Retention, room: u64) -> Self {
        let queues = Queues {
            fifo: S3Fifo::new(room / 4096, 1),
            loved: VecDeque::new(),
            hated: Vec::new(),
            order: BTreeMap::new(),
            hated_clusters: Vec::new(),
        };
        Self {
            retention,
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            bytes: AtomicU64::new(queues.fifo.ghost_bytes()),
            most: AtomicU64::new(0),
            gone: AtomicU64::new(0),
            sweep_at: AtomicU64::new(SWEEP_MIN),
            cluster_bytes: AtomicU64::new(0),
            tick: AtomicU64::new(0),
            queues: Mutex::new(queues),
        }
    }

    fn shard(&self, hash: u64) -> &RwLock<HashKeyed<Arc<Frame>>> {
        // The map inside uses the low bits; the index uses the high ones; these are neither.
        &self.shards[(hash >> 40) as usize % SHARDS]
    }

    /// The object with this key, if it is here. Notes the hit.
    pub(crate) fn get(&self, hash: u64, key: &[u8]) -> Option<Arc<Frame>> {
        let shard = self.shard(hash).read();
        let frame = shard.get(&hash).filter(|frame| frame.key() == key)?;
        frame.touch();
        if self.retention == Retention::Lru {
            frame.set_number(self.next_number());
        }
        Some(Arc::clone(frame))
    }

    /// The number of a hit or an insertion, for LRU: the larger, the later. From 1.
    pub(crate) fn next_number(&self) -> u64 {
        self.tick.fetch_add(1, Relaxed) + 1
    }

    /// Whether clusters are what is held, and objects in them only.
    pub(crate) fn holds_clusters(&self) -> bool {
        self.retention.holds_clusters()
    }

    /// Whether objects of loved groups are held though their cluster is not.
    pub(crate) fn holds_loved(&self) -> bool {
        self.retention != Retention::Frames
    }

    /// All objects in one of the [`SHARDS`].
    pub(crate) fn frames(&self, shard: usize) -> Vec<Arc<Frame>> {
        self.shards[shard].read().values().cloned().collect()
    }

    /// The object with this hash, if it is here, without noting a hit.
    pub(crate) fn peek(&self, hash: u64) -> Option<Arc<Frame>> {
        self.shard(hash).read().get(&hash).cloned()
    }

    /// Whether an object with this hash is here and was used.
    pub(crate) fn is_hot(&self, hash: u64) -> bool {
        self.shard(hash).read().get(&hash).is_some_and(|frame| frame.uses() > 0)
    }

    /// Takes an object in if `current` still says so once nobody else can change its entry.
    pub(crate) fn insert(&self, frame: &Arc<Frame>, priority: Priority, current: impl FnOnce() -> bool) {
        {
            let mut shard = self.shard(frame.hash).write();
            if !current() {
                return;
            }
            if let Some(old) = shard.insert(frame.hash, Arc::clone(frame)) {
                self.gone_by_itself(&old);
            }
            let bytes = self.bytes.fetch_add(frame.charge(), Relaxed) + frame.charge();
            self.most.fetch_max(bytes, Relaxed);
        }
        self.sweep();
        let mut queues = self.queues.lock();
        self.enqueue(&mut queues, frame, priority);
    }

    fn enqueue(&self, queues: &mut Queues, frame: &Arc<Frame>, priority: Priority) {
        let weak = Arc::downgrade(frame);
        match priority {
            Priority::Loved => queues.loved.push_back(weak),
            Priority::Hated => queues.hated.push(weak),
            Priority::Neither if self.retention.is_lru() => {
                let number = self.next_number();
                frame.set_number(number);
                queues.order.insert(number, Unit::Object(weak));
            }
            Priority::Neither => queues.fifo.insert(frame.hash, Unit::Object(weak), frame.charge()),
        }
    }

    /// Takes a cluster in; its bytes stay in its buffer. `priority` is that of its group.
    pub(crate) fn retain(&self, resident: Resident, priority: Priority) {
        let bytes = resident.bytes;
        self.cluster_bytes.fetch_add(bytes, Relaxed);
        let mut queues = self.queues.lock();
        if self.retention.is_lru() {
            // One that comes with a number keeps it: what is in it was asked for then. None is given out twice.
            if resident.number.load(Relaxed) == 0 {
                resident.number.store(self.next_number(), Relaxed);
            }
            queues.hold(resident, priority);
        } else {
            queues.fifo.insert_small(Unit::Cluster(Box::new(resident)), bytes);
        }
    }

    /// A group has another priority: its clusters and objects change places. Goes over all that is held.
    pub(crate) fn set_priority(&self, group: u32, priority: Priority) {
        let mut queues = self.queues.lock();
        let objects = queues.take_objects(|frame| frame.header.group == group);
        objects.iter().for_each(|frame| self.enqueue(&mut queues, frame, priority));
        let moved = queues.take_clusters(|resident| resident.group == group);
        moved.into_iter().for_each(|resident| queues.hold(resident, priority));
    }

    /// Forgets an object that was replaced, deleted or found damaged. Returns what was here of it.
    pub(crate) fn remove(&self, hash: u64) -> Option<Arc<Frame>> {
        let old = self.shard(hash).write().remove(&hash)?;
        self.gone_by_itself(&old);
        self.sweep();
        Some(old)
    }

    /// The same of a version that was replaced: to be put anew is to be asked for, so the next one that a get brings in
    /// is as one that had left and comes back.
    pub(crate) fn replaced(&self, hash: u64) {
        if self.remove(hash).is_some() && !self.retention.is_lru() {
            self.queues.lock().fifo.remember(hash);
        }
    }

    fn gone_by_itself(&self, old: &Frame) {
        self.gone.fetch_add(1, Relaxed);
        self.bytes.fetch_sub(old.charge(), Relaxed);
    }

    /// The entry of one that had gone came out of its queue.
    fn forget_gone(&self) {
        // Not below zero: a sweep may have begun to count anew.
        let _ = self.gone.fetch_update(Relaxed, Relaxed, |gone| gone.checked_sub(1));
    }

    /// Sweeps the queues if a fifth of what is in them left by itself, and they are not in use.
    fn sweep(&self) {
        if self.gone.load(Relaxed) < self.sweep_at.load(Relaxed) {
            return;
        }
        if let Some(mut queues) = self.queues.try_lock() {
            self.gone.store(0, Relaxed);
            queues.sweep();
            self.sweep_at.store(queues.len() as u64 / 4 + SWEEP_MIN, Relaxed);
        }
    }

    /// Whether objects of so many bytes left since there were most of them, and since this last said so. Then what maps
    /// and queues have for them goes too.
    pub(crate) fn has_lost(&self, bytes: u64) -> bool {
        let (now, most) = (self.bytes.load(Relaxed), self.most.load(Relaxed));
        let much = most.saturating_sub(now) >= bytes;
        if !much || self.most.compare_exchange(most, now, Relaxed, Relaxed).is_err() {
            return false;
        }
        for shard in &self.shards {
            let mut shard = shard.write();
            let len = shard.len();
            shard.shrink_to(len + len / 4);
        }
        self.queues.lock().fifo.shrink();
        true
    }

    fn remove_this(&self, frame: &Arc<Frame>) {
        let mut shard = self.shard(frame.hash).write();
        if shard.get(&frame.hash).is_some_and(|held| Arc::ptr_eq(held, frame)) {
            shard.remove(&frame.hash);
            self.bytes.fetch_sub(frame.charge(), Relaxed);
        }
    }

    /// Evicts until no more than `budget` bytes are held. Returns the clusters that left; the caller
    /// tells the index.
    pub(crate) fn shrink(&self, budget: u64) -> Vec<Resident> {
        let mut left = Left::default();
        if self.held() > budget {
            let mut queues = self.queues.lock();
            while self.held() > budget && self.evict_one(&mut queues, budget, &mut left) {}
        }
        left.clusters
    }

    /// Takes clusters of this volume out, those that would leave first, until no more than `budget` bytes are held.
    pub(crate) fn release_clusters(&self, volume: usize, budget: u64) -> Vec<Resident> {
        let mut left = Vec::new();
        self.queues.lock().fifo.retain_small(|unit| match unit {
            Unit::Cluster(resident) if resident.volume == volume && self.held() > budget => {
                self.cluster_left(resident, &mut left);
                false
            }
            _ => true,
        });
        left
    }

    /// Takes out the cluster of this volume that would leave first.
    pub(crate) fn release_least_recent(&self, volume: usize) -> Option<Resident> {
        let mut queues = self.queues.lock();
        if let Some(resident) = queues.pop_hated(|resident| resident.volume == volume) {
            self.cluster_bytes.fetch_sub(resident.bytes, Relaxed);
            return Some(resident);
        }
        let is_its = |unit: &Unit| matches!(unit, Unit::Cluster(resident) if resident.volume == volume);
        let mut left = Left::default();
        self.unit_left(self.pop_least_recent(&mut queues, is_its)?, &mut left);
        drop(queues);
        left.clusters.pop()
    }

    /// Takes out all clusters, and pages of clusters, that are `sought`, where clusters are what is held.
    pub(crate) fn release_these(&self, sought: impl Fn(&Resident) -> bool) -> Vec<Resident> {
        let left = self.queues.lock().take_clusters(sought);
        let bytes = left.iter().map(|resident| resident.bytes).sum();
        self.cluster_bytes.fetch_sub(bytes, Relaxed);
        left
    }

    /// Takes out what was not asked for for longest, of what is `sought`.
    fn pop_least_recent(&self, queues: &mut Queues, sought: impl Fn(&Unit) -> bool) -> Option<Unit> {
        loop {
            let at = queues.order.iter().find(|(_, unit)| sought(unit)).map(|(at, _)| *at)?;
            let unit = queues.order.remove(&at)?;
            match unit.number() {
                Some(now) if now > at => drop(queues.order.insert(now, unit)),
                Some(_) => return Some(unit),
                None => self.forget_gone(),
            }
        }
    }

    /// Bytes of what was asked for last before this number, as far as they are enough: what leaves before whatever was
    /// asked for then.
    pub(crate) fn older_than(&self, number: u64, enough: u64) -> u64 {
        let mut queues = self.queues.lock();
        let mut bytes: u64 = queues.hated_clusters.iter().map(|resident| resident.bytes).sum();
        let mut from = 0;
        while bytes < enough
            && from < number
            && let Some(at) = queues.order.range(from..number).next().map(|(at, _)| *at)
            && let Some(unit) = queues.order.remove(&at)
        {
            from = at + 1;
            match unit.number() {
                Some(now) if now > at => drop(queues.order.insert(now, unit)),
                Some(_) => {
                    bytes += unit.bytes();
                    queues.order.insert(at, unit);
                }
                None => self.forget_gone(),
            }
        }
        bytes
    }

    fn cluster_left(&self, resident: &Resident, left: &mut Vec<Resident>) {
        self.cluster_bytes.fetch_sub(resident.bytes, Relaxed);
        left.push(resident.clone());
    }

    fn unit_left(&self, unit: Unit, left: &mut Left) {
        match unit {
            Unit::Cluster(resident) => self.cluster_left(&resident, &mut left.clusters),
            Unit::Object(weak) => match weak.upgrade() {
                Some(frame) => {
                    self.remove_this(&frame);
                    left.objects.push(frame);
                }
                None => self.forget_gone(),
            },
        }
    }

    /// One step of eviction; false if nothing is left to evict.
    fn evict_one(&self, queues: &mut Queues, budget: u64, left: &mut Left) -> bool {
        if let Some(weak) = queues.hated.pop() {
            self.unit_left(Unit::Object(weak), left);
            return true;
        }
        if let Some(resident) = queues.pop_hated(|_| true) {
            self.cluster_left(&resident, &mut left.clusters);
            return true;
        }
        if let Some(unit) = self.pop_least_recent(queues, |_| true) {
            self.unit_left(unit, left);
            return true;
        }
        let standing = |unit: &Unit| {
            let standing = unit.standing();
            if standing == Standing::Gone {
                self.forget_gone();
            }
            standing
        };
        match queues.fifo.step(budget, standing, Unit::leave_with) {
            Step::Leaves(unit) => self.unit_left(unit, left),
            Step::Moved => {}
            Step::Empty => return self.evict_loved(queues, left),
        }
        true
    }

    /// The oldest of the loved leaves, unless it was asked for; false if there is none.
    fn evict_loved(&self, queues: &mut Queues, left: &mut Left) -> bool {
        let Some(weak) = queues.loved.pop_front() else { return false };
        if let Some(frame) = weak.upgrade() {
            match frame.uses() {
                0 => {
                    self.remove_this(&frame);
                    left.objects.push(frame);
                }
                uses => {
                    frame.set_uses(uses - 1);
                    queues.loved.push_back(weak);
                }
            }
        } else {
            self.forget_gone();
        }
        true
    }

    /// All objects, hottest queue first: what the hot log keeps.
    pub(crate) fn hottest(&self, most: usize) -> Vec<Arc<Frame>> {
        let queues = self.queues.lock();
        let recent = queues.order.values().rev().filter_map(Unit::frame);
        let all = queues.loved.iter().filter_map(Weak::upgrade);
        let all = all.chain(queues.fifo.main().filter_map(Unit::frame)).chain(recent);
        let small = queues.fifo.small().filter_map(Unit::frame).filter(|frame| frame.uses() > 0);
        all.chain(small).take(most).collect()
    }

    /// All clusters, the one used last first.
    pub(crate) fn recent_clusters(&self) -> Vec<Resident> {
        if !self.holds_clusters() {
            return Vec::new();
        }
        let queues = self.queues.lock();
        let clusters = queues.order.values().filter_map(|unit| match unit {
            Unit::Cluster(resident) => Some(Resident::clone(resident)),
            Unit::Object(_) => None,
        });
        let mut clusters: Vec<_> = clusters.collect();
        clusters.sort_by_cached_key(|resident| std::cmp::Reverse(resident.number.load(Relaxed)));
        clusters
    }

    /// Number of objects held one by one.
    pub(crate) fn len(&self) -> usize {
        self.shards.iter().map(|shard| shard.read().len()).sum()
    }

    /// Bytes held, resident clusters and ghosts included.
    pub(crate) fn held(&self) -> u64 {
        self.bytes.load(Relaxed) + self.cluster_bytes.load(Relaxed) + self.gone.load(Relaxed) * GONE
    }
}
