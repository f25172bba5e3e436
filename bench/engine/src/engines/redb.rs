//! redb: a B-tree with copy on write. Puts that need not be durable share a transaction of 1,000.

use anyhow::Result;
use parking_lot::Mutex;
use redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};

use super::{Config, Engine};

const TABLE: TableDefinition<'_, &[u8], &[u8]> = TableDefinition::new("objects");
const BATCH: u32 = 1000;

struct Redb {
    /// The transaction that puts share, and how many are in it. Dropped first: the database waits for it.
    open: Mutex<Option<(WriteTransaction, u32)>>,
    database: Database,
    durable: bool,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let database = Database::builder().set_cache_size(config.memory as usize).create(config.folder.join("redb"))?;
    let begin = database.begin_write()?;
    begin.open_table(TABLE)?;
    begin.commit()?;
    Ok(Box::new(Redb { database, durable: config.durable, open: Mutex::new(None) }))
}

impl Redb {
    fn change(&self, act: impl Fn(&WriteTransaction) -> Result<()>) -> Result<()> {
        let mut open = self.open.lock();
        let (transaction, count) = match open.take() {
            Some(begun) => begun,
            None => {
                let mut transaction = self.database.begin_write()?;
                let durability = if self.durable { Durability::Immediate } else { Durability::None };
                transaction.set_durability(durability)?;
                (transaction, 0)
            }
        };
        act(&transaction)?;
        if self.durable || count + 1 == BATCH {
            transaction.commit()?;
        } else {
            *open = Some((transaction, count + 1));
        }
        Ok(())
    }
}

impl Engine for Redb {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        self.change(|transaction| {
            transaction.open_table(TABLE)?.insert(key, body)?;
            Ok(())
        })
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let found = table.get(key)?;
        if let Some(body) = &found {
            seen(body.value());
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.change(|transaction| {
            transaction.open_table(TABLE)?.remove(key)?;
            Ok(())
        })
    }

    fn flush(&self) -> Result<()> {
        if let Some((transaction, _)) = self.open.lock().take() {
            transaction.commit()?;
        }
        // An empty durable transaction carries the earlier ones with it.
        let mut last = self.database.begin_write()?;
        last.set_durability(Durability::Immediate)?;
        Ok(last.commit()?)
    }
}
