//! A crash-safe store for web objects: small, many, immutable things with keys.
//!
//! ```no_run
//! use picaflor::{Options, PutOptions, Store};
//!
//! let store = Store::open(Options::new("cache.store").capacity(1 << 30))?;
//! store.put(b"https://example.org/", b"<html>", &PutOptions::default())?;
//! if let Some(object) = store.get(b"https://example.org/")? {
//!     assert_eq!(object.body().as_deref(), Some(&b"<html>"[..]));
//! }
//! store.close()?;
//! # Ok::<(), picaflor::Error>(())
//! ```
//!
//! Where to look: a put is `put.rs`, then `append.rs`; its bytes reach the device in `flush.rs`. A get is
//! `get.rs`. Room is made in `reclaim.rs`. What survives a crash is decided in `journal.rs`,
//! `checkpoint.rs` and `recovery/`. The six questions of every storage manager have a module each:
//! `placement`, `space`, `memory`, `reading`, `eviction`, `checkpoint`; `preset.rs` is their table.
#![forbid(unsafe_code)]

// See `sync`.
#[cfg(shuttle)]
extern crate picaflor_locks as parking_lot;

mod adopt;
mod append;
mod batch;
pub mod blocks;
mod buffers;
mod check;
mod checkpoint;
mod chunks;
mod commits;
mod compact;
mod daemons;
mod delete;
mod error;
mod eviction;
mod fetch;
mod files;
mod flush;
mod framing;
mod full;
mod get;
mod group;
mod hands;
mod hash;
mod home;
pub mod htod;
mod index;
mod inspect;
mod journal;
mod keys;
mod leases;
mod leave;
mod listed;
mod locality;
mod many;
mod memory;
#[cfg(all(test, shuttle))]
mod models;
mod object;
mod options;
mod packet;
mod packing;
mod pages;
mod place;
mod placement;
mod preset;
mod put;
mod reading;
mod reclaim;
mod recovery;
mod rows;
mod scrub;
mod space;
mod spread;
mod stats;
mod store;
mod stream;
mod sync;
mod tabled;
mod volume;
mod waiting;

pub use check::{CheckReport, Finding, Severity};
pub use chunks::Chunks;
pub use error::{Error, Miss, Refusal, Result};
pub use eviction::ClusterAge;
pub use fetch::Fetched;
pub use get::TryGet;
pub use group::Temper;
pub use inspect::{About, Inspection, inspect};
pub use keys::{Entry, Keys};
/// Rules of replacement that others may want to replay: the lab does.
pub mod replacement {
    pub use crate::memory::{S3Fifo, Standing, Step};
}
pub use many::Put;
pub use object::Object;
pub use options::{
    Admission, Daemons, Departure, Durability, EvictionListener, Expiry, Mode, Options, Place, PutOptions,
};
pub use picaflor_device as device;
pub use picaflor_device::ThreadRing;
pub use recovery::{Dropped, Receipt, VolumeReceipt};
pub use scrub::Reopening;
pub use space::NextCluster;
pub use spread::Spread;
pub use stats::{Counts, Stats, VolumeStats};
pub use store::{Group, Store};
pub use stream::PutStream;
pub use waiting::PackOrder;
