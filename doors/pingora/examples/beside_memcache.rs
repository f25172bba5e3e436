//! Hits of this storage beside Pingora's `MemCache`: latency in the process and memory, for the table of the README.
//!
//! `beside_memcache memcache|picaflor OBJECTS BYTES [STORE MEMORY]`

use std::{
    path::PathBuf,
    time::{Duration, Instant, SystemTime},
};

use bytes::Bytes;
use doors_kit::beside::{print_tails, random, resident};
use picaflor_pingora::{Picaflor, picaflor::Options};
use pingora_cache::{CacheKey, CacheMeta, MemCache, Storage, trace::Span};
use pingora_http::ResponseHeader;

const HITS: usize = 200_000;

fn key(number: usize) -> CacheKey {
    CacheKey::new(format!("/object/{number}"), "")
}

fn meta() -> pingora_core::Result<CacheMeta> {
    let mut head = ResponseHeader::build(200, None)?;
    for (name, value) in [("content-type", "image/png"), ("etag", "\"65f0c1-1000\""), ("cache-control", "max-age=600")]
    {
        head.insert_header(name, value)?;
    }
    let now = SystemTime::now();
    Ok(CacheMeta::new(now + Duration::from_secs(600), now, 0, 0, head))
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> pingora_core::Result<()> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let number = |at: usize, or: usize| arguments.get(at).and_then(|number| number.parse().ok()).unwrap_or(or);
    let (objects, bytes) = (number(1, 100_000), number(2, 4096));
    let storage: &'static (dyn Storage + Sync) = if arguments.first().is_some_and(|name| name == "memcache") {
        Box::leak(Box::new(MemCache::new()))
    } else {
        let place = PathBuf::from(arguments.get(3).map_or("beside.store", String::as_str));
        Picaflor::open(Options::new(place).capacity(4 << 30).memory(number(4, 64) as u64 * (1 << 20)))?
    };
    let span = Span::inactive().handle();
    let before = resident();
    let begin = Instant::now();
    for number in 0..objects {
        let mut writer = storage.get_miss_handler(&key(number), &meta()?, &span).await?;
        let body: Bytes = (0..bytes).map(|at| (at * 31 + number) as u8).collect();
        writer.write_body(body, true).await?;
        writer.finish().await?;
    }
    println!("fills: {:.1} us each", begin.elapsed().as_secs_f64() * 1e6 / objects as f64);
    println!("memory: {} bytes an object", resident().saturating_sub(before) / objects as u64);
    let (mut times, mut misses) = (Vec::with_capacity(HITS), 0);
    for number in random(HITS, objects) {
        let key = key(number);
        let begin = Instant::now();
        match storage.lookup(&key, &span).await? {
            Some((_, mut hit)) => while hit.read_body().await?.is_some() {},
            None => misses += 1,
        }
        times.push(begin.elapsed());
    }
    print_tails("hits", times);
    println!("{misses} misses");
    Ok(())
}
