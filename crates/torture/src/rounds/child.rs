//! The child: opens the store, looks at every key, works, closes; or looks only, and reads nothing but.

use std::{
    collections::HashMap,
    fs::File,
    io,
    path::{Path, PathBuf},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use picaflor::{Durability, Error, Mode, Priority, Store};

use super::{
    aim::Life,
    breaks::Break,
    door::{Door, at_once},
    log::{self, Deletes, How, Log, Phase, Record, Resized, What, Whereabouts},
    setup::Setup,
    sizes::Sizes,
    wish::Wish,
    work::{WRITERS, Worker},
};

/// How often the child says where it is.
const BEAT: Duration = Duration::from_micros(300);
/// Number of the log that looks, and of the one that tells of openings and closes.
const LOOKER: usize = WRITERS - 2;
const KEEPER: usize = WRITERS - 1;

/// Lives one life, or looks at what the one before left.
///
/// # Errors
/// In words: the store does not open, or a log cannot be written.
pub fn child(folder: &Path, setup: &Setup, wish: &Wish, number: u32, read_only: bool) -> Result<(), String> {
    let told = |error: io::Error| format!("a log cannot be written: {error}");
    if read_only { audit(folder, setup, wish, number) } else { live(folder, setup, wish, number) }.map_err(told)?
}

type Outcome = io::Result<Result<(), String>>;

/// Opens the store once the system has let go of what the killed process had open.
fn open(folder: &Path, setup: &Setup, sabotage: Break, capacity: u64, read_only: bool) -> Result<Store, String> {
    let mut capacity = capacity;
    let options = |capacity| {
        let mut options = setup.options(folder)?;
        (options.read_only, options.capacity) = (read_only, capacity);
        if sabotage == Break::EarlyAcks {
            (options.durability, options.delete_count) = (Durability::None, 1000);
            options.delete_time = Duration::from_secs(3600);
        }
        Store::open(options)
    };
    for _ in 0..1000 {
        match options(capacity) {
            // It has more than would fit, and stays as it is.
            Err(Error::Option { name: "capacity", .. }) if setup.mode == Mode::Store && capacity > 0 => capacity = 0,
            Err(Error::Io { source, .. }) if source.kind() == io::ErrorKind::ResourceBusy => {
                std::thread::sleep(Duration::from_millis(2));
            }
            opened => return opened.map_err(|error| format!("the store does not open: {error}")),
        }
    }
    Err("the files of a killed process stay locked".into())
}

/// Bytes of the store's files.
fn bytes(folder: &Path, setup: &Setup) -> u64 {
    setup.paths(folder).iter().filter_map(|path| Some(path.metadata().ok()?.len())).sum()
}

/// Gives a store at work what this life has for it, if that is more.
fn grow(store: &Store, sizes: Sizes, log: &mut Log) -> Outcome {
    let Some(capacity) = sizes.at_work.filter(|capacity| *capacity > store.stats().capacity) else { return Ok(Ok(())) };
    let growing = Record::begun(What::Resize, Resized::GrownAtWork as u32, 0);
    let at = log.add(&growing)?;
    let grown = store.grow(capacity);
    log.end(at, &growing.ended(if grown.is_ok() { How::Done } else { How::Failed }))?;
    Ok(grown.map_err(|error| format!("the store does not grow: {error}")))
}

/// Says that the store is open, and what came of what was there.
fn told_open(folder: &Path, log: &mut Log, life: u32, store: &Store) -> io::Result<()> {
    let cold = store.receipt().volumes.iter().any(|volume| volume.dropped.cold_start);
    let damage = store.receipt().volumes.iter().map(|volume| volume.damage.len() as u32).sum();
    let opened = Record::begun(What::Open, cold.into(), damage).ended(How::Done);
    std::fs::write(folder.join(format!("receipt-{life:04}")), store.receipt().to_string())?;
    log.add(&opened).map(drop)
}

/// Looks at every key of a store that is opened read-only, and audits it.
fn audit(folder: &Path, setup: &Setup, wish: &Wish, number: u32) -> Outcome {
    let mut log = Log::create(folder, number, KEEPER)?;
    let store = match open(folder, setup, Break::None, 0, true) {
        Ok(store) => store,
        Err(why) => return Ok(Err(format!("read-only: {why}"))),
    };
    told_open(folder, &mut log, number, &store)?;
    let looker = Worker::new(Door::Thread(store.clone()), setup, number, LOOKER, folder.into())?;
    let mut looker = match wish.sabotage {
        Break::OldReadOnly => looker.broken(wish.sabotage).remembering(older(folder, number.saturating_sub(1))?),
        _ => looker,
    };
    let report = store.check(|_, _| {});
    if !report.is_clean() {
        let text = format!(
            "the audit found {} of {} entries intact, {} lost, clusters {:?} unreadable, refused {:?}, damaged {:?}",
            report.intact, report.entries, report.lost, report.unreadable_clusters, report.refused, report.damaged
        );
        looker.bad(&Record::begun(What::Bad, 0, 0).ended(How::Full), &text)?;
    }
    at_once(look(&mut looker, setup))?;
    Ok(store.close().map_err(|error| format!("closing what is read-only failed: {error}")))
}

/// An older version of each key that was put more than once in a life.
fn older(folder: &Path, life: u32) -> io::Result<HashMap<u32, (u32, u32)>> {
    let mut older: HashMap<u32, (u32, u32)> = HashMap::new();
    for record in log::read(folder, life)? {
        if record.what == What::Put && record.how == How::Done {
            let before = older.entry(record.key).or_default();
            *before = (before.1, record.version);
        }
    }
    Ok(older)
}

async fn look(looker: &mut Worker, setup: &Setup) -> io::Result<()> {
    if !setup.forgets_groups() {
        looker.get_group()?;
    }
    for key in 0..setup.keys {
        looker.get(key).await?;
    }
    Ok(())
}

/// Says where the child is until it is told to stop. Asks the store nothing before work begins: a question may wait
/// for the end of the opening, and gets are answered before.
fn beat(file: &File, store: &Store, working: &AtomicBool, stop: &AtomicBool) -> io::Result<()> {
    while !stop.load(Relaxed) {
        std::thread::sleep(BEAT);
        if !working.load(Relaxed) {
            continue;
        }
        let counts = store.stats().counts;
        let at = Whereabouts {
            phase: Phase::Working,
            checkpoints: counts.checkpoints,
            checkpoint_bytes: counts.checkpoint_bytes,
            reclaimed: counts.reclaimed_clusters + counts.evicted + counts.reinserted,
            deletes: 0,
        };
        at.tell(file)?;
    }
    Ok(())
}

fn live(folder: &Path, setup: &Setup, wish: &Wish, number: u32) -> Outcome {
    let file = Whereabouts::open(folder)?;
    let tell = |phase| Whereabouts { phase, ..Whereabouts::default() }.tell(&file);
    let mut log = Log::create(folder, number, KEEPER)?;
    tell(Phase::Opening)?;
    let sizes = Sizes::of(setup, number);
    let had = bytes(folder, setup);
    let store = match open(folder, setup, wish.sabotage, sizes.opening, false) {
        Ok(store) => store,
        Err(why) => return Ok(Err(why)),
    };
    let has = bytes(folder, setup);
    if had > 0 && had != has {
        let how = if has < had { Resized::Shrunk } else { Resized::Grown };
        log.add(&Record::begun(What::Resize, how as u32, 0).ended(How::Done))?;
    }
    tell(Phase::Looking)?;
    let used = use_store(folder, setup, wish, number, &store, (&file, &mut log))?;
    if used.is_err() {
        return Ok(used);
    }
    let failures = store.failures();
    tell(Phase::Closing)?;
    let closing = Record::begun(What::Close, 0, 0);
    let at = log.add(&closing)?;
    let closed = store.close();
    log.end(at, &closing.ended(if closed.is_ok() { How::Done } else { How::Failed }))?;
    tell(Phase::Closed)?;
    Ok(match (failures.first(), closed) {
        (Some(failure), _) => Err(format!("a volume stopped writing: {failure}")),
        (None, closed) => closed.map_err(|error| format!("closing failed: {error}")),
    })
}

/// Settings that are the same in all lives.
fn set_groups(setup: &Setup, store: &Store) {
    for group in 1..4 {
        let handle = store.group(group.into());
        handle.set(if group == 1 { Priority::Loved } else { Priority::Neither });
        if let Some(interval) = setup.interval(group) {
            handle.set_checkpoint_interval(interval);
        }
    }
}

/// Looks at every key and works.
fn use_store(
    folder: &Path,
    setup: &Setup,
    wish: &Wish,
    number: u32,
    store: &Store,
    (file, log): (&File, &mut Log),
) -> Outcome {
    let life = Life::new(setup, number);
    let deletes = Arc::new(Deletes::new(file)?);
    let sabotage = if wish.sabotage == Break::OldReadOnly { Break::None } else { wish.sabotage };
    let worker = |door, writer| {
        Worker::new(door, setup, number, writer, PathBuf::from(folder))
            .map(|worker| worker.broken(sabotage).counting(&deletes))
    };
    let door = |writer| if writer < setup.threads { Door::Thread(store.clone()) } else { Door::Task(store.clone()) };
    let workers = (0..setup.writers()).map(|writer| worker(door(writer), writer)).collect::<io::Result<Vec<_>>>()?;
    let mut looker = Worker::new(Door::Thread(store.clone()), setup, number, LOOKER, folder.into())?;
    let (working, stop, over) = (AtomicBool::new(false), Arc::new(AtomicBool::new(false)), AtomicBool::new(false));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build()?;
    std::thread::scope(|scope| {
        let beating = scope.spawn(|| beat(file, store, &working, &over));
        if life.apart {
            at_once(look(&mut looker, setup))?;
        }
        set_groups(setup, store);
        told_open(folder, log, number, store)?;
        working.store(true, Relaxed);
        let (mut threads, mut tasks) = (Vec::new(), Vec::new());
        for (writer, worker) in workers.into_iter().enumerate() {
            let work = worker.work(Arc::clone(&stop));
            match writer < setup.threads {
                true => threads.push(scope.spawn(|| at_once(work))),
                false => tasks.push(runtime.spawn(work)),
            }
        }
        if !life.apart {
            at_once(look(&mut looker, setup))?;
        }
        std::thread::sleep(life.work / 2);
        let grown = grow(store, Sizes::of(setup, number), log)?;
        std::thread::sleep(life.work / 2);
        stop.store(true, Relaxed);
        let mut ends = Vec::new();
        ends.extend(threads.into_iter().map(|thread| thread.join().map_err(|_| "a thread of the child panicked")));
        ends.extend(tasks.into_iter().map(|task| runtime.block_on(task).map_err(|_| "a task of the child panicked")));
        over.store(true, Relaxed);
        ends.push(beating.join().map_err(|_| "the beat panicked"));
        for end in ends {
            match end {
                Ok(end) => end?,
                Err(why) => return Ok(Err(why.to_owned())),
            }
        }
        Ok(grown)
    })
}
