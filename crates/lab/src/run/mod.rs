//! One run: a workload, a store with one preset, and the device it is on, on one thread and on virtual time.
//!
//! The store is the engine that runs in production, opened with `Daemons::Manual`; its daemons take a step after every
//! operation. Time passes on the device only, so what is measured is what the device was made to do. A run is a
//! function of its setup.
//!
//! Three ways to replay. *Method*: what the two LRU levels of Markatos et al. ask of the disk, put by put, get by get,
//! delete by delete; the store has room for what the second level holds. *Cache*: each request is a get and, if that
//! misses, a put; who leaves is the preset's answer. *Pages*: the same, with what an application can say about which
//! objects belong together, counted by page view.

mod bodies;
mod hints;
mod medium;
pub mod micro;
mod misses;
mod outcome;
mod pages;
mod policies;
pub mod proxied;
mod reads;
mod running;
mod setup;
mod stream;
pub mod wg;
mod workload;

use std::time::Duration;

use picaflor::{Daemons, Durability, Mode, Options, Place, Store};

use self::{
    bodies::Bodies,
    medium::Medium,
    reads::Reads,
    running::Running,
    setup::{failed, name_of},
};
use crate::{Error, Result};

pub(crate) use self::medium::Kept;
pub use self::{
    hints::Hints,
    medium::{device_names, remove_folders},
    misses::misses,
    outcome::Outcome,
    policies::Policies,
    setup::{Replay, Setup},
    stream::{Stream, Streams},
    workload::{Loaded, Workload},
};

/// Runs a setup; `stream` is its own. `progress` is told how many requests more are done, now and then.
///
/// # Errors
/// If the setup names what does not exist, or the store fails.
pub fn run(setup: &Setup, stream: &Stream, progress: &dyn Fn(u64)) -> Result<Outcome> {
    let options = picaflor_literature::preset(&setup.preset).map_err(failed(setup))?;
    let medium = Medium::new(setup, &options)?;
    let options = fill(options, setup, &medium);
    let clock = medium.clock.clone();
    let store = Store::open(options).map_err(failed(setup))?;
    let mut replay = Running {
        setup,
        store: &store,
        bodies: Bodies::default(),
        reads: Reads::new(setup.preset.starts_with("lazy-reads") && !setup.wait),
        medium: &medium,
        outcome: Outcome::default(),
    };
    let before = clock.now_nanos();
    let counts = store.stats().counts;
    match setup.replay {
        Replay::Method(_) => replay.method(stream, progress)?,
        Replay::Cache => replay.cache(progress)?,
        Replay::Pages(warm) => replay.pages(warm, progress)?,
    }
    replay.drain()?;
    store.flush().map_err(failed(setup))?;
    let mut outcome = replay.outcome;
    outcome.seconds = (clock.now_nanos() - before) as f64 / 1e9;
    medium.account(&mut outcome);
    tally(&mut outcome, &store, &counts, medium.below());
    Ok(outcome)
}

/// Whether a setup can be run, as far as that shows before: its preset and device exist, go together, and have the room
/// and the buffers that are asked for.
///
/// # Errors
/// With what does not.
pub fn check(setup: &Setup) -> Result<()> {
    let options = picaflor_literature::preset(&setup.preset).map_err(failed(setup))?;
    let medium = Medium::new(setup, &options)?;
    let options = fill(options, setup, &medium);
    let Some(asked) = setup.buffers else { return Ok(()) };
    // The engine gives buffers a part of the memory and opens no more than fit in it: what a row says would not be what
    // ran. Locality buffers have 64 KiB, other lanes a cluster.
    let each = if setup.preset == "lazy-reads-loc" { 64 << 10 } else { u64::from(options.cluster) };
    let most = (setup.memory / 8).min(options.capacity / 16) / each;
    let why = || {
        let kib = each >> 10;
        format!(
            "buffers = {asked}: of {kib} KiB each, {most} have room in an eighth of the memory; give more memory_mib"
        )
    };
    if asked as u64 <= most { Ok(()) } else { Err(Error::experiment(name_of(setup), why())) }
}

fn fill(mut options: Options, setup: &Setup, medium: &Medium) -> Options {
    options.places = vec![medium.place()];
    options.capacity = match medium.place() {
        Place::Device(device) => setup.capacity.min(device.capacity()),
        _ => setup.capacity,
    };
    options.long_files = medium.long_files().into_iter().collect();
    options.memory = setup.memory;
    // A method replay fits by its levels, but for what fragmentation takes; then the store, too, lets the oldest go.
    options.mode = Mode::Cache;
    // The papers write metadata every few minutes, if at all.
    options.durability = Durability::None;
    options.delete_time = Duration::from_secs(300);
    options.delete_count = u64::MAX;
    options.daemons = Daemons::Manual;
    options.clock = medium.clock.clone();
    options.seed = Some(setup.seed);
    if let Some(buffers) = setup.buffers {
        options.open_buffers = buffers;
    }
    if let Some(cluster) = setup.cluster {
        options.cluster = cluster;
    }
    if let Some(threshold) = setup.threshold {
        options.threshold = threshold;
    }
    setup.policies.bind(&mut options);
    options
}

/// Ratios, and what the store says of itself.
fn tally(outcome: &mut Outcome, store: &Store, before: &picaflor::Counts, below: Option<(u64, u64, u64)>) {
    let stats = store.stats();
    let counts = &stats.counts;
    let ratio = |a: f64, b: f64| if b > 0.0 { a / b } else { 0.0 };
    let operations = (outcome.reads + outcome.writes + outcome.deletes) as f64;
    // Where no time passes, in memory, there are no rates.
    let rate = |of: f64| if outcome.seconds > 0.0 { of / outcome.seconds } else { f64::NAN };
    outcome.gets_per_second = rate(outcome.gets as f64);
    outcome.operations_per_second = rate(operations);
    outcome.hits_per_second = rate(outcome.hits as f64);
    outcome.ms_per_operation = ratio(outcome.seconds * 1e3, operations);
    outcome.hit_ratio = ratio(outcome.hits as f64, outcome.gets as f64);
    let device_hits = (counts.hits_device - before.hits_device) as f64;
    let own = (counts.device_reads, counts.device_read, counts.device_written);
    let reads;
    (reads, outcome.device_read, outcome.device_written) =
        below.unwrap_or((own.0 - before.device_reads, own.1 - before.device_read, own.2 - before.device_written));
    outcome.reads_per_hit = ratio(reads as f64, device_hits);
    outcome.written_per_byte = ratio(outcome.device_written as f64, outcome.stored_bytes as f64);
    let live: u64 = stats.volumes.iter().map(|volume| volume.live_bytes).sum();
    let room: u64 = stats.volumes.iter().map(|volume| volume.room_bytes).sum();
    outcome.utilisation = ratio(live as f64, room as f64);
    outcome.storage_age = stats.storage_age();
    outcome.evicted = counts.evicted - before.evicted;
    outcome.memory_used = stats.memory_used;
    outcome.index_bytes = stats.index_bytes;
    let cluster_reads = (counts.cluster_reads - before.cluster_reads) as f64;
    outcome.neighbours_per_read = ratio((counts.neighbours_read - before.neighbours_read) as f64, cluster_reads);
    outcome.neighbours_used_per_read = ratio((counts.neighbours_used - before.neighbours_used) as f64, cluster_reads);
    outcome.objects = stats.objects;
}
