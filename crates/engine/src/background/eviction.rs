//! Question 5, eviction: which object leaves when room is needed.
//!
//! Reclaim empties a whole cluster. This module says which one, and which of its objects are put again.
//! Reinsertion is paid from a budget, a fixed share of what was put, so that a cache never writes much
//! more than it is given: at most `1 + REINSERT_SHARE` device bytes per byte put, framing aside.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::{base::group::Priority, base::policy::Eviction, space::Victim};

/// Bytes that may be reinserted per byte put, in percent.
const REINSERT_SHARE: i64 = 20;
/// Part of a device that unused budget may come to: what a new store earns while nothing leaves it yet.
const UNUSED: u64 = 16;
/// Of victims one after the other, at most so many quarters are put again: they free something, however much was saved
/// up. One alone may be put again as a whole, and so many others.
const QUARTERS: u64 = 3;
const WHOLE: u64 = 16;

/// What reclaim knows of an object in its victim.
pub(crate) struct Occupant {
    pub(crate) len: u64,
    /// Asked for since it was placed, or hot in memory.
    pub(crate) used: bool,
    pub(crate) priority: Priority,
    pub(crate) expired: bool,
}

pub(crate) struct Budget {
    left: AtomicI64,
    /// The part of it that the victims of now may have; all of it before there are any.
    victims: AtomicI64,
}

impl Default for Budget {
    fn default() -> Self {
        Self { left: AtomicI64::new(0), victims: AtomicI64::new(i64::MAX / 2) }
    }
}

impl Budget {
    /// This many bytes were put on a device that has so many.
    pub(crate) fn earn(&self, bytes: u64, capacity: u64) {
        let earned = bytes as i64 * REINSERT_SHARE / 100;
        if self.left.load(Relaxed) < (capacity / UNUSED) as i64 {
            self.left.fetch_add(earned, Relaxed);
        }
    }

    /// So many bytes may be put again beside those.
    pub(crate) fn allow(&self, bytes: u64) {
        self.left.fetch_add(bytes as i64, Relaxed);
    }

    /// The next victim is emptied, in which objects take `room` bytes.
    pub(crate) fn begin_victim(&self, room: u64) {
        let add = |victims: i64| Some((victims + quarters_of(room)).min((WHOLE * room) as i64));
        let _ = self.victims.fetch_update(Relaxed, Relaxed, add);
    }

    /// Bytes that may be put again now.
    pub(crate) fn left(&self) -> i64 {
        self.left.load(Relaxed)
    }

    /// Most bytes that may be put again of a victim in which objects take `room` bytes.
    pub(crate) fn most_of(&self, room: u64) -> i64 {
        self.victims.load(Relaxed) + quarters_of(room)
    }

    /// So many bytes are put again, whether they were earned or not.
    pub(crate) fn overdraw(&self, bytes: u64) {
        self.left.fetch_sub(bytes as i64, Relaxed);
        self.victims.fetch_sub(bytes as i64, Relaxed);
    }

    fn spend(&self, bytes: u64) -> bool {
        let bytes = bytes as i64;
        self.left.fetch_update(Relaxed, Relaxed, |left| (left >= bytes).then_some(left - bytes)).is_ok()
    }

    fn spend_on_victim(&self, bytes: u64) -> bool {
        let spends = self.victims.load(Relaxed) > 0 && self.spend(bytes);
        if spends {
            self.victims.fetch_sub(bytes as i64, Relaxed);
        }
        spends
    }
}

fn quarters_of(room: u64) -> i64 {
    (room * QUARTERS / 4) as i64
}

impl Eviction {
    pub(crate) fn victim(self) -> Victim {
        match self {
            Self::RingReinsert | Self::Lru => Victim::Oldest,
            Self::S3Fifo => Victim::Queued,
            Self::LruCluster => Victim::LeastRecent,
            Self::Never | Self::NeverAhead => Victim::Emptiest,
        }
    }

    /// Whether no object leaves.
    pub(crate) fn keeps_all(self) -> bool {
        matches!(self, Self::Never | Self::NeverAhead)
    }

    /// Whether anything of a victim is ever put again, loved or not.
    pub(crate) fn may_reinsert(self) -> bool {
        matches!(self, Self::RingReinsert | Self::S3Fifo) || self.keeps_all()
    }

    /// Whether a live object of the victim is put again. Loved objects come before the budget asks.
    pub(crate) fn deserves(self, object: &Occupant, budget: &Budget) -> bool {
        match self {
            _ if object.expired => false,
            Self::Never | Self::NeverAhead => true,
            Self::Lru | Self::LruCluster => false,
            Self::RingReinsert | Self::S3Fifo => match object.priority {
                Priority::Hated => false,
                Priority::Neither => object.used && budget.spend_on_victim(object.len),
                Priority::Loved => budget.spend(object.len) || object.used,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn occupant(used: bool, priority: Priority) -> Occupant {
        Occupant { len: 1000, used, priority, expired: false }
    }

    #[test]
    fn the_budget_bounds_reinsertion() {
        let budget = Budget::default();
        budget.earn(10_000, 1 << 20);
        budget.begin_victim(100_000);
        let go = |used| Eviction::RingReinsert.deserves(&occupant(used, Priority::Neither), &budget);
        assert!(!go(false));
        assert!(go(true) && go(true));
        assert!(!go(true), "two thousand bytes were earned");
        assert!(Eviction::Never.deserves(&occupant(false, Priority::Neither), &budget));
        (0..100).for_each(|_| budget.earn(10_000, 32_000));
        assert_eq!(budget.left(), 2000, "no more than a sixteenth");
    }

    #[test]
    fn of_victims_in_a_row_a_quarter_leaves() {
        let budget = Budget::default();
        budget.earn(1 << 30, 1 << 40);
        let victim = || {
            budget.begin_victim(4000);
            (0..4).filter(|_| Eviction::S3Fifo.deserves(&occupant(true, Priority::Neither), &budget)).count()
        };
        let again: Vec<_> = (0..100).map(|_| victim()).collect();
        assert_eq!((&again[..16], &again[84..]), (&[4; 16][..], &[3; 16][..]));
    }

    #[test]
    fn expired_and_hated_leave() {
        let budget = Budget::default();
        budget.earn(1 << 20, 1 << 30);
        budget.begin_victim(1 << 20);
        let expired = Occupant { expired: true, ..occupant(true, Priority::Loved) };
        assert!(!Eviction::Never.deserves(&expired, &budget));
        assert!(!Eviction::RingReinsert.deserves(&occupant(true, Priority::Hated), &budget));
        assert!(Eviction::RingReinsert.deserves(&occupant(false, Priority::Loved), &budget));
    }
}
