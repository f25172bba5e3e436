//! The log never overwrites what a recovery needs: it is relieved by checkpoints, or it refuses by name.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    thread,
};

use picaflor::{
    Daemons, Durability, Error, Mode, Options, Place, Refusal, Store,
    device::{Device, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, Rule, kill};

use crate::common::{MIB, body, by_hand, key, read};

fn faulty(count: u64, bytes: u64) -> Vec<Arc<FaultyDevice>> {
    (0..count).map(|i| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(bytes)), i))).collect()
}

fn on(devices: &[Arc<FaultyDevice>]) -> Options {
    let places = devices.iter().map(|device| Place::Device(device.clone() as Arc<dyn Device>)).collect();
    by_hand(Arc::new(MemoryDevice::new(0))).with(|options| options.places = places)
}

fn assert_log_fits(store: &Store) {
    for volume in store.stats().volumes {
        let (pages, ring) = volume.journal_pages;
        assert!(pages <= ring, "{}: {pages} of {ring} pages", volume.place);
    }
}

#[test]
fn a_device_goes_on_for_longer_than_its_log_when_another_one_fails() {
    let devices = faulty(2, 16 * MIB);
    let options = || on(&devices).mode(Mode::Store).durability(Durability::EveryPut).with(|o| o.delete_count = 1);
    let store = Store::open(options()).unwrap();
    devices[1].add(Rule::nth(Fault::SyncError, 20));
    let mut taken = Vec::new();
    for i in 0..6000 {
        if store.put(&key(i), &body(i, 100)).is_ok() {
            taken.push(i);
        }
        if let Some(old) = taken.len().checked_sub(100).filter(|_| i % 3 > 0) {
            assert!(store.delete(&key(taken[old])).is_ok_and(|found| found) || store.failures().len() == 1);
        }
        assert_log_fits(&store);
    }
    assert!((2000..5000).contains(&taken.len()) && store.failures().len() == 1, "{} puts", taken.len());
    let there: Vec<_> = taken.iter().filter(|i| store.contains(&key(**i)).unwrap()).copied().collect();
    FaultyDevice::crash_all(&devices).unwrap();
    kill(store);
    devices.iter().for_each(|device| device.revive().unwrap());
    let store = Store::open(options()).unwrap();
    assert!(there.len() > 100);
    there.iter().for_each(|i| assert_eq!(read(&store, &key(*i)).unwrap(), body(*i, 100)));
}

#[test]
fn a_log_is_never_longer_than_its_ring_however_many_threads_fill_it() {
    let devices = faulty(2, 9 * MIB);
    let options = |daemons| {
        let options = on(&devices).rows(picaflor_literature::ROWS).as_preset("stream-pack").unwrap().mode(Mode::Cache);
        options.memory(24 * MIB).with(|options| (options.daemons, options.delete_count) = (daemons, 100_000))
    };
    let store = Store::open(options(Daemons::Threads)).unwrap();
    let refused = AtomicU64::new(0);
    thread::scope(|scope| {
        for thread in 0..8 {
            let (store, refused) = (&store, &refused);
            scope.spawn(move || {
                for i in 0..10_000 {
                    let done = match i % 3 {
                        0 => store.delete(&key(thread * 100_000 + i / 2)).map(drop),
                        _ => store.put(&key(thread * 100_000 + i), &body(i, 600)),
                    };
                    match done {
                        Ok(()) => {}
                        Err(Error::JournalFull { .. }) => drop(refused.fetch_add(1, Relaxed)),
                        // As a cache of so few clusters may.
                        Err(Error::Refused(Refusal::IndexFull | Refusal::NoCleanSpace)) => {}
                        Err(error) => panic!("{error}"),
                    }
                    assert_log_fits(store);
                }
            });
        }
    });
    let refused = refused.into_inner();
    assert!(refused < 800, "{refused} of 80000 were refused for the log's sake");
    assert!(store.failures().is_empty(), "{:?}", store.failures());
    store.flush().unwrap();
    FaultyDevice::crash_all(&devices).unwrap();
    let objects = store.stats().objects;
    kill(store);
    devices.iter().for_each(|device| device.revive().unwrap());
    // By hand: no reclaimer lets any leave before they are counted.
    let store = Store::open(options(Daemons::Manual)).unwrap();
    assert!(!store.receipt().to_string().contains("empty"), "{}", store.receipt());
    // A crash brings back what left a moment before.
    let found = store.stats().objects;
    assert!(found.abs_diff(objects) < objects / 10, "{found} of {objects}");
}

#[test]
fn what_no_checkpoint_relieves_is_refused_by_name_until_one_does() {
    let device = faulty(1, 16 * MIB);
    let options = || on(&device).mode(Mode::Store).durability(Durability::EveryPut).with(|o| o.delete_count = 1);
    let store = Store::open(options()).unwrap();
    // Clusters are what checkpoints are written to; the log and the superblocks are before them.
    let mut rounds = 0;
    let mut kept = Vec::new();
    let full = loop {
        let i = rounds;
        rounds += 1;
        match store.put(&key(i), &body(i, 50_000)) {
            Ok(()) => kept.push(i),
            Err(Error::Full { .. }) => break true,
            Err(error) => panic!("{error}"),
        }
    };
    assert!(full && !kept.is_empty());
    // A store that is full still takes deletes, and their log is relieved.
    let mut deleted = 0;
    for round in 0..3000_u64 {
        if round % 100 == 0 && kept.len() > 20 {
            assert!(store.delete(&key(kept.pop().unwrap())).unwrap());
            deleted += 1;
        } else {
            assert!(!store.delete(b"never put").unwrap());
        }
        assert_log_fits(&store);
    }
    assert!(deleted > 10);
    device[0].crash().unwrap();
    kill(store);
    device[0].revive().unwrap();
    let store = Store::open(options()).unwrap();
    kept.iter().for_each(|i| assert_eq!(read(&store, &key(*i)).unwrap(), body(*i, 50_000)));
    assert_eq!(store.keys().count(), kept.len());
}

/// A file with holes on a full disk: the device fails a checkpoint's write, and all later ones might fail as well.
#[test]
fn a_device_without_blocks_for_a_checkpoint_fails_by_name_and_opens_again() {
    let device = faulty(1, 16 * MIB);
    let store = Store::open(on(&device).mode(Mode::Store)).unwrap();
    (0..400).for_each(|i| store.put(&key(i), &body(i, 500)).unwrap());
    store.flush().unwrap();
    device[0].add(Rule::since(Fault::NoSpace, 1).within(MIB..16 * MIB));
    let refused = (0..400).find_map(|i| {
        let done = store.delete(&key(i)).and_then(|_| store.flush_deletes());
        done.and_then(|()| store.step().map(drop)).err()
    });
    assert!(refused.is_some_and(|error| error.to_string().contains("no space")));
    assert_eq!(store.failures().len(), 1);
    device[0].crash().unwrap();
    std::mem::forget(store);
    device[0].clear_rules();
    device[0].revive().unwrap();
    let store = Store::open(on(&device).mode(Mode::Store)).unwrap();
    for i in 0..2000 {
        store.put(&key(i), &body(i, 500)).unwrap();
        store.flush().unwrap();
    }
    assert_log_fits(&store);
}
