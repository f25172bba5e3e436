//! Many threads on every row, on a device so small that room has to be made: no version that was replaced or deleted is
//! found, in this life and after a close.

use std::{
    thread,
    time::{Duration, Instant},
};

use futures_executor::block_on;
use picaflor::{Error, Mode, Options, Refusal, Store};
use rand::{Rng, SeedableRng, rngs::SmallRng};

use crate::common::{MIB, body, plain};

const THREADS: u64 = 6;
/// Keys of each thread; only it puts and deletes them, all read them.
const KEYS: u64 = 120;
/// How long they are at one row.
const TIME: Duration = Duration::from_millis(400);

fn key(owner: u64, i: u64) -> Vec<u8> {
    format!("http://host{owner}.example/page/{i}").into_bytes()
}

/// The body tells its version, and its length and bytes follow from that and from whose it is.
fn body_of(owner: u64, i: u64, version: u64) -> Vec<u8> {
    let seed = owner << 40 | i << 24 | version;
    let len = if seed.is_multiple_of(61) { 150_000 } else { (seed.wrapping_mul(0x9e37_79b9) >> 7) as usize % 9000 };
    [&version.to_le_bytes(), &body(seed, len)[..]].concat()
}

fn version_of(owner: u64, i: u64, bytes: &[u8]) -> u64 {
    let version = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes == body_of(owner, i, version), "another object's bytes, or torn ones: {owner} {i}");
    version
}

/// Its owner finds the last version, or nothing: in a store only if it deleted it.
fn check(store: &Store, mode: Mode, (owner, i): (u64, u64), version: u64) {
    let found = store.get(&key(owner, i)).unwrap().and_then(|object| object.body().ok());
    match found.map(|bytes| version_of(owner, i, &bytes)) {
        Some(found) => assert_eq!(found, version, "key {i} of {owner}: an old version"),
        None => assert!(mode == Mode::Cache || version == 0, "key {i} of {owner}: version {version} is lost"),
    }
}

/// Returns the version of each key, 0 if deleted.
fn write(store: &Store, mode: Mode, owner: u64) -> Vec<u64> {
    let (began, mut rng) = (Instant::now(), SmallRng::seed_from_u64(owner));
    let mut versions = vec![0; KEYS as usize];
    let mut next = 1;
    while began.elapsed() < TIME {
        let i = rng.random_range(0..KEYS);
        let version = &mut versions[i as usize];
        match rng.random_range(0..100) {
            0..50 => {
                // So many name one that others wait for theirs.
                let neighbour = (i % 4 != 0).then(|| key(owner, i / 8 * 8).into());
                let server = owner as u32 % 3;
                let options = plain().server(server).group(server / 2).bypass_memory(i % 5 == 0);
                let (key, body, options) = (key(owner, i), body_of(owner, i, next), options.maybe_neighbour(neighbour));
                let put = match i % 2 {
                    0 => store.put_with(&key, &body, &options),
                    _ => block_on(store.put_with_async(&key, &body, &options)),
                };
                match put {
                    Ok(()) => *version = next,
                    Err(Error::Full { .. }) => {}
                    // The last where these threads are ahead of the one that lets objects leave.
                    Err(Error::Refused(Refusal::NoCleanSpace | Refusal::Busy | Refusal::IndexFull)) => {}
                    Err(error) => panic!("{error}"),
                }
                next += 1;
            }
            50..65 => {
                match i % 2 {
                    0 => store.delete(&key(owner, i)).unwrap(),
                    _ => block_on(store.delete_async(&key(owner, i))).unwrap(),
                };
                *version = 0;
            }
            65..85 => check(store, mode, (owner, i), *version),
            _ => {
                let other = rng.random_range(0..THREADS);
                if let Some(bytes) = store.get(&key(other, i)).unwrap().and_then(|object| object.body().ok()) {
                    version_of(other, i, &bytes);
                }
            }
        }
    }
    versions
}

fn hammer(options: &Options, mode: Mode) {
    let store = Store::open(options.clone()).unwrap();
    let versions: Vec<_> = thread::scope(|scope| {
        let store = &store;
        let writers: Vec<_> = (0..THREADS).map(|owner| scope.spawn(move || write(store, mode, owner))).collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).collect()
    });
    store.close().unwrap();
    let store = Store::open(options.clone()).unwrap();
    let report = store.check(|_, _| {});
    assert!(report.is_clean(), "{report:?}");
    for (owner, versions) in versions.iter().enumerate() {
        versions.iter().zip(0..).for_each(|(version, i)| check(&store, mode, (owner as u64, i), *version));
    }
}

#[test]
fn no_row_finds_what_was_replaced_or_deleted_under_many_threads() {
    for preset in picaflor_literature::presets() {
        for mode in [Mode::Cache, Mode::Store] {
            println!("{preset}, {mode:?}");
            let folder = tempfile::tempdir().unwrap();
            let capacity = if mode == Mode::Store { 48 * MIB } else { 8 * MIB };
            let options = picaflor_literature::preset(preset).unwrap().place(folder.path().join("store"));
            let options = options.capacity(capacity).memory(4 * MIB).mode(mode);
            let options = options.with(|options| {
                options.cluster = 64 << 10;
                // Where reads wait for others.
                options.read_batch_time = Duration::from_millis(2);
            });
            hammer(&options, mode);
        }
    }
}
