//! moka: in memory alone.

use std::sync::Arc;

use anyhow::Result;
use moka::sync::Cache;

use super::{Peer, Settings};

struct Moka(Cache<String, Arc<[u8]>>);

pub(super) fn open(settings: &Settings) -> Result<Box<dyn Peer>> {
    let weigh = |key: &String, body: &Arc<[u8]>| (key.len() + body.len()) as u32;
    Ok(Box::new(Moka(Cache::builder().weigher(weigh).max_capacity(settings.capacity).build())))
}

impl Peer for Moka {
    fn put(&self, key: &str, body: &[u8]) -> Result<()> {
        self.0.insert(key.to_owned(), body.into());
        Ok(())
    }

    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.0.get(key);
        if let Some(body) = &found {
            seen(body);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &str) -> Result<()> {
        self.0.invalidate(key);
        Ok(())
    }

    fn close(self: Box<Self>) -> Result<()> {
        Ok(())
    }
}
