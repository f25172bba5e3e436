//! This service beside others of OpenDAL's, for the table of the README: writes, hits, memory.
//!
//! `beside picaflor|moka|fs OBJECTS BYTES [FOLDER]`

use std::time::Instant;

use opendal::{Operator, services};
use picaflor_opendal::{Picaflor, picaflor::Options};

const HITS: usize = 200_000;

/// Resident bytes of this process.
fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    statm.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok()).unwrap_or(0) * 4096
}

fn path(number: usize) -> String {
    format!("object/{number}")
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| arguments.get(at).and_then(|number| number.parse().ok()).unwrap_or(or);
    let (objects, bytes) = (number(1, 100_000), number(2, 4096));
    let folder = arguments.get(3).map_or("beside", String::as_str);
    let store = || Options::new(format!("{folder}/beside.store")).capacity(4 << 30);
    let operator = match arguments.first().map(String::as_str) {
        Some("picaflor") => Operator::new(Picaflor::new(store().memory(64 << 20)))?,
        Some("picaflor-in-memory") => Operator::new(Picaflor::new(store().memory(1 << 30)))?,
        Some("moka") => Operator::new(services::Moka::default())?,
        Some("fs") => Operator::new(services::Fs::default().root(folder))?,
        _ => return Err("usage: beside picaflor|picaflor-in-memory|moka|fs OBJECTS BYTES [FOLDER]".into()),
    };
    let (before, begin) = (resident(), Instant::now());
    for number in 0..objects {
        let body: Vec<u8> = (0..bytes).map(|at| (at * 31 + number) as u8).collect();
        operator.write(&path(number), body).await?;
    }
    println!("writes: {:.1} us each", begin.elapsed().as_secs_f64() * 1e6 / objects as f64);
    println!("memory: {} bytes an object", resident().saturating_sub(before) / objects as u64);
    let (mut times, mut random) = (Vec::with_capacity(HITS), 1_u64);
    for _ in 0..HITS {
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let path = path((random >> 33) as usize % objects);
        let begin = Instant::now();
        let body = operator.read(&path).await?;
        times.push(begin.elapsed());
        assert_eq!(body.len(), bytes);
    }
    times.sort_unstable();
    let at = |part: f64| times[(HITS as f64 * part) as usize].as_secs_f64() * 1e6;
    println!("hits: p50 {:.1} us, p99 {:.1} us, p99.9 {:.1} us", at(0.5), at(0.99), at(0.999));
    Ok(())
}
