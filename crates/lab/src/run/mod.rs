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

mod above;
mod bodies;
mod medium;
pub mod micro;
mod pages;
pub mod proxied;
mod reads;
mod stream;
pub mod wg;
mod workload;

use std::time::Duration;

use above::Above;
use bodies::Bodies;
pub(crate) use medium::Kept;
use medium::Medium;
pub use medium::{device_names, remove_folders};
pub use pages::Hints;
use picaflor::{Daemons, Durability, Error as StoreError, Mode, Options, Place, PutOptions, Store};
use reads::Reads;
use serde::Serialize;
pub use stream::{Stream, Streams};
pub use workload::{Loaded, Workload};

use crate::{
    Error, Result,
    method::{Levels, Operation},
    trace::Request,
};

/// How requests become operations of a store.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Replay {
    /// Through these levels.
    Method(Levels),
    /// As a cache would be asked.
    Cache,
    /// The same, counted by page view after so large a share of the requests.
    Pages(f64),
}

/// Everything that a run is a function of.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Row of the engine's table.
    pub preset: String,
    /// `memory`, the name of a device profile, or a folder of this machine, with a slash in its name. There a run is on
    /// the machine's time, and no function of its setup.
    pub device: String,
    /// Name of a file-system model between the store and a simulated device, if there is one.
    pub file_system: Option<String>,
    /// Device bytes that the store may use.
    pub capacity: u64,
    /// Bytes of memory that the store may use.
    pub memory: u64,
    /// Bytes of a cluster, if other than the engine's default.
    pub cluster: Option<u32>,
    /// Bytes of the pages that groups' clusters are divided into. Of several, a group gets the least in which half of
    /// the views of its site fit. None: a cluster is a page.
    pub pages: Vec<u32>,
    /// Open buffers, if other than the engine's default.
    pub buffers: Option<usize>,
    /// Longest object that shares an area, in blocks, if other than the engine's default.
    pub threshold: Option<u32>,
    /// Whether longer ones have a file each, beside the store's, instead of being alone in it.
    pub files_above: bool,
    /// Whether each get is waited for where the preset would gather several.
    pub wait: bool,
    /// What is replayed.
    pub workload: Workload,
    /// How.
    pub replay: Replay,
    /// What the store is told of an object's company.
    pub hints: Hints,
    /// Bytes that a file-system model has for what it keeps in memory, if other than its own.
    pub page_cache: Option<u64>,
    /// Requests after which it ends.
    pub gets: u64,
    /// Operations of the store after which it ends.
    pub operations: Option<u64>,
    /// Of the workload, the store and the device.
    pub seed: u64,
}

/// What a run gave. All of it is virtual: nothing depends on the machine it ran on.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Outcome {
    /// Requests replayed.
    pub gets: u64,
    /// Objects read.
    pub reads: u64,
    /// Objects written.
    pub writes: u64,
    /// Objects deleted.
    pub deletes: u64,
    /// Seconds on the device.
    pub seconds: f64,
    /// Requests a second; this and the other rates are no number where no time passes.
    pub gets_per_second: f64,
    /// Reads, writes and deletes a second.
    pub operations_per_second: f64,
    /// Milliseconds an operation.
    pub ms_per_operation: f64,
    /// Requests that the store answered, or in a method replay either level.
    pub hits: u64,
    /// Share of the requests.
    pub hit_ratio: f64,
    /// Hits a second.
    pub hits_per_second: f64,
    /// Reads of the device for each hit that the memory did not answer; a file system's own included.
    pub reads_per_hit: f64,
    /// Bytes written to the device for each byte of a body that was stored.
    pub written_per_byte: f64,
    /// Bytes written to the device, or started, by the store or the file system under it.
    pub device_written: u64,
    /// Bytes read from it.
    pub device_read: u64,
    /// Bytes of bodies stored.
    pub stored_bytes: u64,
    /// Bytes of live objects at the end, as a share of what objects can take.
    pub utilisation: f64,
    /// Objects, and pieces of large ones, that left by themselves; of a method replay, what fragmentation costs.
    pub evicted: u64,
    /// Bytes of memory in use at the end: index, buffers, memory tier.
    pub memory_used: u64,
    /// Of these, the index.
    pub index_bytes: u64,
    /// Objects at the end.
    pub objects: u64,
    /// Puts that were refused.
    pub refused: u64,
    /// Reads of the method that the store did not have, because it refused or lost the object.
    pub lost: u64,
    /// Read requests that reached a simulated device, from the store or a file system on it.
    pub disk_reads: u64,
    /// Write requests that did.
    pub disk_writes: u64,
    /// Share of the time that the device moved its arm.
    pub seek_share: f64,
    /// Share of the time that it waited for a sector.
    pub rotation_share: f64,
    /// Share of the time that it moved bytes.
    pub transfer_share: f64,
    /// Page views that were counted, of a replay of pages, and of them, each time in the mean: requests.
    pub views: u64,
    /// The same.
    pub requests_per_view: f64,
    /// Reads of the device, or of the file system on it, for a view.
    pub device_reads_per_view: f64,
    /// KiB read for a view.
    pub kib_read_per_view: f64,
    /// Milliseconds that the gets of a view took, one after the other.
    pub ms_per_view: f64,
    /// Share of the requests of views that the store answered.
    pub view_hit_ratio: f64,
    /// Neighbours that cluster reads brought, for each such read; and of those, used before they left memory.
    pub neighbours_per_read: f64,
    /// The same.
    pub neighbours_used_per_read: f64,
}

/// Runs a setup; `stream` is its own. `progress` is told how many requests more are done, now and then.
///
/// # Errors
/// If the setup names what does not exist, or the store fails.
pub fn run(setup: &Setup, stream: &Stream, progress: &dyn Fn(u64)) -> Result<Outcome> {
    let asked = setup;
    let setup = &above::shortened(asked, stream);
    let options = picaflor_literature::preset(&setup.preset).map_err(failed(setup))?;
    let medium = Medium::new(setup, &options)?;
    let above = Above::new(asked, medium.system())?;
    let options = fill(options, setup, &medium);
    let clock = medium.clock.clone();
    let store = Store::open(options).map_err(failed(setup))?;
    let mut replay = Running {
        setup,
        store: &store,
        bodies: Bodies::default(),
        reads: Reads::new(setup.preset.starts_with("lazy-reads") && !setup.wait),
        medium: &medium,
        above,
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
    Above::new(setup, medium.system())?;
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

/// An error of the store, with the name of the run.
fn failed(setup: &Setup) -> impl Fn(StoreError) -> Error + use<'_> {
    move |source| Error::Store { name: name_of(setup), source }
}

fn file_failed(setup: &Setup, error: &std::io::Error) -> Error {
    Error::experiment(name_of(setup), format!("a file beside the store: {error}"))
}

fn name_of(setup: &Setup) -> String {
    format!("{} on {}", setup.preset, setup.device)
}

fn fill(mut options: Options, setup: &Setup, medium: &Medium) -> Options {
    options.places = vec![medium.place()];
    options.capacity = match medium.place() {
        Place::Device(device) => setup.capacity.min(device.capacity()),
        _ => setup.capacity,
    };
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
    options
}

struct Running<'a> {
    setup: &'a Setup,
    store: &'a Store,
    bodies: Bodies,
    reads: Reads,
    medium: &'a Medium,
    above: Option<Above>,
    outcome: Outcome,
}

/// Requests between two words of progress.
const WORD: u64 = 4096;

impl Running<'_> {
    fn requests(&self) -> Result<impl Iterator<Item = Request> + use<>> {
        let all = self.setup.workload.requests(self.setup.seed)?;
        Ok(all.take(usize::try_from(self.setup.gets).unwrap_or(usize::MAX)))
    }

    fn method(&mut self, stream: &Stream, progress: &dyn Fn(u64)) -> Result<()> {
        let Stream { operations, counts } = stream;
        let mut told = 0;
        for (done, operation) in (1..).zip(operations) {
            match operation {
                Operation::Read(request) => self.read(request)?,
                Operation::Write(request) => self.write(request)?,
                Operation::Delete(key) => self.delete(*key)?,
            }
            let gets = counts.gets * done / operations.len() as u64;
            if gets >= told + WORD {
                progress(gets - told);
                told = gets;
            }
        }
        self.outcome.gets = counts.gets;
        self.outcome.hits = counts.memory_hits + counts.reads;
        Ok(())
    }

    fn cache(&mut self, progress: &dyn Fn(u64)) -> Result<()> {
        for request in self.requests()? {
            self.outcome.gets += 1;
            // A version that changed is another object to a cache: the proxy above would have revalidated it away.
            let key = request.versioned_key().to_le_bytes();
            match self.store.get(&key).map_err(failed(self.setup))? {
                Some(object) => {
                    self.outcome.hits += 1;
                    self.check(&request, &object)?;
                }
                None => self.put(&key, &request, 0)?,
            }
            self.store.step().map_err(failed(self.setup))?;
            if self.outcome.gets.is_multiple_of(WORD) {
                progress(WORD);
            }
        }
        self.outcome.reads = self.outcome.hits;
        Ok(())
    }

    fn read(&mut self, request: &Request) -> Result<()> {
        self.outcome.reads += 1;
        if let Some(above) = self.above.as_ref().filter(|above| above.has(request.key)) {
            let right = above.read(request.key).map_err(|error| file_failed(self.setup, &error))?;
            let why =
                || Error::experiment(name_of(self.setup), format!("wrong bytes in the file of {:x}", request.key));
            return if right { self.step() } else { Err(why()) };
        }
        let key = request.key.to_le_bytes();
        if self.reads.lazy {
            let get = self.store.get_async(&key);
            self.reads.add(Box::pin(get), *request);
            let done = self.reads.poll().map_err(failed(self.setup))?;
            self.read_done(&done)?;
        } else {
            let object = self.store.get(&key).map_err(failed(self.setup))?;
            self.read_done(&[(*request, object)])?;
        }
        self.step()
    }

    fn read_done(&mut self, done: &[(Request, Option<picaflor::Object>)]) -> Result<()> {
        for (request, object) in done {
            match object {
                Some(object) => self.check(request, object)?,
                None => self.outcome.lost += 1,
            }
        }
        Ok(())
    }

    /// Reads all of an object. A store that returns other bytes than it was given has no speed worth measuring.
    fn check(&self, request: &Request, object: &picaflor::Object) -> Result<()> {
        let right = Bodies::are_in(request, object).map_err(failed(self.setup))?;
        let why = || format!("the store returned wrong bytes for key {:x}", request.key);
        if right { Ok(()) } else { Err(Error::experiment(name_of(self.setup), why())) }
    }

    fn write(&mut self, request: &Request) -> Result<()> {
        if let Some(above) = self.above.as_mut().filter(|above| above.takes(request)) {
            let body = self.bodies.of(request);
            self.outcome.writes += 1;
            self.outcome.stored_bytes += body.len() as u64;
            above.write(request, body).map_err(|error| file_failed(self.setup, &error))?;
            return self.step();
        }
        self.put(&request.key.to_le_bytes(), request, 0)?;
        self.step()
    }

    /// `group` is told if groups are.
    fn put(&mut self, key: &[u8], request: &Request, group: u32) -> Result<()> {
        let hints = self.setup.hints;
        let said = hints.says_page() && request.referer != 0;
        let neighbour = said.then(|| request.referer.to_le_bytes().to_vec().into());
        let server = if hints.says_server() { (request.server >> 32) as u32 } else { 0 };
        let group = if hints == Hints::Group { group } else { 0 };
        let with = PutOptions::new().server(server).group(group).maybe_neighbour(neighbour);
        let body = self.bodies.of(request);
        match self.store.put_with(key, body, &with) {
            Ok(()) => {
                self.outcome.writes += 1;
                self.outcome.stored_bytes += body.len() as u64;
                Ok(())
            }
            Err(StoreError::Refused(_) | StoreError::Full { .. }) => {
                self.outcome.refused += 1;
                Ok(())
            }
            Err(error) => Err(failed(self.setup)(error)),
        }
    }

    fn delete(&mut self, key: u64) -> Result<()> {
        self.outcome.deletes += 1;
        if let Some(above) = self.above.as_mut().filter(|above| above.has(key)) {
            above.remove(key).map_err(|error| file_failed(self.setup, &error))?;
            return self.step();
        }
        self.store.delete(&key.to_le_bytes()).map_err(failed(self.setup))?;
        self.step()
    }

    fn step(&self) -> Result<()> {
        self.store.step().map(drop).map_err(failed(self.setup))
    }

    /// Waits for the reads that are still out.
    fn drain(&mut self) -> Result<()> {
        while !self.reads.is_empty() {
            let done = self.reads.poll().map_err(failed(self.setup))?;
            self.read_done(&done)?;
            self.step()?;
            if done.is_empty() {
                self.medium.pass_time();
            }
        }
        Ok(())
    }
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
    outcome.evicted = counts.evicted - before.evicted;
    outcome.memory_used = stats.memory_used;
    outcome.index_bytes = stats.index_bytes;
    let cluster_reads = (counts.cluster_reads - before.cluster_reads) as f64;
    outcome.neighbours_per_read = ratio((counts.neighbours_read - before.neighbours_read) as f64, cluster_reads);
    outcome.neighbours_used_per_read = ratio((counts.neighbours_used - before.neighbours_used) as f64, cluster_reads);
    outcome.objects = stats.objects;
}
