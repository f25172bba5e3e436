//! Measures hash tables on a device with far more keys than fit in memory: what a put and a get cost the device,
//! counted, and what the process takes.
//!
//!     cargo run --release -p picaflor-table --example htod_size -- FILE load KEYS    puts so many keys, in batches
//!     cargo run --release -p picaflor-table --example htod_size -- FILE measure KEYS  counts puts and gets
//!
//! The index takes 46 bytes a key. `measure` gives its pages 10 bytes a key, so has 22% of it in memory: what 100
//! million keys get from 1 GB.

use std::{error::Error, sync::Arc, thread, time::Instant};

use picaflor_device::{CountedDevice, Counts, FileDevice, OpenOptions, Preallocate};
use picaflor_table::{
    blocks::BlockOptions,
    htod::{Durable, HashTables, HtodOptions, Table},
};

const WRITERS: u64 = 4;
const VALUE: [u8; 100] = [7; 100];
const OPERATIONS: u64 = 100_000;

fn key(number: u64) -> String {
    format!("http://example.org/objects/{number:012}")
}

/// Memory of the process, and the most it ever took, in MB.
fn resident() -> (u64, u64) {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name));
        line.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) / 1024
    };
    (field("VmRSS:"), field("VmHWM:"))
}

fn say(what: &str, count: u64, cost: Counts, began: Instant) {
    let each = |of: u64| of as f64 / count as f64;
    println!(
        "{what}: {count} in {:.1} s; each {:.3} reads of {:.0} bytes in all, {:.3} writes of {:.0}, {:.4} syncs",
        began.elapsed().as_secs_f64(),
        each(cost.reads),
        each(cost.read_bytes),
        each(cost.writes),
        each(cost.write_bytes),
        each(cost.syncs)
    );
}

fn load(table: &Table, keys: u64) -> picaflor_table::Result<()> {
    thread::scope(|scope| {
        let put = |writer: u64| {
            move || {
                (writer..keys).step_by(WRITERS as usize).try_for_each(|number| {
                    if number % 1_000_000 == 0 {
                        println!("{number} keys, {} pages, {:?} MB", table.pages(), resident());
                    }
                    table.put(key(number).as_bytes(), &VALUE)
                })
            }
        };
        let writers: Vec<_> = (0..WRITERS).map(|writer| scope.spawn(put(writer))).collect();
        writers.into_iter().try_for_each(|writer| writer.join().unwrap_or(Err(picaflor_table::Error::Closed)))
    })
}

fn measure(table: &Table, device: &CountedDevice, keys: u64) -> picaflor_table::Result<()> {
    let scattered = |step: u64| step.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys;
    let (before, began) = (device.counts(), Instant::now());
    for step in 0..OPERATIONS {
        assert!(table.get(key(scattered(step)).as_bytes())?.is_some(), "a key that was put is there");
    }
    say("get", OPERATIONS, device.counts() - before, began);
    let (before, began) = (device.counts(), Instant::now());
    for step in 0..OPERATIONS {
        assert!(table.get(key(keys * 2 + step).as_bytes())?.is_none(), "one that was not is not");
    }
    say("get of what is not there", OPERATIONS, device.counts() - before, began);
    let (before, began, pages) = (device.counts(), Instant::now(), table.pages());
    let (mut dearest, mut slowest) = (0, began.elapsed());
    for step in 0..OPERATIONS / 10 {
        let (writes, start) = (device.counts().writes, Instant::now());
        table.put(key(keys * 3 + step).as_bytes(), &VALUE)?;
        dearest = dearest.max(device.counts().writes - writes);
        slowest = slowest.max(start.elapsed());
    }
    say("durable put of a new key", OPERATIONS / 10, device.counts() - before, began);
    println!("{} pages made; no put took more than {dearest} writes, nor {slowest:?}", table.pages() - pages);
    for step in 0..OPERATIONS / 10 {
        table.remove(key(keys * 3 + step).as_bytes())?;
    }
    Ok(())
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<String> = std::env::args().collect();
    let [_, path, what, keys] = &arguments[..] else { return Err("FILE, load or measure, and KEYS".into()) };
    let keys: u64 = keys.parse()?;
    let options = OpenOptions {
        capacity: Some((keys * 640 + (64 << 20)).next_multiple_of(4096)),
        create: true,
        block_size: 512,
        preallocate: Preallocate::Reserve,
        ..OpenOptions::default()
    };
    let device = CountedDevice::new(Arc::new(FileDevice::open(path, options)?));
    let load_it = what == "load";
    let (per_key, durable) = if load_it { (60, Durable::AtCommit) } else { (10, Durable::EachCall) };
    let began = Instant::now();
    let options = HtodOptions { cache: keys as usize * per_key, durable, ..HtodOptions::default() };
    let (tables, receipt) = HashTables::open(Arc::new(device.clone()), BlockOptions::default(), options)?;
    let table = tables.table("objects")?;
    println!("open, clean {}: {:?}, {} reads", receipt.clean, began.elapsed(), device.counts().reads);
    let (before, began) = (device.counts(), Instant::now());
    if load_it {
        load(&table, keys)?;
        tables.commit()?;
        say("put", keys, device.counts() - before, began);
    } else {
        measure(&table, &device, keys)?;
    }
    println!("{} keys, {} pages; {:?}", table.len(), table.pages(), tables.stats());
    println!("memory now and at most: {:?} MB", resident());
    let began = Instant::now();
    tables.close()?;
    println!("close {:?}", began.elapsed());
    Ok(())
}
