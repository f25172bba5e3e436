//! Groups and hints: what is asked for together lies together, and is read together; what matters most stays in memory.
//!
//!     cargo run --example pages
//!
//! Counts of reads, on a simulated disk with a clock of its own; nothing runs but what the example asks for.

use std::{error::Error, sync::Arc};

use picaflor::{
    Daemons, Options, PutOptions, Store,
    device::{Clock, CountedDevice},
};
use picaflor_sim::{Profile, SimulatedDisk, SimulatedOptions};

const PAGES: u64 = 4096;
const PARTS: u64 = 8;
/// Pages that a crawler with many connections brings at a time, their parts mixed.
const AT_ONCE: u64 = 64;
/// One page of so many is viewed.
const VIEWED: u64 = 8;

/// Groups are numbers that the application gives: here the pages of the front, and all others.
const FRONT: u32 = 1;
const OTHERS: u32 = 2;

fn key(page: u64, part: u64) -> String {
    format!("http://site.example/{page}/{part}")
}

fn open() -> Result<(Arc<CountedDevice>, Store), Box<dyn Error>> {
    // A part of a disk: its time decides what is worth reading along.
    let (clock, part) = (Clock::virtual_at(0), SimulatedOptions { part: Some(0..512 << 20), ..Default::default() });
    let disk = SimulatedDisk::new(&Profile::find("exos")?, clock.clone(), &part)?;
    let device = Arc::new(CountedDevice::new(Arc::new(disk)));
    let options = Options::on(device.clone()).memory(32 << 20).with(|options| {
        (options.daemons, options.clock, options.seed) = (Daemons::Manual, clock, Some(1));
    });
    let store = Store::open(options)?;
    Ok((device, store))
}

/// Reads of the device for a view of a page with its parts.
fn reads_a_view(hints: bool) -> Result<f64, Box<dyn Error>> {
    let (device, store) = open()?;
    for first in (0..PAGES).step_by(AT_ONCE as usize) {
        for (part, page) in (0..PARTS).flat_map(|part| (first..first + AT_ONCE).map(move |page| (part, page))) {
            // A part is to lie beside its page.
            let neighbour = (hints && part > 0).then(|| key(page, 0).into());
            store.put_with(key(page, part).as_bytes(), &[1; 4000], &PutOptions::new().maybe_neighbour(neighbour))?;
        }
        store.step()?;
    }
    store.flush()?;
    while store.step()? {}
    let before = device.counts();
    for (page, part) in (0..PAGES).step_by(VIEWED as usize).flat_map(|page| (0..PARTS).map(move |part| (page, part))) {
        store.get(key(page, part).as_bytes())?;
    }
    Ok((device.counts() - before).reads as f64 / (PAGES / VIEWED) as f64)
}

/// Reads of the device for the pages of the front, after more than memory has room for was asked for.
fn reads_of_the_front(love: bool) -> Result<u64, Box<dyn Error>> {
    let (device, store) = open()?;
    if love {
        store.group(FRONT).love();
    }
    let grouped = |group| PutOptions::new().group(group);
    for page in 0..PAGES {
        let group = if page < 100 { FRONT } else { OTHERS };
        store.put_with(key(page, 0).as_bytes(), &[1; 20_000], &grouped(group))?;
        store.step()?;
    }
    store.flush()?;
    let before = device.counts();
    for page in 0..100 {
        store.get(key(page, 0).as_bytes())?;
    }
    Ok((device.counts() - before).reads)
}

fn main() -> Result<(), Box<dyn Error>> {
    println!("reads a page view: {:.2} without hints, {:.2} with", reads_a_view(false)?, reads_a_view(true)?);
    println!("reads of 100 pages: {} not loved, {} loved", reads_of_the_front(false)?, reads_of_the_front(true)?);
    Ok(())
}
