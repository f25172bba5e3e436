//! What the store must, may and must not answer.
//!
//! Every key has a history of versions: puts and deletes in the order in which they were acknowledged. Of that
//! history a *live* range is what a get may show now: one version, unless an operation failed half way or a
//! crash has come; and the *floor* is the newest version known to be durable. A crash makes everything from
//! the floor on possible; the first look afterwards decides, and what it rules out never comes back.
//!
//! Invariants: `floor <= low <= high < versions.len()`; version 0 is the absence before the first put.

use crate::dice::bytes_of;

/// A version's value: what was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Value {
    /// From which body and metadata follow.
    pub(crate) id: u64,
    /// Bytes of body.
    pub(crate) len: usize,
    /// Bytes of body that the metadata was chosen for.
    pub(crate) planned: usize,
    /// Milliseconds since the epoch, at the earliest; 0 is never.
    pub(crate) expires: u64,
    /// How many milliseconds later it may be: a store reads the clock for each object of many, and the clock may move
    /// between the first of them and the last.
    pub(crate) leeway: u64,
}

impl Value {
    /// The body that was put.
    #[must_use]
    pub(crate) fn body(&self) -> Vec<u8> {
        bytes_of(self.id, self.len)
    }

    /// The metadata that was put.
    #[must_use]
    pub(crate) fn metadata(&self) -> Vec<u8> {
        metadata_of(self.id, self.planned)
    }

    /// Whether it may have expired.
    fn is_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires <= now
    }

    /// Whether it has, whenever in the call the clock was read.
    fn must_be_expired(&self, now: u64) -> bool {
        self.expires != 0 && self.expires + self.leeway <= now
    }

    fn is(&self, seen: &Seen) -> bool {
        self.len == seen.body.len() && self.metadata() == seen.metadata && self.body() == seen.body
    }
}

/// The metadata of a version with a body of `body` bytes; the two together tell it from every other.
#[must_use]
pub(crate) fn metadata_of(id: u64, body: usize) -> Vec<u8> {
    let len = if body >= 8 && id.is_multiple_of(3) { 0 } else { 8 + id as usize % 50 };
    bytes_of(!id, len)
}

/// What a get brought.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Seen {
    /// Its body.
    pub(crate) body: Vec<u8>,
    /// Its metadata.
    pub(crate) metadata: Vec<u8>,
}

struct Version {
    /// `None` for a delete.
    value: Option<Value>,
    /// The store said that it left.
    gone: bool,
    /// A crash took it, and that was seen: it must not return.
    lost: bool,
    /// It was past its expiry before the clock was set back: it may be there, and may have left.
    outlived: bool,
}

impl Version {
    fn new(value: Option<Value>) -> Self {
        Self { value, gone: false, lost: false, outlived: false }
    }

    /// Whether there may be nothing to see of it.
    fn may_be_absent(&self, now: u64) -> bool {
        self.outlived || self.value.is_none_or(|value| value.is_expired(now))
    }
}

struct History {
    versions: Vec<Version>,
    low: usize,
    high: usize,
    floor: usize,
    /// It was asked for and did not come, and what came of it was let pass.
    missed: bool,
}

impl History {
    fn new() -> Self {
        Self { versions: vec![Version::new(None)], low: 0, high: 0, floor: 0, missed: false }
    }

    fn push(&mut self, value: Option<Value>, certain: bool) -> usize {
        self.versions.push(Version::new(value));
        self.missed = false;
        self.high = self.versions.len() - 1;
        if certain {
            self.low = self.high;
        }
        self.high
    }

    fn live(&self) -> impl Iterator<Item = (usize, &Version)> {
        let all = self.versions[self.low..=self.high].iter().enumerate();
        all.map(|(at, version)| (at + self.low, version)).filter(|(_, version)| !version.lost)
    }

    /// This version it is: whatever was above is lost.
    fn settle(&mut self, at: usize, after_crash: bool) {
        for version in &mut self.versions[at + 1..] {
            version.lost = true;
        }
        (self.low, self.high) = (at, at);
        if after_crash {
            self.floor = self.floor.max(at);
        }
    }
}

/// Something whose durability was promised for a time, or for a number of further operations.
struct Promise {
    key: usize,
    version: usize,
    /// Clock nanoseconds.
    due: Option<u64>,
    /// Which count it falls under.
    counts: Counts,
}

/// What limits how many may be volatile at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Counts {
    /// The bound on puts.
    Put,
    /// The bound on deletes.
    Delete,
    /// Nothing.
    No,
}

/// What the oracle thinks of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// As it must be.
    Right,
    /// A version that was put, but that must not be shown any more; with what it is.
    Stale(String),
    /// Bytes that were never put under this key, or nothing where there must be something.
    Wrong(String),
}

/// The histories of all keys.
pub(crate) struct Oracle {
    keys: Vec<History>,
    promises: Vec<Promise>,
    /// How many versions of each key the last crash found, until a look decides: what of them is seen is durable.
    crashed: Vec<usize>,
}

impl Oracle {
    /// Nothing was put under any of `keys` keys.
    #[must_use]
    pub(crate) fn new(keys: usize) -> Self {
        let histories = (0..keys).map(|_| History::new()).collect();
        Self { keys: histories, promises: Vec::new(), crashed: vec![0; keys] }
    }

    /// A put (or, without value, a delete) returned: it has happened if `certain`, else it may have. Returns the
    /// number of the version.
    pub(crate) fn happened(&mut self, key: usize, value: Option<Value>, certain: bool) -> usize {
        if certain {
            self.crashed[key] = 0;
        }
        self.keys[key].push(value, certain)
    }

    /// This version will be durable by then, or once so many more have followed.
    pub(crate) fn promise(&mut self, key: usize, version: usize, due: Option<u64>, counts: Counts) {
        self.promises.push(Promise { key, version, due, counts });
    }

    /// This version is durable.
    pub(crate) fn durable(&mut self, key: usize, version: usize) {
        let history = &mut self.keys[key];
        history.floor = history.floor.max(version);
    }

    /// The daemons ran at this time: what was due is durable.
    pub(crate) fn daemons_ran(&mut self, now: u64) {
        self.keep_promises(|promise| promise.due.is_some_and(|due| due <= now));
    }

    /// At most `most` of these may be volatile: the older ones are durable.
    pub(crate) fn at_most(&mut self, counts: Counts, most: u64) {
        let all = self.promises.iter().filter(|promise| promise.counts == counts).count() as u64;
        let mut over = all.saturating_sub(most);
        self.keep_promises(|promise| {
            let kept = promise.counts == counts && over > 0;
            over -= u64::from(kept);
            kept
        });
    }

    fn keep_promises(&mut self, mut kept: impl FnMut(&Promise) -> bool) {
        for promise in std::mem::take(&mut self.promises) {
            if kept(&promise) {
                self.durable(promise.key, promise.version);
            } else {
                self.promises.push(promise);
            }
        }
    }

    /// Everything that certainly happened is durable.
    pub(crate) fn all_durable(&mut self) {
        self.promises.clear();
        for history in &mut self.keys {
            history.floor = history.floor.max(history.low);
        }
    }

    /// The power failed, or the process was killed.
    pub(crate) fn crash(&mut self) {
        self.promises.clear();
        for (history, crashed) in self.keys.iter_mut().zip(&mut self.crashed) {
            history.low = history.floor;
            history.high = history.versions.len() - 1;
            *crashed = history.versions.len();
        }
    }

    /// Nothing is known any more of what is durable: the devices lie.
    pub(crate) fn distrust(&mut self) {
        for history in &mut self.keys {
            (history.low, history.floor) = (0, 0);
            history.high = history.versions.len() - 1;
            history.versions.iter_mut().for_each(|version| version.lost = false);
        }
    }

    /// The store said that this key's object left.
    pub(crate) fn left(&mut self, key: usize) {
        let history = &mut self.keys[key];
        for version in &mut history.versions[history.low..=history.high] {
            version.gone = true;
        }
    }

    /// The store said that it started empty.
    pub(crate) fn all_left(&mut self) {
        (0..self.keys.len()).for_each(|key| self.left(key));
    }

    /// This key was asked for and did not come, and that is let pass. Whether it is the same loss as before: nothing
    /// was seen of it or put since.
    pub(crate) fn is_missed_again(&mut self, key: usize) -> bool {
        std::mem::replace(&mut self.keys[key].missed, true)
    }

    /// Something was seen of this key.
    pub(crate) fn found(&mut self, key: usize) {
        self.keys[key].missed = false;
    }

    /// Whether a get of this key must bring something. `may_leave`: objects leave this store by themselves.
    #[must_use]
    pub(crate) fn must_be_there(&self, key: usize, now: u64, may_leave: bool) -> bool {
        let may_lack = |version: &Version| version.may_be_absent(now) || may_leave && version.gone;
        !self.keys[key].live().any(|(_, version)| may_lack(version))
    }

    /// Whether it is not known which of several versions of this key there is.
    #[must_use]
    pub(crate) fn is_open(&self, key: usize) -> bool {
        self.keys[key].live().nth(1).is_some()
    }

    /// The clock is about to be set back: what is past its expiry may have left, whatever the clock will say.
    pub(crate) fn outlived(&mut self, now: u64) {
        for version in self.keys.iter_mut().flat_map(|history| &mut history.versions) {
            version.outlived |= version.value.is_some_and(|value| value.is_expired(now));
        }
    }

    /// Whether a version that may be there was past its expiry before the clock was set back.
    #[must_use]
    pub(crate) fn has_outlived(&self, key: usize) -> bool {
        self.keys[key].live().any(|(_, version)| version.outlived)
    }

    /// A version of this key that must not be seen any more, as if it were; for a canary.
    #[must_use]
    pub(crate) fn replaced(&self, key: usize) -> Option<Seen> {
        let history = &self.keys[key];
        let value = history.versions[..history.low].iter().rev().find_map(|version| version.value)?;
        Some(Seen { body: value.body(), metadata: value.metadata() })
    }

    /// Whether a crash took what had replaced the version of this key that there is now.
    #[must_use]
    pub(crate) fn lost_replacement(&self, key: usize) -> bool {
        let history = &self.keys[key];
        history.versions[history.high + 1..].iter().any(|version| version.lost)
    }

    /// Whether a version of this key left before the ones that may be there now.
    #[must_use]
    pub(crate) fn had_left(&self, key: usize) -> bool {
        let history = &self.keys[key];
        history.versions[..history.low].iter().any(|version| version.gone && version.value.is_some())
    }

    /// Whether the value that must be there is longer than this.
    #[must_use]
    pub(crate) fn is_longer(&self, key: usize, than: usize) -> bool {
        self.keys[key].live().any(|(_, version)| version.value.is_some_and(|value| value.len > than))
    }

    /// A get brought nothing. `final_word`: a store does not find later what it has not found now.
    pub(crate) fn saw_nothing(&mut self, key: usize, now: u64, final_word: bool) {
        let history = &mut self.keys[key];
        let mut absent = history.live().filter(|(_, version)| version.may_be_absent(now)).map(|(at, _)| at);
        if let (Some(at), None, true) = (absent.next(), absent.next(), final_word) {
            drop(absent);
            history.settle(at, at < self.crashed[key]);
            self.crashed[key] = 0;
        }
    }

    /// Judges what a get brought, and takes note of it.
    pub(crate) fn saw(&mut self, key: usize, seen: &Seen, now: u64) -> Verdict {
        let (verdict, found) = self.judge(key, seen, now);
        if let Some(at) = found {
            self.keys[key].settle(at, at < self.crashed[key]);
            self.crashed[key] = 0;
        }
        verdict
    }

    /// Judges what a get brought, and takes no note of it.
    pub(crate) fn glanced(&self, key: usize, seen: &Seen, now: u64) -> Verdict {
        self.judge(key, seen, now).0
    }

    /// What to think of it, and which version it is if that is right.
    fn judge(&self, key: usize, seen: &Seen, now: u64) -> (Verdict, Option<usize>) {
        let history = &self.keys[key];
        let fits = |version: &Version| version.value.is_some_and(|value| value.is(seen));
        let found = history.live().filter(|(_, version)| fits(version)).map(|(at, _)| at).last();
        if let Some(at) = found {
            if history.versions[at].value.is_some_and(|value| value.must_be_expired(now)) {
                return (Verdict::Wrong(format!("version {at}, which is past its expiry")), None);
            }
            return (Verdict::Right, Some(at));
        }
        let (low, high, floor) = (history.low, history.high, history.floor);
        if let Some(at) = history.versions.iter().rposition(fits) {
            let what = match history.versions[at].lost {
                true => "which a crash had taken",
                false => "which was replaced or deleted",
            };
            return (Verdict::Stale(format!("version {at}, {what} (live {low}..={high}, durable {floor})")), None);
        }
        let other = self.keys.iter().position(|history| history.versions.iter().any(fits));
        let what = match other {
            Some(other) if !seen.body.is_empty() => format!("the bytes of key {other}"),
            _ => format!("{} bytes that nobody put (live {low}..={high})", seen.body.len()),
        };
        (Verdict::Wrong(what), None)
    }

    /// What a get of this key should bring, in words.
    #[must_use]
    pub(crate) fn expected(&self, key: usize) -> String {
        let word = |(at, version): (usize, &Version)| match version.value {
            Some(value) => format!("version {at} (put {}, {} bytes)", value.id, value.len),
            None => format!("nothing ({at})"),
        };
        let all: Vec<String> = self.keys[key].live().map(word).collect();
        format!("{}; durable {}", all.join(" or "), self.keys[key].floor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn value(id: u64) -> Option<Value> {
        Some(Value { id, len: 100, planned: 100, expires: 0, leeway: 0 })
    }

    fn seen(id: u64) -> Seen {
        Seen { body: bytes_of(id, 100), metadata: metadata_of(id, 100) }
    }

    #[test]
    fn a_crash_makes_everything_from_the_floor_on_possible_and_one_look_decides() {
        let mut oracle = Oracle::new(2);
        oracle.happened(0, value(1), true);
        let second = oracle.happened(0, value(2), true);
        oracle.durable(0, second);
        oracle.happened(0, value(3), true);
        oracle.happened(0, value(4), true);
        assert!(matches!(oracle.saw(0, &seen(3), 0), Verdict::Stale(_)));
        oracle.crash();
        assert!(matches!(oracle.saw(0, &seen(1), 0), Verdict::Stale(_)));
        assert!(!oracle.lost_replacement(0));
        assert_eq!(oracle.saw(0, &seen(3), 0), Verdict::Right);
        assert!(oracle.lost_replacement(0) && !oracle.lost_replacement(1));
        oracle.crash();
        assert!(matches!(oracle.saw(0, &seen(4), 0), Verdict::Stale(_)));
        assert!(matches!(oracle.saw(0, &seen(2), 0), Verdict::Stale(_)));
        assert!(matches!(oracle.saw(1, &seen(2), 0), Verdict::Wrong(_)));
    }

    #[test]
    fn a_loss_is_one_until_something_is_seen_or_put() {
        let mut oracle = Oracle::new(1);
        oracle.happened(0, value(1), true);
        assert!(!oracle.is_missed_again(0) && oracle.is_missed_again(0));
        oracle.found(0);
        assert!(!oracle.is_missed_again(0) && oracle.is_missed_again(0));
        oracle.happened(0, value(2), true);
        assert!(!oracle.is_missed_again(0));
        assert!(oracle.must_be_there(0, 0, true));
        oracle.all_left();
        assert!(!oracle.must_be_there(0, 0, true));
    }

    #[test]
    fn what_left_is_told_from_what_replaced_it() {
        let mut oracle = Oracle::new(1);
        oracle.happened(0, value(1), true);
        oracle.left(0);
        assert!(!oracle.must_be_there(0, 0, true) && !oracle.had_left(0));
        oracle.happened(0, value(2), true);
        assert!(oracle.must_be_there(0, 0, true) && oracle.had_left(0));
    }

    #[test]
    fn what_may_have_expired_may_be_there_or_not_until_it_must_have() {
        let mut oracle = Oracle::new(1);
        oracle.happened(0, value(1).map(|value| Value { expires: 50, leeway: 10, ..value }), true);
        assert!(oracle.must_be_there(0, 49, false) && !oracle.must_be_there(0, 50, false));
        assert_eq!(oracle.saw(0, &seen(1), 59), Verdict::Right);
        assert!(matches!(oracle.saw(0, &seen(1), 60), Verdict::Wrong(_)));
    }

    #[test]
    fn a_durable_delete_stays() {
        let mut oracle = Oracle::new(1);
        oracle.happened(0, value(1), true);
        oracle.happened(0, None, true);
        oracle.crash();
        assert!(!oracle.must_be_there(0, 0, false));
        assert_eq!(oracle.saw(0, &seen(1), 0), Verdict::Right);
        oracle.happened(0, None, true);
        oracle.all_durable();
        oracle.crash();
        assert!(matches!(oracle.saw(0, &seen(1), 0), Verdict::Stale(_)));
    }

    #[test]
    fn promises_are_kept_by_time_and_by_number() {
        let mut oracle = Oracle::new(1);
        for id in 1..=4 {
            let version = oracle.happened(0, value(id), true);
            oracle.promise(0, version, Some(id * 10), Counts::Put);
        }
        oracle.daemons_ran(15);
        assert_eq!(oracle.keys[0].floor, 1);
        oracle.at_most(Counts::Put, 1);
        assert_eq!(oracle.keys[0].floor, 3);
    }
}
