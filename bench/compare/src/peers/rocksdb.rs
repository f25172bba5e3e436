//! RocksDB: a log-structured merge tree with a write-ahead log.

use anyhow::Result;
use rocksdb::{BlockBasedOptions, Cache, DB, DBCompressionType, Options, WriteOptions};

use super::{Peer, Settings};

struct Rocks {
    database: DB,
    sync: bool,
}

pub(super) fn open(settings: &Settings) -> Result<Box<dyn Peer>> {
    let mut table = BlockBasedOptions::default();
    table.set_block_cache(&Cache::new_lru_cache(settings.memory as usize / 2)?);
    table.set_bloom_filter(10.0, false);
    let mut options = Options::default();
    options.create_if_missing(true);
    options.set_block_based_table_factory(&table);
    options.set_write_buffer_size((settings.memory as usize / 8).max(4 << 20));
    options.set_compression_type(DBCompressionType::None);
    Ok(Box::new(Rocks { database: DB::open(&options, &settings.folder)?, sync: settings.sync }))
}

impl Rocks {
    fn how(&self) -> WriteOptions {
        let mut how = WriteOptions::default();
        how.set_sync(self.sync);
        how
    }
}

impl Peer for Rocks {
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        Ok(self.database.put_opt(key, body, &self.how())?)
    }

    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.database.get_pinned(key)?;
        if let Some(body) = &found {
            seen(body);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &str) -> Result<()> {
        Ok(self.database.delete_opt(key, &self.how())?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.flush()?)
    }
}
