//! A place for each object: slots of a device, the next free run of them, a page that is filled, a file for each.
//! BUDDY, STREAM, LAZY-READS, SIMPLE, SQUID and MULTIPLE-DIRS of Markatos et al. 1999 as rows of the table of presets.
//!
//! Index, log and checkpoints are the volume's, and so is memory; `seam.rs` is what the volume asks. `put.rs` places an
//! object, `locality.rs` lets those of a server wait for each other first; `evict.rs` makes room; `restore.rs` is the
//! opening; `audit.rs` goes through everything. `place.rs` writes to slots and reads around them, `files.rs` to files,
//! and `space/` is the table of what lies where, with what chooses a place.
//!
//! Invariants: one object is placed at a time; index, log and what leaves change in this order, under the key's lock,
//! so that a checkpoint that misses the one finds the other (`docs/FORMAT.md`, "In place").

mod audit;
mod commit;
mod evict;
mod files;
mod locality;
mod packet;
mod place;
mod put;
mod restore;
mod seam;
mod space;
mod waiting;

use std::sync::Arc;

use picaflor::layout::{LayoutKind, PlacesGround, PlacesOpener};

use self::{files::Tree, place::InPlace, space::Layout};

/// Slots of one length to a class; long objects alone, or in files beside the device.
pub(crate) const SLOTS: LayoutKind = LayoutKind::Places(PlacesOpener {
    open: |ground| Arc::new(InPlace::new(ground, Layout::Slots)),
    in_folder: false,
    long_files: true,
});
/// The same, all on the device.
pub(crate) const SLOTS_SCANNED: LayoutKind = on_device(|ground| Arc::new(InPlace::new(ground, Layout::Slots)));
/// Each object at the next free run behind the one before.
pub(crate) const NEXT_FIT: LayoutKind = on_device(|ground| Arc::new(InPlace::new(ground, Layout::NextFit)));
/// The same, written through a page-sized buffer.
pub(crate) const PACKETS: LayoutKind = on_device(|ground| Arc::new(InPlace::new(ground, Layout::Packets)));
/// A file for each object, all in one directory.
pub(crate) const FILES: LayoutKind = in_folder(|ground| Arc::new(InPlace::new(ground, Layout::Files(Tree::One))));
/// The same, in 16 of 256 directories, in turn.
pub(crate) const FILES_IN_TURN: LayoutKind =
    in_folder(|ground| Arc::new(InPlace::new(ground, Layout::Files(Tree::Rounds))));
/// The same, in the directory of its origin server.
pub(crate) const FILES_OF_SERVERS: LayoutKind =
    in_folder(|ground| Arc::new(InPlace::new(ground, Layout::Files(Tree::Servers))));

/// Makes places.
type Open = fn(PlacesGround) -> Arc<dyn picaflor::layout::Places>;

const fn on_device(open: Open) -> LayoutKind {
    LayoutKind::Places(PlacesOpener { open, in_folder: false, long_files: false })
}

const fn in_folder(open: Open) -> LayoutKind {
    LayoutKind::Places(PlacesOpener { open, in_folder: true, long_files: false })
}
