//! Many sites side by side, each asked as a trace has it: so what was recorded of one site, or of a few page loads,
//! becomes more than memory holds, and keeps its structure.
//!
//! A site has keys, clients and servers of its own, begins anywhere in the trace, and begins again where that ends.
//! Which site is asked next follows Zipf's law, so the requests of several come interleaved.

use super::{
    dice::{Dice, mix},
    law::Zipf,
};
use crate::trace::Request;

/// Exponent of the popularity of sites: that of the servers of [`super::Synthetic::Isp`], rounded.
const POPULARITY: f64 = 0.7;
/// Bytes of what is a download, not part of a page, and left out.
const DOWNLOAD: u64 = 1 << 20;

/// An endless stream of requests to many sites.
pub struct Sites {
    trace: Vec<Request>,
    /// Where in the trace each site is.
    at: Vec<usize>,
    popularity: Zipf,
    dice: Dice,
    seed: u64,
    made: u64,
}

impl Sites {
    /// So many sites, each asked as this trace has it. Nothing at all, of a trace without requests.
    pub fn new(mut trace: Vec<Request>, sites: u32, seed: u64) -> Self {
        trace.retain(|request| request.size <= DOWNLOAD);
        let mut dice = Dice::new(seed, 21);
        let at = (0..sites.max(1)).map(|_| dice.below(trace.len().max(1) as u64) as usize).collect();
        Self { popularity: Zipf::new(u64::from(sites.max(1)), POPULARITY), trace, at, dice, seed: mix(seed), made: 0 }
    }
}

impl Iterator for Sites {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let site = self.popularity.rank(&mut self.dice) - 1;
        let at = &mut self.at[site as usize];
        let request = *self.trace.get(*at)?;
        *at = (*at + 1) % self.trace.len();
        self.made += 1;
        let own = |name: u64| if name == 0 { 0 } else { mix(self.seed ^ mix(site) ^ name).max(1) };
        Some(Request {
            time: self.made,
            key: own(request.key),
            client: own(request.client),
            server: own(request.server),
            referer: own(request.referer),
            ..request
        })
    }
}
