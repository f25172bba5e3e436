//! picaflor, as a cache.

use anyhow::Result;
use picaflor::{Durability, Options, Store};

use super::{Peer, Settings};

struct Picaflor(Store);

pub(super) fn open(settings: &Settings) -> Result<Box<dyn Peer>> {
    let mut options = Options::new(settings.folder.join("store")).capacity(settings.capacity).memory(settings.memory);
    if settings.sync {
        options = options.durability(Durability::EveryPut);
        options.delete_count = 1;
    }
    Ok(Box::new(Picaflor(Store::open(options)?)))
}

impl Peer for Picaflor {
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        Ok(self.0.put(key.as_bytes(), body)?)
    }

    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.0.get(key.as_bytes())?;
        if let Some(object) = &found {
            seen(&object.body()?);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.0.delete(key.as_bytes())?;
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(self.0.close()?)
    }
}
