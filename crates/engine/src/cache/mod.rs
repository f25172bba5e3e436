//! What is in memory: buffers of clusters, the memory tier, handles' leases.

pub(crate) mod buffers;
pub(crate) mod catalog;
pub(crate) mod cluster_contents;
pub(crate) mod large;
pub(crate) mod leases;
pub(crate) mod memory;
pub(crate) mod pages;
pub(crate) mod residents;
