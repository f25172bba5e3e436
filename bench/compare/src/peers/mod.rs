//! The peers, each with the settings that its own documentation recommends for a cache or store of small objects.
//!
//! Invariants: a put or delete that returns is acknowledged; where `Settings::sync` is set, by the strongest means that
//! the peer has.

mod cacache;
mod fjall;
mod foyer;
mod moka;
mod picaflor;
mod redb;
#[cfg(feature = "rocksdb")]
mod rocksdb;
mod sled;

use std::path::{Path, PathBuf};

use anyhow::{Result, bail};

/// What a peer is opened with.
pub(crate) struct Settings {
    /// A folder of its own.
    pub(crate) folder: PathBuf,
    /// Every put and delete is to be durable when it returns.
    pub(crate) sync: bool,
    /// Much is put before something else is measured: no put needs to be durable.
    pub(crate) bulk: bool,
    /// Bytes of memory for its caches.
    pub(crate) memory: u64,
    /// Bytes on disk, where a peer has to know.
    pub(crate) capacity: u64,
}

/// A peer at work.
pub(crate) trait Peer {
    fn put(&self, key: &str, body: &[u8]) -> Result<()>;
    /// Shows the body, without a copy where the peer can; false if there is none.
    fn get(&self, key: &str, seen: &mut dyn FnMut(&[u8])) -> Result<bool>;
    fn delete(&self, key: &str) -> Result<()>;
    /// As a program ends that is not killed.
    fn close(self: Box<Self>) -> Result<()>;
}

/// What is written of a peer on the page.
pub(crate) struct About {
    /// Its name, and that of its example; of the crate too, where it is one.
    pub(crate) name: &'static str,
    /// Whether it can be asked to make a put durable before it returns.
    pub(crate) can_sync: bool,
    /// Whether anything is to be there after a crash.
    pub(crate) is_on_disk: bool,
    /// Objects for the measure of memory: the smaller of two numbers, four times as many are the other.
    pub(crate) objects: u64,
    /// What was chosen, in a few words.
    pub(crate) settings: &'static str,
}

/// All of them, in the order of the page.
pub(crate) const ALL: &[About] = &[
    About {
        name: "picaflor",
        can_sync: true,
        is_on_disk: true,
        objects: 100_000,
        settings: "defaults (a second); sync: `Durability::EveryPut`, `delete_count` 1",
    },
    About {
        name: "foyer",
        can_sync: false,
        is_on_disk: true,
        objects: 100_000,
        settings: "hybrid, `WriteOnInsertion`, tombstone log, flush on close, `O_DIRECT`, psync",
    },
    About {
        name: "moka",
        can_sync: false,
        is_on_disk: false,
        objects: 100_000,
        settings: "sync cache, weigher by bytes",
    },
    About {
        name: "cacache",
        can_sync: false,
        is_on_disk: true,
        objects: 10_000,
        settings: "`write_sync`, `read_sync`, `mmap`",
    },
    About {
        name: "sled",
        can_sync: true,
        is_on_disk: true,
        objects: 50_000,
        settings: "defaults (flush each 500 ms); sync: `flush` after each",
    },
    About {
        name: "redb",
        can_sync: true,
        is_on_disk: true,
        objects: 50_000,
        settings: "a transaction each, `Durability::Immediate`, its default, in both",
    },
    About {
        name: "fjall",
        can_sync: true,
        is_on_disk: true,
        objects: 100_000,
        settings: "defaults; sync: `persist(SyncAll)` after each",
    },
    About {
        name: "rocksdb",
        can_sync: true,
        is_on_disk: true,
        objects: 100_000,
        settings: "bloom filter of 10 bits, no compression; sync: `set_sync`",
    },
    About {
        name: "diskcache",
        can_sync: true,
        is_on_disk: true,
        objects: 5_000,
        settings: "defaults; sync: `sqlite_synchronous=2`",
    },
];

/// Opens a peer that is a crate; diskcache is a program of its own.
pub(crate) fn open(name: &str, settings: &Settings) -> Result<Box<dyn Peer>> {
    match name {
        "picaflor" => picaflor::open(settings),
        "foyer" => foyer::open(settings),
        "moka" => moka::open(settings),
        "cacache" => cacache::open(settings),
        "sled" => sled::open(settings),
        "redb" => redb::open(settings),
        "fjall" => fjall::open(settings),
        #[cfg(feature = "rocksdb")]
        "rocksdb" => rocksdb::open(settings),
        _ => bail!("no peer is named {name}, or it was not built"),
    }
}

/// Whether this build has it, or it can be run.
pub(crate) fn is_there(name: &str, python: Option<&Path>) -> bool {
    match name {
        "rocksdb" => cfg!(feature = "rocksdb"),
        "diskcache" => python.is_some(),
        _ => true,
    }
}
