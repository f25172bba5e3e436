//! The verbs, one a file, for threads and tasks alike.

pub(crate) mod admission;
pub(crate) mod awaited;
pub(crate) mod batch;
pub(crate) mod check;
#[cfg(feature = "async-stream")]
pub(crate) mod chunk_stream;
pub(crate) mod chunks;
pub(crate) mod daemon;
pub(crate) mod delete;
pub(crate) mod fetch;
pub(crate) mod fetches;
pub(crate) mod get;
pub(crate) mod home;
pub(crate) mod insert;
pub(crate) mod list;
pub(crate) mod locate;
pub(crate) mod lookup;
pub(crate) mod map;
pub(crate) mod pass;
pub(crate) mod pin;
pub(crate) mod put;
pub(crate) mod stream;
pub(crate) mod walk;
