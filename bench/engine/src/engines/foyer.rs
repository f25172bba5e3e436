//! foyer's hybrid cache, by io_uring or by positioned reads and writes in threads.
//!
//! foyer drops a put when its queue is full and tells no caller. To keep everything that is put, puts here wait for
//! the queue to drain whenever half of what it holds may be unwritten. A durable put waits for the queue and then
//! syncs the files, which foyer itself never does.

use std::{
    fs::File,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use anyhow::{Context, Result};
use bytes::Bytes;
use foyer::{
    BlockEngineConfig, DeviceBuilder, FileDeviceBuilder, HybridCache, HybridCacheBuilder, HybridCachePolicy,
    IoEngineConfig, PsyncIoEngineConfig, UringIoEngineConfig,
};
use futures_util::{StreamExt, stream::FuturesUnordered};
use tokio::runtime::Runtime;

use super::{Asker, Config, Engine};

const QUEUE: usize = 64 << 20;
const UNFLUSHED: u64 = 16 << 20;

struct Foyer {
    cache: HybridCache<Vec<u8>, Bytes>,
    runtime: Runtime,
    file: File,
    durable: bool,
    /// Bytes put since the queue was last seen empty.
    unflushed: AtomicU64,
}

pub(super) fn open_uring(config: &Config) -> Result<Box<dyn Engine>> {
    open(config, UringIoEngineConfig::new().boxed())
}

pub(super) fn open_psync(config: &Config) -> Result<Box<dyn Engine>> {
    open(config, PsyncIoEngineConfig::new().boxed())
}

fn open(config: &Config, io: Box<dyn IoEngineConfig>) -> Result<Box<dyn Engine>> {
    let path = config.folder.join("foyer");
    let device = FileDeviceBuilder::new(&path).with_capacity(config.capacity as usize).with_direct(true).build()?;
    let blocks = BlockEngineConfig::new(device)
        .with_buffer_pool_size(QUEUE)
        .with_submit_queue_size_threshold(QUEUE)
        .with_tombstone_log(false);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let cache = runtime.block_on(
        HybridCacheBuilder::new()
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .memory(config.memory as usize)
            .with_weighter(|key: &Vec<u8>, body: &Bytes| key.len() + body.len())
            .storage()
            .with_io_engine_config(io)
            .with_engine_config(blocks)
            .build(),
    )?;
    let file = File::open(&path).with_context(|| path.display().to_string())?;
    Ok(Box::new(Foyer { cache, runtime, file, durable: config.durable, unflushed: AtomicU64::new(0) }))
}

impl Engine for Foyer {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        self.cache.insert(key.to_vec(), Bytes::copy_from_slice(body));
        // An entry is written in whole pages.
        let bytes = (key.len() + body.len()).next_multiple_of(4096) as u64;
        let full = self.unflushed.fetch_add(bytes, Ordering::Relaxed) + bytes > UNFLUSHED;
        if self.durable {
            self.flush()?;
        } else if full {
            self.unflushed.store(0, Ordering::Relaxed);
            self.runtime.block_on(self.cache.storage().wait());
        }
        Ok(())
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.runtime.block_on(self.cache.get(key))?;
        if let Some(entry) = &found {
            seen(entry.value());
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.cache.remove(&key.to_vec());
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.runtime.block_on(self.cache.storage().wait());
        Ok(self.file.sync_data()?)
    }

    fn gets_by_tokio(&self, in_flight: usize, asker: &mut dyn Asker) -> Result<bool> {
        // Its runtime is one of tokio's anyway.
        self.gets(in_flight, asker)
    }

    fn gets(&self, in_flight: usize, asker: &mut dyn Asker) -> Result<bool> {
        let get = |id: u64, key: crate::data::Key| async move {
            let begin = Instant::now();
            (id, begin, self.cache.get(&key[..]).await)
        };
        self.runtime.block_on(async {
            let mut running = FuturesUnordered::new();
            loop {
                while running.len() < in_flight {
                    let Some((id, key)) = asker.next() else { break };
                    running.push(get(id, key));
                }
                let Some((id, begin, found)) = running.next().await else { return Ok(true) };
                let took: Duration = begin.elapsed();
                asker.answer(id, took, found?.as_ref().map(|entry| &entry.value()[..]));
            }
        })
    }
}
