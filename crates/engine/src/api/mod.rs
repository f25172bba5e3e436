//! What an application sees beside the store: the objects that are returned, and what is at a place.

pub(crate) mod chunks;
pub(crate) mod inspect;
pub(crate) mod object;
