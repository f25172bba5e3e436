//! Question 2, space: which bytes of the device an object gets, and who gives bytes back.
//!
//! [`LayoutKind::Ring`] gives out whole clusters (`ring.rs`). The other layouts place objects one by one, *in place*:
//! `extents.rs` is their table of who lies where; `slots.rs`, `next_fit.rs` and `numbers.rs` choose the place, and
//! `runs.rs` is what the first two keep free space in. A volume in place keeps a few clusters of the ring for its
//! checkpoints.

mod extents;
mod next_fit;
mod numbers;
mod region;
mod ring;
mod runs;
mod slots;

use crate::base::layout::Opener;

pub(crate) use extents::{Extents, Freed, Place};
pub(crate) use region::Site;
pub use ring::NextCluster;
pub(crate) use ring::{Fill, PAGES_MAX, SPARE, Space, State, Victim};

/// The preset's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutKind {
    /// Whole clusters, granted in address order, round and round.
    Ring,
    /// In place, in slots of one length to a class; long objects alone.
    Slots,
    /// In place, each object at the next free run behind the one before.
    NextFit,
    /// The same, written through a page-sized buffer.
    Packets,
    /// A file for each object.
    Files(Tree),
    /// As a layout of another crate does it, which has its own index (`layout.rs`).
    Other(Opener),
}

/// Which directory an object's file is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tree {
    /// The only one.
    One,
    /// 16 of 256, in turn.
    Rounds,
    /// That of its origin server.
    Servers,
}
