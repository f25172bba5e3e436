//! Which faults the faulty device injects, and when: rules, each with a random stream of its own.
//!
//! Invariant: what a rule decides depends on the seed, on its place among the rules, and on the operations
//! that it matched; never on time, on addresses in memory, or on other rules.

use std::error::Error;
use std::fmt;
use std::io;
use std::ops::Range;
use std::time::Duration;

/// The kind of operation that a rule looks at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum On {
    /// Reads, writes and syncs alike.
    Any,
    /// Reads.
    Read,
    /// Writes.
    Write,
    /// Syncs; they have no place, so a rule's zone does not restrict them.
    Sync,
}

/// What goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// A read fails; the next one may succeed.
    ReadError,
    /// A write fails. As on a real device some of its sectors may have been written all the same.
    WriteError,
    /// A sync fails. What was written since the last one may be gone at a crash even if a later sync
    /// succeeds, as on systems that mark such data clean.
    SyncError,
    /// A sync is acknowledged and never happens.
    LostSync,
    /// A write fails for lack of space; nothing of it is written.
    NoSpace,
    /// A write is acknowledged and never happens.
    Lost,
    /// A write is acknowledged, and only some of its sectors happen.
    Torn,
    /// A write is acknowledged and happens at another place.
    Misdirected,
    /// A bit of what is read has flipped: on the medium, until it is written again.
    Rot,
    /// A bit of what is read has flipped on the way; the next read is good.
    Flicker,
    /// The operation takes this much longer, on the device's clock.
    Delay(On, Duration),
    /// The power fails during the operation, which itself may happen wholly, partly or not at all.
    Crash(On),
}

impl Fault {
    fn on(self) -> On {
        match self {
            Self::ReadError | Self::Rot | Self::Flicker => On::Read,
            Self::WriteError | Self::NoSpace | Self::Lost | Self::Torn | Self::Misdirected => On::Write,
            Self::SyncError | Self::LostSync => On::Sync,
            Self::Delay(on, _) | Self::Crash(on) => on,
        }
    }
}

/// When a rule's fault happens, counted in operations that the rule matches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum When {
    Rate(f64),
    Nth(u64),
    Since(u64),
}

/// One fault, when it happens, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Rule {
    fault: Fault,
    when: When,
    zone: Range<u64>,
}

impl Rule {
    /// `fault` happens to each operation of its kind with this probability, from 0 to 1.
    #[must_use]
    pub const fn rate(fault: Fault, probability: f64) -> Self {
        Self { fault, when: When::Rate(probability), zone: 0..u64::MAX }
    }

    /// `fault` happens once: to the `n`-th operation of its kind (from 1) after the rule is added.
    #[must_use]
    pub const fn nth(fault: Fault, n: u64) -> Self {
        Self { fault, when: When::Nth(n), zone: 0..u64::MAX }
    }

    /// `fault` happens to the `n`-th operation of its kind (from 1) after the rule is added, and to all that follow.
    #[must_use]
    pub const fn since(fault: Fault, n: u64) -> Self {
        Self { fault, when: When::Since(n), zone: 0..u64::MAX }
    }

    /// Looks only at operations that touch these bytes; flips bits only there.
    #[must_use]
    pub const fn within(mut self, zone: Range<u64>) -> Self {
        self.zone = zone;
        self
    }
}

/// A rule at work.
pub(crate) struct Armed {
    rule: Rule,
    random: Random,
    matched: u64,
    pub(crate) injected: u64,
}

impl Armed {
    pub(crate) fn new(rule: Rule, seed: u64, index: u64) -> Self {
        Self { rule, random: Random::new(seed, index + 1), matched: 0, injected: 0 }
    }

    pub(crate) fn fault(&self) -> Fault {
        self.rule.fault
    }

    /// Whether this operation is to suffer the rule's fault.
    pub(crate) fn fires(&mut self, on: On, range: &Range<u64>) -> bool {
        let wanted = self.rule.fault.on();
        let kind_matches = wanted == On::Any || wanted == on;
        if !kind_matches || (on != On::Sync && intersection(range, &self.rule.zone).is_empty()) {
            return false;
        }
        self.matched += 1;
        let fires = match self.rule.when {
            When::Rate(probability) => self.random.unit() < probability,
            When::Nth(n) => self.matched == n,
            When::Since(n) => self.matched >= n,
        };
        self.injected += u64::from(fires);
        fires
    }

    /// A byte of `range` inside the rule's zone, and a bit of it.
    pub(crate) fn pick_bit(&mut self, range: &Range<u64>) -> Option<(u64, u8)> {
        let both = intersection(range, &self.rule.zone);
        if both.is_empty() {
            return None;
        }
        let byte = both.start + self.random.below(both.end - both.start);
        Some((byte, 1 << self.random.below(8)))
    }
}

fn intersection(a: &Range<u64>, b: &Range<u64>) -> Range<u64> {
    a.start.max(b.start)..a.end.min(b.end)
}

/// A small generator (splitmix64) whose sequence will never change, so that a seed in a bug report keeps its
/// meaning.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64, stream: u64) -> Self {
        let mut random = Self(seed ^ stream.wrapping_mul(0xd134_2543_de82_ef95));
        // Apart from here on, however close the seeds and streams are.
        random.0 = random.next();
        random
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// From 0 to `bound - 1`; `bound` is not 0. Its bias is far below what a test could see.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// From 0 up to, not including, 1.
    pub(crate) fn unit(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1u64 << 53) as f64
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() >> 63 == 1
    }

    /// Some but not all of `sectors` (all, if there is only one): a head, a tail, or any mixture.
    pub(crate) fn tear(&mut self, sectors: usize) -> Vec<bool> {
        if sectors < 2 {
            return vec![true; sectors];
        }
        let cut = 1 + self.below(sectors as u64 - 1) as usize;
        let mut kept: Vec<bool> = match self.below(3) {
            0 => (0..sectors).map(|sector| sector < cut).collect(),
            1 => (0..sectors).map(|sector| sector >= cut).collect(),
            _ => (0..sectors).map(|_| self.coin()).collect(),
        };
        if kept.iter().all(|&is| is == kept[0]) {
            kept[cut] = !kept[cut];
        }
        kept
    }
}

/// The error of every call between a crash and [`FaultyDevice::revive`](crate::FaultyDevice::revive).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Crashed;

impl Crashed {
    /// Whether an error is, or was caused by, the crash.
    #[must_use]
    pub fn is(error: &io::Error) -> bool {
        let mut cause: Option<&(dyn Error + 'static)> = error.get_ref().map(|inner| inner as _);
        while let Some(error) = cause {
            // An `io::Error` shows its payload's source, not the payload: look inside.
            let inner = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
            if error.is::<Self>() || inner.is_some_and(|inner| inner.is::<Self>()) {
                return true;
            }
            cause = error.source();
        }
        false
    }
}

impl fmt::Display for Crashed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the device has crashed and was not revived")
    }
}

impl Error for Crashed {}

impl From<Crashed> for io::Error {
    fn from(crashed: Crashed) -> Self {
        Self::other(crashed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_generator_never_changes() {
        let mut random = Random::new(42, 1);
        let first: Vec<u64> = (0..3).map(|_| random.next()).collect();
        assert_eq!(first, GOLDEN);
    }

    const GOLDEN: [u64; 3] = [0xfb8f_e914_77c0_fe78, 0x7dc0_dc58_6409_6015, 0x8aa7_a195_b354_198f];

    #[test]
    fn a_tear_keeps_some_and_drops_some() {
        let mut random = Random::new(1, 1);
        for sectors in 2..40 {
            let kept = random.tear(sectors);
            assert!(kept.len() == sectors && kept.contains(&true) && kept.contains(&false));
        }
        assert_eq!(random.tear(1), [true]);
    }

    #[test]
    fn the_nth_fires_once_and_only_in_its_zone() {
        let mut armed = Armed::new(Rule::nth(Fault::WriteError, 2).within(100..200), 7, 0);
        let mut fires = |on, range: Range<u64>| armed.fires(on, &range);
        assert!(!fires(On::Write, 0..100));
        assert!(!fires(On::Write, 0..101));
        assert!(!fires(On::Read, 100..200));
        assert!(!fires(On::Write, 200..300));
        assert!(fires(On::Write, 199..300));
        assert!(!fires(On::Write, 199..300));
    }

    #[test]
    fn a_rate_is_about_kept() {
        let mut armed = Armed::new(Rule::rate(Fault::ReadError, 0.1), 7, 0);
        let fired = (0..10_000).filter(|_| armed.fires(On::Read, &(0..1))).count();
        assert!((800..1200).contains(&fired), "{fired}");
        let mut never = Armed::new(Rule::rate(Fault::ReadError, 0.0), 7, 0);
        assert!(!(0..1000).any(|_| never.fires(On::Read, &(0..1))));
        let mut always = Armed::new(Rule::rate(Fault::ReadError, 1.0), 7, 0);
        assert!((0..1000).all(|_| always.fires(On::Read, &(0..1))));
    }

    #[test]
    fn a_crash_is_recognised_also_inside_another_error() {
        assert!(Crashed::is(&Crashed.into()));
        assert!(Crashed::is(&io::Error::other(io::Error::from(Crashed))));
        assert!(!Crashed::is(&io::Error::other("else")));
    }
}
