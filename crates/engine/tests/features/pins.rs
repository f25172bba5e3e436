//! Pinned records are there after any crash once they are acknowledged, whatever is put, evicted and checkpointed, and
//! nothing of a store that never had any changes.

use std::{collections::BTreeMap, sync::Arc};

use picaflor::{
    Error, Mode, Options, Place, Store,
    device::{Device, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, Rule, kill};
use rand::Rng;

use crate::common::{MIB, body, by_hand, key, rng};

type Pins = BTreeMap<u128, Vec<u8>>;

fn faulty(count: u64) -> Vec<Arc<FaultyDevice>> {
    (0..count).map(|i| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(12 * MIB)), i))).collect()
}

fn on(devices: &[Arc<FaultyDevice>], preset: &str) -> Options {
    let places = devices.iter().map(|device| Place::Device(device.clone() as Arc<dyn Device>)).collect();
    let options = by_hand(Arc::new(MemoryDevice::new(0))).rows(picaflor_literature::ROWS);
    options.as_preset(preset).unwrap().with(|options| options.places = places)
}

fn pins(store: &Store) -> Pins {
    store.pinned().into_iter().map(|(name, bytes)| (name, bytes.to_vec())).collect()
}

fn crash(store: Store, devices: &[Arc<FaultyDevice>]) {
    FaultyDevice::crash_all(devices).unwrap();
    kill(store);
    devices.iter().for_each(|device| device.revive().unwrap());
}

#[test]
fn what_was_acknowledged_is_there_after_every_crash() {
    for (preset, volumes) in [("picaflor", 1), ("picaflor", 2), ("hummingbird", 1), ("damelo", 1)] {
        let devices = faulty(volumes);
        let (mut rng, mut expected, mut puts) = (rng(3), Pins::new(), 0);
        let mut openings = 0;
        for round in 0..12 {
            let store = Store::open(on(&devices, preset)).unwrap();
            assert_eq!(pins(&store), expected, "{preset}, round {round}");
            assert!(store.opening() > openings);
            openings = store.opening();
            for _ in 0..60 {
                let name = u128::from(rng.random_range(0..20u32)) << 64;
                if rng.random_range(0..3) == 0 {
                    store.unpin(name).unwrap();
                    expected.remove(&name);
                } else {
                    let bytes = body(rng.random(), rng.random_range(1..2000));
                    store.pin(name, &bytes).unwrap();
                    expected.insert(name, bytes);
                }
                // Many times what the device has, so that all of it is evicted, and checkpoints take turns.
                for _ in 0..40 {
                    let _ = store.put(&key(puts), &body(puts, 3000));
                    puts += 1;
                }
                store.step().unwrap();
            }
            if round % 4 == 3 {
                store.close().unwrap_or_else(|e| panic!("{preset}, {volumes}, round {round}: {e}"));
            } else {
                crash(store, &devices);
            }
        }
    }
}

#[test]
fn all_of_them_fit_into_a_cluster() {
    let devices = faulty(1);
    let store = Store::open(on(&devices, "picaflor")).unwrap();
    assert!(matches!(store.pin(1, b""), Err(Error::Limit { len: 0, max: 4096, .. })));
    assert!(matches!(store.pin(1, &[0; 4097]), Err(Error::Limit { len: 4097, .. })));
    let fitted = (0..100).take_while(|i| store.pin(*i, &[7; 4096]).is_ok()).count();
    assert_eq!(fitted, (64 << 10) / (4096 + 32));
    assert!(matches!(store.pin(99, &[7; 4096]), Err(Error::Limit { what: "all pinned records", .. })));
    store.pin(0, &[8; 4096]).unwrap();
    store.unpin(1).unwrap();
    store.pin(99, &[9; 4096]).unwrap();
    let expected = pins(&store);
    store.close().unwrap();
    let store = Store::open(on(&devices, "picaflor")).unwrap();
    assert_eq!(pins(&store), expected);
    assert_eq!(expected.len(), fitted);
    store.close().unwrap();
    let store = Store::open(on(&devices, "picaflor").read_only(true)).unwrap();
    assert_eq!(pins(&store), expected);
    assert!(matches!(store.pin(3, b"x"), Err(Error::Refused(_))));
}

#[test]
fn the_map_of_clusters_has_what_is_alive() {
    let devices = faulty(1);
    let store = Store::open(on(&devices, "picaflor")).unwrap();
    let live = |store: &Store| {
        let maps = store.cluster_maps();
        assert_eq!(
            (maps.len(), maps[0].cluster, maps[0].live.len() as u32),
            (1, 64 << 10, store.stats().volumes[0].clusters)
        );
        maps[0].live.iter().map(|live| u64::from(*live)).sum::<u64>()
    };
    assert_eq!(live(&store), 0);
    (0..100).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
    store.close().unwrap();
    let store = Store::open(on(&devices, "picaflor")).unwrap();
    assert_eq!(live(&store), store.stats().volumes[0].live_bytes);
    assert!(live(&store) > 300_000);
    assert!(Store::open(on(&faulty(1), "stream")).unwrap().cluster_maps().is_empty());
}

#[test]
fn a_preset_without_clusters_says_that_it_has_none() {
    for preset in ["buddy-scan", "stream", "oba"] {
        let store = Store::open(on(&faulty(1), preset)).unwrap();
        assert!(!store.has_pins());
        assert!(matches!(store.pin(3, b"x"), Err(Error::Option { name: "preset", .. })), "{preset}");
        assert!(store.pinned().is_empty());
    }
}

/// A cache that cannot be trusted any more starts empty, and what is pinned goes over. An opening that is cut short
/// there leaves it to the next.
#[test]
fn an_opening_that_is_cut_short_while_it_empties_a_cache_loses_no_pin() {
    let (mut cut_short, mut emptied) = (0, 0);
    for sync in 1..8 {
        let device = faulty(1);
        let options = on(&device, "picaflor").mode(Mode::Cache);
        let store = Store::open(options.clone()).unwrap();
        store.pin(1, b"in the image").unwrap();
        store.checkpoint().unwrap();
        store.pin(2, b"in the log").unwrap();
        store.put(&key(1), &body(1, 3000)).unwrap();
        store.flush().unwrap();
        let own = store.locate(&key(1)).unwrap().unwrap()[0].offset;
        crash(store, &device);
        // What was written last cannot be looked at: nothing older is to be trusted.
        device[0].add(Rule::since(Fault::ReadError, 1).within(own / 4096 * 4096..own + 1));
        device[0].add(Rule::nth(Fault::SyncError, sync));
        if Store::open(options.clone()).is_err() {
            cut_short += 1;
            device[0].clear_rules();
        }
        let store = Store::open(options).unwrap();
        emptied += u32::from(store.get(&key(1)).unwrap().is_none());
        assert_eq!(pins(&store).len(), 2, "sync {sync}");
    }
    assert!(cut_short > 3 && emptied > 3, "{cut_short} {emptied}");
}
