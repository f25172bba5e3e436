//! STREAM, BUDDY and the locality buffers of the engine held to a second model of them (`second.rs`,
//! `second_buffers.rs`): over a seeded workload, what they ask of the disk agrees to 5%.
//!
//! How many blocks BUDDY's classes have had is held to a model in which, as in the engine, classes are cut areas of one
//! disk, and an area in which nothing lies goes back. The paper's files keep what they have, and have had fewer:
//! the same areas, kept, are as many as those.

use std::{
    collections::{BTreeMap, BTreeSet, HashSet, VecDeque},
    io,
    sync::Arc,
};

use parking_lot::Mutex;
use picaflor::{
    Mode, Options, Store,
    device::{Folder, MemoryDevice},
};
use picaflor_format::zone::Map;
use picaflor_sim::{HookedDevice, On};

use crate::{
    common::{MIB, body, by_hand, key, plain},
    second::{Areas, Asked, BLOCK, Buddy, Manages, Stream},
    second_buffers::{LocalityBuffers, PAGE},
};

/// Bytes of header in front of an object's key (docs/FORMAT.md, "Frames").
const HEADER: u64 = 64;
const CLUSTER: u32 = 64 << 10;
const CAPACITY: u64 = 64 * MIB;
/// Blocks of the longest object that is no file.
const THRESHOLD: u32 = 32;

const PUTS: u64 = 24_000;
/// Servers of which the URLs are.
const SERVERS: u64 = 40;
/// Locality buffers.
const BUFFERS: usize = 8;
/// Puts between two commits where URLs wait for each other, which commits end.
const WAITING: u64 = 300;

/// Most reads of objects whose keys the index does not tell from another's.
const LOOKS: u64 = 8;

/// What is asked of a device where objects lie.
struct Watched {
    block: u64,
    from: u64,
    /// Whether it was a write, from where, and how much.
    seen: Mutex<Vec<(bool, u64, u64)>>,
}

impl Watched {
    fn new(block: usize) -> (Arc<Self>, Arc<HookedDevice>) {
        let from = Map::new(CAPACITY, CLUSTER).unwrap().in_place().1.start;
        let watched = Arc::new(Self { block: block as u64, from, seen: Mutex::default() });
        let own = Arc::clone(&watched);
        let hook = move |asked: picaflor_sim::Asked| {
            if asked.on != On::Sync && asked.offset >= from {
                own.seen.lock().push((asked.on == On::Write, asked.offset, asked.len as u64));
            }
        };
        (watched, Arc::new(HookedDevice::new(Arc::new(MemoryDevice::with_block_size(CAPACITY, block)), hook)))
    }
}

/// Slots of the device.
fn slots() -> usize {
    (Map::new(CAPACITY, CLUSTER).unwrap().in_place().1.len / BLOCK) as usize
}

/// A folder in memory that counts.
#[derive(Default)]
struct Counting(Mutex<(BTreeMap<String, Vec<u8>>, Asked)>);

impl Folder for Counting {
    fn make_dir(&self, _: &str) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, path: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.lock();
        state.1.files_made += u64::from(path.contains('/'));
        state.0.insert(path.into(), bytes.into());
        Ok(())
    }

    fn read(&self, path: &str) -> io::Result<Vec<u8>> {
        self.0.lock().0.get(path).cloned().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn remove(&self, path: &str) -> io::Result<()> {
        let mut state = self.0.lock();
        state.1.files_removed += 1;
        state.0.remove(path).map(drop).ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn list(&self, each: &mut dyn FnMut(&str, u64)) -> io::Result<()> {
        self.0.lock().0.iter().for_each(|(path, bytes)| each(path, bytes.len() as u64));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn backend(&self) -> String {
        "counting".into()
    }
}

/// Half of a time's URLs are of one server, a quarter of the next, and so on; times move on from server to server.
fn server_of(url: u64) -> u32 {
    let next = (url.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40 | 1 << 12).trailing_zeros();
    1 + ((url / 300 * 3) % SERVERS) as u32 + next
}

/// Writes, reads and deletes by least recent writing, so that about `utilisation` percent of the slots are taken. A
/// tenth of the writes are of URLs that are there; no URL is read twice. Lengths go from 200 bytes to 50 KB. A commit
/// comes after `every` puts, and at the end. Returns the URLs that are there.
fn replay(
    store: &Store,
    models: &mut [&mut dyn Manages],
    slots: usize,
    (utilisation, every): (u64, u64),
    read: &dyn Fn(u64) -> bool,
) -> Vec<u64> {
    let mut state = 0x1999_u64;
    let mut draw = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let most = slots as u64 * BLOCK * utilisation / 100;
    let (mut live, mut bytes) = (VecDeque::<(u64, u64)>::new(), 0);
    // Of what was read once memory has the second time.
    let mut seen = HashSet::new();
    for count in 0..PUTS {
        let url = count;
        let again = (url > 100 && draw(10) == 0).then(|| live.len() - 1 - draw(50) as usize);
        let (url, old) = again.and_then(|at| live.remove(at)).map_or((url, 0), |(url, len)| (url, len));
        let class = draw(9);
        let len = 200 + draw(200 << class);
        let taken = (len + HEADER + key(url).len() as u64).next_multiple_of(BLOCK);
        bytes = bytes + taken - old;
        live.push_back((url, taken));
        let server = server_of(url);
        let options = plain().bypass_memory(true).server(server);
        store.put_with(&key(url), &body(url, len as usize), &options).unwrap();
        if old > 0 {
            seen.insert(url);
            models.iter_mut().for_each(|model| model.delete(url));
        }
        models.iter_mut().for_each(|model| model.write(url, server, len + HEADER + key(url).len() as u64));
        if draw(3) == 0 {
            let (url, _) = live[draw(live.len() as u64) as usize];
            // Of two keys that a cache's index cannot tell apart one is gone; these are two or three.
            if seen.insert(url) && read(url) {
                models.iter_mut().for_each(|model| model.read(url));
            }
        }
        while bytes > most {
            let (url, taken) = live.pop_front().unwrap();
            bytes -= taken;
            store.delete(&key(url)).unwrap();
            models.iter_mut().for_each(|model| model.delete(url));
        }
        // Slots are free again after a commit.
        if count % every == 0 || count == PUTS - 1 {
            store.flush().unwrap();
            models.iter_mut().for_each(|model| model.commit());
        }
    }
    live.into_iter().map(|(url, _)| url).collect()
}

/// What the engine asked of the disk: requests that were for gets and for puts, in order.
fn asked_of(watched: &Watched, gets: &[usize]) -> Asked {
    let gets: BTreeSet<usize> = gets.iter().copied().collect();
    let (mut asked, mut end) = (Asked::default(), watched.from);
    let mut slots = BTreeSet::new();
    for (at, (writes, offset, len)) in watched.seen.lock().iter().enumerate() {
        if *writes {
            asked.writes += 1;
            asked.written += len;
            // In blocks that are longer than slots, the next one begins in the block in which the one before ended.
            asked.breaks += u64::from(*offset != end && *offset + watched.block != end);
            end = offset + len;
            asked.packets += end.div_ceil(PAGE) - offset / PAGE;
            slots.insert((*len, *offset));
        } else if gets.contains(&at) {
            asked.reads += 1;
            asked.read += len;
        } else {
            asked.page_reads += 1;
        }
    }
    asked.blocks = slots.iter().map(|(len, _)| len / BLOCK).sum();
    asked
}

/// Runs the engine and models, and says what the engine asked, and which URLs have a place of it in what order.
fn asked_beside(
    options: Options,
    watched: &Watched,
    models: &mut [&mut dyn Manages],
    (utilisation, every): (u64, u64),
) -> (Asked, Vec<u64>) {
    // A cache, as the paper's is: a store would look at what a put replaces.
    let store = Store::open(options.mode(Mode::Cache).memory(16 * MIB)).unwrap();
    watched.seen.lock().clear();
    let gets = Mutex::new(Vec::new());
    let read = |url: u64| {
        let before = watched.seen.lock().len();
        let found = store.get(&key(url)).unwrap().is_some();
        gets.lock().extend(before..watched.seen.lock().len());
        found
    };
    let urls = replay(&store, models, slots(), (utilisation, every), &read);
    let ours = asked_of(watched, &gets.lock());
    let place = |url: &u64| Some((store.locate(&key(*url)).unwrap()?.first()?.offset, *url));
    let order: BTreeMap<u64, u64> = urls.iter().filter_map(place).collect();
    store.close().unwrap();
    (ours, order.into_values().collect())
}

/// How often the next URL on the disk is another server's.
fn changes(order: &[u64]) -> u64 {
    order.windows(2).filter(|pair| server_of(pair[0]) != server_of(pair[1])).count() as u64
}

/// Within 5% of what the model says, and [`LOOKS`].
fn held(what: &str, ours: u64, model: u64) {
    println!("{what}: {ours}, the model {model}");
    assert!(ours.abs_diff(model) <= model / 20 + LOOKS, "{what}: {ours}, and the model has {model}");
}

#[test]
fn stream_asks_of_the_disk_what_its_paper_says() {
    // Blocks of a slot, so that nothing is written in part; and of a page.
    for (block, utilisation) in [(512, 71), (512, 90), (4096, 71)] {
        let (watched, device) = Watched::new(block);
        let mut model = Stream::new(slots(), block as u64);
        let (ours, _) = asked_beside(by_hand("stream", device), &watched, &mut [&mut model], (utilisation, 1));
        let model = model.asked();
        println!("STREAM, blocks of {block}, {utilisation}%");
        held("writes", ours.writes, model.writes);
        held("bytes written", ours.written, model.written);
        held("reads", ours.reads, model.reads);
        held("bytes read", ours.read, model.read);
        held("pages read to be written in part", ours.page_reads, model.page_reads);
        held("writes that do not go on behind the last", ours.breaks, model.breaks);
    }
}

#[test]
fn buddy_asks_of_the_disk_what_its_paper_says() {
    for utilisation in [40, 71] {
        let (watched, device) = Watched::new(512);
        let folder = Arc::new(Counting::default());
        let mut model = Buddy::new(THRESHOLD as usize);
        let options = by_hand("buddy", device).with(|options| options.threshold = THRESHOLD);
        let options = options.long_files_in(folder.clone() as Arc<dyn Folder>);
        let areas = |go_back| Areas::new(slots(), |class| 8.max(64 / class), go_back);
        let [mut given_back, mut kept] =
            [true, false].map(|go_back| Buddy::of_areas(THRESHOLD as usize, areas(go_back)));
        let models: &mut [&mut dyn Manages] = &mut [&mut model, &mut given_back, &mut kept];
        let (ours, _) = asked_beside(options, &watched, models, (utilisation, 1));
        let model = model.asked();
        println!("BUDDY, {utilisation}%");
        held("writes", ours.writes, model.writes);
        held("bytes written", ours.written, model.written);
        held("reads", ours.reads, model.reads);
        held("bytes read", ours.read, model.read);
        let files = folder.0.lock().1;
        held("files made", files.files_made, model.files_made);
        held("files removed", files.files_removed, model.files_removed);
        println!("blocks of classes: {}, in files {}", ours.blocks, model.blocks);
        held("blocks of classes, in areas that go back", ours.blocks, given_back.asked().blocks);
        held("blocks of classes in areas that stay, and in files", kept.asked().blocks, model.blocks);
    }
}

#[test]
fn locality_buffers_ask_of_the_disk_what_their_paper_says() {
    for utilisation in [40, 71, 85] {
        let (watched, device) = Watched::new(512);
        assert!(watched.from.is_multiple_of(PAGE), "slots begin with a page");
        let mut model = LocalityBuffers::new(slots(), BUFFERS);
        let options = by_hand("lazy-reads-loc", device).with(|options| options.open_buffers = BUFFERS);
        let (ours, order) = asked_beside(options, &watched, &mut [&mut model], (utilisation, WAITING));
        println!("locality buffers, {utilisation}%");
        let [here, there] = [&order, &model.in_order()].map(|order| changes(order));
        held("changes of server from one URL to the next", here, there);
        assert!(here < order.len() as u64 / 3, "as they come two of three are another server's than the one before");
        let model = model.asked();
        held("packets", ours.packets, model.packets);
        held("bytes written", ours.written, model.written);
        held("reads", ours.reads, model.reads);
        held("bytes read", ours.read, model.read);
        held("writes that do not go on behind the last", ours.breaks, model.breaks);
    }
}
