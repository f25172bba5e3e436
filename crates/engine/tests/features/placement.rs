//! Placement: what lies beside what, read off the device; and what the reader makes of it.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use picaflor::{
    Durability, Mode, Options, Place, PutOptions, Store,
    device::{Clock, CountedDevice, Device, MemoryDevice},
};
use picaflor_format::{
    cluster::{Table, decode_table},
    frame::{Header, Kind},
    zone::Map,
};
use picaflor_sim::{Fault, FaultyDevice, On, Profile, Rule, SimulatedDisk, SimulatedOptions};
use rand::Rng;

use crate::common::{MIB, body, by_hand, counted, plain, read, rng, web_len};

const CLUSTER: u32 = 64 << 10;

/// What lies in sealed clusters, in its order: cluster, header and key.
fn frames(device: &dyn Device) -> Vec<(u32, Header, Vec<u8>)> {
    let map = Map::new(device.capacity(), CLUSTER).unwrap();
    let mut found = Vec::new();
    let mut bytes = vec![0; CLUSTER as usize];
    for id in 0..map.cluster_count() {
        device.read(map.cluster_start(id), &mut bytes).unwrap();
        let Ok(Table::Rows(_, mut rows)) = decode_table(&bytes) else { continue };
        rows.sort_by_key(|row| row.offset);
        for row in rows {
            let frame = &bytes[row.offset as usize..];
            let header = Header::verify(frame).unwrap();
            found.push((id, header, header.key(frame).to_vec()));
        }
    }
    found
}

/// Clusters in which each key lies, copies too, by the tables on the device.
fn layout(device: &dyn Device) -> HashMap<Vec<u8>, Vec<(u32, Header)>> {
    let mut found: HashMap<Vec<u8>, Vec<(u32, Header)>> = HashMap::new();
    for (id, header, key) in frames(device) {
        found.entry(key).or_default().push((id, header));
    }
    found
}

/// An image of a page, or the page itself as the first.
fn key(page: u64, part: u64) -> Vec<u8> {
    format!("http://server{}.example/page{page}/{part}", page % SERVERS).into_bytes()
}

const SERVERS: u64 = 20;
const PAGES: u64 = 200;
const PARTS: u64 = 20;

fn options(page: u64, part: u64, hints: bool) -> PutOptions {
    match hints {
        true => {
            plain().server((page % SERVERS + 1) as u32).maybe_neighbour((part > 0).then(|| Bytes::from(key(page, 0))))
        }
        false => plain(),
    }
}

/// Puts all pages as 12 readers at once would ask for them, so that the parts of many arrive in between.
fn load(store: &Store, hints: bool) {
    let mut rng = rng(4);
    let mut waiting: Vec<u64> = (0..PAGES).rev().collect();
    let mut open: Vec<(u64, u64)> = Vec::new();
    while !open.is_empty() || !waiting.is_empty() {
        while open.len() < 12
            && let Some(page) = waiting.pop()
        {
            open.push((page, 0));
        }
        let at = rng.random_range(0..open.len());
        let (page, part) = open[at];
        let len = web_len(&mut rng).min(12_000);
        store.put_with(&key(page, part), &body(page * 100 + part, len), &options(page, part, hints)).unwrap();
        open[at].1 += 1;
        open.retain(|(_, part)| *part < PARTS);
    }
}

/// Mean number of clusters that a page's parts lie in.
fn clusters_per_page(hints: bool) -> f64 {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let store = Store::open(by_hand(device.clone())).unwrap();
    load(&store, hints);
    store.close().unwrap();
    let layout = layout(&*device);
    let of = |page| -> usize {
        let clusters: HashSet<u32> = (0..PARTS).map(|part| layout[&key(page, part)][0].0).collect();
        clusters.len()
    };
    (0..PAGES).map(of).sum::<usize>() as f64 / PAGES as f64
}

#[test]
fn a_page_lies_in_few_clusters_because_of_the_hints() {
    let (with, without) = (clusters_per_page(true), clusters_per_page(false));
    println!("clusters per page of {PARTS}: {with:.2} with hints, {without:.2} without");
    assert!(with < without / 2.0, "{with} {without}");
}

/// Puts so many pages of 20 parts, those of 12 at once by turns, the page somewhere among them.
fn put_by_turns(store: &Store, pages: u64) {
    for dozen in 0..pages / 12 {
        for part in (1..8).chain([0]).chain(8..PARTS) {
            for page in dozen * 12..(dozen + 1) * 12 {
                let neighbour = (part > 0).then(|| Bytes::from(key(page, 0)));
                let put = plain().maybe_neighbour(neighbour);
                store.put_with(&key(page, part), &body(page * 100 + part, 1000), &put).unwrap();
            }
        }
        store.step().unwrap();
    }
}

/// How many runs what is of one page lies in, over all pages; and how many of these the page begins.
fn runs(device: &dyn Device) -> (usize, usize) {
    let (mut last, mut runs, mut begun) = (None, 0, 0);
    for (id, _, key) in frames(device) {
        let key = String::from_utf8(key).unwrap();
        let (page, part) = key.rsplit_once('/').unwrap();
        let run = Some((id, page.to_owned()));
        runs += usize::from(run != last);
        begun += usize::from(run != last && part == "0");
        last = run;
    }
    (runs, begun)
}

#[test]
fn in_a_cache_a_page_lies_in_one_run_and_before_its_parts() {
    const SETS: usize = 240;
    let device = Arc::new(MemoryDevice::new(128 * MIB));
    let options = by_hand(device.clone()).with(|options| options.memory = 24 * MIB);
    let store = Store::open(options.clone()).unwrap();
    put_by_turns(&store, SETS as u64);
    let counts = store.stats().counts;
    assert!(counts.packed > counts.puts / 2, "{counts:?}");
    assert_eq!(counts.device_syncs, 0);
    store.close().unwrap();
    let (together, begun) = runs(&*device);
    println!("{SETS} pages lie in {together} runs, of which {begun} begin with the page");
    // The first are put before it is known that neighbours are named, and some lie across two clusters.
    assert!(together < SETS * 3 / 2 && begun > SETS * 9 / 10, "{together} {begun}");
    // What is durable when its put returns cannot wait for others.
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let store = Store::open(by_hand(device).durability(Durability::EveryPut)).unwrap();
    put_by_turns(&store, 24);
    assert_eq!(store.stats().counts.packed, 0);
}

#[test]
fn groups_and_servers_have_clusters_of_their_own() {
    let device = Arc::new(MemoryDevice::new(64 * MIB));
    let store = Store::open(by_hand(device.clone())).unwrap();
    let mut rng = rng(5);
    let name = |class: u32, i: u64| format!("{class}/{i}").into_bytes();
    for i in 0..300 {
        for class in 0..12 {
            let put = match class {
                0..6 => plain().server(class + 1),
                _ => plain().group(class).server(i as u32 % 7 + 1),
            };
            store.put_with(&name(class, i), &body(i, web_len(&mut rng).min(9000)), &put).unwrap();
        }
    }
    store.close().unwrap();
    let store = Store::open(by_hand(device.clone())).unwrap();
    let listed: Vec<u32> = store.keys().map(|entry| entry.group).collect();
    drop(store);
    let layout = layout(&*device);
    let mut classes: HashMap<u32, HashSet<u32>> = HashMap::new();
    for (class, i) in (0..12).flat_map(|class| (0..300).map(move |i| (class, i))) {
        classes.entry(layout[&name(class, i)][0].0).or_default().insert(class);
    }
    assert!(classes.len() > 100);
    assert!(classes.values().all(|of_one| of_one.len() == 1), "{classes:?}");
    // A listing follows the device, so it changes groups once a cluster at most.
    let changes = listed.windows(2).filter(|two| two[0] != two[1]).count();
    assert!(changes <= classes.len(), "{changes} in {} clusters", classes.len());
}

#[test]
fn collocated_objects_get_copies() {
    for mode in [Mode::Cache, Mode::Store] {
        let (device, options) = counted(64 * MIB);
        let store = Store::open(options.clone().mode(mode)).unwrap();
        let on = |server| plain().server(server);
        store.put_with(b"icon", &body(1, 500), &on(1)).unwrap();
        store.get(b"icon").unwrap().unwrap();
        for page in 0..60u64 {
            store.put_with(&key(page, 0), &body(page, 3000), &on(2)).unwrap();
            store.collocate(&key(page, 0), b"icon");
        }
        store.flush().unwrap();
        assert!(store.stats().counts.copies_placed >= 2, "{:?}", store.stats().counts);
        store.close().unwrap();
        let layout = layout(&device);
        let copies: Vec<_> = layout[&b"icon"[..]].iter().filter(|(_, header)| header.kind == Kind::Copy).collect();
        assert!(copies.len() >= 2, "{copies:?}");
        // Or else a reader of the page would leave it behind.
        let pages: Vec<_> = (0..60).map(|page| layout[&key(page, 0)][0]).collect();
        let is_beside = |copy: &Header| pages.iter().any(|(_, page)| page.server == copy.server);
        assert!(
            copies.iter().all(|(_, copy)| is_beside(copy)),
            "a copy has the server of what it lies beside: {copies:?}"
        );
        // After an opening nothing vouches for copies any more, and the object is read where it is.
        let store = Store::open(options.mode(mode)).unwrap();
        for page in 0..60u64 {
            assert_eq!(read(&store, &key(page, 0)).unwrap(), body(page, 3000));
        }
        assert_eq!(read(&store, b"icon").unwrap(), body(1, 500));
        assert_eq!(store.stats().objects, 61, "a copy is no object");
    }
}

/// A device whose every read takes as long as an SSD's, on the store's own clock.
fn timed(options: &Options) -> (CountedDevice, Options) {
    let disk = FaultyDevice::with_clock(Arc::new(MemoryDevice::new(64 * MIB)), 0, options.clock.clone());
    disk.add(Rule::rate(Fault::Delay(On::Read, Duration::from_micros(100)), 1.0));
    let device = CountedDevice::new(Arc::new(disk));
    let places = vec![Place::Device(Arc::new(device.clone()))];
    (device, options.clone().with(|options| options.places = places))
}

/// Page after page is read, all of their parts.
fn visit(store: &Store, pages: impl Iterator<Item = u64>) {
    for page in pages {
        for part in 0..PARTS {
            assert!(store.get(&key(page, part)).unwrap().is_some());
        }
    }
}

#[test]
fn where_bytes_are_paid_for_what_lies_behind_an_object_is_read_and_not_its_cluster() {
    const WHOLE: u64 = 256 << 10;
    let clock = Clock::virtual_at(1_000_000);
    let part = SimulatedOptions { part: Some(0..128 * MIB), ..SimulatedOptions::default() };
    let disk = SimulatedDisk::new(&Profile::find("ebs-gp3").unwrap(), clock.clone(), &part).unwrap();
    let device = CountedDevice::new(Arc::new(disk));
    let opened = by_hand(Arc::new(device.clone()));
    let opened = opened.with(|options| (options.cluster, options.clock) = (WHOLE as u32, clock));
    let store = Store::open(opened.clone()).unwrap();
    load(&store, true);
    // Old versions and what is deleted lie among the others.
    for page in (0..PAGES).step_by(3) {
        store.put_with(&key(page, 5), &body(page, 777), &options(page, 5, true)).unwrap();
        assert!(store.delete(&key(page, 9)).unwrap());
    }
    let read_all = |store: &Store, page| -> Vec<Option<Vec<u8>>> {
        (0..PARTS)
            .map(|part| store.get(&key(page, part)).unwrap().map(|object| object.body().unwrap().to_vec()))
            .collect()
    };
    let expected: Vec<_> = (0..PAGES).map(|page| read_all(&store, page)).collect();
    store.close().unwrap();
    let store = Store::open(opened).unwrap();
    while store.step().unwrap() {}
    let (before, mut rng) = (device.counts(), rng(6));
    for _ in 0..600 {
        let page = rng.random_range(0..PAGES);
        let found = read_all(&store, page);
        assert!(found == expected[page as usize], "page {page}");
        assert_eq!((found[5].as_deref() == Some(&body(page, 777)), found[9].is_none()), (page % 3 == 0, page % 3 == 0));
    }
    let (counts, passed) = (store.stats().counts, device.counts() - before);
    assert!(counts.cluster_reads > counts.object_reads / 2, "{counts:?}");
    assert!(counts.neighbours_used > counts.cluster_reads, "{counts:?}");
    let most = counts.cluster_reads * WHOLE / 2;
    assert!(passed.read_bytes < most, "{} bytes of at most {most}: {counts:?}", passed.read_bytes);
}

#[test]
fn clusters_are_read_where_neighbours_are_used_and_objects_where_not() {
    let (device, options) = timed(&counted(MIB).1);
    let store = Store::open(options.clone()).unwrap();
    load(&store, true);
    store.close().unwrap();
    let share = |pages: bool| {
        let store = Store::open(options.clone().memory(4 * MIB)).unwrap();
        while store.step().unwrap() {}
        let mut rng = rng(6);
        let before = device.counts();
        for _ in 0..1500 {
            let page = rng.random_range(0..PAGES);
            match pages {
                true => visit(&store, std::iter::once(page)),
                false => (0..PARTS).for_each(|_| {
                    let (page, part) = (rng.random_range(0..PAGES), rng.random_range(0..PARTS));
                    assert!(store.get(&key(page, part)).unwrap().is_some());
                }),
            }
        }
        let counts = store.stats().counts;
        let reads = counts.object_reads + counts.cluster_reads;
        // What the counters say passed the device's door; scrubbing read nothing after a clean close.
        assert_eq!((device.counts() - before).reads, reads);
        assert_eq!(counts.hits_memory + counts.hits_buffer + counts.hits_device, counts.gets);
        assert!(counts.neighbours_used <= counts.neighbours_read, "{counts:?}");
        println!(
            "pages {pages}: {} cluster reads of {reads}, {} of {} neighbours used",
            counts.cluster_reads, counts.neighbours_used, counts.neighbours_read
        );
        counts.cluster_reads as f64 / reads as f64
    };
    let (pages, uniform) = (share(true), share(false));
    assert!(pages > 0.5, "{pages}");
    assert!(uniform < 0.05, "{uniform}");
}

#[test]
fn a_copy_is_never_served_when_it_is_old() {
    let promised = Durability::EveryPut;
    for (mode, durability) in
        [(Mode::Cache, promised), (Mode::Cache, Durability::None), (Mode::Store, Durability::None)]
    {
        let (_, options) = timed(&counted(MIB).1);
        let store = Store::open(options.memory(3 * MIB).mode(mode).durability(durability)).unwrap();
        let mut rng = rng(7);
        let mut versions: HashMap<(u64, u64), u64> = HashMap::new();
        for step in 1..30_000u64 {
            let (page, part) = (rng.random_range(0..PAGES), rng.random_range(0..PARTS));
            let name = key(page, part);
            match rng.random_range(0..100) {
                0..60 => {
                    let put = plain().server(rng.random_range(1..5));
                    store.put_with(&name, &body(step, 100 + step as usize % 3000), &put).unwrap();
                    versions.insert((page, part), step);
                    store.collocate(&name, &key(page, rng.random_range(0..PARTS)));
                }
                60..63 => {
                    store.delete(&name).unwrap();
                    versions.remove(&(page, part));
                }
                _ => {
                    // Its page, so that clusters are read whole.
                    for part in 0..PARTS {
                        let found = read(&store, &key(page, part));
                        let version = versions.get(&(page, part));
                        let expected = version.map(|step| body(*step, 100 + *step as usize % 3000));
                        assert!(
                            found == expected || found.is_none() && mode == Mode::Cache,
                            "{page} {part} {version:?}"
                        );
                    }
                }
            }
            if step % 16 == 0 {
                store.step().unwrap();
            }
        }
        let counts = store.stats().counts;
        println!("{mode:?}: {} copies, {} cluster reads", counts.copies_placed, counts.cluster_reads);
        // Where objects wait for each other there is little to copy.
        assert!(counts.packed > 0 || counts.copies_placed > 50, "{counts:?}");
        assert!(counts.cluster_reads > 10, "{counts:?}");
    }
}

#[test]
fn a_neighbour_in_an_open_buffer_wins_over_the_class() {
    let device = Arc::new(MemoryDevice::new(32 * MIB));
    let store = Store::open(by_hand(device.clone())).unwrap();
    store.put_with(b"page", b"x", &plain().server(1)).unwrap();
    for server in 2..6 {
        let put = plain().server(server).neighbour(&b"page"[..]);
        store.put_with(&server.to_le_bytes(), b"x", &put).unwrap();
    }
    assert_eq!(store.stats().counts.neighbours_joined, 4);
    store.close().unwrap();
    let layout = layout(&*device);
    let clusters: HashSet<u32> = layout.values().map(|places| places[0].0).collect();
    assert_eq!((layout.len(), clusters.len()), (5, 1));
}
