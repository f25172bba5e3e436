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
mod tally;

use std::{
    fmt, io,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use parking_lot::{Mutex, RwLock};
use picaflor::Durability;

use self::{conductor::Conductor, guest::Guest, tally::Tally};
use super::{
    body,
    canary::Break,
    durable::NEVER,
    floor::Known,
    log::now,
    origin::{Origin, Site},
    serve::Serving,
    tally::Fault,
    wish::Wish,
};
use crate::dice::Dice;

/// How a soak is run.
#[derive(Clone, Debug)]
pub struct Soak {
    /// How long.
    pub time: Duration,
    /// Requests a second, of all clients together.
    pub rate: u64,
    /// Clients, each with a connection.
    pub clients: usize,
    /// Objects of the origin.
    pub keys: u32,
    /// Bytes of the store.
    pub capacity: u64,
    /// Bytes of its memory.
    pub memory: u64,
    /// Bytes by which the process may have more resident than is promised.
    pub memory_over: u64,
    /// Time from one failure of the device to the next; none for a device that is well.
    pub device_every: Option<Duration>,
    /// Whether it goes on after a violation.
    pub keep_going: bool,
}

impl Default for Soak {
    fn default() -> Self {
        Self {
            time: Duration::from_secs(3600),
            rate: 150,
            clients: 24,
            keys: 6000,
            capacity: 256 << 20,
            memory: 64 << 20,
            memory_over: 0,
            device_every: Some(Duration::from_secs(1200)),
            keep_going: false,
        }
    }
}

impl Soak {
    /// Takes an argument, and its value. False if it is none of these.
    ///
    /// # Errors
    /// What is wrong with its value.
    pub fn take(&mut self, name: &str, args: &mut impl Iterator<Item = String>) -> Result<bool, String> {
        const NAMES: [&str; 8] =
            ["--soak", "--rate", "--clients", "--keys", "--capacity", "--memory", "--memory-over", "--device-every"];
        if !NAMES.contains(&name) {
            return Ok(false);
        }
        let value = args.next().ok_or_else(|| format!("{name} needs a number"))?;
        let needs = |what: &str| format!("{name} needs {what}, not {value:?}");
        let number = |least: u64, most: u64| {
            let number = value.parse().ok().filter(|number| (least..=most).contains(number));
            number.ok_or_else(|| needs(&format!("a number from {least} to {most}")))
        };
        let fraction = |unit: f64| {
            let number = value.parse::<f64>().ok().filter(|number| (0.0..10_000.0).contains(number));
            number.map(|number| Duration::from_secs_f64(number * unit)).ok_or_else(|| needs("a number"))
        };
        match name {
            "--soak" => self.time = fraction(3600.0)?,
            "--rate" => self.rate = number(1, 1_000_000)?,
            "--clients" => self.clients = number(1, 1000)? as usize,
            "--keys" => self.keys = number(100, 60_000)? as u32,
            "--capacity" => self.capacity = number(16, 1 << 20)? << 20,
            "--memory" => self.memory = number(8, 1 << 20)? << 20,
            "--memory-over" => self.memory_over = number(0, 1 << 20)? << 20,
            _ => self.device_every = Some(fraction(60.0)?).filter(|every| !every.is_zero()),
        }
        Ok(true)
    }

    fn arguments(&self) -> String {
        let device = self.device_every.map_or(0.0, |every| every.as_secs_f64() / 60.0);
        format!(
            "--soak {:.4} --rate {} --clients {} --keys {} --capacity {} --memory {} --memory-over {} \
             --device-every {device}",
            self.time.as_secs_f64() / 3600.0,
            self.rate,
            self.clients,
            self.keys,
            self.capacity >> 20,
            self.memory >> 20,
            self.memory_over >> 20
        )
    }
}

/// What all clients share.
struct Scene {
    addresses: Mutex<(SocketAddr, SocketAddr)>,
    site: Arc<Site>,
    known: Vec<Mutex<Known>>,
    /// Sums of the popularities of all keys up to each.
    popularity: Vec<f64>,
    durability: Durability,
    grace: Duration,
    sabotage: Break,
    rate: u64,
    clients: usize,
    tally: Tally,
    /// Since when the device fails, if it does; else [`NEVER`].
    failed_at: AtomicU64,
    over: AtomicBool,
    /// Requests hold it shared; a restart of the proxy holds it alone.
    gate: RwLock<()>,
    wrong: Mutex<Vec<String>>,
}

impl Scene {
    fn new(soak: &Soak, wish: &Wish, origin: &Origin, durability: Durability) -> Self {
        let mut sum = 0.0;
        let more = |rank: u32| {
            sum += f64::from(rank + 1).powf(-SKEW);
            sum
        };
        Self {
            addresses: Mutex::new((origin.address, origin.address)),
            site: Arc::clone(&origin.site),
            known: (0..soak.keys).map(|_| Mutex::default()).collect(),
            popularity: (0..soak.keys).map(more).collect(),
            durability,
            grace: wish.grace,
            sabotage: wish.sabotage,
            rate: soak.rate,
            clients: soak.clients,
            tally: Tally::default(),
            failed_at: AtomicU64::new(NEVER),
            over: AtomicBool::new(false),
            gate: RwLock::new(()),
            wrong: Mutex::default(),
        }
    }

    fn draw(&self, dice: &mut Dice) -> u32 {
        let all = self.popularity.last().copied().unwrap_or(0.0);
        let at = dice.below(1 << 53) as f64 / (1_u64 << 53) as f64 * all;
        self.popularity.partition_point(|sum| *sum < at).min(self.popularity.len() - 1) as u32
    }

    fn wrong(&self, what: String) {
        self.wrong.lock().push(what);
    }

    /// From now on the device fails. What was replaced a moment ago may not be on it, nor leave what it has.
    fn fail_device(&self) {
        let at = now();
        self.failed_at.store(at, SeqCst);
        let since = at.saturating_sub(guest::SETTLED);
        self.known.iter().for_each(|known| known.lock().forget_replaced(since));
    }

    /// The proxy was started again, on a device that is well. What a failed one did not take is gone.
    fn restarted(&self) {
        let failed_at = self.failed_at.swap(NEVER, SeqCst);
        self.known.iter().for_each(|known| known.lock().killed(failed_at, self.grace));
    }
}

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

/// Of the Zipf mixture.
const SKEW: f64 = 0.8;

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
