//! Workloads and options that the tests of the presets share.

use std::sync::Arc;

use picaflor::{
    Daemons, Durability, Mode, Options, PutOptions, Store,
    device::{Clock, Device, MemoryDevice},
};

pub(crate) const MIB: u64 = 1 << 20;

/// Rows whose objects lie in place on a device.
pub(crate) const IN_PLACE: [&str; 6] = ["buddy", "buddy-scan", "stream", "stream-pack", "lazy-reads", "lazy-reads-loc"];

pub(crate) fn body(seed: u64, len: usize) -> Vec<u8> {
    (0..len as u64).map(|i| (seed.wrapping_mul(0x9e37_79b9).wrapping_add(i * i) >> 3) as u8).collect()
}

pub(crate) fn key(i: u64) -> Vec<u8> {
    format!("http://example.org/objects/{i:08}").into_bytes()
}

pub(crate) fn plain() -> PutOptions {
    PutOptions::default()
}

/// No threads, a clock that stands still, nothing durable unasked, 3 MiB of memory.
pub(crate) fn by_hand(preset: &str, device: Arc<dyn Device>) -> Options {
    let options = Options::on(device).memory(3 * MIB).mode(Mode::Store).durability(Durability::None);
    options.rows(picaflor_literature::ROWS).as_preset(preset).unwrap().with(|options| {
        options.cluster = 64 << 10;
        options.seed = Some(7);
        options.daemons = Daemons::Manual;
        options.clock = Clock::virtual_at(1_000_000);
    })
}

pub(crate) fn memory(bytes: u64, block: usize) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::with_block_size(bytes, block))
}

pub(crate) fn read(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|object| object.body().unwrap().to_vec())
}
