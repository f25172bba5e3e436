//! What operations cost, counted at the device's door.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use picaflor::{
    Durability, Mode, Options, Store,
    device::{CountedDevice, MemoryDevice},
};
use picaflor_sim::{Asked, HookedDevice, On};

use rand::Rng;

use crate::common::{KIB, MIB, Zipf, body, by_hand, bypass, counted, key, rng, web_len};

#[test]
fn a_sealed_cluster_is_one_write() {
    let (device, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    let before = device.counts();
    for i in 0..1000 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    store.step().unwrap();
    let (counts, done) = (store.stats().counts, device.counts() - before);
    let sealed = counts.clusters_sealed;
    assert!((48..=50).contains(&sealed), "20 frames of 3,136 bytes in 64 KiB, and two buffers open: {sealed}");
    assert_eq!((done.writes, done.write_bytes), (sealed, sealed * 64 * KIB));
    assert_eq!((done.reads, done.syncs), (0, 0));
    assert_eq!(
        (counts.device_writes, counts.device_written),
        (sealed + 1, done.write_bytes + 4096),
        "and the superblock"
    );
}

#[test]
fn a_get_is_one_read_then_none() {
    let (device, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    for i in 0..500 {
        store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap();
    }
    store.flush().unwrap();
    for i in 500..600 {
        store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap();
    }
    store.step().unwrap();
    let on_device = 480;
    for i in 0..on_device {
        for reads in [1, 0] {
            let before = device.counts();
            assert_eq!(store.get(&key(i)).unwrap().unwrap().body().unwrap(), body(i, 3000));
            let done = device.counts() - before;
            // A cluster read, which is tried now and then, leaves neighbours that need no read.
            let brought_in = store.stats().counts.cluster_reads > 0;
            assert!(done.reads == reads || done.reads == 0 && brought_in, "{i}: {} reads", done.reads);
            assert_eq!((done.writes, done.syncs), (0, 0));
        }
    }
    let counts = store.stats().counts;
    assert_eq!(counts.hits_device, counts.object_reads + counts.cluster_reads);
    assert!(counts.object_reads >= on_device * 6 / 10, "{counts:?}");
}

#[test]
fn absent_keys_need_no_read() {
    let (device, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    for i in 0..10_000 {
        store.put_with(&key(i), &body(i, 700), &bypass()).unwrap();
    }
    store.flush().unwrap();
    let before = device.counts();
    for i in 0..20_000 {
        assert!(store.get(&key(1_000_000 + i)).unwrap().is_none());
        assert!(!store.contains(&key(2_000_000 + i)).unwrap());
    }
    // A tag of 17 bits among at most 16 entries takes another key for this one once in 8,000 times or more.
    let reads = (device.counts() - before).reads;
    assert!(reads <= 10, "{reads} reads for 40,000 absent keys");
    assert_eq!(store.stats().misses["absent"], 40_000);
}

#[test]
fn loading_web_objects_writes_five_percent_more_than_was_put() {
    let (device, mut options) = counted(512 * MIB);
    (options.cluster, options.memory) = (256 << 10, 32 * MIB);
    options.durability = Durability::default();
    let (clock, store) = (options.clock.clone(), Store::open(options).unwrap());
    let mut rng = rng(1);
    let before = device.counts();
    for i in 0..20_000 {
        let len = web_len(&mut rng);
        store.put(&key(i), &body(i, len)).unwrap();
        // 200 MB/s: a commit every second is one for 200 MB.
        clock.advance(Duration::from_nanos(len as u64 * 5));
        if i % 16 == 0 {
            store.step().unwrap();
        }
    }
    store.flush().unwrap();
    let (put, written) = (store.stats().counts.put_bytes, (device.counts() - before).write_bytes);
    let ratio = written as f64 / put as f64;
    println!("loading: {ratio:.4} device bytes per byte put, of {put}");
    assert!((1.0..=1.05).contains(&ratio), "{ratio}");
}

#[test]
fn a_cache_that_evicts_writes_at_most_1_3_times_what_is_put() {
    let (device, mut options) = counted(64 * MIB);
    (options.cluster, options.memory) = (256 << 10, 8 * MIB);
    options.durability = Durability::default();
    let (clock, store) = (options.clock.clone(), Store::open(options).unwrap());
    let (zipf, mut rng) = (Zipf::new(40_000, 0.9), rng(2));
    let lens: Vec<usize> = (0..40_000).map(|_| web_len(&mut rng)).collect();
    let mut steady = None;
    let mut hits = 0u64;
    let asked = 80_000;
    for request in 0..asked {
        let i = zipf.draw(&mut rng);
        if store.get(&key(i)).unwrap().is_some() {
            hits += 1;
        } else {
            store.put(&key(i), &body(i, lens[i as usize])).unwrap();
        }
        clock.advance(Duration::from_micros(50));
        if request % 8 == 0 {
            store.step().unwrap();
        }
        if request == asked / 3 {
            steady = Some((device.counts(), store.stats().counts.put_bytes));
        }
    }
    let counts = store.stats().counts;
    let (before, put_before) = steady.unwrap();
    let written = (device.counts() - before).write_bytes;
    let ratio = written as f64 / (counts.put_bytes - put_before) as f64;
    println!("steady state: {ratio:.4} device bytes per byte put, {:.3} hits", hits as f64 / f64::from(asked));
    assert!(counts.evicted > 5000 && counts.reinserted > 500, "{counts:?}");
    assert!((1.0..=1.3).contains(&ratio), "{ratio} {counts:?}");
}

#[test]
fn an_object_costs_twelve_bytes_of_index() {
    const OBJECTS: u64 = 1_050_000;
    // The device is as large as it would be for objects of 8 KB, and sparse, so that small ones will do.
    let (_, mut options) = counted(8 << 30);
    (options.memory, options.cluster) = (64 * MIB, 1 << 20);
    let store = Store::open(options).unwrap();
    for i in 0..OBJECTS {
        store.put_with(&i.to_le_bytes(), &[], &bypass()).unwrap();
    }
    let stats = store.stats();
    // One put in 10,000 meets another key's entry with its tag, and a cache takes its place.
    assert!((OBJECTS - OBJECTS / 5000..=OBJECTS).contains(&stats.objects), "{}", stats.objects);
    let each = stats.index_bytes as f64 / OBJECTS as f64;
    println!("{each:.2} bytes of index per object, table slack included");
    assert!((8.0..=12.0).contains(&each), "{each}");
    let found = (0..OBJECTS).step_by(997).filter(|i| store.contains(&i.to_le_bytes()).unwrap()).count();
    assert!(found >= 1050, "{found} of 1,054");
}

#[test]
fn of_what_goes_no_more_is_read_than_tells_whose_it_is() {
    let (device, options) = counted(64 * MIB);
    let options = options.mode(Mode::Store);
    let store = Store::open(options.clone()).unwrap();
    (0..20).for_each(|i| store.put(&key(i), &body(i, 40_000)).unwrap());
    // Nothing of it is in memory.
    store.close().unwrap();
    let store = Store::open(options).unwrap();
    assert_eq!(store.stats().objects, 20);
    let before = device.counts();
    store.put(&key(0), b"new").unwrap();
    assert!(store.delete(&key(1)).unwrap());
    let after = device.counts();
    // Of each the end of its cluster and the front, which says that the table there is of this use.
    assert_eq!(after.reads - before.reads, 4);
    // A header may lie in two blocks.
    assert!(after.read_bytes - before.read_bytes <= 4 * 4 * KIB, "{after:?}");
}

#[test]
fn writers_share_one_sync() {
    const PUTS: u64 = 15;
    for writers in [1, 8] {
        // Syncs take a while, as on real devices.
        let slow = |asked: Asked| {
            if asked.on == On::Sync {
                std::thread::sleep(Duration::from_millis(25));
            }
        };
        let device = HookedDevice::new(Arc::new(MemoryDevice::new(32 * MIB)), slow);
        let device = CountedDevice::new(Arc::new(device));
        let options = Options::on(Arc::new(device.clone())).memory(8 * MIB).durability(Durability::EveryPut);
        let store = Store::open(options.with(|options| options.cluster = 64 << 10)).unwrap();
        let (before, commits) = (device.counts(), store.stats().counts.commits);
        let next = AtomicU64::new(0);
        std::thread::scope(|scope| {
            for _ in 0..writers {
                scope.spawn(|| {
                    for _ in 0..PUTS {
                        let i = next.fetch_add(1, Relaxed);
                        store.put(&key(i), &body(i, 500)).unwrap();
                    }
                });
            }
        });
        let (done, commits) = (device.counts() - before, store.stats().counts.commits - commits);
        println!("{writers} writers: {} puts, {} syncs", writers * PUTS, done.syncs);
        assert_eq!(done.syncs, commits, "one sync a commit");
        match writers {
            1 => assert_eq!(done.syncs, PUTS),
            // The last to arrive at each commit may miss it: half of the writers a sync is the least.
            _ => assert!(done.syncs <= PUTS * 2 + 2, "{} syncs for {} puts", done.syncs, writers * PUTS),
        }
    }
}

#[test]
fn a_commit_is_one_batch_and_one_sync() {
    let (device, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    for i in 0..30 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    let before = device.counts();
    store.flush().unwrap();
    let (done, sealed) = (device.counts() - before, store.stats().counts.clusters_sealed);
    assert_eq!((sealed, done.writes), (1, 3), "the sealed cluster, what is in the open one, and the journal's page");
    assert_eq!((done.batches, done.syncs), (1, 1));
}

/// Clusters that 1,000 objects of 3,000 bytes take.
const CLUSTERS_OF_THOUSAND: u32 = 50;

#[test]
fn many_deletes_read_the_table_of_each_cluster_and_share_commits() {
    let (device, mut options) = counted(64 * MIB);
    options.delete_count = 1;
    let store = Store::open(options.clone()).unwrap();
    (0..1000).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
    store.close().unwrap();
    let store = Store::open(options).unwrap();
    let keys: Vec<_> = (0..1010).map(key).collect();
    let before = device.counts();
    let were_there = store.delete_many(&keys.iter().map(|key| &key[..]).collect::<Vec<_>>()).unwrap();
    assert!(were_there.iter().enumerate().all(|(i, was_there)| *was_there == (i < 1000)));
    let done = device.counts() - before;
    // 64 at a time: one batch of reads, and a commit of its own. Of twelve batches the last table is the next one's
    // first, which is asked for before it has come.
    assert_eq!((done.reads, done.syncs), (2 * (u64::from(CLUSTERS_OF_THOUSAND) + 12), 16));
    assert!(done.batches <= 16 + done.writes, "{done:?}");
    assert!((0..1000).all(|i| store.get(&key(i)).unwrap().is_none()));
}

#[test]
fn an_invalidation_reads_nothing_in_a_cache_but_for_large_objects_and_a_table_a_cluster_in_a_store() {
    for (mode, reads) in [(Mode::Cache, 0), (Mode::Store, 2 * u64::from(CLUSTERS_OF_THOUSAND))] {
        let (device, options) = counted(64 * MIB);
        let options = options.mode(mode);
        let store = Store::open(options.clone()).unwrap();
        (0..1000).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
        store.close().unwrap();
        let store = Store::open(options.clone()).unwrap();
        let before = device.counts();
        (0..1000).for_each(|i| store.invalidate(&key(i)).unwrap());
        assert_eq!((device.counts() - before).reads, reads, "{mode:?}");
        assert!((0..1000).all(|i| store.get(&key(i)).unwrap().is_none()), "{mode:?}");
        // Several clusters long: its pieces go with it.
        store.put(b"large", &body(7, 3 * MIB as usize)).unwrap();
        store.flush().unwrap();
        assert!(store.stats().live_bytes > 3 * MIB, "{mode:?}");
        store.invalidate(b"large").unwrap();
        assert_eq!((store.stats().objects, store.stats().live_bytes), (0, 0), "{mode:?}");
        store.flush_deletes().unwrap();
        std::mem::forget(store);
        let store = Store::open(options).unwrap();
        assert!(store.get(b"large").unwrap().is_none(), "{mode:?}");
        assert!((0..1000).all(|i| store.get(&key(i)).unwrap().is_none()), "{mode:?}: none comes back");
    }
}

#[test]
fn a_large_object_leaves_a_store_without_a_look_at_its_chunks() {
    let (device, options) = counted(64 * MIB);
    let options = options.mode(Mode::Store);
    for leaves in [(|store: &Store| assert!(store.delete(b"large").unwrap())) as fn(&Store), |store| {
        store.put(b"large", b"smaller").unwrap()
    }] {
        let store = Store::open(options.clone()).unwrap();
        store.put(b"large", &body(7, 3 * MIB as usize)).unwrap();
        store.close().unwrap();
        let store = Store::open(options.clone()).unwrap();
        let before = device.counts();
        leaves(&store);
        let done = device.counts() - before;
        let clusters = 3 * MIB / u64::from(options.cluster);
        assert!(
            (2 * clusters..2 * clusters + 8).contains(&done.reads),
            "{done:?}: end and front of each, and the manifest"
        );
        assert!(done.read_bytes < 6000 * done.reads, "{done:?}: no chunk");
        assert!(store.stats().live_bytes < 8192);
        store.delete(b"large").unwrap();
        store.close().unwrap();
    }
}

#[test]
fn a_thousand_deletes_are_seven_pages_and_one_sync() {
    // Its log is so long that a thousand deletes are no part of it that would have to be written.
    let (device, mut options) = counted(128 * MIB);
    options.delete_count = 10_000;
    let store = Store::open(options).unwrap();
    for i in 0..1000 {
        store.put(&key(i), &body(i, 100)).unwrap();
    }
    store.flush().unwrap();
    let before = device.counts();
    for i in 0..1000 {
        assert!(store.delete(&key(i)).unwrap());
    }
    assert_eq!(device.counts() - before, picaflor::device::Counts::default(), "nothing before it is due");
    store.flush().unwrap();
    let done = device.counts() - before;
    assert_eq!((done.writes, done.write_bytes, done.syncs), (7, 7 * 4096, 1));
}

#[test]
fn deletes_are_durable_by_their_count() {
    let (device, mut options) = counted(64 * MIB);
    options.delete_count = 100;
    let store = Store::open(options).unwrap();
    let before = device.counts();
    for i in 0..1000 {
        assert!(!store.delete(&key(i)).unwrap());
    }
    assert_eq!((device.counts() - before).syncs, 10);
    let again = Store::open(by_hand(Arc::new(MemoryDevice::new(64 * MIB))).with(|o| o.delete_count = 1)).unwrap();
    let before = again.stats().counts.device_syncs;
    again.delete(b"gone").unwrap();
    assert_eq!(again.stats().counts.device_syncs - before, 1);
}

#[test]
fn storage_age_counts_what_was_deleted_or_replaced_and_not_what_reclaim_moved() {
    for mode in [Mode::Store, Mode::Cache] {
        let (_, options) = counted(16 * MIB);
        let store = Store::open(options.clone().mode(mode)).unwrap();
        let mut rng = rng(3);
        let len = |i: u64| if i.is_multiple_of(20) { 100_000 } else { 5_000 };
        (0..1100).for_each(|i| store.put(&key(i), &body(i, len(i))).unwrap());
        let young = store.stats();
        let framed = young.live_bytes as f64 / young.counts.put_bytes as f64;
        assert_eq!(young.storage_age(), 0.0, "{mode:?}: nothing left");
        assert!((1.0..1.2).contains(&framed), "{mode:?}: {young:?}");
        for round in 0..5000 {
            let i = rng.random_range(0..1100);
            store.put(&key(i), &body(round, len(i))).unwrap();
            store.step().unwrap();
        }
        let stats = store.stats();
        // Whatever came and is not there left, once.
        let all = (stats.counts.removed_bytes + stats.live_bytes) as f64 / stats.counts.put_bytes as f64;
        assert!((0.99..1.01).contains(&(all / framed)), "{mode:?}: {all} {framed} {stats:?}");
        assert!((3.5..6.0).contains(&stats.storage_age()), "{mode:?}: {} {stats:?}", stats.storage_age());
        assert!(stats.counts.reinserted > 100 || mode == Mode::Cache, "nothing was moved: {stats:?}");
        for i in 0..1100 {
            store.delete(&key(i)).unwrap();
        }
        assert!(mode == Mode::Cache || store.stats().live_bytes == 0, "{:?}", store.stats());
        store.put(&key(0), &body(0, 100_000)).unwrap();
        let live = store.stats().live_bytes;
        store.close().unwrap();
        let again = Store::open(options.mode(mode)).unwrap().stats();
        assert_eq!(
            (again.live_bytes, again.counts.removed_bytes),
            (live, 0),
            "{mode:?}: it counts from the opening on"
        );
    }
}

/// A cache empties clusters by their tables: two blocks of each, and the frames that are put again.
#[test]
fn reclaim_reads_tables_and_what_is_put_again() {
    for hot in [0, 40] {
        let (device, options) = counted(32 * MIB);
        let store = Store::open(options).unwrap();
        let before = device.counts();
        // Twice what fits; none of it is in memory, so what is asked for beside is read.
        for i in 0..21_000 {
            store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap();
            if i % 8 == 0 {
                store.step().unwrap();
            }
            if hot > 0 && i % 100 == 0 {
                let hot = i / 100 % hot;
                assert!(store.get(&key(hot)).unwrap().is_some(), "{hot} was used all the while");
            }
        }
        let (done, counts) = (device.counts() - before, store.stats().counts);
        let (emptied, moved) = (counts.reclaimed_clusters, counts.reinserted);
        assert!(emptied > 400 && (moved > 0) == (hot > 0), "{emptied} emptied, {moved} put again");
        let (tables, others) = (2 * emptied, moved + counts.object_reads + counts.cluster_reads);
        assert!((tables..=tables + others).contains(&done.reads), "{} reads for {emptied} and {moved}", done.reads);
        let most = 4 * KIB * tables + 64 * KIB * others;
        assert!((4 * KIB * tables..=most).contains(&done.read_bytes), "{} bytes of {most}", done.read_bytes);
    }
}
