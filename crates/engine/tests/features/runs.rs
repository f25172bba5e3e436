//! Objects whose length is announced: each lies in one run of clusters, however old the store is.

use std::sync::Arc;

use picaflor::{Extent, Mode, Options, Store, device::MemoryDevice};
use rand::Rng;

use crate::common::{KIB, MIB, body, by_hand, key, plain, read, rng};

/// Bytes of the end of an object that its head may have.
const TAIL: u64 = 4 * KIB;

fn options(size: u64) -> Options {
    by_hand(Arc::new(MemoryDevice::new(size))).mode(Mode::Store)
}

fn put(store: &Store, i: u64, version: u64, len: u64) {
    let mut stream = store.put_stream(&key(i), Some(len), plain()).unwrap();
    body(version, len as usize).chunks(64 << 10).for_each(|piece| stream.write(piece).unwrap());
    stream.finish().unwrap();
}

/// Parts of an object that lie apart: less than a block is between chunks of one. What its head has of it lies there.
fn runs(store: &Store, i: u64) -> usize {
    let mut extents = store.locate(&key(i)).unwrap().unwrap();
    let follows = |a: &Extent, b: &Extent| (a.offset + a.len..a.offset + a.len + 4096).contains(&b.offset);
    if let [.., before, last] = &extents[..]
        && last.len <= TAIL
        && !follows(before, last)
    {
        extents.pop();
    }
    1 + extents.windows(2).filter(|pair| !follows(&pair[0], &pair[1])).count()
}

struct Aged {
    /// Runs an object, in the mean, at each storage age from 0 on.
    runs: Vec<f64>,
    /// Bytes written for each byte put, filling apart.
    written: f64,
}

/// Fills a store to this share, and replaces at random.
fn age(lens: std::ops::RangeInclusive<u64>, percent: u64, ages: u64) -> Aged {
    let store = Store::open(options(65 * MIB)).unwrap();
    let room = store.stats().volumes[0].room_bytes * percent / 100;
    let (mut rng, mut held, mut live) = (rng(3), Vec::new(), 0);
    loop {
        let len = rng.random_range(lens.clone());
        if live + len > room {
            break;
        }
        put(&store, held.len() as u64, 0, len);
        store.step().unwrap();
        live += len;
        held.push((len, 0));
    }
    let mean = |store: &Store, count: usize| {
        store.flush().unwrap();
        (0..count as u64).map(|i| runs(store, i)).sum::<usize>() as f64 / count as f64
    };
    let mut aged = Aged { runs: vec![mean(&store, held.len())], written: 0.0 };
    let (before, mut replaced, mut put_bytes) = (store.stats().counts.device_written, 0, 0);
    while (aged.runs.len() as u64) <= ages {
        let i = rng.random_range(0..held.len());
        let (old, version) = held[i];
        let fitting = std::iter::repeat_with(|| rng.random_range(lens.clone())).find(|len| live - old + len <= room);
        let len = fitting.unwrap();
        put(&store, i as u64, version + 1, len);
        store.step().unwrap();
        held[i] = (len, version + 1);
        (live, replaced, put_bytes) = (live - old + len, replaced + old, put_bytes + len);
        if replaced >= live * aged.runs.len() as u64 {
            aged.runs.push(mean(&store, held.len()));
        }
    }
    aged.written = (store.stats().counts.device_written - before) as f64 / put_bytes as f64;
    for (i, (len, version)) in held.iter().enumerate() {
        assert!(read(&store, &key(i as u64)) == Some(body(*version, *len as usize)), "{i} of {len} bytes");
    }
    aged
}

#[test]
fn an_announced_object_lies_in_one_run_at_any_age() {
    // Four clusters and little more, as 1 MiB is where they have 256 KiB; and what is as 1 to 10 MiB there.
    for (lens, percent, most) in [
        (256 * KIB..=256 * KIB, 75, 1.0),
        (256 * KIB..=256 * KIB, 90, 1.0),
        (256 * KIB..=2560 * KIB, 50, 1.0),
        (256 * KIB..=2560 * KIB, 75, 1.0),
        (256 * KIB..=2560 * KIB, 90, 1.2),
    ] {
        let aged = age(lens.clone(), percent, 4);
        assert!(aged.runs.iter().all(|runs| *runs <= most), "{lens:?}, {percent}% full: {:?}", aged.runs);
        assert!(aged.written <= 1.3, "{lens:?}, {percent}% full: {}", aged.written);
    }
}

#[test]
fn a_run_that_is_not_written_is_clean_again() {
    let store = Store::open(options(33 * MIB)).unwrap();
    let clean = || store.stats().volumes[0].clusters_free;
    let before = clean();
    let mut stream = store.put_stream(&key(1), Some(1 << 20), plain()).unwrap();
    stream.write(&body(1, 100_000)).unwrap();
    assert_eq!(before - clean(), 16, "all of it is promised");
    drop(stream);
    // The chunk that was written belongs to no object, until reclaim comes by.
    assert_eq!(before - clean(), 1);
    // What is announced and not sent takes little from others.
    let streams: Vec<_> = (0..100)
        .map(|i| {
            let mut stream = store.put_stream(&key(i), Some(2 << 20), plain()).unwrap();
            stream.write(&body(1, 66_000)).unwrap();
            stream
        })
        .collect();
    assert!(before - clean() <= 1 + before / 16 + 100 + 4, "{} of {before}", clean());
    drop(streams);
    assert_eq!(store.get(&key(1)).unwrap().map(|_| ()), None);
}

#[test]
fn the_end_of_an_object_may_be_in_its_head() {
    let options = options(33 * MIB);
    let store = Store::open(options.clone()).unwrap();
    // Nothing, a byte, as much as a head takes and one more, behind four chunks.
    let four = 4 * ((64 << 10) - 244);
    let lens = [four, four + 1, four + 4000, four + 5000];
    let verify = |store: &Store| {
        for (i, len) in (0..).zip(lens) {
            let object = store.get(&key(i)).unwrap().unwrap();
            let whole = body(i, len as usize);
            assert!((object.len(), &object.body().unwrap()[..]) == (len, &whole[..]));
            for range in [len - 1..len, four - 1..len + 9, four..four, four + 1..len, 5..four + 1, 0..len] {
                let pieces = object.chunks(range.clone()).map(|piece| piece.unwrap());
                let wanted =
                    &whole[(range.start.min(len)) as usize..(range.end.min(len)).max(range.start.min(len)) as usize];
                assert!(pieces.collect::<Vec<_>>().concat() == wanted, "{range:?} of {len}");
            }
        }
    };
    for (i, len) in (0..).zip(lens) {
        put(&store, i, i, len);
    }
    verify(&store);
    store.flush().unwrap();
    let parts = |i| store.locate(&key(i)).unwrap().unwrap().len();
    assert_eq!([0, 1, 2, 3].map(parts), [4, 5, 5, 5]);
    store.close().unwrap();
    verify(&Store::open(options).unwrap());
}
