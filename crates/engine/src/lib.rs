//! A crash-safe store for web objects: small, many, immutable things with keys.
//!
//! ```no_run
//! use picaflor::{Options, PutOptions, Store};
//!
//! let store = Store::open(Options::new("cache.store").capacity(1 << 30))?;
//! store.put(b"https://example.org/", b"<html>")?;
//! if let Some(object) = store.get(b"https://example.org/")? {
//!     assert_eq!(object.body()?, &b"<html>"[..]);
//! }
//! store.close()?;
//! # Ok::<(), picaflor::Error>(())
//! ```
//!
//! Where to look, from the top: `store.rs` is the door and `ops/` has the verbs, one a file; `recovery/` opens;
//! `background/` makes room and verifies; `write/` takes an object to the device (`write/append.rs` frames it,
//! `write/flush.rs` writes it); `read/` is the way back; `cache/` is what is in memory, `log/` what survives a crash;
//! `index/` and `space/` say where things are. `volume.rs` has the parts of one device. `base/preset.rs` is the table
//! of rows; `in_place/` has layouts of the literature; `base/layout.rs` is the seam for those of other crates.
//!
//! Features, all off by default: `async-stream` makes the chunks of an object a `Stream`, `metrics` gives statistics to
//! the recorder of the crate of this name, `serde` makes statistics, receipts and reports `Serialize`.
#![forbid(unsafe_code)]

// See `picaflor_common::sync`.
#[cfg(shuttle)]
extern crate picaflor_locks as parking_lot;

mod api;
mod background;
mod base;
mod cache;
mod env;
mod in_place;
mod index;
mod log;
#[cfg(all(test, shuttle))]
mod models;
mod ops;
mod read;

mod recovery;
mod shared;
mod space;
mod store;
mod volume;
mod write;

pub use api::inspect::{About, Inspection, inspect};
pub use api::object::Object;
pub use base::options::{
    Admission, Daemons, Departure, Durability, EvictionListener, Expiry, Options, Place, PutOptions,
};

pub use base::error::{Error, Miss, Refusal, Result};
pub use base::group::Priority;
pub use base::policy::{ClusterAge, Mode, PackOrder, Reopening};
pub use base::receipt::{Dropped, Receipt, VolumeReceipt};
pub use base::report::CheckReport;
pub use base::spread::Spread;
pub use base::stats::{Counts, Stats, VolumeStats};
pub use ops::batch::Put;
pub use ops::check::{Finding, Severity};
#[cfg(feature = "async-stream")]
pub use ops::chunk_stream::ChunkStream;
pub use ops::chunks::Chunks;
pub use ops::fetch::{FetchError, Fetched};
pub use ops::get::TryGet;
pub use ops::list::{Entry, Keys};
pub use ops::stream::PutStream;
pub use picaflor_device as device;
pub use picaflor_device::ThreadRing;
pub use space::NextCluster;
pub use store::{Group, Reserved, Store};

/// What a layout of another crate is built on: the seam. Not a part of the interface that is kept stable: a layout is
/// built with the very version of this crate.
#[doc(hidden)]
pub mod layout {
    pub use crate::{
        base::{
            frame::{Draft, Frame},
            layout::{Env, Former, Layout, LayoutPlace, Listing, OpenedLayout, Opener},
            policy::{Eviction, Persistence, Placement, Reading, Retention},
            preset::Preset,
        },
        recovery::write_superblock,
        space::LayoutKind,
    };
}

type Commits = picaflor_common::Commits<Error>;

/// The snippets of both READMEs and of the book compile.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
#[doc = include_str!("../../../README.md")]
#[doc = include_str!("../../../docs/EMBEDDING.md")]
struct Pages;
