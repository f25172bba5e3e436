//! The rules of S3-FIFO (Yang et al., SOSP 2023, algorithm 1), for whatever is queued: the memory tier, and the lab's
//! miss ratios. What is asked for, and what leaves when it leaves, is the caller's affair.
//!
//! New things wait in a *small* queue of a tenth of the room. Those that were asked for often enough by the time they
//! come to its end move to *main*, the others leave and are remembered as *ghosts*; a ghost that comes back goes to
//! main at once. Main gives what was used another round, and takes one use for it.

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
}

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
        Self { small: VecDeque::new(), small_bytes: 0, main: VecDeque::new(), ghosts, enough }
    }

    /// Takes something in. `charge` is its size, in the unit of the room.
    pub fn insert(&mut self, hash: u64, unit: T, charge: u64) {
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
        if (self.small_bytes > room / 10 || self.main.is_empty())
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
                    Step::Leaves(unit)
                }
            };
        }
        let Some(unit) = self.main.pop_front() else { return Step::Empty };
        match standing(&unit) {
            Standing::Gone => Step::Moved,
            Standing::Passing | Standing::Here(_, 0) => Step::Leaves(unit),
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
        self.ghosts.bytes()
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
