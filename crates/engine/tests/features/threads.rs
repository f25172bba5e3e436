//! Many threads on a small device that wraps over and over, with reclaim, checkpoints and commits running.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
    thread,
    time::{Duration, Instant},
};

use picaflor::{
    Durability, Error, Mode, Options, Refusal, Store,
    device::{Clock, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, On, Rule};
use rand::Rng;

use crate::common::{MIB, body, plain, rng};

const THREADS: u64 = 8;
/// Keys of each thread; only it puts and deletes them, all read them.
const KEYS: u64 = 300;

fn key(owner: u64, i: u64) -> Vec<u8> {
    format!("http://host{owner}.example/page/{i}").into_bytes()
}

/// The body tells whose it is, and its length and bytes follow from that and the version.
fn body_of(owner: u64, i: u64, version: u64) -> Vec<u8> {
    let seed = owner << 40 | i << 24 | version;
    let len = if seed.is_multiple_of(97) { 200_000 } else { 8 + (seed.wrapping_mul(0x9e37_79b9) >> 7) as usize % 9000 };
    let mut bytes = version.to_le_bytes().to_vec();
    bytes.extend_from_slice(&body(seed, len));
    bytes
}

fn check(owner: u64, i: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == body_of(owner, i, version), "another object's bytes, or torn ones: {owner} {i}");
    version
}

struct Run {
    store: Store,
    mode: Mode,
    stop: AtomicBool,
    done: [AtomicU64; THREADS as usize],
}

impl Run {
    fn writer(&self, owner: u64) -> Vec<u64> {
        let mut rng = rng(owner);
        // The version of each key, 0 if deleted.
        let mut versions = vec![0u64; KEYS as usize];
        let mut next = 1;
        while !self.stop.load(Relaxed) {
            self.done[owner as usize].fetch_add(1, Relaxed);
            let i = rng.random_range(0..KEYS);
            match rng.random_range(0..100) {
                0..45 => {
                    let server = owner as u32 % 3;
                    // So many name one that a cache lets objects wait for each other.
                    let neighbour = (i % 2 == 0).then(|| key(owner, i / 8 * 8 + 1).into());
                    let bypass_memory = i % 5 == 0;
                    let options = plain()
                        .server(server)
                        .group(server / 2)
                        .bypass_memory(bypass_memory)
                        .maybe_neighbour(neighbour);
                    match self.store.put_with(&key(owner, i), &body_of(owner, i, next), &options) {
                        Ok(()) => versions[i as usize] = next,
                        Err(Error::Full { .. } | Error::Refused(Refusal::NoCleanSpace | Refusal::Busy)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    next += 1;
                }
                45..55 => {
                    self.store.delete(&key(owner, i)).unwrap();
                    versions[i as usize] = 0;
                }
                55..75 => self.own(owner, i, versions[i as usize]),
                _ => {
                    let other = rng.random_range(0..THREADS);
                    if let Ok(Some(object)) = self.store.get(&key(other, i))
                        && let Ok(bytes) = object.body()
                    {
                        check(other, i, &bytes);
                    }
                }
            }
        }
        versions
    }

    /// Its owner finds the last version, or nothing: in a store only if it deleted it.
    fn own(&self, owner: u64, i: u64, version: u64) {
        let found = self.store.get(&key(owner, i)).unwrap();
        let found = found.and_then(|object| object.body().ok()).map(|bytes| check(owner, i, &bytes));
        match (found, self.mode) {
            (Some(found), _) => assert_eq!(found, version, "{owner} {i}"),
            (None, Mode::Store) => {
                let again = self.store.get(&key(owner, i)).map(|found| found.is_some());
                assert_eq!(version, 0, "{owner} {i} is lost; there now: {again:?}; {:?}", self.store.stats());
            }
            (None, Mode::Cache) => {}
        }
    }

    /// Stops the writers however it is left, so that a failure is not a test that never ends.
    fn at_the_end(&self) -> impl Drop + '_ {
        struct Stop<'a>(&'a AtomicBool);
        impl Drop for Stop<'_> {
            fn drop(&mut self) {
                self.0.store(true, Relaxed);
            }
        }
        Stop(&self.stop)
    }

    /// Looks on: memory within its cap, and everybody getting on.
    fn watch(&self, time: Duration) {
        let (began, _stop) = (Instant::now(), self.at_the_end());
        let mut last: Vec<u64> = vec![0; THREADS as usize];
        let mut stuck = 0;
        while began.elapsed() < time {
            for _ in 0..50 {
                let stats = self.store.stats();
                assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
                thread::sleep(Duration::from_millis(2));
            }
            let now: Vec<u64> = self.done.iter().map(|done| done.load(Relaxed)).collect();
            let all_moved = now.iter().zip(&last).all(|(now, last)| now > last);
            stuck = if all_moved { 0 } else { stuck + 1 };
            // A busy machine may hold a thread up; ten seconds say that it will not be woken.
            assert!(stuck < 100, "stuck: {last:?} {now:?} {:?}", self.store.stats());
            last = now;
        }
    }
}

fn hammer(mode: Mode, durability: Durability, time: Duration) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    // A store has room for twice what it holds; a cache for a quarter.
    let capacity = if mode == Mode::Store { 64 * MIB } else { 8 * MIB };
    let options = Options::new(&path).capacity(capacity).memory(3 * MIB).mode(mode).durability(durability);
    let options = options.with(|options| options.cluster = 64 << 10);
    let store = Store::open(options.clone()).unwrap();
    let run = Run { store, mode, stop: AtomicBool::new(false), done: Default::default() };
    let versions: Vec<Vec<u64>> = thread::scope(|scope| {
        let run = &run;
        let writers: Vec<_> = (0..THREADS).map(|owner| scope.spawn(move || run.writer(owner))).collect();
        run.watch(time);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    let counts = run.store.stats().counts;
    println!(
        "{mode:?} {durability:?}: {} puts, {} reclaimed, {} checkpoints, {} syncs",
        counts.puts, counts.reclaimed_clusters, counts.checkpoints, counts.device_syncs
    );
    assert_eq!(counts.packed > 0, mode == Mode::Cache && durability != Durability::EveryPut, "{counts:?}");
    // Nothing on this device is damaged: an entry that leads nowhere is a defect.
    assert_eq!((counts.damaged, run.store.stats().misses["key mismatch"]), (0, 0), "{:?}", run.store.stats());
    let Run { store, .. } = run;
    store.close().unwrap();
    let store = Store::open(options.with(|options| options.read_only = true)).unwrap();
    let report = store.check(|_, _| ());
    assert!(report.is_clean(), "{report:?}");
    let after = Run { store, mode, stop: AtomicBool::new(true), done: Default::default() };
    for (owner, i) in (0..THREADS).flat_map(|owner| (0..KEYS).map(move |i| (owner, i))) {
        after.own(owner, i, versions[owner as usize][i as usize]);
    }
}

#[test]
fn a_cache_under_many_threads() {
    for durability in [Durability::None, Durability::default(), Durability::EveryPut] {
        hammer(Mode::Cache, durability, Duration::from_millis(1700));
    }
}

#[test]
fn a_store_under_many_threads() {
    for durability in [Durability::None, Durability::default(), Durability::EveryPut] {
        hammer(Mode::Store, durability, Duration::from_millis(1700));
    }
}

#[test]
fn opening_and_closing_under_load_ends() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new(folder.path().join("store")).capacity(8 * MIB).memory(2 * MIB);
    let options = options.with(|options| options.cluster = 64 << 10);
    for round in 0..15 {
        let store = Arc::new(Store::open(options.clone()).unwrap());
        let writers: Vec<_> = (0..4u64)
            .map(|owner| {
                let store = store.clone();
                thread::spawn(move || {
                    for i in 0.. {
                        match store.put(&key(owner, i % KEYS), &body_of(owner, i % KEYS, i)) {
                            Ok(()) | Err(Error::Refused(_)) => {}
                            Err(Error::Closed) => break,
                            Err(error) => panic!("{error}"),
                        }
                    }
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(5 * round));
        Store::clone(&store).close().unwrap();
        writers.into_iter().for_each(|writer| writer.join().unwrap());
    }
}

#[test]
fn what_a_commit_is_making_durable_is_volatile_until_it_is() {
    let device = FaultyDevice::with_clock(Arc::new(MemoryDevice::new(16 * MIB)), 1, Clock::real());
    let hour = Duration::from_secs(3600);
    let bound = Durability::Bounded { time: hour, puts: 5 };
    let options = Options::on(Arc::new(device.clone())).memory(4 * MIB).durability(bound);
    let store = Store::open(options.with(|o| (o.delete_time, o.delete_count) = (hour, 5))).unwrap();
    device.add(Rule::rate(Fault::Delay(On::Sync, Duration::from_millis(300)), 1.0));
    let put = |i| store.put(&key(0, i), b"x").unwrap();
    let delete = |i| assert!(store.delete(&key(0, i)).unwrap());
    let all: [(&str, &(dyn Fn(u64) + Sync)); 2] = [("put", &put), ("delete", &delete)];
    for (what, verb) in all {
        (0..4).for_each(verb);
        let before = store.stats().counts;
        thread::scope(|scope| {
            scope.spawn(|| verb(4));
            while store.stats().counts.device_syncs == before.device_syncs {
                thread::yield_now();
            }
            verb(5);
            let commits = store.stats().counts.commits - before.commits;
            assert_eq!(commits, 2, "five are about to be durable: the sixth {what} has to wait for the next commit");
        });
    }
    device.clear_rules();
    store.close().unwrap();
}

#[test]
fn a_listener_that_panics_stops_no_daemon() {
    let mut options = Options::on(Arc::new(MemoryDevice::new(8 * MIB))).memory(4 * MIB);
    // Without a word from the panic's hook.
    options.eviction_listener = Some(Arc::new(|_: &[u8], _| std::panic::resume_unwind(Box::new("a listener's fault"))));
    let store = Store::open(options.with(|options| options.cluster = 64 << 10)).unwrap();
    (0..4000).for_each(|i| store.put(&key(0, i), &body(i, 8000)).unwrap());
    let counts = store.stats().counts;
    assert!(counts.listener_panics > 2000 && counts.listener_panics <= counts.evicted, "{counts:?}");
    store.close().unwrap();
}

#[test]
fn without_threads_a_store_does_not_open() {
    const INNER: &str = "PICAFLOR_TEST_WITHOUT_THREADS";
    if std::env::var_os(INNER).is_some() {
        let options = Options::on(Arc::new(MemoryDevice::new(8 * MIB))).memory(8 * MIB);
        let error = Store::open(options.clone()).err().unwrap().to_string();
        assert!(error.contains("starting the store's threads"), "{error}");
        let by_hand = options.with(|options| options.daemons = picaflor::Daemons::Manual);
        Store::open(by_hand).unwrap().close().unwrap();
        return;
    }
    // Stacks larger than what can be addressed.
    let mut inner = std::process::Command::new(std::env::current_exe().unwrap());
    inner.args(["--exact", "threads::without_threads_a_store_does_not_open", "--test-threads=1"]);
    let done = inner.env(INNER, "1").env("RUST_MIN_STACK", (1_u64 << 50).to_string()).output().unwrap();
    let said = String::from_utf8_lossy(&done.stdout);
    assert!(done.status.success() && said.contains("1 passed"), "{said}{}", String::from_utf8_lossy(&done.stderr));
}
