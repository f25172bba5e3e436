//! How often each cluster was granted, or each place of an object given, where objects have places of their own.
//!
//! Invariant: what is read of a place is what an entry of the index leads to, if the place was not given anew from
//! before the entry was seen until behind the read. The entry alone does not say so: by then it may be of the next
//! version of its key, which came to lie there.

use std::sync::atomic::{AtomicU32, Ordering::SeqCst};

/// Numbers that places of objects, which are many, share.
const SHARED: u32 = 4096;

pub(crate) struct Grants(Box<[AtomicU32]>);

impl Grants {
    /// Memory that each number takes.
    pub(super) const BYTES: u64 = size_of::<AtomicU32>() as u64;
    /// Memory of those that places share.
    pub(super) const SHARED_BYTES: u64 = SHARED as u64 * Self::BYTES;

    /// Of clusters, of which each has its own.
    pub(super) fn new(clusters: u32) -> Self {
        Self((0..clusters).map(|_| AtomicU32::new(0)).collect())
    }

    /// Of places.
    pub(super) fn of_places() -> Self {
        Self::new(SHARED)
    }

    fn of(&self, place: u32) -> &AtomicU32 {
        &self.0[place as usize % self.0.len()]
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
