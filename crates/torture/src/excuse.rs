//! The excuses of the oracle: what it lets pass though a store without trouble would do better. Each time one is needed
//! it is counted, and a run of many seeds that needs one more often than honest runs did has found something.
//!
//! Invariant: nothing is let pass that is not in the table.

use std::{fmt, ops::AddAssign};

use picaflor::Mode;

use crate::plan::{Plan, Trouble};

/// Why something was let pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(usize)]
pub enum Excuse {
    /// A cache's object went without a word.
    Unexplained,
    /// An older version, where devices lie.
    StaleOfLies,
    /// An older version, where what no sync vouched for was damaged after a crash.
    StaleOfDamage,
    /// An older version from a device that had failed, in a store of several.
    LeftBehind,
    /// Nothing, where devices lie.
    MissOfLies,
    /// Nothing, or an error, where bytes were damaged.
    MissOfDamage,
    /// Nothing, in a cache whose device failed.
    MissOfFailure,
    /// Nothing under a key of a cache that shares its place in the index.
    Twin,
    /// Nothing, where a cache may have used the place of the version before again.
    Replaced,
    /// Nothing, or an error, where a large object of a cache may have lost a piece.
    Piece,
    /// Nothing, where an older version of the key had left another device of a cache.
    Doubted,
    /// A body that could not be read to its end after it was fetched and put.
    FetchedLarge,
    /// A get that failed with an error, on a device that is not honest.
    FailedGet,
    /// Another call that failed, the same.
    FailedCall,
    /// An opening refused by name, where bytes were damaged or devices lie.
    RefusedOpening,
    /// An opening that failed, and succeeded when the device no longer failed.
    FailedOpening,
    /// A put that was not to wait, and was refused; or one that a failing device refused.
    Busy,
    /// A put whose group's bound is not known, so that it may be volatile for ever.
    UnknownBound,
    /// A cache that started empty, and said so.
    ColdStart,
}

impl Excuse {
    /// Whether a key's object did not come: asked for again it is the same loss.
    pub(crate) fn is_of_loss(self) -> bool {
        matches!(self, Self::MissOfLies | Self::MissOfDamage | Self::MissOfFailure | Self::FailedGet)
    }
}

/// A row: who may need it, how often at most, why so often.
struct Row {
    excuse: Excuse,
    /// Whether a run of this plan can need it.
    applies: fn(&Plan) -> bool,
    /// Most uses per million operations of such runs.
    most: u64,
    /// Uses that a single run may bring, which the bound over many does not count: one device may fail for thousands of
    /// calls, or lose hundreds of objects at once.
    burst: u64,
    /// What stands behind it.
    why: &'static str,
}

const COUNT: usize = 19;

const fn row(excuse: Excuse, applies: fn(&Plan) -> bool, (most, burst): (u64, u64), why: &'static str) -> Row {
    Row { excuse, applies, most, burst, why }
}

fn honest_cache(plan: &Plan) -> bool {
    plan.mode == Mode::Cache && matches!(plan.trouble, Trouble::Crashes | Trouble::Damage)
}

fn failing(plan: &Plan) -> bool {
    plan.trouble == Trouble::Failing
}

fn lying(plan: &Plan) -> bool {
    plan.trouble == Trouble::Lying
}

fn damaged(plan: &Plan) -> bool {
    plan.trouble == Trouble::Damage
}

fn unsound_cache(plan: &Plan) -> bool {
    plan.mode == Mode::Cache && unsound(plan)
}

fn unsound(plan: &Plan) -> bool {
    !plan.is_honest()
}

/// In the order of [`Excuse`]: most uses per million operations, about three times the highest that any row showed in
/// some 8,000 seeds of both editions, then what one run may bring alone.
const TABLE: [Row; COUNT] = [
    row(Excuse::Unexplained, honest_cache, (10, 10), "two keys, or pieces, that share a place in the index by chance"),
    row(Excuse::StaleOfLies, lying, (400, 30), "a lost write leaves the version before, and no store can tell"),
    row(Excuse::StaleOfDamage, damaged, (5000, 100), "what is damaged before it was synced looks like a torn write"),
    row(Excuse::LeftBehind, failing, (40, 30), "a device that failed keeps what it had"),
    row(Excuse::MissOfLies, lying, (1000, 30), "what was never written is not there"),
    row(Excuse::MissOfDamage, damaged, (20_000, 1000), "what was damaged is dropped"),
    row(Excuse::MissOfFailure, failing, (5000, 500), "what could not be written or read is a miss"),
    row(Excuse::Twin, honest_cache, (100, 200), "a place in the index holds one of the keys that share it"),
    row(Excuse::Replaced, honest_cache, (900, 30), "of two versions the crash kept neither"),
    row(Excuse::Piece, |_| true, (800, 60), "a piece leaves a cache, or is lost in a crash, without the object's key"),
    row(Excuse::Doubted, honest_cache, (20, 30), "an entry that a crash brought back hides the newest version"),
    row(Excuse::FetchedLarge, |_| true, (20, 30), "a piece left the cache, or expired, while the body was read"),
    row(Excuse::FailedGet, unsound, (9000, 500), "the device could not be read"),
    row(
        Excuse::FailedCall,
        unsound,
        (600_000, 10_000),
        "the device could not be written, and stays so until the next opening",
    ),
    row(Excuse::RefusedOpening, unsound, (3300, 60), "both superblocks, or the journal of a store, are damaged"),
    row(Excuse::FailedOpening, failing, (3500, 30), "the device failed while it was opened"),
    row(Excuse::Busy, |_| true, (2500, 100), "puts that do not wait find no buffer"),
    row(Excuse::UnknownBound, |_| true, (14_000, 400), "a crash may have taken what the group was told"),
    row(Excuse::ColdStart, unsound_cache, (1500, 30), "neither checkpoint, or not all of the log, could be read"),
];

/// How often each excuse was needed, and how many operations could have needed it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Excused {
    used: [u64; COUNT],
    exposed: [u64; COUNT],
}

impl Excused {
    /// One more use.
    pub(crate) fn note(&mut self, excuse: Excuse) {
        self.used[excuse as usize] += 1;
    }

    /// One more operation of a run of this plan.
    pub(crate) fn expose(&mut self, plan: &Plan) {
        for (exposed, row) in self.exposed.iter_mut().zip(&TABLE) {
            *exposed += u64::from((row.applies)(plan));
        }
    }

    /// Uses of this excuse.
    #[must_use]
    pub fn uses(&self, excuse: Excuse) -> u64 {
        self.used[excuse as usize]
    }

    /// Excuses that were needed more often than their bounds, in words. Few operations are allowed the luck of few.
    #[must_use]
    pub fn overused(&self) -> Vec<String> {
        let rows = TABLE.iter().zip(self.used.iter().zip(&self.exposed));
        let over = |(row, (&used, &exposed)): (&Row, (&u64, &u64))| {
            let expected = exposed as f64 * row.most as f64 / 1e6;
            let most = expected + 6.0 * expected.sqrt() + row.burst as f64;
            (used as f64 > most).then(|| {
                let rate = used as f64 * 1e6 / exposed.max(1) as f64;
                let Row { excuse, most, why, .. } = row;
                format!(
                    "{excuse:?} was needed {used} times in {exposed} operations, {rate:.0} per million, where {most} \
                     are the most ({why})"
                )
            })
        };
        rows.filter_map(over).collect()
    }
}

impl AddAssign<&Self> for Excused {
    fn add_assign(&mut self, other: &Self) {
        for (count, other) in self.used.iter_mut().zip(other.used) {
            *count += other;
        }
        for (count, other) in self.exposed.iter_mut().zip(other.exposed) {
            *count += other;
        }
    }
}

impl fmt::Display for Excused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "excused (per million, most):")?;
        let mut none = true;
        for (row, (used, exposed)) in
            TABLE.iter().zip(self.used.iter().zip(self.exposed)).filter(|(_, (used, _))| **used > 0)
        {
            none = false;
            let rate = *used as f64 * 1e6 / exposed.max(1) as f64;
            write!(f, " {:?} {used} ({rate:.0}, {})", row.excuse, row.most)?;
        }
        if none { write!(f, " nothing") } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_in_the_order_of_the_excuses() {
        TABLE.iter().enumerate().for_each(|(at, row)| assert_eq!(row.excuse as usize, at, "{:?}", row.excuse));
    }

    #[test]
    fn an_excuse_that_is_needed_too_often_is_named() {
        let plan = Plan { trouble: Trouble::Crashes, mode: Mode::Cache, ..Plan::new(1, None) };
        let mut excused = Excused::default();
        (0..100_000).for_each(|_| excused.expose(&plan));
        excused.note(Excuse::Unexplained);
        assert!(excused.overused().is_empty(), "{:?}", excused.overused());
        (0..100).for_each(|_| excused.note(Excuse::Unexplained));
        let over = excused.overused();
        assert!(over.len() == 1 && over[0].contains("Unexplained was needed 101 times"), "{over:?}");
    }
}
