//! A server whose answers are dear, behind a cache: `resizer LISTEN STORE`. `/tile/64` is an image of 64 pixels a side.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use axum::{Router, extract::Path, http::header, response::IntoResponse, routing::get};
use picaflor_tower::{
    CacheLayer,
    picaflor::{Durability, Options},
};

static MADE: AtomicU64 = AtomicU64::new(0);

/// Draws an image in the format PGM, by more than there is to it.
async fn tile(Path(side): Path<u32>) -> impl IntoResponse {
    MADE.fetch_add(1, Relaxed);
    let side = side.clamp(1, 2000);
    let pixels = (0..side * side).map(|at| ((at % side) ^ (at / side)) as u8);
    let image: Vec<u8> = format!("P5 {side} {side} 255\n").into_bytes().into_iter().chain(pixels).collect();
    ([(header::CONTENT_TYPE, "image/x-portable-graymap"), (header::CACHE_CONTROL, "public, max-age=86400")], image)
}

/// Never cached: it says nothing of an age.
async fn made() -> String {
    MADE.load(Relaxed).to_string()
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [listen, store] = arguments.as_slice() else { return Err("usage: resizer LISTEN STORE".into()) };
    // What was made survives any crash; without this line, from a second later on.
    let options = Options::new(store).capacity(256 << 20).memory(64 << 20).durability(Durability::EveryPut);
    let cache = CacheLayer::open(options).await?;
    let app = Router::new().route("/tile/{side}", get(tile)).route("/made", get(made)).layer(cache);
    let listener = tokio::net::TcpListener::bind(listen).await?;
    println!("{}", listener.local_addr()?);
    Ok(axum::serve(listener, app).await?)
}
