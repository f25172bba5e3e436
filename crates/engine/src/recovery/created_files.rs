//! Files and folders that an opening made, until it has succeeded.
//!
//! Invariants: what was there before is never touched; what was not goes while its lock is held, so that an opening
//! that waits for that lock never gets a file without a name.

use std::sync::Arc;

use picaflor_device::{FileDevice, RealFolder};

use super::folder::EMPTY;

/// Takes back on drop what was made, unless it is kept.
#[derive(Default)]
pub(crate) struct CreatedFiles(Vec<Place>);

enum Place {
    File(Arc<FileDevice>),
    Folder(Arc<RealFolder>),
}

impl CreatedFiles {
    pub(super) fn file(&mut self, device: &Arc<FileDevice>) {
        self.0.push(Place::File(Arc::clone(device)));
    }

    pub(super) fn folder(&mut self, folder: &Arc<RealFolder>) {
        self.0.push(Place::Folder(Arc::clone(folder)));
    }

    /// The opening succeeded.
    pub(crate) fn keep(mut self) {
        self.0.clear();
    }
}

impl Drop for CreatedFiles {
    fn drop(&mut self) {
        for place in &self.0 {
            match place {
                Place::File(device) => device.unmake(),
                Place::Folder(folder) => folder.unmake(&EMPTY),
            }
        }
    }
}
