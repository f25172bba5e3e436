//! A crash-safe store for web objects inside a program: small, many, immutable things with keys, on a file or a block
//! device.
//!
//! It is a **cache**, which evicts what was not used, or a **store**, which never does. Objects are written side by
//! side, a cluster of 256 KiB at a time, and read by one read each; the index is in memory and takes some 9 bytes an
//! object. Memory and device bytes are hard caps. What a crash may cost is an option, and deletes do not come back.
//!
//! # Open, put, get
//!
//! ```
//! use picaflor::{Options, Store};
//!
//! # let folder = tempfile::tempdir().unwrap();
//! # let path = folder.path().join("cache.store");
//! // At most 64 MiB in the file, and 8 MiB of memory for index, buffers and objects together.
//! let store = Store::open(Options::new(&path).capacity(64 << 20).memory(8 << 20))?;
//!
//! store.put(b"http://example.org/", b"<html>")?;
//! if let Some(object) = store.get(b"http://example.org/")? {
//!     assert_eq!(object.body()?, "<html>");
//! }
//! assert!(store.delete(b"http://example.org/")?);
//!
//! store.close()?;
//! # Ok::<(), picaflor::Error>(())
//! ```
//!
//! A [`Store`] is a handle: clones are the same store, and all its calls take `&self`, from any number of threads.
//! [`Options`] has what can be chosen; nearly everything has a default. A store is opened by one process at a time; the
//! crate `picaflor-shared` lets others in.
//!
//! [`Store::put_with`] and [`PutOptions`] say more of an object: metadata that is returned with it, when it expires, to
//! which group it belongs, beside which other object it is to lie.
//!
//! ```
//! # use std::sync::Arc;
//! # use picaflor::{Options, Store, device::MemoryDevice};
//! use std::time::Duration;
//!
//! use picaflor::{Expiry, PutOptions};
//!
//! # let store = Store::open(Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(8 << 20))?;
//! let page = PutOptions::new().metadata("text/html").expiry(Expiry::After(Duration::from_secs(3600)));
//! store.put_with(b"http://example.org/", b"<html>", &page)?;
//! assert_eq!(store.get(b"http://example.org/")?.unwrap().metadata(), b"text/html");
//! # Ok::<(), picaflor::Error>(())
//! ```
//!
//! A get returns an [`Object`], a handle that pins its bytes: nothing is copied out of memory, and they stay as they
//! are though the object is replaced or evicted meanwhile. [`Store::get_or_fetch`] asks an origin for what is not
//! there, once for all callers that ask at the same time.
//!
//! An object may be as long as a quarter of its device ([`Store::object_max`]), a key 8 KiB, metadata 64 KiB. What does
//! not fit in a cluster is kept in chunks: a body that is not in memory as a whole goes in by [`Store::put_stream`] and
//! comes out by [`Object::chunks`] or [`Store::get_range`].
//!
//! # Groups and neighbours
//!
//! What is asked for together should lie together: then one read brings all of it. An object may name a
//! [neighbour](PutOptions::neighbour), such as the page that an image belongs to, or a [group](PutOptions::group), a
//! number that the program chooses. A [`Group`] has settings for all of its objects: those that are
//! [loved](Group::love) stay in memory longest, those that are [hated](Group::hate) leave first, and it may have a
//! bound on durability of its own.
//!
//! ```
//! # use std::sync::Arc;
//! # use picaflor::{Options, PutOptions, Store, device::MemoryDevice};
//! # let store = Store::open(Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(8 << 20))?;
//! const FRONT_PAGES: u32 = 1;
//!
//! store.group(FRONT_PAGES).love();
//! let image = PutOptions::new().group(FRONT_PAGES).neighbour("http://example.org/");
//! store.put_with(b"http://example.org/logo.png", b"PNG", &image)?;
//! # Ok::<(), picaflor::Error>(())
//! ```
//!
//! # Durability, and what a crash costs
//!
//! [`Options::durability`](field@Options::durability) says what a crash may cost of the puts that were acknowledged:
//!
//! | [`Durability`] | a crash costs at most |
//! |---|---|
//! | `Bounded { time, puts }`, the default with one second | puts of the last `time`, and no more than `puts` of them |
//! | `EveryPut` | nothing: a put returns when it is durable, and concurrent puts share a sync |
//! | `None` | all since the last [`Store::flush`] or close |
//!
//! Deletes have a bound of their own ([`Options::delete_bounds`]), by default one second. After a crash at any moment,
//! of the process or of the machine, at the next opening:
//!
//! - a get finds a version of the object that was put whole, under this very key, or a miss: every read is verified by
//!   checksum and full key;
//! - everything that was acknowledged as durable is there, unless a cache evicted it;
//! - what was deleted, or replaced, durably does not come back.
//!
//! [`Store::receipt`] says what an opening kept and dropped, and why; [`Store::check`] audits all of a store.
//!
//! # Errors
//!
//! A miss is no error: [`Store::get`] returns `None`, and [`Stats::misses`] counts the reasons. Nor does a failing
//! device fail a cache: what cannot be read is a miss. A [`Mode::Store`] says [`Error::Damaged`] or [`Error::Io`]
//! instead, and [`Error::Full`], with the bytes to delete, where a cache would evict. A put that is declined is
//! [`Error::Refused`] with a [`Refusal`] that says why. Every message names the place, and what to do. After a failed
//! write a device takes no more of them until the store is opened again; [`Store::failures`] has the reason.
//!
//! # Tasks
//!
//! Every call that waits has a twin named `_async`, for any runtime: reads are requests to `io_uring`, or to a pool of
//! threads where there is none, and no thread of the executor waits for a device. Their futures do nothing before they
//! are polled. [`Store::begin_put`], [`Store::begin_delete`] and [`Store::begin_invalidate`] begin at once, as their
//! names say, for a caller that wants to wait later, or not at all.
//!
//! ```
//! # use std::sync::Arc;
//! # use picaflor::{Options, Store, device::MemoryDevice};
//! # let store = Store::open(Options::on(Arc::new(MemoryDevice::new(64 << 20))).memory(8 << 20))?;
//! # let task =
//! async {
//!     store.put_async(b"key", b"body").await?;
//!     let object = store.get_async(b"key").await?;
//!     # assert!(object.is_some());
//!     # Ok::<(), picaflor::Error>(())
//! }
//! # ;
//! # futures_executor::block_on(task)?;
//! # Ok::<(), picaflor::Error>(())
//! ```
//!
//! # Features
//!
//! All are off by default. `async-stream`: the chunks of an object are a `Stream`. `metrics`: statistics go to the
//! recorder of the crate of that name. `serde`: statistics, receipts and reports are `Serialize`.
//!
//! # Source
//!
//! From the top: `store.rs` is the door and `ops/` has the verbs, one a file; `recovery/` opens; `background/` makes
//! room and verifies; `write/` takes an object to the device (`write/append.rs` frames it, `write/flush.rs` writes it);
//! `read/` is the way back; `cache/` is what is in memory, `log/` what survives a crash; `index/` and `space/` say
//! where things are. `volume.rs` has the parts of one device. `base/preset.rs` is the table of rows; `base/layout.rs`
//! and `base/places.rs` are the seams for layouts of other crates.
#![forbid(unsafe_code)]

// See `picaflor_common::sync`.
#[cfg(shuttle)]
extern crate picaflor_locks as parking_lot;

mod api;
mod background;
mod base;
mod cache;
mod env;
mod handle;
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

pub use api::chunks::Chunks;
pub use api::inspect::{About, Inspection, inspect};
pub use api::object::Object;
pub use base::options::{Admission, Daemons, Durability, EvictionListener, Expiry, Options, Place, PutOptions};

pub use base::error::{Error, Miss, Refusal, Result};
pub use base::group::{CheckpointInterval, Priority};
pub use base::policy::{ClusterAge, Departure, Mode, PackOrder, Reopening};
pub use base::put::Put;
pub use base::receipt::{Dropped, Receipt, VolumeReceipt};
pub use base::report::CheckReport;
pub use base::spread::Spread;
pub use base::stats::{Counts, Stats, VolumeStats};
pub use handle::Store;
pub use ops::check::{Finding, Severity};
#[cfg(feature = "async-stream")]
pub use ops::chunk_stream::ChunkStream;
pub use ops::daemon::Daemon;
pub use ops::fetch::Fetched;
pub use ops::fetches::FetchError;
pub use ops::get::TryGet;
pub use ops::list::{Entry, Keys};
pub use ops::locate::Extent;
pub use ops::map::ClusterMap;
pub use ops::stream::PutStream;
pub use ops::walk::{Found, Walk};
pub use picaflor_device as device;
pub use picaflor_device::ThreadRing;
pub use space::NextCluster;
pub use store::{Group, Reserved};

/// What a layout of another crate is built on: the two seams. Not a part of the interface that is kept stable: a layout
/// is built with the very version of this crate.
#[doc(hidden)]
pub mod layout {
    pub use crate::{
        base::{
            blocked::Blocked,
            frame::{Draft, Frame},
            layout::{Env, Former, Layout, LayoutPlace, Listing, OpenedLayout, Opener},
            medium::Medium,
            places::{Fill, LogEnv, Overlay, Places, PlacesGround, PlacesOpener, RoomEnv, VolumeEnv},
            policy::{Eviction, Persistence, Placement, Reading, Retention},
            preset::Preset,
        },
        index::IndexEntry,
        recovery::{CLEAN, EPOCH_SHIFT, write_superblock},
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
