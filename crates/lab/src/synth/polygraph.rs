//! Requests as Web Polygraph makes them: a share of them asks again for what was asked for before, the rest for
//! something new; a share of what there is may be cached.
//!
//! Who asks again draws uniformly from the last objects of the working set, as `PolyMix-1` says (`--pop_model unif`).
//! An object's number says whether it may be cached and how long it is, so that a server knows without being told.

use serde::Deserialize;

use super::dice::{Dice, mix};
use crate::trace::Request;

/// What is asked for.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Polygraph {
    /// Share of the requests that ask for what was asked for before.
    pub revisits: f64,
    /// Objects that can be asked for again: the last so many. 0: all of them.
    pub working_set: usize,
    /// Kinds of objects.
    pub kinds: Vec<ObjectKind>,
}

/// A kind of objects.
#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ObjectKind {
    /// Its share of all objects.
    pub share: f64,
    /// Share of it that may be cached.
    pub cacheable: f64,
    /// Mean bytes.
    pub mean: f64,
    /// Standard deviation of a log-normal distribution; 0: the distribution is exponential.
    #[serde(default)]
    pub deviation: f64,
    /// Bytes of the largest, which longer ones are drawn anew for; 0: there is none.
    #[serde(default)]
    pub largest: u64,
}

impl ObjectKind {
    fn size(&self, dice: &mut Dice) -> u64 {
        let mut draw = || {
            if self.deviation == 0.0 {
                return dice.exponential(self.mean);
            }
            let variance = (1.0 + (self.deviation / self.mean).powi(2)).ln();
            (self.mean.ln() - variance / 2.0 + variance.sqrt() * dice.normal()).exp()
        };
        let fits = |size: &f64| self.largest == 0 || *size <= self.largest as f64;
        // What does not fit in a hundred draws is of a distribution that hardly ever does.
        let size = (0..100).map(|_| draw()).find(fits).unwrap_or(self.largest as f64);
        (size as u64).max(1)
    }
}

impl Polygraph {
    /// Whether an object may be cached, and its bytes.
    #[must_use]
    pub fn object(&self, key: u64) -> (bool, u64) {
        let mut dice = Dice::new(key, 21);
        let mut at = dice.unit() * self.kinds.iter().map(|kind| kind.share).sum::<f64>();
        let passed = |kind: &&ObjectKind| {
            at -= kind.share;
            at < 0.0
        };
        let Some(kind) = self.kinds.iter().find(passed).or(self.kinds.last()) else { return (false, 1) };
        (dice.chance(kind.cacheable), kind.size(&mut dice))
    }

    /// The requests that this seed gives. All come at time 0.
    pub fn requests(&self, seed: u64) -> impl Iterator<Item = Request> + Send + use<> {
        let model = self.clone();
        let mut dice = Dice::new(seed, 22);
        let mut asked = 0;
        (0_u64..).map(move |_| {
            let number = if asked > 0 && dice.chance(model.revisits) {
                let among = if model.working_set == 0 { asked } else { asked.min(model.working_set as u64) };
                asked - 1 - dice.below(among)
            } else {
                asked += 1;
                asked - 1
            };
            let key = mix(seed ^ mix(number)).max(1);
            Request { key, size: model.object(key).1, ..Request::default() }
        })
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn model() -> Polygraph {
        let kind = |share, mean, deviation, largest| ObjectKind { share, cacheable: 0.8, mean, deviation, largest };
        let kinds = vec![kind(0.7, 4000.0, 0.0, 13_000), kind(0.3, 25_000.0, 10_000.0, 0)];
        Polygraph { revisits: 0.55, working_set: 1000, kinds }
    }

    #[test]
    fn shares_and_sizes_are_those_that_were_asked_for() {
        let all: Vec<Request> = model().requests(1).take(50_000).collect();
        let objects: HashSet<u64> = all.iter().map(|request| request.key).collect();
        let share = |count: usize, of: usize| count as f64 / of as f64;
        assert!((share(objects.len(), all.len()) - 0.45).abs() < 0.01, "{}", objects.len());
        let cached = objects.iter().filter(|key| model().object(**key).0).count();
        assert!((share(cached, objects.len()) - 0.8).abs() < 0.02, "{cached}");
        let mean = objects.iter().map(|key| model().object(*key).1 as f64).sum::<f64>() / objects.len() as f64;
        // What is cut off at 13,000 bytes takes the mean of the first kind to 3,470.
        assert!((mean / (0.7 * 3470.0 + 0.3 * 25_000.0) - 1.0).abs() < 0.03, "{mean}");
    }

    #[test]
    fn nothing_comes_back_that_has_left_the_working_set() {
        let (mut last, mut new) = (std::collections::HashMap::new(), 0_usize);
        for request in model().requests(2).take(20_000) {
            let born = *last.entry(request.key).or_insert_with(|| {
                new += 1;
                new
            });
            assert!(new - born < 1000, "{born} of {new}");
        }
        assert!(model().requests(3).take(99).eq(model().requests(3).take(99)));
        assert!(!model().requests(3).take(99).eq(model().requests(4).take(99)));
    }
}
