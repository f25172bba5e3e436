//! Going through everything: the scrubber's pass after a crash, listings, and the audit.

use std::collections::HashSet;

use bytes::Bytes;
use picaflor::{CheckReport, Error, Result, layout::VolumeEnv};
use picaflor_format::{
    frame::{ChunkKey, Header, Manifest},
    journal::Record,
};

use super::{place::InPlace, space::Place};

/// What an audit saw.
#[derive(Default)]
struct Seen {
    /// Large objects, by the hash of their key.
    heads: Vec<(u128, Manifest)>,
    /// Rows of which nothing is left.
    unknown: Vec<Place>,
}

impl InPlace {
    /// Reads and verifies the frame of a row.
    ///
    /// # Errors
    /// As [`VolumeEnv::read_frame`].
    pub(super) fn read(&self, volume: &dyn VolumeEnv, place: Place) -> Result<(Header, Bytes)> {
        volume.read_frame(place.grain(), place.grains())
    }

    fn is_own(&self, place: Place, header: &Header, frame: &[u8]) -> bool {
        self.medium.hasher.frame(header.kind, header.key(frame)).0 == place.hash
    }

    /// One object after the other, under its key's lock, so that nothing is written there meanwhile.
    pub(super) fn verify_part(&self, volume: &dyn VolumeEnv, part: u32) {
        for place in self.extents.slice(part) {
            let hash = place.hash as u64;
            let _stripe = self.env.lock_key(hash);
            let Some(entry) = volume.find(hash, place.grain()) else { continue };
            let gone = match self.read(volume, place) {
                Ok((header, frame)) => !self.is_own(place, &header, &frame) || volume.is_left_over(&header, &frame),
                Err(error) => matches!(error, Error::Damaged { .. }),
            };
            if gone && volume.drop_entry(hash, entry) && !self.env.read_only() {
                self.log.record(Record::Delete { hash: place.hash, generation: self.env.next_generation() });
            }
        }
    }

    /// The objects of a part, in the order in which they lie.
    pub(super) fn list_part(&self, volume: &dyn VolumeEnv, part: u32, see: &mut dyn FnMut(Result<(Header, Bytes)>)) {
        let mut places = self.extents.slice(part);
        places.sort_unstable_by_key(|place| place.slot);
        for place in places {
            let is_there = || volume.find(place.hash as u64, place.grain()).is_some();
            let read = is_there().then(|| self.read(volume, place));
            // Unless it left while it was read.
            if let Some(read) = read.filter(|read| read.is_ok() || is_there()) {
                see(read);
            }
        }
    }

    /// Verifies every object that the index leads to.
    pub(super) fn check_all(
        &self,
        volume: &dyn VolumeEnv,
        report: &mut CheckReport,
        part_done: &mut dyn FnMut(&mut CheckReport),
    ) {
        let mut seen = Seen::default();
        for part in 0..self.extents.slices() {
            for place in self.extents.slice(part) {
                if volume.find(place.hash as u64, place.grain()).is_some() {
                    self.check(volume, place, &mut seen, report);
                }
            }
            part_done(report);
        }
        self.judge_unknown(seen, report);
    }

    fn check(&self, volume: &dyn VolumeEnv, place: Place, seen: &mut Seen, report: &mut CheckReport) {
        match self.read(volume, place) {
            Ok((header, frame)) if self.is_own(place, &header, &frame) => {
                report.intact += 1;
                report.intact_bytes += header.frame_len() as u64;
                report.orphans += u64::from(volume.is_left_over(&header, &frame));
                seen.heads.extend(header.manifest(&frame).map(|manifest| (place.hash, manifest)));
            }
            // It was written to these slots, so they were free: of the pieces of an object that is gone no record
            // tells.
            Ok(_) => report.outdated += 1,
            Err(Error::Damaged { .. }) if self.env.has_checkpoints() => {
                self.check_torn(volume, place, seen, report);
            }
            Err(why) => report.note(&why),
        }
    }

    /// What does not verify: where its header is left, that says whether it was a piece.
    fn check_torn(&self, volume: &dyn VolumeEnv, place: Place, seen: &mut Seen, report: &mut CheckReport) {
        let read = match self.file_of(place.slot) {
            // Of a piece that is gone, though no record says so, the file is gone too.
            Some(files) => Ok(files.read(place.slot).unwrap_or_default().into()),
            None => volume.read_unverified(place.grain(), place.grains()),
        };
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(why) => return report.note(&why),
        };
        match Header::of_damaged(&bytes).filter(|header| self.is_own(place, header, &bytes)) {
            Some(header) if volume.is_left_over(&header, &bytes) => report.outdated += 1,
            Some(_) => report.damaged.push(self.object_in(place)),
            None => seen.unknown.push(place),
        }
    }

    /// Rows of which nothing is left: they are missed if they are pieces of what is there.
    fn judge_unknown(&self, seen: Seen, report: &mut CheckReport) {
        if seen.unknown.is_empty() {
            return;
        }
        let hasher = self.medium.hasher;
        let pieces = seen.heads.iter().flat_map(|(parent, manifest)| {
            let key = |number| ChunkKey { parent: *parent, id: manifest.id, number }.encode();
            (0..manifest.chunks()).map(move |number| hasher.chunk(&key(number)).0)
        });
        let pieces: HashSet<u128> = pieces.collect();
        for place in seen.unknown {
            if pieces.contains(&place.hash) {
                report.damaged.push(self.object_in(place));
            } else {
                report.unsettled += 1;
            }
        }
    }

    fn object_in(&self, place: Place) -> String {
        match self.file_of(place.slot) {
            Some(_) => format!("{}: the object in file {:08x}", self.medium.place, place.slot),
            None => {
                format!("{}: the object in slots {} to {}", self.medium.place, place.slot, place.slot + place.slots - 1)
            }
        }
    }
}
