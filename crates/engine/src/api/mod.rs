//! What an application sees beside the store: options and presets, the objects that are returned.

pub(crate) mod inspect;
pub(crate) mod object;
pub(crate) mod options;
pub(crate) mod preset;
