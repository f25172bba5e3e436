//! sled: a tree on a log.

use anyhow::Result;

use super::{Peer, Settings};

struct Sled {
    tree: sled::Db,
    sync: bool,
}

pub(super) fn open(settings: &Settings) -> Result<Box<dyn Peer>> {
    let tree = sled::Config::new().path(&settings.folder).cache_capacity(settings.memory).open()?;
    Ok(Box::new(Sled { tree, sync: settings.sync }))
}

impl Sled {
    fn changed(&self) -> Result<()> {
        if self.sync {
            self.tree.flush()?;
        }
        Ok(())
    }
}

impl Peer for Sled {
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        self.tree.insert(key, body)?;
        self.changed()
    }

    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.tree.get(key)?;
        if let Some(body) = &found {
            seen(body);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.tree.remove(key)?;
        self.changed()
    }

    fn close(self: Box<Self>) -> Result<()> {
        self.tree.flush()?;
        Ok(())
    }
}
