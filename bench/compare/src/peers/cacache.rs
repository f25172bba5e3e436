//! cacache: a file for each content, named by its hash, and an index of files.

use std::path::PathBuf;

use anyhow::Result;

use super::{Peer, Settings};

struct Cacache(PathBuf);

pub(super) fn open(settings: &Settings) -> Result<Box<dyn Peer>> {
    Ok(Box::new(Cacache(settings.folder.clone())))
}

impl Peer for Cacache {
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        cacache::write_sync(&self.0, key, body)?;
        Ok(())
    }

    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        match cacache::read_sync(&self.0, key) {
            Ok(body) => {
                seen(&body);
                Ok(true)
            }
            Err(cacache::Error::EntryNotFound(..)) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    fn delete(&self, key: &str) -> Result<()> {
        Ok(cacache::remove_sync(&self.0, key)?)
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
