//! A persistent block allocator, usable alone: blocks of a file or raw device, one device write an allocation, one a
//! free, and everything found again after a failure. After Iyengar, Jin and Challenger, *Techniques for efficiently
//! allocating persistent storage*, J. Systems and Software 68 (2003): PMFLF over the methods TS, PL and PFL.
//!
//! ```
//! use std::sync::Arc;
//! use picaflor_table::blocks::{BlockOptions, FreeLists};
//! use picaflor_device::MemoryDevice;
//!
//! let device = Arc::new(MemoryDevice::with_block_size(1 << 20, 512));
//! let (lists, _receipt) = FreeLists::open(device, BlockOptions::default())?;
//! let block = lists.put(b"a fragment")?;
//! lists.sync()?; // now it is there, whatever happens
//! assert_eq!(lists.read(block.address())?.1, b"a fragment");
//! lists.free(&block)?;
//! # Ok::<(), picaflor_table::blocks::BlockError>(())
//! ```
//!
//! **Durability.** Nothing is durable before a [`sync`](FreeLists::sync) that began after it; when to sync is the
//! caller's choice, and threads that sync together share one device sync. Unsynced writes may survive a crash in any
//! order, sector by sector. A freed block's bytes are reused only after a sync.
//!
//! **What is where.** `lists.rs` chooses a block; `grant.rs` writes and frees it; `walk.rs` finds blocks after a
//! failure; `batch.rs` places many at once; `home.rs` keeps what must be found first; `commit.rs` makes things durable;
//! `queue.rs` keeps writes that wait for that, and `drain.rs` writes them; `coalesce.rs` makes large blocks of small
//! ones; `links.rs`, `cursors.rs` and `follow.rs` are PL and PFL; `image.rs` is a clean shutdown.

mod address;
mod batch;
mod coalesce;
mod commit;
mod cursors;
mod drain;
mod error;
mod follow;
mod free_lists;
mod grant;
mod home;
mod image;
mod iterate;
mod links;
mod lists;
mod many;
mod open;
mod options;
mod queue;
mod space;
mod stats;
mod verbs;
mod walk;
mod writes;

pub use self::{
    address::{Address, Block},
    error::{BlockError, BlockResult},
    free_lists::FreeLists,
    iterate::Blocks,
    open::BlockReceipt,
    options::{BlockOptions, Method, Search},
    stats::BlockStats,
};
pub use picaflor_format::blocks::ROOTS;
