//! The hash table on disk: what it does, what it costs the device, what a crash leaves of it.
#![allow(clippy::unwrap_used, reason = "a failing helper is a failing test")]

mod basics;
mod counts;
mod crash;
mod damage;
mod failing;
mod failing_threads;
mod many;
mod space;
mod threads;
mod writers;

use std::sync::Arc;

use picaflor_device::{Device, MemoryDevice};
use picaflor_table::{
    blocks::BlockOptions,
    htod::{Durable, HashTables, HtodOptions, HtodReceipt},
};

/// A small place: index pages of 16 keep the cache busy.
fn options(durable: Durable) -> HtodOptions {
    HtodOptions { cache: 16 * 4096, durable, seed: Some(1), ..HtodOptions::default() }
}

fn memory(mib: u64) -> Arc<dyn Device> {
    Arc::new(MemoryDevice::with_block_size(mib << 20, 512))
}

fn open(device: &Arc<dyn Device>, durable: Durable) -> (HashTables, HtodReceipt) {
    HashTables::open(Arc::clone(device), BlockOptions::default(), options(durable)).unwrap()
}

fn key(number: u64) -> Vec<u8> {
    format!("http://example.org/{number}").into_bytes()
}

/// Values say whose they are, and are of all sizes up to a few sectors.
fn value(number: u64, version: u64) -> Vec<u8> {
    let line = format!("{number} {version};");
    line.repeat(1 + (number.wrapping_mul(31) + version * 7) as usize % 160).into_bytes()
}
