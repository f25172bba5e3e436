//! Objects that wait to be put into a cluster, where a preset packs them; elsewhere there are none.

use super::Catalog;
use crate::{
    index::{IndexEntry, Location},
    write::staging::{StagedObject, Staging},
};

pub(crate) struct Waiting<'a>(&'a Catalog);

impl Catalog {
    /// What waits to be put into a cluster.
    pub(crate) fn waiting(&self) -> Waiting<'_> {
        Waiting(self)
    }
}

impl Waiting<'_> {
    /// Whether an entry is of an object that waits, and that the next commit has to make durable.
    pub(crate) fn is_promised(&self, entry: IndexEntry) -> bool {
        let Location::Buffered { slot, .. } = entry.location() else { return false };
        self.0.buffers.staging().and_then(|staging| staging.get(slot)).is_some_and(|staged| staged.promised)
    }

    /// The next commit makes all durable that wait.
    pub(crate) fn promise_all(&self) {
        if let Some(staging) = self.0.buffers.staging() {
            staging.promise(|_| true);
        }
    }

    /// The next commit makes those durable that took the place of another. A checkpoint that was taken meanwhile knows
    /// neither, and its log may tell of a version that is older than both (`docs/FORMAT.md`, "Packing").
    pub(crate) fn promise_replacing(&self) {
        if let Some(staging) = self.0.buffers.staging() {
            staging.promise(|staged| staged.replaces);
        }
    }

    pub(crate) fn count(&self) -> u64 {
        self.0.buffers.staging().map_or(0, Staging::count)
    }

    /// Memory that it takes.
    pub(crate) fn bytes(&self) -> u64 {
        self.0.buffers.staging().map_or(0, Staging::bytes)
    }

    /// What waits, for a listing of all.
    pub(crate) fn all(&self) -> Vec<StagedObject> {
        self.0.buffers.staging().map(|staging| staging.next(usize::MAX, false)).unwrap_or_default()
    }

    pub(crate) fn get(&self, hash: u64) -> Option<StagedObject> {
        let staging = self.0.buffers.staging()?;
        self.0.index.candidates(hash).into_iter().find_map(|entry| match entry.location() {
            Location::Buffered { slot, .. } => staging.get(slot).filter(|staged| staged.frame.hash == hash),
            Location::OnDisk { .. } => None,
        })
    }

    /// `b` is wanted beside `a`. As long as it waits, it is of the set of `a`.
    pub(crate) fn hint(&self, a: u64, b: u64) {
        self.0.placer.hint(a, b);
        if let (Some(staging), Some(staged)) = (self.0.buffers.staging(), self.get(b)) {
            staging.follow(staged.slot, a);
        }
    }
}
