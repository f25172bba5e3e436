//! From the index to bytes: what is read for one object, which callers share a read, what lies in a cluster.

pub(crate) mod batch;
pub(crate) mod cluster_reader;
mod lent;
pub(crate) mod parts;
pub(crate) mod readahead;
pub(crate) mod reading;
pub(crate) mod tables;
pub(crate) mod together;
pub(crate) mod verify;
pub(crate) mod window;
