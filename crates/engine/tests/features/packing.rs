//! The row `hummingbird`: what its answers cost and where they lay objects, counted at the device's door.

use std::{collections::HashSet, sync::Arc, thread, time::Duration};

use picaflor::{
    Daemon, Daemons, Mode, NextCluster, Options, PackOrder, PutOptions, Store,
    device::{CountedDevice, Device, MemoryDevice},
};
use picaflor_sim::kill;

use crate::common::{KIB, MIB, body, by_hand, bypass, counted, key, plain, read, twins};

/// As the others of these tests, and this row.
fn hummingbird(bytes: u64) -> (CountedDevice, Options) {
    let (device, options) = counted(bytes);
    (device, options.rows(picaflor_literature::ROWS).as_preset("hummingbird").unwrap())
}

fn drop_memory(store: Store, options: &Options) -> Store {
    store.close().unwrap();
    Store::open(options.clone()).unwrap()
}

#[test]
fn objects_wait_without_a_write_and_are_packed_by_the_cluster() {
    let (device, options) = hummingbird(64 * MIB);
    let store = Store::open(options.with(|options| options.unpacked = MIB)).unwrap();
    let before = device.counts();
    for i in 0..250 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    for i in 0..250 {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000));
    }
    // Replaced or deleted while they wait: the device hears nothing.
    store.put(&key(7), &body(70, 100)).unwrap();
    assert!(store.delete(&key(8)).unwrap() && store.get(&key(8)).unwrap().is_none());
    assert_eq!(store.stats().counts.clusters_sealed, 0);
    let done = device.counts() - before;
    assert_eq!((done.writes, done.reads, done.syncs), (0, 0, 0));
    assert_eq!(store.stats().memory_objects, 249);
    for i in 250..600 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    store.step().unwrap();
    let (counts, done) = (store.stats().counts, device.counts() - before);
    let left = store.stats().memory_objects;
    assert!((200..260).contains(&left), "three quarters of a MiB still wait: {left}");
    assert_eq!(counts.packed + left, 599);
    assert!(counts.packed / counts.clusters_sealed >= 19, "20 fit: {counts:?}");
    assert_eq!((done.writes, done.write_bytes), (counts.clusters_sealed, counts.clusters_sealed * 64 * KIB));
    assert_eq!((done.reads, done.syncs), (0, 0));
}

#[test]
fn daemons_run_when_the_application_calls_them() {
    for daemons in [Daemons::Manual, Daemons::Threads] {
        let (device, options) = hummingbird(64 * MIB);
        let store = Store::open(options.daemons(daemons)).unwrap();
        (0..100).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
        assert_eq!(store.stats().counts.packed, 0);
        // 20 fit: those asked for last, and those put first.
        assert!(store.run_daemon(Daemon::PackFromHead).unwrap() && store.run_daemon(Daemon::Pack).unwrap());
        assert_eq!(store.stats().counts.packed, 40);
        while store.step().unwrap() {}
        store.settle(Duration::from_secs(20));
        let places = |i: u64| store.locate(&key(i)).unwrap().unwrap().first().map(|extent| extent.offset >> 16);
        for part in [0..20, 80..100] {
            let places: HashSet<_> = part.map(places).collect();
            assert_eq!(places.len(), 1, "{daemons:?}: in one cluster, on the device: {places:?}");
            assert!(!places.contains(&None), "{daemons:?}");
        }
        assert_eq!(places(50), None, "{daemons:?}: it waits");
        while store.run_daemon(Daemon::Pack).unwrap() {
            store.step().unwrap();
        }
        assert_eq!(store.stats().counts.packed, 100, "{daemons:?}");
        store.settle(Duration::from_secs(20));
        assert!(store.run_daemon(Daemon::FreeMemory(0)).unwrap(), "{daemons:?}");
        assert!(!store.run_daemon(Daemon::FreeMemory(0)).unwrap(), "{daemons:?}: nothing is left");
        let before = device.counts();
        (0..100).for_each(|i| assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000)));
        assert_eq!((device.counts() - before).reads, 4, "{daemons:?}: the fifth cluster is open still");
        assert!(!store.run_daemon(Daemon::FreeDisk).unwrap(), "{daemons:?}: nothing is too old, nothing is short");
    }
}

#[test]
fn clusters_of_32_kib_are_packed_and_read_as_those_of_64_are() {
    for cluster in [32, 64] {
        let (device, options) = hummingbird(64 * MIB);
        let options = options.with(|options| (options.cluster, options.unpacked) = (cluster << 10, MIB));
        let store = Store::open(options.clone()).unwrap();
        (0..600).for_each(|i| store.put(&key(i), &body(i, 3000)).unwrap());
        let store = drop_memory(store, &options);
        let before = device.counts();
        (0..600).for_each(|i| assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000)));
        let done = device.counts() - before;
        assert_eq!(done.read_bytes, done.reads * u64::from(cluster) * KIB);
        let each = 600 / done.reads;
        assert!((cluster as u64 / 4..=cluster as u64 / 3).contains(&each), "{each} of 3 KB in {cluster} KiB");
    }
}

#[test]
fn a_get_reads_the_whole_cluster_once_and_its_objects_share_the_bytes() {
    let (device, options) = hummingbird(64 * MIB);
    let store = Store::open(options.clone()).unwrap();
    for i in 0..200 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    let store = drop_memory(store, &options);
    let before = device.counts();
    for i in 0..200 {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000));
    }
    let done = device.counts() - before;
    assert_eq!((done.reads, done.read_bytes), (10, 10 * 64 * KIB), "20 objects a read");
    let (one, other) = (store.get(&key(0)).unwrap().unwrap(), store.get(&key(1)).unwrap().unwrap());
    let at = |object: &picaflor::Object| object.body_in_memory().unwrap().as_ptr() as usize;
    assert!(at(&one).abs_diff(at(&other)) < 64 << 10, "both lie in the cluster that was read");
    assert_eq!(store.stats().counts.cluster_reads, 10);
}

/// Puts an object of each set at a time, beside the set's page, so that those of one are as far apart as can be.
fn put_in_turn(store: &Store, sets: &[(u64, Vec<u64>)]) {
    for at in 0..sets[0].1.len() {
        for (page, set) in sets {
            store.put(&key(set[at]), &body(set[at], 2500)).unwrap();
            if set[at] != *page {
                store.collocate(&key(*page), &key(set[at]));
            }
        }
    }
}

/// So many pages, and beside each the objects that follow it, numbered from this one on.
fn pages(count: u64, objects: std::ops::Range<u64>) -> Vec<(u64, Vec<u64>)> {
    (0..count).map(|page| (page * 100, objects.clone().map(|object| page * 100 + object).collect())).collect()
}

/// Reads of clusters for each of these sets, asked for whole.
fn reads_of_sets(store: &Store, device: &CountedDevice, sets: &[(u64, Vec<u64>)]) -> Vec<u64> {
    let reads = |(_, set): &(u64, Vec<u64>)| {
        let before = device.counts();
        set.iter().for_each(|i| assert_eq!(read(store, &key(*i)).unwrap(), body(*i, 2500)));
        (device.counts() - before).reads
    };
    sets.iter().map(reads).collect()
}

/// The same of these sets, put in turn into a store of their own.
fn reads_once_packed(sets: &[(u64, Vec<u64>)]) -> Vec<u64> {
    let (device, options) = hummingbird(64 * MIB);
    let store = Store::open(options.clone()).unwrap();
    put_in_turn(&store, sets);
    let store = drop_memory(store, &options);
    reads_of_sets(&store, &device, sets)
}

#[test]
fn hinted_objects_land_in_one_cluster_whatever_came_between() {
    // Pages and their images: by LRU alone, five clusters each.
    let reads = reads_once_packed(&pages(20, 0..5));
    assert!(reads.iter().all(|reads| *reads <= 1), "a page took more than a read: {reads:?}");
}

#[test]
fn a_set_larger_than_a_cluster_lies_in_as_few_as_can_be() {
    // 100 KB each.
    let reads = reads_once_packed(&pages(20, 0..40));
    assert!(reads.iter().all(|reads| *reads <= 3), "two clusters and a bit each: {reads:?}");
}

#[test]
fn what_is_asked_for_beside_a_page_that_was_packed_before_lies_together() {
    let (device, options) = hummingbird(64 * MIB);
    let store = Store::open(options.clone()).unwrap();
    put_in_turn(&store, &pages(20, 0..1));
    let store = drop_memory(store, &options);
    let sets = pages(20, 1..8);
    put_in_turn(&store, &sets);
    let store = drop_memory(store, &options);
    let reads = reads_of_sets(&store, &device, &sets);
    assert!(reads.iter().all(|reads| *reads <= 1), "a cluster holds three sets: {reads:?}");
}

#[test]
fn an_object_lies_in_several_clusters_if_several_ask_for_it() {
    let (device, options) = hummingbird(64 * MIB);
    let store = Store::open(options.clone().with(|options| options.unpacked = 256 * KIB)).unwrap();
    let (logo, page) = (9000, 9001);
    store.put(&key(logo), &body(logo, 2000)).unwrap();
    for i in 0..150 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    store.step().unwrap();
    assert!(store.stats().counts.packed > 0, "the logo is in a cluster, which memory holds");
    store.put(&key(page), &body(page, 2000)).unwrap();
    store.collocate(&key(page), &key(logo));
    for i in 200..350 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    store.step().unwrap();
    assert_eq!(store.stats().counts.copies_placed, 1, "beside the page");
    assert_eq!(read(&store, &key(logo)).unwrap(), body(logo, 2000));
    store.close().unwrap();
    drop(device);
}

#[test]
fn a_copy_takes_no_entry_of_another_key_of_its_place() {
    let (_, options) = hummingbird(64 * MIB);
    let store = Store::open(options.with(|options| options.unpacked = 256 * KIB)).unwrap();
    let ([logo, twin], page) = (twins(7), key(2 << 20));
    let fill = |from: u64, count| {
        for i in from..from + count {
            store.put(&key(i), &body(i, 3000)).unwrap();
        }
        store.step().unwrap();
    };
    store.put(&logo, &body(1, 2000)).unwrap();
    fill(1 << 20, 150);
    store.put(&page, &body(2, 2000)).unwrap();
    store.collocate(&page, &logo);
    fill(3 << 20, 150);
    assert_eq!(store.stats().counts.copies_placed, 1, "beside the page");
    // A cache gives it the entry of the other, which is a miss from here on.
    store.put(&twin, &body(3, 2500)).unwrap();
    fill(4 << 20, 5000);
    // Its cluster is read, and with it the copy.
    assert_eq!(read(&store, &page).unwrap(), body(2, 2000));
    assert!(store.get(&logo).unwrap().is_none());
    assert_eq!(read(&store, &twin).as_deref(), Some(&*body(3, 2500)));
    assert_eq!(store.stats().counts.damaged, 0);
}

/// The keys, as their objects lie on the device.
fn in_order(store: &Store) -> Vec<bytes::Bytes> {
    let mut all: Vec<_> = store.keys().map(|entry| entry.key).collect();
    all.sort_by_key(|key| store.locate(key).unwrap().unwrap()[0].offset);
    all
}

#[test]
fn hints_of_objects_that_are_gone_are_dropped() {
    let (_, options) = hummingbird(64 * MIB);
    let store = Store::open(options.clone()).unwrap();
    for i in 0..40 {
        store.put(&key(i), &body(i, 2500)).unwrap();
    }
    // The page that named the last image is deleted, and put again without a hint.
    store.collocate(&key(0), &key(39));
    store.delete(&key(0)).unwrap();
    store.put(&key(0), &body(0, 2500)).unwrap();
    // A page that names what is gone takes none along.
    store.collocate(&key(1), &key(38));
    store.delete(&key(38)).unwrap();
    store.flush().unwrap();
    let order = in_order(&store);
    let at = |i: u64| order.iter().position(|found| *found == key(i)).unwrap();
    assert_eq!(order.len(), 39);
    assert_eq!((at(1), at(2)), (0, 1), "nobody beside the first");
    assert!(at(39) + 1 == at(0), "by LRU alone: {} {}", at(39), at(0));
}

#[test]
fn the_order_of_packing_is_a_choice() {
    let first_packed = |order: PackOrder| {
        let (_, options) = hummingbird(64 * MIB);
        let store = Store::open(options.with(|options| options.pack_order = order)).unwrap();
        for i in 0..12 {
            store.put(&key(i), &body(i, if i == 5 { 9000 } else { 2500 })).unwrap();
        }
        assert!(store.get(&key(0)).unwrap().is_some());
        store.flush().unwrap();
        in_order(&store).swap_remove(0)
    };
    assert_eq!(first_packed(PackOrder::LruTail), key(1), "the first was asked for since");
    assert_eq!(first_packed(PackOrder::LruHead), key(0));
    assert_eq!(first_packed(PackOrder::GreedyDualSize), key(5), "the longest is worth least");
}

#[test]
fn the_next_cluster_is_the_one_the_layout_says() {
    for next in [NextCluster::Overwrite, NextCluster::ClosestToWrite, NextCluster::ClosestToAccess] {
        let (device, options) = hummingbird(64 * MIB);
        let options = options.with(|options| options.next_cluster = next);
        let store = Store::open(options.clone()).unwrap();
        for i in 0..4000 {
            store.put(&key(i), &body(i, 3000)).unwrap();
        }
        let store = drop_memory(store, &options);
        // The arm goes to the first cluster; then one cluster is written.
        assert_eq!(read(&store, &key(0)).unwrap(), body(0, 3000));
        let before = heads(&device);
        for i in 5000..5045 {
            store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap();
        }
        store.step().unwrap();
        let after = heads(&device);
        let written: Vec<usize> = (0..before.len()).filter(|at| after[*at] != before[*at]).collect();
        let blank = before.iter().position(|head| head.iter().all(|byte| *byte == 0)).unwrap();
        assert_eq!(written.len(), 1, "{next:?}");
        match next {
            NextCluster::ClosestToAccess => assert!(written[0] <= blank, "near what was read: {}", written[0]),
            _ => assert!(written[0] >= blank, "{next:?}, near the last write: {}", written[0]),
        }
    }
}

/// The first bytes of each cluster of 64 KiB.
fn heads(device: &CountedDevice) -> Vec<Vec<u8>> {
    let mut block = picaflor::device::AlignedBuf::zeroed(4096);
    let mut head = |at: u64| {
        device.read(at, &mut block).unwrap();
        block[..64].to_vec()
    };
    (7..device.capacity() / (64 * KIB)).map(|cluster| head(cluster * 64 * KIB)).collect()
}

#[test]
fn the_cluster_that_was_not_used_for_longest_gives_its_place() {
    let (_, options) = hummingbird(16 * MIB);
    let options = options.with(|options| options.memory = 2 * MIB);
    let store = Store::open(options).unwrap();
    // Three times what fits, while a few of the first are asked for again and again.
    for i in 0..15_000 {
        store.put(&key(i), &body(i, 3000)).unwrap();
        if i % 10 == 0 {
            assert!(store.get(&key(i / 10 % 60)).unwrap().is_some(), "{} was used all the while", i / 10 % 60);
            store.step().unwrap();
        }
    }
    let counts = store.stats().counts;
    assert!(counts.evicted > 8000 && counts.reinserted == 0, "{counts:?}");
    assert!(store.get(&key(500)).unwrap().is_none(), "nobody asked for it");
}

#[test]
fn a_cluster_leaves_without_a_read_and_one_of_an_earlier_run_with_one() {
    let (device, options) = hummingbird(16 * MIB);
    let options = options.with(|options| options.memory = 2 * MIB);
    let fill = |store: &Store, from: u64, count: u64| {
        let (before, emptied) = (device.counts(), store.stats().counts.reclaimed_clusters);
        for i in from..from + count {
            store.put(&key(i), &body(i, 3000)).unwrap();
            if i % 10 == 0 {
                store.step().unwrap();
            }
        }
        (device.counts() - before, store.stats().counts.reclaimed_clusters - emptied)
    };
    let store = Store::open(options.clone()).unwrap();
    let (done, emptied) = fill(&store, 0, 15_000);
    assert!(emptied > 400, "three times what fits: {emptied}");
    assert_eq!(done.reads, 0, "memory knows what lies in them");
    let evicted = store.stats().counts.evicted;
    assert!(evicted > 8000 && store.get(&key(500)).unwrap().is_none(), "{evicted}");
    let store = drop_memory(store, &options);
    // The hot ones come back to memory.
    while store.step().unwrap() {}
    let (done, emptied) = fill(&store, 20_000, 1500);
    assert!(emptied > 40 && done.reads > 20 && done.reads <= emptied, "{} reads for {emptied}", done.reads);
    assert_eq!(done.read_bytes, done.reads * 64 * KIB, "all of each, by one read");
    assert_eq!(store.stats().counts.damaged, 0);
}

#[test]
fn what_waits_and_what_was_read_share_memory_as_they_were_asked_for() {
    let (_, options) = hummingbird(64 * MIB);
    let store = Store::open(options.with(|options| options.memory = 4 * MIB)).unwrap();
    for i in 0..4000 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    store.step().unwrap();
    let waiting = || store.stats().memory_objects;
    assert!(waiting() > 550, "nobody else wants it: {} of 1,300 that memory would hold", waiting());
    let packed = store.stats().counts.packed;
    // Nothing is put, and what was read since is what stays.
    for i in 0..1900 {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 3000));
        store.step().unwrap();
    }
    assert!(waiting() < 100, "{} still wait", waiting());
    assert!(store.stats().counts.packed > packed + 500);
    let reads = store.stats().counts.cluster_reads;
    (1600..1900).for_each(|i| assert!(store.get(&key(i)).unwrap().is_some()));
    assert_eq!(store.stats().counts.cluster_reads, reads, "it has nearly all of memory");
}

#[test]
fn a_put_that_finds_memory_full_packs_what_was_asked_for_least_recently() {
    let (device, options) = hummingbird(64 * MIB);
    let store = Store::open(options.with(|options| options.memory = 4 * MIB)).unwrap();
    // The daemons are not called.
    for i in 0..4000 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    let (counts, done) = (store.stats().counts, device.counts());
    assert!(counts.packed > 2500, "{counts:?}");
    // The first cluster is the superblock's and the journal's; each that is packed is written as soon as it is.
    assert!(counts.clusters_sealed > 120 && done.writes >= counts.clusters_sealed, "{done:?}");
    assert!(store.stats().memory_used <= 4 * MIB, "{}", store.stats().memory_used);
}

#[test]
fn what_bypasses_memory_is_not_held_when_it_is_read() {
    let (device, options) = hummingbird(64 * MIB);
    let store = Store::open(options.clone()).unwrap();
    let long = body(1, 300_000);
    store.put_with(&key(1), &long, &bypass()).unwrap();
    store.put_with(&key(2), &body(2, 9000), &bypass()).unwrap();
    let store = drop_memory(store, &options);
    let before = store.stats().memory_used;
    for _ in 0..2 {
        let reads = device.counts();
        assert_eq!(read(&store, &key(2)).unwrap(), body(2, 9000));
        assert_eq!((device.counts() - reads).reads, 1, "each time");
    }
    assert!(store.stats().memory_used < before + 3 * 64 * KIB);
    assert_eq!(read(&store, &key(1)).unwrap(), long);
}

#[test]
fn a_flush_packs_what_waits_and_a_crash_finds_it() {
    let device: Arc<dyn Device> = Arc::new(MemoryDevice::new(16 * MIB));
    let options = || by_hand(Arc::clone(&device)).rows(picaflor_literature::ROWS).as_preset("hummingbird").unwrap();
    let store = Store::open(options()).unwrap();
    for i in 0..100 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    store.flush().unwrap();
    for i in 100..200 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    // It is not closed.
    kill(store);
    let store = Store::open(options()).unwrap();
    for i in 0..200 {
        let found = read(&store, &key(i));
        assert_eq!(found, (i < 100).then(|| body(i, 3000)), "{i}: what waited was never promised");
    }
}

#[test]
fn eight_threads_on_a_file_find_what_they_put() {
    ["hummingbird", "picaflor"].into_iter().for_each(eight_threads_on_a_file);
}

fn eight_threads_on_a_file(preset: &str) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("a");
    let options = || picaflor_literature::preset(preset).unwrap().place(&path).capacity(64 * MIB).memory(8 * MIB);
    let store = Store::open(options()).unwrap();
    let (threads, objects) = (8, 1500);
    let workers: Vec<_> = (0..threads)
        .map(|thread| {
            let store = store.clone();
            thread::spawn(move || {
                let mine = |i: u64| thread * 100_000 + i;
                for i in 0..objects {
                    let beside = plain().neighbour(key(mine(i / 8 * 8)));
                    store.put_with(&key(mine(i)), &body(mine(i), 500 + (i * 37 % 9000) as usize), &beside).unwrap();
                    for back in [0, 1, 7, 90] {
                        let Some(j) = i.checked_sub(back) else { continue };
                        let found = read(&store, &key(mine(j)));
                        let expected = body(mine(j), 500 + (j * 37 % 9000) as usize);
                        assert!(found.is_none_or(|found| found == expected), "thread {thread}, object {j}");
                    }
                }
            })
        })
        .collect();
    workers.into_iter().for_each(|worker| worker.join().unwrap());
    let packed = store.stats().counts.packed;
    assert!(packed > 4000, "{preset}: {packed} were packed");
    store.close().unwrap();
    let store = Store::open(options().mode(Mode::Cache)).unwrap();
    let mut found = 0;
    for thread in 0..threads {
        for i in 0..objects {
            let Some(bytes) = read(&store, &key(thread * 100_000 + i)) else { continue };
            assert!(bytes == body(thread * 100_000 + i, 500 + (i * 37 % 9000) as usize), "{thread} {i}");
            found += 1;
        }
    }
    assert!(found > 8000, "{preset}: {found} of them are still there");
}

#[test]
fn deletes_become_durable_alone_and_what_waits_goes_on_waiting() {
    let (device, options) = hummingbird(64 * MIB);
    let store = Store::open(options).unwrap();
    for i in 0..30 {
        store.put(&key(i), &body(i, 3000)).unwrap();
    }
    let ways: [&dyn Fn() -> picaflor::Result<()>; 2] =
        [&|| store.flush_deletes(), &|| futures_executor::block_on(store.flush_deletes_async())];
    for (n, flush) in (7..).zip(ways) {
        assert!(store.delete(&key(n)).unwrap());
        let before = device.counts();
        flush().unwrap();
        let done = device.counts() - before;
        assert_eq!((done.writes, done.write_bytes, done.syncs), (1, 4096, 1), "the journal's page");
    }
    assert_eq!((store.stats().memory_objects, store.stats().counts.packed), (28, 0));
    let before = device.counts();
    store.flush().unwrap();
    assert!((device.counts() - before).write_bytes > 28 * 3000 && store.stats().counts.packed == 28);
}

#[test]
fn what_waits_when_a_full_cache_is_flushed_or_closed_finds_room() {
    for name in ["picaflor", "hummingbird"] {
        for closes in [true, false] {
            let device = Arc::new(MemoryDevice::new(32 * MIB));
            let open = || Store::open(by_hand(device.clone()).as_preset(name).unwrap()).unwrap();
            let store = open();
            for i in 0..3000 {
                let beside = PutOptions::new().neighbour(key(i / 4 * 4));
                store.put_with(&key(i), &body(i, 20_000), &beside).unwrap();
            }
            let is_there = |store: &Store, i: u64| store.contains(&key(i)).unwrap();
            assert!((2900..3000).all(|i| is_there(&store, i)) && !is_there(&store, 0), "{name}: it is full");
            if closes {
                store.close().unwrap();
            } else {
                store.flush().unwrap();
                assert!((2900..3000).all(|i| is_there(&store, i)), "{name}: it left to be durable");
                kill(store);
            }
            let store = open();
            let left: Vec<_> = (2900..3000).filter(|i| !is_there(&store, *i)).collect();
            assert!(left.is_empty(), "{name}, {closes}: {left:?}");
        }
    }
}
