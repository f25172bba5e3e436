//! Where a sector is: cylinder, head, and the angle at which it passes under the head.
//!
//! Sectors are numbered along a track, then down the heads of a cylinder, then inward. Each track starts a little
//! later than the one before it (track skew, cylinder skew), so that a transfer that goes on there finds its next
//! sector just arriving when the head has settled.

use super::profile::DiskProfile;

/// Bytes in a sector.
pub(crate) const SECTOR: u64 = 512;

/// Where a sector is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) cylinder: u32,
    pub(crate) head: u32,
    /// Nanoseconds of a revolution from the index mark to this sector.
    pub(crate) angle: u64,
    /// Sectors from here to the end of the track, this one included.
    pub(crate) left: u64,
    /// Sectors on this track.
    pub(crate) sectors: u64,
}

#[derive(Debug)]
pub(crate) struct Geometry {
    zones: Vec<Zone>,
    heads: u64,
    /// Nanoseconds of a revolution.
    pub(crate) revolution: u64,
    /// Sectors on the disk.
    pub(crate) capacity: u64,
}

#[derive(Debug)]
struct Zone {
    first_lba: u64,
    first_cylinder: u64,
    sectors: u64,
    track_skew: u64,
    cylinder_skew: u64,
}

impl Geometry {
    pub(crate) fn new(profile: &DiskProfile) -> Self {
        let revolution = (60e9 / profile.rpm).round() as u64;
        let heads = u64::from(profile.heads);
        let in_sectors = |ms: f64, sectors: u32| (ms * 1e6 * f64::from(sectors) / revolution as f64).ceil() as u32;
        let mut zones = Vec::with_capacity(profile.zones.len());
        let mut first_lba = 0;
        for (index, zone) in profile.zones.iter().enumerate() {
            let track = zone.track_skew.unwrap_or_else(|| in_sectors(profile.track_skew_ms, zone.sectors));
            let cylinder = zone.cylinder_skew.unwrap_or_else(|| in_sectors(profile.cylinder_skew_ms, zone.sectors));
            zones.push(Zone {
                first_lba,
                first_cylinder: u64::from(zone.first),
                sectors: u64::from(zone.sectors),
                track_skew: u64::from(track),
                cylinder_skew: u64::from(cylinder),
            });
            first_lba += u64::from(profile.cylinders_of(index)) * heads * u64::from(zone.sectors);
        }
        Self { zones, heads, revolution, capacity: profile.blocks.unwrap_or(first_lba).min(first_lba) }
    }

    pub(crate) fn locate(&self, lba: u64) -> Place {
        let zone = &self.zones[self.zones.partition_point(|zone| zone.first_lba <= lba) - 1];
        let inside = lba - zone.first_lba;
        let (track, sector) = (inside / zone.sectors, inside % zone.sectors);
        let (cylinder, head) = (track / self.heads, track % self.heads);
        let per_cylinder = (self.heads - 1) * zone.track_skew + zone.cylinder_skew;
        let turned = (sector + cylinder * per_cylinder + head * zone.track_skew) % zone.sectors;
        Place {
            cylinder: (zone.first_cylinder + cylinder) as u32,
            head: head as u32,
            angle: turned * self.revolution / zone.sectors,
            left: zone.sectors - sector,
            sectors: zone.sectors,
        }
    }

    /// Nanoseconds for `count` sectors of this track to pass.
    pub(crate) fn pass(&self, place: &Place, count: u64) -> u64 {
        count * self.revolution / place.sectors
    }
}
