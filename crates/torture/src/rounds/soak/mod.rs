//! A soak through the proxy: one `picaflor serve` under load for hours, before an origin that fails in spells, on a
//! device whose writes fail now and then. Every body is compared, every failure must be the origin's, and what the
//! proxy has resident must not grow.
//!
//! The device fails by the limit that the system sets to the length of files (`RLIMIT_FSIZE`): writes beyond it end in
//! an error, and what was written before stays. A store whose device failed takes no more writes until it is opened
//! again, so it comes back by a polite restart.

mod conductor;
mod guest;
mod memory;
mod options;
mod scene;
mod tally;

use std::{fmt, io, path::Path, sync::atomic::Ordering::SeqCst, time::Duration};

use picaflor::Durability;

pub use self::options::Soak;
use self::{conductor::Conductor, guest::Guest, scene::Scene};
use super::{
    body,
    origin::{Origin, Site},
    serve::Serving,
    tally::Fault,
    wish::Wish,
};
use crate::dice::Dice;

/// Small ones, some of 64 KB, a few larger than a cluster.
fn len_of(key: u32, version: u32) -> usize {
    let mut dice = Dice::new(key.into(), 9);
    let kind = dice.below(100);
    let mut dice = Dice::new(key.into(), version.into());
    let len = match kind {
        0..70 => dice.scaled(body::SHORTEST as u64, 16 << 10),
        70..93 => dice.between(40 << 10, 90 << 10),
        _ => dice.between(300 << 10, 3 << 20),
    };
    len as usize
}

fn life_of(key: u32) -> u32 {
    if key % 4 == 1 { 3 } else { 31_536_000 }
}

/// What a soak came to.
pub struct Soaked {
    /// What was wrong.
    pub faults: Vec<Fault>,
    summary: String,
}

impl fmt::Display for Soaked {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.summary)
    }
}

/// What the proxy is told that no argument says: an origin's silence is found out soon.
const CONFIG: &str = "[limits]\nconnect_timeout = \"1s\"\nresponse_timeout = \"2s\"\nbody_timeout = \"2s\"\n\
                      origin_pause = \"1s\"\ndrain = \"20s\"\n[cache]\nmax_object = \"8MiB\"\n";

/// Runs a soak, and says a line a minute. Its files stay if something is wrong.
///
/// # Errors
/// Those of the system: no process, no file, no port.
pub fn run_soak(picaflor: &Path, seed: u64, wish: &Wish, soak: &Soak) -> io::Result<Soaked> {
    let folder = tempfile::Builder::new().prefix(&format!("soak-{seed}-")).tempdir_in(&wish.folder)?;
    let config = folder.path().join("config.toml");
    std::fs::write(&config, CONFIG)?;
    let mut site = Site::new(soak.keys, len_of);
    (site.life_of, site.is_chunked, site.is_bad) = (life_of, |key| key % 5 == 2, |key| key % 50 == 49);
    let origin = Origin::start(site)?;
    let durability = wish.durability.unwrap_or(Durability::Bounded { time: Duration::from_secs(1), puts: u64::MAX });
    let serving = Serving {
        picaflor,
        folder: folder.path(),
        origin: origin.address,
        preset: wish.preset.unwrap_or("picaflor"),
        durability,
        capacity: soak.capacity,
        memory: soak.memory,
        config: Some(&config),
    };
    let scene = Scene::new(soak, wish, &origin, durability);
    let command = format!(
        "picaflor-rounds --proxy {} --from {seed} {} {}",
        picaflor.display(),
        soak.arguments(),
        wish.arguments().join(" ")
    );
    let mut conductor = Conductor::new(soak, seed, &serving, &origin, &scene, command);
    conductor.start()?;
    let ran = std::thread::scope(|scope| {
        for number in 0..soak.clients as u64 {
            let mut guest = Guest::new(&scene, Dice::new(seed, 100 + number));
            scope.spawn(move || guest.run());
        }
        let ran = conductor.run();
        scene.over.store(true, SeqCst);
        ran
    });
    let stopped = conductor.stop();
    conductor.hear();
    let (summary, mut faults) = (conductor.summary(), std::mem::take(&mut conductor.faults));
    ran?;
    stopped?;
    drop(conductor);
    if !faults.is_empty() {
        let kept = folder.keep();
        faults.iter_mut().for_each(|fault| fault.kept = Some(kept.clone()));
    }
    Ok(Soaked { faults, summary })
}
