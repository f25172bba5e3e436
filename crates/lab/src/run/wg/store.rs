//! wg-Hummingbird: what the paper's generator asks of its store, with hints derived from the clients' pages.
//!
//! A client's page is the last HTML file that it asked for; whatever else it asks for is collocated with that.

use std::{
    cell::{Cell, RefCell},
    collections::HashMap,
    rc::Rc,
    sync::Arc,
    time::Duration,
};

use picaflor::{
    Counts, Daemons, Durability, Error as StoreError, Miss, Mode, Options, Place, PutOptions, Refusal, Store,
};
use picaflor_device::Clock;
use picaflor_sim::SimulatedDisk;

use super::{
    load::{Load, WORD},
    measured::{Causes, Measured},
};
use crate::{
    Error, Result,
    exec::{Executor, Time},
    run::bodies::Bodies,
    trace::{Kind, Request},
};

/// Objects above this go to the disk without staying in memory (`write_nomem_file`): what the paper calls large where
/// it leaves some out.
pub(super) const LARGE: u64 = 64 << 10;

/// What the clients share.
struct Shared {
    load: Load,
    store: Store,
    time: Time,
    requests: RefCell<Box<dyn Iterator<Item = Request>>>,
    /// The page that each client is on.
    pages: RefCell<HashMap<u64, u64>>,
    measured: RefCell<Measured>,
    bodies: RefCell<Bodies>,
    /// When the last event was issued, and its time in the log.
    last: Cell<Option<(u64, u64)>>,
    progress: Arc<dyn Fn(u64) + Send + Sync>,
}

pub(super) fn run(
    load: &Load,
    preset: &str,
    cluster: u32,
    progress: Arc<dyn Fn(u64) + Send + Sync>,
) -> Result<Measured> {
    let clock = Clock::virtual_at(1_700_000_000_000);
    let disks = disks(load, &clock)?;
    let places = disks.iter().map(|disk| Place::Device(Arc::new(disk.clone()))).collect();
    let store = Store::open(options(load, preset, cluster, &clock, places).map_err(failed)?).map_err(failed)?;
    let daemons = if load.threads > 1 { Daemon::Thread } else { Daemon::Called };
    let mut measured = play(load, &store, (&clock, &disks), (Box::new(load.requests()), daemons), progress)?;
    let counts = store.stats().counts;
    if counts.damaged > 0 {
        // No fault is simulated here, so this one is the engine's.
        let why = format!("{} objects were counted as damaged on disks that have no faults", counts.damaged);
        return Err(Error::experiment("wg-Hummingbird", why));
    }
    let (brought, reads) = (counts.neighbours_read + counts.cluster_reads, counts.cluster_reads.max(1));
    measured.objects_per_cluster_read = brought as f64 / reads as f64;
    measured.causes = Some(causes(&counts, measured.events));
    Ok(measured)
}

fn causes(counts: &Counts, events: u64) -> Causes {
    let each = |count: u64| count as f64 / events.max(1) as f64;
    let gets = counts.object_reads + counts.cluster_reads;
    Causes {
        gets: each(gets),
        reclaim: each(counts.device_reads.saturating_sub(gets)),
        clusters: each(counts.clusters_sealed),
        records: each(counts.device_writes.saturating_sub(counts.clusters_sealed)),
    }
}

/// Who lets the store's daemons do their work.
pub(super) enum Daemon {
    /// The client, every so many events.
    Called,
    /// A thread of its own.
    Thread,
    /// A thread that takes one step each 10 ms, until puts are no longer refused: what the engine's threads do after
    /// a crash while gets keep the disk busy.
    Rebuilding(Rc<Cell<bool>>),
}

pub(super) fn disks(load: &Load, clock: &Clock) -> Result<Vec<SimulatedDisk>> {
    let bytes = load.part_bytes(load.disk_mib) / load.disks as u64;
    (0..load.disks).map(|number| load.disk(clock, Some(bytes.next_multiple_of(1 << 20)), number)).collect()
}

/// Asks a store for all of these requests.
pub(super) fn play(
    load: &Load,
    store: &Store,
    (clock, disks): (&Clock, &[SimulatedDisk]),
    (requests, daemon): (Box<dyn Iterator<Item = Request>>, Daemon),
    progress: Arc<dyn Fn(u64) + Send + Sync>,
) -> Result<Measured> {
    let before: Vec<_> = disks.iter().map(|disk| (disk.clone(), disk.times())).collect();
    let begin = clock.now_nanos();
    let mut executor = Executor::new(clock, disks);
    let shared = Rc::new(Shared {
        load: load.clone(),
        store: store.clone(),
        time: executor.time(),
        requests: RefCell::new(requests),
        pages: RefCell::default(),
        measured: RefCell::default(),
        bodies: RefCell::default(),
        last: Cell::new(None),
        progress,
    });
    let called = matches!(daemon, Daemon::Called);
    let clients: Vec<_> =
        (0..load.threads.max(1)).map(|_| executor.spawn(client(Rc::clone(&shared), called))).collect();
    match daemon {
        Daemon::Called => {}
        Daemon::Thread => executor.spawn_daemon(worker(Rc::clone(&shared))),
        Daemon::Rebuilding(done) => executor.spawn_daemon(rebuilder(Rc::clone(&shared), done)),
    }
    executor.run()?;
    clients.into_iter().try_for_each(|client| client.take().unwrap_or(Ok(())))?;
    Ok(shared.measured.take().finish(&before, clock.now_nanos() - begin))
}

pub(super) fn failed(source: StoreError) -> Error {
    Error::Store { name: "wg-Hummingbird".into(), source }
}

pub(super) fn options(
    load: &Load,
    preset: &str,
    cluster: u32,
    clock: &Clock,
    places: Vec<Place>,
) -> picaflor::Result<Options> {
    let mut options = picaflor_literature::preset(preset)?;
    options.places = places;
    options.capacity = 0;
    options.memory = load.part_bytes(load.memory_mib.0 + load.memory_mib.1);
    options.mode = Mode::Cache;
    // What is lost in a crash is fetched again; the delete log is written every few minutes.
    options.durability = Durability::None;
    options.delete_time = Duration::from_secs(300);
    options.delete_count = u64::MAX;
    options.daemons = Daemons::Manual;
    options.clock = clock.clone();
    options.seed = Some(load.seed);
    if cluster != 0 {
        options.cluster = cluster;
    }
    Ok(options)
}

/// Takes event after event until there are no more. `steps`: calls the daemons every so many.
async fn client(shared: Rc<Shared>, steps: bool) -> Result<()> {
    let every = (shared.load.every / u64::from(shared.load.parts)).max(1);
    loop {
        let Some(request) = shared.requests.borrow_mut().next() else { return Ok(()) };
        shared.wait_for(&request).await?;
        shared.event(&request).await?;
        let events = {
            let mut measured = shared.measured.borrow_mut();
            measured.events += 1;
            measured.events
        };
        if steps && events.is_multiple_of(every) {
            while shared.store.step().map_err(failed)? {}
        }
        if events.is_multiple_of(WORD) {
            (shared.progress)(WORD);
        }
    }
}

/// The daemons on a thread of their own.
async fn worker(shared: Rc<Shared>) {
    loop {
        shared.time.sleep(Duration::from_millis(10)).await;
        // Whatever stops the store is told to the clients too.
        while shared.store.step().unwrap_or(false) {}
    }
}

async fn rebuilder(shared: Rc<Shared>, done: Rc<Cell<bool>>) {
    while !done.get() {
        shared.time.sleep(Duration::from_millis(10)).await;
        let stepped = shared.store.step();
        let refused = matches!(shared.store.put(b"probe", b""), Err(StoreError::Refused(Refusal::Recovering)));
        done.set(!refused || stepped.is_err());
    }
}

impl Shared {
    /// Until the event is due; the daemons use the time.
    async fn wait_for(&self, request: &Request) -> Result<()> {
        let (last, then) = self.last.get().unwrap_or((self.time.now(), request.time));
        let due = self.load.timing.due(last, then, request.time);
        while self.time.now() < due && self.store.step().map_err(failed)? {}
        if self.time.now() < due {
            self.time.sleep_until(due).await;
        }
        self.last.set(Some((self.time.now(), request.time)));
        Ok(())
    }

    async fn event(&self, request: &Request) -> Result<()> {
        let key = request.versioned_key().to_le_bytes();
        let begin = self.time.now();
        let found = match self.store.get_async(&key).await.map_err(failed)? {
            Some(object) => match Bodies::are_in_async(request, &object).await {
                // A piece left while the others were read.
                Err(StoreError::Damaged { why, .. }) if why == Miss::ChunkMissing.to_string() => None,
                right => Some(right.map_err(failed)?),
            },
            None => None,
        };
        if let Some(right) = found {
            self.measured.borrow_mut().read(self.time.now() - begin);
            if !right {
                let why = format!("the store returned wrong bytes for key {:x}", request.key);
                return Err(Error::experiment("wg-Hummingbird", why));
            }
        } else if request.size <= self.load.largest {
            self.write(&key, request)?;
        }
        self.hint(request, &key);
        Ok(())
    }

    fn write(&self, key: &[u8], request: &Request) -> Result<()> {
        let begin = self.time.now();
        let with = PutOptions::new().bypass_memory(request.size > LARGE);
        let put = self.store.put_with(key, self.bodies.borrow_mut().of(request), &with);
        let mut measured = self.measured.borrow_mut();
        match put {
            Ok(()) => measured.wrote(self.time.now() - begin),
            Err(StoreError::Refused(_) | StoreError::Full { .. }) => measured.refused += 1,
            Err(error) => return Err(failed(error)),
        }
        Ok(())
    }

    fn hint(&self, request: &Request, key: &[u8; 8]) {
        let mut pages = self.pages.borrow_mut();
        if request.kind == Kind::Page {
            pages.insert(request.client, u64::from_le_bytes(*key));
        } else if let Some(page) = pages.get(&request.client) {
            self.store.collocate(&page.to_le_bytes(), key);
        }
    }
}
