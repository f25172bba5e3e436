//! The micro-benchmarks of Ledlie 2000, §5.1: objects are created, read and deleted, in one of five orders, by several
//! threads; all finish a stage before any begins the next.
//!
//! Objects are numbered in the order of their groups, or directories. *Sequential*: each stage goes through them in
//! that order. *Random*: creations and deletions are permuted, reads are drawn.
//! *Zipf*
//! *a:b*: the same, but the first *a* of *b* objects are popular and are drawn by as much as is left of one. Popular
//! objects fill groups of their own, which are loved, as all groups are in the other orders; what is not popular is
//! hated.
//!
//! Threads take turns, and each takes the next object that no other has. The thesis says only how many each does. With
//! parts of their own, or every sixteenth object, threads drift apart, and no stage is in the order it is named for.
//!
//! A time is that of a stage by its operations. A thread's own wait is about as many times longer as there are threads.
//!
//! Threads wait for the disk beside one another, on files as on a store, and share one processor: ext2's because of the
//! kernel's lock, the store's because the other of the machine's two has its disk thread.

use std::{
    cell::{Cell, RefCell},
    collections::VecDeque,
    io,
    pin::Pin,
    rc::Rc,
    sync::Arc,
};

use picaflor::{Daemons, Durability, Mode, NextCluster, Place, PutOptions, Store};
use picaflor_device::{Clock, Folder};
use picaflor_sim::{Elevator, SimulatedDisk};
use serde::Serialize;

use super::{bodies::Bodies, wg::Machine};
use crate::{
    Error, Result,
    exec::{self, Executor, Processor, Time},
    fs::{FileSystem, FsProfile, ProcessorProfile},
    synth::Dice,
    trace::Request,
};

/// In which order objects are created, read and deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(into = "String")]
pub enum Order {
    /// In that of groups, in every stage.
    Sequential,
    /// In any.
    Random,
    /// So many of so many objects are popular.
    Zipf(u64, u64),
}

impl Order {
    /// The five of the thesis.
    pub const ALL: [Self; 5] = [Self::Sequential, Self::Random, Self::Zipf(1, 8), Self::Zipf(1, 4), Self::Zipf(3, 8)];

    /// Its name there.
    #[must_use]
    pub fn name(self) -> String {
        match self {
            Self::Sequential => "sequential".into(),
            Self::Random => "random".into(),
            Self::Zipf(some, all) => format!("zipf {some}:{all}"),
        }
    }
}

impl From<Order> for String {
    fn from(order: Order) -> Self {
        order.name()
    }
}

/// What is measured on.
#[derive(Debug, Clone)]
pub enum On {
    /// A store of this preset, with pages of so many bytes and as many bytes of memory and of disk.
    Store {
        /// Row of the engine's table.
        preset: String,
        /// Bytes of a page.
        page: u32,
        /// Bytes of memory.
        memory: u64,
        /// Bytes of disk.
        disk: u64,
        /// What the machine's processor takes for a call, and for a byte that is put.
        processor: ProcessorProfile,
    },
    /// Files on this file system, whose memory is emptied before the reads if it is to be cold.
    Files(Box<FsProfile>, bool),
}

/// Everything that a benchmark is a function of.
#[derive(Debug, Clone)]
pub struct Bench {
    /// What is measured on.
    pub on: On,
    /// What it runs on.
    pub machine: Machine,
    /// One part of the disk in so many.
    pub parts: u32,
    /// Objects.
    pub objects: u64,
    /// Bytes of the largest.
    pub largest: u64,
    /// Groups.
    pub groups: u32,
    /// Operations under way at a time.
    pub threads: u64,
    /// The order.
    pub order: Order,
    /// Of sizes, orders, the disk and the store.
    pub seed: u64,
}

/// Milliseconds an operation, by stage, and what reads brought.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Stages {
    /// Creating.
    pub create_ms: f64,
    /// Reading.
    pub read_ms: f64,
    /// Deleting.
    pub delete_ms: f64,
    /// Objects asked for, by those that reads of pages brought in. Files bring in none but their own.
    pub hit_rate: f64,
    /// Reads that found nothing, which is none.
    pub lost: u64,
}

/// Directories of the file system: [a-z]/[a-z].
const DIRECTORIES: u64 = 26 * 26;

/// Runs one.
///
/// # Errors
/// If it names what does not exist, or the system under it fails.
pub fn run(bench: &Bench) -> Result<Stages> {
    match &bench.on {
        On::Files(kind, cold) => files(bench, kind, *cold),
        On::Store { preset, page, memory, disk, processor } => store(bench, (preset, processor), *page, *memory, *disk),
    }
}

impl Bench {
    fn wrong(&self, why: impl ToString) -> Error {
        Error::experiment(self.machine.disk.as_str(), why.to_string())
    }

    /// Objects in the order in which a stage names them.
    fn permuted(&self, stage: u64) -> Vec<u64> {
        let mut all: Vec<u64> = (0..self.objects).collect();
        if self.order != Order::Sequential {
            let mut dice = Dice::new(self.seed, 100 + stage);
            for at in (1..all.len()).rev() {
                all.swap(at, dice.below(at as u64 + 1) as usize);
            }
        }
        all
    }

    fn reads(&self) -> Vec<u64> {
        let mut dice = Dice::new(self.seed, 102);
        let n = self.objects;
        let draw = |at| match self.order {
            Order::Sequential => at,
            Order::Random => dice.below(n),
            Order::Zipf(some, all) => {
                let popular = n * some / all;
                // They get the complement of their share.
                if dice.chance(1.0 - some as f64 / all as f64) {
                    dice.below(popular)
                } else {
                    popular + dice.below(n - popular)
                }
            }
        };
        (0..n).map(draw).collect()
    }

    /// The stages' objects: created, read, deleted.
    fn stages(&self) -> [Vec<u64>; 3] {
        [self.permuted(1), self.reads(), self.permuted(3)]
    }

    fn request(&self, object: u64) -> Request {
        let size = 1 + Dice::new(self.seed ^ object, 103).below(self.largest);
        Request { key: object + 1, size, ..Request::default() }
    }

    /// Whether an object's group is loved.
    fn is_loved(&self, group: u64) -> bool {
        match self.order {
            Order::Zipf(some, all) => group * all < u64::from(self.groups) * some,
            _ => true,
        }
    }

    fn disk(&self, clock: &Clock, bytes: Option<u64>) -> Result<SimulatedDisk> {
        self.machine.disk(clock, self.parts, bytes, self.seed)
    }
}

/// What a stage does to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Act {
    Create,
    Read,
    Delete,
}

/// What clients share.
struct Shared {
    bench: Bench,
    bodies: RefCell<Bodies>,
    lost: Cell<u64>,
}

impl Shared {
    fn new(bench: &Bench) -> Self {
        Self { bench: bench.clone(), bodies: RefCell::default(), lost: Cell::new(0) }
    }

    /// A read that found what it should, or did not.
    fn count(&self, right: bool) {
        self.lost.set(self.lost.get() + u64::from(!right));
    }
}

fn files(bench: &Bench, kind: &FsProfile, cold: bool) -> Result<Stages> {
    let clock = Clock::virtual_at(1_700_000_000_000);
    let disk = bench.disk(&clock, None)?;
    let wrong = |error: io::Error| bench.wrong(error);
    let system = FileSystem::new(kind, &disk).map_err(wrong)?;
    let letter = |number: u64| char::from(b'a' + (number % 26) as u8);
    let make = || {
        for first in 0..26 {
            system.make_dir(&letter(first).to_string())?;
            (0..26).try_for_each(|second| system.make_dir(&format!("{}/{}", letter(first), letter(second))))?;
        }
        system.sync()
    };
    make().map_err(wrong)?;
    let objects = bench.objects;
    let path = move |object: u64| {
        let directory = object * DIRECTORIES / objects;
        format!("{}/{}/{object}", letter(directory / 26), letter(directory))
    };
    let shared = Rc::new(Shared::new(bench));
    let act = |act: Act| {
        let (shared, system) = (Rc::clone(&shared), system.clone());
        move |time: Time, object: u64| {
            let (shared, system, path) = (Rc::clone(&shared), system.clone(), path(object));
            async move {
                let request = shared.bench.request(object);
                let call = |system: &FileSystem| match act {
                    Act::Create => system.write(&path, shared.bodies.borrow_mut().of(&request)),
                    Act::Read => system.read(&path).map(|body| shared.count(Bodies::is_of(&request, &body))),
                    Act::Delete => system.remove(&path),
                };
                system.beside(&time, call).await.map_err(|error| shared.bench.wrong(error))
            }
        }
    };
    let [creates, reads, deletes] = bench.stages();
    let create_ms = stage(bench, &disk, &creates, act(Act::Create))?;
    if cold {
        system.empty_memory().map_err(wrong)?;
    }
    let read_ms = stage(bench, &disk, &reads, act(Act::Read))?;
    let delete_ms = stage(bench, &disk, &deletes, act(Act::Delete))?;
    Ok(Stages { create_ms, read_ms, delete_ms, hit_rate: 1.0, lost: shared.lost.get() })
}

fn store(
    bench: &Bench,
    (preset, processor): (&str, &ProcessorProfile),
    page: u32,
    memory: u64,
    bytes: u64,
) -> Result<Stages> {
    let clock = Clock::virtual_at(1_700_000_000_000);
    let disk = bench.disk(&clock, Some(bytes.next_multiple_of(1 << 20)))?;
    let failed = |source| Error::Store { name: preset.into(), source };
    let open = || {
        let mut options = picaflor_literature::preset(preset)?;
        // Neither groups' own regions nor the way back were built when this was measured (§3, §6).
        options.places = vec![Place::Device(Elevator::OneWay.before(Arc::new(disk.clone())))];
        options.capacity = 0;
        options.memory = memory;
        // A store tells keys apart on the device before it deletes one; the thesis' deletes stay in memory (§3), as a
        // cache's do. There is room for all: nothing is evicted.
        options.mode = Mode::Cache;
        options.next_cluster = NextCluster::Overwrite;
        // Checkpoints were not built yet.
        options.durability = Durability::None;
        options.delete_time = std::time::Duration::from_secs(86_400);
        options.delete_count = u64::MAX;
        options.cluster = page;
        options.daemons = Daemons::Manual;
        options.clock = clock.clone();
        options.seed = Some(bench.seed);
        let store = Store::open(options)?;
        for group in 0..bench.groups {
            let handle = store.group(group + 1);
            if bench.is_loved(u64::from(group)) { handle.love() } else { handle.hate() }
        }
        Ok(store)
    };
    let [creates, reads, deletes] = bench.stages();
    let opened = open().map_err(failed)?;
    let shared = Rc::new(Shared::new(bench));
    let create_ms = stage(bench, &disk, &creates, act(&shared, &opened, processor, Act::Create))?;
    // No read is a hit that the creations left: the pool is flushed.
    opened.close().map_err(failed)?;
    let opened = open().map_err(failed)?;
    while opened.step().map_err(failed)? {}
    let before = opened.stats().counts;
    let read_ms = stage(bench, &disk, &reads, act(&shared, &opened, processor, Act::Read))?;
    let counts = opened.stats().counts;
    let brought = counts.neighbours_read + counts.cluster_reads - before.neighbours_read - before.cluster_reads;
    let hit_rate = if brought == 0 { 1.0 } else { reads.len() as f64 / brought as f64 };
    let delete_ms = stage(bench, &disk, &deletes, act(&shared, &opened, processor, Act::Delete))?;
    Ok(Stages { create_ms, read_ms, delete_ms, hit_rate, lost: shared.lost.get() })
}

/// What one of a store's clients does to an object. The processor takes as long for a call as for one of a file system,
/// and as long to copy what is put; a reader is given a pointer (§3), and no directory, inode or map is changed.
fn act(
    shared: &Rc<Shared>,
    store: &Store,
    costs: &ProcessorProfile,
    act: Act,
) -> impl Fn(Time, u64) -> Pin<Box<dyn Future<Output = Result<()>>>> + 'static {
    let (shared, store, costs, processor) = (Rc::clone(shared), store.clone(), costs.clone(), Processor::default());
    move |time, object| {
        let (shared, store, processor) = (Rc::clone(&shared), store.clone(), processor.clone());
        let copied = if act == Act::Create { shared.bench.request(object).size as f64 / 1024.0 } else { 0.0 };
        let nanos = (costs.call_us + costs.copy_us_per_kb * copied) * 1e3;
        Box::pin(async move {
            processor.work(&time, nanos as u64).await;
            let failed = |source| Error::Store { name: "micro-benchmark".into(), source };
            one(&shared, &store, act, object).await.map_err(failed)
        })
    }
}

async fn one(shared: &Shared, store: &Store, act: Act, object: u64) -> picaflor::Result<()> {
    let bench = &shared.bench;
    let request = bench.request(object);
    let key = request.key.to_le_bytes();
    match act {
        Act::Create => {
            let group = (object * u64::from(bench.groups) / bench.objects) as u32 + 1;
            let with = PutOptions::new().group(group);
            store.put_with(&key, shared.bodies.borrow_mut().of(&request), &with)?;
        }
        Act::Read => {
            let right = match store.get_async(&key).await? {
                Some(found) => Bodies::are_in_async(&request, &found).await?,
                None => false,
            };
            shared.count(right);
        }
        Act::Delete => store.invalidate(&key)?,
    }
    store.step().map(drop)
}

/// Milliseconds an operation. A stage has one order (§5.1): each client takes the next that no other has.
fn stage<F>(bench: &Bench, disk: &SimulatedDisk, all: &[u64], act: impl Fn(Time, u64) -> F + 'static) -> Result<f64>
where
    F: Future<Output = Result<()>> + 'static,
{
    let clock = disk.clock();
    let begin = clock.now_nanos();
    let mut executor = Executor::new(clock, std::slice::from_ref(disk));
    let left = Rc::new((RefCell::new(VecDeque::from(all.to_vec())), act));
    let client = |time: Time| {
        let left = Rc::clone(&left);
        async move {
            let next = || left.0.borrow_mut().pop_front();
            while let Some(object) = next() {
                left.1(time.clone(), object).await?;
                exec::turn().await;
            }
            Ok(())
        }
    };
    let clients: Vec<_> = (0..bench.threads.max(1)).map(|_| executor.spawn(client(executor.time()))).collect();
    executor.run()?;
    clients.into_iter().try_for_each(|client| client.take().unwrap_or(Ok(())))?;
    Ok((clock.now_nanos() - begin) as f64 / 1e6 / all.len() as f64)
}
