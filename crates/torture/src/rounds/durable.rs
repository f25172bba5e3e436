//! What of a life is durable when its child dies: by the promises of `Options`, and the clock.

use std::time::Duration;

use picaflor::Durability;

use super::{
    log::{How, Record, What},
    setup::Setup,
};

/// When something ends that has no end.
pub(super) const NEVER: u64 = u64::MAX;
/// Puts of one call, at most, that are acknowledged together.
const TOGETHER: u64 = 8;

/// What was done in a life, and when the child was killed: nanoseconds, or [`NEVER`] if it ended by itself.
pub(super) struct Deeds<'a> {
    pub(super) setup: &'a Setup,
    /// By their beginnings.
    pub(super) records: &'a [Record],
    pub(super) killed: u64,
}

impl Deeds<'_> {
    /// Whether a put, a delete or a change of a group is durable, if `grace` is given on top of every time.
    pub(super) fn is_durable(&self, deed: &Record, grace: Duration) -> bool {
        if deed.how != How::Done {
            return false;
        }
        let setup = self.setup;
        let is_past = |bound: Duration| {
            let due = deed.end.saturating_add((bound + grace).as_nanos() as u64);
            self.killed != NEVER && due < self.killed
        };
        let by_itself = match deed.what {
            // A change of a group that found no room is forgotten with the next opening, as documented.
            What::Group if setup.is_every_operation() => !self.records.iter().any(|record| record.how == How::Full),
            _ if setup.is_every_operation() => true,
            What::Put => match (setup.durability, setup.interval(deed.group)) {
                (Durability::EveryPut, _) => true,
                (_, Some(interval)) => interval.is_some_and(is_past),
                (Durability::Bounded { time, puts }, None) => is_past(time) || self.is_followed(deed, puts, TOGETHER),
                (_, None) => false,
            },
            What::Delete => {
                let count = setup.delete_count;
                count == 1 || is_past(setup.delete_time) || self.is_followed(deed, count, 1)
            }
            _ => is_past(setup.delete_time),
        };
        by_itself || self.is_swept(deed)
    }

    /// Whether a flush, or the close, began after it was acknowledged, and came to its end.
    fn is_swept(&self, deed: &Record) -> bool {
        let sweeps = |record: &&Record| matches!(record.what, What::Flush | What::Close) && record.how == How::Done;
        self.records.iter().rev().filter(sweeps).any(|record| record.start >= deed.end)
    }

    /// Whether so many of its kind were acknowledged after it that not all of them can be volatile. Who acknowledges
    /// at the same time may be one further each. Each of several places has the bound to itself, and what followed may
    /// be durable at another one.
    fn is_followed(&self, deed: &Record, most: u64, together: u64) -> bool {
        if self.setup.places > 1 {
            return false;
        }
        let needed = most.saturating_add(self.setup.writers() as u64 * together);
        let counts = |record: &&Record| {
            let is_counted = record.what == What::Delete || self.setup.interval(record.group).is_none();
            record.what == deed.what && record.how == How::Done && record.start >= deed.end && is_counted
        };
        // There are not that many in a life.
        needed < 1 << 20 && self.records.iter().filter(counts).count() as u64 >= needed
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::wish::Wish;

    fn deed(what: What, start: u64) -> Record {
        Record { start, end: start + 1, how: How::Done, ..Record::begun(what, 1, start as u32) }
    }

    fn setup(durability: &str) -> Setup {
        let mut wish = Wish { preset: Some("picaflor"), places: Some(1), threads: Some(1), ..Wish::default() };
        let _ = wish.take("--durability", &mut [durability.to_owned()].into_iter());
        Setup { tasks: 0, delete_time: Duration::from_millis(1), delete_count: 9, ..Setup::new(3, &wish) }
    }

    #[test]
    fn time_number_and_flush_make_durable() {
        let second = 1_000_000_000;
        let put = deed(What::Put, 10);
        let durable = |durability, records: &[Record], killed, grace| {
            let deeds = Deeds { setup: &setup(durability), records, killed };
            deeds.is_durable(&put, Duration::from_millis(grace))
        };
        assert!(durable("every-put", &[put], 12, 0) && !durable("none", &[put], second, 0));
        assert!(durable("500", &[put], second, 0) && !durable("500", &[put], second, 600));
        let others: Vec<_> = (20..34).map(|at| deed(What::Put, at)).collect();
        assert!(durable("9999,5", &others, 50, 0) && !durable("9999,7", &others, 50, 0));
        let two = Setup { places: 2, ..setup("9999,2") };
        let deeds = Deeds { setup: &two, records: &others, killed: 50 };
        assert!(!deeds.is_durable(&put, Duration::ZERO), "all of them may be at the other place");
        assert!(durable("none", &[deed(What::Flush, 11)], 50, 0) && !durable("none", &[deed(What::Flush, 10)], 50, 0));
        let begun = Record { how: How::Begun, end: NEVER, ..put };
        let setup = setup("every-put");
        assert!(!Deeds { setup: &setup, records: &[], killed: second }.is_durable(&begun, Duration::ZERO));
    }
}
