//! What a simulated device is made of, as a data file: a disk's mechanics, or a budget of operations and bytes.
//!
//! The files are in `profiles/`; each number stands beside its source. A key that is not known is refused with its
//! line, so that a misspelt one is not silently a default.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Deserialize;

use super::seek::SeekProfile;

/// A device that can be simulated.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Profile {
    /// What it is called on a command line.
    pub name: String,
    /// Maker, model, year.
    pub title: String,
    /// Where the numbers come from.
    pub sources: Vec<String>,
    /// What is not this device's own: taken from a relative, assumed, or remembered.
    pub proxies: Vec<String>,
    /// A disk with an arm.
    pub disk: Option<DiskProfile>,
    /// Flash, or a volume of a cloud.
    pub budget: Option<BudgetProfile>,
}

/// A disk's mechanics. Milliseconds, 512-byte sectors, cylinders counted from the outer edge.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DiskProfile {
    /// Sectors, if fewer than the zones hold.
    pub blocks: Option<u64>,
    /// Revolutions a minute.
    pub rpm: f64,
    /// Surfaces.
    pub heads: u32,
    /// Cylinders in all.
    pub cylinders: u32,
    /// Zones of equal sectors a track, from the outer edge.
    pub zones: Vec<ZoneProfile>,
    /// From one head to another of the same cylinder.
    pub head_switch_ms: f64,
    /// Added to a seek or head switch before a write.
    pub write_settle_ms: f64,
    /// How much later a track starts than the one before, where a zone does not say it in sectors.
    pub track_skew_ms: f64,
    /// The same from the last track of a cylinder to the first of the next.
    pub cylinder_skew_ms: f64,
    /// The arm.
    pub seek: SeekProfile,
    /// Before anything moves, for each command.
    pub overhead_ms: f64,
    /// Instead of `overhead_ms`, for a read that the buffer answers.
    pub hit_overhead_ms: f64,
    /// Megabytes (10^6) a second between host and buffer.
    pub bus_mb_s: f64,
    /// Commands the drive holds. While one is served the overhead of the next passes, if it holds more than one.
    pub queue: u32,
    /// Which of the waiting requests is next.
    pub order: Order,
    /// The buffer on the drive.
    pub cache: CacheProfile,
}

/// Cylinders with one number of sectors a track.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ZoneProfile {
    /// First cylinder.
    pub first: u32,
    /// Last cylinder, if some between here and the next zone are spare.
    pub last: Option<u32>,
    /// Sectors a track.
    pub sectors: u32,
    /// Sectors a track starts later than the one before.
    pub track_skew: Option<u32>,
    /// The same across cylinders.
    pub cylinder_skew: Option<u32>,
}

/// The buffer on a drive.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CacheProfile {
    /// Independent runs of sectors it can hold for reading.
    pub segments: u32,
    /// Sectors of each.
    pub segment_sectors: u64,
    /// Sectors read on after a read, while nothing else is asked.
    pub read_ahead_sectors: u64,
    /// Sectors that writes may occupy before they are on the platter; 0: a write is done when it is there.
    pub write_sectors: u64,
}

/// Which of the waiting requests is next.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Order {
    /// As they came.
    #[default]
    Fifo,
    /// By position, inward only; from the innermost back to the outermost.
    OneWay,
    /// By position, inward and outward in turn.
    TwoWay,
    /// The one that can be begun soonest, seek and rotation taken together.
    Nearest,
}

/// A device without an arm: a latency, and buckets that limit operations and bytes.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BudgetProfile {
    /// Sectors of 512 bytes.
    pub blocks: u64,
    /// Latency of a small read: pairs of a fraction of all requests and microseconds; straight lines between.
    pub read_us: Vec<(f64, f64)>,
    /// The same for writes.
    pub write_us: Vec<(f64, f64)>,
    /// Microseconds of a sync.
    pub sync_us: f64,
    /// Megabytes (10^6) a second of one request, on top of its latency.
    pub stream_mb_s: f64,
    /// An operation of more bytes than this counts as several; adjacent ones that wait together count as one. 0: each
    /// is one.
    pub unit_bytes: u64,
    /// All of them must grant a request.
    pub buckets: Vec<BucketProfile>,
}

/// A bucket of time: each request costs what it takes of a second, and a second flows in each second. What is not
/// limited here is left out.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BucketProfile {
    /// Reads a second, if nothing else is done.
    pub read_ops: Option<f64>,
    /// Writes a second.
    pub write_ops: Option<f64>,
    /// Megabytes (10^6) read a second.
    pub read_mb_s: Option<f64>,
    /// Megabytes written a second.
    pub write_mb_s: Option<f64>,
    /// Seconds that may be saved up.
    pub burst_s: f64,
}

/// A profile that cannot be used, and why: the file, the line, the key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProfileError(String);

impl fmt::Display for ProfileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for ProfileError {}

/// The profiles that are compiled in, by name.
const BUILT_IN: &[(&str, &str)] = &[
    ("barracuda4", include_str!("../../profiles/barracuda4.toml")),
    ("ultrastar9lzx", include_str!("../../profiles/ultrastar9lzx.toml")),
    ("ultrastar18lzx", include_str!("../../profiles/ultrastar18lzx.toml")),
    ("cheetah18", include_str!("../../profiles/cheetah18.toml")),
    ("barracuda7200_8", include_str!("../../profiles/barracuda7200_8.toml")),
    ("exos", include_str!("../../profiles/exos.toml")),
    ("nvme", include_str!("../../profiles/nvme.toml")),
    ("sata-ssd", include_str!("../../profiles/sata-ssd.toml")),
    ("ebs-gp3", include_str!("../../profiles/ebs-gp3.toml")),
    ("ebs-st1", include_str!("../../profiles/ebs-st1.toml")),
    ("pd-balanced", include_str!("../../profiles/pd-balanced.toml")),
];

impl Profile {
    /// Names of the profiles that are compiled in.
    pub fn names() -> impl Iterator<Item = &'static str> {
        BUILT_IN.iter().map(|(name, _)| *name)
    }

    /// A profile by name, or else from a file at this path.
    ///
    /// # Errors
    /// Neither, or a file that is no profile, with the line and key.
    pub fn find(name: &str) -> Result<Self, ProfileError> {
        if let Some((name, text)) = BUILT_IN.iter().find(|(known, _)| *known == name) {
            return Self::parse(name, text);
        }
        let known = || Self::names().collect::<Vec<_>>().join(", ");
        match fs::read_to_string(Path::new(name)) {
            Ok(text) => Self::parse(name, &text),
            Err(error) => Err(ProfileError(format!("{name}: not one of {}, and no file: {error}", known()))),
        }
    }

    /// One part in `parts` of a disk: so many times fewer cylinders, each as far from the next as `parts` of them
    /// were. What fills a share of it moves the arm as far as the same share of the whole. A device without an arm
    /// only becomes smaller.
    #[must_use]
    pub fn part(mut self, parts: u32) -> Self {
        if let Some(disk) = &mut self.disk {
            disk.blocks = disk.blocks.map(|blocks| blocks / u64::from(parts));
            disk.cylinders = (disk.cylinders / parts).max(1);
            disk.seek.stretch *= f64::from(parts);
            for zone in &mut disk.zones {
                zone.first /= parts;
                // The last cylinder of a zone is what is before the first of the next.
                zone.last = zone.last.map(|last| ((last + 1) / parts).max(zone.first + 1) - 1);
            }
        }
        if let Some(budget) = &mut self.budget {
            budget.blocks /= u64::from(parts);
        }
        self
    }

    /// Reads a profile; `origin` names it in errors.
    ///
    /// # Errors
    /// A key that is missing, unknown or of the wrong type, with its line; or a value that makes no disk.
    pub fn parse(origin: &str, text: &str) -> Result<Self, ProfileError> {
        let profile: Self = toml::from_str(text).map_err(|error| ProfileError(format!("{origin}: {error}")))?;
        profile.check().map_err(|why| ProfileError(format!("{origin}: {why}")))?;
        Ok(profile)
    }

    fn check(&self) -> Result<(), String> {
        match (&self.disk, &self.budget) {
            (Some(disk), None) => disk.check(),
            (None, Some(budget)) => budget.check(),
            _ => Err("give either [disk] or [budget]".to_owned()),
        }
    }
}

impl DiskProfile {
    fn check(&self) -> Result<(), String> {
        self.seek.check()?;
        // Beyond what any disk has: a revolution of no nanoseconds, or a table of seeks that fills the memory.
        let numbers = [
            ("rpm", self.rpm, 10.0, 1e6),
            ("bus_mb_s", self.bus_mb_s, 1e-3, 1e6),
            ("heads", f64::from(self.heads), 1.0, 1024.0),
            ("cylinders", f64::from(self.cylinders), 1.0, 1e7),
            ("queue", f64::from(self.queue), 1.0, 65_536.0),
        ];
        for (name, number, least, most) in numbers {
            if !(least..=most).contains(&number) {
                return Err(format!("{name} must be from {least} to {most}"));
            }
        }
        let times = [
            ("head_switch_ms", self.head_switch_ms),
            ("write_settle_ms", self.write_settle_ms),
            ("track_skew_ms", self.track_skew_ms),
            ("cylinder_skew_ms", self.cylinder_skew_ms),
            ("overhead_ms", self.overhead_ms),
            ("hit_overhead_ms", self.hit_overhead_ms),
        ];
        for (name, time) in times {
            if !(0.0..1000.0).contains(&time) {
                return Err(format!("{name} must be from 0 to 1000 ms"));
            }
        }
        if !self.seek.millis(self.cylinders).is_finite() || self.seek.millis(self.cylinders) > 1000.0 {
            return Err("seek: more than a second across the disk".to_owned());
        }
        if self.zones.first().is_none_or(|zone| zone.first != 0)
            || self.zones.iter().any(|zone| !(1..=1 << 20).contains(&zone.sectors))
        {
            return Err("zones must begin at cylinder 0 and have from 1 to 1048576 sectors a track".to_owned());
        }
        for (index, zone) in self.zones.iter().enumerate() {
            let next = self.zones.get(index + 1).map_or(self.cylinders, |next| next.first);
            if zone.first >= next || zone.last.is_some_and(|last| last < zone.first || last >= next) {
                return Err(format!("the zone at cylinder {} does not end before {next}", zone.first));
            }
        }
        Ok(())
    }

    /// Cylinders that the zone uses.
    pub(crate) fn cylinders_of(&self, zone: usize) -> u32 {
        let next = self.zones.get(zone + 1).map_or(self.cylinders, |next| next.first);
        self.zones[zone].last.map_or(next, |last| last + 1) - self.zones[zone].first
    }

    /// Megabytes (10^6) a second of a long transfer in a zone, switches and skews included.
    ///
    /// # Panics
    /// If there is no such zone.
    #[must_use]
    pub fn sustained_mb_s(&self, zone: usize) -> f64 {
        let revolution = 60e3 / self.rpm;
        let (zone, heads) = (&self.zones[zone], f64::from(self.heads));
        let in_ms = |skew: Option<u32>, ms: f64| {
            let sector = revolution / f64::from(zone.sectors);
            skew.map_or((ms / sector).ceil() * sector, |skew| f64::from(skew) * sector)
        };
        let track = in_ms(zone.track_skew, self.track_skew_ms);
        let cylinder = in_ms(zone.cylinder_skew, self.cylinder_skew_ms);
        let bytes = heads * f64::from(zone.sectors) * 512.0;
        bytes / (heads * revolution + (heads - 1.0) * track + cylinder) / 1e3
    }
}

impl BudgetProfile {
    fn check(&self) -> Result<(), String> {
        if self.blocks == 0 {
            return Err("blocks must be more than 0".to_owned());
        }
        for (name, points) in [("read_us", &self.read_us), ("write_us", &self.write_us)] {
            let rises = points.windows(2).all(|two| two[0].0 < two[1].0 && two[0].1 <= two[1].1);
            let spans = points.first().is_some_and(|first| first.0 == 0.0 && first.1 >= 0.0)
                && points.last().is_some_and(|last| last.0 == 1.0 && last.1 < 1e9);
            if !rises || !spans {
                return Err(format!("{name} must rise from fraction 0 to fraction 1"));
            }
        }
        let rate = self.stream_mb_s.is_finite() && self.stream_mb_s > 0.0;
        if !rate || !(0.0..1e9).contains(&self.sync_us) {
            return Err("sync_us must not be negative, stream_mb_s more than 0".to_owned());
        }
        for bucket in &self.buckets {
            let rates = [bucket.read_ops, bucket.write_ops, bucket.read_mb_s, bucket.write_mb_s];
            if !rates.iter().flatten().all(|rate| rate.is_finite() && *rate > 0.0)
                || !(0.0..1e6).contains(&bucket.burst_s)
            {
                return Err("a bucket's rates must be more than 0 and its burst from 0 to 10^6 s".to_owned());
            }
        }
        Ok(())
    }
}
