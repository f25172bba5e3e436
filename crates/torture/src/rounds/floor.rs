//! The oldest version of a key that may be served: its *floor*. Whatever raises it says when that is durable; a kill
//! takes back what was not.

use std::time::Duration;

use picaflor::Durability;

/// How long after its last byte an answer may take to be in the store.
pub(super) const STORED: Duration = Duration::from_secs(1);

/// How long the store may keep a delete volatile, as `serve` sets it where puts have no bound.
const DELETE_TIME: Duration = Duration::from_secs(1);

/// How a floor was raised by an answer that the store was not there for.
pub(super) const REPLACED: &str = "replaced";

/// What raised a key's floor.
#[derive(Clone, Copy)]
pub(super) struct Raise {
    pub(super) version: u32,
    pub(super) at: u64,
    /// How long it may be volatile; `None` is for ever.
    pub(super) within: Option<Duration>,
    pub(super) how: &'static str,
}

/// How long a purge may be volatile: it is durable when it is answered.
pub(super) const PURGE_WITHIN: Option<Duration> = Some(Duration::ZERO);

/// How long an invalidation may be volatile: as long as the put that it follows.
pub(super) fn invalidation_within(durability: Durability) -> Option<Duration> {
    match durability {
        Durability::EveryPut => PURGE_WITHIN,
        Durability::Bounded { time, .. } => Some(time),
        _ => Some(DELETE_TIME),
    }
}

/// How long a replacement may be volatile, from its last byte on.
pub(super) fn replacement_within(durability: Durability) -> Option<Duration> {
    match durability {
        Durability::EveryPut => Some(STORED),
        Durability::Bounded { time, .. } => Some(STORED + time),
        _ => None,
    }
}

/// What is known of a key.
#[derive(Clone, Default)]
pub(super) struct Known {
    pub(super) floor: u32,
    pub(super) by: &'static str,
    raises: Vec<Raise>,
    /// There was no look since the last kill.
    pub(super) unseen: bool,
}

impl Known {
    pub(super) fn raise(&mut self, raise: Raise) {
        self.raises.push(raise);
    }

    /// The oldest version that may be served to a request of this time, if a replacement has had `stored` to be in the
    /// store.
    pub(super) fn least(&self, at: u64, stored: Duration) -> (u32, &'static str) {
        let is_there = |raise: &&Raise| raise.how != REPLACED || raise.at + stored.as_nanos() as u64 <= at;
        let all = self.raises.iter().filter(is_there).map(|raise| (raise.version, raise.how));
        all.chain([(self.floor, self.by)]).max_by_key(|(version, _)| *version).unwrap_or_default()
    }

    /// Makes what was durable by then the floor itself; of the rest, where nothing bounds it, the newest is enough.
    pub(super) fn settle(&mut self, at: u64, grace: Duration) {
        let mut newest: Option<Raise> = None;
        for raise in std::mem::take(&mut self.raises) {
            let is_durable = match raise.within {
                None => false,
                Some(Duration::ZERO) => true,
                Some(within) => raise.at.saturating_add((within + grace).as_nanos() as u64) < at,
            };
            if !is_durable && raise.within.is_some() {
                self.raises.push(raise);
            } else if !is_durable {
                newest = newest.filter(|newest| newest.version >= raise.version).or(Some(raise));
            } else if raise.version > self.floor {
                (self.floor, self.by) = (raise.version, raise.how);
            }
        }
        self.raises.extend(newest);
    }

    /// What replaced something since then may not be in the store.
    pub(super) fn forget_replaced(&mut self, since: u64) {
        self.raises.retain(|raise| raise.how != REPLACED || raise.at < since);
    }

    /// Only what was durable counts.
    pub(super) fn killed(&mut self, at: u64, grace: Duration) {
        self.settle(at, grace);
        self.raises.clear();
        self.unseen = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kill_takes_back_what_was_not_durable() {
        let second = 1_000_000_000;
        let within = |seconds: Option<u64>| seconds.map(Duration::from_secs);
        let raise = |version, seconds| Raise { version, at: 0, within: within(seconds), how: "purged" };
        let least = |known: &Known| known.least(9 * second, STORED).0;
        let mut known = Known::default();
        known.raise(raise(3, Some(0)));
        known.raise(raise(4, Some(1)));
        known.raise(raise(5, None));
        assert_eq!(least(&known), 5);
        let mut early = known.clone();
        early.killed(second / 2, Duration::ZERO);
        assert_eq!(least(&early), 3);
        known.killed(2 * second, Duration::ZERO);
        assert_eq!(least(&known), 4);
        known.raise(Raise { at: 8 * second + 1, how: REPLACED, ..raise(6, None) });
        assert_eq!((least(&known), known.least(10 * second, STORED).0), (4, 6), "its put takes a moment");
    }
}
