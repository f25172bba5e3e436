//! What it costs to spread keys over two devices: reads a page view, and how evenly the devices are loaded.
//!
//!     cargo run --release -p picaflor --example spread
//!
//! Sites are asked for by Zipf, each view reads a page and its parts, which its puts named as neighbours. Counts, not
//! times: the devices are in memory.

use std::sync::Arc;

use picaflor::{
    Daemons, Options, Place, PutOptions, Spread, Store,
    device::{CountedDevice, Device, MemoryDevice},
};
use rand::{Rng, SeedableRng, rngs::SmallRng};

const SITES: u32 = 1000;
const PAGES: u32 = 20;
const PARTS: u32 = 8;
const VIEWS: u32 = 40_000;

fn key(site: u32, page: u32, part: u32) -> Vec<u8> {
    format!("http://site-{site}.example/page-{page}/{part}").into_bytes()
}

fn main() -> picaflor::Result<()> {
    println!("devices  spread   reads a view  longest queue a view  share of the busier device");
    for (count, spread) in [(1, Spread::Key), (2, Spread::Key), (2, Spread::Origin)] {
        let devices: Vec<_> =
            (0..count).map(|_| Arc::new(CountedDevice::new(Arc::new(MemoryDevice::new((4 << 30) / count))))).collect();
        let options = Options::on(Arc::new(MemoryDevice::new(0))).memory(96 << 20).with(|options| {
            options.places =
                devices.iter().map(|device| Place::Device(Arc::clone(device) as Arc<dyn Device>)).collect();
            (options.spread, options.daemons, options.seed) = (spread, Daemons::Manual, Some(1));
        });
        let store = Store::open(options)?;
        let mut random = SmallRng::seed_from_u64(7);
        for i in 0..SITES * PAGES {
            let (site, page) = (i % SITES, i / SITES);
            let name = key(site, page, 0);
            for part in 0..PARTS {
                let neighbour = Some(name.clone().into()).filter(|_| part > 0);
                let body = vec![1; random.random_range(500..20_000)];
                store.put_with(&key(site, page, part), &body, &PutOptions::new().maybe_neighbour(neighbour))?;
            }
            if i % 64 == 0 {
                store.step()?;
            }
        }
        store.flush()?;
        while store.step()? {}
        let reads = || devices.iter().map(|device| device.counts().reads).collect::<Vec<_>>();
        let (begin, mut longest) = (reads(), 0);
        for _ in 0..VIEWS {
            // Zipf with exponent 1: a site's rank is log-uniform.
            let site = f64::from(SITES).powf(random.random::<f64>()) as u32 - 1;
            let (page, before) = (random.random_range(0..PAGES), reads());
            for part in 0..PARTS {
                store.get(&key(site, page, part))?;
            }
            longest += reads().iter().zip(before).map(|(now, before)| now - before).max().unwrap_or(0);
        }
        let each: Vec<u64> = reads().iter().zip(begin).map(|(now, before)| now - before).collect();
        let (all, most) = (each.iter().sum::<u64>() as f64, each.iter().max().copied().unwrap_or(0) as f64);
        println!(
            "{count:7}  {:7}  {:12.2}  {:20.2}  {:25.2}",
            format!("{spread:?}").to_lowercase(),
            all / f64::from(VIEWS),
            longest as f64 / f64::from(VIEWS),
            most / all
        );
    }
    Ok(())
}
