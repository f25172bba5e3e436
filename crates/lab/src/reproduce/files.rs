//! Files created and deleted, as HBENCH-OS `latfs` does (Markatos et al., §3.3, Figure 3).

use crate::Result;

/// Milliseconds, by size of the file.
#[derive(Debug, Clone, Default)]
pub(super) struct Files {
    /// Bytes, milliseconds to create, milliseconds to delete.
    measured: Vec<(u64, f64, f64)>,
}

impl Files {
    pub(super) fn measure() -> Result<Self> {
        Ok(Self::default())
    }

    pub(super) fn create(&self, bytes: u64) -> Option<f64> {
        self.measured.iter().find(|one| one.0 == bytes).map(|one| one.1)
    }

    pub(super) fn delete(&self, bytes: u64) -> Option<f64> {
        self.measured.iter().find(|one| one.0 == bytes).map(|one| one.2)
    }
}
