//! Synthetic workloads from published statistics: a name and a seed give the same requests everywhere.
//!
//! The constants were fitted once to the statistics that the tests hold them to; none is an observation.

mod dice;
mod law;
mod plain;
mod polygraph;
mod sites;
mod web;

use std::{fmt, str::FromStr};

pub use dice::{Dice, mix};
pub use law::{Sizes, Zipf, truncated_pareto};
pub use plain::{Churn, Replacements};
pub use polygraph::{ObjectKind, Polygraph};
pub use sites::Sites;
pub use web::{Requests as WebRequests, Web};

use crate::trace::Request;

/// The workloads there are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Synthetic {
    /// As the proxies of Digital, 1996, in front of two LRU caches (Markatos et al. 1999, footnote 2; M-1, M-2).
    Dec,
    /// As the log of an Internet provider, 1999 (Shriver et al. 2001, §2.1; H-I3 to H-I5).
    Isp,
    /// Random replacements with truncated Pareto sizes (Iyengar et al. 2003; P-I8).
    Pareto,
    /// Zipf's law with churn of popularity.
    Zipf,
    /// Pages with their images, of which some are shared and some come from other servers.
    Pages,
}

impl Synthetic {
    /// All of them: name, what it is, and how many requests it has unless told otherwise.
    pub const ALL: [(&'static str, Self, &'static str, u64); 5] = [
        ("dec", Self::Dec, "the proxies of Digital, 1996: pages, servers, interleaved clients", 1_058_206),
        ("isp", Self::Isp, "an Internet provider's proxy, 1999: locality sets and clients", 4_805_460),
        ("pareto", Self::Pareto, "100,000 objects replaced at random, truncated Pareto sizes", 600_000),
        ("zipf", Self::Zipf, "Zipf's law over a million objects whose popularity wanders", 2_000_000),
        ("pages", Self::Pages, "8,000 pages with images, some shared, some from other servers", 600_000),
    ];

    /// How many requests it has unless told otherwise.
    pub fn usual(self) -> u64 {
        Self::ALL.iter().find(|row| row.1 == self).map_or(0, |row| row.3)
    }

    /// One part in `parts` of a provider's proxy as [`Synthetic::Isp`] makes it: so many fewer clients and servers,
    /// and so many fewer at a time, each as before. A cache as many times smaller, asked as many times less often,
    /// answers as large a share.
    pub fn isp_part(parts: u32, seed: u64) -> WebRequests {
        let less = |n: u64| (n / u64::from(parts)).max(1);
        let Web { clients, active, servers: (servers, exponent), window, .. } = ISP;
        let web = Web {
            clients: less(clients),
            active: less(active as u64) as usize,
            servers: (less(servers), exponent),
            window: less(window as u64) as usize,
            ..ISP
        };
        web.requests(seed)
    }

    /// The endless stream that this seed gives.
    pub fn requests(self, seed: u64) -> Box<dyn Iterator<Item = Request> + Send> {
        match self {
            Self::Dec => Box::new(DEC.requests(seed)),
            Self::Isp => Box::new(ISP.requests(seed)),
            Self::Pages => Box::new(PAGES.requests(seed)),
            Self::Pareto => {
                let all = Replacements { live: 100_000, alpha: 1.0, grain: 512.0, cutoff: 1024.0 };
                Box::new(all.requests(seed))
            }
            Self::Zipf => {
                let all = Churn { objects: 1_000_000, exponent: 0.9, births: 0.02, sizes: DEC.sizes };
                Box::new(all.requests(seed))
            }
        }
    }
}

impl fmt::Display for Synthetic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(Self::ALL.iter().find(|row| row.1 == *self).map_or("", |row| row.0))
    }
}

impl FromStr for Synthetic {
    type Err = String;

    fn from_str(name: &str) -> Result<Self, String> {
        Self::ALL.iter().find(|row| row.0 == name).map(|row| row.1).ok_or_else(|| {
            let names: Vec<_> = Self::ALL.iter().map(|row| row.0).collect();
            format!("no workload {name:?}; there are: {}", names.join(", "))
        })
    }
}

/// 29 August 1996, midnight UTC: the first day of Digital's traces.
const AUGUST_1996: u64 = 841_276_800_000;
/// 2 February 1999, the first of the four days that were kept of the provider's log.
const FEBRUARY_1999: u64 = 917_913_600_000;

/// Fitted to footnote 2 of the paper (M-1) and a mean slot of 5.4 KB. 3.5 million requests a week (P-I7's week) are one
/// in 170 ms. How often objects change is from traces of 1996 and 1997, one of them Digital's (Douglis, Feldmann,
/// Krishnamurthy & Mogul, USITS 1997): 22% of the objects are asked for more than once, half of all requests are for
/// those, and of these 13% find another version than the request before. Here one object in six is another one each
/// time.
const DEC: Web = Web {
    clients: 10_000,
    active: 48,
    servers: (720_000, 1.03),
    pages: (10_750, 1.0614),
    stay: 0.5,
    repeat: 0.222,
    window: 28_000,
    parts: (1.5, 0.8, 30),
    asked: 0.7,
    common: (0.09, 20),
    foreign: (0.0, 1),
    sizes: Sizes {
        median: 2800.0,
        sigma: 0.9,
        body_cap: 8_388_608.0,
        tail: 0.026,
        alpha: 1.2,
        from: 10_000.0,
        cap: 8_388_608.0,
    },
    common_tail: 0.026,
    change: (0.165, 1),
    pause: 170.0,
    begin: AUGUST_1996,
};

/// Fitted to the statistics of Hummingbird's §2.1, and to the hit ratios by disk size of its Tables 2 to 4: those say
/// how far apart requests for one object are. 4.8 million requests in four days are one in 72 ms.
const ISP: Web = Web {
    clients: 20_000,
    active: 200,
    servers: (6700, 0.66),
    pages: (290, 1.3),
    stay: 0.1,
    repeat: 0.28,
    window: 300_000,
    parts: (28.6, 1.21, 400),
    asked: 0.345,
    common: (0.52, 40),
    foreign: (0.0, 1),
    sizes: Sizes {
        median: 1775.0,
        sigma: 1.0,
        body_cap: 8191.0,
        tail: 0.165,
        alpha: 1.1,
        from: 8192.0,
        cap: 8_388_608.0,
    },
    common_tail: 0.0,
    change: (0.01, 200_000),
    pause: 72.0,
    begin: FEBRUARY_1999,
};

/// Sizes of objects as those of [`ISP`], with so many bytes at most.
pub(crate) fn web_sizes(most: u64) -> Sizes {
    Sizes { cap: most as f64, ..ISP.sizes }
}

/// Pages as those of [`ISP`], but whole: a visit asks for nearly all of a page's parts, where the log of a proxy lacks
/// what browsers had. Fewer of them, so that most are visited again; one part in five comes from one of 40 servers that
/// all sites share.
const PAGES: Web = Web {
    clients: 5000,
    active: 64,
    servers: (200, 0.66),
    pages: (40, 0.9),
    stay: 0.5,
    repeat: 0.2,
    window: 4000,
    parts: (14.0, 0.7, 100),
    asked: 0.9,
    common: (0.3, 20),
    foreign: (0.2, 40),
    change: (0.0, 1),
    ..ISP
};
