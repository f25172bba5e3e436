//! Rows whose objects are entries of hash tables on disk: `pmflf-ts`, `pmflf-pl`, `pmflf-pfl`, `oba`.

use std::{sync::Arc, time::Duration};

use picaflor::{
    CheckpointInterval, Durability, Error, Expiry, Inspection, Mode, Priority, Store, TryGet,
    device::{AlignedBuf, Clock, CountedDevice, Device, MemoryDevice},
    inspect,
};
use picaflor_sim::{Fault, FaultyDevice, Profile, Rule, SimulatedDisk, SimulatedOptions, kill};

use crate::common::{MIB, body, by_hand, key, memory, plain, read};

const TABLES: [&str; 4] = ["pmflf-ts", "pmflf-pl", "pmflf-pfl", "oba"];

fn len(i: u64) -> usize {
    match i % 40 {
        0 => 0,
        1 => 500_000,
        _ => 100 + (i as usize * 37) % 9000,
    }
}

/// Every third is replaced, every fifth deleted.
fn expected(i: u64) -> Option<Vec<u8>> {
    match i {
        _ if i.is_multiple_of(5) => None,
        _ if i.is_multiple_of(3) => Some(body(i + 1, 777)),
        _ => Some(body(i, len(i))),
    }
}

fn fill(store: &Store, count: u64) {
    for i in 0..count {
        store.put(&key(i), &body(i, len(i))).unwrap();
    }
    for i in (0..count).step_by(3) {
        store.put(&key(i), &body(i + 1, 777)).unwrap();
    }
    for i in (0..count).step_by(5) {
        assert!(store.delete(&key(i)).unwrap(), "{i}");
        assert!(!store.delete(&key(i)).unwrap(), "{i}");
    }
}

fn verify(store: &Store, count: u64, what: &str) {
    for i in 0..count {
        assert_eq!(read(store, &key(i)), expected(i), "{what}: {i}");
        assert_eq!(store.contains(&key(i)).unwrap(), expected(i).is_some(), "{what}: {i}");
    }
}

#[test]
fn what_is_put_is_found_replaced_deleted_and_there_again_after_a_close_and_after_none() {
    for preset in TABLES {
        for block in [512, 4096] {
            let what = format!("{preset} {block}");
            let options = by_hand(preset, memory(48 * MIB, block));
            let store = Store::open(options.clone()).unwrap();
            fill(&store, 600);
            verify(&store, 600, &what);
            let stats = store.stats();
            assert!(stats.memory_used <= stats.memory_limit, "{what} {stats:?}");
            assert!(stats.counts.hits_device > 0 && stats.counts.hits_memory > 0, "{what} {stats:?}");
            store.close().unwrap();
            let store = Store::open(options.clone()).unwrap();
            assert!(store.receipt().volumes[0].clean && !store.receipt().volumes[0].created);
            verify(&store, 600, &what);
            let mut listed: Vec<_> = store.keys().map(|entry| (entry.key.to_vec(), entry.len)).collect();
            listed.sort();
            let there = (0..600).filter_map(|i| Some((key(i), expected(i)?.len() as u64)));
            assert_eq!(listed, there.collect::<Vec<_>>(), "{what}");
            store.put(b"last", &[9; 3000]).unwrap();
            store.delete(&key(7)).unwrap();
            // As `kill -9` leaves it.
            kill(store);
            let store = Store::open(options).unwrap();
            assert!(!store.receipt().volumes[0].clean, "{what}");
            assert_eq!(read(&store, b"last").unwrap(), [9; 3000]);
            assert_eq!(read(&store, &key(7)), None);
            let report = store.check(|_, _| {});
            assert!(report.is_clean() && report.orphans == 0 && report.intact > 400, "{what} {report:?}");
            while store.step().unwrap() {}
            let report = store.check(|_, _| {});
            assert!(report.is_clean() && report.entries == report.intact, "{what} {report:?}");
        }
    }
}

#[test]
fn every_put_and_delete_is_durable_whatever_was_asked_for() {
    for preset in TABLES {
        for seed in 0..10 {
            let medium = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(8 * MIB, 512)), seed);
            let device = Arc::new(medium.clone()) as Arc<dyn Device>;
            // The bounds that others may lose.
            let options = by_hand(preset, device).durability(Durability::None).mode(Mode::Cache);
            let store = Store::open(options.clone()).unwrap();
            for i in 0..60 {
                store.put(&key(i), &body(i, 3000)).unwrap();
            }
            for i in 0..20 {
                store.put(&key(i), &body(i + 1, 4000)).unwrap();
                store.delete(&key(20 + i)).unwrap();
            }
            medium.crash().unwrap();
            drop(store);
            medium.revive().unwrap();
            let store = Store::open(options).unwrap();
            for i in 0..60 {
                let there = match i {
                    0..20 => Some(body(i + 1, 4000)),
                    20..40 => None,
                    _ => Some(body(i, 3000)),
                };
                assert_eq!(read(&store, &key(i)), there, "{preset} {seed} {i}");
            }
        }
    }
}

#[test]
fn a_put_is_a_write_of_the_entry_and_one_of_its_page_and_a_sync() {
    let device = CountedDevice::new(memory(32 * MIB, 512));
    let store = Store::open(by_hand("pmflf-pfl", Arc::new(device.clone()))).unwrap();
    store.put(b"first", &[1; 2000]).unwrap();
    let before = device.counts();
    for i in 0..40 {
        store.put_with(&key(i), &body(i, 2000), &plain().bypass_memory(true)).unwrap();
    }
    let put = device.counts() - before;
    assert_eq!((put.writes, put.syncs), (80, 40), "{put:?}");
    let before = device.counts();
    for i in 0..40 {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 2000));
    }
    assert_eq!((device.counts() - before).reads, 40, "the page is in memory, the object was to bypass it");
    let before = device.counts();
    for i in 0..40 {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 2000));
    }
    assert_eq!((device.counts() - before).reads, 0, "memory has it by now");
    let counts = store.stats().counts;
    assert!(counts.device_writes >= 80 && counts.device_syncs >= 40 && counts.puts == 41, "{counts:?}");
}

#[test]
fn a_full_store_says_so_keeps_what_it_has_and_goes_on() {
    for preset in TABLES {
        let options = by_hand(preset, memory(4 * MIB, 512)).mode(Mode::Cache);
        let store = Store::open(options.clone()).unwrap();
        let mut there = 0;
        let full = loop {
            match store.put(&key(there), &body(there, 20_000)) {
                Ok(()) => there += 1,
                Err(error) => break error,
            }
        };
        assert!(matches!(full, Error::Full { .. }), "{preset} {full}");
        assert!(there > 100, "{preset} {there}");
        // A put that fails leaves the version before; and so does a large one, all of it.
        assert!(matches!(store.put(&key(3), &body(1, 900_000)), Err(Error::Full { .. })));
        let mut stream = store.put_stream(b"large", None, plain()).unwrap();
        let mut wrote = Ok(());
        for _ in 0..20 {
            wrote = wrote.and_then(|()| stream.write(&[5; 40_000]));
        }
        assert!(wrote.is_err() || stream.finish().is_err(), "{preset}");
        for i in 0..there {
            assert_eq!(read(&store, &key(i)).unwrap(), body(i, 20_000), "{preset} {i}");
        }
        for i in 0..there / 2 {
            store.delete(&key(i)).unwrap();
        }
        for i in 0..there / 3 {
            store.put(&key(i), &body(i + 7, 20_000)).unwrap();
        }
        store.close().unwrap();
        let store = Store::open(options).unwrap();
        assert!(store.check(|_, _| {}).is_clean() && read(&store, b"large").is_none());
        assert_eq!(store.stats().counts.evicted, 0);
    }
}

#[test]
fn large_objects_stream_in_and_leave_with_all_their_pieces() {
    let options = by_hand("pmflf-pl", memory(48 * MIB, 512));
    let store = Store::open(options.clone()).unwrap();
    let all = body(3, 3_000_000);
    let mut stream = store.put_stream(b"large", Some(3_000_000), plain()).unwrap();
    for piece in all.chunks(70_001) {
        stream.write(piece).unwrap();
    }
    assert!(store.get(b"large").unwrap().is_none(), "nothing is visible before the end");
    stream.finish().unwrap();
    let stats = store.stats();
    assert!(stats.objects > 20 && stats.memory_used <= stats.memory_limit, "{stats:?}");
    assert_eq!(read(&store, b"large").unwrap(), all);
    let range = store.get_range(b"large", 1_000_000..1_200_000).unwrap().unwrap();
    let part: Vec<u8> = range.map(Result::unwrap).collect::<Vec<_>>().concat();
    assert_eq!(part, all[1_000_000..1_200_000]);
    // One that is dropped half way was never there.
    let mut stream = store.put_stream(b"half", None, plain()).unwrap();
    stream.write(&all[..900_000]).unwrap();
    drop(stream);
    let entries = store.stats().objects;
    // One that a crash cuts short leaves pieces, which go when the store is settled.
    let mut stream = store.put_stream(b"cut", None, plain()).unwrap();
    stream.write(&all[..900_000]).unwrap();
    assert!(store.stats().objects > entries);
    kill((stream, store));
    let store = Store::open(options).unwrap();
    assert!(store.check(|_, _| {}).orphans > 5);
    while store.step().unwrap() {}
    assert_eq!(store.stats().objects, entries);
    assert_eq!(read(&store, b"large").unwrap(), all);
    store.put(b"large", b"small").unwrap();
    assert_eq!(store.stats().objects, 1);
    assert!((3_000_000..3_001_000).contains(&store.stats().counts.removed_bytes), "{:?}", store.stats());
    let mut stream = store.put_stream(b"again", None, plain()).unwrap();
    stream.write(&all).unwrap();
    stream.finish().unwrap();
    assert!(store.delete(b"again").unwrap());
    assert_eq!(store.stats().objects, 1);
    assert!(store.stats().volumes[0].live_bytes < MIB, "{:?}", store.stats());
}

#[test]
fn groups_expiry_and_metadata_come_back() {
    let clock = Clock::virtual_at(1_000_000);
    let options = by_hand("pmflf-ts", memory(8 * MIB, 512)).with(|options| options.clock = clock.clone());
    let store = Store::open(options.clone()).unwrap();
    store.group(3).love();
    store.group(4).set_checkpoint_interval(Some(Duration::from_secs(9)));
    let own = plain().metadata(vec![7; 99]).group(3);
    store.put_with(b"a", b"one", &own).unwrap();
    let brief = plain().expiry(Expiry::After(Duration::from_secs(5)));
    store.put_with(b"b", b"two", &brief).unwrap();
    kill(store);
    let store = Store::open(options).unwrap();
    assert_eq!(store.group(3).priority(), Priority::Loved);
    assert_eq!(store.group(4).checkpoint_interval(), CheckpointInterval::Every(Duration::from_secs(9)));
    let object = store.get(b"a").unwrap().unwrap();
    assert_eq!((object.metadata(), object.group(), store.group_of(b"a").unwrap()), (&[7; 99][..], 3, Some(3)));
    assert!(read(&store, b"b").is_some());
    clock.advance(Duration::from_secs(6));
    assert!(store.get(b"b").unwrap().is_none() && !store.contains(b"b").unwrap());
    // The handle pins its bytes, whatever becomes of the object.
    assert!(matches!(store.try_get(b"a"), TryGet::Hit(_)));
    store.put(b"a", b"other").unwrap();
    store.delete(b"a").unwrap();
    assert_eq!(object.body().unwrap(), &b"one"[..]);
    assert!(matches!(store.try_get(b"a"), TryGet::OnDevice) && store.get(b"a").unwrap().is_none());
}

#[test]
fn another_layouts_store_is_refused_and_one_that_lost_its_beginning_too() {
    let device = memory(8 * MIB, 4096);
    let store = Store::open(by_hand("pmflf-ts", device.clone())).unwrap();
    store.put(b"a", b"one").unwrap();
    store.close().unwrap();
    for other in ["picaflor", "buddy", "pmflf-pl", "oba"] {
        let Err(Error::Option { name: "preset", why }) = Store::open(by_hand(other, device.clone())) else {
            panic!("{other} opened it")
        };
        assert!(why.contains("pmflf-ts"), "{why}");
    }
    let image = |device: &MemoryDevice| {
        let mut bytes = AlignedBuf::zeroed(8 << 20);
        device.read(0, &mut bytes).unwrap();
        bytes
    };
    let before = image(&device);
    // Both superblocks, then both homes, then an older one of them, are blank.
    for (lost, len, why) in [(0, 8192, "superblocks are blank"), (65_536, 8192, "there was one"), (65_536, 4096, "")] {
        let lame = memory(8 * MIB, 4096);
        lame.write(0, &before).unwrap();
        lame.write(lost, &AlignedBuf::zeroed(len)).unwrap();
        let as_it_was = image(&lame);
        match Store::open(by_hand("pmflf-ts", lame.clone())) {
            Err(error @ Error::Damaged { .. }) => {
                assert!(error.to_string().contains(why), "{error}");
                assert!(image(&lame)[..] == as_it_was[..], "a place that is refused is as it was");
            }
            Ok(store) => assert!(why.is_empty() && read(&store, b"a").unwrap() == b"one"),
            Err(error) => panic!("{error}"),
        }
    }
    let other = memory(8 * MIB, 4096);
    drop(Store::open(by_hand("picaflor", other.clone())).unwrap());
    assert!(matches!(Store::open(by_hand("pmflf-ts", other)), Err(Error::Option { name: "preset", .. })));
    let two = by_hand("pmflf-ts", memory(8 * MIB, 512)).with(|options| {
        options.places.push(picaflor::Place::Device(memory(8 * MIB, 512)));
    });
    assert!(matches!(Store::open(two), Err(Error::Option { name: "places", .. })));
}

#[test]
fn who_may_not_write_reads_and_changes_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("store");
    let options = picaflor_literature::preset("pmflf-pfl").unwrap().place(&path).capacity(16 * MIB).memory(8 * MIB);
    let store = Store::open(options.clone()).unwrap();
    store.put(b"a", b"one").unwrap();
    store.put(b"large", &body(1, 900_000)).unwrap();
    store.close().unwrap();
    let Ok(Inspection::Store(about)) = inspect(&path) else { panic!("it is a store") };
    assert_eq!((about.preset, about.mode, about.capacity), ("pmflf-pfl", Mode::Store, 16 * MIB));
    let before = std::fs::read(&path).unwrap();
    let store = Store::open(options.with(|options| options.read_only = true)).unwrap();
    assert_eq!(read(&store, b"a").unwrap(), b"one");
    assert_eq!(read(&store, b"large").unwrap(), body(1, 900_000));
    assert!(store.put(b"b", b"two").is_err() && store.delete(b"a").is_err());
    assert_eq!(store.keys().count(), 2);
    assert!(store.check(|_, _| {}).is_clean());
    store.flush().unwrap();
    store.close().unwrap();
    assert!(std::fs::read(&path).unwrap() == before, "not a byte was written");
}

#[test]
fn eight_threads_on_a_real_file_read_what_they_put() {
    let folder = tempfile::tempdir().unwrap();
    for preset in TABLES {
        let path = folder.path().join(preset);
        let options = picaflor_literature::preset(preset).unwrap().place(&path).capacity(64 * MIB).memory(8 * MIB);
        let store = Store::open(options.clone()).unwrap();
        std::thread::scope(|scope| {
            for thread in 0..8 {
                let store = store.clone();
                scope.spawn(move || {
                    for round in 0..25 {
                        for i in (0..4).map(|i| thread * 100 + i) {
                            let seed = i * 1000 + round;
                            store.put(&key(i), &body(seed, 500 + seed as usize % 6000)).unwrap();
                            assert_eq!(read(&store, &key(i)).unwrap(), body(seed, 500 + seed as usize % 6000));
                        }
                        // One that all of them put and read: it is wholly of one of them.
                        store.put(b"common", &body(thread, 4000)).unwrap();
                        let common = read(&store, b"common").unwrap();
                        assert!((0..8).any(|thread| common == body(thread, 4000)));
                        assert!(store.delete(&key(thread * 100 + 3)).unwrap());
                        assert!(read(&store, &key(thread * 100 + 3)).is_none());
                    }
                });
            }
        });
        assert!(store.stats().memory_used <= store.stats().memory_limit);
        drop(store);
        let store = Store::open(options).unwrap();
        assert!(store.settle(Duration::from_secs(60)), "{preset}");
        for i in (0..8).flat_map(|thread| (0..3).map(move |i| thread * 100 + i)) {
            let seed = i * 1000 + 24;
            assert_eq!(read(&store, &key(i)).unwrap(), body(seed, 500 + seed as usize % 6000), "{preset} {i}");
        }
        assert!(store.check(|_, _| {}).is_clean());
    }
}

#[test]
fn a_simulated_disk_takes_the_time_that_it_has() {
    let profile = Profile::find("barracuda4").unwrap();
    let clock = Clock::virtual_at(1_000_000);
    let options = SimulatedOptions { part: Some(0..64 * MIB), ..SimulatedOptions::default() };
    let disk = SimulatedDisk::new(&profile, clock.clone(), &options).unwrap();
    let options = by_hand("pmflf-pfl", Arc::new(disk)).with(|options| options.clock = clock.clone());
    let store = Store::open(options).unwrap();
    let began = clock.now_nanos();
    for i in 0..50 {
        store.put_with(&key(i), &body(i, 3000), &plain().bypass_memory(true)).unwrap();
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000));
    }
    let each = (clock.now_nanos() - began) / 50 / 1_000_000;
    assert!((5..80).contains(&each), "two writes, a sync and a read of a disk with an arm: {each} ms");
}

#[test]
fn a_device_that_fails_is_still_read_and_loses_nothing_that_was_acknowledged() {
    for (seed, fault) in [Fault::WriteError, Fault::SyncError, Fault::NoSpace].into_iter().cycle().take(30).enumerate()
    {
        let medium = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(8 * MIB, 512)), seed as u64);
        let options = by_hand("pmflf-pfl", Arc::new(medium.clone()) as Arc<dyn Device>);
        let store = Store::open(options.clone()).unwrap();
        medium.add(Rule::nth(fault, 20 + seed as u64 * 2));
        let mut acknowledged = Vec::new();
        let mut failed = None;
        for i in 0..100 {
            match store.put(&key(i % 30), &body(i, 3000)) {
                Ok(()) => acknowledged.push(i),
                Err(error) => {
                    failed.get_or_insert((i, error));
                }
            }
        }
        let (first, error) = failed.expect("a rule that fires");
        assert!(matches!(error, Error::Io { .. }), "{seed} {error}");
        for life in 0..2 {
            let store = if life == 0 { store.clone() } else { Store::open(options.clone()).unwrap() };
            for k in 0..30 {
                let last = acknowledged.iter().rev().find(|i| **i % 30 == k).map(|i| body(*i, 3000));
                let found = read(&store, &key(k));
                // What failed may have happened.
                let tried = (0..100).filter(|i| i % 30 == k && !acknowledged.contains(i) && *i >= first);
                let mut tried = tried.map(|i| body(i, 3000));
                assert!(found == last || found.is_some_and(|found| tried.any(|it| it == found)), "{seed} {life} {k}");
            }
            if life == 0 {
                medium.clear_rules();
                medium.crash().unwrap();
                drop(store);
                medium.revive().unwrap();
            }
        }
    }
}

/// Flips a bit of this body, wherever it lies.
fn damage(device: &MemoryDevice, body: &[u8]) {
    let mut bytes = AlignedBuf::zeroed(8 << 20);
    device.read(0, &mut bytes).unwrap();
    let sought = &body[1000..1100];
    let at = bytes.windows(100).position(|window| window == sought).unwrap();
    bytes[at] ^= 1;
    device.write(0, &bytes).unwrap();
}

#[test]
fn an_audit_is_not_silent_about_a_damaged_entry_where_a_crash_left_the_version_before() {
    for preset in TABLES {
        for damaged in [false, true] {
            let device = memory(8 * MIB, 512);
            let options = by_hand(preset, device.clone());
            let store = Store::open(options.clone()).unwrap();
            (0..50).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
            store.put(&key(17), &body(117, 3000)).unwrap();
            kill(store);
            // Nothing is mended without a step.
            Store::open(options.clone()).unwrap().close().unwrap();
            if damaged {
                damage(&device, &body(117, 3000));
            }
            let store = Store::open(options.with(|options| options.read_only = true)).unwrap();
            let report = store.check(|_, _| {});
            assert_eq!(report.unsettled, u64::from(damaged), "{preset}: {report:?}");
        }
    }
}

#[test]
fn a_damaged_entry_is_reported_and_never_another_answer() {
    let device = memory(8 * MIB, 512);
    let options = by_hand("pmflf-pfl", device.clone());
    let store = Store::open(options.clone()).unwrap();
    for i in 0..50 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    store.close().unwrap();
    damage(&device, &body(17, 3000));
    let store = Store::open(options).unwrap();
    assert!(matches!(store.get(&key(17)), Err(Error::Damaged { .. })));
    let report = store.check(|_, _| {});
    assert!(!report.is_clean() && report.lost == 1 && report.intact == 49, "{report:?}");
    for i in (0..50).filter(|i| *i != 17) {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000));
    }
    store.put(&key(17), b"anew").unwrap();
    assert_eq!(read(&store, &key(17)).unwrap(), b"anew");
    assert!(store.check(|_, _| {}).is_clean());
}

/// Bytes of the device up to the last that is not zero.
fn reached(device: &MemoryDevice) -> u64 {
    let mut bytes = vec![0; device.capacity() as usize];
    device.read(0, &mut bytes).unwrap();
    bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0) as u64
}

#[test]
fn the_papers_order_takes_the_end_of_the_device_before_it_splits_and_ours_is_an_option() {
    for preset in TABLES {
        let taken = |splits_first| {
            let device = memory(64 * MIB, 512);
            let options = by_hand(preset, Arc::clone(&device) as Arc<dyn Device>).splits_first(splits_first);
            let mut store = Store::open(options.clone()).unwrap();
            for round in 0..12 {
                if round == 6 {
                    // Whichever it was before, a store may be opened with the other, and with this one again.
                    for splits_first in [!splits_first, splits_first] {
                        store.close().unwrap();
                        store = Store::open(options.clone().splits_first(splits_first)).unwrap();
                    }
                }
                for i in 0..300 {
                    store.put(&key(i), &body(i + round, 100 + ((i * 37 + round * 1009) % 9000) as usize)).unwrap();
                }
            }
            for i in 0..300 {
                assert_eq!(read(&store, &key(i)).unwrap(), body(i + 11, 100 + ((i * 37 + 11 * 1009) % 9000) as usize));
            }
            store.close().unwrap();
            reached(&device)
        };
        let (paper, ours) = (taken(false), taken(true));
        assert!(paper > ours + ours / 10, "{preset}: {paper} and {ours} bytes");
    }
}
