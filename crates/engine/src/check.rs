//! The offline audit: is every byte that the index promises there, and does every one verify?

use std::collections::HashSet;

use serde::Serialize;

use picaflor_format::frame::{Header, Kind};

use crate::{Error, index::Location, place::InPlace, store::Store, volume::Volume};

/// What an audit found.
#[derive(Debug, Clone, Default, Serialize)]
#[non_exhaustive]
pub struct CheckReport {
    /// Entries of the index.
    pub entries: u64,
    /// Entries whose frames verify.
    pub intact: u64,
    /// Bytes of those frames.
    pub intact_bytes: u64,
    /// Entries whose frames fail their checksum, with the key where it can still be read.
    pub damaged: Vec<String>,
    /// What the device refused to read, and where: it may be whole, and is in no other count of what is wrong.
    pub refused: Vec<String>,
    /// Entries that lead to no frame of any sealed cluster.
    pub lost: u64,
    /// Chunks of large objects that are gone.
    pub orphans: u64,
    /// Clusters that hold live objects and whose table is damaged.
    pub unreadable_clusters: Vec<u32>,
    /// Clusters looked at.
    pub clusters: u64,
}

impl CheckReport {
    /// Whether all was read and nothing is wrong. Orphans are no damage: they leave at the next scrub.
    pub fn is_clean(&self) -> bool {
        self.refused.is_empty() && !self.is_damaged()
    }

    /// Whether something that was read is not what was written.
    pub fn is_damaged(&self) -> bool {
        !self.damaged.is_empty() || self.lost > 0 || !self.unreadable_clusters.is_empty()
    }

    /// Notes what is wrong with one entry.
    pub(crate) fn note(&mut self, why: &Error) {
        match why {
            Error::Io { .. } => self.refused.push(why.to_string()),
            why => self.damaged.push(why.to_string()),
        }
    }
}

impl Store {
    /// Verifies every object on the device against the index. For a store that nobody is writing to:
    /// open it read-only. `progress` is told clusters done and clusters in all.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> CheckReport {
        let mut report = CheckReport::default();
        let mut unread = 0;
        if let Some(tabled) = self.tabled() {
            tabled.check(&mut report, &mut progress);
            unread += report.refused.len() as u64;
        }
        let total = self.volumes().iter().map(|volume| u64::from(volume.parts())).sum();
        for volume in self.volumes() {
            report.entries += volume.index.objects();
            let (whole, mut refused) = (report.refused.len(), HashSet::new());
            for cluster in 0..volume.parts() {
                if !volume.check_cluster(cluster, &mut report) {
                    refused.insert(cluster);
                }
                report.clusters += 1;
                progress(report.clusters, total);
            }
            unread += match volume.in_place {
                Some(_) => (report.refused.len() - whole) as u64,
                None => volume.entries_in(&refused),
            };
        }
        report.lost = report.entries.saturating_sub(report.intact + unread + report.damaged.len() as u64);
        report
    }
}

impl Store {
    /// As [`Store::check`] for tasks.
    pub fn check_async(
        &self,
        progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> impl Future<Output = CheckReport> + Send + 'static {
        self.aside(move |store| store.check(progress))
    }
}

impl Volume {
    fn check_slice(&self, in_place: &InPlace, slice: u32, report: &mut CheckReport) {
        for place in in_place.extents.slice(slice) {
            if self.index.find(place.hash as u64, InPlace::location(place.slot)).is_none() {
                continue;
            }
            match self.read_placed(&place) {
                Ok((header, frame)) if self.hasher.frame(header.kind, header.key(&frame)).0 == place.hash => {
                    report.intact += 1;
                    report.intact_bytes += header.frame_len() as u64;
                    let orphan = header.kind == Kind::Chunk && self.is_orphan(header.key(&frame));
                    report.orphans += u64::from(orphan);
                }
                Ok(_) => report.damaged.push(format!("{}: another object at slot {}", self.place, place.slot)),
                Err(why) => report.note(&why),
            }
        }
    }

    /// How many entries lead into these clusters.
    fn entries_in(&self, clusters: &HashSet<u32>) -> u64 {
        let mut entries = 0;
        let is_in = |grain| self.cluster_of(grain).is_some_and(|cluster| clusters.contains(&cluster));
        self.index.for_each(|word| {
            entries += u64::from(matches!(word.location(), Location::OnDisk { grain } if is_in(grain)));
        });
        entries
    }

    /// False if the device refuses to read it.
    fn check_cluster(&self, cluster: u32, report: &mut CheckReport) -> bool {
        if let Some(in_place) = &self.in_place {
            self.check_slice(in_place, cluster, report);
            return true;
        }
        if !self.space.state(cluster).is_read() || self.space.live(cluster) == 0 {
            return true;
        }
        // Its table is a part of it.
        let read = self.read_at(cluster, 0, self.cluster_len());
        let (bytes, rows) = match read.and_then(|bytes| Ok((bytes, self.contents(cluster)?))) {
            Ok(read) => read,
            Err(error) => {
                report.note(&error);
                return false;
            }
        };
        if rows.is_empty() {
            report.unreadable_clusters.push(cluster);
        }
        let mut live = self.entries_of(cluster, rows);
        self.add_unlisted(cluster, &bytes, &mut live);
        for (row, _) in live {
            let frame = bytes.get(row.offset as usize..).unwrap_or_default();
            match Header::verify(frame) {
                Ok(header) => {
                    report.intact += 1;
                    report.intact_bytes += header.frame_len() as u64;
                    let orphan = header.kind == Kind::Chunk && self.is_orphan(header.key(frame));
                    report.orphans += u64::from(orphan);
                }
                Err(why) => {
                    let key = Header::decode(frame).ok().and_then(|header| {
                        let end = header.meta_start();
                        (end <= frame.len()).then(|| String::from_utf8_lossy(header.key(frame)).into_owned())
                    });
                    let place = self.map.cluster_start(cluster) + u64::from(row.offset);
                    let key = key.unwrap_or_else(|| "unknown key".into());
                    report.damaged.push(format!("{}: {key} at {place}: {why}", self.place));
                }
            }
        }
        true
    }
}
