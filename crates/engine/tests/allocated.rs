//! What the store says that it holds, beside what was allocated. Alone in its process, for the count is the process's.
#![allow(clippy::unwrap_used)] // a test that cannot go on fails

use std::{alloc::System, sync::Arc};

use picaflor::{
    Daemons, Durability, Options, PutOptions, Store,
    device::{Clock, MemoryDevice},
};
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Bytes that an allocator takes for what is allocated now: beside each block a word of its own, and what the length is
/// rounded up by.
fn allocated() -> u64 {
    let stats = ALLOCATOR.stats();
    let (bytes, blocks) = (stats.bytes_allocated - stats.bytes_deallocated, stats.allocations - stats.deallocations);
    (bytes + 16 * blocks) as u64
}

/// A store on a device in memory, which takes none of it later: what it will hold is there from the beginning.
fn store(memory: u64) -> Store {
    let options = Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(memory).durability(Durability::None);
    let options = options.with(|options| {
        (options.cluster, options.daemons) = (64 << 10, Daemons::Manual);
        // Else what a read happens to cost decides whether clusters are read.
        options.clock = Clock::virtual_at(1_000_000);
    });
    Store::open(options).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("http://example.org/{number}").into_bytes()
}

#[test]
fn objects_in_memory_take_no_more_than_is_counted() {
    for (len, number, metadata) in [(100, 20_000, 0), (1000, 10_000, 0), (100, 10_000, 90), (5000, 2000, 0)] {
        let store = store(48 << 20);
        let put = PutOptions::new().bypass_memory(true).metadata(vec![1; metadata]);
        for i in 0..number {
            store.put_with(&key(i), &vec![7; len], &put).unwrap();
            store.step().unwrap();
        }
        store.flush().unwrap();
        while store.step().unwrap() {}
        let (before, counted) = (allocated(), store.stats().memory_used);
        for i in 0..number {
            // A few of very many displace each other in the index.
            let Some(object) = store.get(&key(i)).unwrap() else { continue };
            if metadata > 0 {
                // As large as what the proxy makes of a head.
                object.decoded(|_| [0_u8; 88]);
            }
        }
        let held = store.stats().memory_objects;
        assert!(held > number - number / 100, "{held}");
        let since = || (allocated() - before, store.stats().memory_used - counted);
        let (more, more_counted) = since();
        println!("{len} {metadata}: {} allocated, {} counted for each", more / held, more_counted / held);
        // The map and the queue are anything from half full to full.
        assert!(more <= more_counted + more_counted / 20, "{len}: {more} bytes, counted as {more_counted}");
        // The largest ones lie in clusters that were read: memory that is mapped, which `resident.rs` sees.
        assert!(len > 4096 || more * 5 >= more_counted * 4, "{len}: {more} bytes, counted as {more_counted}");
        // What is replaced leaves memory, but for its entry in the queue.
        (0..number / 10).for_each(|i| store.put_with(&key(i * 10), b"", &put).unwrap());
        let (less, less_counted) = since();
        println!("then {} and {}", less / held, less_counted / held);
        assert!(
            less < more && less <= less_counted + less_counted / 20,
            "{len}: {less} bytes, counted as {less_counted}"
        );
    }
}
