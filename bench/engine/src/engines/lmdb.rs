//! LMDB: a B-tree in a memory map, with copy on write. Puts that need not be durable are transactions that do not sync.

use anyhow::Result;
use lmdb::{Database, Environment, EnvironmentFlags, Error, Transaction, WriteFlags};

use super::{Config, Engine};

struct Lmdb {
    environment: Environment,
    database: Database,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    // Gets are random, so that reading ahead would cost and bring nothing.
    let mut flags = EnvironmentFlags::NO_READAHEAD | EnvironmentFlags::NO_TLS;
    if !config.durable {
        flags |= EnvironmentFlags::NO_SYNC;
    }
    let room = (config.capacity as usize * 4).next_multiple_of(4096);
    let environment = Environment::new().set_flags(flags).set_map_size(room).open(&config.folder)?;
    let database = environment.open_db(None)?;
    Ok(Box::new(Lmdb { environment, database }))
}

impl Engine for Lmdb {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        transaction.put(self.database, &key, &body, WriteFlags::empty())?;
        Ok(transaction.commit()?)
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let transaction = self.environment.begin_ro_txn()?;
        match transaction.get(self.database, &key) {
            Ok(body) => seen(body),
            Err(Error::NotFound) => return Ok(false),
            Err(error) => return Err(error.into()),
        }
        Ok(true)
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        let mut transaction = self.environment.begin_rw_txn()?;
        match transaction.del(self.database, &key, None) {
            Ok(()) | Err(Error::NotFound) => Ok(transaction.commit()?),
            Err(error) => Err(error.into()),
        }
    }

    fn flush(&self) -> Result<()> {
        Ok(self.environment.sync(true)?)
    }
}
