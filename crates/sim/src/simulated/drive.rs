//! A drive: commands that wait, the buffer, and the arm that serves one after another.
//!
//! Steps of a command: it waits; its overhead passes, while the one before is served if the drive holds several; a
//! read is looked for in the buffer; else the arm moves, and after a read it goes on reading until the arm is needed.
//! With a write cache a write is done when it is in the buffer, and the arm drains it when nothing else waits.
//!
//! Invariants:
//! - what is next is decided when the arm is free, among what has arrived by then, and not before time has come
//!   so far: requests of one instant are all seen before one of them is chosen;
//! - events come in order of time, those of one time in order of submission.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};

use super::arm::{Arm, Stream};
use super::command::{Command, Kind, Times};
use super::geometry::SECTOR;
use super::profile::{DiskProfile, Order};
use super::segments::Segments;

/// Sectors of the write cache that are drained at once; a read does not wait for more.
const DRAIN: u64 = 2048;

pub(crate) struct Drive {
    pub(crate) arm: Arm,
    order: Order,
    overhead: u64,
    hit_overhead: u64,
    bus_mb_s: f64,
    /// Commands it holds.
    depth: usize,
    /// By the order's key, then by number.
    queue: BTreeMap<(u64, u64), Command>,
    inward: bool,
    /// The sector after the last one served.
    head: u64,
    busy: Option<Busy>,
    /// When the arm was last freed, and when the first command came since.
    free_at: u64,
    wake: u64,
    segments: Segments,
    read_ahead: u64,
    ahead: Option<Ahead>,
    /// Written and not yet on the platter, by first sector.
    dirty: BTreeMap<u64, Run>,
    dirty_sectors: u64,
    write_sectors: u64,
    /// Writes that found the write cache full.
    stalled: VecDeque<Command>,
    /// When the interface has taken the last write.
    taken: u64,
    syncs: Vec<u64>,
    served_host: bool,
    ready: BinaryHeap<Reverse<(u64, u64)>>,
    pub(crate) times: Times,
}

struct Busy {
    finish: u64,
    drained: Option<Run>,
}

#[derive(Clone, Copy)]
struct Run {
    sectors: u64,
    /// The first command that is in it.
    since: u64,
}

/// Reading that goes on by itself.
struct Ahead {
    segment: usize,
    stream: Stream,
    limit: u64,
}

impl Drive {
    pub(crate) fn new(profile: &DiskProfile, order: Order, write_sectors: u64) -> Self {
        let nanos = |ms: f64| (ms * 1e6).round() as u64;
        Self {
            arm: Arm::new(profile),
            order,
            overhead: nanos(profile.overhead_ms),
            hit_overhead: nanos(profile.hit_overhead_ms),
            bus_mb_s: profile.bus_mb_s,
            depth: profile.queue as usize,
            queue: BTreeMap::new(),
            inward: true,
            head: 0,
            busy: None,
            free_at: 0,
            wake: 0,
            segments: Segments::new(profile.cache.segments as usize, profile.cache.segment_sectors),
            read_ahead: profile.cache.read_ahead_sectors,
            ahead: None,
            dirty: BTreeMap::new(),
            dirty_sectors: 0,
            write_sectors,
            stalled: VecDeque::new(),
            taken: 0,
            syncs: Vec::new(),
            served_host: false,
            ready: BinaryHeap::new(),
            times: Times::default(),
        }
    }

    pub(crate) fn submit(&mut self, command: Command) {
        let now = command.arrived;
        self.settle(now);
        if self.busy.is_none() && self.queue.is_empty() && self.dirty.is_empty() {
            self.wake = now;
        }
        match command.kind {
            Kind::Sync => {
                self.syncs.push(command.id);
                self.finish_syncs(now);
            }
            Kind::Write if self.write_sectors > 0 => {
                self.segments.forget(command.lba, command.sectors);
                self.stalled.push_back(command);
                self.take_writes(now);
            }
            Kind::Read | Kind::Write => {
                let key = match self.order {
                    Order::Fifo | Order::Nearest => 0,
                    Order::OneWay | Order::TwoWay => command.lba,
                };
                self.queue.insert((key, command.id), command);
            }
        }
    }

    /// When something happens next, if nothing is submitted before.
    pub(crate) fn next_event(&mut self) -> Option<u64> {
        if self.busy.is_none() && self.has_work() {
            self.start(self.free_at.max(self.wake));
        }
        let ready = self.ready.peek().map(|Reverse((time, _))| *time);
        let free = self.busy.as_ref().map(|busy| busy.finish);
        match (ready, free) {
            (Some(ready), Some(free)) => Some(ready.min(free)),
            (one, other) => one.or(other),
        }
    }

    /// Lets happen what happens up to `to`.
    pub(crate) fn settle(&mut self, to: u64) {
        loop {
            if let Some(busy) = self.busy.take_if(|busy| busy.finish <= to) {
                self.free_at = busy.finish;
                if let Some(run) = busy.drained {
                    self.dirty_sectors -= run.sectors;
                    self.take_writes(busy.finish);
                    self.finish_syncs(busy.finish);
                }
            } else if self.busy.is_none() && self.has_work() && self.free_at.max(self.wake) < to {
                self.start(self.free_at.max(self.wake));
            } else {
                return;
            }
        }
    }

    /// A command that is done by `to`: when, and its number.
    pub(crate) fn pop(&mut self, to: u64) -> Option<(u64, u64)> {
        let Reverse((time, _)) = *self.ready.peek()?;
        if time <= to { self.ready.pop().map(|Reverse(done)| done) } else { None }
    }

    fn has_work(&self) -> bool {
        !self.queue.is_empty() || !self.dirty.is_empty()
    }

    fn bus(&self, sectors: u64) -> u64 {
        ((sectors * SECTOR) as f64 * 1e3 / self.bus_mb_s) as u64
    }

    fn start(&mut self, time: u64) {
        // Where the cache is full its writers take turns with the readers.
        let drain = self.queue.is_empty() || (!self.stalled.is_empty() && self.served_host);
        self.served_host = !drain || self.dirty.is_empty();
        if !self.served_host {
            return self.drain(time);
        }
        let Some(command) = self.choose(time) else { return };
        self.times.waiting += time - command.arrived;
        let finish = match command.kind {
            Kind::Read => self.read(time, &command),
            _ => self.write(time, &command),
        };
        self.head = command.lba + command.sectors;
        self.ready.push(Reverse((finish, command.id)));
        self.busy = Some(Busy { finish, drained: None });
    }

    fn choose(&mut self, time: u64) -> Option<Command> {
        let here = (self.head, 0);
        let key = match self.order {
            Order::Fifo => *self.queue.keys().next()?,
            Order::OneWay => *self.queue.range(here..).next().or_else(|| self.queue.iter().next())?.0,
            Order::TwoWay => {
                let (ahead, behind) = (self.queue.range(here..).next(), self.queue.range(..here).next_back());
                self.inward = if self.inward { ahead.is_some() } else { behind.is_none() };
                *if self.inward { ahead } else { behind }?.0
            }
            Order::Nearest => {
                let waiting = self.queue.iter().take(self.depth.max(1));
                let cost = |command: &Command| self.arm.positioning(time, command.lba, command.kind == Kind::Write);
                *waiting.min_by_key(|(key, command)| (cost(command), **key))?.0
            }
        };
        self.queue.remove(&key)
    }

    /// When a command that is begun at `time` has had its overhead.
    fn begin(&mut self, time: u64, command: &Command, overhead: u64) -> u64 {
        let ready = if self.depth > 1 { time.max(command.arrived + overhead) } else { time + overhead };
        self.times.overhead += ready - time;
        ready
    }

    fn read(&mut self, time: u64, command: &Command) -> u64 {
        let (start, end) = (command.lba, command.lba + command.sectors);
        self.times.reads += 1;
        if let Some(ahead) = &mut self.ahead {
            self.arm.stream_until(&mut ahead.stream, time, ahead.limit);
            self.segments.reach(ahead.segment, ahead.stream.next);
        }
        let in_dirty = self.dirty.range(..=start).next_back().is_some_and(|(lba, run)| lba + run.sectors >= end);
        let passes = |ahead: &&Ahead| (self.segments.end(ahead.segment)..=ahead.limit).contains(&start);
        let coming = self.ahead.as_ref().filter(passes).map(|ahead| ahead.segment);
        let found = coming.or_else(|| self.segments.find(start));
        if in_dirty || found.is_some_and(|segment| self.segments.end(segment) >= end) {
            if let Some(segment) = found {
                self.go_on(segment, end, time);
            }
            self.times.hits += 1;
            let ready = self.begin(time, command, self.hit_overhead);
            self.times.bus += self.bus(command.sectors);
            return ready + self.bus(command.sectors);
        }
        // What passes the head next is waited for.
        if let Some(ahead) = self.ahead.take_if(|ahead| found == Some(ahead.segment)) {
            return self.read_on(ahead, time, command);
        }
        let ready = self.begin(time, command, self.overhead);
        self.stop(ready);
        let from = found.map_or(start, |segment| self.segments.end(segment));
        let media = self.access(ready, from, end - from, false);
        if let Some(segment) = self.segments.hold(found, start, end) {
            let limit = (end + self.read_ahead).min(self.arm.geometry.capacity);
            self.ahead = Some(Ahead { segment, stream: Stream { next: end, at: media }, limit });
        }
        (media + self.bus(1)).max(ready + self.bus(command.sectors))
    }

    /// The reading that goes on by itself serves the command.
    fn read_on(&mut self, mut ahead: Ahead, time: u64, command: &Command) -> u64 {
        let end = command.lba + command.sectors;
        let ready = self.begin(time, command, self.hit_overhead);
        if ahead.stream.next == ahead.limit {
            // It had stopped.
            ahead.stream.at = ahead.stream.at.max(ready);
        }
        self.arm.stream_to(&mut ahead.stream, end);
        self.segments.reach(ahead.segment, end);
        ahead.limit = (end + self.read_ahead).min(self.arm.geometry.capacity);
        let finish = (ahead.stream.at + self.bus(1)).max(ready + self.bus(command.sectors));
        self.times.streamed += finish - ready;
        self.ahead = Some(ahead);
        finish
    }

    /// A hit in the segment that is being filled moves the point where that stops.
    fn go_on(&mut self, segment: usize, end: u64, time: u64) {
        let capacity = self.arm.geometry.capacity;
        let Some(ahead) = self.ahead.as_mut().filter(|ahead| ahead.segment == segment) else { return };
        let limit = (end + self.read_ahead).min(capacity);
        if limit > ahead.limit {
            if ahead.stream.next == ahead.limit {
                ahead.stream.at = ahead.stream.at.max(time);
            }
            ahead.limit = limit;
        }
    }

    fn write(&mut self, time: u64, command: &Command) -> u64 {
        self.times.writes += 1;
        let ready = self.begin(time, command, self.overhead);
        self.stop(ready);
        self.segments.forget(command.lba, command.sectors);
        let media = self.access(ready, command.lba, command.sectors, true);
        media.max(ready + self.bus(command.sectors))
    }

    /// Ends reading ahead: the arm is needed.
    fn stop(&mut self, time: u64) {
        if let Some(mut ahead) = self.ahead.take() {
            self.arm.stream_until(&mut ahead.stream, time, ahead.limit);
            self.segments.reach(ahead.segment, ahead.stream.next);
        }
    }

    fn access(&mut self, time: u64, lba: u64, sectors: u64, write: bool) -> u64 {
        let access = self.arm.access(time, lba, sectors, write);
        self.times.seek += access.seek;
        self.times.rotation += access.rotation;
        self.times.transfer += access.transfer;
        access.finish
    }

    /// Takes writes into the cache while there is room. One that is larger than the cache has it for itself.
    fn take_writes(&mut self, time: u64) {
        while let Some(command) = self.stalled.front().copied() {
            if self.dirty_sectors > 0 && self.dirty_sectors + command.sectors > self.write_sectors {
                return;
            }
            self.stalled.pop_front();
            let begin = time.max(self.taken);
            self.taken = begin + self.overhead + self.bus(command.sectors);
            self.times.writes += 1;
            self.times.overhead += self.overhead;
            self.times.bus += self.bus(command.sectors);
            self.times.waiting += begin - command.arrived;
            self.ready.push(Reverse((self.taken, command.id)));
            if self.busy.is_none() && self.queue.is_empty() && self.dirty.is_empty() {
                self.wake = time;
            }
            self.soil(&command);
        }
    }

    /// Notes the sectors as dirty, as one run with those they touch.
    fn soil(&mut self, command: &Command) {
        let (mut start, mut end) = (command.lba, command.lba + command.sectors);
        let mut since = command.id;
        while let Some((lba, run)) = self.dirty.range(..=end).next_back().map(|(lba, run)| (*lba, *run)) {
            if lba + run.sectors < start {
                break;
            }
            (start, end, since) = (start.min(lba), end.max(lba + run.sectors), since.min(run.since));
            self.dirty.remove(&lba);
            self.dirty_sectors -= run.sectors;
        }
        self.dirty.insert(start, Run { sectors: end - start, since });
        self.dirty_sectors += end - start;
    }

    /// Writes the next dirty run inward, or a part of it.
    fn drain(&mut self, time: u64) {
        let next = self.dirty.range(self.head..).next().or_else(|| self.dirty.iter().next());
        let Some((lba, run)) = next.map(|(lba, run)| (*lba, *run)) else { return };
        self.dirty.remove(&lba);
        let part = Run { sectors: run.sectors.min(DRAIN), since: run.since };
        if part.sectors < run.sectors {
            self.dirty.insert(lba + part.sectors, Run { sectors: run.sectors - part.sectors, since: run.since });
        }
        self.stop(time);
        let finish = self.access(time, lba, part.sectors, true);
        self.times.drained += 1;
        self.head = lba + part.sectors;
        self.busy = Some(Busy { finish, drained: Some(part) });
    }

    /// A sync is done when nothing of before it is dirty.
    fn finish_syncs(&mut self, time: u64) {
        let under_way = self.busy.as_ref().and_then(|busy| busy.drained).map(|run| run.since);
        let oldest = self.dirty.values().map(|run| run.since).chain(under_way).min().unwrap_or(u64::MAX);
        for id in self.syncs.extract_if(.., |id| *id < oldest) {
            self.times.syncs += 1;
            self.ready.push(Reverse((time + self.overhead, id)));
        }
    }
}
