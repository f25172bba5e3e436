//! Many objects at once: batches, of which each costs one commit, where each object by itself would cost one.
//!
//!     cargo run --release --example load -- load.store

use std::{sync::Arc, time::Instant};

use picaflor::{
    Durability, Mode, Options, Put, Store,
    device::{CountedDevice, FileDevice, OpenOptions},
};

const OBJECTS: usize = 20_000;
const BATCH: usize = 500;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let path = std::env::args().nth(1).unwrap_or_else(|| "load.store".into());
    let file = OpenOptions { capacity: Some(256 << 20), create: true, ..OpenOptions::default() };
    let device = Arc::new(CountedDevice::new(Arc::new(FileDevice::open(path, file)?)));
    // A batch is durable when its call returns.
    let options = Options::on(device.clone()).memory(64 << 20).mode(Mode::Store).durability(Durability::EveryPut);
    let store = Store::open(options)?;

    let objects: Vec<_> = (0..OBJECTS).map(|i| (format!("/item/{i}"), format!("{i} ").repeat(200))).collect();
    let (before, began) = (device.counts(), Instant::now());
    for batch in objects.chunks(BATCH) {
        let put = batch.iter().map(|(key, body)| Put::new(key.as_ref(), body.as_ref()));
        let puts: Vec<_> = put.collect();
        store.put_many(&puts)?;
    }
    let counts = device.counts() - before;
    let second = OBJECTS as f64 / began.elapsed().as_secs_f64();
    println!("{OBJECTS} objects in {} batches: {} syncs, {second:.0} objects/s", OBJECTS / BATCH, counts.syncs);

    println!("{} keys", store.keys().count());
    store.close()?;
    Ok(())
}
