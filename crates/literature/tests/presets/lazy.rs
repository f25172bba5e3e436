//! Reads in batches, and locality buffers.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::{Duration, Instant},
};

use picaflor::{
    Mode, Store,
    device::{CountedDevice, MemoryDevice},
};

use crate::common::{MIB, body, by_hand, key, memory, plain, read};

/// A store with 100 objects that are not in memory, and its device.
fn cold(preset: &str) -> (Store, CountedDevice, picaflor::device::Clock) {
    let device = CountedDevice::new(Arc::new(MemoryDevice::with_block_size(16 * MIB, 512)));
    let options = by_hand(preset, Arc::new(device.clone()));
    let clock = options.clock.clone();
    let store = Store::open(options).unwrap();
    for i in 0..100 {
        store.put_with(&key(i), &body(i, 2000), &plain().bypass_memory(true)).unwrap();
    }
    store.flush().unwrap();
    (store, device, clock)
}

#[test]
fn ten_reads_make_a_batch() {
    let (store, device, _) = cold("lazy-reads");
    let before = device.counts().reads;
    let mut gets: Vec<_> = (0..10).rev().map(|i| (i, Box::pin(store.get_async(&key(i * 7))))).collect();
    let mut context = Context::from_waker(Waker::noop());
    for (i, get) in &mut gets[..9] {
        assert!(get.as_mut().poll(&mut context).is_pending(), "{i}");
    }
    store.step().unwrap();
    assert_eq!(device.counts().reads, before, "they wait for each other");
    for (i, get) in gets.iter_mut().rev() {
        let Poll::Ready(found) = get.as_mut().poll(&mut context) else { panic!("{i} still waits") };
        assert_eq!(found.unwrap().unwrap().body().unwrap(), body(*i * 7, 2000));
    }
    assert_eq!(device.counts().reads, before + 10);
}

#[test]
fn nobody_waits_longer_than_the_time_out_on_the_clock_of_the_store() {
    let (store, device, clock) = cold("lazy-reads");
    let before = device.counts().reads;
    let mut get = pin!(store.get_async(&key(3)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(get.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_millis(499));
    store.step().unwrap();
    assert!(get.as_mut().poll(&mut context).is_pending());
    clock.advance(Duration::from_millis(1));
    assert!(store.step().unwrap());
    let Poll::Ready(found) = get.as_mut().poll(&mut context) else { panic!("it still waits") };
    assert_eq!(found.unwrap().unwrap().body().unwrap(), body(3, 2000));
    assert_eq!(device.counts().reads, before + 1);
}

#[test]
fn a_blocking_get_by_hand_takes_along_whoever_waits() {
    let (store, _, _) = cold("lazy-reads");
    let mut get = pin!(store.get_async(&key(3)));
    let mut context = Context::from_waker(Waker::noop());
    assert!(get.as_mut().poll(&mut context).is_pending());
    assert_eq!(read(&store, &key(50)).unwrap(), body(50, 2000));
    assert!(get.as_mut().poll(&mut context).is_ready());
}

#[test]
fn threads_wait_for_each_other_and_for_the_time_out() {
    let folder = tempfile::tempdir().unwrap();
    let options = picaflor_literature::preset("lazy-reads")
        .unwrap()
        .place(folder.path().join("a"))
        .capacity(32 * MIB)
        .memory(8 * MIB);
    let time = Duration::from_millis(300);
    let store = Store::open(options.mode(Mode::Store).with(|o| o.read_batch_time = time)).unwrap();
    for i in 0..20 {
        store.put_with(&key(i), &body(i, 2000), &plain().bypass_memory(true)).unwrap();
    }
    store.flush().unwrap();
    let began = Instant::now();
    assert_eq!(read(&store, &key(1)).unwrap(), body(1, 2000));
    assert!(began.elapsed() >= time, "alone it waits for the time-out: {:?}", began.elapsed());
    let began = Instant::now();
    std::thread::scope(|scope| {
        for i in 10..20 {
            let store = &store;
            scope.spawn(move || assert_eq!(read(store, &key(i)).unwrap(), body(i, 2000)));
        }
    });
    assert!(began.elapsed() < time, "ten wait for nothing: {:?}", began.elapsed());
    let waiting = store.get_async(&key(5));
    let mut waiting = pin!(waiting);
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    store.clone().close().unwrap();
    let deadline = Instant::now() + Duration::from_secs(5);
    while waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending() {
        assert!(Instant::now() < deadline, "closing issues what waits");
    }
}

#[test]
fn objects_of_a_server_lie_together() {
    let order = |preset: &str| {
        let store = Store::open(by_hand(preset, memory(16 * MIB, 512))).unwrap();
        for i in 0..120u64 {
            let options = plain().server(1 + i as u32 % 6);
            store.put_with(&key(i), &body(i, 1000 + i as usize), &options).unwrap();
            assert_eq!(read(&store, &key(i)).unwrap(), body(i, 1000 + i as usize));
        }
        store.flush().unwrap();
        for i in 0..120u64 {
            assert_eq!(read(&store, &key(i)).unwrap(), body(i, 1000 + i as usize));
        }
        assert!(store.stats().memory_used <= store.stats().memory_limit);
        let key_of = |entry: picaflor::Entry| entry.key[entry.key.len() - 8..].to_vec();
        let number = |key: Vec<u8>| String::from_utf8(key).unwrap().parse::<u64>().unwrap();
        let servers: Vec<u64> = store.keys().map(|entry| number(key_of(entry)) % 6).collect();
        servers.windows(2).filter(|pair| pair[0] != pair[1]).count()
    };
    assert_eq!(order("lazy-reads"), 119);
    assert_eq!(order("lazy-reads-loc"), 5);
}

#[test]
fn what_is_gathered_finds_room_however_little_is_left() {
    let store = Store::open(by_hand("lazy-reads-loc", memory(4 * MIB, 512))).unwrap();
    let server = |i: u64| plain().server(1 + i as u32 % 5);
    let put = |i: u64, len: usize| store.put_with(&key(i), &body(i, len), &server(i)).is_ok();
    let count = (0..).take_while(|i| put(*i, 1500)).count() as u64;
    store.flush().unwrap();
    for i in (0..count).step_by(2) {
        assert!(store.delete(&key(i)).unwrap());
    }
    store.flush().unwrap();
    // No free run is longer than three slots.
    let more = (count..).take_while(|i| put(*i, 9000)).count() as u64;
    assert!(more > 50, "{more}");
    store.flush().unwrap();
    for i in count..count + more {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 9000), "{i}");
    }
    for i in (1..count).step_by(2) {
        assert_eq!(read(&store, &key(i)).unwrap(), body(i, 1500), "{i}");
    }
}
