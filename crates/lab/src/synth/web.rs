//! A model of the web as a proxy sees it: clients visit pages, pages bring their parts, and many do so at once.
//!
//! A *visit* is a request for a page and then for some of its parts, on its server or others; the requests of the
//! clients that are active at a time come interleaved, in random order. Who visits what: with some probability a page
//! that was visited lately, the more likely the more lately (log-uniform); else one more page on the server where
//! this client is, or, by Zipf's law, a page of another server. Number and size of a page's parts, and all else that
//! belongs to an object, are functions of its name and the seed, so nothing is remembered but the last visits.

use std::collections::VecDeque;

use super::{
    dice::{Dice, mix},
    law::{Sizes, Zipf},
};
use crate::trace::{Kind, Request};

/// What the model is made of.
#[derive(Debug, Clone, Copy)]
pub struct Web {
    /// How many clients there are.
    pub clients: u64,
    /// How many of them are active at a time.
    pub active: usize,
    /// Servers, and the exponent of their popularity.
    pub servers: (u64, f64),
    /// Pages of a server, and the exponent of their popularity.
    pub pages: (u64, f64),
    /// Probability that a client's next page is on the same server.
    pub stay: f64,
    /// Probability that a visit repeats one of the last.
    pub repeat: f64,
    /// How many visits back that may be.
    pub window: usize,
    /// Parts of a page: median and standard deviation of the logarithm of their number, and the most there are.
    pub parts: (f64, f64, u64),
    /// Share of a page's parts that a visit asks for.
    pub asked: f64,
    /// Share of a page's parts that are common to the pages of its server, and how many of those there are.
    pub common: (f64, u64),
    /// Share of a page's own parts that come from other servers, which all share, and how many of those there are.
    pub foreign: (f64, u64),
    /// Sizes of objects.
    pub sizes: Sizes,
    /// The share of the Pareto part among common objects, which are icons and bars more often than archives.
    pub common_tail: f64,
    /// Share of objects that change, and after how many requests, to all, they do.
    pub change: (f64, u64),
    /// Mean milliseconds between two requests.
    pub pause: f64,
    /// Milliseconds since 1970 at which it begins.
    pub begin: u64,
}

/// An endless stream of requests from a [`Web`].
pub struct Requests {
    web: Web,
    seed: u64,
    dice: Dice,
    servers: Zipf,
    pages: Zipf,
    clients: Vec<Client>,
    /// The last visits, a ring.
    visits: Vec<Page>,
    visited: usize,
    made: u64,
    time: f64,
}

#[derive(Debug, Clone, Copy)]
struct Page {
    server: u64,
    number: u64,
}

/// A request that a client will make.
struct Waiting {
    key: u64,
    page: Page,
    kind: Kind,
    common: bool,
}

#[derive(Default)]
struct Client {
    name: u64,
    at: Option<Page>,
    waiting: VecDeque<Waiting>,
}

impl Web {
    /// The stream that this seed gives.
    pub fn requests(self, seed: u64) -> Requests {
        Requests {
            web: self,
            seed: mix(seed),
            dice: Dice::new(seed, 1),
            servers: Zipf::new(self.servers.0, self.servers.1),
            pages: Zipf::new(self.pages.0, self.pages.1),
            clients: (0..self.active).map(|_| Client::default()).collect(),
            visits: Vec::with_capacity(self.window),
            visited: 0,
            made: 0,
            time: self.begin as f64,
        }
    }
}

impl Page {
    fn key(self, seed: u64) -> u64 {
        mix(seed ^ mix(self.server) ^ self.number.rotate_left(32)).max(1)
    }
}

impl Requests {
    /// Which page a client visits next.
    fn choose(&mut self, at: Option<Page>) -> Page {
        let seen = self.visits.len();
        if seen > 0 && self.dice.chance(self.web.repeat) {
            let back = ((self.dice.unit() * (self.web.window as f64).ln()).exp() as usize).clamp(1, seen);
            return self.visits[(self.visited + self.web.window - back) % self.web.window];
        }
        let server = match at {
            Some(page) if self.dice.chance(self.web.stay) => page.server,
            _ => self.servers.rank(&mut self.dice),
        };
        Page { server, number: self.pages.rank(&mut self.dice) }
    }

    /// Lets a client that has nothing to ask for visit a page.
    fn visit(&mut self, client: usize) {
        let at = self.clients[client].at;
        let page = self.choose(at);
        if at.is_none_or(|at| at.server != page.server) {
            // Popularity of clients is not published; few do most.
            let rank = (self.dice.unit() * self.dice.unit() * self.web.clients as f64) as u64;
            self.clients[client].name = mix(self.seed ^ mix(!rank)).max(1);
        }
        if self.visits.len() < self.web.window {
            self.visits.push(page);
        } else {
            self.visits[self.visited % self.web.window] = page;
        }
        self.visited = (self.visited + 1) % (self.web.window << 20);
        let key = page.key(self.seed);
        self.clients[client].at = Some(page);
        self.clients[client].waiting.push_back(Waiting { key, page, kind: Kind::Page, common: false });
        let mut own = Dice::new(key, 2);
        let (median, sigma, most) = self.web.parts;
        let parts = ((median.ln() + sigma * own.normal()).exp().round() as u64).min(most);
        for part in 0..parts {
            let common = own.chance(self.web.common.0);
            let pool = (own.unit() * own.unit() * self.web.common.1 as f64) as u64;
            if !self.dice.chance(self.web.asked) {
                continue;
            }
            let name = if common { mix(self.seed ^ mix(page.server ^ 1 << 63) ^ pool) } else { mix(key ^ mix(part)) };
            let waiting = Waiting { key: name.max(1), page, kind: Kind::Part, common };
            self.clients[client].waiting.push_back(waiting);
        }
    }

    fn size(&self, key: u64, version: u32, common: bool) -> u64 {
        let tail = if common { self.web.common_tail } else { self.web.sizes.tail };
        Sizes { tail, ..self.web.sizes }.draw(&mut Dice::new(key ^ u64::from(version), 3))
    }

    /// The page's own, or for some parts of it another.
    fn server_of(&self, key: u64, page: Page, may_be_foreign: bool) -> u64 {
        let mut own = Dice::new(key, 6);
        let (share, servers) = self.web.foreign;
        let foreign = may_be_foreign && own.chance(share);
        let number = if foreign { !own.below(servers) } else { page.server };
        mix(self.seed ^ number.rotate_left(17)).max(1)
    }

    /// How often this object has changed so far.
    fn version(&self, key: u64) -> u32 {
        let mut own = Dice::new(key, 4);
        let (share, period) = self.web.change;
        if own.chance(share) { ((self.made + own.below(period)) / period) as u32 } else { 0 }
    }
}

impl Iterator for Requests {
    type Item = Request;

    fn next(&mut self) -> Option<Request> {
        let client = self.dice.below(self.clients.len() as u64) as usize;
        if self.clients[client].waiting.is_empty() {
            self.visit(client);
        }
        let Waiting { key, page, kind, common } = self.clients[client].waiting.pop_front()?;
        self.made += 1;
        let server = self.server_of(key, page, kind == Kind::Part && !common);
        self.time += self.dice.exponential(self.web.pause);
        let version = self.version(key);
        Some(Request {
            time: self.time as u64,
            key,
            size: self.size(key, version, common),
            client: self.clients[client].name,
            server,
            referer: if kind == Kind::Part { page.key(self.seed) } else { 0 },
            kind,
            version,
        })
    }
}
