//! Layouts that place objects one by one: slots, next fit, a page that is filled, a file for each.

pub(crate) mod evict;
pub(crate) mod files;
pub(crate) mod locality;
pub(crate) mod packet;
pub(crate) mod place;
pub(crate) mod placing;
