//! redb: a B-tree with copy on write, a transaction for each change.

use anyhow::Result;
use redb::{Database, Durability, ReadableDatabase, TableDefinition, WriteTransaction};

use super::{Peer, Settings};

const TABLE: TableDefinition<'_, &str, &[u8]> = TableDefinition::new("objects");

struct Redb {
    database: Database,
    bulk: bool,
}

pub(super) fn open(settings: &Settings) -> Result<Box<dyn Peer>> {
    let path = settings.folder.join("redb");
    let database = Database::builder().set_cache_size(settings.memory as usize).create(path)?;
    let begin = database.begin_write()?;
    begin.open_table(TABLE)?;
    begin.commit()?;
    Ok(Box::new(Redb { database, bulk: settings.bulk }))
}

impl Redb {
    fn change(&self, act: impl FnOnce(&WriteTransaction) -> Result<()>) -> Result<()> {
        let mut transaction = self.database.begin_write()?;
        transaction.set_durability(if self.bulk { Durability::None } else { Durability::Immediate })?;
        act(&transaction)?;
        Ok(transaction.commit()?)
    }
}

impl Peer for Redb {
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        self.change(|transaction| {
            transaction.open_table(TABLE)?.insert(key, body)?;
            Ok(())
        })
    }

    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let table = self.database.begin_read()?.open_table(TABLE)?;
        let found = table.get(key)?;
        if let Some(body) = &found {
            seen(body.value());
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.change(|transaction| {
            transaction.open_table(TABLE)?.remove(key)?;
            Ok(())
        })
    }

    /// A durable transaction carries those before it.
    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.begin_write()?.commit()?)
    }
}
