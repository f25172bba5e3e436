//! Memory as the system counts it. Alone in their process, and one after the other, for the count is the process's.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use picaflor::{Daemons, Durability, Options, PutOptions, Store, device::MemoryDevice};

/// Bytes of memory of this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux says what a process holds");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

fn alone() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn sixty_megabytes_pass_through_eight_of_memory() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let before = resident();
    let options = Options::new(folder.path().join("store")).capacity(300 << 20).memory(8 << 20);
    let store = Store::open(options.with(|options| options.cluster = 256 << 10)).unwrap();
    let piece = vec![7; 500_000];
    let mut stream = store.put_stream(b"big", None, PutOptions::default()).unwrap();
    (0..120).for_each(|_| stream.write(&piece).unwrap());
    stream.finish().unwrap();
    let object = store.get(b"big").unwrap().unwrap();
    assert_eq!(object.chunks(0..u64::MAX).map(|piece| piece.unwrap().len()).sum::<usize>(), 60_000_000);
    let more = resident().saturating_sub(before);
    // Beside what the store was given: stacks of its threads, what the allocator keeps, buffers of the ring.
    assert!(more < 24 << 20, "{more} bytes more");
}

#[test]
fn replacing_one_object_for_ever_takes_no_memory() {
    let _turn = alone();
    let options = Options::on(Arc::new(MemoryDevice::new(8 << 20))).memory(32 << 20).durability(Durability::None);
    let options = options.with(|options| (options.cluster, options.daemons) = (64 << 10, Daemons::Manual));
    let store = Store::open(options).unwrap();
    let round = || {
        for i in 0..100_000u64 {
            store.put(b"hot", &i.to_le_bytes()).unwrap();
            store.get(b"hot").unwrap().unwrap();
            if i % 64 == 0 {
                store.step().unwrap();
            }
        }
    };
    // The device itself is in memory: the first rounds fill it, and the buffers.
    (0..2).for_each(|_| round());
    let before = resident();
    round();
    let more = resident().saturating_sub(before);
    // 100,000 forgotten entries of a queue would be 20 MB.
    assert!(more < 4 << 20, "{more} bytes more");
    let stats = store.stats();
    assert!(stats.memory_objects <= 1 && stats.memory_used <= stats.memory_limit, "{stats:?}");
}

#[test]
fn an_index_that_grows_leaves_nothing_behind() {
    let _turn = alone();
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Options::new(folder.path().join("store")).capacity(1 << 30).memory(64 << 20)).unwrap();
    let bypass = PutOptions::new().bypass_memory(true);
    let uncounted = || resident().saturating_sub(store.stats().memory_used);
    let mut number = 0_u64;
    let mut fill_to = |bytes| {
        let mut most = 0;
        while store.stats().index_bytes < bytes {
            // What is on its way to the device, or being copied, is gone a moment later.
            let mut least = u64::MAX;
            for _ in 0..16 {
                for _ in 0..200 {
                    store.put_with(&number.to_le_bytes(), b"", &bypass).unwrap();
                    number += 1;
                }
                least = least.min(uncounted());
            }
            most = most.max(least);
        }
        most
    };
    // Its 64 segments are equally long: whatever one does at some length, all do at about the same time.
    let before = fill_to(1 << 20);
    let more = fill_to(12 << 20).saturating_sub(before);
    println!("{} KiB more than are counted", more >> 10);
    assert!(more < 5 << 20, "{more} bytes more than are counted");
}
