//! picaflor, as anyone would embed it.

use std::time::Instant;

use anyhow::Result;
use bytes::Bytes;
use futures_util::{StreamExt, stream::FuturesUnordered};
use picaflor::{Durability, Mode, PutOptions, Refusal, Store, ThreadRing, device::Preallocate};

use super::{Asker, Config, Engine, OwnCount, Putter};

struct Picaflor {
    store: Store,
    how: PutOptions,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    open_as("picaflor", config, Mode::Cache)
}

pub(super) fn open_hummingbird(config: &Config) -> Result<Box<dyn Engine>> {
    open_as("hummingbird", config, Mode::Cache)
}

pub(super) fn open_damelo(config: &Config) -> Result<Box<dyn Engine>> {
    open_as("damelo", config, Mode::Cache)
}

pub(super) fn open_store(config: &Config) -> Result<Box<dyn Engine>> {
    open_as("picaflor", config, Mode::Store)
}

fn open_as(preset: &str, config: &Config, mode: Mode) -> Result<Box<dyn Engine>> {
    let options = picaflor_literature::preset(preset)?
        .place(config.folder.join("picaflor.store"))
        .capacity(config.capacity)
        .memory(config.memory)
        .mode(mode)
        .durability(if config.durable { Durability::EveryPut } else { Durability::default() })
        .with(|options| options.preallocate = if config.written { Preallocate::Write } else { Preallocate::Auto });
    Ok(Box::new(Picaflor { store: Store::open(options)?, how: PutOptions::default() }))
}

impl Picaflor {
    /// The body in one piece, also of an object larger than a cluster.
    async fn get_whole(&self, key: &[u8]) -> picaflor::Result<Option<Bytes>> {
        let Some(object) = self.store.get_async(key).await? else { return Ok(None) };
        if let Some(body) = object.body_in_memory() {
            return Ok(Some(body));
        }
        let mut whole = Vec::new();
        let mut chunks = object.chunks(0..object.len());
        while let Some(chunk) = chunks.next_async().await {
            whole.extend_from_slice(&chunk?);
        }
        Ok(Some(whole.into()))
    }

    async fn keep_in_flight(&self, gets: usize, asker: &mut dyn Asker) -> Result<()> {
        let get = |id: u64, key: crate::data::Key| async move {
            let begin = Instant::now();
            (id, begin, self.get_whole(&key).await)
        };
        let mut running = FuturesUnordered::new();
        loop {
            while running.len() < gets {
                let Some((id, key)) = asker.next() else { break };
                running.push(get(id, key));
            }
            let Some((id, begin, found)) = running.next().await else { return Ok(()) };
            asker.answer(id, begin.elapsed(), found?.as_deref());
        }
    }
}

impl Engine for Picaflor {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        match self.store.put_with(key, body, &self.how) {
            // `hummingbird` takes none until all clusters were gone over: what was missed stays missing.
            Err(picaflor::Error::Refused(Refusal::Recovering)) => Ok(()),
            put => Ok(put?),
        }
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        loop {
            let Some(object) = self.store.get(key)? else { return Ok(false) };
            let generation = object.generation();
            match object.body() {
                Ok(body) => seen(&body),
                // Another thread replaced a large object while this one read its pieces.
                Err(picaflor::Error::Damaged { .. })
                    if self.store.get(key)?.is_some_and(|now| now.generation() != generation) =>
                {
                    continue;
                }
                Err(error) => return Err(error.into()),
            }
            return Ok(true);
        }
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        // Whether it was there is not asked; foyer's `remove` does not say it either.
        Ok(self.store.invalidate(key)?)
    }

    fn delete_many(&self, keys: &[&[u8]]) -> Result<()> {
        self.store.delete_many(keys)?;
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.store.flush()?)
    }

    fn checkpointed(&self) -> Option<u64> {
        Some(self.store.stats().counts.checkpoint_bytes)
    }

    fn memory(&self) -> Option<OwnCount> {
        let stats = self.store.stats();
        Some(OwnCount { index: stats.index_bytes, all: stats.memory_used })
    }

    fn gets(&self, in_flight: usize, asker: &mut dyn Asker) -> Result<bool> {
        // Any executor would do; this one reads through a ring of its own.
        ThreadRing::new()?.block_on(self.keep_in_flight(in_flight, asker))?;
        Ok(true)
    }

    fn gets_by_tokio(&self, in_flight: usize, asker: &mut dyn Asker) -> Result<bool> {
        tokio::runtime::Builder::new_current_thread().build()?.block_on(self.keep_in_flight(in_flight, asker))?;
        Ok(true)
    }

    fn puts(&self, tasks: usize, putter: &mut dyn Putter<'_>) -> Result<bool> {
        let put = |key: crate::data::Key, body: &[u8]| {
            let (begin, bytes) = (Instant::now(), key.len() + body.len());
            let put = self.store.begin_put(&key, body, &self.how);
            async move { put.await.map(|()| (bytes, begin.elapsed())) }
        };
        ThreadRing::new()?.block_on(async {
            let mut running = FuturesUnordered::new();
            loop {
                while running.len() < tasks {
                    let Some((key, body)) = putter.next() else { break };
                    running.push(put(key, body));
                }
                let Some(done) = running.next().await else { return Ok(true) };
                let (bytes, took) = done?;
                putter.answer(bytes, took);
            }
        })
    }
}
