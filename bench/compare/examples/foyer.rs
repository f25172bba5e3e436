//! The same program on foyer: puts, gets, deletes, opens again. What is there after a crash is not promised.
use std::error::Error;

use foyer::{BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy};

async fn open(folder: &str) -> Result<HybridCache<String, Vec<u8>>, Box<dyn Error>> {
    let device = FsDeviceBuilder::new(folder).with_capacity(64 << 20).build()?;
    Ok(HybridCacheBuilder::new()
        .with_policy(HybridCachePolicy::WriteOnInsertion)
        .memory(8 << 20)
        .with_weighter(|key: &String, body: &Vec<u8>| key.len() + body.len())
        .storage()
        .with_engine_config(BlockEngineConfig::new(device).with_block_size(4 << 20).with_tombstone_log(true))
        .build()
        .await?)
}

fn main() -> Result<(), Box<dyn Error>> {
    let folder = std::env::args().nth(1).ok_or("usage: foyer FOLDER")?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let cache = open(&folder).await?;
        cache.insert("a".into(), b"one".to_vec());
        cache.insert("b".into(), b"two".to_vec());
        cache.remove("a");
        cache.close().await?;
        drop(cache);

        let cache = open(&folder).await?;
        assert!(cache.get("a").await?.is_none());
        assert_eq!(cache.get("b").await?.ok_or("it is gone")?.value(), b"two");
        Ok(())
    })
}
