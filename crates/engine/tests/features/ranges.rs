//! Parts of objects.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use parking_lot::Mutex;
use picaflor::{
    Chunks, Store,
    device::{Device, MemoryDevice, Op, Request},
};

use crate::{
    common::{KIB, MIB, body, by_hand, bypass, counted, key},
    streams::block_on,
};

fn pieces(chunks: Option<Chunks>) -> Vec<Bytes> {
    chunks.unwrap().map(Result::unwrap).collect()
}

fn pieces_async(store: &Store, key: &[u8], start: u64, end: u64) -> Vec<Bytes> {
    block_on(async {
        let mut chunks = store.get_range_async(key, start..end).await.unwrap().unwrap();
        let mut all = Vec::new();
        while let Some(piece) = chunks.next_async().await {
            all.push(piece.unwrap());
        }
        all
    })
}

#[test]
fn any_range_is_those_bytes_and_no_others() {
    let (_, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    let cluster = 64 * KIB as usize;
    for (i, len) in [0, 1, 5_000, cluster / 2, 3 * cluster, 500_001].into_iter().enumerate() {
        let (name, whole) = (key(i as u64), body(i as u64, len));
        store.put(&name, &whole).unwrap();
        let (len, cluster) = (len as u64, cluster as u64);
        let bounds = [0, 1, len / 2, cluster - 1, 2 * cluster, len.saturating_sub(1), len, len + 1, u64::MAX];
        for (start, end) in bounds.iter().flat_map(|start| bounds.iter().map(move |end| (*start, *end))) {
            let from = start.min(len) as usize;
            let wanted = &whole[from..(end.min(len) as usize).max(from)];
            let chunks = store.get_range(&name, start..end).unwrap().unwrap();
            let cut = chunks.range();
            assert_eq!(chunks.total(), len);
            assert_eq!((cut.start as usize, (cut.end - cut.start) as usize), (from, wanted.len()), "{start}..{end}");
            let got = pieces(Some(chunks));
            assert!(got.concat() == wanted, "{start}..{end} of {len}");
            assert!(got.iter().all(|piece| !piece.is_empty()));
            assert!(pieces_async(&store, &name, start, end).concat() == wanted, "{start}..{end} of {len}");
        }
    }
    assert!(store.get_range(b"nobody", 0..1).unwrap().is_none());
    assert!(block_on(store.get_range_async(b"nobody", 0..1)).unwrap().is_none());
}

#[test]
fn a_part_of_a_small_object_is_a_slice_of_it() {
    let (_, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    let whole = body(1, 10_000);
    store.put(&key(1), &whole).unwrap();
    let object = store.get(&key(1)).unwrap().unwrap().body().unwrap();
    let [part] = &pieces(store.get_range(&key(1), 1_000..3_000).unwrap())[..] else { panic!("more than one piece") };
    assert!(part == &whole[1_000..3_000]);
    assert_eq!(part.as_ptr(), object[1_000..].as_ptr(), "copied");
}

#[test]
fn a_part_of_a_large_object_reads_only_what_it_needs() {
    let (device, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    let whole = body(1, 2 * MIB as usize);
    store.put_with(&key(1), &whole, &bypass()).unwrap();
    store.flush().unwrap();
    // Both ends of the first two chunks, and the manifest.
    let before = device.counts().read_bytes;
    let part = pieces(store.get_range(&key(1), 60_000..80_000).unwrap());
    assert!(part.concat() == whole[60_000..80_000]);
    assert!(device.counts().read_bytes - before <= 3 * 64 * KIB, "more than two chunks and a manifest");
}

/// A device that keeps reads which are submitted to it until time passes.
struct Slow {
    inner: MemoryDevice,
    held: Mutex<VecDeque<Request>>,
    most: AtomicUsize,
}

impl Device for Slow {
    fn capacity(&self) -> u64 {
        self.inner.capacity()
    }

    fn block_size(&self) -> usize {
        self.inner.block_size()
    }

    fn read(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.inner.read(offset, buf)
    }

    fn write(&self, offset: u64, buf: &[u8]) -> io::Result<()> {
        self.inner.write(offset, buf)
    }

    fn sync(&self) -> io::Result<()> {
        self.inner.sync()
    }

    fn submit(&self, batch: Vec<Request>) {
        let (reads, others) = batch.into_iter().partition(|request| matches!(request.op, Op::Read(_)));
        let mut held = self.held.lock();
        held.extend::<Vec<_>>(reads);
        self.most.fetch_max(held.len(), Relaxed);
        drop(held);
        self.inner.submit(others);
    }

    fn advance(&self) -> bool {
        let next = self.held.lock().pop_front();
        next.map(|read| self.inner.submit(vec![read])).is_some()
    }

    fn backend(&self) -> String {
        self.inner.backend()
    }
}

#[test]
fn chunks_of_a_body_in_one_piece_are_read_while_others_arrive() {
    let inner = MemoryDevice::new(64 * MIB);
    let device = Arc::new(Slow { inner, held: Mutex::default(), most: AtomicUsize::new(0) });
    let store = Store::open(by_hand(device.clone())).unwrap();
    let whole = body(1, 2 * MIB as usize);
    store.put_with(&key(1), &whole, &bypass()).unwrap();
    store.flush().unwrap();
    let object = store.get(&key(1)).unwrap().unwrap();
    assert!(object.body().unwrap() == whole);
    assert_eq!(device.most.swap(0, Relaxed), 8);
    let read = std::thread::spawn(move || block_on(object.body_async()).unwrap());
    let begin = Instant::now();
    while !read.is_finished() {
        assert!(begin.elapsed() < Duration::from_secs(60), "they are read one after the other");
        // Nothing lands before as many are under way as will be.
        if device.most.load(Relaxed) == 8 {
            device.advance();
        }
        std::thread::yield_now();
    }
    assert!(read.join().unwrap() == whole);
}
