//! RocksDB, and the same with values in blob files. A durable put syncs the write-ahead log.

use anyhow::Result;
use rocksdb::{BlockBasedIndexType, BlockBasedOptions, Cache, DB, Options, WriteOptions};

use super::{Config, Engine};

/// Below this much memory not all of the index is to be in it.
const SMALL_INDEX: u64 = 4 << 20;

struct Rocks {
    database: DB,
    durable: bool,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    open_with(config, false)
}

pub(super) fn open_blob(config: &Config) -> Result<Box<dyn Engine>> {
    open_with(config, true)
}

fn open_with(config: &Config, blob: bool) -> Result<Box<dyn Engine>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(config.memory as usize / 2)?);
    table.set_bloom_filter(10.0, false);
    if config.memory < SMALL_INDEX {
        // Else index and filters are in memory whatever the cache may hold; here they are paged, as RocksDB advises.
        table.set_cache_index_and_filter_blocks(true);
        table.set_index_type(BlockBasedIndexType::TwoLevelIndexSearch);
        table.set_partition_filters(true);
        table.set_pin_top_level_index_and_filter(true);
    }
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size((config.memory as usize / 8).clamp(4 << 20, 64 << 20));
    options.set_max_background_jobs(2);
    options.set_compression_type(rocksdb::DBCompressionType::None);
    options.set_enable_blob_files(blob);
    options.set_enable_blob_gc(blob);
    options.set_min_blob_size(512);
    Ok(Box::new(Rocks { database: DB::open(&options, config.folder.join("rocksdb"))?, durable: config.durable }))
}

impl Rocks {
    fn how(&self) -> WriteOptions {
        let mut how = WriteOptions::default();
        how.set_sync(self.durable);
        how
    }
}

impl Engine for Rocks {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        Ok(self.database.put_opt(key, body, &self.how())?)
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.database.get_pinned(key)?;
        if let Some(body) = &found {
            seen(body);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        Ok(self.database.delete_opt(key, &self.how())?)
    }

    fn flush(&self) -> Result<()> {
        Ok(self.database.flush()?)
    }
}
