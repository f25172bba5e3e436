//! Gets a second of objects in memory: in the process, and of other threads through a socket.
//!
//!     cargo run --release -p picaflor-shared --example gets [SECONDS]
#![allow(clippy::unwrap_used)] // an example that cannot go on ends

use std::{
    sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
    time::{Duration, Instant},
};

use picaflor::{Options, Store};
use picaflor_shared::{Client, Limits, serve};

const OBJECTS: usize = 1000;

/// Runs `get` on so many threads for a time; a second's number of gets.
fn measure<G: FnMut(&[u8]) -> usize>(threads: usize, time: Duration, get: impl Fn() -> G + Sync) -> f64 {
    let (count, over) = (AtomicU64::new(0), AtomicBool::new(false));
    let began = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (get, count, over) = (&get, &count, &over);
            scope.spawn(move || {
                let mut get = get();
                let mut done = 0;
                while !over.load(Relaxed) {
                    let key = format!("object {}", (done * 7 + thread * 131) % OBJECTS);
                    assert!(get(key.as_bytes()) > 0);
                    done += 1;
                }
                count.fetch_add(done as u64, Relaxed);
            });
        }
        std::thread::sleep(time);
        over.store(true, Relaxed);
    });
    count.load(Relaxed) as f64 / began.elapsed().as_secs_f64()
}

fn main() {
    let seconds = std::env::args().nth(1).map_or(2.0, |text| text.parse().unwrap());
    let time = Duration::from_secs_f64(seconds);
    let folder = tempfile::tempdir().unwrap();
    let store = Store::open(Options::new(folder.path().join("store")).capacity(256 << 20).memory(128 << 20)).unwrap();
    let socket = folder.path().join("sock");
    let server = serve(store.clone(), &socket, Limits::default()).unwrap();
    println!("{:>10} {:>8} {:>16} {:>16}", "body", "threads", "in process", "over the socket");
    for len in [4 << 10, 64 << 10] {
        for i in 0..OBJECTS {
            store.put(format!("object {i}").as_bytes(), &vec![i as u8; len]).unwrap();
        }
        for threads in [1, 2, 4] {
            let here = measure(threads, time, || |key: &[u8]| store.get(key).unwrap().unwrap().body().unwrap().len());
            let there = measure(threads, time, || {
                let client = Client::connect(&socket).unwrap();
                move |key: &[u8]| client.get(key).unwrap().unwrap().len()
            });
            println!("{len:>10} {threads:>8} {here:>14.0}/s {there:>14.0}/s");
        }
    }
    server.stop();
    store.close().unwrap();
}
