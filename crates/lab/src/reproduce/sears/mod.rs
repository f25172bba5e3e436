//! Sears & van Ingen 2007: what becomes of files and of a database as their objects are replaced, S-1 to S-14.
//!
//! The paper's systems, NTFS and SQL Server 2005, cannot be run here. A new ext4, whose files are forced after each
//! request of 64 KB as NTFS allocated with each of the paper's, and SQLite stand in for them: a claim that holds is a
//! claim about files and databases, one that does not is about those two. Volumes are an eightieth of the paper's, and
//! a fortieth for the largest objects. Where objects lie is measured; rates are of simulated disks with the same
//! extents, the paper's among them.

mod claims;
mod runs;

use self::runs::{FRAGMENTED, OURS, Runs, WHOLE};
use super::{
    how::{How, Progress},
    reproduction::{Reproduction, Results},
};
use crate::{
    Error, Result,
    age::{self, Case, Deletes, Force, Kind, Law, Medium, Request, Sizes, Start},
    draw::{Chart, Mark, Scale, Series},
};

/// The paper's.
const DISK: &str = "barracuda7200_8";
const MB: u64 = 1 << 20;
/// Age at which runs end.
const AGE: f64 = 6.0;

/// One case: its name, candidate, shortest and longest object in KB, volume in MB, KB of a request.
type Row = (&'static str, Kind, (u64, u64), u64, u64);

const ROWS: [Row; 13] = [
    ("rows-256K", Kind::Sqlite, (256, 256), 512, 64),
    ("rows-1M", Kind::Sqlite, (1024, 1024), 512, 64),
    ("rows-10M", Kind::Sqlite, (10_240, 10_240), 1024, 64),
    ("rows-10M-uniform", Kind::Sqlite, (5120, 15_360), 1024, 64),
    ("files-256K", Kind::Ext4, (256, 256), 512, 64),
    ("files-1M", Kind::Ext4, (1024, 1024), 512, 64),
    ("files-1M-16K", Kind::Ext4, (1024, 1024), 512, 16),
    ("files-1M-256K", Kind::Ext4, (1024, 1024), 512, 256),
    ("files-10M", Kind::Ext4, (10_240, 10_240), 1024, 64),
    ("files-10M-uniform", Kind::Ext4, (5120, 15_360), 1024, 64),
    (FRAGMENTED, Kind::Ext4, (10_240, 10_240), 1024, 64),
    // The least on which the file system's own blocks leave room for a safe write.
    ("files-1M-small", Kind::Ext4, (1024, 1024), 96, 64),
    ("files-1M-large", Kind::Ext4, (1024, 1024), 2048, 64),
];

fn cases(quick: bool) -> Vec<(&'static str, Case)> {
    let case = |(name, candidate, object, volume, request): Row| {
        let case = Case {
            candidate,
            object: Sizes { from: object.0 << 10, to: object.1 << 10, law: Law::Uniform },
            volume: volume * MB,
            fill: 90.0,
            request: Request::Bytes(request << 10),
            force: Force::Each,
            announce: false,
            writers: 1,
            deletes: Deletes::Random,
            start: if name == FRAGMENTED { Start::Fragmented } else { Start::Fresh },
            age: AGE,
            every: 1.0,
            seed: 1,
            on: Medium::Folder,
        };
        (name, case)
    };
    let mut all: Vec<_> = ROWS.map(case).into();
    let once = all.iter().find(|one| one.0 == "files-1M").map(|one| Case { force: Force::Once, ..one.1.clone() });
    let ours =
        Case { candidate: Kind::PicaflorStore, force: Force::Once, announce: true, fill: 75.0, ..all[1].1.clone() };
    all.extend(once.map(|case| (WHOLE, case)));
    all.push((OURS, ours));
    if quick {
        for (_, case) in &mut all {
            // Volumes and objects that show that it runs, and nothing else.
            (case.volume, case.fill, case.age) = ((case.volume / 64).max(16 * MB), 50.0, 1.0);
            let small = |bytes: u64| (bytes / 16).max(128 << 10);
            case.object = Sizes { from: small(case.object.from), to: small(case.object.to), ..case.object };
        }
    }
    all
}

pub(super) fn reproduce(how: How, progress: Progress<'_>) -> Result<Reproduction> {
    let cases = cases(how.quick);
    let folder = std::env::temp_dir();
    let disks = [DISK.to_owned()];
    let runs_files = age::can_mount();
    let cases: Vec<_> = cases.into_iter().filter(|one| runs_files || !one.1.candidate.needs_root()).collect();
    let only: Vec<Case> = cases.iter().map(|one| one.1.clone()).collect();
    age::check(&only, &folder, &disks)?;
    let total = only.iter().map(Case::bytes).sum();
    let mut runs = Runs::default();
    // One after the other: each has the memory of the machine for what it writes.
    for (name, case) in &cases {
        let aged = age::run(case, &folder, &disks, &|bytes| progress("sears", bytes, total))?;
        runs.0.push((name, aged));
    }
    let lines = runs.0.iter().map(|(name, aged)| (*name, age::json(std::slice::from_ref(aged))));
    let lines = lines.map(|(name, value)| serde_json::json!({ "run": name, "aged": value[0] })).collect();
    Ok(Reproduction {
        paper: "sears".into(),
        verdicts: claims::claims(&runs, runs_files),
        drawings: drawings(&runs)?,
        results: vec![Results::Lines("aged", lines)],
        ..Reproduction::default()
    })
}

/// The one of these of which the text has a number (S-6).
const FIGURE_3: &str = "Figure 3: 256 KB";

fn drawings(runs: &Runs) -> Result<Vec<String>> {
    let draw = |title: &str, unit: &str, names: &[&'static str], of: fn(&Runs, &str) -> Option<Vec<f64>>| {
        let series = names.iter().filter_map(|name| {
            let ages = runs.of(name)?.samples.iter().map(|sample| sample.age);
            let points: Vec<_> = ages.zip(of(runs, name)?).collect();
            // "Both tend to" it, at no age that is said: so where ours ends.
            let published = match (title, points.last()) {
                (FIGURE_3, Some((age, _))) => vec![(*age, 4.0)],
                _ => Vec::new(),
            };
            Some(Series { name: (*name).into(), points, mark: Mark::Both, published })
        });
        let x = ("storage age".into(), Scale::Linear);
        Chart { title: title.into(), x, y: (unit.into(), Scale::Linear), series: series.collect() }.svg()
    };
    let rates = format!("MB/s, {DISK}");
    [
        draw("Figure 1: reads", &rates, &["files-256K", "rows-256K", "files-1M", "rows-1M"], Runs::rates),
        draw("Figure 2: large objects", "fragments an object", &["files-10M", "rows-10M", FRAGMENTED], Runs::fragments),
        draw(FIGURE_3, "fragments an object", &["files-256K", "rows-256K"], Runs::fragments),
        draw(
            "Figure 5: lengths that vary",
            "fragments an object",
            &["files-10M", "files-10M-uniform", "rows-10M", "rows-10M-uniform"],
            Runs::fragments,
        ),
        draw(
            "Requests and volumes",
            "fragments an object",
            &["files-1M", "files-1M-16K", "files-1M-256K", "files-1M-small", "files-1M-large", WHOLE, OURS],
            Runs::fragments,
        ),
    ]
    .into_iter()
    .collect::<std::result::Result<_, Error>>()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_case_can_be_run() {
        for quick in [false, true] {
            for (name, case) in cases(quick) {
                let objects = case.objects();
                assert!(objects >= 8, "{name}: {objects} objects");
                assert!(case.volume - case.live_bytes() > case.object.to, "{name}: no room for a safe write");
            }
        }
    }
}
