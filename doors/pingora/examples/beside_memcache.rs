//! This storage beside Pingora's `MemCache`, for the table of the README.

use std::{
    error::Error,
    time::{Duration, SystemTime},
};

use doors_kit::beside::{Arguments, Door, run};
use picaflor_pingora::{Picaflor, picaflor::Options};
use pingora_cache::{CacheKey, CacheMeta, MemCache, Storage, trace::Span};
use pingora_http::ResponseHeader;

struct Kept(&'static (dyn Storage + Sync));

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

impl Door for Kept {
    async fn put(&self, number: usize, body: Vec<u8>) -> Result<(), Box<dyn Error>> {
        let mut writer = self.0.get_miss_handler(&key(number), &meta()?, &Span::inactive().handle()).await?;
        writer.write_body(body.into(), true).await?;
        writer.finish().await?;
        Ok(())
    }

    async fn get(&self, number: usize) -> Result<Option<usize>, Box<dyn Error>> {
        let Some((_, mut hit)) = self.0.lookup(&key(number), &Span::inactive().handle()).await? else {
            return Ok(None);
        };
        let mut len = 0;
        while let Some(piece) = hit.read_body().await? {
            len += piece.len();
        }
        Ok(Some(len))
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn Error>> {
    let arguments = Arguments::read("picaflor|picaflor-in-memory|memcache")?;
    let open = |memory| Picaflor::open(Options::new(arguments.folder.join("store")).capacity(4 << 30).memory(memory));
    let kept: &'static (dyn Storage + Sync) = match arguments.name.as_str() {
        "picaflor" => open(64 << 20)?,
        "picaflor-in-memory" => open(1 << 30)?,
        _ => Box::leak(Box::new(MemCache::new())),
    };
    run(&Kept(kept), &arguments).await
}
