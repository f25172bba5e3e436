//! Several devices as one: who lives where, in which order they may be given, and one of them failing.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use picaflor::{
    Durability, Error, Mode, Options, Place, PutOptions, Store,
    device::{CountedDevice, Device, Fault, FaultyDevice, MemoryDevice, Rule},
};

use crate::common::{MIB, body, by_hand, bypass, in_group, key, plain, read};

fn devices(count: u64) -> Vec<Arc<FaultyDevice>> {
    (0..count).map(|i| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), i))).collect()
}

fn places(devices: &[Arc<FaultyDevice>]) -> Options {
    let places = devices.iter().map(|device| Place::Device(device.clone() as Arc<dyn Device>)).collect();
    by_hand(Arc::new(MemoryDevice::new(0))).with(|options| options.places = places)
}

/// Volumes that hold objects, by live bytes on them.
fn in_use(store: &Store) -> Vec<u64> {
    store.stats().volumes.iter().map(|volume| volume.live_bytes).collect()
}

#[test]
fn a_group_lives_on_one_device_and_the_rest_is_spread() {
    let devices = devices(3);
    let store = Store::open(places(&devices)).unwrap();
    let mut homes = HashSet::new();
    for group in 1..=12 {
        let before = in_use(&store);
        for i in 0..100 {
            let put = PutOptions { group, bypass_memory: true, ..PutOptions::default() };
            store.put(&key(u64::from(group) * 1000 + i), &body(i, 3000), &put).unwrap();
        }
        store.step().unwrap();
        let grown: Vec<usize> = (0..3).filter(|i| in_use(&store)[*i] > before[*i]).collect();
        assert!(grown.len() <= 1, "group {group} is on {grown:?}");
        homes.extend(grown);
    }
    assert_eq!(homes.len(), 3, "groups are spread");
    let before = in_use(&store);
    for i in 0..1500 {
        store.put(&key(100_000 + i), &body(i, 3000), &bypass()).unwrap();
    }
    store.step().unwrap();
    let grown: Vec<u64> = in_use(&store).iter().zip(before).map(|(now, before)| now - before).collect();
    assert!(grown.iter().all(|bytes| *bytes > MIB), "{grown:?}");
}

#[test]
fn places_may_come_in_any_order_but_all_of_them() {
    let devices = devices(3);
    for mode in [Mode::Cache, Mode::Store] {
        let devices: Vec<_> =
            devices.iter().map(|_| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 0))).collect();
        let store = Store::open(places(&devices).mode(mode)).unwrap();
        for i in 0..900 {
            store.put(&key(i), &body(i, 2000), &in_group(i as u32 % 7)).unwrap();
        }
        store.put(b"large", &body(1, 900_000), &plain()).unwrap();
        store.close().unwrap();
        let [a, b, c] = &devices[..] else { unreachable!() };
        for order in [[c, a, b], [b, c, a], [c, b, a]] {
            let order: Vec<_> = order.into_iter().cloned().collect();
            let store = Store::open(places(&order).mode(mode)).unwrap();
            for i in 0..900 {
                assert_eq!(read(&store, &key(i)).unwrap(), body(i, 2000));
            }
            assert_eq!(read(&store, b"large").unwrap(), body(1, 900_000));
            store.close().unwrap();
        }
        let why = Store::open(places(&devices[..2]).mode(mode)).unwrap_err().to_string();
        assert!(why.contains("places") && why.contains("one of 3 places, 2 were given"), "{why}");
        let blank = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 9));
        let why = Store::open(places(&[a.clone(), b.clone(), blank]).mode(mode)).unwrap_err().to_string();
        assert!(why.contains("is empty") && why.contains("give all of its 3 places"), "{why}");
    }
}

#[test]
fn the_pieces_of_a_large_object_stay_on_its_device() {
    let devices = devices(3);
    let store = Store::open(places(&devices).mode(Mode::Store)).unwrap();
    for i in 0..12 {
        store.put(&key(i), &body(i, 1_000_000), &plain()).unwrap();
    }
    // Compaction and scrubbing take a chunk without its manifest on the same volume for an orphan.
    for i in 100..6000 {
        match store.put(&key(i), &body(i, 5000), &plain()) {
            Ok(()) => {}
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
        if i % 2 == 0 {
            store.delete(&key(i)).unwrap();
        }
    }
    let check = |store: &Store| {
        for i in 0..12 {
            assert_eq!(read(store, &key(i)).unwrap(), body(i, 1_000_000));
        }
    };
    check(&store);
    store.flush().unwrap();
    std::mem::forget(store);
    let store = Store::open(places(&devices).mode(Mode::Store)).unwrap();
    while store.step().unwrap() {}
    check(&store);
    assert_eq!(store.check(|_, _| ()).orphans, 0);
    for i in 0..12 {
        assert!(store.delete(&key(i)).unwrap());
    }
    let left = store.keys().count() as u64;
    assert_eq!(store.stats().objects, left, "all chunks left with their objects");
}

/// A store of two devices with 600 objects, and which of them are on the first.
fn filled(devices: &[Arc<FaultyDevice>], mode: Mode) -> (Store, Vec<bool>) {
    let store = Store::open(places(devices).mode(mode).durability(Durability::None)).unwrap();
    for i in 0..600 {
        store.put(&key(i), &body(i, 2000), &bypass()).unwrap();
    }
    store.flush().unwrap();
    let alone: Vec<bool> = (0..600)
        .map(|i| {
            devices[0].add(Rule::rate(Fault::ReadError, 1.0));
            let missing = !matches!(store.get(&key(i)), Ok(Some(_)));
            devices[0].clear_rules();
            missing
        })
        .collect();
    (store, alone)
}

/// A group that lives on the first device, and one that lives on the second.
fn a_group_on_each(store: &Store) -> [u32; 2] {
    let mut groups = [0; 2];
    for group in 1..=20 {
        let before = in_use(store);
        let put = PutOptions { group, bypass_memory: true, ..PutOptions::default() };
        (0..100).for_each(|i| store.put(&key(u64::from(group) * 1000 + i), &body(i, 3000), &put).unwrap());
        store.step().unwrap();
        groups[usize::from(in_use(store)[1] > before[1])] = group;
    }
    groups
}

/// A version is durable on one device, was deleted, and so was a later one, durable on the other device; the deletes
/// are durable on the other device alone. Then the power fails, after more work of the other device, if wanted.
fn after_deletes_that_one_device_knows(more: impl FnOnce(&Store, &PutOptions)) -> Store {
    let devices = devices(2);
    let options = || places(&devices).mode(Mode::Store).durability(Durability::EveryPut);
    let store = Store::open(options()).unwrap();
    let [here, there] = a_group_on_each(&store).map(|group| PutOptions { group, ..PutOptions::default() });
    store.put(b"page", b"first", &here).unwrap();
    store.delete(b"page").unwrap();
    store.put(b"page", b"second", &there).unwrap();
    store.delete(b"page").unwrap();
    store.put(b"other", b"page", &there).unwrap();
    more(&store, &there);
    for device in &devices {
        device.crash().unwrap();
    }
    drop(store);
    devices.iter().for_each(|device| device.revive().unwrap());
    Store::open(options()).unwrap()
}

#[test]
fn a_delete_that_one_device_knows_of_holds_on_all() {
    let store = after_deletes_that_one_device_knows(|_, _| {});
    assert_eq!(read(&store, b"page"), None);
}

#[test]
fn a_delete_that_one_device_knew_of_holds_on_all_after_it_forgot() {
    let store = after_deletes_that_one_device_knows(|store, there| {
        let checkpoints = || store.stats().counts.checkpoints;
        let before = checkpoints();
        for i in 0..20_000 {
            store.put(&key(i), &body(i, 20_000), there).unwrap();
            store.delete(&key(i)).unwrap();
            store.step().unwrap();
            if checkpoints() > before + 1 {
                return;
            }
        }
        panic!("no checkpoint");
    });
    assert_eq!(read(&store, b"page"), None);
}

#[test]
fn a_device_that_cannot_be_read_costs_its_objects_only() {
    let devices = devices(2);
    let (store, first) = filled(&devices, Mode::Cache);
    let lost = first.iter().filter(|first| **first).count();
    assert!((100..500).contains(&lost), "{lost}");
    assert!(store.stats().misses["read error"] >= lost as u64);
    for i in 0..600 {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 2000), "and they are back with it");
    }
}

#[test]
fn a_cache_goes_on_without_a_device_that_cannot_be_written() {
    let devices = devices(2);
    let (store, first) = filled(&devices, Mode::Cache);
    devices[0].add(Rule::rate(Fault::WriteError, 1.0));
    for i in 600..1200 {
        store.put(&key(i), &body(i, 2000), &bypass()).unwrap();
    }
    assert!(store.flush().is_err(), "who asked for durability is told");
    assert!(store.stats().volumes[0].failed.is_some() && store.stats().volumes[1].failed.is_none());
    for (i, first) in first.iter().enumerate() {
        assert_eq!(store.get(&key(i as u64)).unwrap().is_none(), *first, "{i}");
    }
    for i in 0..600 {
        store.put(&key(i), &body(i + 1, 3000), &plain()).unwrap();
        assert!(store.delete(&key(600 + i)).is_ok());
    }
    store.flush().unwrap();
    while store.step().unwrap() {}
    devices[0].clear_rules();
    for i in 0..600 {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i + 1, 3000), "never the version on the lost device");
        assert!(read(&store, &key(600 + i)).is_none());
    }
    assert!(store.close().is_err());
}

#[test]
fn a_flush_of_a_store_makes_durable_what_healthy_devices_have() {
    let devices = devices(2);
    let options = || places(&devices).mode(Mode::Store);
    let store = Store::open(options()).unwrap();
    store.put(b"first", b"x", &plain()).unwrap();
    store.flush().unwrap();
    devices[0].add(Rule::rate(Fault::WriteError, 1.0));
    let mut taken = Vec::new();
    for i in 0..300 {
        taken.extend(store.put(&key(i), &body(i, 2000), &plain()).is_ok().then_some(i));
    }
    assert!(store.flush().is_err() && store.step().is_err(), "who asked for durability is told");
    let failed: Vec<_> = store.stats().volumes.iter().map(|volume| volume.failed.is_some()).collect();
    assert_eq!(failed, [true, false]);
    // The power fails.
    for device in &devices {
        device.crash().unwrap();
    }
    std::mem::forget(store);
    for device in &devices {
        device.clear_rules();
        device.revive().unwrap();
    }
    let store = Store::open(options()).unwrap();
    let found = taken.iter().filter(|i| read(&store, &key(**i)).is_some()).count();
    assert!(found > taken.len() / 3, "{found} of {} are there", taken.len());
}

#[test]
fn a_device_that_failed_and_is_back_brings_no_old_version() {
    let devices = devices(2);
    let (store, first) = filled(&devices, Mode::Cache);
    devices[0].add(Rule::rate(Fault::WriteError, 1.0));
    (5000..5020).for_each(|i| store.put(&key(i), &body(i, 100), &plain()).unwrap());
    assert!(store.flush().is_err());
    for i in 0..300 {
        store.delete(&key(i)).unwrap();
        store.put(&key(300 + i), &body(i, 1000), &plain()).unwrap();
        // Not the versions on the lost device, which these replaced.
        store.delete(&key(300 + i)).unwrap();
    }
    store.flush().unwrap();
    // As `kill -9` leaves it.
    std::mem::forget(store);
    devices[0].clear_rules();
    let store = Store::open(places(&devices).mode(Mode::Cache)).unwrap();
    let receipt = store.receipt().to_string();
    assert!(receipt.contains("failed while the others went on"), "{receipt}");
    for i in 0..600 {
        assert!(read(&store, &key(i)).is_none(), "{i} is back; on the lost device: {}", first[i as usize]);
    }
    store.put(b"new", b"body", &plain()).unwrap();
    store.close().unwrap();
    let store = Store::open(places(&devices).mode(Mode::Cache)).unwrap();
    assert!(!store.receipt().to_string().contains("failed"), "it is forgiven once it is empty");
    assert_eq!(read(&store, b"new").unwrap(), b"body");
}

#[test]
fn what_was_evicted_on_one_device_does_not_come_up_for_what_is_evicted_on_another() {
    let devices = devices(2);
    let gone = Arc::new(AtomicU32::new(0));
    let left = gone.clone();
    let mut options = places(&devices).mode(Mode::Cache);
    options.eviction_listener = Some(Arc::new(move |key: &[u8], _| {
        left.fetch_add(u32::from(key == b"page"), Relaxed);
    }));
    let store = Store::open(options).unwrap();
    let groups = a_group_on_each(&store);
    let mut next = 100_000;
    let mut evict = |group: u32| {
        let put = PutOptions { group, bypass_memory: true, ..PutOptions::default() };
        store.put(b"page", format!("version in {group}").as_bytes(), &put).unwrap();
        let before = gone.load(Relaxed);
        while gone.load(Relaxed) == before {
            next += 1;
            assert!(next < 200_000, "nothing is evicted");
            store.put(&key(next), &body(next, 20_000), &put).unwrap();
            store.step().unwrap();
        }
    };
    groups.into_iter().for_each(&mut evict);
    // Until no checkpoint of its device knows the second version.
    let put = PutOptions { group: groups[1], bypass_memory: true, ..PutOptions::default() };
    for i in 0..3000 {
        store.put(&key(300_000 + i), &body(i, 20_000), &put).unwrap();
        store.step().unwrap();
    }
    std::mem::forget(store);
    let store = Store::open(places(&devices).mode(Mode::Cache)).unwrap();
    assert_eq!(read(&store, b"page"), None, "replaced by a version that was evicted later");
}

#[test]
fn a_refused_opening_writes_to_no_volume() {
    let devices = devices(2);
    let (store, _) = filled(&devices, Mode::Store);
    store.close().unwrap();
    let counted: Vec<_> = devices.iter().map(|device| Arc::new(CountedDevice::new(device.clone()))).collect();
    // The second volume's journal cannot be read: a store is refused.
    devices[1].add(Rule::rate(Fault::ReadError, 1.0).within(8192..32 * MIB));
    let places = counted.iter().map(|device| Place::Device(device.clone() as Arc<dyn Device>)).collect();
    let options = by_hand(Arc::new(MemoryDevice::new(0))).with(|options| options.places = places).mode(Mode::Store);
    assert!(Store::open(options).is_err());
    assert!(counted.iter().all(|device| device.counts().writes == 0));
}

#[test]
fn a_store_loses_nothing_when_a_device_cannot_be_written() {
    let devices = devices(2);
    let (store, first) = filled(&devices, Mode::Store);
    devices[0].add(Rule::rate(Fault::WriteError, 1.0));
    for i in 600..700 {
        store.put(&key(i), &body(i, 2000), &bypass()).unwrap();
    }
    assert!(store.flush().is_err());
    for (i, first) in first.iter().enumerate() {
        let i = i as u64;
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 2000), "still read");
        let put = store.put(&key(i), &body(i, 2100), &plain());
        // Those in open buffers of the first volume were not missed when it could not be read.
        assert!(put.is_err() || !first, "{i}: not to be replaced while nobody can write that it was");
    }
    for i in 2000..2100 {
        store.put(&key(i), &body(i, 2000), &plain()).unwrap();
    }
}
