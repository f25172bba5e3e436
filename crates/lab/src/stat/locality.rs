//! Locality sets, as Hummingbird counts them (Shriver et al. 2001, §2.1): a page and what the same client asks for
//! until its next page. The first set of a page is its primordial one; later sets are compared with it.

use std::collections::{BTreeMap, HashMap, HashSet};

use serde::Serialize;

use super::quantiles::{QUANTILES, distribution};
use crate::trace::{Kind, Request};

/// Most pages whose primordial set is kept.
const PAGES: usize = 1 << 20;

/// Collects locality sets.
#[derive(Default)]
pub struct LocalitySets {
    open: HashMap<u64, Set>,
    primordial: HashMap<u64, Box<[u64]>>,
    /// Bytes of a set, to the power of 1.01, and how many there are.
    bytes: BTreeMap<u64, u64>,
    sets: u64,
    members: u64,
    again: u64,
    hit_rates: f64,
}

#[derive(Default)]
struct Set {
    page: u64,
    members: HashSet<u64>,
    order: Vec<u64>,
    bytes: u64,
}

/// What locality sets are like.
#[derive(Debug, Clone, Serialize)]
pub struct Sets {
    /// How many there are.
    pub sets: u64,
    /// Mean number of objects in a set, its page included.
    pub mean_objects: f64,
    /// Bytes of a set at [`QUANTILES`].
    pub bytes: [u64; 7],
    /// Share of sets no larger than 32, 64, 96 and 128 KiB.
    pub within: [f64; 4],
    /// Sets of a page that had one before.
    pub again: u64,
    /// Mean share of a page's primordial set that such a later set asks for once more.
    pub hit_rate: f64,
}

impl LocalitySets {
    /// One more request.
    pub fn add(&mut self, request: &Request) {
        if request.client == 0 || request.kind == Kind::Unknown {
            return;
        }
        if request.kind == Kind::Page {
            let set = Set { page: request.key, ..Set::default() };
            if let Some(done) = self.open.insert(request.client, set) {
                self.close(done);
            }
        }
        if let Some(set) = self.open.get_mut(&request.client)
            && set.members.insert(request.key)
        {
            set.order.push(request.key);
            set.bytes = set.bytes.saturating_add(request.size);
        }
    }

    fn close(&mut self, set: Set) {
        self.sets += 1;
        self.members += set.order.len() as u64;
        // To within a percent, so that the number of different sizes stays bounded.
        let size = 1.01_f64.powf((set.bytes.max(1) as f64).log(1.01).round()) as u64;
        *self.bytes.entry(size).or_default() += 1;
        match self.primordial.get(&set.page) {
            Some(first) => {
                let both = first.iter().filter(|key| set.members.contains(key)).count();
                self.again += 1;
                self.hit_rates += both as f64 / first.len() as f64;
            }
            None if self.primordial.len() < PAGES => {
                self.primordial.insert(set.page, set.order.into());
            }
            None => {}
        }
    }

    /// What they are like, and the distribution of their bytes.
    pub(super) fn finish(mut self) -> (Option<Sets>, Vec<(f64, f64)>) {
        let mut open: Vec<_> = std::mem::take(&mut self.open).into_iter().collect();
        open.sort_unstable_by_key(|(client, _)| *client);
        for (_, set) in open {
            self.close(set);
        }
        if self.sets == 0 {
            return (None, Vec::new());
        }
        let all = self.sets as f64;
        let within = |limit: u64| self.bytes.range(..=limit).map(|(_, count)| count).sum::<u64>() as f64 / all;
        let sorted: Vec<_> = self.bytes.iter().map(|(bytes, count)| (*bytes, *count)).collect();
        let sets = Sets {
            sets: self.sets,
            mean_objects: self.members as f64 / all,
            bytes: super::quantiles(&sorted, |one| one.1),
            within: [32, 64, 96, 128].map(|kib: u64| within(kib << 10)),
            again: self.again,
            hit_rate: self.hit_rates / self.again.max(1) as f64,
        };
        debug_assert_eq!(sets.bytes.len(), QUANTILES.len());
        (Some(sets), distribution(sorted.into_iter()))
    }
}
