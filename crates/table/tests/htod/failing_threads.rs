//! A device that fails one write while several threads put: each of them waits for a batch that another may be
//! writing, and none may be told that its own is durable when that one failed. And a caller that panics while it
//! commits for others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::Duration,
};

use picaflor_device::{Clock, Device, MemoryDevice};
use picaflor_sim::{Asked, Fault, FaultyDevice, HookedDevice, On, Rule};
use picaflor_table::{
    Error,
    blocks::{BlockError, BlockOptions, FreeLists},
    htod::{Durable, HashTables},
};

use super::{key, options};

const THREADS: u64 = 8;
/// So long that a few of them are more than waits for a commit.
const LONG: usize = 300_000;

fn value(number: u64) -> Vec<u8> {
    vec![number as u8 + 1; LONG]
}

/// Puts by many threads until one is refused, where a write of a batch fails late and syncs are slow. Says how many
/// puts were acknowledged, after a crash and with all of them found.
fn acknowledged(point: u64) -> u64 {
    let device = FaultyDevice::with_clock(Arc::new(MemoryDevice::with_block_size(64 << 20, 512)), point, Clock::real());
    let shared: Arc<dyn Device> = Arc::new(device.clone());
    let open = || HashTables::open(Arc::clone(&shared), BlockOptions::default(), options(Durable::EachCall)).unwrap().0;
    let tables = open();
    let table = tables.table("t").unwrap();
    // Batches are cut into writes at the same places, so the last of some batch is late and fails.
    device.add(Rule::since(Fault::Delay(On::Sync, Duration::from_millis(10)), 1));
    device.add(Rule::nth(Fault::Delay(On::Write, Duration::from_millis(40)), point));
    device.add(Rule::nth(Fault::WriteError, point));
    let known: Vec<AtomicU64> = (0..THREADS).map(|_| AtomicU64::new(0)).collect();
    thread::scope(|scope| {
        for (thread, known) in (0..).zip(&known) {
            let table = table.clone();
            scope.spawn(move || {
                for number in 0..8 {
                    if table.put(&key(thread * 100 + number), &value(thread * 100 + number)).is_err() {
                        break;
                    }
                    known.store(number + 1, Relaxed);
                }
            });
        }
    });
    assert_eq!(device.injected(Fault::WriteError), 1, "point {point}");
    assert!(tables.commit().is_err(), "point {point}: it goes on after a batch that failed");
    drop((table, tables));
    device.clear_rules();
    device.crash().and_then(|_| device.revive()).unwrap();
    let table = open().table("t").unwrap();
    let mut all = 0;
    for (thread, known) in (0..).zip(&known) {
        for number in (0..known.load(Relaxed)).map(|number| thread * 100 + number) {
            let found = table.get(&key(number)).unwrap();
            assert!(found == Some(value(number)), "point {point}: put {number} was acknowledged and is gone");
            all += 1;
        }
    }
    all
}

#[test]
fn a_batch_that_fails_is_nobody_elses_success() {
    let acknowledged: u64 = (3..43).step_by(2).map(acknowledged).sum();
    assert!(acknowledged > 40, "{acknowledged} puts were acknowledged before the failures");
}

/// A device on which threads that are named so panic.
fn deadly() -> Arc<dyn Device> {
    let hook = |_: Asked| {
        if thread::current().name() == Some("deadly") {
            // Without a word from the panic's hook.
            std::panic::resume_unwind(Box::new("met a defect"));
        }
    };
    Arc::new(HookedDevice::new(Arc::new(MemoryDevice::with_block_size(16 << 20, 512)), hook))
}

/// Has one thread panic in `first`; then what another gets of `second`, unless it waits for ever.
fn second_of<T: Send + 'static>(
    first: impl FnOnce() + Send + 'static,
    second: impl FnOnce() -> T + Send + 'static,
) -> T {
    let deadly = thread::Builder::new().name("deadly".into()).spawn(first).unwrap();
    assert!(deadly.join().is_err(), "the panic is its caller's");
    let (sender, receiver) = std::sync::mpsc::channel();
    thread::spawn(move || sender.send(second()));
    receiver.recv_timeout(Duration::from_secs(30)).expect("no wait for ever")
}

#[test]
fn who_waits_for_a_commit_is_told_if_the_caller_that_makes_it_panics() {
    let tables = HashTables::open(deadly(), BlockOptions::default(), options(Durable::EachCall)).unwrap().0;
    let table = tables.table("t").unwrap();
    table.put(&key(1), b"first").unwrap();
    let (own, other) = (table.clone(), table.clone());
    let put = second_of(move || own.put(&key(2), b"second").unwrap(), move || other.put(&key(3), b"third"));
    assert!(matches!(&put, Err(Error::Daemon { daemon: "commit", why, .. }) if why == "met a defect"), "{put:?}");
    assert_eq!(table.get(&key(1)).unwrap().as_deref(), Some(&b"first"[..]), "gets go on");

    let lists = Arc::new(FreeLists::open(deadly(), BlockOptions::default()).unwrap().0);
    let block = lists.put(b"first").unwrap();
    lists.sync().unwrap();
    let (own, other) = (Arc::clone(&lists), Arc::clone(&lists));
    let synced = second_of(move || own.sync().unwrap(), move || other.sync());
    let Err(BlockError::Stopped(Error::Daemon { daemon: "commit", .. })) = synced else { panic!("{synced:?}") };
    assert_eq!(lists.read(block.address()).unwrap().1, b"first");
}
