//! Two plain workloads: replacements at random, and Zipf's law while popularity wanders.

use super::{
    dice::{Dice, mix},
    law::{Sizes, Zipf, truncated_pareto},
};
use crate::trace::{Kind, Request};

/// The allocation workload of Iyengar, Jin & Challenger 2003 (P-I6, P-I8, P-I10): first every object once, then
/// uniformly random ones again and again, each time with a new size from the truncated Pareto distribution.
#[derive(Debug, Clone, Copy)]
pub struct Replacements {
    /// Objects that are live.
    pub live: u64,
    /// Exponent of the sizes.
    pub alpha: f64,
    /// Smallest size, and grain of the allocator, in bytes.
    pub grain: f64,
    /// Largest size, in grains.
    pub cutoff: f64,
}

impl Replacements {
    /// The stream that this seed gives.
    pub fn requests(self, seed: u64) -> impl Iterator<Item = Request> + Send + use<> {
        let mut dice = Dice::new(seed, 11);
        let mut versions = vec![0_u32; usize::try_from(self.live).unwrap_or(usize::MAX)];
        (0_u64..).map(move |time| {
            let object = if time < self.live { time } else { dice.below(self.live) };
            let version = &mut versions[object as usize];
            *version += 1;
            let size = truncated_pareto(dice.unit(), self.alpha, self.grain, self.grain * self.cutoff).round() as u64;
            let key = mix(seed ^ mix(object)).max(1);
            Request { time, key, size, version: *version, ..Request::default() }
        })
    }
}

/// Zipf's law over objects whose popularity wanders: now and then one rank is taken over by a new object.
#[derive(Debug, Clone, Copy)]
pub struct Churn {
    /// Objects that are alive at a time.
    pub objects: u64,
    /// Exponent of their popularity.
    pub exponent: f64,
    /// Probability, at each request, that some rank gets a new object.
    pub births: f64,
    /// Their sizes.
    pub sizes: Sizes,
}

impl Churn {
    /// The stream that this seed gives.
    pub fn requests(self, seed: u64) -> impl Iterator<Item = Request> + Send + use<> {
        let mut dice = Dice::new(seed, 12);
        let zipf = Zipf::new(self.objects, self.exponent);
        let mut names: Vec<u64> = (1..=self.objects).collect();
        let mut next = self.objects;
        (0_u64..).map(move |time| {
            if dice.chance(self.births) {
                next += 1;
                names[dice.below(self.objects) as usize] = next;
            }
            let key = mix(seed ^ mix(names[zipf.rank(&mut dice) as usize - 1])).max(1);
            let size = self.sizes.draw(&mut Dice::new(key, 3));
            // Ten requests a second; servers of some hundred objects each, for those who place by them.
            let server = mix(key % (self.objects / 100).max(1)).max(1);
            Request { time: time * 100, key, size, server, kind: Kind::Unknown, ..Request::default() }
        })
    }
}
