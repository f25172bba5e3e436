//! What is in memory, in the order in which it leaves.
//!
//! Invariant: queues hold weak references, so of an object that was removed its entry is left, until it is come upon or
//! swept out.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{
        Arc, Weak,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use picaflor_common::{S3Fifo, Standing};

use crate::{base::frame::Frame, base::group::Priority};

pub(super) struct Queues {
    pub(super) fifo: S3Fifo<Unit>,
    pub(super) loved: VecDeque<Weak<Frame>>,
    pub(super) hated: Vec<Weak<Frame>>,
    /// For LRU, by a number that the object's own has passed or not.
    pub(super) order: BTreeMap<u64, Unit>,
    /// Clusters of hated groups.
    hated_clusters: Vec<Resident>,
}

/// Fewest entries of objects that left by themselves that are worth a sweep.
const SWEEP_MIN: u64 = 512;

/// Bytes of such an entry: the frame without what it held, and its places in queues.
pub(crate) const GONE: u64 = (size_of::<Frame>() + 2 * size_of::<usize>() + 16 + 32) as u64;

impl Queues {
    /// Of a tier that will be given about `room` bytes.
    pub(super) fn new(room: u64) -> Self {
        Self {
            fifo: S3Fifo::learning(room / 4096, 1),
            loved: VecDeque::new(),
            hated: Vec::new(),
            order: BTreeMap::new(),
            hated_clusters: Vec::new(),
        }
    }

    pub(super) fn len(&self) -> usize {
        self.fifo.queued() + self.loved.len() + self.hated.len() + self.order.len()
    }

    /// Takes a cluster in where its priority puts it.
    pub(super) fn hold(&mut self, resident: Resident, priority: Priority) {
        match priority {
            Priority::Hated if resident.group != 0 => self.hated_clusters.push(resident),
            _ => drop(self.order.insert(resident.number.load(Relaxed), Unit::Cluster(Box::new(resident)))),
        }
    }

    /// Takes out all clusters that are `sought`.
    pub(super) fn take_clusters(&mut self, sought: impl Fn(&Resident) -> bool) -> Vec<Resident> {
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
    pub(super) fn take_objects(&mut self, sought: impl Fn(&Frame) -> bool) -> Vec<Arc<Frame>> {
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
    pub(super) fn pop_hated(&mut self, sought: impl Fn(&Resident) -> bool) -> Option<Resident> {
        let hated = self.hated_clusters.iter().enumerate().filter(|(_, resident)| sought(resident));
        let last = hated.max_by_key(|(_, resident)| resident.number.load(Relaxed)).map(|(at, _)| at)?;
        Some(self.hated_clusters.swap_remove(last))
    }

    /// Drops entries whose objects were replaced or deleted: nothing else takes them out while there is room.
    pub(super) fn sweep(&mut self) {
        self.fifo.sweep(Unit::is_here);
        self.loved.retain(|weak| weak.strong_count() > 0);
        self.hated.retain(|weak| weak.strong_count() > 0);
        self.order.retain(|_, unit| unit.is_here());
    }

    /// Takes an object in where its priority puts it; `number` where memory is LRU.
    pub(super) fn enqueue(&mut self, frame: &Arc<Frame>, priority: Priority, number: Option<u64>) {
        let weak = Arc::downgrade(frame);
        match priority {
            Priority::Loved => self.loved.push_back(weak),
            Priority::Hated => self.hated.push(weak),
            Priority::Neither => match number {
                Some(number) => {
                    frame.set_number(number);
                    self.order.insert(number, Unit::Object(weak));
                }
                None => self.fifo.insert(frame.hash, Unit::Object(weak), frame.charge()),
            },
        }
    }

    /// Takes out what was not asked for for longest, of what is `sought`.
    pub(super) fn pop_least_recent(&mut self, gone: &Gone, sought: impl Fn(&Unit) -> bool) -> Option<Unit> {
        loop {
            let at = self.order.iter().find(|(_, unit)| sought(unit)).map(|(at, _)| *at)?;
            let unit = self.order.remove(&at)?;
            match unit.number() {
                Some(now) if now > at => drop(self.order.insert(now, unit)),
                Some(_) => return Some(unit),
                None => gone.forget(),
            }
        }
    }

    /// Bytes of what was asked for last before this number, as far as they are enough: what leaves before whatever was
    /// asked for then.
    pub(super) fn older_than(&mut self, gone: &Gone, number: u64, enough: u64) -> u64 {
        let mut bytes: u64 = self.hated_clusters.iter().map(|resident| resident.bytes).sum();
        let mut from = 0;
        while bytes < enough
            && from < number
            && let Some(at) = self.order.range(from..number).next().map(|(at, _)| *at)
            && let Some(unit) = self.order.remove(&at)
        {
            from = at + 1;
            match unit.number() {
                Some(now) if now > at => drop(self.order.insert(now, unit)),
                Some(_) => {
                    bytes += unit.bytes();
                    self.order.insert(at, unit);
                }
                None => gone.forget(),
            }
        }
        bytes
    }
}

/// What is queued; boxed, for main holds millions of the other kind.
pub(super) enum Unit {
    Object(Weak<Frame>),
    Cluster(Box<Resident>),
}

impl Unit {
    pub(super) fn is_here(&self) -> bool {
        match self {
            Self::Object(weak) => weak.strong_count() > 0,
            Self::Cluster(_) => true,
        }
    }

    /// When it was asked for last; `None` if it left by itself.
    pub(super) fn number(&self) -> Option<u64> {
        match self {
            Self::Object(weak) => weak.upgrade().map(|frame| frame.number()),
            Self::Cluster(resident) => Some(resident.number.load(Relaxed)),
        }
    }

    /// Memory that it takes.
    pub(super) fn bytes(&self) -> u64 {
        match self {
            Self::Object(weak) => weak.upgrade().map_or(0, |frame| frame.charge()),
            Self::Cluster(resident) => resident.bytes,
        }
    }

    pub(super) fn standing(&self) -> Standing {
        match self {
            Self::Cluster(_) => Standing::Passing,
            Self::Object(weak) => {
                weak.upgrade().map_or(Standing::Gone, |frame| Standing::Here(frame.hash, frame.uses()))
            }
        }
    }

    pub(super) fn leave_with(&self, uses: u8) {
        if let Self::Object(weak) = self {
            weak.upgrade().inspect(|frame| frame.set_uses(uses));
        }
    }

    pub(super) fn frame(&self) -> Option<Arc<Frame>> {
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

/// Objects that left by themselves, but for their entry in a queue.
pub(super) struct Gone {
    count: AtomicU64,
    /// As many of them are swept out.
    sweep_at: AtomicU64,
}

impl Gone {
    pub(super) fn new() -> Self {
        Self { count: AtomicU64::new(0), sweep_at: AtomicU64::new(SWEEP_MIN) }
    }

    pub(super) fn add(&self) {
        self.count.fetch_add(1, Relaxed);
    }

    /// The entry of one came out of its queue.
    pub(super) fn forget(&self) {
        // Not below zero: a sweep may have begun to count anew.
        let _ = self.count.fetch_update(Relaxed, Relaxed, |count| count.checked_sub(1));
    }

    pub(super) fn bytes(&self) -> u64 {
        self.count.load(Relaxed) * GONE
    }

    /// Whether they are a fifth of what was queued after the last sweep.
    pub(super) fn is_much(&self) -> bool {
        self.count.load(Relaxed) >= self.sweep_at.load(Relaxed)
    }

    /// Sweeps them out.
    pub(super) fn sweep(&self, queues: &mut Queues) {
        self.count.store(0, Relaxed);
        queues.sweep();
        self.sweep_at.store(queues.len() as u64 / 4 + SWEEP_MIN, Relaxed);
    }
}
