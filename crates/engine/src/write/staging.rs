//! Objects that wait in memory to be packed into clusters (Shriver et al. 2001, §3.1): where each is, and whose turn
//! it is.
//!
//! Each has a number, as a buffer has, from the one behind the last buffer's on; index entries name it. What is asked
//! for, replaced or deleted while it waits costs the device nothing.
//!
//! Invariants: a number is given to one object at a time, and to no other while a page is packed, so that what was to
//! be packed is not taken for what has its number by then; the order has every object once; a set has those whose
//! leader it is named for, and no others; the bytes are what all of them take, tables included.

use std::{
    collections::{BTreeMap, BTreeSet},
    ops::Bound,
    sync::Arc,
};

use parking_lot::{Mutex, MutexGuard};

use crate::{base::frame::Frame, base::policy::PackOrder, write::placement::Class};

/// One over a byte of length, in the unit of ranks of [`PackOrder::GreedyDualSize`].
const WORTH: u64 = 1 << 40;
/// Memory that one takes beside its bytes: the frame, and its place in the table, in the order and in a set.
const BESIDE: usize = size_of::<Frame>() + 96 + 128;

/// Objects looked at under one lock: about as many as a cluster takes.
const AT_ONCE: usize = 64;

/// From which end of their order objects are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// What is next.
    First,
    /// What is last.
    Last,
}

/// When an object's turn is: its worth, then the number of its last use.
type Rank = (u64, u64);

/// One object that waits.
#[derive(Clone)]
pub(crate) struct StagedObject {
    pub(crate) slot: u32,
    pub(crate) frame: Arc<Frame>,
    /// Among which it is packed, as the put has it.
    pub(crate) class: Class,
    /// Number of its last use.
    pub(crate) number: u64,
    /// Hash of the object it was hinted to lie beside last: the page of its locality set.
    pub(crate) leader: Option<u64>,
    /// The next commit has to make it durable.
    pub(crate) promised: bool,
    /// It took the place of another, which a crash finds nowhere once a checkpoint knows of neither.
    pub(crate) replaces: bool,
}

impl StagedObject {
    /// Hash of the page of its locality set: its own, if it was hinted to lie beside none.
    pub(crate) fn head(&self) -> u64 {
        self.leader.unwrap_or(self.frame.hash)
    }
}

/// All of them.
pub(crate) struct Staging {
    /// The first number.
    base: u32,
    most: usize,
    order: PackOrder,
    room: Mutex<Room>,
    /// Held while a page is packed.
    turn: Mutex<()>,
}

/// While it is held, no number has another object than before.
pub(crate) struct Turn<'a> {
    staging: &'a Staging,
    _held: MutexGuard<'a, ()>,
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        let room = &mut *self.staging.room.lock();
        room.free.extend(room.left.take().into_iter().flatten());
    }
}

#[derive(Default)]
struct Room {
    held: Vec<Option<(StagedObject, Rank)>>,
    free: Vec<u32>,
    /// Numbers that became free while a page is packed, if one is.
    left: Option<Vec<u32>>,
    order: BTreeMap<Rank, u32>,
    /// Leader and number of each that has one.
    sets: BTreeSet<(u64, u32)>,
    bytes: u64,
    promised: u64,
    /// Worth of the last that was taken in its turn: those that come later are worth so much more.
    inflation: u64,
}

impl Staging {
    /// Room for `most` objects, whose numbers begin with `base`.
    pub(crate) fn new(base: u32, most: usize, order: PackOrder) -> Self {
        Self { base, most, order, room: Mutex::default(), turn: Mutex::new(()) }
    }

    /// Held while a page is packed.
    pub(crate) fn turn(&self) -> Turn<'_> {
        let held = self.turn.lock();
        self.room.lock().left = Some(Vec::new());
        Turn { staging: self, _held: held }
    }

    /// Memory that an object takes while it waits.
    pub(crate) fn charge(frame: &Frame) -> u64 {
        (frame.bytes().len() + BESIDE) as u64
    }

    fn rank(&self, room: &Room, frame: &Frame, number: u64) -> Rank {
        let len = frame.bytes().len().max(1) as u64;
        match self.order {
            PackOrder::LruTail => (number, 0),
            // The largest number has the smallest rank.
            PackOrder::LruHead => (u64::MAX - number, 0),
            PackOrder::GreedyDualSize => (room.inflation + WORTH / len, number),
        }
    }

    fn at(&self, slot: u32) -> Option<usize> {
        Some(slot.checked_sub(self.base)? as usize)
    }

    /// Takes an object in, and gives it a number; `None` if there is none left.
    pub(crate) fn add(
        &self,
        frame: &Arc<Frame>,
        (class, number): (Class, u64),
        (promised, replaces): (bool, bool),
    ) -> Option<u32> {
        let mut room = self.room.lock();
        let at = match room.free.pop() {
            Some(at) => at as usize,
            None if room.held.len() < self.most => {
                room.held.push(None);
                room.held.len() - 1
            }
            None => return None,
        };
        let slot = self.base + at as u32;
        let rank = self.rank(&room, frame, number);
        room.bytes += Self::charge(frame);
        room.promised += if promised { Self::charge(frame) } else { 0 };
        room.order.insert(rank, slot);
        let staged = StagedObject { slot, frame: Arc::clone(frame), class, number, leader: None, promised, replaces };
        room.held[at] = Some((staged, rank));
        Some(slot)
    }

    /// The object with this number.
    pub(crate) fn get(&self, slot: u32) -> Option<StagedObject> {
        let at = self.at(slot)?;
        self.room.lock().held.get(at)?.as_ref().map(|(staged, _)| staged.clone())
    }

    /// It was asked for.
    pub(crate) fn touch(&self, slot: u32, number: u64) {
        let Some(at) = self.at(slot) else { return };
        let mut room = self.room.lock();
        let Some((mut staged, rank)) = room.held.get_mut(at).and_then(Option::take) else { return };
        staged.number = number;
        let new = self.rank(&room, &staged.frame, number);
        room.order.remove(&rank);
        room.order.insert(new, slot);
        room.held[at] = Some((staged, new));
    }

    /// It was hinted to lie beside the object with this hash, be that here or elsewhere.
    pub(crate) fn follow(&self, slot: u32, leader: u64) {
        let Some(at) = self.at(slot) else { return };
        let room = &mut *self.room.lock();
        let Some((staged, _)) = room.held.get_mut(at).and_then(Option::as_mut) else { return };
        if let Some(old) = staged.leader.replace(leader) {
            room.sets.remove(&(old, slot));
        }
        room.sets.insert((leader, slot));
    }

    /// Those whose leader this is.
    pub(crate) fn led_by(&self, leader: u64) -> Vec<StagedObject> {
        let room = self.room.lock();
        let set = room.sets.range((leader, 0)..=(leader, u32::MAX));
        set.filter_map(|(_, slot)| Some(room.held.get(self.at(*slot)?)?.as_ref()?.0.clone())).collect()
    }

    /// Lets one go: it was packed, replaced, deleted or given up. Returns the memory that it took.
    pub(crate) fn remove(&self, slot: u32) -> Option<u64> {
        let at = self.at(slot)?;
        let room = &mut *self.room.lock();
        let (staged, rank) = room.held.get_mut(at)?.take()?;
        let charge = Self::charge(&staged.frame);
        room.order.remove(&rank);
        if let Some(leader) = staged.leader {
            room.sets.remove(&(leader, slot));
        }
        room.left.as_mut().unwrap_or(&mut room.free).push(at as u32);
        room.bytes -= charge;
        room.promised -= if staged.promised { charge } else { 0 };
        Some(charge)
    }

    /// Number of the last use of the least recently used; where the order is another, of the one that is next.
    pub(crate) fn oldest(&self) -> Option<u64> {
        let room = self.room.lock();
        let slot = match self.order {
            PackOrder::LruHead => room.order.last_key_value(),
            PackOrder::LruTail | PackOrder::GreedyDualSize => room.order.first_key_value(),
        };
        room.held.get(self.at(*slot?.1)?)?.as_ref().map(|(staged, _)| staged.number)
    }

    /// Up to so many, in their turn; of those promised only, if that is asked for.
    pub(crate) fn next(&self, most: usize, promised: bool) -> Vec<StagedObject> {
        self.behind(None, most, promised, End::First).into_iter().map(|(_, staged)| staged).collect()
    }

    /// All of them from this end on, a few at a time: the caller may let some go meanwhile.
    pub(crate) fn turns(&self, promised: bool, end: End) -> impl Iterator<Item = StagedObject> {
        let (mut last, mut run) = (None, Vec::new().into_iter());
        std::iter::from_fn(move || {
            if run.len() == 0 {
                run = self.behind(last, AT_ONCE, promised, end).into_iter();
            }
            let (rank, staged) = run.next()?;
            last = Some(rank);
            Some(staged)
        })
    }

    fn behind(&self, last: Option<Rank>, most: usize, promised: bool, end: End) -> Vec<(Rank, StagedObject)> {
        let room = self.room.lock();
        let from = last.map_or(Bound::Unbounded, Bound::Excluded);
        let taken = |(rank, slot): (&Rank, &u32)| {
            let (staged, _) = room.held.get(self.at(*slot)?)?.as_ref()?;
            (staged.promised || !promised).then(|| (*rank, staged.clone()))
        };
        match end {
            End::First => room.order.range((from, Bound::Unbounded)).filter_map(taken).take(most).collect(),
            End::Last => room.order.range((Bound::Unbounded, from)).rev().filter_map(taken).take(most).collect(),
        }
    }

    /// Whether one of them is what is sought.
    pub(crate) fn any(&self, sought: impl Fn(&StagedObject) -> bool) -> bool {
        self.room.lock().held.iter().flatten().any(|(staged, _)| sought(staged))
    }

    /// This one was packed in its turn.
    pub(crate) fn pass(&self, slot: u32) {
        let mut room = self.room.lock();
        let rank = self.at(slot).and_then(|at| room.held.get(at)?.as_ref().map(|(_, rank)| rank.0));
        if self.order == PackOrder::GreedyDualSize {
            room.inflation = room.inflation.max(rank.unwrap_or(0));
        }
    }

    /// The next commit has to make those durable that are `meant`.
    pub(crate) fn promise(&self, meant: impl Fn(&StagedObject) -> bool) {
        let mut room = self.room.lock();
        let mut promised = 0;
        for (staged, _) in room.held.iter_mut().flatten() {
            staged.promised |= meant(staged);
            promised += if staged.promised { Self::charge(&staged.frame) } else { 0 };
        }
        room.promised = promised;
    }

    /// Memory that all of them take.
    pub(crate) fn bytes(&self) -> u64 {
        self.room.lock().bytes
    }

    /// Memory that those take which the next commit has to make durable.
    pub(crate) fn promised(&self) -> u64 {
        self.room.lock().promised
    }

    pub(crate) fn count(&self) -> u64 {
        self.room.lock().order.len() as u64
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use picaflor_format::frame::{Header, Kind, payload_crc};

    use super::*;

    fn frame(hash: u64, len: usize) -> Arc<Frame> {
        let body = vec![7; len];
        let header = Header {
            mark: 0,
            generation: hash,
            expires: 0,
            body_len: len as u32,
            meta_len: 0,
            key_len: 1,
            kind: Kind::Whole,
            group: 0,
            server: 0,
            payload_crc: payload_crc(b"k", b"", &body),
        };
        Arc::new(Frame::new(hash, header, Bytes::from(vec![0; len])))
    }

    fn order(staging: &Staging) -> Vec<u64> {
        staging.next(usize::MAX, false).iter().map(|staged| staged.frame.hash).collect()
    }

    #[test]
    fn each_order_has_its_own_turn() {
        let filled = |order| {
            let staging = Staging::new(100, 10, order);
            for (hash, len) in [(1, 3000), (2, 200), (3, 9000), (4, 1000)] {
                assert_eq!(staging.add(&frame(hash, len), (Class::Rest, hash), (false, false)), Some(99 + hash as u32));
            }
            staging.touch(101, 50);
            staging
        };
        assert_eq!(order(&filled(PackOrder::LruTail)), [1, 3, 4, 2]);
        assert_eq!(order(&filled(PackOrder::LruHead)), [2, 4, 3, 1]);
        assert_eq!(filled(PackOrder::LruTail).oldest(), Some(1));
        assert_eq!(filled(PackOrder::LruHead).oldest(), Some(1), "the least recently used, not the next");
        let staging = filled(PackOrder::GreedyDualSize);
        assert_eq!(order(&staging), [3, 1, 4, 2]);
        // One that comes when large ones have had their turn is worth more than they were.
        staging.pass(103);
        staging.remove(102);
        staging.remove(103);
        staging.add(&frame(9, 9000), (Class::Rest, 60), (false, false));
        assert_eq!(order(&staging), [1, 9, 2]);
    }

    #[test]
    fn a_set_has_who_was_hinted_beside_its_leader_last() {
        let staging = Staging::new(100, 10, PackOrder::LruTail);
        for hash in 1..=4 {
            staging.add(&frame(hash, 500), (Class::Rest, hash), (false, false));
        }
        let set = |leader| staging.led_by(leader).iter().map(|staged| staged.frame.hash).collect::<Vec<_>>();
        for (slot, page) in [(100, 77), (101, 77), (102, 78), (101, 78), (99, 77), (110, 77)] {
            staging.follow(slot, page);
        }
        assert_eq!((set(77), set(78), set(79)), (vec![1], vec![2, 3], vec![]));
        staging.remove(101);
        staging.add(&frame(9, 500), (Class::Rest, 9), (false, false));
        assert_eq!((set(77), set(78)), (vec![1], vec![3]), "one with a new number is in no set");
    }

    #[test]
    fn numbers_and_bytes_are_given_back() {
        let staging = Staging::new(7, 2, PackOrder::LruTail);
        let charge = Staging::charge(&frame(1, 500));
        assert_eq!(staging.add(&frame(1, 500), (Class::Rest, 1), (false, true)), Some(7));
        assert_eq!(staging.add(&frame(2, 500), (Class::Rest, 2), (true, false)), Some(8));
        assert_eq!(staging.add(&frame(3, 500), (Class::Rest, 3), (false, false)), None, "no number is left");
        assert_eq!((staging.bytes(), staging.promised()), (2 * charge, charge));
        assert_eq!(staging.next(5, true).len(), 1);
        staging.promise(|staged| staged.replaces);
        assert_eq!((staging.promised(), staging.next(5, true).len()), (2 * charge, 2));
        assert_eq!((staging.remove(8), staging.remove(8)), (Some(charge), None));
        assert_eq!((staging.bytes(), staging.promised(), staging.count()), (charge, charge, 1));
        assert_eq!(staging.add(&frame(4, 500), (Class::Rest, 4), (false, false)), Some(8));
        assert!(staging.get(6).is_none() && staging.get(9).is_none());
    }
}
