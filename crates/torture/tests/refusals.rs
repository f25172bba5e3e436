//! Stores that cannot be opened as asked, or cannot be written: a clear word, and never a wrong byte.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on must stop")]

use std::{fs, os::unix::fs::FileExt, path::Path, sync::Arc};

use picaflor::{
    Daemons, Error, Mode, Options, Refusal, Store,
    device::{Device, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, Rule};
use picaflor_torture::{Dice, bytes_of};

const OBJECTS: u64 = 400;

fn options(path: &Path, mode: Mode) -> Options {
    let mut options = Options::new(path).capacity(8 << 20).memory(2 << 20).mode(mode);
    options.cluster = 64 << 10;
    options
}

fn key(id: u64) -> Vec<u8> {
    format!("http://example.org/{id}").into_bytes()
}

fn make(path: &Path, mode: Mode) {
    let store = Store::open(options(path, mode)).unwrap();
    for id in 0..OBJECTS {
        store.put(&key(id), &bytes_of(id, 3000 + id as usize)).unwrap();
    }
    store.close().unwrap();
}

/// Everything found is right; returns how much was found.
fn look(store: &Store) -> u64 {
    let mut found = 0;
    for id in 0..OBJECTS {
        if let Ok(Some(object)) = store.get(&key(id)) {
            assert!(object.body().unwrap()[..] == bytes_of(id, 3000 + id as usize)[..], "object {id}");
            found += 1;
        }
    }
    found
}

fn refused(path: &Path, mode: Mode) -> Error {
    match Store::open(options(path, mode)) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

#[test]
fn another_version_is_named() {
    let folder = tempfile::tempdir().unwrap();
    for mode in [Mode::Store, Mode::Cache] {
        let path = folder.path().join(format!("{mode:?}"));
        make(&path, mode);
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        for superblock in [0, 4096] {
            file.write_all_at(&7u32.to_le_bytes(), superblock + 8).unwrap();
        }
        let error = refused(&path, mode);
        assert!(matches!(error, Error::Version { found: 7, .. }), "{error}");
        assert!(error.to_string().contains("version 7"), "{error}");
    }
}

#[test]
fn a_truncated_file_is_refused_and_good_again_when_restored() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    make(&path, Mode::Store);
    let whole = fs::read(&path).unwrap();
    for len in [whole.len() - 4096, whole.len() / 2, 300_000, 100] {
        fs::write(&path, &whole[..len]).unwrap();
        let error = refused(&path, Mode::Store);
        assert!(!matches!(error, Error::Refused(_)), "{len}: {error}");
    }
    fs::write(&path, &whole).unwrap();
    assert_eq!(look(&Store::open(options(&path, Mode::Store)).unwrap()), OBJECTS);
}

#[test]
fn a_read_only_file_is_read_and_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    make(&path, Mode::Store);
    let before = fs::read(&path).unwrap();
    let mut permissions = fs::metadata(&path).unwrap().permissions();
    permissions.set_readonly(true);
    fs::set_permissions(&path, permissions).unwrap();
    let store = Store::open(options(&path, Mode::Store).with(|options| options.read_only = true)).unwrap();
    assert_eq!(look(&store), OBJECTS);
    let put = store.put(b"new", b"x");
    assert!(matches!(put, Err(Error::Refused(Refusal::ReadOnly))), "{put:?}");
    assert!(matches!(store.delete(&key(1)), Err(Error::Refused(Refusal::ReadOnly))));
    store.close().unwrap();
    assert!(fs::read(&path).unwrap() == before, "not a byte was written");
}

/// Flips bits in one zone, many times over; each time the store opens and is right, or says why not.
fn damage(mode: Mode, zone: std::ops::Range<u64>, rounds: u64) -> (u64, u64) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    make(&path, mode);
    let whole = fs::read(&path).unwrap();
    let (mut opened, mut least) = (0, OBJECTS);
    for round in 0..rounds {
        let mut dice = Dice::new(round, zone.start);
        let mut bytes = whole.clone();
        for _ in 0..dice.scaled(1, 200) {
            bytes[(zone.start + dice.below(zone.end - zone.start)) as usize] ^= 1 << dice.below(8);
        }
        fs::write(&path, &bytes).unwrap();
        match Store::open(options(&path, mode).with(|options| options.daemons = Daemons::Manual)) {
            Ok(store) => {
                opened += 1;
                least = least.min(look(&store));
            }
            Err(Error::Damaged { .. } | Error::Version { .. }) => {}
            Err(other) => panic!("{mode:?} {zone:?} round {round}: {other}"),
        }
    }
    (opened, least)
}

#[test]
fn damage_in_any_zone_is_a_miss_or_a_clear_refusal() {
    for mode in [Mode::Store, Mode::Cache] {
        // One superblock, both, hot logs, journal, clusters with their checkpoints.
        let (opened, least) = damage(mode, 0..4096, 8);
        assert!(opened > 0 && least == OBJECTS, "the other superblock serves: {opened} {least}");
        damage(mode, 0..8192, 8);
        let (opened, least) = damage(mode, 65_536..196_608, 8);
        assert!(opened == 8 && least == OBJECTS, "the hot log costs warmth only: {opened} {least}");
        damage(mode, 196_608..458_752, 8);
        damage(mode, 458_752..8 << 20, 20);
    }
}

/// The disk under the file is full, as a limit on the size of files says it.
#[test]
fn a_full_disk_is_an_error_with_a_place() {
    const CHILD: &str = "PICAFLOR_FULL_DISK";
    if let Ok(path) = std::env::var(CHILD) {
        let limit = rustix::process::Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) };
        rustix::process::setrlimit(rustix::process::Resource::Fsize, limit).unwrap();
        let error = refused(Path::new(&path), Mode::Store);
        assert!(matches!(error, Error::Io { .. }), "{error}");
        assert!(error.to_string().contains(&path), "{error}");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("sh")
        // A program that ignores the signal for it gets an error instead.
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$@\""])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "a_full_disk_is_an_error_with_a_place", "--test-threads=1"])
        .env(CHILD, folder.path().join("store"))
        .status()
        .unwrap();
    assert!(status.success());
}

/// The device runs out of space in the middle: what is there stays, and is right.
#[test]
fn a_device_that_fills_up_keeps_what_it_has() {
    for mode in [Mode::Store, Mode::Cache] {
        let faulty = FaultyDevice::new(Arc::new(MemoryDevice::new(8 << 20)), 3);
        let mut options = Options::on(Arc::new(faulty.clone()) as Arc<dyn Device>).memory(2 << 20).mode(mode);
        (options.cluster, options.daemons) = (64 << 10, Daemons::Manual);
        let store = Store::open(options.clone()).unwrap();
        for id in 0..100 {
            store.put(&key(id), &bytes_of(id, 3000 + id as usize)).unwrap();
        }
        store.flush().unwrap();
        faulty.add(Rule::rate(Fault::NoSpace, 1.0));
        for id in 100..OBJECTS {
            if store.put(&key(id), &bytes_of(id, 3000 + id as usize)).is_err() {
                break;
            }
        }
        assert!(store.flush().is_err());
        assert!(look(&store) >= 100, "{mode:?}");
        drop(store);
        faulty.clear_rules();
        assert!(look(&Store::open(options).unwrap()) >= 100, "{mode:?}");
    }
}
