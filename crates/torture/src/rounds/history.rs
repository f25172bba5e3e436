//! What a store may answer: the history of each key, by the times at which its versions began and were acknowledged.
//!
//! Two versions are in order if the one was acknowledged before the other began; else either may be the later one. A
//! get may bring a version unless another that is after it was acknowledged before the get began. A kill leaves what no
//! durable version is after: these are *possible*, and the first look decides among them, for good. In a store nothing
//! is missing that must be there; in a cache that is an excuse, and is counted like every other one.

use super::{
    body::name,
    durable::{Deeds, NEVER},
    log::{How, Record, What},
    tally::{Excuse, Rounds},
};
use std::time::Duration;

/// The history of one key.
#[derive(Clone, Debug)]
pub(super) struct History {
    /// What may be there after the last kill; version 0 is nothing.
    possible: Vec<(u32, Excuse)>,
    /// Whether it was looked at since.
    seen: bool,
    /// The last of what was done: life and record.
    trail: Vec<(u32, Record)>,
}

/// How much of the trail is kept.
const TRAIL: usize = 24;

/// The version that is there when a deed is done.
fn left_by(deed: &Record) -> u32 {
    if deed.what == What::Delete { 0 } else { deed.version }
}

fn end(deed: &Record) -> u64 {
    if deed.how == How::Begun { NEVER } else { deed.end }
}

impl History {
    /// Nothing was put.
    pub(super) fn new() -> Self {
        Self { possible: vec![(0, Excuse::None)], seen: false, trail: Vec::new() }
    }

    /// Whether something must be there.
    pub(super) fn is_due(&self) -> bool {
        self.possible.iter().all(|(version, _)| *version != 0)
    }

    /// Judges what a get brought after these deeds of the same life, and takes note of it. `leaves`: objects leave by
    /// themselves.
    ///
    /// # Errors
    /// What was to be expected.
    pub(super) fn saw(
        &mut self,
        get: &Record,
        deeds: &[Record],
        leaves: bool,
        tally: &mut Rounds,
    ) -> Result<(), String> {
        let before = |deed: &&Record| deed.how == How::Done && deed.end <= get.start;
        let replaced = deeds.iter().any(|deed| before(&deed));
        let may_show = |deed: &&Record| {
            let after = |other: &Record| before(&other) && other.start >= end(deed);
            deed.start < get.end && !deeds.iter().any(after)
        };
        let shown: Vec<&Record> = deeds.iter().filter(may_show).collect();
        let is_from_before = !replaced && self.possible.iter().any(|(version, _)| *version == get.version);
        let is_from_now = shown.iter().any(|deed| left_by(deed) == get.version);
        let nothing_is_right = !replaced && !self.is_due() || shown.iter().any(|deed| left_by(deed) == 0);
        tally.gets += 1;
        tally.due += u64::from(!nothing_is_right);
        if is_from_now || is_from_before {
            tally.at_once += u64::from(is_from_now && shown.len() > 1);
            let settles = get.version != 0 || !leaves && !deeds.iter().any(|deed| deed.start < get.end);
            if is_from_before && settles {
                self.settle(get.version, tally);
            }
            return Ok(());
        }
        if get.version == 0 && leaves {
            tally.left += 1;
            return Ok(());
        }
        let mut may: Vec<u32> = shown.iter().map(|deed| left_by(deed)).collect();
        if !replaced {
            may.extend(self.possible.iter().map(|(version, _)| *version));
        }
        may.sort_unstable();
        may.dedup();
        Err(may.into_iter().map(name).collect::<Vec<_>>().join(" or "))
    }

    /// A look has decided.
    fn settle(&mut self, version: u32, tally: &mut Rounds) {
        if !self.seen {
            for (possible, excuse) in &self.possible {
                if *possible == version {
                    tally.excused(*excuse);
                }
            }
        }
        self.seen = true;
        self.possible = vec![(version, Excuse::None)];
    }

    /// The child is dead: what it did to this key is what it is, and `durable` of it stays.
    pub(super) fn died(&mut self, life: u32, mine: &[Record], all: &Deeds<'_>, grace: Duration) {
        let durable = |grace| {
            let durable = mine.iter().filter(|deed| all.is_durable(deed, grace));
            durable.copied().collect::<Vec<Record>>()
        };
        let (sure, late) = (durable(grace), durable(Duration::ZERO));
        let is_after = |end: u64| move |deed: &Record| deed.start >= end;
        let mut possible: Vec<(u32, Excuse)> = Vec::new();
        let mut add = |version: u32, end: u64, excuse: Excuse| {
            if sure.iter().any(is_after(end)) {
                return;
            }
            let excuse = match excuse {
                _ if late.iter().any(is_after(end)) => Excuse::Late,
                excuse if mine.iter().any(|deed| deed.how == How::Done && deed.start >= end) => {
                    excuse.max(Excuse::Volatile)
                }
                excuse => excuse,
            };
            match possible.iter_mut().find(|(other, _)| *other == version) {
                Some((_, other)) => *other = excuse.min(*other),
                None => possible.push((version, excuse)),
            }
        };
        for (version, excuse) in &self.possible {
            add(*version, 0, *excuse);
        }
        for deed in mine {
            let excuse = if deed.how == How::Done { Excuse::None } else { Excuse::InFlight };
            add(left_by(deed), end(deed), excuse);
        }
        self.possible = possible;
        self.seen &= mine.is_empty();
        self.trail.extend(mine.iter().map(|deed| (life, *deed)));
        let over = self.trail.len().saturating_sub(TRAIL);
        self.trail.drain(..over);
    }

    /// The last of what was done, for a report: lives before, then this one's.
    pub(super) fn trail(&self, life: u32, mine: &[Record], get: &Record) -> String {
        let here = mine.iter().filter(|deed| deed.start < get.end).map(|deed| (life, *deed));
        let all: Vec<_> = self.trail.iter().copied().chain(here).collect();
        let lines = all[all.len().saturating_sub(TRAIL)..].iter().map(|(life, deed)| {
            let ago = |time: u64| (get.start as f64 - time as f64) / 1e6;
            let end = if deed.how == How::Begun { "-".into() } else { format!("{:.3}", ago(deed.end)) };
            let (what, version) = (deed.what, name(deed.version));
            format!(
                "    life {life}: {what:?} {version} {:?}, from {:.3} to {end} ms before",
                deed.how,
                ago(deed.start)
            )
        });
        lines.collect::<Vec<_>>().join("\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rounds::{setup::Setup, wish::Wish};

    fn deed(what: What, version: u32, start: u64, end: u64) -> Record {
        let how = if end == NEVER { How::Begun } else { How::Done };
        Record { start, end, how, ..Record::begun(what, 1, version) }
    }

    fn get(version: u32, start: u64) -> Record {
        deed(What::Get, version, start, start + 1)
    }

    /// Whether a get may bring each of these versions, asked one by one of the same history.
    fn may(history: &History, deeds: &[Record], at: u64, leaves: bool, versions: &[u32]) -> Vec<bool> {
        let ask =
            |version: &u32| history.clone().saw(&get(*version, at), deeds, leaves, &mut Rounds::default()).is_ok();
        versions.iter().map(ask).collect()
    }

    fn died(history: &mut History, mine: &[Record], durability: &str, killed: u64) {
        let mut wish = Wish { preset: Some("picaflor"), places: Some(1), delete_count: Some(9), ..Wish::default() };
        let _ = wish.take("--durability", &mut [durability.to_owned()].into_iter());
        let setup = Setup { delete_time: Duration::from_millis(1), ..Setup::new(3, &wish) };
        history.died(1, mine, &Deeds { setup: &setup, records: mine, killed }, Duration::from_millis(1));
    }

    #[test]
    fn a_get_brings_what_no_other_is_after() {
        let deeds = [deed(What::Put, 5, 10, 20), deed(What::Put, 6, 30, 40), deed(What::Put, 7, 35, 45)];
        let history = History::new();
        assert_eq!(may(&history, &deeds, 22, false, &[0, 5, 6]), [false, true, false]);
        assert_eq!(may(&history, &deeds, 35, false, &[0, 5, 6, 7]), [false, true, true, true]);
        assert_eq!(may(&history, &deeds, 50, false, &[0, 5, 6, 7]), [false, false, true, true]);
        assert_eq!(may(&history, &deeds, 50, true, &[0, 5]), [true, false], "a cache may have lost it");
        assert_eq!(may(&history, &[], 50, false, &[0, 5]), [true, false]);
    }

    #[test]
    fn after_a_kill_it_is_what_was_durable_or_came_later_and_one_look_decides() {
        let mut history = History::new();
        let deeds = [deed(What::Put, 5, 10, 20), deed(What::Put, 6, 30, 40), deed(What::Put, 7, 50, NEVER)];
        died(&mut history, &deeds, "every-put", 60);
        assert_eq!(may(&history, &[], 70, false, &[0, 5, 6, 7]), [false, false, true, true]);
        let mut tally = Rounds::default();
        assert!(history.saw(&get(7, 70), &[], false, &mut tally).is_ok());
        assert_eq!(tally.in_flight, 1);
        assert_eq!(may(&history, &[], 80, false, &[6, 7]), [false, true]);
        died(&mut history, &[], "none", 90);
        assert_eq!(may(&history, &[], 95, false, &[0, 6, 7]), [false, false, true]);
    }

    #[test]
    fn what_is_volatile_may_be_lost_and_what_is_late_is_told_apart() {
        let millis = 1_000_000;
        let mut history = History::new();
        let deeds = [deed(What::Put, 5, 10, 20), deed(What::Delete, 6, 30, 40)];
        died(&mut history, &deeds, "none", 5 * millis);
        assert_eq!(may(&history, &[], 6 * millis, false, &[0, 5]), [true, false], "the delete is durable by time");
        let mut history = History::new();
        died(&mut history, &deeds, "none", 3 * millis / 2);
        assert_eq!(history.possible, [(0, Excuse::None), (5, Excuse::Late)]);
    }
}
