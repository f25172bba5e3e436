//! Who does what, when: rounds on the outside, engines within, so that a machine that slows down slows all of them.

mod durable;
mod site;

use std::{
    env, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    time::Duration,
};

use anyhow::{Context, Result, bail, ensure};
use bench_common::{
    limit::{self, MemoryLimit},
    machine,
    report::Report,
};

use crate::{
    Arguments, JOB,
    data::{Data, Profile},
    engines::{self, Config, Table},
    fio::Fio,
    work::{
        By, Figures, Job, Work, bare,
        durable::Verb,
        reopen::{MEMORY, READY},
    },
};

/// The first engine of the table of caches and stores; the others of ours begin with the same word.
const OURS: &str = "picaflor";
const DEVICE: &str = "device (fio)";
/// As many threads as write, with no store behind them.
const BARE: &str = "device (threads, no store)";

/// Memory of an engine where the work is to go to the device.
const SMALL_MEMORY: u64 = 64 << 20;
/// Memory of an engine where the work is to use it.
const LARGE_MEMORY: u64 = 256 << 20;

/// Load where every block was written before, as by a log that went round its device once. The plain load writes
/// blocks that were never written, where the file system has to note for each that it now is.
const LOAD_WRITTEN: &str = "load, blocks written before";

/// The writers of a server: tasks that one thread runs.
const DURABLE_TASKS: &str = "durable put, 8 writers, tasks of one thread";

const GETS: [(&str, usize, By); 4] = [
    ("get, 1 thread", 1, By::Threads),
    ("get, 32 threads", 32, By::Threads),
    ("get, 32 in flight", 32, By::Tasks),
    ("get, 32 in flight, tokio", 32, By::Tokio),
];

/// foyer hangs on a device of few of its 16 MiB blocks.
const LEAST_CAPACITY: u64 = 256 << 20;

struct Bench<'a> {
    arguments: &'a Arguments,
    report: Report,
    /// Where memory is to be short, and where it is to be used.
    limits: Option<[MemoryLimit; 2]>,
    fio: Option<Fio>,
    total: u64,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    fs::create_dir_all(&arguments.folder)?;
    let mut failed = false;
    for table in [Table::Engine, Table::Durable, Table::Site] {
        if arguments.tables.is_empty() || arguments.tables.contains(&table) {
            failed |= run_table(arguments, table)?;
        }
    }
    // Not empty when it held something else before: then it stays.
    let _ = fs::remove_dir(&arguments.folder);
    ensure!(!failed, "not every engine did all its work");
    Ok(())
}

/// Whether anything failed.
fn run_table(arguments: &Arguments, table: Table) -> Result<bool> {
    let known = engines::names(table);
    let wanted = |name: &&str| arguments.engines.is_empty() || arguments.engines.iter().any(|it| it == name);
    let mut engines: Vec<&str> = known.into_iter().filter(wanted).collect();
    let (name, base) = match table {
        Table::Engine => ("engine", OURS),
        Table::Durable => ("durable", durable::OURS),
        Table::Site => ("site", durable::OURS),
    };
    let mut bench = Bench::new(arguments, table)?;
    engines.retain(|engine| {
        let absent = engines::absent(engine);
        if let Some(why) = &absent {
            eprintln!("{why}");
            bench.report.notes.push(why.clone());
        }
        absent.is_none()
    });
    let mut failed = false;
    for round in 0..arguments.rounds {
        match table {
            Table::Engine => bench.ceilings(round)?,
            Table::Durable => bench.durable_ceilings(round)?,
            Table::Site => {}
        }
        // Another engine first in each round: none always finds the device as the same one left it.
        if round > 0 && !engines.is_empty() {
            engines.rotate_left(1);
        }
        for engine in &engines {
            let folder = arguments.folder.join(engine);
            eprintln!("{name}, round {} of {}: {engine}", round + 1, arguments.rounds);
            let done = match table {
                Table::Engine => bench.one_engine(engine, &folder, round),
                Table::Durable => bench.one_durable(engine, &folder, round),
                Table::Site => bench.one_of_site(engine, &folder, round),
            };
            if let Err(error) = done {
                failed = true;
                bench.report.failed(engine, round, &error);
            }
            clear(&folder)?;
        }
        bench.report.write(&arguments.out, name, base)?;
    }
    println!("{}", bench.report.markdown(base));
    eprintln!("written to {}", arguments.out.join(name).with_extension("{md,csv,json}").display());
    Ok(failed)
}

impl<'a> Bench<'a> {
    fn new(arguments: &'a Arguments, table: Table) -> Result<Self> {
        let data = Data::new(Profile::Web);
        let total = data.total(arguments.objects);
        let limit = |name: &str, mebibytes: u64| {
            MemoryLimit::new(&format!("bench-engine-{name}-{}", std::process::id()), mebibytes << 20)
        };
        let limits =
            limit("small", arguments.limit).and_then(|small| Ok([small, limit("large", arguments.limit * 2)?]));
        let limited = match &limits {
            Ok(_) => format!(
                "Processes are limited to {} MiB of memory, page cache included; for zipf to twice that, for cache and reopen not.",
                arguments.limit
            ),
            Err(error) => {
                format!("Processes are not limited in memory ({error}): the page cache helps those that use it.")
            }
        };
        let dropped = match limit::drop_page_cache() {
            true => "The page cache is dropped before every piece of work.",
            false => "The page cache could not be dropped.",
        };
        let report = Report {
            machine: machine::describe(&arguments.folder.canonicalize()?),
            notes: vec![
                format!(
                    "{} objects, {:.2} GB: median 3 KB, mean 8 KB, at most 1 MB, keys of 60 bytes; {} rounds of {} s, medians shown.",
                    arguments.objects,
                    total as f64 / 1e9,
                    arguments.rounds,
                    arguments.seconds
                ),
                limited,
                dropped.into(),
                match table {
                    Table::Engine => {
                        format!(
                            "Engines are given {} MiB, for zipf and cache {} MiB.",
                            SMALL_MEMORY >> 20,
                            LARGE_MEMORY >> 20
                        )
                    }
                    Table::Durable => durable::note(),
                    Table::Site => site::NOTE.into(),
                },
            ],
            samples: Vec::new(),
        };
        // Twice what is written in a round would be slow to lay out; a quarter of the data is larger than any cache.
        let size = (total / 4).clamp(16 << 20, 4 << 30) & !0xf_ffff;
        let fio = Fio::find(&arguments.folder, size, arguments.time(), data.some_sizes());
        Ok(Self { arguments, report, limits: limits.ok(), fio, total })
    }

    /// What the device can do, measured in the same round.
    fn ceilings(&mut self, round: usize) -> Result<()> {
        let Some(fio) = &self.fio else { return Ok(()) };
        eprintln!("round {} of {}: fio", round + 1, self.arguments.rounds);
        let wants = |work| self.arguments.wants(work);
        let mut figures: Vec<(&str, Figures)> = Vec::new();
        if wants("load") {
            figures.push(("load", fio.load(false)?));
            figures.push((LOAD_WRITTEN, fio.load(true)?));
        }
        if wants("get") {
            let many = fio.get(32)?;
            figures.push(("get, 1 thread", fio.get(1)?));
            figures.extend(GETS[1..].iter().map(|(name, ..)| (*name, many.clone())));
        }
        if wants("durable") {
            figures.push(("durable put, 1 writer", fio.durable(1)?));
            let joint = fio.durable(8)?;
            figures.push(("durable put, 8 writers", joint.clone()));
            figures.push((DURABLE_TASKS, joint));
        }
        for (work, figures) in figures {
            self.report.add(work, DEVICE, round, &figures);
        }
        if wants("durable") {
            let bare = bare::run(&self.arguments.folder.join("bare"), 8, self.arguments.time())?;
            self.report.add("durable put, 8 writers", BARE, round, &bare);
        }
        Ok(())
    }

    /// Every work wanted, on one engine.
    fn one_engine(&mut self, engine: &str, folder: &Path, round: usize) -> Result<()> {
        let wants = |work| self.arguments.wants(work);
        if wants("warm") && engine.starts_with(OURS) && engines::evicts(engine) {
            clear(folder)?;
            self.warm(engine, folder, round)?;
        }
        if engines::is_preset(engine) {
            return Ok(());
        }
        if ["load", "get", "zipf", "churn"].into_iter().any(wants) {
            self.on_loaded(engine, folder, round)?;
        }
        if wants("cache") && engines::evicts(engine) {
            clear(folder)?;
            let job = self.on_half(self.large_job(engine, folder, Work::Zipf { threads: 8, fill: true }));
            self.measure("cache at steady state, device holds half", &job, round)?;
        }
        if wants("delete") {
            clear(folder)?;
            self.measure("delete", &self.job(engine, folder, Work::Delete), round)?;
        }
        // foyer's largest entry is a block of 16 MiB.
        for (name, len) in [("objects of 1 MB", 1 << 20), ("objects of 50 MB", 50 << 20)] {
            if wants("large") && !(len > 16 << 20 && engine.starts_with("foyer")) {
                clear(folder)?;
                let mut job = self.job(engine, folder, Work::Large);
                (job.profile, job.objects) = (Profile::Of(len), (self.total / 2 / u64::from(len)).max(4));
                // A body and its copy have to fit.
                job.door = self.limits.as_ref().map(|[_, large]| large.door());
                self.measure(name, &job, round)?;
            }
        }
        if wants("full") && engines::evicts(engine) {
            for (name, writers, readers) in
                [("full device, 1 writer, 8 readers", 1, 8), ("full device, 4 writers", 4, 0)]
            {
                clear(folder)?;
                let job = self.on_half(self.job(engine, folder, Work::Full { writers, readers }));
                self.measure(name, &job, round)?;
            }
        }
        if wants("near") && engine.starts_with(OURS) && !engines::evicts(engine) {
            clear(folder)?;
            let mut job = self.job(engine, folder, Work::Near);
            job.config.capacity = (self.total / 9 * 10).max(LEAST_CAPACITY);
            self.measure("store at 90% live, objects replaced", &job, round)?;
        }
        if wants("tails") && engine.starts_with(OURS) && engines::evicts(engine) {
            clear(folder)?;
            let mut job = self.job(engine, folder, Work::Tails);
            (job.profile, job.objects, job.door) = (Profile::Tiny, self.arguments.small, None);
            job.config.memory = SMALL_MEMORY + job.objects * 16;
            job.config.capacity = (job.objects * 320 + self.total).next_multiple_of(64 << 20).max(LEAST_CAPACITY);
            self.measure("gets while a checkpoint is written", &job, round)?;
        }
        if wants("durable") {
            for writers in [1, 8] {
                clear(folder)?;
                let mut job = self.job(engine, folder, Work::Durable { writers, verb: Verb::Put });
                (job.config.durable, job.config.commit_every) = (true, 1);
                if engines::evicts(engine) {
                    // Goes round its device: the steady state, in which no write is the first to its place.
                    job.config.capacity = LEAST_CAPACITY;
                }
                self.measure(&durable::puts(writers), &job, round)?;
                if writers > 1 && engine.starts_with(OURS) {
                    clear(folder)?;
                    job.work = Work::DurableTasks { writers };
                    self.measure(DURABLE_TASKS, &job, round)?;
                }
            }
        }
        if wants("reopen") {
            clear(folder)?;
            self.reopen(engine, folder, round)?;
        }
        Ok(())
    }

    /// Load, and what is done with what was loaded.
    fn on_loaded(&mut self, engine: &str, folder: &Path, round: usize) -> Result<()> {
        let wants = |work| self.arguments.wants(work);
        if wants("load") && engine.starts_with(OURS) {
            clear(folder)?;
            let mut job = self.job(engine, folder, Work::Load);
            job.config.written = true;
            self.measure(LOAD_WRITTEN, &job, round)?;
        }
        clear(folder)?;
        let (get, zipf, churn) = (wants("get"), wants("zipf"), wants("churn"));
        let load = self.job(engine, folder, Work::Load);
        self.measure("load", &load, round)?;
        if get {
            for (name, in_flight, by) in GETS {
                if matches!(by, By::Threads) || engines::is_asynchronous(engine) {
                    let job = self.job(engine, folder, Work::Get { in_flight, by });
                    self.measure(name, &job, round)?;
                }
            }
        }
        if zipf {
            let job = self.large_job(engine, folder, Work::Zipf { threads: 8, fill: false });
            self.measure("zipf 0.9, 90% get, 8 threads", &job, round)?;
        }
        if churn {
            let job = self.job(engine, folder, Work::Churn { age: 2.0 });
            self.measure("churn to age 2", &job, round)?;
        }
        Ok(())
    }

    fn reopen(&mut self, engine: &str, folder: &Path, round: usize) -> Result<()> {
        // Peers get a tenth: foyer would take 40 GB for ten million, a file each would take an hour.
        let objects = if engine.starts_with(OURS) { self.arguments.small } else { self.arguments.small / 10 };
        let mut job = self.job(engine, folder, Work::Idle);
        (job.profile, job.objects) = (Profile::Tiny, objects);
        // The index is part of the memory given: room for it, beside what the other works are given.
        job.config.memory = SMALL_MEMORY + objects * 16;
        let room = if engine.starts_with("foyer") { 4096 } else { 320 };
        job.config.capacity = (objects * room * 3 / 2).next_multiple_of(64 << 20).max(LEAST_CAPACITY);
        // Memory is what is measured here: it must not be squeezed.
        job.door = None;
        let empty = self.figures(&job)?;
        clear(folder)?;
        job.work = Work::Wait;
        let mut child = spawn(&job)?;
        let filled = wait_for(&mut child, READY);
        child.kill()?;
        child.wait()?;
        filled?;
        job.work = Work::Reopen;
        let mut figures = self.figures(&job)?;
        let growth = (figures[MEMORY] - empty[MEMORY]) * 1e6;
        figures.insert("5 bytes of memory/object".into(), growth.max(0.0) / objects as f64);
        figures.insert("0 objects".into(), objects as f64);
        self.report.add("reopen after kill -9, objects of 100 B", engine, round, &figures);
        Ok(())
    }

    /// Killed at work, with an eighth of its objects' bytes in memory beside the index.
    fn warm(&mut self, engine: &str, folder: &Path, round: usize) -> Result<()> {
        let objects = self.arguments.small;
        let mut job = self.job(engine, folder, Work::Ask);
        (job.profile, job.objects) = (Profile::Tiny, objects);
        job.config.memory = SMALL_MEMORY + objects * (16 + 20);
        job.config.capacity = (objects * 320 * 3 / 2).next_multiple_of(64 << 20).max(LEAST_CAPACITY);
        job.door = None;
        let mut child = spawn(&job)?;
        let worked = wait_for(&mut child, READY);
        // At work, not at rest.
        std::thread::sleep(self.arguments.time() / 4);
        child.kill()?;
        child.wait()?;
        worked?;
        job.work = Work::ComeBack;
        let mut figures = self.figures(&job)?;
        figures.insert("0 objects".into(), objects as f64);
        self.report.add("warm after kill -9, objects of 100 B", engine, round, &figures);
        Ok(())
    }

    fn job(&self, engine: &str, folder: &Path, work: Work) -> Job {
        Job {
            engine: engine.to_owned(),
            config: Config {
                folder: folder.to_owned(),
                memory: SMALL_MEMORY,
                // Room for everything, however it is rounded up, and for the dead beside the living.
                capacity: (self.total * 2).max(LEAST_CAPACITY),
                durable: false,
                commit_every: 1000,
                written: false,
            },
            work,
            profile: Profile::Web,
            objects: self.arguments.objects,
            time: self.arguments.time(),
            patience: if self.arguments.tiny { Duration::from_secs(60) } else { Duration::from_secs(1800) },
            door: self.limits.as_ref().map(|[small, _]| small.door()),
        }
    }

    /// A job on a device that holds half of the objects. Engines that evict do without the page cache, and foyer at
    /// times holds four times what it was given: their memory is not limited.
    fn on_half(&self, mut job: Job) -> Job {
        job.config.capacity = (self.total / 2).max(LEAST_CAPACITY);
        job.door = None;
        job
    }

    /// A job that is to use memory.
    fn large_job(&self, engine: &str, folder: &Path, work: Work) -> Job {
        let mut job = self.job(engine, folder, work);
        job.config.memory = LARGE_MEMORY;
        job.door = self.limits.as_ref().map(|[_, large]| large.door());
        job
    }

    fn measure(&mut self, name: &str, job: &Job, round: usize) -> Result<()> {
        let figures = self.figures(job).with_context(|| name.to_owned())?;
        self.report.add(name, &job.engine, round, &figures);
        Ok(())
    }

    fn figures(&self, job: &Job) -> Result<Figures> {
        limit::drop_page_cache();
        let output = spawn(job)?.wait_with_output()?;
        ensure!(output.status.success(), "{:?} ended with {}", job.work, output.status);
        let text = String::from_utf8(output.stdout)?;
        Ok(serde_json::from_str(text.trim())?)
    }
}

fn spawn(job: &Job) -> Result<Child> {
    let program = env::current_exe()?;
    let mut command = Command::new(program);
    command.env(JOB, serde_json::to_string(job)?).stdin(Stdio::null()).stdout(Stdio::piped());
    command.spawn().context("starting a worker")
}

fn wait_for(child: &mut Child, word: &str) -> Result<()> {
    let output = child.stdout.take().context("a worker without output")?;
    for line in BufReader::new(output).lines() {
        if line? == word {
            return Ok(());
        }
    }
    bail!("the worker ended before it was {word}")
}

fn clear(folder: &Path) -> Result<()> {
    match fs::remove_dir_all(folder) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
            Err(error).with_context(|| PathBuf::from(folder).display().to_string())
        }
        _ => Ok(()),
    }
}
