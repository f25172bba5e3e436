//! Several devices as one: what lives where, in which order they may be given, and one of them failing.

use std::{collections::HashSet, sync::Arc};

use futures_executor::block_on;
use picaflor::{
    Durability, Error, Mode, Options, Place, PutOptions, Spread, Store,
    device::{AlignedBuf, CountedDevice, Device, MemoryDevice},
};
use picaflor_format::{
    BLOCK,
    superblock::{self, Superblock},
    zone::Map,
};
use picaflor_sim::{Fault, FaultyDevice, On, Rule, kill};

use crate::common::{MIB, body, by_hand, bypass, in_group, key, read};

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
fn every_device_has_its_share_and_a_site_stays_together_where_that_is_asked_for() {
    for spread in [Spread::Key, Spread::Origin] {
        let store = Store::open(places(&devices(3)).with(|options| options.spread = spread)).unwrap();
        let mut most_of_a_site = 0;
        let mut before = in_use(&store);
        for site in 0..30 {
            let put = PutOptions::new().group(1 + site).bypass_memory(true);
            for i in 0..50 {
                store.put_with(format!("http://site-{site}/{i}").as_bytes(), &body(i, 3000), &put).unwrap();
            }
            store.step().unwrap();
            let now = in_use(&store);
            let grown = (0..3).filter(|i| now[*i] > before[*i]).count();
            most_of_a_site = most_of_a_site.max(grown);
            before = now;
        }
        assert_eq!(most_of_a_site, if spread == Spread::Key { 3 } else { 1 }, "{spread:?}");
        assert!(before.iter().all(|bytes| *bytes > MIB), "{spread:?}: {before:?}");
    }
}

#[test]
fn how_objects_are_spread_is_kept_whatever_an_opening_says() {
    let devices = devices(2);
    let options = |spread| places(&devices).with(|options| options.spread = spread);
    let store = Store::open(options(Spread::Origin)).unwrap();
    let keys: Vec<_> = (0..400).map(|i| format!("http://site-{}/{i}", i % 20)).collect();
    keys.iter().for_each(|key| store.put(key.as_bytes(), key.as_bytes()).unwrap());
    store.close().unwrap();
    let store = Store::open(options(Spread::Key)).unwrap();
    for key in &keys {
        assert_eq!(read(&store, key.as_bytes()).unwrap(), key.as_bytes());
        store.put(key.as_bytes(), b"another").unwrap();
    }
    store.close().unwrap();
    let store = Store::open(options(Spread::Origin)).unwrap();
    keys.iter().for_each(|key| assert_eq!(read(&store, key.as_bytes()).unwrap(), b"another"));
}

#[test]
fn a_store_that_was_killed_while_it_was_made_is_made_again_if_the_next_opening_loses_its_power() {
    for (nth, mark) in (1..12).flat_map(|nth| (0..16u64).map(move |mark| (nth, mark))) {
        let device = |i: u64| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(8 * MIB)), 4 * mark + i));
        let devices: Vec<_> = (0..3).map(device).collect();
        // The last superblock was written and not synced, and the process ends.
        devices[2].add(Rule::nth(Fault::SyncError, 1));
        assert!(Store::open(places(&devices)).is_err());
        devices[2].clear_rules();
        devices[0].add(Rule::nth(Fault::Crash(On::Any), nth));
        drop(Store::open(places(&devices)).map(kill));
        for device in &devices {
            device.clear_rules();
            if !device.is_crashed() {
                device.crash().unwrap();
            }
            device.revive().unwrap();
        }
        let opened = Store::open(places(&devices));
        assert!(opened.is_ok(), "{nth}, {mark}: {:?}", opened.err());
    }
}

#[test]
fn what_a_cache_lost_with_a_device_stays_away_though_a_superblock_of_the_other_cannot_be_read() {
    let device = |i| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), i));
    let devices: Vec<_> = (0..2).map(device).collect();
    let open = || Store::open(places(&devices).with(|o| o.daemons = picaflor::Daemons::Manual)).unwrap();
    let store = open();
    let keys: Vec<_> = (0..40).map(|i| format!("key {i}")).collect();
    keys.iter().for_each(|key| store.put(key.as_bytes(), b"old").unwrap());
    store.flush().unwrap();
    devices[0].add(Rule::nth(Fault::SyncError, 1));
    keys.iter().for_each(|key| drop(store.put(key.as_bytes(), b"new")));
    assert!(store.flush().is_err());
    keys.iter().for_each(|key| drop(store.delete(key.as_bytes())));
    let _ = store.flush();
    kill(store);
    devices.iter().for_each(|device| device.clear_rules());
    let mut bytes = AlignedBuf::zeroed(BLOCK);
    let mut seq = |slot| {
        devices[1].read(Map::superblock(slot), &mut bytes).unwrap();
        Superblock::decode(&bytes).map_or(0, |block| block.seq)
    };
    let newest = u64::from(seq(1) > seq(0));
    devices[1].write(Map::superblock(newest), &AlignedBuf::zeroed(BLOCK)).unwrap();
    let store = open();
    let shown: Vec<_> = keys.iter().filter(|key| store.get(key.as_bytes()).unwrap().is_some()).collect();
    assert!(shown.is_empty(), "{shown:?} were deleted");
}

#[test]
fn a_store_whose_objects_lie_on_any_of_its_devices_is_refused_by_name() {
    let devices = devices(2);
    Store::open(places(&devices)).unwrap().close().unwrap();
    for device in &devices {
        for slot in 0..2 {
            let mut bytes = AlignedBuf::zeroed(BLOCK);
            device.read(Map::superblock(slot), &mut bytes).unwrap();
            let made = Superblock { spread: superblock::Spread::None, ..Superblock::decode(&bytes).unwrap() };
            made.encode(&mut bytes);
            device.write(Map::superblock(slot), &bytes).unwrap();
        }
    }
    let why = Store::open(places(&devices)).unwrap_err().to_string();
    assert!(why.contains("of an earlier version") && why.contains("copy what is to stay"), "{why}");
}

#[test]
fn places_may_come_in_any_order_but_all_of_them() {
    let devices = devices(3);
    for mode in [Mode::Cache, Mode::Store] {
        let devices: Vec<_> =
            devices.iter().map(|_| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 0))).collect();
        let store = Store::open(places(&devices).mode(mode)).unwrap();
        for i in 0..900 {
            store.put_with(&key(i), &body(i, 2000), &in_group(i as u32 % 7)).unwrap();
        }
        store.put(b"large", &body(1, 900_000)).unwrap();
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
        store.put(&key(i), &body(i, 1_000_000)).unwrap();
    }
    // Compaction and scrubbing take a chunk without its manifest on the same volume for an orphan.
    for i in 100..6000 {
        match store.put(&key(i), &body(i, 5000)) {
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
    kill(store);
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
        store.put_with(&key(i), &body(i, 2000), &bypass()).unwrap();
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

#[test]
fn after_a_crash_reading_only_finds_what_opening_for_writing_finds() {
    for mode in [Mode::Store, Mode::Cache] {
        let devices = devices(3);
        let options = || places(&devices).mode(mode).durability(Durability::EveryPut).with(|o| o.delete_count = 1);
        let store = Store::open(options()).unwrap();
        // Groups, neighbours and lengths change from version to version; the last of each key counts.
        for version in 0..4 {
            for i in 0..200 {
                let mut put = in_group((i as u32 + version) % 5);
                put.neighbour = Some(key(i + u64::from(version)).into());
                let len = if i % 40 == 0 { 300_000 } else { 1000 + 100 * version as usize };
                store.put_with(&key(i), &body(i + 1000 * u64::from(version), len), &put).unwrap();
            }
            (0..200).filter(|i| i % 7 == u64::from(version)).for_each(|i| assert!(store.delete(&key(i)).unwrap()));
        }
        FaultyDevice::crash_all(&devices).unwrap();
        kill(store);
        devices.iter().for_each(|device| device.revive().unwrap());
        for read_only in [true, false] {
            let store = Store::open(options().with(|options| options.read_only = read_only)).unwrap();
            for i in 0..200 {
                let len = if i % 40 == 0 { 300_000 } else { 1300 };
                let expected = (i % 7 != 3).then(|| body(i + 3000, len));
                assert!(read(&store, &key(i)) == expected, "{mode:?}, read only: {read_only}, {i}");
            }
            let listed: HashSet<_> = store.keys().map(|entry| entry.key).collect();
            assert_eq!(listed.len(), (0..200).filter(|i| i % 7 != 3).count());
        }
    }
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
        store.put_with(&key(i), &body(i, 2000), &bypass()).unwrap();
    }
    assert!(store.flush().is_err(), "a caller that asked for durability is told");
    assert!(store.stats().volumes[0].failed.is_some() && store.stats().volumes[1].failed.is_none());
    for (i, first) in first.iter().enumerate() {
        assert_eq!(store.get(&key(i as u64)).unwrap().is_none(), *first, "{i}");
    }
    let mut put = Vec::new();
    for (i, first) in first.iter().enumerate() {
        let i = i as u64;
        put.push(store.put(&key(i), &body(i + 1, 3000)).is_ok());
        // Those in open buffers of the first device were not missed when it could not be read.
        assert!(!put[i as usize] || !first, "{i}: its home is lost");
        assert!(store.delete(&key(600 + i)).is_ok());
    }
    assert!((100..500).contains(&put.iter().filter(|put| **put).count()));
    store.flush().unwrap();
    while store.step().unwrap() {}
    devices[0].clear_rules();
    for (i, put) in put.into_iter().enumerate() {
        let i = i as u64;
        let found = read(&store, &key(i));
        // What memory has is still the version of before.
        let expected = if put { body(i + 1, 3000) } else { body(i, 2000) };
        assert!(found.as_ref().map_or(!put, |found| *found == expected), "{i}: {put}");
        assert!(read(&store, &key(600 + i)).is_none());
    }
    assert!(store.close().is_err());
}

#[test]
fn a_flush_of_a_store_makes_durable_what_healthy_devices_have() {
    let devices = devices(2);
    let options = || places(&devices).mode(Mode::Store);
    let store = Store::open(options()).unwrap();
    store.put(b"first", b"x").unwrap();
    store.flush().unwrap();
    devices[0].add(Rule::rate(Fault::WriteError, 1.0));
    let mut taken = Vec::new();
    for i in 0..300 {
        taken.extend(store.put(&key(i), &body(i, 2000)).is_ok().then_some(i));
    }
    assert!(store.flush().is_err() && store.step().is_err(), "a caller that asked for durability is told");
    let failed: Vec<_> = store.stats().volumes.iter().map(|volume| volume.failed.is_some()).collect();
    assert_eq!(failed, [true, false]);
    // The power fails.
    for device in &devices {
        device.crash().unwrap();
    }
    kill(store);
    for device in &devices {
        device.clear_rules();
        device.revive().unwrap();
    }
    let store = Store::open(options()).unwrap();
    let found = taken.iter().filter(|i| read(&store, &key(**i)).is_some()).count();
    assert!(found > taken.len() / 3, "{found} of {} are there", taken.len());
}

#[test]
fn a_cache_whose_devices_all_failed_does_not_say_that_anything_is_durable() {
    let devices = devices(2);
    let (store, _) = filled(&devices, Mode::Cache);
    for (lost, device) in devices.iter().enumerate() {
        device.add(Rule::rate(Fault::WriteError, 1.0));
        (0..100).for_each(|i| drop(store.put(&key(i), &body(i + 1, 3000))));
        assert!(store.flush().is_err(), "device {lost} fails in this flush");
        let again = store.flush().is_err();
        assert_eq!(again, lost == 1, "as long as one device is left it says that the other is lost");
        assert_eq!((store.step().is_err(), block_on(store.flush_async()).is_err()), (again, again), "{lost}");
    }
}

#[test]
fn a_device_that_failed_and_is_back_brings_no_old_version() {
    let devices = devices(2);
    let (store, first) = filled(&devices, Mode::Cache);
    devices[0].add(Rule::rate(Fault::WriteError, 1.0));
    (5000..5020).for_each(|i| store.put(&key(i), &body(i, 100)).unwrap());
    assert!(store.flush().is_err());
    for i in 0..300 {
        store.delete(&key(i)).unwrap();
        store.put(&key(300 + i), &body(i, 1000)).ok();
        // Not the versions on the lost device either.
        store.delete(&key(300 + i)).unwrap();
    }
    store.flush().unwrap();
    // As `kill -9` leaves it.
    kill(store);
    devices[0].clear_rules();
    let store = Store::open(places(&devices).mode(Mode::Cache)).unwrap();
    let receipt = store.receipt().to_string();
    assert!(receipt.contains("failed while the others went on"), "{receipt}");
    for i in 0..600 {
        assert!(read(&store, &key(i)).is_none(), "{i} is back; on the lost device: {}", first[i as usize]);
    }
    (0..20).for_each(|i| store.put(&key(i), b"body").unwrap());
    store.close().unwrap();
    let store = Store::open(places(&devices).mode(Mode::Cache)).unwrap();
    assert!(!store.receipt().to_string().contains("failed"), "it is forgiven once it is empty");
    (0..20).for_each(|i| assert_eq!(read(&store, &key(i)).unwrap(), b"body"));
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
        store.put_with(&key(i), &body(i, 2000), &bypass()).unwrap();
    }
    assert!(store.flush().is_err());
    for (i, first) in first.iter().enumerate() {
        let i = i as u64;
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 2000), "still read");
        let put = store.put(&key(i), &body(i, 2100));
        // Those in open buffers of the first volume were not missed when it could not be read.
        assert!(put.is_err() || !first, "{i}: not to be replaced while nobody can write that it was");
    }
    let refused = (2000..2100).filter(|i| store.put(&key(*i), &body(*i, 2000)).is_err()).count();
    assert!((20..80).contains(&refused), "{refused}: half of the keys have their home there");
}
