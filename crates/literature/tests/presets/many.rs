//! Many puts and deletes in one call: the same on every row, and one commit where objects are entries of tables.

use std::sync::Arc;

use picaflor::{
    Durability, Error, Options, Put, Store,
    device::{CountedDevice, Device, MemoryDevice},
};
use picaflor_sim::{Fault, FaultyDevice, On, Rule};

use crate::common::{MIB, body, by_hand, key, memory, plain, read};

const TABLES: [&str; 4] = ["pmflf-ts", "pmflf-pl", "pmflf-pfl", "oba"];

fn put_all(store: &Store, objects: &[(Vec<u8>, Vec<u8>)]) -> Result<(), Error> {
    let options = plain();
    let puts: Vec<Put<'_>> = objects.iter().map(|(key, body)| Put::with(key, body, &options)).collect();
    store.put_many(&puts)
}

fn delete_all(store: &Store, numbers: impl Iterator<Item = u64>) -> Vec<bool> {
    let keys: Vec<Vec<u8>> = numbers.map(key).collect();
    store.delete_many(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
}

/// On devices and in folders alike.
fn opened(preset: &str, folder: &std::path::Path) -> (Options, Store) {
    let options = by_hand(preset, memory(48 * MIB, 512)).durability(Durability::EveryPut);
    let options = if options.wants_folder() {
        let options =
            picaflor_literature::preset(preset).unwrap().place(folder.join(preset)).capacity(48 * MIB).memory(16 * MIB);
        options.mode(picaflor::Mode::Store)
    } else {
        options
    };
    (options.clone(), Store::open(options).unwrap())
}

#[test]
fn every_row_puts_and_deletes_many_and_the_last_of_a_key_stays() {
    let folder = tempfile::tempdir().unwrap();
    for preset in picaflor_literature::presets() {
        let (options, store) = opened(preset, folder.path());
        let mut objects: Vec<_> = (0..150).map(|i| (key(i), body(i, 10 + (i as usize * 137) % 7000))).collect();
        // One that is cut in pieces, and one of those before; and each of them twice.
        objects.push((key(150), body(150, 700_000)));
        objects.push((key(3), body(1003, 900_000)));
        objects.push((key(4), body(4, 650_000)));
        objects.push((key(4), body(1004, 5)));
        put_all(&store, &objects).unwrap();
        let expected = |i: u64| match i {
            3 => body(1003, 900_000),
            4 => body(1004, 5),
            150 => body(150, 700_000),
            _ => body(i, 10 + (i as usize * 137) % 7000),
        };
        for i in 0..=150 {
            assert!(read(&store, &key(i)).unwrap() == expected(i), "{preset} {i}");
        }
        // Small ones in place of large ones, whose pieces go.
        put_all(&store, &[(key(3), body(2003, 70)), (key(150), body(2150, 80))]).unwrap();
        assert_eq!(read(&store, &key(3)).unwrap(), body(2003, 70), "{preset}");
        let said = delete_all(&store, (100..200).chain([100]));
        assert!(said[..51].iter().all(|&there| there) && said[51..].iter().all(|&there| !there), "{preset} {said:?}");
        store.close().unwrap();
        let store = Store::open(options).unwrap();
        let report = store.check(|_, _| {});
        assert!(report.is_clean(), "{preset} {report:?}");
        for i in (0..100).filter(|i| *i != 3) {
            let found = read(&store, &key(i)).map(|found| found.len());
            assert_eq!(found, Some(expected(i).len()), "{preset} {i}");
        }
        assert!((100..200).all(|i| read(&store, &key(i)).is_none()), "{preset}");
        assert_eq!(store.keys().count(), 100, "{preset}");
    }
}

#[test]
fn what_is_not_admitted_keeps_all_others_out() {
    for preset in ["picaflor", "buddy", "oba"] {
        let store = Store::open(by_hand(preset, memory(16 * MIB, 512))).unwrap();
        let objects = [(key(1), body(1, 100)), (Vec::new(), body(2, 100)), (key(3), body(3, 100))];
        assert!(matches!(put_all(&store, &objects), Err(Error::Limit { what: "key", .. })), "{preset}");
        assert!(read(&store, &key(1)).is_none(), "{preset}");
        put_all(&store, &[]).unwrap();
        assert!(store.delete_many(&[]).unwrap().is_empty());
    }
}

#[test]
fn many_puts_share_a_commit() {
    for preset in TABLES {
        let device = CountedDevice::new(memory(32 * MIB, 512));
        let store = Store::open(by_hand(preset, Arc::new(device.clone()))).unwrap();
        store.put(b"first", &[1; 2000]).unwrap();
        let objects: Vec<_> = (0..20).map(|i| (key(i), body(i, 2000))).collect();
        let before = device.counts();
        put_all(&store, &objects).unwrap();
        let cost = device.counts() - before;
        // Entries lie side by side behind the tail: one write, and one of their page. In PL heads of lists change with
        // each of them, so a home is due.
        let homes = u64::from(preset == "pmflf-pl");
        assert_eq!((cost.writes, cost.syncs, cost.reads), (2 + homes, 1, 0), "{preset} {cost:?}");
        let before = device.counts();
        delete_all(&store, 0..20);
        let cost = device.counts() - before;
        // The page, and the headers of what is free now. Entries side by side are one read.
        assert_eq!((cost.writes, cost.syncs, cost.reads), (21, 1, 1), "{preset} {cost:?}");
        let counts = store.stats().counts;
        assert_eq!((counts.puts, counts.deletes), (21, 20), "{preset}");
    }
    // One after the other, but one sync for all of them.
    let device = CountedDevice::new(memory(32 * MIB, 512));
    let options = by_hand("picaflor", Arc::new(device.clone())).durability(Durability::EveryPut);
    let store = Store::open(options).unwrap();
    let objects: Vec<_> = (0..20).map(|i| (key(i), body(i, 2000))).collect();
    put_all(&store, &objects[..1]).unwrap();
    let before = device.counts();
    put_all(&store, &objects).unwrap();
    let cost = device.counts() - before;
    assert!(cost.syncs <= 2 && cost.writes <= 6, "{cost:?}");
}

/// Large objects, half of which go: what is left of space between the others is more than a batch needs.
fn with_holes(store: &Store) {
    let large: Vec<_> = (500..510).map(|i| (key(i), body(i, 60_000))).collect();
    put_all(store, &large).unwrap();
    // Durably free when it returns.
    delete_all(store, (500..510).step_by(2));
}

#[test]
fn oba_lays_a_batch_into_the_free_blocks_that_fit_best() {
    let mut taken = Vec::new();
    for (preset, splits_first) in [("pmflf-pfl", true), ("pmflf-pfl", false), ("oba", false)] {
        let device = CountedDevice::new(memory(32 * MIB, 512));
        // With less memory it would be laid in parts.
        let options = by_hand(preset, Arc::new(device.clone())).memory(16 * MIB).splits_first(splits_first);
        let store = Store::open(options).unwrap();
        with_holes(&store);
        let objects: Vec<_> = (0..40).map(|i| (key(i), body(i, 3000 + i as usize * 10))).collect();
        let before = device.counts();
        put_all(&store, &objects).unwrap();
        let cost = device.counts() - before;
        taken.push((cost.writes, cost.syncs));
        for (key, body) in &objects {
            assert!(read(&store, key).as_ref() == Some(body), "{preset}");
        }
    }
    // Put as each would be alone, and where blocks are split first, one goes to each of the free blocks, for what a
    // split leaves waits for a sync, and the others behind the tail. In the paper's order all go there, and a home that
    // says where it is now is due. Together they share three of those blocks, one write each, and one sync more has
    // them durable before their page names them. Their page is counted with all.
    assert_eq!(taken, [(7, 1), (3, 1), (4, 2)]);
}

/// What became of a call that a crash cut short.
fn verify(store: &Store, returned: bool, deleted: bool, what: &str) {
    for i in 0..40 {
        let found = read(store, &key(i));
        let old = (i % 2 == 0).then(|| body(i, 4000));
        let new = (!deleted).then(|| body(i + 7, 3000 + i as usize * 10));
        let fine = if returned { found == new } else { found == old || found == new };
        assert!(fine, "{what}: {i}, returned {returned}, {:?}", found.map(|found| found.len()));
    }
    for i in (501..510).step_by(2) {
        assert!(read(store, &key(i)).unwrap() == body(i, 60_000), "{what}: {i}");
    }
}

#[test]
fn wherever_a_crash_comes_each_object_is_whole_or_as_it_was() {
    let mut cut_short = 0;
    for (preset, deleted) in TABLES.into_iter().flat_map(|preset| [(preset, false), (preset, true)]) {
        for (seed, on) in [On::Any, On::Write, On::Sync].into_iter().cycle().take(9).enumerate() {
            for point in 1.. {
                let what = format!("{preset} {deleted} {seed} {on:?} {point}");
                let medium = FaultyDevice::new(Arc::new(MemoryDevice::with_block_size(8 * MIB, 512)), seed as u64);
                let options = by_hand(preset, Arc::new(medium.clone()) as Arc<dyn Device>);
                let store = Store::open(options.clone()).unwrap();
                with_holes(&store);
                let before: Vec<_> = (0..40).step_by(2).map(|i| (key(i), body(i, 4000))).collect();
                put_all(&store, &before).unwrap();
                medium.add(Rule::nth(Fault::Crash(on), point));
                let returned = if deleted {
                    let keys: Vec<Vec<u8>> = (0..40).map(key).collect();
                    store.delete_many(&keys.iter().map(Vec::as_slice).collect::<Vec<_>>()).is_ok()
                } else {
                    let bypassing = plain().bypass_memory(true);
                    let objects: Vec<_> = (0..40).map(|i| (key(i), body(i + 7, 3000 + i as usize * 10))).collect();
                    let puts = objects.iter().map(|(key, body)| Put::with(key, body, &bypassing));
                    store.put_many(&puts.collect::<Vec<_>>()).is_ok()
                };
                assert_eq!(returned, !medium.is_crashed(), "{what}");
                drop(store);
                medium.clear_rules();
                medium.revive().unwrap();
                let store = Store::open(options.clone()).unwrap();
                verify(&store, returned, deleted, &what);
                // What was seen stays, whatever is put into what was free before.
                let seen: Vec<_> = (0..40).map(|i| read(&store, &key(i))).collect();
                while store.step().unwrap() {}
                let others: Vec<_> = (700..720).map(|i| (key(i), body(i, 9000 + i as usize % 7 * 3000))).collect();
                others.iter().for_each(|(key, body)| store.put(key, body).unwrap());
                put_all(&store, &others[..5]).unwrap();
                medium.crash().unwrap();
                drop(store);
                medium.revive().unwrap();
                let store = Store::open(options).unwrap();
                verify(&store, returned, deleted, &what);
                for (i, seen) in seen.iter().enumerate() {
                    assert!(read(&store, &key(i as u64)) == *seen, "{what}: {i} is not what it was");
                }
                while store.step().unwrap() {}
                let report = store.check(|_, _| {});
                assert!(report.is_clean() && report.orphans == 0, "{what} {report:?}");
                cut_short += u64::from(!returned);
                if returned {
                    break;
                }
            }
        }
    }
    assert!(cut_short > 150, "{cut_short}");
}
