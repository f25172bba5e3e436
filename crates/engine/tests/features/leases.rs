//! A handle on an object larger than a cluster keeps its bytes, whatever becomes of the object meanwhile.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::Duration,
};

use picaflor::{
    Error, Expiry, Mode, Object, Options, Place, Store,
    device::{Clock, MemoryDevice},
};

use tempfile::{TempDir, tempdir};

use crate::common::{MIB, body, by_hand, key, plain, read};

const LEN: usize = 900_000;

/// The folder is for those that keep files.
fn options(preset: &str, mode: Mode, folder: &TempDir) -> Options {
    let options = by_hand(Arc::new(MemoryDevice::new(32 * MIB)))
        .rows(picaflor_literature::ROWS)
        .as_preset(preset)
        .unwrap()
        .mode(mode);
    options.capacity(32 * MIB).with(|options| {
        (options.cluster, options.clock) = (64 << 10, Clock::virtual_at(1_000_000_000_000));
        if options.wants_folder() {
            options.places = vec![Place::Path(folder.path().into())];
        }
    })
}

fn is_whole(object: &Object) -> bool {
    object.body().unwrap() == body(7, LEN)
}

fn settle(store: &Store) {
    while store.step().unwrap() {}
}

#[test]
fn a_handle_keeps_a_large_object_however_often_the_cache_goes_round() {
    for preset in ["picaflor", "hummingbird"] {
        for replaces in [true, false] {
            let folder = tempdir().unwrap();
            let store = Store::open(options(preset, Mode::Cache, &folder)).unwrap();
            store.put(b"page", &body(7, LEN)).unwrap();
            let handle = store.get(b"page").unwrap().unwrap();
            if replaces {
                store.put(b"page", &body(8, LEN)).unwrap();
            }
            // Ten times the device, and its share for leases is four such objects.
            for i in 0..10_000 {
                store.put(&key(i), &body(i, 32_000)).unwrap();
            }
            assert!(is_whole(&handle), "{preset}, replaces: {replaces}");
        }
    }
}

#[test]
fn a_handle_keeps_a_large_object_that_is_replaced_or_deleted() {
    for preset in picaflor_literature::presets() {
        for mode in [Mode::Store, Mode::Cache] {
            for deletes in [true, false] {
                let folder = tempdir().unwrap();
                let store = Store::open(options(preset, mode, &folder)).unwrap();
                store.put(b"page", &body(7, LEN)).unwrap();
                let handle = store.get(b"page").unwrap().unwrap();
                let mut pieces = store.get_range(b"page", 100..LEN as u64).unwrap().unwrap();
                let first = pieces.next().unwrap().unwrap();
                if deletes {
                    assert!(store.delete(b"page").unwrap());
                } else {
                    store.put(b"page", &body(8, LEN)).unwrap();
                }
                settle(&store);
                for _ in 0..2 {
                    assert!(is_whole(&handle), "{preset} {mode:?}, deletes: {deletes}");
                }
                let rest: Vec<u8> = pieces.flat_map(|piece| piece.unwrap().to_vec()).collect();
                assert!([&first[..], &rest].concat() == body(7, LEN)[100..], "{preset} {mode:?}");
                assert_eq!(read(&store, b"page"), (!deletes).then(|| body(8, LEN)));
                drop(handle);
                settle(&store);
                if deletes {
                    assert_eq!(store.stats().objects, 0, "{preset} {mode:?}: its chunks went with the last handle");
                }
            }
        }
    }
}

#[test]
fn a_handle_keeps_a_large_object_that_is_evicted() {
    for preset in picaflor_literature::presets() {
        let folder = tempdir().unwrap();
        let store = Store::open(options(preset, Mode::Cache, &folder)).unwrap();
        if store.stats().volumes.is_empty() {
            continue;
        }
        store.put(b"page", &body(7, LEN)).unwrap();
        let handle = store.get(b"page").unwrap().unwrap();
        for i in 0..3500 {
            match store.put(&key(i), &body(i, 12_000)) {
                // What is a store whatever the mode says.
                Err(Error::Full { .. }) => break,
                put => put.unwrap(),
            }
            store.step().unwrap();
        }
        assert!(is_whole(&handle), "{preset}");
    }
}

/// Its pieces are evicted again and again, and moved each time; they take no more room for that.
#[test]
fn a_handle_outlasts_many_rounds_over_the_device() {
    for preset in ["picaflor", "hummingbird", "damelo", "stream"] {
        for replaces in [true, false] {
            let store = Store::open(options(preset, Mode::Cache, &tempdir().unwrap())).unwrap();
            store.put(b"page", &body(7, LEN)).unwrap();
            let handle = store.get(b"page").unwrap().unwrap();
            if replaces {
                store.put(b"page", &body(8, LEN)).unwrap();
            }
            for i in 0..4000 {
                store.put(&key(i), &body(i % 8, 60_000)).unwrap();
                store.step().unwrap();
            }
            assert!(is_whole(&handle), "{preset}, replaces: {replaces}");
        }
    }
}

#[test]
fn a_large_object_that_expires_while_it_is_read_is_read_to_its_end() {
    for mode in [Mode::Store, Mode::Cache] {
        let options = options("picaflor", mode, &tempdir().unwrap());
        let clock = options.clock.clone();
        let store = Store::open(options).unwrap();
        let put = plain().expiry(Expiry::After(Duration::from_secs(10)));
        store.put_with(b"page", &body(7, LEN), &put).unwrap();
        let handle = store.get(b"page").unwrap().unwrap();
        clock.advance(Duration::from_secs(20));
        assert!(is_whole(&handle));
        assert!(store.get(b"page").unwrap().is_none());
    }
}

#[test]
fn handles_keep_an_eighth_of_the_device_at_most() {
    let store = Store::open(options("picaflor", Mode::Store, &tempdir().unwrap())).unwrap();
    let handles: Vec<_> = (0..12)
        .map(|i| {
            store.put(&key(i), &body(7, LEN)).unwrap();
            let handle = store.get(&key(i)).unwrap().unwrap();
            assert!(store.delete(&key(i)).unwrap());
            handle
        })
        .collect();
    let held = handles.iter().filter(|handle| handle.body().is_ok()).count();
    assert!((3..=4).contains(&held), "{held} handles of {LEN} bytes each are good, of 32 MiB");
    assert!(handles.iter().filter_map(|handle| handle.body().ok()).all(|bytes| bytes == body(7, LEN)));
    drop(handles);
    settle(&store);
    assert_eq!(store.stats().objects, 0);
    // What they kept is there for others again.
    let put = |i| store.put(&key(i), &body(i, LEN));
    assert!((0..24).all(|i| put(i).is_ok()));
}

#[test]
fn handles_taken_while_others_replace_and_delete_are_good() {
    for mode in [Mode::Store, Mode::Cache] {
        let options =
            options("picaflor", mode, &tempdir().unwrap()).with(|options| options.daemons = picaflor::Daemons::Threads);
        let store = Store::open(options).unwrap();
        let bodies: Vec<Vec<u8>> = (0..4).map(|i| body(i, 300_000)).collect();
        let done = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let (store, bodies, done) = (&store, &bodies, &done);
            scope.spawn(move || {
                for i in 0..400 {
                    match i % 5 {
                        4 => drop(store.delete(b"page").unwrap()),
                        i => store.put(b"page", &bodies[i]).unwrap(),
                    }
                }
                done.store(true, Relaxed);
            });
            for _ in 0..2 {
                scope.spawn(move || {
                    let mut read = 0;
                    while !done.load(Relaxed) {
                        let Some(handle) = store.get(b"page").unwrap() else { continue };
                        let found = handle.body().unwrap_or_else(|error| panic!("{mode:?}: {error}"));
                        assert!(bodies.iter().any(|body| found == body), "{mode:?}");
                        read += 1;
                    }
                    assert!(read > 0);
                });
            }
        });
    }
}
