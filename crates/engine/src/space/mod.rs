//! Question 2, space: which bytes of the device an object gets, and what gives bytes back.
//!
//! [`LayoutKind::Ring`] gives out whole clusters (`ring.rs`). A volume whose objects have places of their own keeps a
//! few of them for its checkpoints.

mod region;
mod ring;

use crate::base::{layout::Opener, places::PlacesOpener};

pub(crate) use region::Site;
pub use ring::NextCluster;
pub(crate) use ring::{Fill, PAGES_MAX, Promised, Queue, SPARE, Space, State, Victim};

/// The preset's answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LayoutKind {
    /// Whole clusters, granted in address order, round and round.
    Ring,
    /// A place for each object, as another crate has them (`base/places.rs`).
    Places(PlacesOpener),
    /// As a layout of another crate does it, which has its own index (`base/layout.rs`).
    Other(Opener),
}
