//! What was run.

use crate::age::Aged;

/// The same files, not forced before they are whole.
pub(super) const WHOLE: &str = "files-1M-once";
/// Files on a volume that was fragmented before.
pub(super) const FRAGMENTED: &str = "files-10M-fragmented";
/// The engine of this repository.
pub(super) const OURS: &str = "ours-1M";

/// What was run; nothing of what could not be.
#[derive(Default)]
pub(super) struct Runs(pub(super) Vec<(&'static str, Aged)>);

impl Runs {
    pub(super) fn of(&self, name: &str) -> Option<&Aged> {
        self.0.iter().find(|run| run.0 == name).map(|run| &run.1)
    }

    /// Fragments an object at each look.
    pub(super) fn fragments(&self, name: &str) -> Option<Vec<f64>> {
        let aged = self.of(name).filter(|aged| aged.ended.is_none())?;
        aged.samples.iter().map(|sample| sample.fragments.as_ref().map(|parts| parts.mean)).collect()
    }

    /// The same at the end.
    pub(super) fn last(&self, name: &str) -> Option<f64> {
        self.fragments(name)?.last().copied()
    }

    /// MB/s of reads from the paper's disk at each look.
    pub(super) fn rates(&self, name: &str) -> Option<Vec<f64>> {
        let aged = self.of(name).filter(|aged| aged.ended.is_none())?;
        aged.samples.iter().map(|sample| sample.disks.first()?.1).collect()
    }
}
