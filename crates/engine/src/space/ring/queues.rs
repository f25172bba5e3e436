//! S3-FIFO over clusters (Yang et al., SOSP 2023, algorithm 1): the queue that each cluster is in, and the victims that
//! follow from that (`victim.rs`).
//!
//! What is put fills clusters of the *small* queue. What of it was asked for by the time that its cluster is the oldest
//! there is put again into clusters of *main*, where it goes round as long as it is asked for. While the small queue
//! has more than its share of all clusters, its oldest one is the next victim; else that of main. But first of all what
//! is dead leaves: in main that of which most was deleted or replaced, or objects that are asked for would leave the
//! small queue in its stead.
//!
//! The share is the paper's tenth at the least. It grows while a byte of the small queue is asked for more often, per
//! time in its queue, than a byte of main, and shrinks otherwise: objects that are asked for while they are new, as
//! videos are, need most of the device to be new in. There are no ghosts: they would take memory for each object that
//! left, as the index does for each that is there.
//!
//! Invariants: a cluster that is not known to be in the small queue is in main, so all that was there at the opening
//! is; what was told to be a victim soon is one before all others.

use std::collections::VecDeque;

/// The two queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Queue {
    Main,
    Small,
}

/// Share of the small queue at the least, and at the most.
const SHARES: [f64; 2] = [0.1, 0.9];
/// What the share gains or loses while the small queue gives as many victims as there are clusters.
const STEP: f64 = 0.5;
/// What a queue's victims told counts less with each of the next, and hardly at all after this part of all clusters.
const FADES: f64 = 1.0 / 5.0;

/// What was asked for in one queue.
#[derive(Debug, Clone, Copy, Default)]
struct Rate {
    uses: f64,
    /// Bytes, each times the clusters that were sealed while it was there.
    spans: f64,
}

/// See the module. Empty where no preset asks for it.
#[derive(Default)]
pub(super) struct Queues {
    /// Of each cluster, twice the number of those sealed before it; one more if it is in the small queue.
    turns: Vec<u32>,
    next: u32,
    /// Clusters in the small queue.
    small: u32,
    share: f64,
    rates: [Rate; 2],
    /// The oldest of each queue when they were last looked for, with their turns, the oldest last.
    pub(super) oldest: [Vec<(u32, u32)>; 2],
    /// The floor at which a search of a queue found nothing.
    pub(super) barren: [Option<u64>; 2],
    /// [`Queues::next`] when a look at all clusters for what is dead is due.
    look: u32,
    /// The next victims, as far as they were told.
    pub(super) planned: VecDeque<u32>,
}

impl Queues {
    /// Memory that the queue of a cluster takes.
    pub(super) const BYTES_PER_CLUSTER: u64 = size_of::<u32>() as u64;

    /// Of so many clusters.
    pub(super) fn new(count: u32) -> Self {
        Self { turns: vec![0; count as usize], share: SHARES[0], ..Self::default() }
    }

    /// So many more, which are in neither yet.
    pub(super) fn lengthen(&mut self, by: u32) {
        if !self.turns.is_empty() {
            self.turns.resize(self.turns.len() + by as usize, 0);
        }
    }

    pub(super) fn of(&self, id: u32) -> Queue {
        let in_small = self.turns.get(id as usize).is_some_and(|turn| turn & 1 == 1);
        if in_small { Queue::Small } else { Queue::Main }
    }

    pub(super) fn turn(&self, id: u32) -> u32 {
        self.turns.get(id as usize).map_or(0, |turn| *turn)
    }

    /// How long ago a cluster was sealed: what was longer ago is less, wherever the numbers begin anew.
    pub(super) fn sealed(&self, id: u32) -> u32 {
        self.turn(id).wrapping_sub(self.next)
    }

    /// Whether the small queue has more than its share without those that are planned to leave it.
    pub(super) fn is_over(&self) -> bool {
        let leaving = self.planned.iter().filter(|id| self.of(**id) == Queue::Small).count();
        f64::from(self.small) - leaving as f64 > self.share * self.turns.len() as f64
    }

    /// Whether it is time to look for what is dead: once while each 64th of the clusters is sealed.
    pub(super) fn is_look_due(&mut self) -> bool {
        let is_due = self.look.wrapping_sub(self.next).cast_signed() <= 0;
        if is_due {
            self.look = self.next.wrapping_add(2 * (self.turns.len() as u32 / 64).max(1));
        }
        is_due
    }

    /// There is more that is dead than was taken.
    pub(super) fn look_again(&mut self) {
        self.look = self.next;
    }

    /// All clusters are of main; this one is the oldest, and the others follow in address order.
    pub(super) fn begin_at(&mut self, oldest: u32) {
        let count = self.turns.len() as u32;
        for (id, turn) in (0..).zip(&mut self.turns) {
            *turn = 2 * ((id + count - oldest) % count);
        }
        self.next = 2 * count;
    }

    /// The next cluster but one is sealed when numbers begin anew.
    #[cfg(test)]
    pub(super) fn begin_near_the_end(&mut self) {
        self.next = u32::MAX - 3;
    }

    /// A clean cluster is granted.
    pub(super) fn granted(&mut self, id: u32) {
        if let Some(turn) = self.turns.get_mut(id as usize) {
            *turn &= !1;
        }
    }

    /// A cluster is sealed: the newest of this queue.
    pub(super) fn enqueue(&mut self, id: u32, queue: Queue, is_held: bool) {
        let Some(turn) = self.turns.get_mut(id as usize) else { return };
        *turn = self.next | u32::from(queue == Queue::Small);
        self.next = self.next.wrapping_add(2);
        self.small += u32::from(queue == Queue::Small && is_held);
    }

    /// A cluster took room of its queue, or not, and does now.
    pub(super) fn moved(&mut self, id: u32, [was_held, is_held]: [bool; 2]) {
        if self.of(id) == Queue::Small {
            self.small -= u32::from(was_held);
            self.small += u32::from(is_held);
        }
    }

    /// A victim had so many live bytes, asked for so often since they came to lie there.
    pub(super) fn learn(&mut self, id: u32, uses: u64, bytes: u64) {
        let queue = self.of(id);
        let Some(turn) = self.turns.get(id as usize) else { return };
        let count = self.turns.len() as f64;
        let sealed_since = f64::from(self.next.wrapping_sub(*turn) / 2);
        let stays = (1.0 - 1.0 / (FADES * count)).max(0.5);
        let rate = &mut self.rates[queue as usize];
        rate.uses = rate.uses * stays + uses as f64;
        rate.spans = rate.spans * stays + bytes as f64 * sealed_since;
        let [main, small] = self.rates;
        if queue == Queue::Small && main.spans > 0.0 {
            // uses / spans of either, without a division by what may be nothing.
            let grows = small.uses * main.spans > main.uses * small.spans;
            let step = if grows { STEP } else { -STEP } / count;
            self.share = (self.share + step).clamp(SHARES[0], SHARES[1]);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_share_follows_what_is_asked_for_more_often() {
        let mut queues = Queues::new(20);
        (0..20).for_each(|id| queues.enqueue(id, if id < 10 { Queue::Main } else { Queue::Small }, true));
        let share = |queues: &Queues| (queues.share * 1000.0) as u32;
        assert_eq!(share(&queues), 100);
        queues.learn(0, 1, 1000);
        (10..20).cycle().take(400).for_each(|id| queues.learn(id, 3, 1000));
        assert_eq!(share(&queues), 900);
        (0..10).cycle().take(400).for_each(|id| queues.learn(id, 300, 1000));
        (10..20).cycle().take(400).for_each(|id| queues.learn(id, 3, 1000));
        assert_eq!(share(&queues), 100);
    }
}
