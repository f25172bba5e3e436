//! A store that is given fewer bytes than it has.

use std::{fs, sync::Arc};

use picaflor::{
    Error, Inspection, Mode, Options, Place, Store,
    device::{Device, MemoryDevice},
    inspect,
};
use picaflor_sim::{FaultyDevice, kill};

use crate::{
    common::{MIB, body, by_hand, key, read},
    growth::{LEN, with_crash},
};

fn on_files(paths: &[std::path::PathBuf], capacity: u64) -> Options {
    let options = by_hand(Arc::new(MemoryDevice::new(0))).mode(Mode::Store).capacity(capacity);
    options.with(|options| options.places = paths.iter().cloned().map(Place::Path).collect())
}

fn assert_all_there(store: &Store, numbers: impl Iterator<Item = u64>) {
    for i in numbers {
        assert!(read(store, &key(i)).is_some_and(|bytes| bytes == body(i, LEN)), "{i}");
    }
}

#[test]
fn files_shrink_with_all_that_is_in_them_and_grow_again() {
    let folder = tempfile::tempdir().unwrap();
    for count in 1..=2 {
        let paths: Vec<_> = (0..count).map(|i| folder.path().join(format!("{count} {i}"))).collect();
        let store = Store::open(on_files(&paths, 128 * MIB)).unwrap();
        let all: u64 = (0..).take_while(|i| store.put(&key(*i), &body(*i, LEN)).is_ok()).map(|_| 1).sum();
        // Most goes again, here and there, and a large object stays.
        (0..all).filter(|i| i % 3 > 0).for_each(|i| assert!(store.delete(&key(i)).unwrap()));
        store.put(b"large", &body(7, 3 << 20)).unwrap();
        store.close().unwrap();
        for capacity in [64 * MIB, 56 * MIB, 56 * MIB, 128 * MIB] {
            let store = Store::open(on_files(&paths, capacity)).unwrap();
            assert_eq!(store.stats().capacity, capacity);
            assert_all_there(&store, (0..all).filter(|i| i % 3 == 0));
            assert!((0..all).filter(|i| i % 3 > 0).all(|i| read(&store, &key(i)).is_none()));
            assert!(read(&store, b"large").is_some_and(|bytes| bytes == body(7, 3 << 20)));
            let report = store.check(|_, _| {});
            assert!(report.intact == report.entries && report.entries > all / 3, "{report:?}");
            store.close().unwrap();
            assert!(paths.iter().all(|path| fs::metadata(path).unwrap().len() == capacity / count));
        }
        let Inspection::Store(about) = inspect(&paths[0]).unwrap() else { panic!("no store") };
        assert_eq!((about.capacity, about.made_with), (128 * MIB / count, 128 * MIB / count));
    }
}

#[test]
fn a_store_that_holds_more_than_would_fit_is_refused_and_keeps_all() {
    let folder = tempfile::tempdir().unwrap();
    let paths = [folder.path().join("store")];
    let store = Store::open(on_files(&paths, 64 * MIB)).unwrap();
    (0..2000).for_each(|i| store.put(&key(i), &body(i, LEN)).unwrap());
    store.close().unwrap();
    for (options, name, part) in [
        (on_files(&paths, 40 * MIB), "capacity", "would fit: delete some, or give more"),
        (on_files(&paths, MIB), "capacity", "too few"),
        (on_files(&paths, 60 * MIB).with(|options| options.read_only = true), "capacity", "opened for writing"),
    ] {
        let error = Store::open(options).map(kill).unwrap_err();
        assert!(matches!(error, Error::Option { name: found, .. } if found == name), "{error}");
        assert!(error.to_string().contains(part), "{error}");
        let store = Store::open(on_files(&paths, 0)).unwrap();
        assert_eq!(store.stats().capacity, 64 * MIB);
        assert_all_there(&store, 0..2000);
        store.close().unwrap();
    }
}

#[test]
fn caches_keep_what_was_asked_for_in_each_row_of_the_ring() {
    for name in ["picaflor", "hummingbird", "damelo"] {
        let device = Arc::new(MemoryDevice::new(64 * MIB));
        let open = |capacity| {
            let options = by_hand(device.clone()).as_preset(name).unwrap().capacity(capacity);
            Store::open(options).unwrap()
        };
        let store = open(0);
        (0..6000).for_each(|i| store.put(&key(i), &body(i, LEN)).unwrap());
        let is_used = |i: &u64| i.is_multiple_of(10);
        let used: Vec<_> = (0..6000).filter(is_used).filter(|i| read(&store, &key(*i)).is_some()).collect();
        store.close().unwrap();
        let store = open(32 * MIB);
        assert_eq!(store.stats().capacity, 32 * MIB);
        let there = (0..6000).filter(|i| read(&store, &key(*i)).is_some_and(|bytes| bytes == body(*i, LEN)));
        let there: Vec<_> = there.collect();
        assert!(there.len() > 700, "{name}: {}", there.len());
        let kept = there.iter().filter(|i| used.contains(i)).count();
        // Clusters leave as they are in the others.
        let least = if name == "picaflor" { used.len() * 9 / 10 } else { used.len() / 4 };
        assert!(kept >= least, "{name}: {kept} of {}", used.len());
        (6000..8000).for_each(|i| store.put(&key(i), &body(i, LEN)).unwrap());
        store.close().unwrap();
        // What lay beyond is no part of it.
        let beyond = 32 * MIB;
        device.write(beyond, &vec![0xa5; (64 * MIB - beyond) as usize]).unwrap();
        let store = open(0);
        let is_right = |i| read(&store, &key(i)).map(|bytes| bytes == body(i, LEN));
        assert!(
            (0..8000).all(|i| is_right(i) != Some(false)) && (7900..8000).all(|i| is_right(i) == Some(true)),
            "{name}"
        );
    }
}

#[test]
fn a_crash_at_any_moment_of_it_costs_nothing() {
    let mut shrunk = 0;
    let mut tries = 0;
    for nth in (1..20).chain((20..3000).step_by(67)) {
        let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(64 * MIB)), nth));
        let store = with_crash(&device, 64 * MIB, None).unwrap();
        (0..900).for_each(|i| store.put(&key(i), &body(i, LEN)).unwrap());
        (0..900).filter(|i| i % 2 > 0).for_each(|i| assert!(store.delete(&key(i)).unwrap()));
        store.flush_deletes().unwrap();
        kill(store);
        let left = with_crash(&device, 24 * MIB, Some(nth)).map(|store| {
            let before = store.receipt().before.as_ref().map(|before| before.volumes[0].clean);
            assert_eq!(
                (store.receipt().volumes[0].clean, before),
                (true, Some(false)),
                "it was recovered, and then closed"
            );
            kill(store);
        });
        device.clear_rules();
        let crashed = device.is_crashed();
        if !crashed {
            device.crash().unwrap();
        }
        device.revive().unwrap();
        let store = with_crash(&device, 0, None).unwrap();
        let capacity = store.stats().capacity;
        assert!(capacity == 24 * MIB || capacity == 64 * MIB && left.is_none(), "{nth}: {capacity}");
        shrunk += u64::from(capacity == 24 * MIB);
        tries += 1;
        assert_all_there(&store, (0..900).filter(|i| i % 2 == 0));
        assert!((0..900).filter(|i| i % 2 > 0).all(|i| read(&store, &key(i)).is_none()), "{nth}: none comes back");
        if !crashed {
            break;
        }
    }
    assert!(shrunk > 0 && shrunk < tries, "{shrunk} of {tries}");
}
