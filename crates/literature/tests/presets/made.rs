//! What is fixed when a store is made: asking for something else later is told, not quietly passed over.

use std::{path::Path, sync::Arc};

use picaflor::{
    Error, Inspection, Mode, Options, Store,
    device::{MemoryDevice, Preallocate},
    inspect,
};

use crate::common::{MIB, body, key, read};

/// Why it does not open with these options.
fn refused(options: Options, name: &str) -> String {
    match Store::open(options) {
        Err(Error::Option { name: what, why }) if what == name => why,
        Err(error) => panic!("{error}"),
        Ok(_) => panic!("{name}: it opened"),
    }
}

fn made(path: &Path, mode: Mode, capacity: u64) -> u64 {
    let store = Store::open(Options::new(path).mode(mode).capacity(capacity).memory(8 * MIB)).unwrap();
    store.put(b"key", b"value").unwrap();
    let capacity = store.stats().capacity;
    store.close().unwrap();
    capacity
}

#[test]
fn what_is_refused_is_foreseen_and_leaves_no_file_behind() {
    let (mut refused, mut opened) = (0, 0);
    for preset in picaflor_literature::presets() {
        // Only those that lie in a folder make the folders above it.
        let parent = if ["simple", "squid", "multiple-dirs"].contains(&preset) { "above/it" } else { "" };
        for (capacity, memory) in [
            (100_000, 64 * MIB),
            (2 * MIB, 64 * MIB),
            (6 * MIB, 64 * MIB),
            (24 * MIB, 1000),
            (24 * MIB, MIB),
            (24 * MIB, 4 * MIB),
            (24 * MIB, 64 * MIB),
        ] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join(parent).join("a");
            let options = picaflor_literature::preset(preset).unwrap().place(&path).capacity(capacity).memory(memory);
            let foreseen = options.check(&[]);
            let store = Store::open(options.with(|o| o.preallocate = Preallocate::Reserve));
            let what = format!("{preset}, {capacity} bytes, memory {memory}: {foreseen:?}");
            match (&foreseen, store) {
                (Ok(()), Ok(store)) => {
                    store.close().unwrap();
                    opened += 1;
                }
                (Err(Error::Option { name, .. }), Err(Error::Option { name: said, .. })) => {
                    assert_eq!(*name, said, "{what}");
                    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "{what}");
                    refused += 1;
                }
                (_, outcome) => panic!("{what}; opened: {:?}", outcome.map(|_| ())),
            }
        }
    }
    assert!(refused > 20 && opened > 20, "{refused} {opened}");
}

#[test]
fn what_is_there_is_judged_as_it_was_made_and_stays() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    made(&path, Mode::Store, 32 * MIB);
    let Ok(Inspection::Store(about)) = inspect(&path) else { panic!("a store") };
    let options = || Options::new(&path).memory(8 * MIB).mode(Mode::Store);
    options().check(std::slice::from_ref(&about)).unwrap();
    let before = std::fs::read(&path).unwrap();
    for (options, name) in [
        (options().mode(Mode::Cache), "mode"),
        (options().capacity(257 * MIB), "capacity"),
        (options().memory(MIB), "memory"),
        (options().rows(picaflor_literature::ROWS).as_preset("stream").unwrap(), "preset"),
    ] {
        let why = options.check(std::slice::from_ref(&about)).unwrap_err();
        assert!(matches!(why, Error::Option { name: found, .. } if found == name), "{name}: {why}");
        refused(options, name);
    }
    // A second place that is to be made, beside one that is there.
    let both = options().with(|o| o.places.push(picaflor::Place::Path(folder.path().join("b"))));
    refused(both.capacity(64 * MIB), "places");
    assert!(!folder.path().join("b").exists());
    assert!(std::fs::read(&path).unwrap() == before, "not a byte of it was changed");
}

#[test]
fn a_store_that_cannot_have_the_bytes_that_are_given_is_not_opened() {
    for preset in ["picaflor", "stream", "pmflf-pfl", "squid"] {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        if preset == "squid" {
            std::fs::create_dir(&path).unwrap();
        }
        let options =
            |capacity| picaflor_literature::preset(preset).unwrap().place(&path).capacity(capacity).memory(8 * MIB);
        let store = Store::open(options(32 * MIB)).unwrap();
        store.put(b"key", b"value").unwrap();
        assert_eq!(store.stats().capacity, 32 * MIB, "{preset}");
        store.close().unwrap();
        // What lies in clusters grows, within bounds, and shrinks.
        let others: &[_] = match preset {
            "picaflor" => &[(257 * MIB, "larger")],
            _ => &[(16 * MIB, "smaller"), (64 * MIB, "larger"), (32 * MIB + 4096, "larger")],
        };
        for &(given, other) in others {
            let why = refused(options(given), "capacity");
            assert!(why.contains("33554432 bytes") && why.contains(&format!("{given} are given")), "{preset}: {why}");
            assert!(why.contains("give as many or none") && why.contains(other), "the mend: {why}");
            let Ok(Inspection::Store(about)) = inspect(&path) else { panic!("a store") };
            let judged = options(given).check(&[about]);
            assert!(matches!(&judged, Err(Error::Option { why: said, .. }) if *said == why), "{preset}: {judged:?}");
        }
        // With what it has, and with none: it stays as it was made. Part of a block is rounded down.
        for capacity in [32 * MIB, 0, 32 * MIB + 4095] {
            let store = Store::open(options(capacity)).unwrap();
            assert_eq!((store.stats().capacity, read(&store, b"key").is_some()), (32 * MIB, true), "{preset}");
            store.close().unwrap();
        }
    }
}

#[test]
fn a_device_is_used_as_far_as_the_store_was_made() {
    let device = Arc::new(MemoryDevice::new(32 * MIB));
    let store = Store::open(Options::on(device.clone()).capacity(16 * MIB).memory(8 * MIB)).unwrap();
    store.close().unwrap();
    // All that there is, and no more.
    let whole = Arc::new(MemoryDevice::new(16 * MIB));
    (0..2).for_each(|_| Store::open(Options::on(whole.clone()).capacity(64 * MIB)).unwrap().close().unwrap());
    let store = Store::open(Options::on(device).memory(8 * MIB)).unwrap();
    assert_eq!(store.stats().capacity, 16 * MIB);
    (0..4000).for_each(|i| store.put(&key(i), &body(i, 10_000)).unwrap());
    assert!(store.stats().volumes[0].live_bytes < 16 * MIB);
}

#[test]
fn a_mode_is_kept() {
    for (made_as, opened_as, why) in
        [(Mode::Cache, Mode::Store, "made as a cache"), (Mode::Store, Mode::Cache, "made as a store")]
    {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        made(&path, made_as, 16 * MIB);
        for read_only in [false, true] {
            let options = Options::new(&path).mode(opened_as).with(|options| options.read_only = read_only);
            let told = refused(options, "mode");
            assert!(told.contains(why), "{told}");
        }
        let store = Store::open(Options::new(&path).mode(made_as).memory(8 * MIB)).unwrap();
        assert!(read(&store, b"key").is_some());
        store.close().unwrap();
    }
}

#[test]
fn small_clusters_are_read_off_the_store_that_has_them() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let small = || Options::new(&path).capacity(MIB).memory(8 * MIB).with(|options| options.cluster = 16 << 10);
    let store = Store::open(small()).unwrap();
    store.put(b"key", b"value").unwrap();
    store.close().unwrap();
    for capacity in [0, MIB] {
        let store = Store::open(Options::new(&path).capacity(capacity).memory(8 * MIB)).unwrap();
        assert!(read(&store, b"key").is_some());
        store.close().unwrap();
    }
    // What is to be made is too small, and nothing is made.
    let other = folder.path().join("b");
    let why = refused(Options::new(&other).capacity(MIB), "capacity");
    assert!(why.contains("1048576 bytes are given") && why.contains("are the least for clusters of 262144"), "{why}");
    assert!(!other.exists());
    let why = refused(Options::on(Arc::new(MemoryDevice::new(MIB))), "capacity");
    assert!(why.contains("has 1048576 bytes"), "{why}");
    let why = refused(Options::on(Arc::new(MemoryDevice::new(8 * MIB))).capacity(MIB), "capacity");
    assert!(why.contains("1048576 bytes"), "{why}");
}
