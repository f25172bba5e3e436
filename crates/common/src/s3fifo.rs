//! The rules of S3-FIFO (Yang et al., SOSP 2023, algorithm 1), for whatever is queued: the memory tier, and the lab's
//! miss ratios. What is asked for, and what leaves when it leaves, is the caller's affair.
//!
//! New things wait in a *small* queue of a tenth of the room, or of a share that is learnt. Those that were asked for
//! often enough by the time they come to its end move to *main*, the others leave and are remembered as *ghosts*; a
//! ghost that comes back goes to main at once. Main gives what was used another round, and takes one use for it.
//!
//! The share learns from what left either queue last, as many of both, and comes back: more room for the queue that it
//! left would have kept it (the paper's dynamic sizes, §6.2.2).

use std::collections::VecDeque;

use crate::ghost::Ghosts;

/// The queues.
pub struct S3Fifo<T> {
    small: VecDeque<(T, u64)>,
    /// What `small` was charged with; what died in between still counts until it is popped.
    small_bytes: u64,
    main: VecDeque<T>,
    ghosts: Ghosts,
    enough: u8,
    /// Thousandths of the room that `small` may have.
    share: u64,
    /// What left the small queue and main last, where the share learns from it.
    last: Option<[Ghosts; 2]>,
}

/// Thousandths of the room for the small queue: at first, and the least where it learns.
const SHARE: u64 = 100;
/// The most of them: larger ones gain nothing in any of the lab's workloads, and lose where memory has most of what is
/// asked for.
const SHARE_MAX: u64 = 500;
/// Of what `ghosts` remember, the part that is held against the share.
const LAST: u64 = 128;

/// How something queued stands, when it comes to the end of its queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It left by itself: forget it.
    Gone,
    /// It never moves to main, and is not remembered.
    Passing,
    /// The hash by which it would come back, and how often it was asked for since it was last looked at.
    Here(u64, u8),
}

/// What one step of eviction did.
#[derive(Debug, PartialEq, Eq)]
pub enum Step<T> {
    /// This leaves.
    Leaves(T),
    /// Nothing left, but something moved; ask again.
    Moved,
    /// Nothing is queued.
    Empty,
}

impl<T> S3Fifo<T> {
    /// Empty queues that remember about `ghosts` of those that left, and move to main what was asked for `enough`
    /// times: 2 in the paper.
    pub fn new(ghosts: u64, enough: u8) -> Self {
        let ghosts = Ghosts::new(ghosts);
        Self { small: VecDeque::new(), small_bytes: 0, main: VecDeque::new(), ghosts, enough, share: SHARE, last: None }
    }

    /// The same, with a share of the small queue that is learnt: a tenth to a half.
    pub fn learning(ghosts: u64, enough: u8) -> Self {
        Self { last: Some([(); 2].map(|()| Ghosts::new(ghosts / LAST))), ..Self::new(ghosts, enough) }
    }

    /// What has this hash comes in: the queue that it left a moment ago was too short.
    fn learn(&mut self, hash: u64) {
        let Some([small, main]) = &mut self.last else { return };
        // What left main comes in by the small queue, and has to come back once more before it is in main.
        let (more, less) = (u64::from(small.take(hash)), 2 * u64::from(main.take(hash)));
        self.share = (self.share + more - less).clamp(SHARE, SHARE_MAX);
    }

    /// Takes something in. `charge` is its size, in the unit of the room.
    pub fn insert(&mut self, hash: u64, unit: T, charge: u64) {
        self.learn(hash);
        if self.ghosts.take(hash) { self.main.push_back(unit) } else { self.insert_small(unit, charge) }
    }

    /// As [`S3Fifo::insert`], of what has no hash to come back by.
    pub fn insert_small(&mut self, unit: T, charge: u64) {
        self.small_bytes += charge;
        self.small.push_back((unit, charge));
    }

    /// What has this hash moves to main at once when it comes in next.
    pub fn remember(&mut self, hash: u64) {
        self.ghosts.add(hash);
    }

    /// One step of making room in `room`. `standing` is asked of what is at the end of a queue, `leave_with` told how
    /// many uses it has left if it stays.
    pub fn step(&mut self, room: u64, standing: impl Fn(&T) -> Standing, leave_with: impl Fn(&T, u8)) -> Step<T> {
        if (self.small_bytes > room * self.share / 1000 || self.main.is_empty())
            && let Some((unit, charge)) = self.small.pop_front()
        {
            self.small_bytes -= charge;
            return match standing(&unit) {
                Standing::Gone => Step::Moved,
                Standing::Passing => Step::Leaves(unit),
                Standing::Here(_, uses) if uses >= self.enough => {
                    leave_with(&unit, 0);
                    self.main.push_back(unit);
                    Step::Moved
                }
                Standing::Here(hash, _) => {
                    self.ghosts.add(hash);
                    self.last.iter_mut().for_each(|[small, _]| small.add(hash));
                    Step::Leaves(unit)
                }
            };
        }
        let Some(unit) = self.main.pop_front() else { return Step::Empty };
        match standing(&unit) {
            Standing::Gone => Step::Moved,
            Standing::Passing => Step::Leaves(unit),
            Standing::Here(hash, 0) => {
                self.last.iter_mut().for_each(|[_, main]| main.add(hash));
                Step::Leaves(unit)
            }
            Standing::Here(_, uses) => {
                leave_with(&unit, uses - 1);
                self.main.push_back(unit);
                Step::Moved
            }
        }
    }

    /// Keeps in the small queue what `stays`, asked of the oldest first.
    pub fn retain_small(&mut self, mut stays: impl FnMut(&T) -> bool) {
        let bytes = &mut self.small_bytes;
        self.small.retain(|(unit, charge)| {
            let stays = stays(unit);
            *bytes -= if stays { 0 } else { *charge };
            stays
        });
    }

    /// Drops what is not `alive`.
    pub fn sweep(&mut self, mut alive: impl FnMut(&T) -> bool) {
        self.retain_small(&mut alive);
        self.main.retain(alive);
    }

    /// Lets go of memory beyond what both queues need, and some more.
    pub fn shrink(&mut self) {
        self.small.shrink_to(self.small.len() + self.small.len() / 4);
        self.main.shrink_to(self.main.len() + self.main.len() / 4);
    }

    /// Entries in both queues.
    pub fn queued(&self) -> usize {
        self.small.len() + self.main.len()
    }

    /// Bytes of the ghosts.
    pub fn ghost_bytes(&self) -> u64 {
        self.ghosts.bytes() + self.last.iter().flatten().map(Ghosts::bytes).sum::<u64>()
    }

    /// Main, the oldest first.
    pub fn main(&self) -> impl Iterator<Item = &T> {
        self.main.iter()
    }

    /// The small queue, the newest first.
    pub fn small(&self) -> impl Iterator<Item = &T> {
        self.small.iter().rev().map(|(unit, _)| unit)
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, collections::HashMap};

    use super::*;

    const ROOM: u64 = 1000;

    /// Of things of size one, with the uses of each.
    struct Cache {
        queue: S3Fifo<u64>,
        held: HashMap<u64, Cell<u8>>,
    }

    impl Cache {
        fn of(queue: S3Fifo<u64>) -> Self {
            Self { queue, held: HashMap::new() }
        }

        /// Asks for these one after the other; returns the share in the end.
        fn ask(&mut self, hashes: impl Iterator<Item = u64>) -> u64 {
            for hash in hashes {
                if let Some(uses) = self.held.get(&hash) {
                    uses.set((uses.get() + 1).min(3));
                    continue;
                }
                self.queue.insert(hash, hash, 1);
                self.held.insert(hash, Cell::new(0));
                while self.held.len() as u64 > ROOM {
                    let held = &self.held;
                    let standing = |hash: &u64| Standing::Here(*hash, held[hash].get());
                    if let Step::Leaves(hash) = self.queue.step(ROOM, standing, |hash, uses| held[hash].set(uses)) {
                        self.held.remove(&hash);
                    }
                }
            }
            self.queue.share
        }
    }

    fn spread(number: u64) -> u64 {
        number.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    #[test]
    fn the_small_queue_grows_while_what_left_it_comes_back_at_once() {
        // Each is asked for twice more, 300 others later: a tenth of the room has forgotten it by then.
        let lagging = || (0..30_000).flat_map(|i| [i, i.max(300) - 300]).map(spread);
        assert_eq!(Cache::of(S3Fifo::new(128_000, 1)).ask(lagging()), SHARE, "the paper's");
        let mut cache = Cache::of(S3Fifo::learning(128_000, 1));
        let learnt = cache.ask(lagging());
        assert!(learnt > 250, "{learnt}");
        // A set a little larger than the room, asked for again and again: main is what is too short.
        let learnt = cache.ask((0..60_000).map(|i| spread((1 << 40) + i % 1100)));
        assert!(learnt < 250, "{learnt}");
    }
}
