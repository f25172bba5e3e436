//! Fetches the URLs that come by lines, through a cache: `fetch STORE`. Says of each whether it was there, and its
//! length.

use http_cache_reqwest::{Cache, CacheMode, HttpCache, HttpCacheOptions};
use picaflor_http_cache::{
    PicaflorManager,
    picaflor::{Durability, Options},
};
use tokio::io::{AsyncBufReadExt, BufReader};

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let store = std::env::args().nth(1).ok_or("usage: fetch STORE")?;
    // What was fetched survives any crash from then on; without this line, from a second later on.
    let options = Options::new(store).capacity(256 << 20).memory(64 << 20).durability(Durability::EveryPut);
    let manager = PicaflorManager::open(options).await?;
    let cache = HttpCache { mode: CacheMode::Default, manager: manager.clone(), options: HttpCacheOptions::default() };
    let client = reqwest_middleware::ClientBuilder::new(reqwest::Client::new()).with(Cache(cache)).build();

    let mut lines = BufReader::new(tokio::io::stdin()).lines();
    while let Some(url) = lines.next_line().await? {
        let response = client.get(url).send().await?;
        let found = response.headers().get("x-cache").cloned();
        println!("{found:?} {}", response.bytes().await?.len());
    }
    manager.store().clone().close_async().await?;
    Ok(())
}
