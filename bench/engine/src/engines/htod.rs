//! picaflor's hash tables on a device: what cannot be fetched again. Puts that need not be durable wait for `flush`.

use std::sync::Arc;

use anyhow::Result;
use picaflor::device::{FileDevice, OpenOptions, Preallocate};
use picaflor_table::{
    blocks::BlockOptions,
    htod::{Durable, HashTables, HtodOptions, Table},
};

use super::{Config, Engine, Walk};

struct Htod {
    tables: HashTables,
    table: Table,
}

pub(super) fn open(config: &Config) -> Result<Box<dyn Engine>> {
    let options = OpenOptions {
        capacity: Some(config.capacity.next_multiple_of(4096)),
        create: true,
        preallocate: if config.written { Preallocate::Write } else { Preallocate::Auto },
        ..OpenOptions::default()
    };
    let device = Arc::new(FileDevice::open(config.folder.join("picaflor.tables"), options)?);
    let durable = if config.durable { Durable::EachCall } else { Durable::AtCommit };
    let options = HtodOptions { cache: config.memory as usize, durable, ..HtodOptions::default() };
    let (tables, _) = HashTables::open(device, BlockOptions::sparing(), options)?;
    let table = tables.table("objects")?;
    Ok(Box::new(Htod { tables, table }))
}

impl Engine for Htod {
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()> {
        Ok(self.table.put(key, body)?)
    }

    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool> {
        let found = self.table.get(key)?;
        if let Some(body) = &found {
            seen(body);
        }
        Ok(found.is_some())
    }

    fn delete(&self, key: &[u8]) -> Result<()> {
        self.table.remove(key)?;
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(self.tables.commit()?)
    }

    fn walk(&self, what: Walk, seen: &mut dyn FnMut(&[u8])) -> Result<()> {
        match what {
            Walk::Keys => self.table.keys().try_for_each(|key| key.map(|key| seen(&key)))?,
            Walk::Values => self.table.values().try_for_each(|value| value.map(|value| seen(&value)))?,
            Walk::Pairs => self.table.pairs().try_for_each(|pair| {
                pair.map(|(key, value)| {
                    seen(&key);
                    seen(&value);
                })
            })?,
        }
        Ok(())
    }

    fn taken(&self) -> Result<Option<u64>> {
        Ok(Some(self.tables.space()?.taken))
    }
}
