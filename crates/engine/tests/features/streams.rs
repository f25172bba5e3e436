//! Objects larger than a cluster, and larger than memory, in and out.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Wake, Waker},
    thread::{self, Thread},
};

use bytes::Bytes;
use picaflor::{Daemons, Error, Mode, Options, Refusal, Store, device::FileDevice};

use crate::common::{KIB, MIB, body, bypass, counted, key, plain, read};

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

pub(crate) fn block_on<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => thread::park(),
        }
    }
}

fn stream(store: &Store, key: &[u8], body: &[u8], len: Option<u64>, piece: usize) -> picaflor::Result<()> {
    let mut stream = store.put_stream(key, len, plain())?;
    for piece in body.chunks(piece.max(1)) {
        stream.write(piece)?;
    }
    stream.finish()
}

#[test]
fn any_length_known_or_not_comes_back() {
    let (_, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    let cluster = 64 * KIB as usize;
    let mut lens = vec![0, 1, 4095, 4096, cluster - 400, 3 * cluster, 1_000_003];
    // Around the largest that fits in one cluster, and around two chunks.
    lens.extend((cluster - 330..cluster).step_by(16));
    lens.extend((2 * cluster - 600..2 * cluster).step_by(32));
    for (i, len) in lens.into_iter().enumerate() {
        let (name, whole) = (key(i as u64), body(i as u64, len));
        for (known, piece) in [(true, 10_000), (false, 10_000), (false, cluster * 4), (true, 777)] {
            stream(&store, &name, &whole, known.then_some(len as u64), piece).unwrap();
            let object = store.get(&name).unwrap().unwrap();
            assert_eq!(object.len(), len as u64);
            assert!(object.body().unwrap() == whole, "{len} in pieces of {piece}");
        }
        store.put(&name, &whole).unwrap();
        assert!(read(&store, &name).unwrap() == whole, "{len}");
    }
}

#[test]
fn a_wrong_length_is_refused_and_the_object_before_stays() {
    for mode in [Mode::Cache, Mode::Store] {
        let (_, options) = counted(64 * MIB);
        let store = Store::open(options.mode(mode)).unwrap();
        store.put(b"a", b"before").unwrap();
        let entries = store.stats().objects;
        for (told, len) in [(999, 1000), (1001, 1000), (0, 1), (500_000, 499_999), (400_000, 500_000)] {
            let result = stream(&store, b"a", &body(1, len), Some(told), 7000);
            let Err(Error::Length { announced, came }) = result else { panic!("{told} {len} {result:?}") };
            assert_eq!((announced, came), (told, len as u64));
            assert_eq!(read(&store, b"a").unwrap(), b"before");
        }
        for pieces in [0, 1, 100] {
            let mut abandoned = store.put_stream(b"a", None, plain()).unwrap();
            (0..pieces).for_each(|_| abandoned.write(&[1; 10_000]).unwrap());
            drop(abandoned);
            assert_eq!(read(&store, b"a").unwrap(), b"before");
        }
        assert_eq!(store.stats().objects, entries, "no chunk is left behind");
    }
}

#[test]
fn after_an_error_a_stream_cannot_be_finished() {
    let (_, options) = counted(16 * MIB);
    let store = Store::open(options).unwrap();
    store.put(b"a", b"before").unwrap();
    let mut stream = store.put_stream(b"a", None, plain()).unwrap();
    let piece = vec![1; MIB as usize];
    let error = (0..16).find_map(|_| stream.write(&piece).err()).expect("a quarter of the device is the most");
    assert!(matches!(error, Error::Refused(Refusal::TooLarge)), "{error}");
    assert!(matches!(stream.write(b"more"), Err(Error::Refused(Refusal::TooLarge))));
    assert!(matches!(stream.finish(), Err(Error::Refused(Refusal::TooLarge))), "what is missing is not left out");
    assert_eq!(read(&store, b"a").unwrap(), b"before");
}

#[test]
fn what_streams_hold_is_memory_of_the_store() {
    let (_, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    for i in 0..200 {
        store.put(&key(i), &body(i, 40_000)).unwrap();
        read(&store, &key(i)).unwrap();
    }
    let before = store.stats().memory_used;
    let open = |i| {
        let mut stream = store.put_stream(&key(1000 + i), None, plain()).unwrap();
        stream.write(&body(i, 50_000)).unwrap();
        stream
    };
    let streams: Vec<_> = (0..60).map(open).collect();
    let with = store.stats().memory_used;
    assert!(with <= 8 * MIB, "{with}");
    assert!(store.stats().memory_used >= 60 * 50_000, "{with} after {before}");
    drop(streams);
    assert!(store.stats().memory_used <= with - 60 * 50_000);
}

#[test]
fn gets_are_counted_by_object_not_by_chunk() {
    let (_, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    let whole = body(1, 1_000_000);
    store.put(b"large", &whole).unwrap();
    for _ in 0..10 {
        assert!(read(&store, b"large").unwrap() == whole);
    }
    let counts = store.stats().counts;
    let hits = counts.hits_memory + counts.hits_buffer + counts.hits_device;
    assert_eq!((counts.gets, hits), (10, 10), "{counts:?}");
}

#[test]
fn a_large_object_without_one_of_its_chunks_is_not_there_for_anybody() {
    let (_, options) = counted(4 * MIB);
    let store = Store::open(options).unwrap();
    store.put(b"large", &body(1, 900_000)).unwrap();
    for i in 0.. {
        store.put(&key(i), &body(i, 30_000)).unwrap();
        let there = store.contains(b"large").unwrap();
        assert_eq!(store.group_of(b"large").unwrap().is_some(), there);
        assert_eq!(read(&store, b"large").is_some(), there, "after {i} others");
        if !there {
            break;
        }
    }
}

#[test]
fn ranges_are_cut_to_the_body() {
    let (_, options) = counted(64 * MIB);
    let store = Store::open(options).unwrap();
    for len in [0, 10, 5000, 700_000u64] {
        let whole = body(len, len as usize);
        store.put(b"a", &whole).unwrap();
        let object = store.get(b"a").unwrap().unwrap();
        let chunk = 64 * KIB - 300;
        let edges = [0, 1, len / 2, chunk, len.saturating_sub(1), len, len + 1, u64::MAX];
        for (from, to) in edges.iter().flat_map(|from| edges.iter().map(move |to| (*from, *to))) {
            let got: Vec<u8> = object.chunks(from..to).flat_map(|piece| piece.unwrap().to_vec()).collect();
            let (start, end) = (from.min(len) as usize, to.min(len) as usize);
            assert!(got == whole[start..end.max(start)], "{from}..{to} of {len}");
            let mut chunks = object.chunks(from..to);
            let mut later = Vec::new();
            while let Some(piece) = block_on(chunks.next_async()) {
                later.extend_from_slice(&piece.unwrap());
            }
            assert!(later == got);
        }
    }
}

#[test]
fn sixty_megabytes_pass_through_eight_of_memory() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options::new(folder.path().join("store")).capacity(300 * MIB).memory(8 * MIB);
    let store = Store::open(options.with(|options| options.cluster = 256 << 10)).unwrap();
    let piece = Bytes::from(body(5, 500_000));
    let mut stream = store.put_stream(b"big", None, plain()).unwrap();
    for i in 0..120 {
        match i % 2 {
            0 => stream.write(&piece).unwrap(),
            _ => block_on(stream.write_async(piece.clone())).unwrap(),
        }
        assert!(store.get(b"big").unwrap().is_none());
        let stats = store.stats();
        assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
    }
    stream.finish().unwrap();
    for async_form in [false, true] {
        let object = store.get(b"big").unwrap().unwrap();
        assert_eq!(object.len(), 60_000_000);
        let mut chunks = object.chunks(0..u64::MAX);
        let mut at = 0;
        while let Some(got) = if async_form { block_on(chunks.next_async()) } else { chunks.next() } {
            let got = got.unwrap();
            for (i, byte) in got.iter().enumerate().step_by(97) {
                assert_eq!(*byte, piece[(at + i) % 500_000]);
            }
            at += got.len();
            let stats = store.stats();
            assert!(stats.memory_used <= stats.memory_limit, "{stats:?}");
        }
        assert_eq!(at, 60_000_000);
    }
    assert!(store.delete(b"big").unwrap());
    assert_eq!(store.stats().objects, 0);
    store.close().unwrap();
    drop(FileDevice::open(folder.path().join("store"), picaflor::device::OpenOptions::default()).unwrap());
}

#[test]
fn chunks_are_freed_whoever_takes_their_place() {
    let (_, options) = counted(32 * MIB);
    let store = Store::open(options.mode(Mode::Store)).unwrap();
    for round in 0..30u64 {
        // Ten times the device in all: nothing may be left behind.
        for i in 0..3 {
            store.put(&key(i), &body(round, 3_000_000)).unwrap_or_else(|e| panic!("{round} {i}: {e}"));
        }
        store.put(&key(0), &body(round, 2_000_000)).unwrap();
        store.put(&key(1), &body(round, 500)).unwrap();
        store.delete(&key(2)).unwrap();
        assert_eq!(read(&store, &key(0)).unwrap(), body(round, 2_000_000));
        assert_eq!(read(&store, &key(1)).unwrap(), body(round, 500));
        assert!(read(&store, &key(2)).is_none());
    }
    store.delete(&key(0)).unwrap();
    store.delete(&key(1)).unwrap();
    assert_eq!((store.stats().objects, store.keys().count()), (0, 0));
}

#[test]
fn a_handle_outlives_its_object() {
    let (_, options) = counted(32 * MIB);
    let (small, large) = (body(1, 3000), body(2, 600_000));
    for from_device in [false, true] {
        let store = Store::open(options.clone().with(|o| o.places = counted(32 * MIB).1.places)).unwrap();
        store.put_with(b"small", &small, &bypass()).unwrap();
        store.put_with(b"large", &large, &bypass().metadata(Bytes::from_static(b"m"))).unwrap();
        for i in 0..if from_device { 100 } else { 0 } {
            store.put_with(&key(i), &body(i, 3000), &bypass()).unwrap();
        }
        store.step().unwrap();
        let (held, partly) = (store.get(b"small").unwrap().unwrap(), store.get(b"large").unwrap().unwrap());
        let mut chunks = partly.chunks(0..600_000);
        let first = chunks.next().unwrap().unwrap();
        store.delete(b"small").unwrap();
        store.delete(b"large").unwrap();
        for i in 1000..30_000 {
            store.put(&key(i), &body(i, 3000)).unwrap();
            store.step().unwrap();
        }
        assert_eq!(held.body().unwrap(), small, "the place was written over and over");
        assert_eq!((partly.metadata(), partly.len()), (&b"m"[..], 600_000));
        let rest: Vec<u8> = chunks.flat_map(|piece| piece.unwrap().to_vec()).collect();
        assert!([&first[..], &rest].concat() == large, "its chunks were moved as long as somebody read them");
    }
}

#[test]
fn a_task_writes_a_stream_with_and_without_threads() {
    for daemons in [Daemons::Threads, Daemons::Manual] {
        let (_, options) = counted(64 * MIB);
        let store = Store::open(options.memory(MIB).with(|options| options.daemons = daemons)).unwrap();
        let whole = Bytes::from(body(9, 12_000_000));
        let write = async {
            let mut stream = store.put_stream(b"a", Some(12_000_000), plain()).unwrap();
            for at in (0..whole.len()).step_by(100_000) {
                stream.write_async(whole.slice(at..at + 100_000)).await.unwrap();
            }
            stream.finish().unwrap();
        };
        block_on(write);
        assert!(read(&store, b"a").unwrap() == whole);
    }
}

#[test]
fn who_reads_an_old_version_does_not_delete_the_new_one() {
    for mode in [Mode::Cache, Mode::Store] {
        let (_, options) = counted(32 * MIB);
        let store = Store::open(options.mode(mode)).unwrap();
        for new in [100, 700_000] {
            store.put_with(b"a", &body(1, 600_000), &bypass()).unwrap();
            let old = store.get(b"a").unwrap().unwrap();
            store.put_with(b"a", &body(2, new), &bypass()).unwrap();
            assert!(old.body().unwrap() == body(1, 600_000));
            assert!(read(&store, b"a").unwrap() == body(2, new));
        }
    }
}

#[test]
fn a_large_object_that_lost_a_chunk_is_a_miss_not_half_a_body() {
    let (_, options) = counted(16 * MIB);
    let store = Store::open(options).unwrap();
    // More of them than putting again is paid for, so some lose a chunk.
    let whole = body(1, 600_000);
    let mut puts = 0;
    for round in 0..300 {
        let name = [b"large", &[b'a' + (round % 13) as u8][..]].concat();
        match store.get(&name).unwrap() {
            Some(object) => {
                assert_eq!(object.chunks(0..10).next().unwrap().unwrap(), whole[..10]);
                if round % 50 == 49 {
                    let last = object.chunks(599_990..600_000).next().unwrap();
                    assert_eq!(last.unwrap_or_else(|e| panic!("round {round}: {e}")), whole[599_990..]);
                }
            }
            None => {
                store.put(&name, &whole).unwrap();
                puts += 1;
            }
        }
        for i in 0..8 {
            store.put_with(&key(round * 8 + i), &body(i, 40_000), &bypass()).unwrap();
        }
    }
    assert!((18..300).contains(&puts), "{puts} puts: they came and went");
}

#[test]
fn a_large_object_that_is_asked_for_in_part_stays_whole() {
    let (_, options) = counted(16 * MIB);
    let store = Store::open(options).unwrap();
    let large = body(7, 300_000);
    store.put(b"large", &large).unwrap();
    for lap in 0..40 {
        let object = store.get(b"large").unwrap().unwrap_or_else(|| panic!("gone after {lap} MiB"));
        assert_eq!(object.chunks(0..10).next().unwrap().unwrap(), large[..10]);
        drop(object);
        (0..256).for_each(|i| store.put(&key(lap * 256 + i), &body(i, 4000)).unwrap());
        while store.step().unwrap() {}
    }
    assert_eq!(read(&store, b"large").unwrap(), large);
}
