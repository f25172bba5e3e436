//! Dámelo: a group's objects share pages of their own, pages are what is read and kept in memory, and love and hate say
//! which of them leave; groups have their places on the platter, and an elevator goes past them.

use std::{
    collections::{BTreeMap, BTreeSet},
    future::Future,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use picaflor::{
    CheckpointInterval, Durability, Error, Mode, Options, Place, PutOptions, Store,
    device::{Clock, CountedDevice, Device, MemoryDevice},
};
use picaflor_sim::{Elevator, FaultyDevice, Profile, SimulatedDisk, SimulatedOptions};

use crate::{
    common::{MIB, body, by_hand, read},
    grouped::{eight_threads, in_group, is_gone, key, put},
};

const KIB: u64 = 1 << 10;

/// As `by_hand`, with pages of this size and this much memory.
fn paged(device: &Arc<impl Device + 'static>, page: u64, memory: u64) -> Options {
    by_hand("damelo", Arc::clone(device) as Arc<dyn Device>).memory(memory).with(|o| o.cluster = page as u32)
}

fn counted(bytes: u64) -> Arc<CountedDevice> {
    Arc::new(CountedDevice::new(Arc::new(MemoryDevice::new(bytes))))
}

/// The groups of whose objects there are keys in each page of the device, by the page's number from the start.
fn groups_by_page(device: &dyn Device, page: u64) -> BTreeMap<u64, BTreeSet<u32>> {
    let mut found: BTreeMap<u64, BTreeSet<u32>> = BTreeMap::new();
    let mut bytes = vec![0; page as usize];
    for at in 0..device.capacity() / page {
        device.read(at * page, &mut bytes).unwrap();
        for place in memchr(&bytes, b"/group-") {
            let digits = std::str::from_utf8(&bytes[place + 7..place + 9]).unwrap();
            found.entry(at).or_default().insert(digits.parse().unwrap());
        }
    }
    found
}

fn memchr(bytes: &[u8], what: &[u8]) -> Vec<usize> {
    let starts = (0..bytes.len().saturating_sub(what.len() + 2)).filter(|at| bytes[*at] == what[0]);
    starts.filter(|at| bytes[*at..].starts_with(what)).collect()
}

#[test]
fn a_page_holds_one_group_whatever_the_order_of_creation() {
    for (page, open_buffers) in [(16 * KIB, 16), (64 * KIB, 16), (32 * KIB, 3)] {
        let device = counted(64 * MIB);
        let store = Store::open(paged(&device, page, 8 * MIB).with(|o| o.open_buffers = open_buffers)).unwrap();
        for i in 0..1200 {
            // A neighbour in another group, and the wish to pass memory by, do not tempt it out of its group.
            let neighbour = (i > 0).then(|| key(((i - 1) * 7 % 16 + 1) as u32, i - 1).into());
            let group = (i * 7 % 16 + 1) as u32;
            let options = PutOptions::new().group(group).maybe_neighbour(neighbour).bypass_memory(i % 5 == 0);
            store.put_with(&key(group, i), &body(i, 900 + i as usize % 3000), &options).unwrap();
        }
        store.close().unwrap();
        let pages = groups_by_page(&*device, page);
        assert!(pages.len() >= 1200 * 1400 / page as usize, "{}", pages.len());
        assert!(pages.values().all(|groups| groups.len() == 1), "{page}: {pages:?}");
        let groups: BTreeSet<u32> = pages.into_values().flatten().collect();
        assert_eq!(groups.len(), 16);
    }
}

#[test]
fn a_read_brings_the_page_and_its_objects_need_no_other() {
    for page in [16, 32, 64, 128, 256].map(|size| size * KIB) {
        let device = counted(128 * MIB);
        let options = paged(&device, page, 24 * MIB);
        let store = Store::open(options.clone()).unwrap();
        let each = page / (2 * KIB) * 3;
        (0..each).for_each(|i| put(&store, 1 + (i % 3) as u32, i, 1500));
        store.close().unwrap();
        let store = Store::open(options).unwrap();
        let before = device.counts();
        for i in 0..each {
            assert_eq!(read(&store, &key(1 + (i % 3) as u32, i)).unwrap(), body(i, 1500), "{page} {i}");
        }
        let done = device.counts() - before;
        // Frames of 1,600 bytes: a sixth of the pages' rooms is not filled by the last of each group.
        assert_eq!(done.read_bytes, done.reads * page);
        assert!((3..=6).contains(&done.reads), "{page}: {} reads of {each} objects in 3 groups", done.reads);
        let counts = store.stats().counts;
        assert_eq!((counts.object_reads, counts.cluster_reads), (0, done.reads));
        assert_eq!(counts.hits_buffer, each - done.reads, "the others were there");
    }
}

/// A store with so many pages of four objects in each group, none of them in memory.
fn cold(groups: &[(u32, u64)]) -> (Store, Arc<CountedDevice>) {
    let device = counted(256 * MIB);
    let options = paged(&device, 16 * KIB, 2 * MIB);
    let store = Store::open(options.clone()).unwrap();
    for (group, pages) in groups {
        (0..pages * 4).for_each(|i| put(&store, *group, i, 3600));
    }
    store.close().unwrap();
    (Store::open(options).unwrap(), device)
}

/// Device reads for one object of each page, in order.
fn pass(store: &Store, device: &CountedDevice, group: u32, pages: u64) -> u64 {
    let before = device.counts().reads;
    for i in 0..pages {
        assert_eq!(read(store, &key(group, i * 4)).unwrap(), body(i * 4, 3600));
    }
    device.counts().reads - before
}

#[test]
fn loved_pages_leave_the_least_recently_used_first_and_hated_ones_the_last() {
    const PAGES: u64 = 150;
    for love in [true, false] {
        let (store, device) = cold(&[(1, PAGES)]);
        let group = store.group(1);
        if love {
            group.love()
        } else {
            group.hate()
        }
        assert_eq!(pass(&store, &device, 1, PAGES), PAGES, "all are cold");
        let held = store.stats().memory_used / (16 * KIB);
        assert!((50..PAGES).contains(&held), "the pool is smaller than what is read: {held}");
        let again = pass(&store, &device, 1, PAGES);
        match love {
            // Whatever is wanted next has just left.
            true => assert_eq!(again, PAGES),
            // What was read first is there still.
            false => assert!(again <= PAGES - 50, "{again} of {PAGES} were read again"),
        }
    }
}

#[test]
fn a_hated_flood_leaves_loved_pages_alone_and_a_change_of_mind_holds_at_once() {
    let (store, device) = cold(&[(1, 20), (2, 150)]);
    store.group(2).hate();
    pass(&store, &device, 1, 20);
    pass(&store, &device, 2, 150);
    assert_eq!(pass(&store, &device, 1, 20), 0, "no loved page left");
    // From now on the other way round; what is in memory is judged anew.
    store.group(1).hate();
    store.group(2).love();
    pass(&store, &device, 2, 150);
    assert!(pass(&store, &device, 1, 20) >= 19);
    // Where nothing was said, all are loved.
    let (store, device) = cold(&[(1, 20), (2, 150)]);
    pass(&store, &device, 1, 20);
    pass(&store, &device, 2, 150);
    assert_eq!(pass(&store, &device, 1, 20), 20);
}

#[test]
fn what_is_pinned_stays_readable_while_its_page_leaves() {
    let (store, device) = cold(&[(1, 10), (2, 150)]);
    let held: Vec<_> = (0..40).map(|i| store.get(&key(1, i)).unwrap().unwrap()).collect();
    pass(&store, &device, 2, 150);
    assert!(store.delete(&key(1, 3)).unwrap());
    for (i, object) in (0..).zip(&held) {
        assert_eq!(object.body().unwrap(), body(i, 3600));
    }
    drop(held);
    assert!(read(&store, &key(1, 3)).is_none());
    assert!(store.stats().memory_used <= store.stats().memory_limit);
}

#[test]
fn low_groups_lie_in_the_middle_of_the_platter_and_large_objects_at_its_outer_edge() {
    let page = 64 * KIB;
    let device = counted(64 * MIB);
    let store = Store::open(paged(&device, page, 16 * MIB)).unwrap();
    for i in 0..960 {
        put(&store, 1 + (i % 16) as u32, i, 4000);
    }
    store.close().unwrap();
    let store = Store::open(paged(&device, page, 16 * MIB)).unwrap();
    let large = body(7, 1_500_000);
    store.put_with(&key(1, 9999), &large, &in_group(1)).unwrap();
    store.close().unwrap();
    let pages = groups_by_page(&*device, page);
    let last = device.capacity() / page;
    let first = last - store_clusters(&device, page);
    let middle = |group: u32| {
        let own: Vec<u64> =
            pages.iter().filter(|(_, groups)| groups.contains(&group)).map(|(at, _)| at - first).collect();
        assert!(own.windows(2).all(|pair| pair[1] == pair[0] + 1), "{group} lies in one run: {own:?}");
        own[own.len() / 2] as f64 / (last - first) as f64
    };
    let distance = |group: u32| (middle(group) - 0.5).abs();
    assert!(distance(1) < 0.06, "{}", distance(1));
    for group in [1, 3, 5, 7, 9, 11, 13] {
        assert!(distance(group) < distance(group + 2), "{group}");
        assert!(distance(group + 1) < distance(group + 3) || group == 13, "{group}");
        assert!(distance(group + 1).max(distance(group)) < 0.5);
    }
    // The chunks take what is free from the first cluster on: a sixteenth group has four pages there.
    let mut bytes = vec![0; page as usize];
    let is_chunk = |at: &u64| {
        device.read(at * page, &mut bytes).unwrap();
        !memchr(&large, &bytes[1000..1064]).is_empty()
    };
    assert_eq!((first..first + 27).filter(is_chunk).count(), 23, "of 24 chunks; the last is short");
}

/// Clusters of a device of so many bytes.
fn store_clusters(device: &CountedDevice, page: u64) -> u64 {
    picaflor_format::zone::Map::new(device.capacity(), page as u32).unwrap().cluster_count().into()
}

#[test]
fn the_elevator_takes_reads_on_its_way() {
    let mut times = Vec::new();
    for elevator in [Elevator::Absent, Elevator::OneWay, Elevator::TwoWay] {
        let clock = Clock::virtual_at(1_000_000);
        let options = SimulatedOptions {
            part: Some(0..2 << 30),
            order: Some(picaflor_sim::Order::Fifo),
            ..SimulatedOptions::default()
        };
        let disk =
            Arc::new(SimulatedDisk::new(&Profile::find("ultrastar9lzx").unwrap(), clock.clone(), &options).unwrap());
        let options = paged(&disk, 64 * KIB, 24 * MIB).with(|o| {
            o.clock = clock.clone();
            o.places = vec![Place::Device(elevator.before(Arc::clone(&disk) as Arc<dyn Device>))];
        });
        let store = Store::open(options.clone()).unwrap();
        let group = |i: u64| 1 + (i % 16) as u32;
        (0..256).for_each(|i| put(&store, group(i), i, 14_000));
        store.close().unwrap();
        let store = Store::open(options).unwrap();
        let began = clock.now_nanos();
        // One object of each of four pages in each of sixteen groups.
        let asked = (0..64).map(|n| n * 29 % 64).map(|n| n / 16 * 64 + n % 16);
        let mut gets: Vec<_> = asked.map(|i| (i, Box::pin(store.get_async(&key(group(i), i))))).collect();
        let mut context = Context::from_waker(Waker::noop());
        while !gets.is_empty() {
            gets.retain_mut(|(i, get)| match get.as_mut().poll(&mut context) {
                Poll::Ready(found) => {
                    assert_eq!(found.unwrap().unwrap().body().unwrap(), body(*i, 14_000));
                    false
                }
                Poll::Pending => true,
            });
            disk.advance();
        }
        times.push((clock.now_nanos() - began) / 1000);
    }
    println!("64 reads from all over a disk, microseconds: as they come, one way, two ways: {times:?}");
    assert!(times[1].max(times[2]) * 100 < times[0] * 85, "{times:?}");
}

#[test]
fn deletes_wait_for_their_page_and_then_make_room_in_it() {
    let device = counted(64 * MIB);
    let store = Store::open(paged(&device, 64 * KIB, 8 * MIB)).unwrap();
    let before = device.counts();
    // 16 frames of 4,032 bytes fit in a page.
    (0..15).for_each(|i| put(&store, 1, i, 3900));
    (0..14).step_by(2).for_each(|i| assert!(store.delete(&key(1, i)).unwrap()));
    put(&store, 1, 15, 3900);
    assert_eq!(device.counts() - before, Default::default(), "a delete reads and writes nothing");
    assert_eq!(store.stats().counts.compacted_bytes, 0, "and moves nothing");
    (100..107).for_each(|i| put(&store, 1, i, 3900));
    let counts = store.stats().counts;
    assert_eq!((device.counts() - before).writes, 0, "they found room where the deleted ones were");
    assert!(counts.clusters_sealed == 0 && counts.compacted_bytes >= 7 * 4000, "{counts:?}");
    assert!(counts.moved_bytes <= 9 * 4100, "each of the others moved once: {counts:?}");
    let there = |store: &Store| {
        for i in (0..16).chain(100..107) {
            let gone = i < 14 && i % 2 == 0;
            assert_eq!(read(store, &key(1, i)), (!gone).then(|| body(i, 3900)), "{i}");
        }
    };
    there(&store);
    store.close().unwrap();
    there(&Store::open(paged(&device, 64 * KIB, 8 * MIB)).unwrap());
}

#[test]
fn a_store_compacts_in_the_background_before_a_put_needs_room() {
    let device = counted(16 * MIB);
    let store = Store::open(paged(&device, 64 * KIB, 2 * MIB)).unwrap();
    let mut kept = 0;
    let full = loop {
        match store.put_with(&key(1, kept), &body(kept, 6000), &in_group(1)) {
            Ok(()) => kept += 1,
            Err(error) => break error,
        }
    };
    assert!(matches!(full, Error::Full { .. }), "nothing leaves unless it is deleted: {full}");
    for i in (0..kept).filter(|i| i % 4 != 0) {
        assert!(store.delete(&key(1, i)).unwrap());
    }
    let before = store.stats();
    for _ in 0..400 {
        store.step().unwrap();
    }
    let after = store.stats();
    assert!(after.counts.reclaimed_clusters > before.counts.reclaimed_clusters + 10, "{after:?}");
    assert!(after.volumes[0].clusters_free > before.volumes[0].clusters_free + 10, "{after:?}");
    assert_eq!(after.counts.evicted, 0);
    let waited = store.stats().counts.reclaimed_clusters;
    (0..100).for_each(|i| put(&store, 2, i, 6000));
    assert_eq!(store.stats().counts.reclaimed_clusters, waited, "no put had to make room");
    for i in (0..kept).step_by(4) {
        assert_eq!(read(&store, &key(1, i)).unwrap(), body(i, 6000));
    }
}

#[test]
fn an_objects_group_is_found_by_its_key() {
    let device = counted(64 * MIB);
    let options = paged(&device, 16 * KIB, 4 * MIB);
    let store = Store::open(options.clone()).unwrap();
    (0..300).for_each(|i| put(&store, 1 + (i % 9) as u32, i, 1000));
    store.put_with(&key(1, 0), &body(5, 70_000), &in_group(12)).unwrap();
    store.put(b"none", b"x").unwrap();
    store.close().unwrap();
    let store = Store::open(options).unwrap();
    assert_eq!(store.group_of(&key(1, 0)).unwrap(), Some(12), "put again into another, and larger than a page");
    for i in 1..300 {
        assert_eq!(store.group_of(&key(1 + (i % 9) as u32, i)).unwrap(), Some(1 + (i % 9) as u32));
    }
    let before = device.counts();
    assert_eq!((store.group_of(b"none").unwrap(), store.group_of(b"nobody").unwrap()), (Some(0), None));
    let asked = device.counts() - before;
    assert_eq!(read(&store, b"none").unwrap(), b"x");
    assert_eq!(device.counts() - before, asked, "a read after a lookup finds the page in memory");
}

#[test]
fn a_group_is_durable_within_its_interval_which_may_change_and_be_turned_off() {
    let disk = FaultyDevice::new(Arc::new(MemoryDevice::new(64 * MIB)), 1);
    let bound = Durability::Bounded { time: Duration::from_secs(1000), puts: u64::MAX };
    let options = by_hand("damelo", Arc::new(disk.clone())).durability(bound);
    let (clock, store) = (options.clock.clone(), Store::open(options.clone()).unwrap());
    let group = store.group(3);
    let mut syncs = 0;
    let mut passes = |seconds: Option<u64>, i: u64, wait: u64| {
        store.flush().unwrap();
        group.set_checkpoint_interval(seconds.map(Duration::from_secs));
        store.flush().unwrap();
        let before = store.stats().counts.device_syncs;
        put(&store, 3, i, 500);
        clock.advance(Duration::from_secs(wait));
        store.step().unwrap();
        syncs = store.stats().counts.device_syncs - before;
        syncs
    };
    assert_eq!([passes(Some(5), 0, 4), passes(Some(5), 1, 5)], [0, 1]);
    assert_eq!([passes(Some(60), 2, 59), passes(Some(60), 3, 60)], [0, 1]);
    assert_eq!([passes(Some(0), 4, 999), passes(None, 5, 999)], [0, 0], "zero turns it off, as in the thesis");
    assert_eq!(passes(Some(2), 6, 2), 1);
    disk.crash().unwrap();
    drop(store);
    disk.revive().unwrap();
    let store = Store::open(options).unwrap();
    assert_eq!(read(&store, &key(3, 6)).unwrap(), body(6, 500));
    assert_eq!(store.group(3).checkpoint_interval(), CheckpointInterval::Every(Duration::from_secs(2)));
}

#[test]
fn a_cache_of_this_row_evicts_and_loved_pages_go_round() {
    let device = counted(16 * MIB);
    let store = Store::open(paged(&device, 32 * KIB, 2 * MIB).mode(Mode::Cache)).unwrap();
    store.group(1).love();
    store.group(2).hate();
    for i in 0..200 {
        put(&store, 1, i, 2000);
        put(&store, 2, i, 2000);
    }
    for i in 0..10_000 {
        put(&store, 3 + (i % 5) as u32, i, 3000);
        store.step().unwrap();
    }
    let left = |group: u32| (0..200).filter(|i| store.contains(&key(group, *i)).unwrap()).count();
    assert_eq!((left(1), left(2)), (200, 0));
}

#[test]
fn on_several_disks_each_has_pages_of_every_group() {
    let devices = [counted(32 * MIB), counted(32 * MIB)];
    let mut options = paged(&devices[0], 32 * KIB, 8 * MIB);
    options.places.push(picaflor::Place::Device(Arc::clone(&devices[1]) as Arc<dyn Device>));
    let store = Store::open(options.clone()).unwrap();
    (0..1000).for_each(|i| put(&store, 1 + (i % 16) as u32, i, 2500));
    store.close().unwrap();
    for device in &devices {
        let pages = groups_by_page(&**device, 32 * KIB);
        assert!(pages.values().all(|groups| groups.len() == 1), "{pages:?}");
        assert_eq!(pages.into_values().flatten().collect::<BTreeSet<u32>>(), (1..=16).collect());
    }
    let store = Store::open(options).unwrap();
    (0..1000).for_each(|i| assert_eq!(read(&store, &key(1 + (i % 16) as u32, i)).unwrap(), body(i, 2500)));
}

#[test]
fn eight_threads_on_a_real_file_read_what_was_put() {
    let folder = tempfile::tempdir().unwrap();
    for (mode, page) in [(Mode::Store, 16), (Mode::Cache, 64)] {
        let path = folder.path().join(format!("{page}"));
        let options =
            picaflor_literature::preset("damelo").unwrap().place(&path).capacity(96 * MIB).memory(6 * MIB).mode(mode);
        let options = options.with(|o| o.cluster = page << 10);
        let lens = |i: u64| if i % 50 == 7 { 150_000 } else { 200 + (i * 37 % 9000) as usize };
        let seen = |_, back: u64, found: Option<Vec<u8>>| {
            if let Some(found) = found {
                assert_eq!(found, body(back, lens(back)), "{mode:?} {back}");
            } else {
                assert!(is_gone(back), "{mode:?} {back} is gone");
            }
        };
        eight_threads(
            &options,
            lens,
            |_| {},
            seen,
            |store, group, thread, i| {
                if i % 64 == thread {
                    store
                        .group(group)
                        .set([picaflor::Priority::Loved, picaflor::Priority::Hated][(i / 64 % 2) as usize]);
                }
            },
        );
    }
}

#[test]
fn pages_hold_one_group_where_there_are_many_in_turn() {
    let page = 64 * KIB;
    let device = counted(64 * MIB);
    let store = Store::open(paged(&device, page, 32 * MIB)).unwrap();
    let len = |i: u64| 900 + i as usize % 3000;
    (0..8000).for_each(|i| put(&store, 1 + (i % 40) as u32, i, len(i)));
    let written: u64 = (0..8000).map(|i| len(i) as u64 + 100).sum();
    let stats = store.stats();
    assert_eq!(stats.counts.lanes_taken_over, 0);
    assert!(stats.counts.clusters_sealed < written / page * 5 / 4, "{}", stats.counts.clusters_sealed);
    store.close().unwrap();
    let pages = groups_by_page(&*device, page);
    let mixed = pages.values().filter(|groups| groups.len() > 1).count();
    assert_eq!(mixed, 0, "of {}", pages.len());
}

#[test]
fn a_store_says_when_it_has_too_few_lanes() {
    let device = counted(64 * MIB);
    let store = Store::open(paged(&device, 64 * KIB, 16 * MIB).with(|o| o.open_buffers = 3)).unwrap();
    (0..120).for_each(|i| put(&store, 1 + (i % 4) as u32, i, 900));
    let taken_over = store.stats().counts.lanes_taken_over;
    assert_eq!(taken_over, 117, "each put but the first three");
}

#[test]
fn a_cache_invalidates_without_reading_but_takes_the_chunks_of_a_large_object_along() {
    let device = counted(64 * MIB);
    let options = paged(&device, 16 * KIB, 4 * MIB).mode(Mode::Cache);
    let store = Store::open(options.clone()).unwrap();
    // Some as short as what leads to the chunks of a large one.
    (0..6000).for_each(|i| put(&store, 1 + (i % 5) as u32, i, 20 + i as usize % 3000));
    let large = |i: u64| key(6, 10_000 + i);
    for i in 0..4 {
        store.put_with(&large(i), &body(i, 300_000), &in_group(6)).unwrap();
    }
    store.flush().unwrap();
    let live = |store: &Store| store.stats().live_bytes;
    let kept = (0..6000).filter(|i| store.contains(&key(1 + (i % 5) as u32, *i)).unwrap()).count();
    assert!(kept >= 5990, "{kept}: but for the rare key whose place another took");
    let (before, reads) = (live(&store), device.counts().reads);
    for i in 0..3000 {
        store.invalidate(&key(1 + (i % 5) as u32, i)).unwrap();
        assert!(!store.contains(&key(1 + (i % 5) as u32, i)).unwrap(), "{i}");
    }
    let looked = device.counts().reads - reads;
    assert!(looked < 3000 / 20, "{looked}: but for what shares a bit with a large one's entries");
    let all_small = before - live(&store);
    (0..2).for_each(|i| store.invalidate(&large(i)).unwrap());
    assert!(before - all_small - live(&store) >= 600_000, "their chunks went too");
    store.close().unwrap();
    let store = Store::open(options.clone()).unwrap();
    assert!((0..3000).all(|i| !store.contains(&key(1 + (i % 5) as u32, i)).unwrap()), "no crash brings it back");
    let reads = device.counts().reads;
    (3000..6000).for_each(|i| store.invalidate(&key(1 + (i % 5) as u32, i)).unwrap());
    let looked = device.counts().reads - reads;
    assert!(
        looked < 10,
        "{looked}: of large objects from before this opening nothing is known; but for two of a place"
    );
    store.invalidate(&large(2)).unwrap();
    assert!(!store.contains(&large(2)).unwrap());
    assert!(read(&store, &large(3)).unwrap() == body(3, 300_000));
    store.close().unwrap();
    let report = Store::open(options).unwrap().check(|_, _| {});
    assert!(report.is_clean(), "{report:?}");
}
