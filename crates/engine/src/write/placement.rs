//! Question 1, placement: which neighbours an object gets.
//!
//! Open buffers are *lanes*, one per class: a group, or else an origin server, or else everything else. A class
//! that is new takes over the lane that was used least recently, in the middle of its buffer, so that many classes
//! never mean half-empty clusters. Where all lanes are in use, it shares the one that its name leads to, always the
//! same: a lane taken over by each class in turn would hold a little of everything. A neighbour wins over the
//! class, by the open buffer it lies in or else by its class. An object with neither group nor server has the
//! *affinity* of its neighbour, as long as puts do name neighbours, and one affinity is a class as one server is. In
//! a cache such objects wait for each other in memory meanwhile, and are put one behind the other (`packing.rs`).
//! Hints that come too late for that are kept until a partner's cluster is sealed, and then a copy is laid beside it
//! if there is room.
//!
//! Invariants: at most `lanes` open buffers; hints and copies take a fixed share of the memory, the oldest are
//! forgotten first.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use picaflor_common::HashKeyed;
use picaflor_format::frame::Kind;

use crate::{
    base::policy::Placement,
    base::stats::{Counters, add},
    space::{Queue, Site},
};

/// What objects of one lane have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Class {
    Group(u32),
    Server(u32),
    Rest,
    /// Chunks of large objects.
    Large,
    /// Objects that are not to stay in memory.
    Bypass,
}

impl Class {
    /// The class as a cluster's header keeps it; a hint for the reader.
    pub(crate) fn short(self) -> u16 {
        let mixed = match self {
            Self::Group(group) => group.wrapping_mul(0x9e37_79b1) ^ 0x5555,
            Self::Server(server) => server.wrapping_mul(0x85eb_ca6b),
            Self::Rest => 0,
            Self::Large => 0x1a49_e000,
            Self::Bypass => 0x0b1b_a55e,
        };
        (mixed >> 16) as u16 ^ mixed as u16
    }
}

impl Class {
    /// Where a cluster of this class is wanted.
    pub(crate) fn site(self) -> Site {
        match self {
            Self::Group(group) => Site::Group(group),
            Self::Large => Site::Outer,
            Self::Server(_) | Self::Rest | Self::Bypass => Site::Rest,
        }
    }
}

/// Most hints, and most copies, that are remembered however large the memory is.
pub(crate) const PAIRS_MAX: usize = 1 << 14;
/// Memory that a hint or a copy takes at most: a place in the map and in the order, and 32 numbers.
pub(crate) const PAIR_BYTES: u64 = 352;

/// See [`Placer::lanes_in_use`].
const FEW: usize = 16;
/// Part of the lanes that main has, if it has the use of them.
const MAIN: usize = 4;
/// A lane that was not used for so many puts of each lane is idle.
const IDLE: u64 = 32;
/// Share of the puts, in 1/1024, that name a neighbour, from which on an affinity is kept together and its objects
/// wait for each other; and the weight of one more.
const HINTED: u32 = 256;
const HINTED_EWMA: u32 = 6;

pub(crate) struct Placer {
    placement: Placement,
    /// Share of the last puts that named a neighbour, in 1/1024.
    hinted: AtomicU32,
    pairs: usize,
    lanes: Mutex<Vec<LaneUse>>,
    most: usize,
    in_use: AtomicU32,
    counters: Arc<Counters>,
    hints: Mutex<Pairs>,
    /// By what the index knows of a hash. Where an entry goes to another key of its place, the copies that were known
    /// of its object go with it: an entry that leads to a copy must be the object's.
    copies: Mutex<Pairs>,
    told_apart_by: u64,
}

struct LaneUse {
    class: Option<(Class, Queue)>,
    used: u64,
}

impl LaneUse {
    fn is_of(&self, queue: Queue) -> bool {
        self.class.is_some_and(|(_, of)| of == queue)
    }
}

impl Placer {
    /// Remembers at most `pairs` hints and as many copies. `told_apart_by`: see [`crate::index::Index`].
    pub(crate) fn new(
        placement: Placement,
        lanes: usize,
        pairs: usize,
        told_apart_by: u64,
        counters: Arc<Counters>,
    ) -> Self {
        Self {
            placement,
            hinted: AtomicU32::new(0),
            pairs,
            lanes: Mutex::new((0..lanes).map(|_| LaneUse { class: None, used: 0 }).collect()),
            most: lanes,
            in_use: AtomicU32::new(0),
            counters,
            hints: Mutex::default(),
            copies: Mutex::default(),
            told_apart_by,
        }
    }

    /// The class of an object, or of a chunk of one.
    pub(crate) fn class(&self, kind: Kind, group: u32, server: u32) -> Class {
        match self.placement {
            // They fill clusters of their own, which may lie where the device is fastest.
            Placement::Groups if kind == Kind::Chunk => Class::Large,
            Placement::Together | Placement::Groups if group != 0 => Class::Group(group),
            Placement::Together | Placement::PerServer if server != 0 => Class::Server(server),
            _ => Class::Rest,
        }
    }

    /// Whether a cluster holds objects of one class only, whatever hints say.
    pub(crate) fn keeps_apart(&self) -> bool {
        self.placement == Placement::Groups
    }

    /// Learns whether neighbours are named: by a put, or by a call that asks for two to lie side by side.
    pub(crate) fn note_named(&self, names_neighbour: bool) {
        let old = self.hinted.load(Relaxed);
        // Rounded up, or it would never come to rest at nothing.
        let now = old - old.div_ceil(1 << HINTED_EWMA) + if names_neighbour { 1024 >> HINTED_EWMA } else { 0 };
        self.hinted.store(now, Relaxed);
    }

    /// What stands for the server of an object that names none: its neighbour, or itself, for others may name it.
    /// 0 if neighbours are not named.
    pub(crate) fn affinity_of(&self, hash: u64, beside: Option<u64>) -> u32 {
        let hinted = self.placement == Placement::Together && self.gathers();
        if hinted { ((beside.unwrap_or(hash) >> 16) as u32).max(1) } else { 0 }
    }

    /// Whether it is worth waiting for what is to lie beside an object.
    pub(crate) fn gathers(&self) -> bool {
        match self.placement {
            Placement::Packing => true,
            Placement::Together => self.hinted.load(Relaxed) > HINTED,
            _ => false,
        }
    }

    /// The lane of a class in a queue. `tick` orders uses.
    pub(crate) fn lane(&self, class: Class, queue: Queue, tick: u64) -> usize {
        let mut lanes = self.lanes.lock();
        let own = Some((class, queue));
        let found = lanes.iter().position(|lane| lane.class == own);
        let Some(lane) = found.or_else(|| self.lane_to_take(&lanes, queue, tick)) else {
            let shared: Vec<_> = (0..lanes.len()).filter(|at| lanes[*at].is_of(queue)).collect();
            return shared[usize::from(class.short()) % shared.len()];
        };
        let before = std::mem::replace(&mut lanes[lane], LaneUse { class: own, used: tick });
        match before.class {
            None => drop(self.in_use.fetch_add(1, Relaxed)),
            other if other != own => add(&self.counters.lanes_taken_over, 1),
            _ => {}
        }
        lane
    }

    /// The lane that a new class takes over: the one that was used least recently, if it is idle; or one of the other
    /// queue, as long as this one has less than its part. None if it shares one.
    fn lane_to_take(&self, lanes: &[LaneUse], queue: Queue, tick: u64) -> Option<usize> {
        let oldest_of = |is_good: &dyn Fn(&LaneUse) -> bool| {
            let good = lanes.iter().enumerate().filter(|(_, lane)| is_good(lane));
            good.min_by_key(|(_, lane)| lane.used).map(|(at, _)| at)
        };
        let oldest = oldest_of(&|_| true)?;
        let LaneUse { class, used } = lanes[oldest];
        if self.placement != Placement::Together || class.is_none() || used + IDLE * lanes.len() as u64 <= tick {
            return Some(oldest);
        }
        let main = (lanes.len() / MAIN).max(1);
        let part = if queue == Queue::Main { main } else { (lanes.len() - main).max(1) };
        let own = lanes.iter().filter(|lane| lane.is_of(queue)).count();
        if own < part { oldest_of(&|lane| !lane.is_of(queue)) } else { None }
    }

    /// Lanes that ever had a class, and at least those for which there is always room: the others leave theirs to what
    /// is read.
    pub(crate) fn lanes_in_use(&self) -> usize {
        (self.in_use.load(Relaxed) as usize).max(self.most.min(FEW))
    }

    /// The lane that objects of this class go to, by the class as clusters keep it, if they go to any; nothing is
    /// known of those without a class.
    pub(crate) fn lane_of_class(&self, short: u16, queue: Queue) -> Option<usize> {
        if short == Class::Rest.short() || self.placement != Placement::Together {
            return None;
        }
        let lanes = self.lanes.lock();
        let is_own = |(class, of): (Class, Queue)| class.short() == short && of == queue;
        lanes.iter().position(|lane| lane.class.is_some_and(is_own))
    }

    /// Whether a lane is of this queue.
    pub(crate) fn is_of(&self, lane: usize, queue: Queue) -> bool {
        self.lanes.lock().get(lane).is_some_and(|lane| lane.is_of(queue))
    }

    /// Remembers that `b` is wanted beside `a`, if anything is ever moved beside another; and `a` beside `b`, but where
    /// the one takes the other along.
    pub(crate) fn hint(&self, a: u64, b: u64) {
        if a != b && matches!(self.placement, Placement::Together | Placement::Packing) {
            let mut hints = self.hints.lock();
            hints.add(a, b, self.pairs);
            if self.placement == Placement::Together {
                hints.add(b, a, self.pairs);
            }
        }
    }

    /// Whether hints are kept only until their object is packed.
    pub(crate) fn packs(&self) -> bool {
        self.placement == Placement::Packing
    }

    /// The object was packed, or is gone: where it is packed, it takes none along any more.
    pub(crate) fn drop_hints(&self, hash: u64) {
        if self.packs() {
            self.hints.lock().of.remove(&hash);
        }
    }

    /// The object that it is wanted beside.
    pub(crate) fn partners(&self, hash: u64) -> Vec<u64> {
        self.hints.lock().of.get(&hash).cloned().unwrap_or_default()
    }

    /// Remembers that a copy of this object lies at this grain.
    pub(crate) fn add_copy(&self, hash: u64, grain: u64) {
        self.copies.lock().add(hash & self.told_apart_by, grain, self.pairs);
    }

    /// Whether the copy at this grain is of the object's present version.
    pub(crate) fn has_copy(&self, hash: u64, grain: u64) -> bool {
        self.copies.lock().of.get(&(hash & self.told_apart_by)).is_some_and(|grains| grains.contains(&grain))
    }

    /// The object, or another of its place, was replaced or deleted: its copies are of an older version, or of none.
    pub(crate) fn drop_copies(&self, hash: u64) {
        let mut copies = self.copies.lock();
        if !copies.of.is_empty() {
            copies.of.remove(&(hash & self.told_apart_by));
        }
    }
}

/// A bounded map from a hash to a few numbers.
#[derive(Default)]
struct Pairs {
    of: HashKeyed<Vec<u64>>,
    order: VecDeque<u64>,
}

impl Pairs {
    fn add(&mut self, hash: u64, value: u64, most: usize) {
        let values = self.of.entry(hash).or_default();
        if values.contains(&value) {
            return;
        }
        if values.is_empty() {
            self.order.push_back(hash);
        }
        // A page has a few tens of images at most; what is wanted beside everything is beside nothing.
        if values.len() < 32 {
            values.push(value);
        }
        while self.order.len() > most {
            if let Some(oldest) = self.order.pop_front() {
                self.of.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_keeps_its_lane_and_an_idle_lane_is_taken_over() {
        let placer = Placer::new(Placement::Together, 2, 100, !0, Arc::default());
        let a = placer.lane(Class::Server(1), Queue::Small, 1);
        let b = placer.lane(Class::Group(1), Queue::Small, 2);
        assert_ne!(a, b);
        assert_eq!(placer.lane(Class::Server(1), Queue::Small, 3), a);
        // Both are in use: a third class shares one, always the same, and takes it from neither.
        let shared = placer.lane(Class::Server(9), Queue::Small, 4);
        assert_eq!(placer.lane(Class::Server(9), Queue::Small, 5), shared);
        assert_eq!(
            (placer.lane(Class::Server(1), Queue::Small, 6), placer.lane(Class::Group(1), Queue::Small, 7)),
            (a, b)
        );
        assert_eq!(placer.lane(Class::Server(1), Queue::Small, 500), a);
        assert_eq!(placer.lane(Class::Server(9), Queue::Small, 501), b, "it was not used for long");
        assert_eq!(placer.lane_of_class(Class::Server(9).short(), Queue::Small), Some(b));
        assert_eq!(placer.lane_of_class(Class::Group(1).short(), Queue::Small), None);
        // Elsewhere a new class takes over the lane that was used least recently.
        let placer = Placer::new(Placement::PerServer, 2, 100, !0, Arc::default());
        let lanes: Vec<_> =
            [1, 2, 1, 3, 2].map(|server| placer.lane(Class::Server(server), Queue::Small, server.into())).into();
        assert_eq!(lanes, [0, 1, 0, 0, 1]);
        assert_eq!((placer.lanes_in_use(), placer.counters.counts().lanes_taken_over), (2, 1));
    }

    #[test]
    fn main_has_a_quarter_of_the_lanes_where_all_are_in_use() {
        let placer = Placer::new(Placement::Together, 8, 100, !0, Arc::default());
        let mut tick = 0;
        let mut lanes = |queue: Queue| {
            let lane = |server| {
                tick += 1;
                placer.lane(Class::Server(server), queue, tick)
            };
            (1..40).map(lane).collect::<std::collections::BTreeSet<_>>()
        };
        assert_eq!(lanes(Queue::Small).len(), 8);
        let main = lanes(Queue::Main);
        assert_eq!(main.len(), 2);
        let small = lanes(Queue::Small);
        assert!(small.len() == 6 && small.is_disjoint(&main), "{small:?} {main:?}");
        assert_eq!(lanes(Queue::Main), main);
    }

    #[test]
    fn kin_are_known_while_puts_name_neighbours() {
        let placer = Placer::new(Placement::Together, 16, 100, !0, Arc::default());
        let (page, part) = (7 << 16, 9 << 16);
        assert_eq!(
            (placer.affinity_of(page, None), placer.affinity_of(part, Some(page))),
            (0, 0),
            "none is named: as they come"
        );
        (0..100).for_each(|at| placer.note_named(at % 2 == 0));
        assert_eq!(
            (placer.affinity_of(page, None), placer.affinity_of(part, Some(page)), placer.affinity_of(part, None)),
            (7, 7, 9)
        );
        (0..200).for_each(|_| placer.note_named(false));
        assert_eq!(placer.affinity_of(part, Some(page)), 0);
    }

    #[test]
    fn hints_are_mutual_and_bounded() {
        let placer = Placer::new(Placement::Together, 1, 100, !0, Arc::default());
        for i in 0..300 {
            placer.hint(2 * i, 2 * i + 1);
        }
        let hints = placer.hints.lock();
        assert!(hints.of.len() == 100 && hints.order.len() == 100);
        drop(hints);
        let last = 299;
        assert_eq!(placer.partners(2 * last), [2 * last + 1]);
        assert_eq!(placer.partners(2 * last + 1), [2 * last]);
        assert!(placer.partners(0).is_empty());
    }
}
