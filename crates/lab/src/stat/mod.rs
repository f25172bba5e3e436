//! What a trace is like: counts, sizes, popularity, reuse, locality sets.
//!
//! One pass, in memory that grows with objects, not with requests. Sizes are the largest that any request of an object
//! has; all else follows the order of the trace.

mod locality;
mod picture;
mod quantiles;

use std::collections::HashMap;

use serde::Serialize;

pub use locality::{LocalitySets, Sets};
pub use picture::page;
pub use quantiles::QUANTILES;

use self::quantiles::{distribution, quantiles, sum};
use crate::trace::Request;

/// Statistics of a trace.
#[derive(Debug, Clone, Serialize)]
pub struct Stat {
    /// Requests.
    pub requests: u64,
    /// Distinct objects.
    pub objects: u64,
    /// Bytes of all requests, with each object at its largest size.
    pub bytes: u64,
    /// Bytes of all objects, each once.
    pub unique_bytes: u64,
    /// Objects asked for once, as a share of the objects.
    pub one_hit_wonders: f64,
    /// Share of requests that no cache can answer: the first of each object.
    pub first_requests: f64,
    /// Distinct servers; 0 if the trace does not say.
    pub servers: u64,
    /// Distinct clients; 0 if the trace does not say.
    pub clients: u64,
    /// Seconds from the first to the last request.
    pub seconds: f64,
    /// Mean size of an object, in bytes.
    pub mean_size: f64,
    /// Mean size of a request, in bytes.
    pub mean_request_size: f64,
    /// Sizes of objects at [`QUANTILES`], in bytes.
    pub sizes: [u64; 7],
    /// Sizes of requests at [`QUANTILES`].
    pub request_sizes: [u64; 7],
    /// Share of requests, and of their bytes, for objects larger than 1 MiB.
    pub large: (f64, f64),
    /// How popularity falls with rank.
    pub zipf: ZipfFit,
    /// Pages with what clients ask for after them; `None` if the trace tells no pages or clients.
    pub locality: Option<Sets>,
    /// What is drawn.
    #[serde(skip)]
    pub curves: Curves,
}

/// A straight line through the logarithms of counts and ranks.
#[derive(Debug, Clone, Copy, Serialize)]
pub struct ZipfFit {
    /// Slope, turned positive.
    pub exponent: f64,
    /// Share of the variance of the logarithms that the line explains.
    pub r2: f64,
    /// The last rank of the fit: that of the last object asked for at least five times, which is where chance stops
    /// to matter less than popularity.
    pub ranks: u64,
    /// How it was fitted.
    pub method: &'static str,
    /// The logarithm (to base 10) of the count that the line has at rank 1.
    pub intercept: f64,
}

/// What the drawings show: thinned, never more than some hundred points each.
#[derive(Debug, Clone, Default)]
pub struct Curves {
    /// Size and share of objects that are not larger.
    pub sizes: Vec<(f64, f64)>,
    /// Size and share of requests that are for no larger object.
    pub request_sizes: Vec<(f64, f64)>,
    /// Size and share of requested bytes in objects that are not larger.
    pub size_bytes: Vec<(f64, f64)>,
    /// Rank and count.
    pub popularity: Vec<(f64, f64)>,
    /// The same of servers and of clients.
    pub servers: Vec<(f64, f64)>,
    /// The same.
    pub clients: Vec<(f64, f64)>,
    /// Hours since the beginning, and requests a second.
    pub rate: Vec<(f64, f64)>,
    /// Requests since an object's last one, and share of all requests that came no later.
    pub reuse: Vec<(f64, f64)>,
    /// Bytes of a locality set, and share of the sets that are no larger.
    pub sets: Vec<(f64, f64)>,
}

struct Seen {
    count: u64,
    size: u64,
    last: u64,
}

/// Takes requests, one by one.
#[derive(Default)]
pub struct Counting {
    objects: HashMap<u64, Seen>,
    /// Requests of each.
    servers: HashMap<u64, u64>,
    clients: HashMap<u64, u64>,
    locality: LocalitySets,
    requests: u64,
    /// First and last time, in milliseconds.
    times: Option<(u64, u64)>,
    /// Requests by second, as long as these are few; beyond that, by coarser spans.
    rate: Rate,
    /// Requests whose object was asked for less than 2^(n/4) requests before.
    reuse: Vec<u64>,
}

/// Requests in equal spans of time, whose number stays bounded because spans double when time runs on.
struct Rate {
    /// Milliseconds of a span.
    span: u64,
    counts: Vec<u64>,
}

/// Most spans.
const SPANS: usize = 400;

impl Default for Rate {
    fn default() -> Self {
        Self { span: 1000, counts: Vec::new() }
    }
}

impl Rate {
    fn add(&mut self, since: u64) {
        while since / self.span >= SPANS as u64 {
            self.span *= 2;
            self.counts = self.counts.chunks(2).map(|two| two.iter().sum()).collect();
        }
        let at = (since / self.span) as usize;
        if self.counts.len() <= at {
            self.counts.resize(at + 1, 0);
        }
        self.counts[at] += 1;
    }
}

impl Counting {
    /// One more request.
    pub fn add(&mut self, request: &Request) {
        let Request { time, key, size, client, server, .. } = *request;
        self.requests += 1;
        // Clocks of logs go back now and then; what is before the beginning counts as the beginning.
        let (first, last) = *self.times.get_or_insert((time, time));
        self.times = Some((first, last.max(time)));
        self.rate.add(time.saturating_sub(first));
        let seen = self.objects.entry(key).or_insert(Seen { count: 0, size: 0, last: 0 });
        if seen.count > 0 {
            let distance = (self.requests - seen.last) as f64;
            let at = (distance.log2() * 4.0) as usize;
            if self.reuse.len() <= at {
                self.reuse.resize(at + 1, 0);
            }
            self.reuse[at] += 1;
        }
        seen.count += 1;
        seen.size = seen.size.max(size);
        seen.last = self.requests;
        if server != 0 {
            *self.servers.entry(server).or_default() += 1;
        }
        if client != 0 {
            *self.clients.entry(client).or_default() += 1;
        }
        self.locality.add(request);
    }

    /// The statistics of all of them.
    pub fn finish(self) -> Stat {
        let requests = self.requests.max(1) as f64;
        let mut objects: Vec<_> = self.objects.values().map(|seen| (seen.size, seen.count)).collect();
        objects.sort_unstable();
        let number = objects.len() as u64;
        let of = |(size, count): &(u64, u64)| size.saturating_mul(*count);
        let unique_bytes = sum(objects.iter().map(|(size, _)| *size));
        let bytes = sum(objects.iter().map(of));
        let mut counts: Vec<_> = objects.iter().map(|(_, count)| *count).collect();
        counts.sort_unstable_by(|a, b| b.cmp(a));
        let once = counts.iter().filter(|count| **count == 1).count() as f64;
        let large = objects.iter().filter(|(size, _)| *size > 1 << 20);
        let (large, large_bytes) =
            large.fold((0, 0_u64), |(n, b), object| (n + object.1, b.saturating_add(of(object))));
        let zipf = fit(&counts);
        let seconds = self.times.map_or(0.0, |(first, last)| (last - first) as f64 / 1e3);
        let (locality, sets) = self.locality.finish();
        let by_count = |weight: fn(&(u64, u64)) -> u64| distribution(objects.iter().map(|o| (o.0, weight(o))));
        let curves = Curves {
            sizes: by_count(|_| 1),
            request_sizes: by_count(|o| o.1),
            size_bytes: by_count(|o| o.0.saturating_mul(o.1)),
            popularity: ranks(&counts),
            servers: ranks(&most_first(&self.servers)),
            clients: ranks(&most_first(&self.clients)),
            rate: self.rate.points(),
            reuse: reuse(&self.reuse, requests),
            sets,
        };
        Stat {
            requests: self.requests,
            objects: number,
            bytes,
            unique_bytes,
            one_hit_wonders: once / number.max(1) as f64,
            first_requests: number as f64 / requests,
            servers: self.servers.len() as u64,
            clients: self.clients.len() as u64,
            seconds,
            mean_size: unique_bytes as f64 / number.max(1) as f64,
            mean_request_size: bytes as f64 / requests,
            sizes: quantiles(&objects, |_| 1),
            request_sizes: quantiles(&objects, |o| o.1),
            large: (large as f64 / requests, large_bytes as f64 / bytes.max(1) as f64),
            zipf,
            locality,
            curves,
        }
    }
}

impl Rate {
    fn points(&self) -> Vec<(f64, f64)> {
        let seconds = self.span as f64 / 1e3;
        let point = |(at, count): (usize, &u64)| ((at as f64 + 0.5) * seconds / 3600.0, *count as f64 / seconds);
        self.counts.iter().enumerate().map(point).collect()
    }
}

fn most_first(counts: &HashMap<u64, u64>) -> Vec<u64> {
    let mut counts: Vec<_> = counts.values().copied().collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    counts
}

/// Counts by rank, thinned: all of the first ten, then ever fewer.
fn ranks(counts: &[u64]) -> Vec<(f64, f64)> {
    let (mut points, mut next) = (Vec::new(), 1.0_f64);
    for (at, count) in counts.iter().enumerate() {
        let rank = at as f64 + 1.0;
        if rank >= next || at + 1 == counts.len() {
            points.push((rank, *count as f64));
            next = (rank * 1.05).max(rank + 1.0);
        }
    }
    points
}

fn reuse(counts: &[u64], requests: f64) -> Vec<(f64, f64)> {
    let mut sum = 0;
    let point = |(at, count): (usize, &u64)| {
        sum += count;
        (((at as f64 + 1.0) / 4.0).exp2(), sum as f64 / requests)
    };
    counts.iter().enumerate().map(point).collect()
}

/// Least squares through the logarithms, each power of 1.05 of the ranks counting once: else the tail, where ranks are
/// many and counts are chance, would decide alone.
fn fit(counts: &[u64]) -> ZipfFit {
    let last = counts.iter().take_while(|count| **count >= 5).count();
    let points: Vec<_> =
        ranks(&counts[..last]).into_iter().map(|(rank, count)| (rank.log10(), count.log10())).collect();
    let n = points.len() as f64;
    let method = "least squares of log count over log rank, ranks thinned evenly on the logarithmic axis";
    let none = ZipfFit { exponent: f64::NAN, r2: f64::NAN, ranks: last as u64, method, intercept: f64::NAN };
    if points.len() < 3 {
        return none;
    }
    let mean = |of: fn(&(f64, f64)) -> f64| points.iter().map(of).sum::<f64>() / n;
    let (x, y) = (mean(|p| p.0), mean(|p| p.1));
    let (mut xx, mut xy, mut yy) = (0.0, 0.0, 0.0);
    for point in &points {
        let (dx, dy) = (point.0 - x, point.1 - y);
        (xx, xy, yy) = (xx + dx * dx, xy + dx * dy, yy + dy * dy);
    }
    let slope = xy / xx;
    let r2 = if yy > 0.0 { xy * xy / (xx * yy) } else { 1.0 };
    ZipfFit { exponent: -slope, r2, intercept: y - slope * x, ..none }
}
