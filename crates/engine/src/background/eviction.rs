//! Question 5, eviction: which object leaves when room is needed.
//!
//! Reclaim empties a whole cluster. This module says which one, and which of its objects are put again.
//! Reinsertion is paid from a budget, a fixed share of what was put, so that a cache never writes much
//! more than it is given: at most `1 + REINSERT_SHARE` device bytes per byte put, framing aside.

use std::sync::atomic::{AtomicI64, Ordering::Relaxed};

use crate::{base::group::Priority, base::policy::Eviction, space::Victim};

/// Bytes that may be reinserted per byte put, in percent.
const REINSERT_SHARE: i64 = 20;
/// Most unused budget that is kept, in bytes: about one large cluster, so that a quiet hour does not
/// earn a storm of writes.
const BUDGET_MAX: i64 = 4 << 20;

/// What reclaim knows of an object in its victim.
pub(crate) struct Occupant {
    pub(crate) len: u64,
    /// Asked for since it was placed, or hot in memory.
    pub(crate) used: bool,
    pub(crate) priority: Priority,
    pub(crate) expired: bool,
}

#[derive(Default)]
pub(crate) struct Budget(AtomicI64);

impl Budget {
    /// This many bytes were put.
    pub(crate) fn earn(&self, bytes: u64) {
        let earned = bytes as i64 * REINSERT_SHARE / 100;
        if self.0.load(Relaxed) < BUDGET_MAX {
            self.0.fetch_add(earned, Relaxed);
        }
    }

    /// Bytes that may be reinserted now.
    pub(crate) fn left(&self) -> i64 {
        self.0.load(Relaxed)
    }

    fn spend(&self, bytes: u64) -> bool {
        let bytes = bytes as i64;
        self.0.fetch_update(Relaxed, Relaxed, |left| (left >= bytes).then_some(left - bytes)).is_ok()
    }
}

impl Eviction {
    pub(crate) fn victim(self) -> Victim {
        match self {
            Self::RingReinsert | Self::Lru => Victim::Oldest,
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
        self == Self::RingReinsert || self.keeps_all()
    }

    /// Whether a live object of the victim is put again. Loved objects come before the budget asks.
    pub(crate) fn deserves(self, object: &Occupant, budget: &Budget) -> bool {
        match self {
            _ if object.expired => false,
            Self::Never | Self::NeverAhead => true,
            Self::Lru | Self::LruCluster => false,
            Self::RingReinsert => match object.priority {
                Priority::Hated => false,
                Priority::Neither => object.used && budget.spend(object.len),
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
        budget.earn(10_000);
        let go = |used| Eviction::RingReinsert.deserves(&occupant(used, Priority::Neither), &budget);
        assert!(!go(false));
        assert!(go(true) && go(true));
        assert!(!go(true), "two thousand bytes were earned");
        assert!(Eviction::Never.deserves(&occupant(false, Priority::Neither), &budget));
    }

    #[test]
    fn expired_and_hated_leave() {
        let budget = Budget::default();
        budget.earn(1 << 20);
        let expired = Occupant { expired: true, ..occupant(true, Priority::Loved) };
        assert!(!Eviction::Never.deserves(&expired, &budget));
        assert!(!Eviction::RingReinsert.deserves(&occupant(true, Priority::Hated), &budget));
        assert!(Eviction::RingReinsert.deserves(&occupant(false, Priority::Loved), &budget));
    }
}
