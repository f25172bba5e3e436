//! The moving parts: where the arm is, and how long it takes to move, wait for a sector and let it pass.
//!
//! The platter turns by the clock: the angle at a time is the time modulo a revolution, never a mean. So two
//! writes to one sector are a revolution apart, whatever else happens.

use super::geometry::Geometry;
use super::profile::DiskProfile;

/// Angles are rounded to whole nanoseconds. Who is this much late for a sector is not late.
const ROUNDING: u64 = 1_000;

pub(crate) struct Arm {
    pub(crate) geometry: Geometry,
    /// Nanoseconds by distance in cylinders.
    seeks: Vec<u32>,
    head_switch: u64,
    write_settle: u64,
    cylinder: u32,
    head: u32,
}

/// Nanoseconds of one access by what they went into. They add up to `finish` less the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Access {
    pub(crate) finish: u64,
    pub(crate) seek: u64,
    pub(crate) rotation: u64,
    pub(crate) transfer: u64,
}

/// What is passing the head when reading goes on by itself.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stream {
    /// The next sector to be read.
    pub(crate) next: u64,
    /// When the one before it had been read.
    pub(crate) at: u64,
}

impl Arm {
    pub(crate) fn new(profile: &DiskProfile) -> Self {
        let nanos = |ms: f64| (ms * 1e6).round() as u64;
        Self {
            geometry: Geometry::new(profile),
            seeks: (0..profile.cylinders).map(|distance| nanos(profile.seek.millis(distance)) as u32).collect(),
            head_switch: nanos(profile.head_switch_ms),
            write_settle: nanos(profile.write_settle_ms),
            cylinder: 0,
            head: 0,
        }
    }

    /// Nanoseconds from where the arm is until it is settled there.
    fn moving(&self, cylinder: u32, head: u32, write: bool) -> u64 {
        let mut time = self.seeks[cylinder.abs_diff(self.cylinder) as usize];
        if head != self.head {
            time = time.max(self.head_switch as u32);
        } else if cylinder == self.cylinder {
            return 0;
        }
        u64::from(time) + if write { self.write_settle } else { 0 }
    }

    /// Nanoseconds at `time` until `angle` is under the head.
    fn turning(&self, time: u64, angle: u64) -> u64 {
        let revolution = self.geometry.revolution;
        let wait = (angle + revolution - time % revolution) % revolution;
        if wait + ROUNDING > revolution { 0 } else { wait }
    }

    /// Nanoseconds from `time` until the first sector would be under the head; for choosing among requests.
    pub(crate) fn positioning(&self, time: u64, lba: u64, write: bool) -> u64 {
        let place = self.geometry.locate(lba);
        let moving = self.moving(place.cylinder, place.head, write);
        moving + self.turning(time + moving, place.angle)
    }

    /// Moves there, starting at `start`, and lets `sectors` pass.
    pub(crate) fn access(&mut self, start: u64, lba: u64, sectors: u64, write: bool) -> Access {
        let mut access = Access { finish: start, ..Access::default() };
        let (mut next, end) = (lba, lba + sectors);
        while next < end {
            next += self.track(&mut access, next, end - next, write);
        }
        access
    }

    /// As much of a transfer as lies on one track; returns the sectors that passed.
    fn track(&mut self, access: &mut Access, lba: u64, most: u64, write: bool) -> u64 {
        let place = self.geometry.locate(lba);
        let moving = self.moving(place.cylinder, place.head, write);
        let turning = self.turning(access.finish + moving, place.angle);
        let count = most.min(place.left);
        let passing = self.geometry.pass(&place, count);
        (self.cylinder, self.head) = (place.cylinder, place.head);
        access.seek += moving;
        access.rotation += turning;
        access.transfer += passing;
        access.finish += moving + turning + passing;
        count
    }

    /// Goes on reading until all before `end` is read.
    pub(crate) fn stream_to(&mut self, stream: &mut Stream, end: u64) {
        if stream.next < end {
            stream.at = self.access(stream.at, stream.next, end - stream.next, false).finish;
            stream.next = end;
        }
    }

    /// Goes on reading until `time`, at most up to `limit`.
    pub(crate) fn stream_until(&mut self, stream: &mut Stream, time: u64, limit: u64) {
        while stream.next < limit && stream.at < time {
            let place = self.geometry.locate(stream.next);
            let begin = stream.at + self.moving(place.cylinder, place.head, false);
            let begin = begin + self.turning(begin, place.angle);
            if begin >= time {
                return;
            }
            let passed = (time - begin) * place.sectors / self.geometry.revolution;
            let count = passed.min(place.left).min(limit - stream.next);
            (self.cylinder, self.head) = (place.cylinder, place.head);
            stream.next += count;
            stream.at = begin + self.geometry.pass(&place, count);
            if count == passed {
                return;
            }
        }
    }
}
