//! Memory as the system counts it. Alone in its process, for the count is the process's.

use std::sync::Arc;

use picaflor::{Daemons, Durability, Options, PutOptions, Store, device::MemoryDevice};

/// Bytes of memory of this process.
fn resident() -> u64 {
    let pages = std::fs::read_to_string("/proc/self/statm").expect("Linux says what a process holds");
    pages.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).expect("a number of pages") * 4096
}

#[test]
fn replacing_one_object_for_ever_takes_no_memory() {
    let options = Options::on(Arc::new(MemoryDevice::new(8 << 20))).memory(32 << 20).durability(Durability::None);
    let options = options.with(|options| (options.cluster, options.daemons) = (64 << 10, Daemons::Manual));
    let store = Store::open(options).unwrap();
    let round = || {
        for i in 0..100_000u64 {
            store.put(b"hot", &i.to_le_bytes(), &PutOptions::default()).unwrap();
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
