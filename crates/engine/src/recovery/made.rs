//! Files that an opening made, until it has succeeded.
//!
//! Invariants: a file that was there before is never touched; one that was not goes while its lock is held, so that who
//! waits for that lock never gets a file without a name.

use std::sync::Arc;

use picaflor_device::FileDevice;

/// Takes back on drop what was made, unless it is kept.
#[derive(Default)]
pub(crate) struct Made(Vec<Arc<FileDevice>>);

impl Made {
    pub(super) fn note(&mut self, device: &Arc<FileDevice>) {
        self.0.push(Arc::clone(device));
    }

    /// The opening succeeded.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        self.0.iter().for_each(|device| device.unmake());
    }
}
