//! A store's compaction and clusters that cannot be read, or whose tables do not say all that is live in them: nothing
//! is lost, and the others are emptied in their place.

use std::{collections::BTreeSet, sync::Arc};

use picaflor::{
    Error, Options, PutOptions, Store,
    device::{Device, MemoryDevice},
};
use picaflor_format::{BLOCK, zone::Map};
use picaflor_sim::{Fault, FaultyDevice, Rule};

use crate::common::{self, MIB, body, by_hand, read};

const CAPACITY: u64 = 16 * MIB;
const CLUSTER: u32 = 64 << 10;
const LEN: usize = 6000;

/// No two of these have one place in the index: a put would read the other, and a store takes no read error for no.
fn key(i: u64) -> Vec<u8> {
    format!("http://www.example.org/a/path/of/some/length/objects/{i:07}").into_bytes()
}

fn bypass() -> PutOptions {
    PutOptions::new().bypass_memory(true)
}

/// A device, and the options of a store on it that no other steps.
fn store_on(seed: u64) -> (Arc<FaultyDevice>, impl Fn() -> Options) {
    let device = Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(CAPACITY)), seed));
    let options = {
        let device = Arc::clone(&device);
        move || by_hand("picaflor", device.clone())
    };
    (device, options)
}

fn map() -> Map {
    Map::new(CAPACITY, CLUSTER).unwrap()
}

/// Puts objects from this one on until the store is full. Returns the first that found no room.
fn fill(store: &Store, first: u64) -> u64 {
    for i in first.. {
        match store.put_with(&key(i), &body(i, LEN), &bypass()) {
            Ok(()) => {}
            Err(Error::Full { .. }) => return i,
            Err(error) => panic!("object {i}: {error}"),
        }
    }
    unreachable!()
}

/// A full store, opened anew, of which the objects for which `keep` says so are left; their numbers.
fn thinned(options: Options, again: Options, keep: impl Fn(u64) -> bool) -> (Store, BTreeSet<u64>, u64) {
    let store = Store::open(options).unwrap();
    let all = fill(&store, 0);
    store.close().unwrap();
    let store = Store::open(again).unwrap();
    let mut left: BTreeSet<u64> = (0..all).collect();
    left.retain(|i| keep(*i) || !store.delete(&key(*i)).unwrap());
    store.flush().unwrap();
    (store, left, all)
}

fn all_there(store: &Store, left: &BTreeSet<u64>, when: &str) {
    for i in left {
        let found = store.get(&key(*i)).unwrap_or_else(|error| panic!("{when}: object {i}: {error}"));
        assert!(found.is_some_and(|object| *object.body().unwrap() == *body(*i, LEN)), "{when}: object {i} is lost");
    }
}

#[test]
fn a_store_takes_puts_though_clusters_cannot_be_read() {
    let taken: Vec<u64> = [false, true]
        .into_iter()
        .map(|fails| {
            let (device, options) = store_on(1);
            let (store, left, all) = thinned(options(), options(), |i| i % 2 == 0);
            let bad = map().cluster_start(10)..map().cluster_start(20);
            if fails {
                device.add(Rule::rate(Fault::ReadError, 1.0).within(bad));
            }
            let end = fill(&store, all);
            assert_eq!(store.stats().volumes[0].clusters_aside > 0, fails);
            device.clear_rules();
            all_there(&store, &left, "after compaction");
            all_there(&store, &(all..end).collect(), "after compaction");
            store.close().unwrap();
            let store = Store::open(options()).unwrap();
            all_there(&store, &left, "opened again");
            end - all
        })
        .collect();
    let lost = 10 * u64::from(CLUSTER) / LEN as u64;
    assert!(taken[0] > 500 && taken[1] + lost >= taken[0], "healthy, and with ten bad clusters: {taken:?}");
}

#[test]
fn a_cluster_with_nothing_live_is_used_again_though_it_cannot_be_read() {
    let (device, options) = store_on(2);
    let (store, _, all) = thinned(options(), options(), |_| false);
    device.add(Rule::rate(Fault::ReadError, 1.0).within(map().cluster_start(0)..map().clusters.end()));
    let end = fill(&store, all);
    device.clear_rules();
    assert!(end - all > all / 10 * 9, "{} of {all} were taken again", end - all);
    all_there(&store, &(all..end).collect(), "after compaction");
    store.close().unwrap();
}

#[test]
fn compaction_moves_what_a_damaged_table_does_not_name() {
    let (device, options) = store_on(3);
    let (store, left, all) = thinned(options(), options(), |i| i % 3 == 0);
    let zeros = vec![0; BLOCK];
    for id in (0..map().cluster_count()).step_by(2) {
        device.write(map().cluster_start(id), &zeros).unwrap();
        device.write(map().cluster_start(id) + u64::from(CLUSTER) - BLOCK as u64, &zeros).unwrap();
    }
    // What lies in the zeroed blocks is damaged, and said so; the rest is served.
    let served: BTreeSet<u64> =
        left.into_iter().filter(|i| store.get(&key(*i)).is_ok_and(|found| found.is_some())).collect();
    assert!(served.len() > all as usize / 5, "{} of {all}", served.len());
    let end = fill(&store, all);
    assert!(end > all + 500, "{end}");
    all_there(&store, &served, "after compaction");
    store.close().unwrap();
    let store = Store::open(options()).unwrap();
    all_there(&store, &served, "opened again");
    let keys: BTreeSet<_> = store.keys().map(|entry| entry.key.to_vec()).collect();
    assert!(served.iter().all(|i| keys.contains(&key(*i))));
}

#[test]
fn a_listing_and_an_audit_find_what_a_damaged_table_does_not_name() {
    let (device, options) = store_on(4);
    let store = Store::open(options()).unwrap();
    (0..100).for_each(|i| store.put_with(&key(i), &body(i, LEN), &bypass()).unwrap());
    store.close().unwrap();
    let zeros = vec![0; BLOCK];
    device.write(map().cluster_start(2), &zeros).unwrap();
    device.write(map().cluster_start(3) - BLOCK as u64, &zeros).unwrap();
    let store = Store::open(options().with(|options| options.read_only = true)).unwrap();
    let report = store.check(|_, _| ());
    assert_eq!(report.unreadable_clusters, [2], "{report:?}");
    assert!(!report.is_clean());
    let served = (0..100).filter(|i| store.get(&key(*i)).is_ok_and(|found| found.is_some())).count() as u64;
    assert_eq!((report.intact, report.entries), (served, 100), "{report:?}");
    assert_eq!(store.keys().count() as u64, served);
}

#[test]
fn compaction_reads_again_what_was_bad_on_its_way() {
    let (device, options) = store_on(5);
    let (store, left, all) = thinned(options(), options(), |i| i % 2 == 0);
    let mut end = all;
    // One bad read a put: of a table, of a cluster, or of another.
    for nth in (1..=4).cycle() {
        device.clear_rules();
        device.add(Rule::nth(Fault::Flicker, nth).within(map().cluster_start(0)..map().clusters.end()));
        match store.put_with(&key(end), &body(end, LEN), &bypass()) {
            Ok(()) => end += 1,
            Err(Error::Full { .. }) => break,
            Err(error) => panic!("{error}"),
        }
    }
    device.clear_rules();
    assert!(end > all + 500, "{end}");
    assert_eq!(store.stats().counts.damaged, 0);
    all_there(&store, &left, "after compaction");
    assert_eq!(read(&store, &key(all)), Some(body(all, LEN)));
    store.close().unwrap();
}

#[test]
fn a_put_reads_again_before_it_takes_the_place_of_another_key() {
    const COUNT: u64 = 40_000;
    let (device, options) = store_on(6);
    let store = Store::open(options()).unwrap();
    let mut reads = 0;
    for i in 0..COUNT {
        device.clear_rules();
        device.add(Rule::nth(Fault::Flicker, 1).within(map().cluster_start(0)..map().clusters.end()));
        let before = store.stats().counts.device_reads;
        store.put_with(&common::key(i), &body(i, 100), &bypass()).unwrap();
        reads += store.stats().counts.device_reads - before;
    }
    device.clear_rules();
    assert!(reads > 0, "no two of these keys have one place in the index");
    for i in 0..COUNT {
        assert!(read(&store, &common::key(i)).is_some_and(|found| found == body(i, 100)), "object {i} is lost");
    }
}
