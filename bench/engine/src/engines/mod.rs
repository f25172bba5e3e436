//! The engines behind one seam, so that the same work is asked of each.

mod files;
#[cfg(feature = "foyer")]
mod foyer;
mod htod;
#[cfg(feature = "lmdb")]
mod lmdb;
mod ours;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "redb")]
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
#[cfg(feature = "sqlite")]
mod sqlite;
#[cfg(any(feature = "postgres", feature = "sqlite"))]
mod transactions;

use std::path::PathBuf;

use anyhow::{Result, bail};
use serde::{Deserialize, Serialize};

/// What every engine is given: the same folder, memory and room.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Config {
    /// Where its files go.
    pub(crate) folder: PathBuf,
    /// Memory for caches and buffers, in bytes.
    pub(crate) memory: u64,
    /// Most bytes on the device, for an engine that has such a limit.
    pub(crate) capacity: u64,
    /// Whether a put returns only when it is durable.
    pub(crate) durable: bool,
    /// Changes that a database commits together; 1 where they are durable, 0 for none until a commit is asked for.
    pub(crate) commit_every: u32,
    /// Whether every block of its file is to be written before anything is measured, where the engine can.
    pub(crate) written: bool,
}

/// Told of each asynchronous get, asked for the next one.
pub(crate) trait Asker {
    /// Number and key of the next object; nothing when it is enough.
    fn next(&mut self) -> Option<(u64, crate::data::Key)>;
    /// What came of an earlier one, and how long it took.
    fn answer(&mut self, id: u64, took: std::time::Duration, body: Option<&[u8]>);
}

/// Asked for each asynchronous put, told of it when it has returned.
pub(crate) trait Putter<'a> {
    /// Key and body of the next object; nothing when it is enough.
    fn next(&mut self) -> Option<(crate::data::Key, &'a [u8])>;
    /// A put of so many bytes took so long.
    fn answer(&mut self, bytes: usize, took: std::time::Duration);
}

/// What is gone through.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Walk {
    Keys,
    Values,
    /// Of each object the key, then the body.
    Pairs,
}

/// One engine, open.
pub(crate) trait Engine: Send + Sync {
    /// Stores an object; with [`Config::durable`], durably.
    fn put(&self, key: &[u8], body: &[u8]) -> Result<()>;
    /// Shows an object's body to `seen`; whether it was there.
    fn get(&self, key: &[u8], seen: &mut dyn FnMut(&[u8])) -> Result<bool>;
    /// Removes an object.
    fn delete(&self, key: &[u8]) -> Result<()>;
    /// Removes objects, by one call where the engine has one.
    fn delete_many(&self, keys: &[&[u8]]) -> Result<()> {
        keys.iter().try_for_each(|key| self.delete(key))
    }
    /// Returns when everything put so far is on the device.
    fn flush(&self) -> Result<()>;
    /// Commits what waits for it.
    fn commit(&self) -> Result<()> {
        Ok(())
    }
    /// Goes through all objects, in any order.
    fn walk(&self, _what: Walk, _seen: &mut dyn FnMut(&[u8])) -> Result<()> {
        bail!("this engine cannot be gone through")
    }
    /// Bytes of the device in use, for an engine whose file is as large as it may ever be.
    fn taken(&self) -> Result<Option<u64>> {
        Ok(None)
    }
    /// Bytes of checkpoints that were written, where the engine says.
    fn checkpointed(&self) -> Option<u64> {
        None
    }
    /// Memory in use, where the engine says.
    fn memory(&self) -> Option<OwnCount> {
        None
    }
    /// Keeps this many gets in flight from one thread until there are no more. Whether the engine can.
    fn gets(&self, _in_flight: usize, _asker: &mut dyn Asker) -> Result<bool> {
        Ok(false)
    }
    /// The same by tasks of a tokio runtime of one thread. Whether the engine can.
    fn gets_by_tokio(&self, _in_flight: usize, _asker: &mut dyn Asker) -> Result<bool> {
        Ok(false)
    }
    /// Puts from this many tasks of one thread until there is no more. Whether the engine can.
    fn puts(&self, _tasks: usize, _putter: &mut dyn Putter<'_>) -> Result<bool> {
        Ok(false)
    }
}

/// Memory as an engine itself counts it, in bytes.
pub(crate) struct OwnCount {
    /// What it takes to find objects.
    pub(crate) index: u64,
    /// All that counts against the memory given.
    pub(crate) all: u64,
}

/// Which report an engine is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub(crate) enum Table {
    /// Caches and stores.
    Engine,
    /// What keeps what cannot be fetched again.
    Durable,
    /// The tests of a paper: files, hash tables, databases.
    Site,
}

/// Name of an engine, the tables it is in, whether it evicts by itself, and how it is opened.
type Row = (&'static str, &'static [Table], bool, fn(&Config) -> Result<Box<dyn Engine>>);

const ENGINE: &[Table] = &[Table::Engine];
#[cfg(feature = "lmdb")]
const DURABLE: &[Table] = &[Table::Durable];
#[cfg(any(feature = "redb", feature = "rocksdb"))]
const BOTH: &[Table] = &[Table::Engine, Table::Durable];
const STORES: &[Table] = &[Table::Durable, Table::Site];
const ALL: &[Table] = &[Table::Engine, Table::Durable, Table::Site];

/// Every engine of this build, ours first.
const ENGINES: &[Row] = &[
    ("picaflor", ENGINE, true, ours::open),
    ("picaflor-store", ENGINE, false, ours::open_store),
    ("picaflor-hummingbird", ENGINE, true, ours::open_hummingbird),
    ("picaflor-damelo", ENGINE, true, ours::open_damelo),
    ("picaflor-htod", STORES, false, htod::open),
    #[cfg(feature = "foyer")]
    ("foyer-uring", ENGINE, true, foyer::open_uring),
    #[cfg(feature = "foyer")]
    ("foyer-psync", ENGINE, true, foyer::open_psync),
    #[cfg(feature = "rocksdb")]
    ("rocksdb", BOTH, false, rocksdb::open),
    #[cfg(feature = "rocksdb")]
    ("rocksdb-blob", ENGINE, false, rocksdb::open_blob),
    #[cfg(feature = "sqlite")]
    ("sqlite", ALL, false, sqlite::open),
    #[cfg(feature = "postgres")]
    ("postgres", STORES, false, postgres::open),
    #[cfg(feature = "lmdb")]
    ("lmdb", DURABLE, false, lmdb::open),
    #[cfg(feature = "redb")]
    ("redb", BOTH, false, redb::open),
    ("files", ALL, false, files::open),
];

/// Names of the engines of a table in this build.
pub(crate) fn names(table: Table) -> Vec<&'static str> {
    ENGINES.iter().filter(|(_, tables, ..)| tables.contains(&table)).map(|(name, ..)| *name).collect()
}

/// The names of all engines of this build.
pub(crate) fn all() -> Vec<&'static str> {
    ENGINES.iter().map(|(name, ..)| *name).collect()
}

/// Why an engine of this build cannot take part on this machine, if it cannot.
pub(crate) fn absent(name: &str) -> Option<String> {
    #[cfg(feature = "postgres")]
    if name == "postgres" {
        return postgres::absent();
    }
    let _ = name;
    None
}

/// Whether an engine commits some changes at a time.
pub(crate) fn is_database(name: &str) -> bool {
    matches!(name, "sqlite" | "postgres")
}

/// Whether an engine evicts when its room is used up.
pub(crate) fn evicts(name: &str) -> bool {
    ENGINES.iter().any(|(known, _, evicts, _)| *known == name && *evicts)
}

/// Whether this is ours, and another preset than the default: those take part in `warm` only.
pub(crate) fn is_preset(name: &str) -> bool {
    matches!(name, "picaflor-hummingbird" | "picaflor-damelo")
}

/// Whether an engine keeps many gets in flight from one thread.
pub(crate) fn is_asynchronous(name: &str) -> bool {
    name.starts_with("picaflor") || name.starts_with("foyer")
}

/// Opens an engine by name.
pub(crate) fn open(name: &str, config: &Config) -> Result<Box<dyn Engine>> {
    std::fs::create_dir_all(&config.folder)?;
    match ENGINES.iter().find(|(known, ..)| *known == name) {
        Some((.., open)) => open(config),
        None => {
            let known: Vec<_> = ENGINES.iter().map(|(known, ..)| *known).collect();
            bail!("no engine {name:?} in this build; it has {}", known.join(", "))
        }
    }
}
