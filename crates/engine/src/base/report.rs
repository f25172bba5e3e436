//! What an audit found. How it is found is in `ops/check.rs`.

use crate::Error;

/// What an audit found.
#[derive(Debug, Clone, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CheckReport {
    /// Entries of the index.
    pub entries: u64,
    /// Entries whose frames verify.
    pub intact: u64,
    /// Bytes of those frames.
    pub intact_bytes: u64,
    /// Entries whose frames fail their checksum, with the key where it can still be read.
    pub damaged: Vec<String>,
    /// What the device refused to read, and where: it may be whole, and is in no other count of what is wrong.
    pub refused: Vec<String>,
    /// Entries that lead to no frame of any sealed cluster.
    pub lost: u64,
    /// Entries that lead to nothing because a crash left them, or because damage took what they led to: nothing on the
    /// device tells which. Of tables, as long as what the last crash left there is not mended, and there the version
    /// before may count; of rows in place, where not even a header is left and no object asks for it as a piece of its
    /// own; of a cluster that a cache may have begun to write again before the crash.
    pub unsettled: u64,
    /// Entries that lead to no frame either, but to a place that was written again before a crash: what they led to had
    /// left, and they leave too.
    pub outdated: u64,
    /// Chunks of large objects that are gone.
    pub orphans: u64,
    /// Clusters that hold live objects, and neither a table nor all of these.
    pub unreadable_clusters: Vec<u32>,
    /// Clusters without a table of which every live object is intact all the same.
    pub bare_clusters: Vec<u32>,
    /// Clusters looked at.
    pub clusters: u64,
}

impl CheckReport {
    /// Notes what is wrong with one entry.
    #[doc(hidden)]
    pub fn note(&mut self, why: &Error) {
        match why {
            Error::Io { .. } => self.refused.push(why.to_string()),
            why => self.damaged.push(why.to_string()),
        }
    }
}
