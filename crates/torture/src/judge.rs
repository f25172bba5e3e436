//! Gets, and what the oracle says of their answers.

use picaflor::{Error, Object, Result};

use crate::{
    excuse::Excuse,
    oracle::{Seen, Verdict},
    plan::Trouble,
    report::tracing,
    sabotage::Sabotage,
    state::{Outcome, Run, Weight},
};

/// Objects of a cache that may be missing without a word in one run: two keys, or pieces of large objects, that
/// share a place in its index. The chance is below one in 10,000 for each.
const UNEXPLAINED: u64 = 1;

/// Whether a get must bring something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// It must.
    Must,
    /// It would have to, but for this.
    Excused(Excuse),
    /// There need be nothing.
    No,
}

impl Run<'_> {
    /// Gets every key.
    pub(crate) fn sweep(&mut self) -> Outcome {
        for key in 0..self.plan.keys.len() {
            if self.has_crashed() {
                break;
            }
            self.get(key)?;
        }
        Ok(())
    }

    pub(crate) fn get(&mut self, key: usize) -> Outcome {
        let Some(store) = &self.store else { return Ok(()) };
        if self.sabotage == Sabotage::LoseObjects && self.tally.gets.is_multiple_of(97) {
            // Behind the oracle's back.
            let _ = store.delete(&self.plan.keys[key]);
        }
        let (began, answer) = (self.now(), store.get(&self.plan.keys[key]));
        self.judge(key, answer, began)
    }

    /// Judges the answer to a get that began at this time: what expires while the device is waited for may be there.
    pub(crate) fn judge(&mut self, key: usize, answer: Result<Option<Object>>, began: u64) -> Outcome {
        self.tally.gets += 1;
        let now = self.now();
        let due = self.due(key, now);
        self.tally.due += u64::from(due == Due::Must);
        let seen = match answer {
            Ok(None) => Ok(None),
            Ok(Some(object)) if object.key() != self.plan.keys[key] => {
                let found = format!("the object of {:?}", String::from_utf8_lossy(object.key()));
                return Err(self.violation(self.oracle.expected(key), found));
            }
            Ok(Some(object)) => {
                let metadata = object.metadata().to_vec();
                object.body().map(|body| Some(Seen { body: body.to_vec(), metadata }))
            }
            Err(error) => Err(error),
        };
        self.note_departures();
        match seen.map(|seen| self.distort(key, seen)) {
            Ok(Some(seen)) => self.judge_object(key, seen, began),
            Ok(None) => match self.due(key, now) {
                Due::Must if due == Due::Must => self.missing(key, "nothing".into()),
                now_due => {
                    if let Due::Excused(excuse) = now_due {
                        self.excuse(key, excuse, "nothing");
                    }
                    let final_word = !self.is_cache() && self.plan.is_honest() && !self.has_crashed();
                    if self.looking != Some(Weight::Glance) {
                        self.oracle.saw_nothing(key, now, final_word);
                    }
                    Ok(())
                }
            },
            Err(error) => self.judge_error(key, due == Due::Must, &error),
        }
    }

    /// What the look of a canary shows instead of the answer.
    fn distort(&self, key: usize, seen: Option<Seen>) -> Option<Seen> {
        match (self.sabotage, &seen) {
            (Sabotage::ReplacedReadOnly, Some(_)) | (Sabotage::DeletedReadOnly, None) if self.looking.is_some() => {
                self.oracle.replaced(key).or(seen)
            }
            _ => seen,
        }
    }

    fn judge_object(&mut self, key: usize, mut seen: Seen, began: u64) -> Outcome {
        self.tally.hits += 1;
        self.oracle.found(key);
        match self.sabotage {
            Sabotage::FlipByte if self.tally.hits.is_multiple_of(50) => {
                seen.body.iter_mut().take(1).for_each(|byte| *byte ^= 1);
            }
            Sabotage::OveruseExcuse if self.tally.hits.is_multiple_of(7) => {
                self.tally.excused.note(Excuse::Twin);
                return Ok(());
            }
            _ => {}
        }
        let expected = self.oracle.expected(key);
        let verdict = match self.looking {
            Some(Weight::Glance) => self.oracle.glanced(key, &seen, began),
            _ => self.oracle.saw(key, &seen, began),
        };
        match (verdict, self.stale_excuse()) {
            (Verdict::Right, _) => Ok(()),
            (Verdict::Stale(_), Some(excuse)) => {
                self.excuse(key, excuse, "an older version");
                Ok(())
            }
            (Verdict::Stale(found) | Verdict::Wrong(found), _) => Err(self.violation(expected, found)),
        }
    }

    /// Why an older version may be seen.
    fn stale_excuse(&self) -> Option<Excuse> {
        // A device that failed keeps what it had: when it comes back, so may a version that was replaced or
        // deleted meanwhile on the others. Only a store of one device is held to more.
        let left_behind = self.plan.trouble == Trouble::Failing && self.plan.volumes > 1 && !self.is_cache();
        match self.plan.trouble {
            Trouble::Lying => Some(Excuse::StaleOfLies),
            _ if self.doubtful => Some(Excuse::StaleOfDamage),
            _ => left_behind.then_some(Excuse::LeftBehind),
        }
    }

    /// A get or the reading of a body failed.
    fn judge_error(&mut self, key: usize, must: bool, error: &Error) -> Outcome {
        if self.has_crashed() {
            return Ok(());
        }
        if must && self.looks_sound() {
            return self.missing(key, error.to_string());
        }
        // One that was cut may have lost a piece: on a device that is not honest; or past its expiry, before the clock
        // was set back.
        let outlived = self.oracle.has_outlived(key);
        let in_pieces = outlived || !self.plan.is_honest() && self.oracle.is_longer(key, self.plan.piece());
        let is_damage = matches!(error, Error::Damaged { .. });
        // What a device refuses to read is not called damaged, and what it read is not called refused.
        let may_fail = match self.plan.trouble {
            Trouble::Lying => true,
            Trouble::Damage => self.damaged && is_damage,
            Trouble::Failing => !is_damage,
            Trouble::Crashes => false,
        };
        let excuse = match (may_fail, is_damage && in_pieces) {
            (true, _) => Excuse::FailedGet,
            (false, true) => Excuse::Piece,
            (false, false) => return Err(self.violation(self.oracle.expected(key), error.to_string())),
        };
        // One page of an index may be behind the failure of all its keys.
        if let (Excuse::FailedGet, Error::Damaged { place, .. }) = (excuse, error)
            && !self.named.insert(place.clone())
        {
            return Ok(());
        }
        self.excuse(key, excuse, &error.to_string());
        Ok(())
    }

    /// Lets an answer pass. What is asked for again, and was not seen or put since, is the same loss. Before it is
    /// known whether a cache started empty, which explains them all, losses wait.
    fn excuse(&mut self, key: usize, excuse: Excuse, found: &str) {
        let again = excuse.is_of_loss() && self.oracle.is_missed_again(key);
        if tracing() {
            println!("       key {key}, {excuse:?}{}: {found}", if again { " again" } else { "" });
        }
        let is_open = self.is_cache() && (self.receipt_due || self.looking.is_some());
        match excuse {
            _ if again => {}
            Excuse::Piece if self.may_lose_unheard() => {}
            _ if excuse.is_of_loss() && is_open => self.losses.push(excuse),
            _ => self.tally.excused.note(excuse),
        }
    }

    /// The store has said whether it started empty, or never will.
    pub(crate) fn settle_losses(&mut self, started_empty: bool) {
        let losses = std::mem::take(&mut self.losses);
        if !started_empty {
            losses.into_iter().for_each(|excuse| self.tally.excused.note(excuse));
            return;
        }
        self.tally.excused.note(Excuse::ColdStart);
        // Of several devices the others have what they had.
        if self.plan.volumes == 1 {
            self.oracle.all_left();
        }
    }

    fn missing(&mut self, key: usize, found: String) -> Outcome {
        let name = String::from_utf8_lossy(&self.plan.keys[key]);
        if self.is_cache() {
            self.tally.excused.note(Excuse::Unexplained);
            if tracing() {
                println!("       key {key} is missing without a word: {}", self.oracle.expected(key));
            }
            if self.tally.excused.uses(Excuse::Unexplained) <= UNEXPLAINED {
                self.oracle.left(key);
                return Ok(());
            }
        }
        Err(self.violation(format!("key {key} ({name}): {}", self.oracle.expected(key)), found))
    }

    pub(crate) fn contains(&mut self, key: usize) -> Outcome {
        let Some(store) = self.store.clone() else { return Ok(()) };
        let must = self.due(key, self.now()) == Due::Must;
        let answer = store.contains(&self.plan.keys[key]);
        self.note_departures();
        match answer {
            // Not if it expired while the device was waited for.
            Ok(false) if must && self.due(key, self.now()) == Due::Must && !self.has_crashed() => {
                self.missing(key, "contains says no".into())
            }
            Ok(true) => self.get(key),
            Ok(false) => Ok(()),
            Err(error) => self.judge_error(key, must, &error),
        }
    }

    /// A part of a body must be that part of some version that the whole body shows as well.
    pub(crate) fn range(&mut self, key: usize, from: u64, len: u64) -> Outcome {
        let Some(store) = self.store.clone() else { return Ok(()) };
        let (began, answer) = (self.now(), store.get(&self.plan.keys[key]));
        if let Ok(Some(object)) = &answer {
            let part: Result<Vec<_>> = object.chunks(from..from + len).collect();
            if let (Ok(part), Ok(all)) = (part, object.body()) {
                let start = (from as usize).min(all.len());
                let end = ((from + len) as usize).min(all.len());
                if part.concat() != all[start..end] {
                    return Err(self.violation("a part of the body", format!("{} other bytes", part.concat().len())));
                }
            }
        }
        self.judge(key, answer, began)
    }

    /// Whether what is missing may have left without a word.
    fn may_lose_unheard(&self) -> bool {
        self.plan.deaf && self.is_cache()
    }

    /// Whether a get must bring something: always in a store on an honest device, in a cache unless the object
    /// left or may have been pushed out of the index.
    fn due(&self, key: usize, now: u64) -> Due {
        if self.has_crashed() || self.may_lose_unheard() || !self.oracle.must_be_there(key, now, self.is_cache()) {
            return Due::No;
        }
        match self.plan.trouble {
            Trouble::Lying => return Due::Excused(Excuse::MissOfLies),
            Trouble::Damage if self.damaged => return Due::Excused(Excuse::MissOfDamage),
            Trouble::Failing if self.is_cache() => return Due::Excused(Excuse::MissOfFailure),
            _ if !self.is_cache() => return Due::Must,
            _ => {}
        }
        // The place of a replaced version may be used again before what replaced it is durable: neither is there then.
        // If the crash kept the old frame all the same, it is there until the scrubber comes to it.
        if self.oracle.is_open(key) || self.oracle.lost_replacement(key) {
            return Due::Excused(Excuse::Replaced);
        }
        if self.plan.twins[key] {
            return Due::Excused(Excuse::Twin);
        }
        // The listener does not hear of the pieces of a large object, and a cache does not look back for an older
        // version if the newest has lost a piece to a crash.
        let pieces_may_leave = self.oracle.is_longer(key, self.plan.piece());
        if pieces_may_leave && (self.evicted || self.tally.crashes > 0) {
            return Due::Excused(Excuse::Piece);
        }
        // A crash brings back the entry of what was evicted on one volume, though its cluster was written again. Where
        // another volume has the key, a cache that finds no frame there cannot know that it was not the newest.
        if self.plan.volumes > 1 && self.tally.crashes + self.tally.kills > 0 && self.oracle.had_left(key) {
            return Due::Excused(Excuse::Doubted);
        }
        Due::Must
    }
}
