//! Which slots an object gets, and what is free: `extents.rs` is the table of what lies where; `slots.rs`,
//! `next_fit.rs` and `numbers.rs` choose the place, and `runs.rs` is what the first two keep free space in.

mod extents;
mod next_fit;
mod numbers;
mod runs;
mod slots;

pub(super) use extents::{Extents, Freed, Place};

use super::files::Tree;

/// How places are chosen, and what they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layout {
    /// Slots of one length to a class; long objects alone.
    Slots,
    /// The next free run behind the object before.
    NextFit,
    /// The same, written through a page-sized buffer.
    Packets,
    /// A file for each object.
    Files(Tree),
}
