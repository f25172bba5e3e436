//! The offline audit: is every byte that the index promises there, and does every one verify?

use std::collections::{BTreeMap, BTreeSet};

use picaflor_format::{
    BLOCK,
    cluster::Row,
    frame::{GRAIN, Header},
};

use crate::{CheckReport, Receipt, handle::Store, index::Location, read::cluster_reader::Use, volume::Volume};

/// What a finding means for what was put.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "kebab-case"))]
#[non_exhaustive]
pub enum Severity {
    /// What was there is gone, or not what was written.
    Lost,
    /// The device refuses to say, or cannot tell.
    Unknown,
    /// No object is missed.
    Harmless,
}

/// One thing that an audit, or the opening before it, came upon.
#[derive(Debug, Clone, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Finding {
    /// Whether it matters.
    pub severity: Severity,
    /// What and where, in words.
    pub what: String,
}

impl CheckReport {
    /// All that was found by the audit and by the opening of which this is the receipt, what matters first.
    pub fn findings(&self, receipt: &Receipt) -> Vec<Finding> {
        let mut all = Vec::new();
        let mut find = |severity, what: String| all.push(Finding { severity, what });
        self.damaged.iter().for_each(|what| find(Severity::Lost, what.clone()));
        if self.lost > 0 {
            find(Severity::Lost, format!("entries that lead to no object: {}", self.lost));
        }
        for cluster in &self.unreadable_clusters {
            find(Severity::Lost, format!("cluster {cluster} has no table, and not all that the index promises"));
        }
        for volume in &receipt.volumes {
            // Else an older checkpoint, and what was written since, had all of it.
            let severity = if volume.dropped.cold_start { Severity::Lost } else { Severity::Harmless };
            volume.damage.iter().for_each(|what| find(severity, format!("{}: {what}", volume.place)));
            volume.refused.iter().for_each(|what| find(Severity::Unknown, format!("{}: {what}", volume.place)));
        }
        self.refused.iter().for_each(|what| find(Severity::Unknown, what.clone()));
        if self.unsettled > 0 {
            let what = "entries that a crash left without an object, or damage";
            find(Severity::Unknown, format!("{what}: {}", self.unsettled));
        }
        for cluster in &self.bare_clusters {
            find(Severity::Harmless, format!("cluster {cluster} has no table, and all its objects are intact"));
        }
        if self.outdated > 0 {
            find(Severity::Harmless, format!("entries of what had left before the crash: {}", self.outdated));
        }
        if self.orphans > 0 {
            find(Severity::Harmless, format!("chunks of large objects that are gone, which leave: {}", self.orphans));
        }
        all.sort_by_key(|finding| finding.severity as u8);
        all
    }

    /// Whether all was read and nothing is wrong. Orphans are no damage: they leave at the next scrub.
    pub fn is_clean(&self) -> bool {
        self.refused.is_empty() && !self.is_damaged()
    }

    /// Whether something that was read is not what was written.
    pub fn is_damaged(&self) -> bool {
        !self.damaged.is_empty() || self.lost > 0 || !self.unreadable_clusters.is_empty()
    }
}

impl Store {
    /// Verifies every object on the device against the index. For a store that is not being written to:
    /// open it read-only. `progress` is told clusters done and clusters in all.
    pub fn check(&self, mut progress: impl FnMut(u64, u64)) -> CheckReport {
        let mut report = CheckReport::default();
        if let Some(layout) = self.layout() {
            layout.check(&mut report, &mut progress);
            let seen = report.intact + (report.damaged.len() + report.refused.len()) as u64;
            report.lost = report.entries.saturating_sub(seen);
        }
        let total = self.recovered_volumes().iter().map(|volume| u64::from(volume.catalog.parts())).sum();
        for volume in self.recovered_volumes() {
            report.entries += volume.catalog.index.objects();
            let placed = Seen::begin(&report);
            let mut audit = Audit { volume, promised: promised(volume), report: &mut report };
            let mut part_done = |report: &mut CheckReport| {
                report.clusters += 1;
                progress(report.clusters, total);
            };
            match &volume.catalog.places {
                Some(places) => {
                    places.check(volume.parts(), audit.report, &mut part_done);
                    placed.end(&mut audit, Part::Placed);
                }
                None => {
                    for cluster in 0..volume.catalog.parts() {
                        audit.check_cluster(cluster);
                        part_done(audit.report);
                    }
                }
            }
            audit.check_memory();
        }
        report
    }
}

impl Store {
    /// As [`Store::check`] for tasks.
    pub async fn check_async(&self, progress: impl FnMut(u64, u64) + Send + 'static) -> CheckReport {
        self.spawn_blocking(move |store| store.check(progress)).await
    }
}

/// The audit of a volume.
struct Audit<'a> {
    volume: &'a Volume,
    promised: Promised,
    report: &'a mut CheckReport,
}

impl Audit<'_> {
    /// The entries that lead to what is in memory, and those that lead nowhere.
    fn check_memory(&mut self) {
        self.report.lost += self.promised.of(Part::Nowhere);
        let parts: Vec<Part> = self.promised.0.keys().copied().collect();
        for part in parts {
            let Part::Buffer(slot) = part else { continue };
            let seen = Seen::begin(self.report);
            for (hash, offset) in self.volume.catalog.buffers.frames(slot) {
                let location = Location::Buffered { slot, offset: (offset / GRAIN) as u32 };
                if self.volume.catalog.index.find(hash, location).is_none() {
                    continue;
                }
                let Some(frame) = self.volume.catalog.buffers.read(slot, offset, hash, |_, _| true) else { continue };
                self.check_frame(frame.bytes(), || "in memory".into());
            }
            seen.end(self, part);
        }
    }

    /// Verifies one frame that an entry leads to.
    fn check_frame(&mut self, frame: &[u8], at: impl Fn() -> String) {
        match Header::verify(frame) {
            Ok(header) => {
                self.report.intact += 1;
                self.report.intact_bytes += header.frame_len() as u64;
                self.report.orphans += u64::from(self.volume.frames.is_left_over(&header, frame));
            }
            Err(why) => {
                let header = Header::of_damaged(frame);
                // What is left of a piece whose object is gone: its cluster may have been begun anew before a crash.
                if header.is_some_and(|header| self.volume.frames.is_left_over(&header, frame)) {
                    self.report.outdated += 1;
                    return;
                }
                let key = header.map(|header| String::from_utf8_lossy(header.key(frame)).into_owned());
                let key = key.unwrap_or_else(|| "unknown key".into());
                self.report.damaged.push(format!("{}: {key} {}: {why}", self.volume.medium.place, at()));
            }
        }
    }

    /// How many entries lead into one of these intact frames of a cluster's last use and are not its own: the place was
    /// free when that use began, so what they led to had left, however long ago.
    fn entries_within(&self, cluster: u32, frames: &[Row]) -> u64 {
        let catalog = &self.volume.catalog;
        let own: BTreeSet<u64> = catalog
            .entries_of(cluster, frames.to_vec())
            .iter()
            .map(|(row, _)| catalog.medium.grain(cluster, row.offset))
            .collect();
        let within = |grain: u64| {
            frames.iter().any(|row| {
                let start = catalog.medium.grain(cluster, row.offset);
                (start..start + u64::from(row.len) / GRAIN as u64).contains(&grain)
            })
        };
        let mut count = 0;
        catalog.index.for_each(|entry| {
            if let Location::OnDisk { grain } = entry.location() {
                count += u64::from(within(grain) && !own.contains(&grain));
            }
        });
        count
    }

    fn may_be_written_over(&self, cluster: u32) -> bool {
        let mode = self.volume.shared.options.mode;
        self.volume.scrubber.known.may_be_written_over(mode, &self.volume.space, cluster)
    }

    fn check_cluster(&mut self, cluster: u32) {
        if self.promised.of(Part::Cluster(cluster)) == 0 {
            return;
        }
        // Its table is a part of it.
        let read = self.volume.medium.read_at(cluster, 0, self.volume.medium.cluster_len());
        let (bytes, found) =
            match read.and_then(|bytes| Ok((bytes, self.volume.medium.last_use(cluster, None, BLOCK)?))) {
                Ok(read) => read,
                Err(error) => return self.report.note(&error),
            };
        // A table that is there names all that was put in this use: what else leads there is of an earlier one.
        let known = &self.volume.scrubber.known;
        let untold = known.is_untold(&self.volume.space, cluster, &found);
        let tells_all = matches!(found, Use::Sealed(..)) || untold && !known.doubt.is_joined();
        let cannot_tell = untold || self.may_be_written_over(cluster);
        let frames = self.volume.medium.rows_of(found, &bytes);
        let (bare, seen) = (frames.is_empty(), Seen::begin(self.report));
        let mut live = self.volume.catalog.entries_of(cluster, frames.clone());
        self.volume.catalog.add_unlisted(cluster, &bytes, &mut live);
        let damaged = self.report.damaged.len();
        for (row, _) in live {
            let at = || format!("at {}", self.volume.medium.map().cluster_start(cluster) + u64::from(row.offset));
            self.check_frame(bytes.get(row.offset as usize..).unwrap_or_default(), at);
        }
        if self.volume.scrubber.may_mislead() && self.may_be_written_over(cluster) {
            self.report.unsettled += self.report.damaged.drain(damaged..).count() as u64;
        }
        let lost = self.report.lost;
        let whole = seen.end(self, Part::Cluster(cluster));
        let outdated = match self.report.lost - lost {
            0 => 0,
            missing if tells_all => missing,
            missing => self.entries_within(cluster, &frames).min(missing),
        };
        (self.report.lost, self.report.outdated) = (self.report.lost - outdated, self.report.outdated + outdated);
        let missing = self.report.lost - lost;
        if missing > 0 && cannot_tell {
            (self.report.lost, self.report.unsettled) = (lost, self.report.unsettled + missing);
        } else if bare && !tells_all {
            let clusters = if whole { &mut self.report.bare_clusters } else { &mut self.report.unreadable_clusters };
            clusters.push(cluster);
        }
    }
}

/// What the index promises.
fn promised(volume: &Volume) -> Promised {
    let mut promised = Promised::default();
    volume.catalog.index.for_each(|entry| {
        let place = match entry.location() {
            Location::Buffered { slot, .. } => Part::Buffer(slot),
            Location::OnDisk { grain } if volume.catalog.places.is_none() => {
                volume.medium.cluster_of(grain).map_or(Part::Nowhere, Part::Cluster)
            }
            Location::OnDisk { .. } => Part::Placed,
        };
        *promised.0.entry(place).or_default() += 1;
    });
    promised
}

/// Entries of the index by where they lead.
#[derive(Default)]
struct Promised(BTreeMap<Part, u64>);

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Cluster(u32),
    Buffer(u32),
    Placed,
    /// Behind the end.
    Nowhere,
}

impl Promised {
    fn of(&self, part: Part) -> u64 {
        self.0.get(&part).copied().unwrap_or(0)
    }
}

/// What was seen before a part was looked at.
struct Seen {
    intact: u64,
    others: u64,
}

impl Seen {
    fn begin(report: &CheckReport) -> Self {
        Self { intact: report.intact, others: Self::others(report) }
    }

    fn others(report: &CheckReport) -> u64 {
        (report.damaged.len() + report.refused.len()) as u64 + report.outdated + report.unsettled
    }

    /// What was promised and not seen since is lost. Returns whether all of it is intact.
    fn end(&self, audit: &mut Audit<'_>, part: Part) -> bool {
        let intact = audit.report.intact - self.intact;
        let seen = intact + Self::others(audit.report) - self.others;
        let mut promised = audit.promised.of(part);
        if seen < promised {
            // What moved meanwhile, as gets and daemons have it, is no longer promised here.
            promised = promised.min(self::promised(audit.volume).of(part));
        }
        audit.report.lost += promised.saturating_sub(seen);
        intact >= promised
    }
}
