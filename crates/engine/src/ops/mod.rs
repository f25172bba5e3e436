//! The verbs, one a file, for threads and tasks alike.

pub(crate) mod check;
pub(crate) mod chunks;
pub(crate) mod delete;
pub(crate) mod fetch;
pub(crate) mod framing;
pub(crate) mod get;
pub(crate) mod hands;
pub(crate) mod home;
pub(crate) mod keys;
pub(crate) mod many;
pub(crate) mod put;
pub(crate) mod stream;
