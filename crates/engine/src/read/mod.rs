//! From the index to bytes: what is read for one object, which callers share a read, what lies in a cluster.

pub(crate) mod adopt;
pub(crate) mod batch;
pub(crate) mod reading;
pub(crate) mod rows;
