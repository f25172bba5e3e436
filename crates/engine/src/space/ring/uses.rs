//! When each cluster was used last, and since when its age counts; nothing of that where no preset asks for it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use crate::base::column::Column;

#[derive(Default)]
pub(crate) struct Uses {
    /// When each was used last, in numbers of the memory tier.
    last: Column<AtomicU64>,
    /// The second from which each one's age counts.
    since: Column<AtomicU32>,
    /// The cluster that the device was asked for last, to read or to write.
    accessed: AtomicU32,
}

impl Uses {
    /// Memory that noting the use of a cluster takes, and that noting its age takes.
    pub(super) const BYTES_PER_CLUSTER: u64 = size_of::<AtomicU64>() as u64;
    pub(super) const BYTES_PER_AGE: u64 = size_of::<AtomicU32>() as u64;

    /// Of so many clusters, of which the uses are noted.
    pub(super) fn noting(count: u32) -> Self {
        Self { last: Column::new(count, AtomicU64::default), ..Self::default() }
    }

    /// Notes ages too: those of what is there count from this second.
    pub(super) fn age_from(&mut self, count: u32, second: u32) {
        self.since = Column::new(count, || AtomicU32::new(second));
    }

    /// So many more clusters, of which nothing was used.
    pub(super) fn lengthen(&self, by: u32) {
        self.last.lengthen(by, AtomicU64::default);
        self.since.lengthen(by, || AtomicU32::new(u32::MAX));
    }

    /// A cluster leaves memory, in which it was used last at this number.
    pub(crate) fn note(&self, id: u32, number: u64) {
        if let Some(last) = self.last.get(id) {
            last.fetch_max(number, Relaxed);
        }
    }

    /// From this second the age of a cluster counts.
    pub(crate) fn note_second(&self, id: u32, second: u32) {
        if let Some(since) = self.since.get(id) {
            since.store(second, Relaxed);
        }
    }

    /// This cluster is about to be read or written.
    pub(crate) fn note_access(&self, id: u32) {
        self.accessed.store(id, Relaxed);
    }

    pub(super) fn last(&self, id: u32) -> u64 {
        self.last.get(id).map_or(0, |last| last.load(Relaxed))
    }

    pub(super) fn since(&self, id: u32) -> u32 {
        self.since.get(id).map_or(u32::MAX, |since| since.load(Relaxed))
    }

    pub(super) fn accessed(&self) -> u32 {
        self.accessed.load(Relaxed)
    }
}
