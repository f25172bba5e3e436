//! How often each cluster was granted, or each place of an object given, where objects have places of their own.
//!
//! Invariant: what is read of a place is what an entry of the index leads to, if the place was not given anew from
//! before the entry was seen until behind the read. The entry alone does not say so: by then it may be of the next
//! version of its key, which came to lie there.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

use crate::base::column::Column;

/// Numbers that places of objects, which are many, share.
const SHARED: u32 = 4096;

pub(crate) struct Grants(Column<AtomicU32>);

impl Grants {
    /// Memory that each number takes.
    pub(super) const BYTES: u64 = size_of::<AtomicU32>() as u64;
    /// Memory of those that places share.
    pub(super) const SHARED_BYTES: u64 = SHARED as u64 * Self::BYTES;

    /// Of clusters, of which each has its own.
    pub(super) fn new(clusters: u32) -> Self {
        Self(Column::new(clusters, AtomicU32::default))
    }

    /// Of places.
    pub(super) fn of_places() -> Self {
        Self::new(SHARED)
    }

    fn of(&self, place: u32) -> &AtomicU32 {
        self.0.get(place).unwrap_or_else(|| &self.0[place % SHARED])
    }

    /// So many more clusters, none of which was granted.
    pub(super) fn lengthen(&self, by: u32) {
        self.0.lengthen(by, AtomicU32::default);
    }

    /// It is given, to what no entry leads to yet.
    pub(crate) fn note(&self, place: u32) {
        self.of(place).fetch_add(1, SeqCst);
    }

    /// The number of the last time.
    pub(crate) fn last(&self, place: u32) -> u32 {
        self.of(place).load(SeqCst)
    }
}
