//! Workloads and devices that the feature tests share.

use std::{sync::Arc, time::Duration};

use picaflor::{
    Daemons, Durability, Options, PutOptions, Store,
    device::{Clock, CountedDevice, Device, MemoryDevice},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

pub(crate) const KIB: u64 = 1 << 10;
pub(crate) const MIB: u64 = 1 << 20;

/// Bytes that tell their seed and length.
pub(crate) fn body(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ len as u64;
    let mut bytes = Vec::with_capacity(len + 8);
    while bytes.len() < len {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        bytes.extend_from_slice(&(state ^ state >> 29).to_le_bytes());
    }
    bytes.truncate(len);
    bytes
}

/// A key of 60 bytes, as URLs have.
pub(crate) fn key(i: u64) -> Vec<u8> {
    format!("http://www.example.org/a/path/of/some/length/objects/{i:07}").into_bytes()
}

pub(crate) fn rng(seed: u64) -> SmallRng {
    SmallRng::seed_from_u64(seed)
}

/// Lengths of web objects: lognormal, median 3 KB, mean 8 KB, at most 1 MB.
pub(crate) fn web_len(rng: &mut SmallRng) -> usize {
    let (a, b): (f64, f64) = (rng.random_range(f64::EPSILON..1.0), rng.random());
    let normal = (-2.0 * a.ln()).sqrt() * (std::f64::consts::TAU * b).cos();
    let len = (3000f64.ln() + 1.4 * normal).exp();
    (len as usize).clamp(1, 1_000_000)
}

/// Draws ranks by Zipf's law.
pub(crate) struct Zipf(Vec<f64>);

impl Zipf {
    pub(crate) fn new(count: usize, exponent: f64) -> Self {
        let mut sum = 0.0;
        let sums = (1..=count).map(|rank| {
            sum += (rank as f64).powf(-exponent);
            sum
        });
        Self(sums.collect())
    }

    pub(crate) fn draw(&self, rng: &mut SmallRng) -> u64 {
        let at = rng.random_range(0.0..self.0[self.0.len() - 1]);
        self.0.partition_point(|sum| *sum <= at) as u64
    }
}

/// A device in memory that counts, and the options of a repeatable store on it.
pub(crate) fn counted(bytes: u64) -> (CountedDevice, Options) {
    let device = CountedDevice::new(Arc::new(MemoryDevice::new(bytes)));
    let options = by_hand(Arc::new(device.clone()));
    (device, options)
}

/// Clusters of 64 KiB, 8 MiB of memory, no threads, a clock that stands still, nothing durable unasked.
pub(crate) fn by_hand(device: Arc<dyn Device>) -> Options {
    Options::on(device).memory(8 * MIB).durability(Durability::None).with(|options| {
        options.cluster = 64 << 10;
        options.seed = Some(7);
        options.daemons = Daemons::Manual;
        options.clock = Clock::virtual_at(1_000_000);
    })
}

pub(crate) fn plain() -> PutOptions {
    PutOptions::default()
}

pub(crate) fn in_group(group: u32) -> PutOptions {
    PutOptions::new().group(group)
}

pub(crate) fn bypass() -> PutOptions {
    PutOptions::new().bypass_memory(true)
}

/// The body under this key.
pub(crate) fn read(store: &Store, key: &[u8]) -> Option<Vec<u8>> {
    store.get(key).unwrap().map(|object| object.body().unwrap().to_vec())
}

/// Lets time pass in small steps, running the daemons after each.
pub(crate) fn pass(store: &Store, clock: &Clock, time: Duration) {
    const STEPS: u32 = 20;
    for _ in 0..STEPS {
        clock.advance(time / STEPS);
        store.step().unwrap();
    }
}

/// Two keys that the index of a store with this seed cannot tell apart.
pub(crate) fn twins(seed: u64) -> [Vec<u8>; 2] {
    let mut seen = std::collections::HashMap::new();
    for i in 0.. {
        let hash = xxhash_rust::xxh3::xxh3_128_with_seed(&key(i), seed) as u64;
        if let Some(twin) = seen.insert((hash >> 58, hash & 0xff_ffff), i) {
            return [key(twin), key(i)];
        }
    }
    unreachable!()
}
