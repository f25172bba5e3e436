//! What is refused, forgotten or reported, each by its name: admission, expiry, departures, full stores,
//! options, read-only and closed handles, listings and audits.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use picaflor::{
    Daemons, Departure, Error, Expiry, Mode, Options, Refusal, Store,
    device::{Clock, CountedDevice, Device, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, Rule, kill};

use crate::common::{KIB, MIB, body, by_hand, bypass, counted, in_group, key, plain, read, twins};

#[test]
fn the_admission_filter_sees_key_and_length_and_its_word_counts() {
    let (_, mut options) = counted(32 * MIB);
    let asked = Arc::new(Mutex::new(Vec::new()));
    let told = asked.clone();
    options.admission = Some(Arc::new(move |key, len| {
        told.lock().unwrap().push((key.to_vec(), len));
        key != b"no" && len.is_none_or(|len| len < 1000)
    }));
    let store = Store::open(options).unwrap();
    let refused = |result: picaflor::Result<()>| matches!(result, Err(Error::Refused(Refusal::NotAdmitted)));
    assert!(refused(store.put(b"no", b"x")));
    assert!(refused(store.put(b"yes", &[0; 1000])));
    store.put(b"yes", &[0; 999]).unwrap();
    assert!(refused(store.put_stream(b"large", Some(300_000), plain()).map(drop)));
    let mut stream = store.put_stream(b"large", None, plain()).unwrap();
    stream.write(&body(1, 300_000)).unwrap();
    stream.finish().unwrap();
    assert_eq!(read(&store, b"large").unwrap(), body(1, 300_000));
    assert!(read(&store, b"no").is_none());
    let expected: Vec<(Vec<u8>, Option<u64>)> = vec![
        (b"no".to_vec(), Some(1)),
        (b"yes".to_vec(), Some(1000)),
        (b"yes".to_vec(), Some(999)),
        (b"large".to_vec(), Some(300_000)),
        (b"large".to_vec(), None),
    ];
    assert_eq!(*asked.lock().unwrap(), expected);
    assert_eq!(store.stats().refusals["not admitted by the filter"], 3);
}

#[test]
fn refusals_are_counted_by_name() {
    let (_, options) = counted(32 * MIB);
    let store = Store::open(options.clone()).unwrap();
    let too_large = store.object_max() + 1;
    assert_eq!(store.object_max() / MIB, 7, "a quarter of the device");
    assert!(matches!(store.put_stream(b"a", Some(too_large), plain()), Err(Error::Refused(Refusal::TooLarge))));
    let mut stream = store.put_stream(b"a", None, plain()).unwrap();
    let outgrown = (0..200).map(|_| stream.write(&[7; 64 << 10])).find(Result::is_err);
    assert!(matches!(outgrown, Some(Err(Error::Refused(Refusal::TooLarge)))));
    drop(stream);
    for expiry in [Expiry::At(0), Expiry::At(1), Expiry::At(1_000_000), Expiry::After(Duration::ZERO)] {
        let put = store.put_with(b"a", b"x", &plain().expiry(expiry));
        assert!(matches!(put, Err(Error::Refused(Refusal::Expired))), "{expiry:?} {put:?}");
    }
    let no_wait = plain().no_wait(true);
    let busy = (0..2000).map(|i| store.put_with(&key(i), &body(i, 30_000), &no_wait)).find(Result::is_err);
    assert!(matches!(busy, Some(Err(Error::Refused(Refusal::Busy)))), "{busy:?}");
    for (what, result) in [
        ("key", store.put(b"", b"x")),
        ("key", store.put(&[1; 8193], b"x")),
        ("metadata", store.put_with(b"a", b"x", &plain().metadata(vec![0; 65_537]))),
    ] {
        assert!(matches!(&result, Err(Error::Limit { what: named, .. }) if *named == what), "{result:?}");
    }
    let refusals = store.stats().refusals;
    let counts =
        ["too large for this device", "already expired", "the device cannot keep up"].map(|name| refusals[name]);
    assert_eq!(counts, [2, 4, 1], "{refusals:?}");
    assert_eq!(refusals.values().sum::<u64>(), 7);
}

#[test]
fn expiry_is_explicit_or_the_default() {
    let (_, mut options) = counted(32 * MIB);
    options.default_ttl = Some(Duration::from_secs(60));
    let (clock, store) = (options.clock.clone(), Store::open(options.clone()).unwrap());
    let with = |expiry| plain().expiry(expiry);
    store.put(b"default", b"x").unwrap();
    store.put_with(b"never", b"x", &with(Expiry::Never)).unwrap();
    store.put_with(b"at", b"x", &with(Expiry::At(1_000_000 + 30_000))).unwrap();
    store.put_with(b"after", b"x", &with(Expiry::After(Duration::from_secs(90)))).unwrap();
    store.put_with(b"large", &body(1, 500_000), &with(Expiry::After(Duration::from_secs(30)))).unwrap();
    assert_eq!(store.get(b"default").unwrap().unwrap().expires(), Some(1_060_000));
    assert_eq!(store.get(b"never").unwrap().unwrap().expires(), None);
    let there = |store: &Store| {
        ["default", "never", "at", "after", "large"].map(|key| store.get(key.as_bytes()).unwrap().is_some())
    };
    clock.advance(Duration::from_millis(29_999));
    assert_eq!(there(&store), [true; 5]);
    clock.advance(Duration::from_millis(1));
    assert_eq!(there(&store), [true, true, false, true, false]);
    store.close().unwrap();
    let store = Store::open(options).unwrap();
    clock.advance(Duration::from_secs(31));
    assert_eq!(there(&store), [false, true, false, true, false]);
    clock.advance(Duration::from_secs(31));
    assert_eq!(there(&store), [false, true, false, false, false]);
    assert_eq!(store.stats().misses["expired"], 7);
}

/// What a listener was told, by key.
type Gone = Arc<Mutex<HashMap<Vec<u8>, Vec<Departure>>>>;

/// A store whose departures are written down.
fn watched(options: Options) -> (Store, Gone) {
    let gone = Gone::default();
    let told = gone.clone();
    let store = Store::open(options.with(|options| {
        options.eviction_listener =
            Some(Arc::new(move |key, why| told.lock().unwrap().entry(key.to_vec()).or_default().push(why)));
    }));
    (store.unwrap(), gone)
}

#[test]
fn each_departure_is_told_once_with_its_reason() {
    let (_, options) = counted(16 * MIB);
    let (clock, (store, gone)) = (options.clock.clone(), watched(options));
    for i in 0..12_000u64 {
        let expiry = if i % 3 == 0 { Expiry::After(Duration::from_secs(1)) } else { Expiry::Never };
        store.put_with(&key(i), &body(i, 3000), &plain().expiry(expiry)).unwrap();
        if i % 1000 == 999 {
            clock.advance(Duration::from_secs(2));
            store.put(&key(1_000_000 + i), &body(i, 200_000)).unwrap();
        }
        if i % 7 == 0 {
            assert!(store.delete(&key(i)).unwrap());
        }
        store.step().unwrap();
    }
    let gone = gone.lock().unwrap();
    let counts = store.stats().counts;
    for i in 0..12_000 {
        let there = store.get(&key(i)).unwrap().is_some();
        match gone.get(&key(i)).map(|all| &all[..]) {
            None if i % 7 == 0 => assert!(!there, "deleted"),
            None => assert!(there || i % 3 == 0, "{i} left unseen"),
            Some([Departure::Evicted]) => assert!(!there && i % 7 != 0),
            Some([Departure::Expired]) => assert!(!there && i % 3 == 0 && i % 7 != 0),
            other => panic!("{i}: {other:?}"),
        }
    }
    let large = (0..12).filter(|i| gone.get(&key(1_000_999 + i * 1000)) == Some(&vec![Departure::Evicted])).count();
    assert!(large >= 6, "{large} large objects left, each told once");
    let told = |why| gone.values().flatten().filter(|told| **told == why).count() as u64;
    assert_eq!(told(Departure::Expired), counts.expired);
    assert!(counts.expired > 1000 && counts.evicted > 3000, "{counts:?}");
    assert!(gone.keys().all(|key| key.starts_with(b"http://")), "no chunk is told of");
}

#[test]
fn damage_is_told_with_its_key_by_get_and_by_scrub() {
    for scrub in [false, true] {
        let disk = FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 5);
        let store = Store::open(by_hand(Arc::new(disk.clone()))).unwrap();
        for i in 0..400 {
            store.put(&key(i), &body(i, 3000)).unwrap();
        }
        store.flush().unwrap();
        // These say that the others were durable before them, so recovery need not look at those.
        for i in 400..500 {
            store.put(&key(i), &body(i, 3000)).unwrap();
        }
        store.flush().unwrap();
        if !scrub {
            store.close().unwrap();
        }
        let places = find(&disk, 32 * MIB, &body(77, 3000)[..64]);
        assert_eq!(places.len(), 1);
        disk.damage(places[0] + 9, &[0xaa, 0x55]).unwrap();
        // Without a close the scrubber goes over everything.
        let (store, gone) = watched(by_hand(Arc::new(disk.clone())));
        if scrub {
            while store.step().unwrap() {}
        } else {
            assert_eq!(store.check(|_, _| ()).damaged.len(), 1);
        }
        assert!(store.get(&key(77)).unwrap().is_none());
        assert_eq!(read(&store, &key(78)).unwrap(), body(78, 3000));
        assert_eq!(*gone.lock().unwrap(), HashMap::from([(key(77), vec![Departure::Damaged])]), "scrub: {scrub}");
        assert_eq!(store.stats().counts.damaged, 1);
    }
}

/// Where these bytes lie on the device.
fn find(device: &FaultyDevice, len: u64, bytes: &[u8]) -> Vec<u64> {
    let all = device.pristine(0, len as usize).unwrap();
    let starts = (0..all.len() - bytes.len()).filter(|at| all[*at] == bytes[0] && all[*at..].starts_with(bytes));
    starts.map(|at| at as u64).collect()
}

#[test]
fn a_block_written_astray_does_not_show_the_version_before() {
    let disk = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 1));
    let store = Store::open(by_hand(disk.clone())).unwrap();
    // Each the first of its cluster.
    store.put_with(b"page", &body(1, 100), &in_group(1)).unwrap();
    store.flush().unwrap();
    store.put_with(b"page", &body(2, 3000), &in_group(2)).unwrap();
    store.close().unwrap();
    let block = |id, len| find(&disk, 32 * MIB, &body(id, len)[..64])[0] / 4096 * 4096;
    let (before, now) = (block(1, 100), block(2, 3000));
    assert_ne!(before, now);
    let astray = disk.pristine(before, 4096).unwrap();
    disk.damage(now, &astray).unwrap();
    let store = Store::open(by_hand(disk.clone())).unwrap();
    assert_eq!(read(&store, b"page"), None, "a miss, not the version that was replaced");
}

#[test]
fn an_audit_names_the_place_of_planted_damage() {
    let disk = FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 5);
    let options = || by_hand(Arc::new(disk.clone())).mode(Mode::Store);
    let store = Store::open(options()).unwrap();
    for i in 0..400 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    store.close().unwrap();
    let audit = |disk: &FaultyDevice| {
        let store =
            Store::open(by_hand(Arc::new(disk.clone())).mode(Mode::Store).with(|o| o.read_only = true)).unwrap();
        let mut last = (0, 0);
        let report = store.check(|done, total| last = (done, total));
        assert_eq!(last.0, last.1);
        assert!(last.1 > 400, "{last:?}");
        report
    };
    let report = audit(&disk);
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.entries, report.intact), (400, 400));
    let place = find(&disk, 32 * MIB, &body(123, 3000)[..64])[0];
    disk.damage(place + 1000, &[1, 2, 3]).unwrap();
    let report = audit(&disk);
    assert!(!report.is_clean(), "{report:?}");
    let [damage] = &report.damaged[..] else { panic!("{report:?}") };
    let frame = place - 64 - key(123).len() as u64;
    assert!(damage.contains(std::str::from_utf8(&key(123)).unwrap()), "{damage}");
    assert!(damage.contains(&format!("at {frame}")), "{damage} does not name {frame}");
    // The same on a store that was not closed: nothing drops what is damaged before the audit sees it.
    let crashed = FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 5);
    let store = Store::open(by_hand(Arc::new(crashed.clone())).mode(Mode::Store)).unwrap();
    for round in 0..3 {
        (0..400).for_each(|i| store.put(&key(round * 400 + i), &body(i, 3000)).unwrap());
        store.flush().unwrap();
    }
    kill(store);
    crashed.damage(find(&crashed, 32 * MIB, &body(123, 3000)[..64])[0] + 1000, &[1, 2, 3]).unwrap();
    let options_ = by_hand(Arc::new(crashed.clone())).mode(Mode::Store).with(|o| o.read_only = true);
    let store = Store::open(options_).unwrap();
    while store.step().unwrap() {}
    assert_eq!(store.check(|_, _| ()).damaged.len(), 1);
    // Its front gone: the table still says what lay there.
    let cluster = frame / (64 * KIB) * (64 * KIB);
    disk.damage(cluster, &[0; 4096]).unwrap();
    let report = audit(&disk);
    assert_eq!((report.damaged.len(), report.intact, report.lost), (3, 397, 0), "{report:?}");
    // Both ends gone: what lies between is found by its entries; what is damaged is missed, and the cluster is named.
    disk.damage(cluster + 60 * KIB, &[0; 4096]).unwrap();
    let report = audit(&disk);
    assert_eq!(report.unreadable_clusters.len(), 1, "{report:?}");
    assert_eq!((report.intact, report.damaged.len()), (400 - report.lost, 0), "{report:?}");
    assert!((3..7).contains(&report.lost), "{report:?}");
    let store = Store::open(options()).unwrap();
    assert!(matches!(store.get(&key(123)), Err(Error::Damaged { .. })), "a store does not say that it is not there");
}

#[test]
fn a_full_store_says_so_and_loses_nothing() {
    let (_, options) = counted(16 * MIB);
    let store = Store::open(options.clone().mode(Mode::Store)).unwrap();
    let mut last = 0;
    let full = (0..).map(|i| (i, store.put(&key(i), &body(i, 3000)))).find(|(i, put)| {
        last = *i;
        put.is_err()
    });
    let Some((_, Err(Error::Full { needed, free, .. }))) = full else { panic!("{full:?}") };
    assert!(needed > 3000 && last > 4000, "{needed} {free} {last}");
    assert!(matches!(store.put(b"large", &body(1, 900_000)), Err(Error::Full { .. })));
    assert!(matches!(store.put(&key(1), &body(2, 3000)), Err(Error::Full { .. }) | Ok(())));
    for i in 2..last {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000), "{i} of {last}");
    }
    store.close().unwrap();
    let why = Store::open(options.clone()).unwrap_err().to_string();
    assert!(why.contains("mode") && why.contains("open it in store mode"), "{why}");
    let store = Store::open(options.mode(Mode::Store)).unwrap();
    for i in 2..last {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000), "{i} of {last}");
    }
    for i in 0..last / 4 {
        assert!(store.delete(&key(i * 4)).unwrap());
    }
    for i in 0..last / 8 {
        store.put(&key(100_000 + i), &body(i, 3000)).unwrap();
    }
}

#[test]
fn options_that_cannot_work_are_named_with_the_mend() {
    type Change = fn(&mut Options);
    let cases: [(Change, &str, &str); 8] = [
        (|o| o.places.clear(), "places", "at least one"),
        (|o| o.cluster = 100_000, "cluster", "power of two from 16 KiB to 4 MiB"),
        (|o| o.cluster = 8 << 20, "cluster", "power of two from 16 KiB to 4 MiB"),
        (|o| o.open_buffers = 0, "open_buffers", "at least one"),
        (|o| o.capacity = 100_000, "capacity", "are the least for clusters of"),
        (|o| o.memory = 1 << 19, "memory", "the least for clusters of 65536 bytes"),
        (
            |o| o.places = vec![picaflor::Place::Device(Arc::new(MemoryDevice::new(1 << 20)))],
            "capacity",
            "are the least",
        ),
        (
            |o| (o.places, o.memory) = (vec![picaflor::Place::Device(Arc::new(MemoryDevice::new(1 << 40)))], 4 << 20),
            "memory",
            "larger clusters",
        ),
    ];
    for (change, name, mend) in cases {
        let (_, options) = counted(32 * MIB);
        let options = options.with(change);
        let foreseen = options.check(&[]).unwrap_err();
        let error = Store::open(options).unwrap_err();
        let said = error.to_string();
        assert!(matches!(foreseen, Error::Option { name: named, .. } if named == name), "{foreseen}");
        assert!(matches!(error, Error::Option { name: named, .. } if named == name), "{said}");
        assert!(said.contains(mend), "{said}");
    }
    let error = picaflor_literature::preset("humingbird").unwrap_err().to_string();
    assert!(error.contains("there are: picaflor"), "{error}");
}

#[test]
fn read_only_writes_nothing() {
    let memory: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 * MIB));
    let store = Store::open(by_hand(memory.clone())).unwrap();
    for i in 0..9000 {
        store.put(&key(i), &body(i, 3000)).unwrap();
        store.step().unwrap();
    }
    store.flush().unwrap();
    let held: Vec<u64> = (0..9000).filter(|i| store.contains(&key(*i)).unwrap()).collect();
    // Not closed: recovery has work to do, and clean space is as low as it gets.
    kill(store);
    for daemons in [Daemons::Manual, Daemons::Threads] {
        let device = CountedDevice::new(memory.clone());
        let options = by_hand(Arc::new(device.clone()));
        let store = Store::open(options.with(|options| {
            (options.read_only, options.daemons) = (true, daemons);
            options.clock = Clock::real();
        }))
        .unwrap();
        for i in &held {
            assert_eq!(read(&store, &key(*i)).unwrap(), body(*i, 3000));
        }
        assert!(matches!(store.put(b"a", b"x"), Err(Error::Refused(Refusal::ReadOnly))));
        assert!(matches!(store.delete(&key(held[0])), Err(Error::Refused(Refusal::ReadOnly))));
        assert!(store.settle(Duration::from_secs(10)) || daemons == Daemons::Manual);
        while store.step().unwrap() {}
        store.flush().unwrap();
        for i in &held {
            assert!(store.contains(&key(*i)).unwrap(), "{daemons:?}: nothing leaves");
        }
        store.close().unwrap();
        let counts = device.counts();
        assert_eq!((counts.writes, counts.syncs, counts.discards), (0, 0, 0), "{daemons:?}");
        assert!(counts.reads > 0);
    }
}

#[test]
fn a_closed_store_reads_and_refuses_the_rest() {
    let (device, options) = counted(32 * MIB);
    let store = Store::open(options).unwrap();
    store.put(b"a", b"x").unwrap();
    let other = store.clone();
    store.close().unwrap();
    let before = device.counts();
    assert!(matches!(other.put(b"b", b"x"), Err(Error::Closed)));
    assert!(matches!(other.delete(b"a"), Err(Error::Closed)));
    assert!(matches!(other.flush(), Err(Error::Closed)));
    assert!(matches!(other.step(), Err(Error::Closed)));
    let mut stream = other.put_stream(b"c", None, plain()).unwrap();
    let result = stream.write(&body(1, 200_000)).and_then(|()| stream.finish());
    assert!(matches!(result, Err(Error::Closed)));
    assert_eq!(read(&other, b"a").unwrap(), b"x");
    other.close().unwrap();
    assert_eq!((device.counts() - before).writes, 0);
}

#[test]
fn rot_on_the_way_is_read_again() {
    let disk = FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 6);
    let store = Store::open(by_hand(Arc::new(disk.clone()))).unwrap();
    for i in 0..200 {
        store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap();
    }
    store.flush().unwrap();
    store.step().unwrap();
    for i in 0..100 {
        disk.add(Rule::nth(Fault::Flicker, 1));
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000), "{i}");
        disk.clear_rules();
    }
    assert_eq!(store.stats().counts.damaged, 0);
}

#[test]
fn a_put_replaces_its_own_version_though_a_twin_cannot_be_read() {
    let twins = twins(11);
    for own in 0..2 {
        let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 1));
        let options = || {
            let mut options = by_hand(device.clone()).mode(Mode::Cache);
            options.seed = Some(11);
            options.eviction_listener = Some(Arc::new(|_: &[u8], _| ()));
            options
        };
        let store = Store::open(options()).unwrap();
        twins.iter().for_each(|key| store.put(key, &body(1, 5000)).unwrap());
        store.close().unwrap();
        for unreadable in 1..=2 {
            let store = Store::open(options()).unwrap();
            device.add(Rule::nth(Fault::ReadError, unreadable));
            let version = body(1 + unreadable, 5000);
            store.put(&twins[own], &version).unwrap();
            device.clear_rules();
            store.close().unwrap();
            let store = Store::open(options()).unwrap();
            let found = read(&store, &twins[own]);
            assert!(found == Some(version), "twin {own}: what was replaced is back, or nothing is there");
            store.close().unwrap();
        }
    }
}
