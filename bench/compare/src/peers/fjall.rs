//! fjall: a log-structured merge tree.

use anyhow::Result;
use fjall::{Database, Keyspace, KeyspaceCreateOptions, PersistMode};

use super::{Peer, Settings};

struct Fjall {
    objects: Keyspace,
    database: Database,
    sync: bool,
}

pub(super) fn open(settings: &Settings) -> Result<Box<dyn Peer>> {
    let database = Database::builder(&settings.folder).cache_size(settings.memory).open()?;
    let objects = database.keyspace("objects", KeyspaceCreateOptions::default)?;
    Ok(Box::new(Fjall { objects, database, sync: settings.sync }))
}

impl Fjall {
    fn changed(&self) -> Result<()> {
        if self.sync {
            self.database.persist(PersistMode::SyncAll)?;
        }
        Ok(())
    }
}

impl Peer for Fjall {
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        self.objects.insert(key, body)?;
        self.changed()
    }

    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.objects.get(key)?;
        if let Some(body) = &found {
            seen(body);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.objects.remove(key)?;
        self.changed()
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.database.persist(PersistMode::SyncAll)?)
    }
}
