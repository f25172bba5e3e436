//! A store that is given more bytes than it was made with, where it is opened or while it is at work.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    },
};

use picaflor::{
    Durability, Error, Inspection, Mode, Options, Place, Store,
    device::{AlignedBuf, Device, MemoryDevice},
    inspect,
};
use picaflor_format::{BLOCK, superblock::Superblock, zone::Map};
use picaflor_sim::{Fault, FaultyDevice, On, Rule, kill};

use crate::common::{MIB, body, by_hand, key, read};

pub(crate) const LEN: usize = 20_000;

fn on_file(path: &std::path::Path, capacity: u64) -> Options {
    let options = by_hand(Arc::new(MemoryDevice::new(0))).mode(Mode::Store).capacity(capacity);
    options.with(|options| options.places = vec![Place::Path(path.to_owned())])
}

/// Puts objects from `first` on until the store is full; returns the one behind the last.
fn fill(store: &Store, first: u64) -> u64 {
    let full = (first..).find(|i| match store.put(&key(*i), &body(*i, LEN)) {
        Ok(()) => false,
        Err(Error::Full { .. }) => true,
        Err(error) => panic!("{error}"),
    });
    full.unwrap()
}

fn assert_all_there(store: &Store, count: u64) {
    for i in 0..count {
        assert!(read(store, &key(i)).is_some_and(|bytes| bytes == body(i, LEN)), "{i} of {count}");
    }
}

#[test]
fn a_file_grows_with_what_is_in_it_and_takes_as_much_more() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let store = Store::open(on_file(&path, 8 * MIB)).unwrap();
    let before = fill(&store, 0);
    store.close().unwrap();
    let mut all = before;
    for capacity in [16 * MIB, 64 * MIB] {
        let store = Store::open(on_file(&path, capacity)).unwrap();
        assert_eq!(store.stats().capacity, capacity);
        assert_all_there(&store, all);
        all = fill(&store, all);
        store.close().unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), capacity);
    }
    assert!(all > 7 * before, "{all} of {before}");
    // It stays as it is: asked for or not, and for reading, too.
    for capacity in [0, 64 * MIB] {
        for is_read_only in [false, true] {
            let store = Store::open(on_file(&path, capacity).with(|options| options.read_only = is_read_only)).unwrap();
            assert_eq!(store.stats().capacity, 64 * MIB);
            assert_all_there(&store, all);
            let report = store.check(|_, _| {});
            assert!(report.intact == report.entries && report.entries >= all, "{report:?}");
            store.close().unwrap();
        }
    }
    let Inspection::Store(about) = inspect(&path).unwrap() else { panic!("no store") };
    assert_eq!((about.capacity, about.made_with), (64 * MIB, 8 * MIB));
}

#[test]
fn what_may_not_be_is_refused_by_name_and_changes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let small = |capacity| on_file(&path, capacity).memory(256 << 10).with(|options| options.cluster = 16 << 10);
    Store::open(small(16 * MIB)).unwrap().close().unwrap();
    Store::open(small(32 * MIB)).unwrap().close().unwrap();
    let before = fs::read(&path).unwrap();
    for (options, name, part) in [
        (on_file(&path, 129 * MIB), "capacity", "8 times the 16777216"),
        (on_file(&path, 64 * MIB).with(|options| options.read_only = true), "capacity", "opened for writing"),
        (small(128 * MIB), "memory", "for its tables alone"),
    ] {
        let error = Store::open(options).map(kill).unwrap_err();
        assert!(matches!(error, Error::Option { name: found, .. } if found == name), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert!(fs::read(&path).unwrap() == before, "{error}");
    }
    let mut options = on_file(&path, 64 * MIB);
    let Ok(Inspection::Store(about)) = inspect(&path) else { panic!("no store") };
    options.check(std::slice::from_ref(&about)).unwrap();
    options.capacity = 129 * MIB;
    assert!(options.check(&[about]).is_err());
}

#[test]
fn a_store_at_work_grows_while_threads_put_and_get() {
    for (mode, name) in [(Mode::Store, "picaflor"), (Mode::Cache, "picaflor"), (Mode::Cache, "damelo")] {
        let folder = tempfile::tempdir().unwrap();
        let paths = [folder.path().join("a"), folder.path().join("b")];
        let options = |capacity| {
            let places = paths.iter().cloned().map(Place::Path).collect();
            let options = Options::new(&paths[0]).as_preset(name).unwrap().mode(mode).memory(16 * MIB);
            options.capacity(capacity).with(|options| (options.places, options.cluster) = (places, 64 << 10))
        };
        let store = Store::open(options(16 * MIB)).unwrap();
        let (growing, begun) = (AtomicBool::new(true), AtomicU64::new(0));
        let put: Vec<u64> = std::thread::scope(|scope| {
            let work = |thread: u64| {
                let (store, growing, begun) = (&store, &growing, &begun);
                let put_all = move || {
                    let own = |n: u64| 4 * n + thread;
                    let mut n = 0;
                    while growing.load(Relaxed) || n < 700 {
                        // A store that is full takes more when it has grown.
                        match store.put(&key(own(n)), &body(own(n), LEN)) {
                            Ok(()) => n += 1,
                            Err(Error::Full { .. }) if growing.load(Relaxed) => std::thread::yield_now(),
                            Err(Error::Full { .. }) => break,
                            Err(error) => panic!("{error}"),
                        }
                        let asked = own(n / 2);
                        let found = read(store, &key(asked));
                        assert!(
                            found.map_or(mode == Mode::Cache || n == 0, |bytes| bytes == body(asked, LEN)),
                            "{asked}"
                        );
                        begun.fetch_max(n, Relaxed);
                    }
                    n
                };
                scope.spawn(put_all)
            };
            let threads: Vec<_> = (0..4).map(work).collect();
            for capacity in [32 * MIB, 48 * MIB, 128 * MIB] {
                let before = begun.load(Relaxed);
                while begun.load(Relaxed) < before + 100 {
                    std::thread::yield_now();
                }
                store.grow(capacity).unwrap();
                assert_eq!(store.stats().capacity, capacity);
            }
            growing.store(false, Relaxed);
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let most: u64 = put.iter().sum();
        assert!(most > 2000, "{most}, {name} {mode:?}");
        let clusters: u32 = store.stats().volumes.iter().map(|volume| volume.clusters).sum();
        assert!(u64::from(clusters) * (64 << 10) > 120 * MIB, "{clusters}");
        // What left a small cache.
        let evicted = store.stats().counts.evicted;
        assert!(evicted < if mode == Mode::Store { 1 } else { most / 2 }, "{evicted} of {most}");
        store.close().unwrap();
        assert!(paths.iter().all(|path| fs::metadata(path).unwrap().len() == 64 * MIB));
        let store = Store::open(options(0)).unwrap();
        let there = (0..4).flat_map(|thread| (0..put[thread as usize]).map(move |n| 4 * n + thread));
        let found = there.filter(|i| read(&store, &key(*i)).is_some_and(|bytes| bytes == body(*i, LEN))).count() as u64;
        assert!(found + evicted >= most, "{found} of {most} without {evicted}, {name} {mode:?}");
        let report = store.check(|_, _| {});
        assert!(report.damaged.is_empty() && report.intact == report.entries, "{report:?}");
    }
}

#[test]
fn what_a_store_at_work_may_not_be_given_is_refused_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let options = || on_file(&path, 0).memory(256 << 10).with(|options| options.cluster = 16 << 10);
    let store = Store::open(options().capacity(16 * MIB)).unwrap();
    let refused = |store: &Store, capacity: u64, name: &str, part: &str| {
        let error = store.grow(capacity).unwrap_err();
        assert!(matches!(error, Error::Option { name: found, .. } if found == name), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        assert_eq!((store.stats().capacity, fs::metadata(&path).unwrap().len()), (16 * MIB, 16 * MIB));
    };
    refused(&store, 129 * MIB, "capacity", "8 times the 16777216");
    refused(&store, 128 * MIB, "memory", "for its tables alone");
    refused(&store, 8 * MIB, "capacity", "where it is opened with fewer");
    // As many as it has.
    for same in [0, 16 * MIB, 16 * MIB + 1] {
        store.grow(same).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().len(), 16 * MIB);
    }
    let used = store.stats().index_bytes;
    store.grow(32 * MIB).unwrap();
    let more = store.stats().index_bytes - used;
    assert!((1024 * 8..1024 * 64).contains(&more), "{more} bytes for 1024 clusters");
    store.close().unwrap();
    let store = Store::open(options()).unwrap();
    let (opened, closed) = (store.stats().index_bytes, store.clone());
    assert!(opened == used + more, "{opened} bytes, {used} and {more} before");
    closed.close().unwrap();
    assert!(matches!(store.grow(64 * MIB), Err(Error::Closed)));
    let store = Store::open(options().with(|options| options.read_only = true)).unwrap();
    assert!(store.grow(64 * MIB).unwrap_err().to_string().contains("opened for writing"));
    // A device of one size gives all that it has.
    let store = Store::open(by_hand(Arc::new(MemoryDevice::new(24 * MIB))).capacity(16 * MIB)).unwrap();
    store.grow(64 * MIB).unwrap();
    assert_eq!(store.stats().capacity, 24 * MIB);
}

#[test]
fn all_of_several_devices_grow_and_one_without_room_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("a"), folder.path().join("b")];
    let options = |capacity| {
        let places = paths.iter().cloned().map(Place::Path).collect();
        on_file(&paths[0], capacity).with(|options| options.places = places)
    };
    let store = Store::open(options(32 * MIB)).unwrap();
    let before = fill(&store, 0);
    store.close().unwrap();
    let store = Store::open(options(96 * MIB)).unwrap();
    let all = fill(&store, before);
    assert!(all > 5 * before / 2, "{all} of {before}");
    store.close().unwrap();
    assert_all_there(&Store::open(options(0)).unwrap(), all);
    assert!(paths.iter().all(|path| fs::metadata(path).unwrap().len() == 48 * MIB));
}

pub(crate) fn with_crash(device: &Arc<FaultyDevice>, capacity: u64, crash: Option<u64>) -> Option<Store> {
    if let Some(nth) = crash {
        device.add(Rule::nth(Fault::Crash(On::Any), nth));
    }
    let options = by_hand(device.clone()).mode(Mode::Store).durability(Durability::EveryPut).capacity(capacity);
    Store::open(options).ok()
}

#[test]
fn a_crash_at_any_moment_of_it_costs_nothing() {
    let mut grew = [0, 0];
    for nth in 1..80 {
        // At an opening, and at work.
        let (nth, at_work) = (nth / 2, nth % 2);
        let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(64 * MIB)), nth));
        let store = with_crash(&device, 16 * MIB, None).unwrap();
        (0..300).for_each(|i| store.put(&key(i), &body(i, LEN)).unwrap());
        kill(store);
        let mut all = 300;
        let grown = match at_work {
            0 => with_crash(&device, 64 * MIB, Some(nth)),
            _ => with_crash(&device, 0, None).and_then(|store| {
                device.add(Rule::nth(Fault::Crash(On::Any), nth));
                store.grow(64 * MIB).map(|()| store).ok()
            }),
        };
        if let Some(store) = grown {
            all += (300..1500).take_while(|i| store.put(&key(*i), &body(*i, LEN)).is_ok()).count() as u64;
            kill(store);
        }
        device.clear_rules();
        if !device.is_crashed() {
            device.crash().unwrap();
        }
        device.revive().unwrap();
        let store = with_crash(&device, 0, None).unwrap();
        let capacity = store.stats().capacity;
        assert!(capacity == 64 * MIB || capacity == 16 * MIB && all == 300, "{nth}: {capacity}, {all}");
        grew[at_work as usize] += u64::from(capacity == 64 * MIB);
        assert_all_there(&store, all);
    }
    assert!(grew.iter().all(|grew| (1..39).contains(grew)), "{grew:?}");
}

#[test]
fn how_large_it_is_stands_in_both_superblocks_before_it_is_used() {
    for (now, lost, at_work) in [
        (64 * MIB, 0, false),
        (64 * MIB, 1, false),
        (64 * MIB, 0, true),
        (64 * MIB, 1, true),
        (12 * MIB, 0, false),
        (12 * MIB, 1, false),
    ] {
        let device = Arc::new(MemoryDevice::new(64 * MIB));
        let open = |capacity| Store::open(by_hand(device.clone()).mode(Mode::Store).capacity(capacity)).unwrap();
        let store = open(16 * MIB);
        (0..300).for_each(|i| store.put(&key(i), &body(i, LEN)).unwrap());
        store.close().unwrap();
        let store = open(if at_work { 0 } else { now });
        if at_work {
            store.grow(now).unwrap();
        }
        kill(store);
        let mut bytes = AlignedBuf::zeroed(BLOCK);
        device.read(Map::superblock(lost), &mut bytes).unwrap();
        assert_eq!(Superblock::decode(&bytes).unwrap().capacity, now);
        device.write(Map::superblock(lost), &AlignedBuf::zeroed(BLOCK)).unwrap();
        let store = open(0);
        assert_eq!(store.stats().capacity, now);
        assert_all_there(&store, 300);
    }
}

#[test]
fn each_row_of_the_ring_grows() {
    for name in ["picaflor", "hummingbird", "damelo"] {
        let device = Arc::new(MemoryDevice::new(64 * MIB));
        let open = |capacity| {
            let options = by_hand(device.clone()).as_preset(name).unwrap().capacity(capacity);
            Store::open(options).unwrap()
        };
        let store = open(16 * MIB);
        (0..300).for_each(|i| store.put(&key(i), &body(i, LEN)).unwrap());
        store.close().unwrap();
        let store = open(64 * MIB);
        (300..2000).for_each(|i| store.put(&key(i), &body(i, LEN)).unwrap());
        store.close().unwrap();
        let store = open(0);
        assert_all_there(&store, 2000);
    }
}
