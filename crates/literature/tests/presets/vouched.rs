//! In place: what a sync vouched for is damage when it rots, and gives way to no older version; what lies at a place
//! and was written for another is no object's; and what a delete lets others have is told by the commit that gives it.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicU64, Ordering::Relaxed},
};

use picaflor::{
    Error, Options, Store,
    device::{AlignedBuf, Device, MemoryDevice},
};
use picaflor_format::{
    BLOCK,
    superblock::Superblock,
    zone::{Map, SLOT},
};
use picaflor_sim::{Asked, HookedDevice, On, kill};

use crate::common::{IN_PLACE, MIB, body, by_hand, key, memory, read};

/// Rows in place that have a journal.
fn told() -> impl Iterator<Item = &'static str> {
    IN_PLACE.into_iter().filter(|preset| *preset != "buddy-scan")
}

fn image(device: &MemoryDevice) -> AlignedBuf {
    let mut image = AlignedBuf::zeroed(device.capacity() as usize);
    device.read(0, &mut image).unwrap();
    image
}

/// Where this body lies.
fn place_of(device: &MemoryDevice, body: &[u8]) -> u64 {
    let image = image(device);
    image.windows(body.len()).position(|bytes| bytes == body).expect("it is on the device") as u64
}

fn flip(device: &MemoryDevice, at: u64) {
    let mut slot = AlignedBuf::zeroed(SLOT as usize);
    let start = at / SLOT * SLOT;
    device.read(start, &mut slot).unwrap();
    slot[(at - start) as usize] ^= 4;
    device.write(start, &slot).unwrap();
}

/// The newest superblock, and its place.
fn newest(device: &MemoryDevice) -> (u64, Superblock) {
    let image = image(device);
    let superblock = |slot| {
        let at = Map::superblock(slot);
        Superblock::decode(&image[at as usize..][..BLOCK]).ok().map(|block| (at, block))
    };
    (0..2).filter_map(superblock).max_by_key(|(_, block)| block.seq).unwrap()
}

fn map_of(block: &Superblock) -> Map {
    Map::new(block.capacity, block.cluster).unwrap()
}

/// A store that was closed twice, with an object replaced between; the replacement's frame has rotted. `killed` where
/// that run was killed, and another one closed the store.
fn rotten(preset: &str, killed: bool) -> (Arc<MemoryDevice>, Options) {
    let device = memory(8 * MIB, 512);
    let options = by_hand(preset, device.clone());
    for version in 1..3 {
        let store = Store::open(options.clone()).unwrap();
        store.put(&key(7), &body(version, 300)).unwrap();
        if version == 2 && killed {
            store.flush().unwrap();
            kill(store);
        } else {
            store.close().unwrap();
        }
    }
    if killed {
        let store = Store::open(options.clone()).unwrap();
        assert_eq!(read(&store, &key(7)), Some(body(2, 300)), "{preset}");
        store.close().unwrap();
    }
    flip(&device, place_of(&device, &body(2, 300)) + 100);
    (device, options)
}

fn is_damaged(store: &Store, what: &str) {
    let found = store.get(&key(7)).map(|found| found.map(|object| object.body().unwrap() == body(1, 300)));
    assert!(matches!(found, Err(Error::Damaged { .. })), "{what}: the version before, or none: {found:?}");
}

#[test]
fn what_a_close_vouched_for_gives_way_to_no_older_version_where_the_newest_checkpoint_rots_too() {
    for preset in told().chain(["picaflor", "hummingbird", "damelo"]) {
        for (superblock, crashes, killed) in (0..8).map(|n| (n & 1 == 1, n & 2 == 2, n & 4 == 4)) {
            // Of clusters it is the superblock alone that says which of them were durable.
            if superblock && !IN_PLACE.contains(&preset) {
                continue;
            }
            let what = format!("{preset}, superblock {superblock}, crashes {crashes}, killed before {killed}");
            let (device, options) = rotten(preset, killed);
            let (at, block) = newest(&device);
            let directory = map_of(&block).cluster_start(block.current.unwrap().directory);
            flip(&device, if superblock { at + 200 } else { directory + 16 });
            let store = Store::open(options.clone()).unwrap();
            let expected = if superblock { "current" } else { "previous" };
            assert_eq!(store.receipt().volumes[0].checkpoint, expected, "{what}");
            if crashes {
                // What the next opening knows of the checkpoint that rotted is what the log has of it.
                store.put(&key(8), &body(8, 300)).unwrap();
                store.flush().unwrap();
                kill(store);
                is_damaged(&Store::open(options).unwrap(), &what);
            } else {
                is_damaged(&store, &what);
            }
        }
    }
}

#[test]
fn what_a_write_brought_to_another_place_is_nobodys_there() {
    for preset in told() {
        let device = memory(8 * MIB, 512);
        let options = by_hand(preset, device.clone());
        let store = Store::open(options.clone()).unwrap();
        store.put(&key(7), &body(1, 300)).unwrap();
        store.flush().unwrap();
        store.put(&key(7), &body(2, 300)).unwrap();
        store.close().unwrap();
        let [old, new] = [1, 2].map(|version| place_of(&device, &body(version, 300)) / SLOT * SLOT);
        let mut slot = AlignedBuf::zeroed(SLOT as usize);
        device.read(old, &mut slot).unwrap();
        device.write(new, &slot).unwrap();
        let store = Store::open(options.clone().with(|options| options.read_only = true)).unwrap();
        assert!(!store.check(|_, _| {}).is_clean(), "{preset}: the audit takes it for the newer version");
        is_damaged(&Store::open(options).unwrap(), preset);
    }
}

type Act = Box<dyn FnOnce() + Send>;

/// Reads so far, before which of them something else happens, and what.
#[derive(Default)]
struct Before {
    reads: AtomicU64,
    act: Mutex<Option<(u64, Act)>>,
}

/// A device before one of whose reads something else happens.
fn watched(inner: Arc<MemoryDevice>) -> (Arc<Before>, Arc<HookedDevice>) {
    let before = Arc::new(Before::default());
    let own = Arc::clone(&before);
    let hook = move |asked: Asked| {
        if asked.on == On::Read && !asked.is_submitted {
            let now = own.reads.fetch_add(1, Relaxed);
            let act = own.act.lock().unwrap().take_if(|(at, _)| *at == now);
            act.into_iter().for_each(|(_, act)| act());
        }
    };
    (before, Arc::new(HookedDevice::new(inner, hook)))
}

#[test]
fn pieces_that_a_delete_has_let_go_are_written_over_only_when_the_delete_is_told() {
    for preset in told() {
        // Before the read of its head, and of each of its first pieces.
        let mut written_over = 0;
        for reads in 1..5 {
            let inner = memory(8 * MIB, 512);
            let (before, device) = watched(inner.clone());
            let options = by_hand(preset, device.clone());
            let store = Store::open(options.clone()).unwrap();
            store.put(b"large", &body(1, 700_000)).unwrap();
            store.close().unwrap();
            let store = Store::open(options.clone()).unwrap();
            let killed = Arc::new(Mutex::new(None));
            let (other, image_then) = (store.clone(), killed.clone());
            let act = move || {
                other.flush().unwrap();
                let full = (0..2000).find_map(|i| other.put(&key(i), &body(i, 60_000)).err());
                assert!(matches!(full, Some(Error::Full { .. })), "{full:?}");
                *image_then.lock().unwrap() = Some(image(&inner));
            };
            *before.act.lock().unwrap() = Some((before.reads.load(Relaxed) + reads, Box::new(act)));
            assert!(store.delete(b"large").unwrap(), "{preset}");
            drop(store);
            // The process was killed in the midst of it.
            let image = killed.lock().unwrap().take().unwrap_or_else(|| panic!("{preset}: fewer reads than {reads}"));
            let copy = memory(8 * MIB, 512);
            copy.write(0, &image).unwrap();
            let options = by_hand(preset, copy);
            let looked = Store::open(options.clone().with(|options| options.read_only = true)).unwrap();
            let report = looked.check(|_, _| {});
            assert!(report.is_clean(), "{preset}, before read {reads}: {report:?}");
            drop(looked);
            let found = read(&Store::open(options).unwrap(), b"large");
            written_over += u64::from(found.is_none());
            assert!(found.is_none_or(|found| found == body(1, 700_000)), "{preset}, before read {reads}");
        }
        assert!(written_over > 0, "{preset}: it was there each time");
    }
}

#[test]
fn a_page_of_the_journal_that_was_bad_on_its_way_is_read_again() {
    for preset in told().chain(["picaflor"]) {
        for bad in 1..4 {
            let inner = memory(8 * MIB, 512);
            let (before, device) = watched(inner.clone());
            let options = by_hand(preset, device.clone());
            let store = Store::open(options.clone()).unwrap();
            for i in 0..3 {
                store.put(&key(i), &body(i, 300)).unwrap();
                store.flush().unwrap();
            }
            kill(store);
            let at = map_of(&newest(&inner).1).journal_page(bad) + 20;
            flip(&inner, at);
            // The read of the ring, behind those of both superblocks, gets the flipped bit.
            let right = inner.clone();
            let act = Box::new(move || flip(&right, at));
            *before.act.lock().unwrap() = Some((before.reads.load(Relaxed) + 3, act));
            let store = Store::open(options).unwrap();
            assert!(before.act.lock().unwrap().is_none());
            assert!((0..3).all(|i| read(&store, &key(i)) == Some(body(i, 300))), "{preset}, page {bad}");
        }
    }
}
