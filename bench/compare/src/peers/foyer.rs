//! foyer's hybrid cache. It drops a put when its queue is full, and says so in its metrics only.

use anyhow::Result;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FsDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
    PsyncIoEngineConfig,
};
use tokio::runtime::Runtime;

use super::{Peer, Settings};

struct Foyer {
    cache: HybridCache<String, Vec<u8>>,
    runtime: Runtime,
}

pub(super) fn open(settings: &Settings) -> Result<Box<dyn Peer>> {
    let device =
        FsDeviceBuilder::new(&settings.folder).with_capacity(settings.capacity as usize).with_direct(true).build()?;
    let blocks = BlockEngineConfig::new(device).with_block_size(4 << 20).with_tombstone_log(true);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let cache = runtime.block_on(
        HybridCacheBuilder::new()
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .with_flush_on_close(true)
            .memory(settings.memory as usize)
            .with_weighter(|key: &String, body: &Vec<u8>| key.len() + body.len())
            .storage()
            .with_io_engine_config(PsyncIoEngineConfig::new())
            .with_engine_config(blocks)
            .build(),
    )?;
    Ok(Box::new(Foyer { cache, runtime }))
}

impl Peer for Foyer {
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        self.cache.insert(key.to_owned(), body.to_vec());
        Ok(())
    }

    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.runtime.block_on(self.cache.get(key))?;
        if let Some(entry) = &found {
            seen(entry.value());
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.cache.remove(key);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.runtime.block_on(self.cache.close())?)
    }
}
