//! S3-FIFO with sizes, written down a second time and without the engine's code: by the letter of the paper's algorithm
//! 1, or with what libCacheSim's program does otherwise, each difference by itself.

use std::collections::{HashMap, VecDeque};

use picaflor_lab::trace::Request;

/// What libCacheSim 0.3.5 (`S3FIFO.c`) does and the paper's algorithm does not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Rules {
    /// Before the first eviction, what finds the small queue full goes to main.
    pub(crate) fills_main: bool,
    /// Main loses an object only while it has more than nine tenths of the room. In the paper the small queue loses one
    /// only while it has a tenth: objects of one size fill the room to the last, and then both say the same.
    pub(crate) main_within_its_share: bool,
    /// Ghosts have nine tenths of the room in bytes. In the paper they are as many as the objects of main.
    pub(crate) ghosts_by_bytes: bool,
}

impl Rules {
    pub(crate) const LIBCACHESIM: Self = Self { fills_main: true, main_within_its_share: true, ghosts_by_bytes: true };
}

/// A FIFO queue of keys with sizes; what was removed stays queued until its turn, under a number that is old.
#[derive(Default)]
struct Queue {
    order: VecDeque<(u64, u64)>,
    /// Number, size and uses.
    held: HashMap<u64, (u64, u64, u64)>,
    bytes: u64,
    next: u64,
}

impl Queue {
    fn push(&mut self, key: u64, size: u64, uses: u64) {
        self.next += 1;
        self.order.push_back((key, self.next));
        self.held.insert(key, (self.next, size, uses));
        self.bytes += size;
    }

    fn remove(&mut self, key: u64) -> Option<(u64, u64)> {
        let (_, size, uses) = self.held.remove(&key)?;
        self.bytes -= size;
        Some((size, uses))
    }

    fn pop(&mut self) -> Option<(u64, u64, u64)> {
        loop {
            let (key, number) = self.order.pop_front()?;
            if self.held.get(&key).is_some_and(|held| held.0 == number) {
                return self.remove(key).map(|(size, uses)| (key, size, uses));
            }
        }
    }

    fn touch(&mut self, key: u64) -> bool {
        self.held.get_mut(&key).map(|held| held.2 += 1).is_some()
    }
}

/// The share of the requests that a cache of so many bytes misses.
pub(crate) fn missed(rules: Rules, capacity: u64, requests: &[Request]) -> f64 {
    let small_room = capacity / 10;
    let (mut small, mut main, mut ghosts) = (Queue::default(), Queue::default(), Queue::default());
    let (mut missed, mut evicted) = (0, false);
    for Request { key, size, .. } in requests {
        if small.touch(*key) || main.touch(*key) {
            continue;
        }
        missed += 1;
        let back = ghosts.remove(*key).is_some();
        // A request that is as large as the small queue makes room, and is then not let in.
        if *size > small_room {
            continue;
        }
        while small.bytes + main.bytes + size > capacity {
            evicted = true;
            let from_main = match rules.main_within_its_share {
                true => main.bytes > capacity - small_room,
                false => small.bytes < small_room && main.bytes > 0,
            };
            match if from_main { None } else { small.pop() } {
                Some((key, size, 2..)) => main.push(key, size, 0),
                Some((key, size, _)) => remember(rules, &mut ghosts, (key, size), (capacity, main.held.len())),
                None => evict_main(&mut main),
            }
        }
        let full = rules.fills_main && !evicted && small.bytes >= small_room;
        match back || full {
            true => main.push(*key, *size, 0),
            false if *size == small_room => {}
            false => small.push(*key, *size, 0),
        }
    }
    f64::from(missed) / requests.len() as f64
}

fn remember(rules: Rules, ghosts: &mut Queue, (key, size): (u64, u64), (capacity, in_main): (u64, usize)) {
    let over = |ghosts: &Queue| match rules.ghosts_by_bytes {
        true => ghosts.bytes + size > (capacity as f64 * 0.9) as u64,
        false => ghosts.held.len() >= in_main.max(1),
    };
    while over(ghosts) && ghosts.pop().is_some() {}
    ghosts.push(key, size, 0);
}

fn evict_main(main: &mut Queue) {
    while let Some((key, size, uses)) = main.pop() {
        match uses {
            0 => return,
            _ => main.push(key, size, uses.min(3) - 1),
        }
    }
}
