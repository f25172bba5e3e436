//! A device that refuses to read while a store is opened or audited: that is no damage, and nothing is given up for it.
//! While an object is replaced: what may be its older version does not stay.

use std::sync::Arc;

use picaflor::{
    Error, Mode, Options, Place, Store,
    device::{CountedDevice, Device, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, Rule, kill};

use crate::common::{MIB, body, by_hand, bypass, key, read, twins};

const OBJECTS: u64 = 300;

/// A device with a checkpoint and a log behind it, as `kill -9` leaves them, and the options to open it.
fn crashed(preset: &str, mode: Mode) -> (Arc<FaultyDevice>, CountedDevice, Options) {
    let faulty = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), 1));
    let counted = CountedDevice::new(faulty.clone());
    let options =
        by_hand(Arc::new(counted.clone())).mode(mode).rows(picaflor_literature::ROWS).as_preset(preset).unwrap();
    let store = Store::open(options.clone()).unwrap();
    (0..OBJECTS / 2).for_each(|i| store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap());
    store.close().unwrap();
    let store = Store::open(options.clone()).unwrap();
    (OBJECTS / 2..OBJECTS).for_each(|i| store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap());
    store.flush().unwrap();
    kill(store);
    (faulty, counted, options)
}

fn found(store: &Store) -> u64 {
    (0..OBJECTS).filter(|i| read(store, &key(*i)) == Some(body(*i, 3000))).count() as u64
}

#[test]
fn an_opening_that_cannot_read_says_so_and_gives_up_nothing() {
    for (preset, mode) in [
        ("picaflor", Mode::Store),
        ("picaflor", Mode::Cache),
        ("stream", Mode::Store),
        ("stream", Mode::Cache),
        ("buddy-scan", Mode::Store),
        ("pmflf-ts", Mode::Store),
        ("pmflf-pfl", Mode::Store),
    ] {
        let (faulty, counted, options) = crashed(preset, mode);
        let mut refused = 0;
        for n in 1..500 {
            let writes = counted.counts().writes;
            faulty.add(Rule::since(Fault::ReadError, n));
            let opened = Store::open(options.clone());
            faulty.clear_rules();
            let what = format!("{preset} {mode:?}, from read {n} on");
            match opened {
                Err(Error::Io { place, .. }) => {
                    assert!(place.contains(|c: char| c.is_ascii_digit()), "{what}: {place} does not say where");
                }
                Err(error) => panic!("{what}: {error}"),
                Ok(store) => {
                    assert!(!store.receipt().volumes[0].dropped.cold_start, "{what}");
                    // As `kill -9` leaves it.
                    kill(store);
                    break;
                }
            }
            assert!(preset.starts_with("pmflf") || counted.counts().writes == writes, "{what}: it was written to");
            refused += 1;
        }
        assert!(refused > 4, "{preset} {mode:?}: {refused}");
        let store = Store::open(options).unwrap();
        assert!(!store.receipt().volumes[0].dropped.cold_start);
        assert_eq!(found(&store), OBJECTS, "{preset} {mode:?}");
    }
}

#[test]
fn one_refused_read_costs_an_opening_nothing() {
    for mode in [Mode::Store, Mode::Cache] {
        let (faulty, _, options) = crashed("picaflor", mode);
        let first = Store::open(options.clone().with(|options| options.read_only = true)).unwrap();
        let scanned = first.receipt().volumes[0].scanned_clusters;
        assert!(scanned > 2);
        for n in 1..20 {
            faulty.add(Rule::nth(Fault::ReadError, n));
            let store = Store::open(options.clone().with(|options| options.read_only = true)).unwrap();
            faulty.clear_rules();
            let receipt = &store.receipt().volumes[0];
            assert!(receipt.damage.is_empty() && !receipt.dropped.cold_start, "{n}: {receipt:?}");
            assert_eq!((receipt.scanned_clusters, receipt.checkpoint), (scanned, "current"), "{n}");
            assert_eq!(found(&store), OBJECTS, "{n}");
        }
    }
}

/// A place that stays bad is another matter: a cache must be able to open again.
#[test]
fn a_cache_starts_empty_where_one_place_stays_bad_and_a_store_says_which() {
    for mode in [Mode::Store, Mode::Cache] {
        let (faulty, _, options) = crashed("picaflor", mode);
        // The journal.
        faulty.add(Rule::rate(Fault::ReadError, 1.0).within(196_608..458_752));
        match (Store::open(options), mode) {
            (Ok(store), Mode::Cache) => {
                let receipt = &store.receipt().volumes[0];
                assert!(receipt.dropped.cold_start, "{receipt:?}");
                assert!(receipt.refused[0].contains("reading a page of the journal at "), "{receipt:?}");
                assert!(receipt.damage.is_empty(), "{receipt:?}");
            }
            (Err(Error::Io { place, .. }), Mode::Store) => {
                assert!(place.contains("reading a page of the journal at "), "{place}");
            }
            (opened, _) => panic!("{mode:?}: {:?}", opened.map(|_| ())),
        }
    }
}

#[test]
fn a_checkpoint_that_is_refused_is_not_called_damaged() {
    for mode in [Mode::Store, Mode::Cache] {
        let (faulty, _, options) = crashed("picaflor", mode);
        Store::open(options.clone()).unwrap().close().unwrap();
        let mut met = 0;
        for start in (0..32 * MIB).step_by(64 << 10) {
            faulty.add(Rule::rate(Fault::ReadError, 1.0).within(start..start + (64 << 10)));
            let opened = Store::open(options.clone().with(|options| options.read_only = true));
            faulty.clear_rules();
            let Ok(store) = opened else { continue };
            let receipt = &store.receipt().volumes[0];
            assert!(receipt.damage.is_empty(), "{mode:?}, {start}: {receipt:?}");
            if receipt.checkpoint == "previous" {
                assert!(receipt.refused[0].contains("current checkpoint: "), "{mode:?}, {start}: {receipt:?}");
                assert_eq!(found(&store), OBJECTS);
                met += 1;
            }
        }
        assert!(met > 1, "{mode:?}: its directory and its parts");
    }
}

#[test]
fn a_place_whose_others_cannot_be_read_is_not_called_empty() {
    let devices: Vec<_> =
        (0..2).map(|i| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), i))).collect();
    let options = |devices: Vec<Arc<dyn Device>>| {
        let places = devices.into_iter().map(Place::Device).collect();
        by_hand(Arc::new(MemoryDevice::new(0))).with(|options| options.places = places)
    };
    let both = || options(devices.iter().map(|device| device.clone() as Arc<dyn Device>).collect());
    // The power fails while the store is made: one of them has a superblock.
    devices[1].add(Rule::nth(Fault::NoSpace, 1));
    assert!(Store::open(both()).is_err());
    devices[1].clear_rules();
    devices[0].add(Rule::rate(Fault::ReadError, 1.0).within(196_608..204_800));
    let refused = Store::open(both()).map(|_| ());
    assert!(matches!(refused, Err(Error::Io { .. })), "{refused:?}");
    devices[0].clear_rules();
    Store::open(both()).unwrap();
}

#[test]
fn an_audit_tells_what_it_could_not_read_from_what_is_damaged() {
    for preset in ["picaflor", "stream", "pmflf-ts"] {
        let (faulty, _, options) = crashed(preset, Mode::Store);
        let store = Store::open(options.with(|options| options.read_only = true)).unwrap();
        while store.step().unwrap() {}
        let mut met = 0;
        for part in 0..128 {
            faulty.add(Rule::rate(Fault::ReadError, 1.0).within(part * MIB / 4..(part + 1) * MIB / 4));
            let report = store.check(|_, _| ());
            faulty.clear_rules();
            assert!(!report.is_damaged(), "{preset} {report:?}");
            assert_eq!(report.is_clean(), report.refused.is_empty());
            assert!(report.refused.is_empty() || report.intact < report.entries, "{preset} {report:?}");
            met += u64::from(!report.refused.is_empty());
        }
        assert!(met > 1, "{preset} {met}");
        let report = store.check(|_, _| ());
        assert!(report.is_clean() && report.intact >= OBJECTS, "{preset} {report:?}");
    }
}

#[test]
fn an_older_version_that_cannot_be_read_beside_another_key_of_its_place_does_not_stay() {
    for (preset, replaced) in [("picaflor", 0), ("picaflor", 1), ("stream-pack", 0), ("stream-pack", 1)] {
        let faulty = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(32 * MIB, 512)), 1);
        let options = picaflor_literature::as_preset(by_hand(Arc::new(faulty.clone())), preset).unwrap();
        // So that the entry a put replaces is looked for on the device.
        let options = options.with(|options| options.eviction_listener = Some(Arc::new(|_: &[u8], _| ())));
        let keys = twins(7);
        let store = Store::open(options.clone()).unwrap();
        keys.iter().for_each(|key| store.put(key, &body(1, 300)).unwrap());
        store.close().unwrap();
        let store = Store::open(options.clone()).unwrap();
        assert_eq!(store.stats().objects, 2, "{preset}");
        faulty.add(Rule::since(Fault::ReadError, 1));
        store.put(&keys[replaced], &body(2, 300)).unwrap();
        faulty.clear_rules();
        store.close().unwrap();
        let store = Store::open(options).unwrap();
        assert_eq!(read(&store, &keys[replaced]), Some(body(2, 300)), "{preset} {replaced}");
        let versions = store.keys().filter(|found| found.key[..] == keys[replaced][..]).count();
        assert_eq!(versions, 1, "{preset} {replaced}");
    }
}
