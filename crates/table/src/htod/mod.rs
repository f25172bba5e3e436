//! Hash tables on a device: far more keys than memory, each put durable when it returns, no log.
//!
//! The HTOD of Iyengar, Jin and Challenger 2003, section 3, on the block allocator of [`crate::blocks`]: an entry
//! (key and value) is a block, and an index says where it lies. Ours differs in four things.
//!
//! - The index is made of pages of 4,096 bytes with 240 slots instead of a chain for each bucket; a put costs one write
//!   for the entry and one for its page whether others hash there or not.
//! - It grows page by page (linear hashing, Litwin 1980), so doubling is spread over the puts. Its state is what
//!   lies on the device: an opening looks which pages were made and goes on.
//! - A slot keeps the version before until the new one is durable, in the same sector. So entry and page go out in any
//!   order and one sync covers both; recovery falls back to the version before where the new entry did not arrive.
//! - Callers that wait for durability share syncs.
//!
//! Where to look: the verbs are in `verbs.rs`, many at once in `many.rs`, what makes them durable in `commit.rs`,
//! doubling in `split.rs`, what a crash left in `resolve.rs` and `mend.rs`, pages that rotted in `rebuild.rs`, what all
//! calls share in `inner.rs`.
//! `docs/FORMAT.md` has the bytes and the argument.
//!
//! ```no_run
//! use std::sync::Arc;
//! use picaflor_device::{FileDevice, OpenOptions};
//! use picaflor_table::{blocks::BlockOptions, htod::{HashTables, HtodOptions}};
//!
//! let options = OpenOptions { capacity: Some(1 << 30), create: true, ..OpenOptions::default() };
//! let device = Arc::new(FileDevice::open("tables", options)?);
//! let (tables, _) = HashTables::open(device, BlockOptions::default(), HtodOptions::default())?;
//! let pages = tables.table("pages")?;
//! pages.put(b"/index.html", b"<html>")?;
//! assert_eq!(pages.get(b"/index.html")?.as_deref(), Some(&b"<html>"[..]));
//! tables.close()?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod cache;
mod close;
mod commit;
mod damage;
mod doubt;
mod entry;
mod failure;
mod inner;
mod iterate;
mod many;
mod mend;
mod open;
mod options;
mod page;
mod rebuild;
mod releases;
mod resolve;
mod roots;
mod shape;
mod split;
mod tables;
mod verbs;

pub use self::{
    inner::{HashTables, Table},
    iterate::{Keys, Pairs, Values},
    many::runs,
    mend::Mended,
    open::{HtodReceipt, HtodStats},
    options::{Batch, Durable, HtodOptions, MAX_KEY},
};
