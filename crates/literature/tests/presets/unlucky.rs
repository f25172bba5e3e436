//! Rows on a device that fails reads: what a verb had done before stays, and a listing says what it lacks.

use std::sync::Arc;

use picaflor::{Error, Options, Put, Store};
use picaflor_sim::{Fault, FaultyDevice, Rule};

use crate::common::{MIB, body, by_hand, key, memory, plain, read};

/// Keys of an index page, on average: so many more, and a page is divided.
const LOAD: u64 = 90;

#[test]
fn a_read_that_fails_behind_a_large_put_takes_nothing_of_it() {
    for preset in ["pmflf-ts", "oba"] {
        let device = FaultyDevice::new(memory(64 * MIB, 512), 3);
        // Index pages in memory are few, so that dividing one reads it.
        let options = by_hand(preset, Arc::new(device.clone())).memory(MIB);
        let store = Store::open(options.clone()).unwrap();
        let own = plain();
        let put_small = |keys: std::ops::Range<u64>| {
            let keys: Vec<Vec<u8>> = keys.map(key).collect();
            let puts: Vec<Put<'_>> = keys.iter().map(|key| Put::with(key, b"small", &own)).collect();
            store.put_many(&puts).unwrap();
        };
        let (mut small, mut whole, mut none) = (0u64, 0u64, 0);
        for i in 0..60 {
            // Just so many keys that one more divides a page.
            let more = (small + whole + 1).next_multiple_of(LOAD).max(130 * LOAD) - whole;
            put_small(small..more);
            small = more;
            let (name, all) = (format!("large {i}"), body(i, 100_000));
            device.clear_rules();
            device.add(Rule::nth(Fault::ReadError, 1 + i % 12));
            let put = store.put(name.as_bytes(), &all);
            device.clear_rules();
            let found = read(&store, name.as_bytes());
            match (&put, found) {
                (_, Some(found)) => {
                    assert!(found == all, "{preset} {i}");
                    whole += 1;
                }
                (Err(Error::Io { .. }), None) => none += 1,
                (put, None) => panic!("{preset} {i}: {put:?}, and it is not there"),
            }
        }
        assert!(whole > 20 && none > 4, "{preset}: {whole} {none}");
        while store.step().unwrap() {}
        let report = store.check(|_, _| {});
        assert!(report.is_clean() && report.orphans == 0, "{preset}: {report:?}");
        store.close().unwrap();
    }
}

#[test]
fn a_listing_says_what_it_could_not_read() {
    for preset in ["picaflor", "damelo", "hummingbird", "buddy", "stream", "pmflf-pfl", "oba"] {
        let device = FaultyDevice::new(memory(32 * MIB, 512), 3);
        let options = by_hand(preset, Arc::new(device.clone()));
        let store = Store::open(options.clone()).unwrap();
        (0..200).for_each(|i| store.put(&key(i), &body(i, 9000)).unwrap());
        store.close().unwrap();
        let list = |options: &Options| {
            let store = Store::open(options.clone()).unwrap();
            let mut keys = store.keys();
            let all = keys.by_ref().count();
            (all, keys.unreadable())
        };
        assert_eq!(list(&options), (200, 0), "{preset}");
        let store = Store::open(options.clone()).unwrap();
        device.add(Rule::since(Fault::ReadError, 1));
        let mut keys = store.keys();
        let all = keys.by_ref().count();
        assert!(all < 200 && keys.unreadable() > 0, "{preset}: {all} listed, {} not", keys.unreadable());
        device.clear_rules();
        drop((keys, store));
        assert_eq!(list(&options), (200, 0), "{preset}");
        // One that is closed meanwhile ends, and says so where it has not got everything in memory.
        let store = Store::open(options).unwrap();
        let mut keys = store.keys();
        keys.next().unwrap();
        store.close().unwrap();
        let rest = keys.by_ref().take(500).count();
        assert!(rest == 199 || rest < 199 && keys.unreadable() > 0, "{preset}: {rest}");
    }
}
