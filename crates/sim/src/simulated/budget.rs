//! Flash and cloud volumes: a latency from a seeded table, and buckets that grant operations and bytes.
//!
//! A request is done when every bucket has granted it and its latency has passed, whichever is later. A bucket is
//! one linear budget for reads and writes together, as in Seastar's I/O scheduler: operations and bytes each take
//! their share of a second. Where the device counts operations in units, requests that continue one another while
//! they wait are counted as one, as cloud volumes do.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use super::command::{Command, Kind, Times};
use super::geometry::SECTOR;
use super::profile::{BucketProfile, BudgetProfile};
use crate::fault::Random;

pub(crate) struct Budget {
    profile: BudgetProfile,
    /// Nanoseconds: up to when each bucket's time is spent.
    spent: Vec<u64>,
    random: Random,
    /// The last request, for counting those that continue it.
    last: Option<Last>,
    ready: BinaryHeap<Reverse<(u64, u64)>>,
    pub(crate) times: Times,
}

struct Last {
    kind: Kind,
    end: u64,
    /// Bytes since the run of adjacent requests began.
    bytes: u64,
    done: u64,
}

impl Budget {
    pub(crate) fn new(profile: &BudgetProfile, seed: u64) -> Self {
        Self {
            profile: profile.clone(),
            spent: vec![0; profile.buckets.len()],
            random: Random::new(seed, 0x6275_6467),
            last: None,
            ready: BinaryHeap::new(),
            times: Times::default(),
        }
    }

    pub(crate) fn submit(&mut self, command: &Command) {
        let now = command.arrived;
        if command.kind == Kind::Sync {
            self.times.syncs += 1;
            let finish = now + (self.profile.sync_us * 1e3) as u64;
            return self.ready.push(Reverse((finish, command.id)));
        }
        let is_read = command.kind == Kind::Read;
        *if is_read { &mut self.times.reads } else { &mut self.times.writes } += 1;
        let bytes = command.sectors * SECTOR;
        let points = if is_read { &self.profile.read_us } else { &self.profile.write_us };
        let fraction = self.random.unit();
        let latency = (quantile(points, fraction) * 1e3 + bytes as f64 * 1e3 / self.profile.stream_mb_s) as u64;
        let units = self.units(command, bytes);
        let mut granted = now;
        for (bucket, spent) in self.profile.buckets.iter().zip(&mut self.spent) {
            *spent = (*spent).max(now) + (cost(bucket, is_read, units, bytes) * 1e9) as u64;
            granted = granted.max(spent.saturating_sub((bucket.burst_s * 1e9) as u64));
        }
        let finish = granted.max(now + latency);
        self.times.latency += latency;
        self.times.waiting += finish - now - latency;
        if let Some(last) = &mut self.last {
            last.done = finish;
        }
        self.ready.push(Reverse((finish, command.id)));
    }

    /// Operations that this request counts for.
    fn units(&mut self, command: &Command, bytes: u64) -> u64 {
        let unit = self.profile.unit_bytes;
        if unit == 0 {
            return 1;
        }
        let continues =
            |last: &&Last| last.kind == command.kind && last.end == command.lba && last.done > command.arrived;
        let before = self.last.as_ref().filter(continues).map_or(0, |last| last.bytes);
        let end = command.lba + command.sectors;
        self.last = Some(Last { kind: command.kind, end, bytes: before + bytes, done: 0 });
        (before + bytes).div_ceil(unit) - before.div_ceil(unit)
    }

    pub(crate) fn next_event(&self) -> Option<u64> {
        self.ready.peek().map(|Reverse((time, _))| *time)
    }

    pub(crate) fn pop(&mut self, to: u64) -> Option<(u64, u64)> {
        if self.next_event()? <= to { self.ready.pop().map(|Reverse(done)| done) } else { None }
    }
}

/// Seconds of a bucket.
fn cost(bucket: &BucketProfile, is_read: bool, units: u64, bytes: u64) -> f64 {
    let (ops, mb_s) = if is_read { (bucket.read_ops, bucket.read_mb_s) } else { (bucket.write_ops, bucket.write_mb_s) };
    ops.map_or(0.0, |ops| units as f64 / ops) + mb_s.map_or(0.0, |mb_s| bytes as f64 / (mb_s * 1e6))
}

fn quantile(points: &[(f64, f64)], fraction: f64) -> f64 {
    let above = points.partition_point(|point| point.0 <= fraction);
    match (above.checked_sub(1).map(|below| points[below]), points.get(above)) {
        (Some((f0, t0)), Some((f1, t1))) => t0 + (t1 - t0) * (fraction - f0) / (f1 - f0),
        (Some((_, last)), None) => last,
        (None, first) => first.map_or(0.0, |first| first.1),
    }
}
