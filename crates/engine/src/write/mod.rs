//! From an object to the device: placement, objects that wait to be packed, open buffers, flush.

pub(crate) mod append;
pub(crate) mod compact;
pub(crate) mod flush;
pub(crate) mod full;
pub(crate) mod packing;
pub(crate) mod pieces;
pub(crate) mod placement;
pub(crate) mod staging;
