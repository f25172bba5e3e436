//! Shriver, Gabber, Huang & Stein 2001: Tables 2 to 5, the crash, the proxy test, and the claims H-1 to H-10.

mod claims;
mod polygraph;
mod published;
mod spec;

use std::{
    sync::{Arc, mpsc},
    thread,
};

use self::{
    claims::Pairs,
    published::{Published, ROWS},
    spec::{LARGE, OWN, Spec},
};
use super::{
    how::{How, Progress},
    reproduction::{Reproduction, Results},
};
use crate::{
    Error, Result, experiment,
    run::wg::{self, Load, Measured, Recovered},
};

/// Machines and systems.
pub(super) const SPEC: &str = include_str!("../../../papers/hummingbird.toml");

/// Parts of a quick look.
const QUICK: u32 = 100;

/// Which claims are taken from the same runs.
pub(super) const PARTS: [&[&str]; 3] =
    [&["T-2", "T-3", "T-4", "T-5", "H-1", "H-2", "H-3", "H-4", "H-5", "H-6", "H-7", "H-10"], &["H-8"], &["H-9"]];

pub(super) fn reproduce(text: &str, how: How, progress: Progress<'_>) -> Result<Reproduction> {
    let mut spec = Spec::parse(text)?;
    spec.seed += how.seed;
    if how.quick {
        // A smaller part has no room for a group of blocks; so only its beginning.
        spec.parts = spec.parts.max(QUICK);
        spec.events /= 20;
    }
    let mut done = Reproduction { paper: "hummingbird".into(), ..Reproduction::default() };
    if how.wants(PARTS[0][0]) {
        tables(&spec, how, progress, &mut done)?;
    }
    if how.wants(PARTS[1][0]) {
        // A quick look has no time to go over a disk.
        let recovered = (!how.quick).then(|| spec.crash(progress)).transpose()?;
        done.verdicts.extend(claims::recovery(recovered.as_ref()));
        done.results.push(Results::Lines("recovery", serde_json::json!(recovered)));
    }
    if how.wants(PARTS[2][0]) {
        let both = polygraph::run(&spec, how, progress)?;
        done.verdicts.extend(polygraph::claims(&both));
        done.results.push(Results::Lines("proxy", serde_json::json!(both)));
    }
    Ok(done)
}

impl Spec {
    /// H-8: its own system on 8 GB with 256 MB crashes. The number of deletes is the paper's, a part of it.
    fn crash(&self, progress: Progress<'_>) -> Result<Recovered> {
        let row = ROWS.iter().find(|row| row.table == 2 && row.system == OWN && row.disk_gib == 8);
        let row = row.ok_or_else(|| Error::experiment("hummingbird", "no row to crash"))?;
        let load = self.load(row)?;
        progress("recovery after a crash", 0, load.part_events());
        wg::crash(&load, (claims::RECOVERY.1 / u64::from(self.parts)).max(1), Arc::new(|_| ()))
    }
}

fn tables(spec: &Spec, how: How, progress: Progress<'_>, done: &mut Reproduction) -> Result<()> {
    let own = ROWS.iter().filter(|row| row.system == OWN && row.table <= 3);
    let large = own.map(|row| Published { system: LARGE, ..*row });
    let rows: Vec<Published> = ROWS.iter().copied().chain(large).collect();
    let loads: Vec<Load> = rows.iter().map(|row| spec.load(row)).collect::<Result<_>>()?;
    let total = loads.iter().map(Load::part_events).sum();
    let (tell, told) = mpsc::channel::<u64>();
    let measured = thread::scope(|scope| {
        scope.spawn(|| told.into_iter().for_each(|more| progress(&spec.title, more, total)));
        let measured = experiment::spread(&loads, how.jobs, |load| {
            let tell = tell.clone();
            // The other side has gone once all is told.
            wg::run(load, Arc::new(move |more| tell.send(more).unwrap_or(())))
        });
        drop(tell);
        measured
    })?;
    let pairs: Pairs = rows.into_iter().zip(measured).collect();
    done.results.push(Results::Lines("tables", pairs.iter().map(|(row, measured)| line(row, measured)).collect()));
    let (large, pairs): (Pairs, Pairs) = pairs.into_iter().partition(|(row, _)| row.system == LARGE);
    done.verdicts.extend(claims::claims(&pairs));
    done.grids.extend(claims::grids(&pairs, spec));
    let what = "files that a read of a cluster of 64 KiB brings";
    done.verdicts.push(claims::brought(&large, what).counted_as("H-7"));
    done.grids.push(claims::large_clusters(&large));
    Ok(())
}

fn line(row: &Published, measured: &Measured) -> serde_json::Value {
    serde_json::json!({
        "table": row.table, "system": row.system, "disk_gib": row.disk_gib,
        "memory_mib": format!("{}+{}", row.memory.0, row.memory.1), "measured": measured,
        "published": {
            "hit_ratio": row.hit, "read_ms": row.read_ms, "write_ms": row.write_ms, "ios": row.ios, "io_ms": row.io_ms,
            "seconds": row.seconds,
        },
    })
}
