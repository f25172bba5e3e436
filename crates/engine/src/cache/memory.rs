//! Question 3, memory: what stays in RAM.
//!
//! S3-FIFO over single objects and whole clusters, as they were written or read in; its rules are in `s3fifo`. The
//! share of its small queue, where what a read brought beside an object waits to be asked for, is learnt. Here one use
//! in the small queue is enough for main. Clusters pass through the small queue only.
//!
//! LRU for the presets whose papers have it: objects in the order in which they were asked for. A hit notes its
//! number, and an object that is to leave is moved to where that number belongs first: so a hit takes no lock.
//! [`Retention::LruClusters`] is the same over whole clusters: an object that was asked for is a hit of its cluster,
//! and is not held by itself. [`Retention::Frames`] adds the priorities of groups to it.
//!
//! *Loved* groups have a queue of their own that is emptied last, in LRU order; *hated* ones leave first,
//! the newest of them first (MRU: Dámelo §3).
//!
//! Invariants: an object found here is current, because puts and deletes remove it after changing the
//! index and an insert asks the index under the same shard lock; queues hold weak references, so of a removed object
//! all but the [`Frame`] itself is free at once. That is counted until a sweep, when such entries are a fifth of all.

mod queues;

use std::sync::{
    Arc, Weak,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use parking_lot::{Mutex, RwLock};
use picaflor_common::{HashKeyed, Standing, Step};
use smallvec::SmallVec;

#[cfg(all(test, shuttle))]
pub(crate) use self::queues::GONE;
pub(crate) use self::queues::Resident;
use self::queues::{Gone, Queues, Unit};
use crate::{base::frame::Frame, base::group::Priority, base::policy::Retention};

pub(crate) const SHARDS: usize = 64;

pub(crate) struct Memory {
    pub(crate) retention: Retention,
    shards: Box<[RwLock<HashKeyed<Arc<Frame>>>]>,
    queues: Mutex<Queues>,
    /// Bytes of all frames in `shards`.
    bytes: AtomicU64,
    /// Most that `bytes` were since memory was last given back to the system.
    most: AtomicU64,
    gone: Gone,
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

impl Memory {
    /// A tier that will be given about `room` bytes.
    pub(crate) fn new(retention: Retention, room: u64) -> Self {
        let queues = Queues::new(room);
        Self {
            retention,
            shards: (0..SHARDS).map(|_| RwLock::default()).collect(),
            bytes: AtomicU64::new(queues.fifo.ghost_bytes()),
            most: AtomicU64::new(0),
            gone: Gone::new(),
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

    /// All objects in one of the [`SHARDS`].
    pub(crate) fn frames(&self, shard: usize) -> Vec<Arc<Frame>> {
        self.shards[shard].read().values().cloned().collect()
    }

    /// The object with this hash, if it is here, without noting a hit.
    pub(crate) fn peek(&self, hash: u64) -> Option<Arc<Frame>> {
        self.shard(hash).read().get(&hash).cloned()
    }

    /// Uses of an object with this hash that are not yet forgotten; none if it is not here.
    pub(crate) fn uses(&self, hash: u64) -> u8 {
        self.shard(hash).read().get(&hash).map_or(0, |frame| frame.uses())
    }

    /// Takes an object in if `current` still says so once no other thread can change its entry.
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
        queues.enqueue(frame, priority, self.number_of_new());
    }

    /// What is queued next has it, for LRU.
    fn number_of_new(&self) -> Option<u64> {
        self.retention.is_lru().then(|| self.next_number())
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
        objects.iter().for_each(|frame| queues.enqueue(frame, priority, self.number_of_new()));
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
        self.gone.add();
        self.bytes.fetch_sub(old.charge(), Relaxed);
    }

    /// Sweeps the queues if a fifth of what is in them left by itself, and they are not in use.
    fn sweep(&self) {
        if self.gone.is_much()
            && let Some(mut queues) = self.queues.try_lock()
        {
            self.gone.sweep(&mut queues);
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
        self.unit_left(queues.pop_least_recent(&self.gone, is_its)?, &mut left);
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

    /// Bytes of what was asked for last before this number, as far as they are enough: what leaves before whatever was
    /// asked for then.
    pub(crate) fn older_than(&self, number: u64, enough: u64) -> u64 {
        self.queues.lock().older_than(&self.gone, number, enough)
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
                None => self.gone.forget(),
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
        if let Some(unit) = queues.pop_least_recent(&self.gone, |_| true) {
            self.unit_left(unit, left);
            return true;
        }
        let standing = |unit: &Unit| {
            let standing = unit.standing();
            if standing == Standing::Gone {
                self.gone.forget();
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
            self.gone.forget();
        }
        true
    }

    /// All objects of these, hottest queue first: what the hot log keeps.
    pub(crate) fn hottest(&self, most: usize, these: impl Fn(&Frame) -> bool) -> Vec<Arc<Frame>> {
        let queues = self.queues.lock();
        let recent = queues.order.values().rev().filter_map(Unit::frame);
        let all = queues.loved.iter().filter_map(Weak::upgrade);
        let all = all.chain(queues.fifo.main().filter_map(Unit::frame)).chain(recent);
        let small = queues.fifo.small().filter_map(Unit::frame).filter(|frame| frame.uses() > 0);
        all.chain(small).filter(|frame| these(frame)).take(most).collect()
    }

    /// All clusters, the one used last first.
    pub(crate) fn recent_clusters(&self) -> Vec<Resident> {
        if !self.retention.holds_clusters() {
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
        self.bytes.load(Relaxed) + self.cluster_bytes.load(Relaxed) + self.gone.bytes()
    }
}
