//! A clean stop: the next opening need not look.
//!
//! Steps: what a crash left in doubt is decided → everything is committed and written → each table notes how far it
//! got, and the roots that the stop was clean.

use std::sync::atomic::Ordering::Acquire;

use super::{failure::failed, inner::HashTables, roots::Roots};
use crate::{Error, Result};

impl HashTables {
    /// Commits, notes how far each table got, and closes the allocator: the next opening need not look. Calls that come
    /// later fail with [`Error::Closed`]. A place that is dropped without this opens as after a crash. Where a crash
    /// left something that [`HashTables::mend`] did not come to, every index page is read, so that what is shown now
    /// is what is shown later.
    ///
    /// # Errors
    /// [`Error::Io`] if the device failed.
    pub fn close(&self) -> Result<()> {
        self.decide()?;
        self.commit()?;
        let inner = &self.inner;
        let mut gate = inner.gate.write();
        let Some(lists) = gate.take() else { return Err(Error::Closed) };
        inner.write_all(&lists)?;
        lists.sync().map_err(failed("sync"))?;
        inner.release(&lists, u64::MAX)?;
        let list = {
            let tables = inner.tables.lock();
            for index in tables.open.values().chain([&tables.list]) {
                index.note(&lists, index.pages.load(Acquire), &inner.commits)?;
            }
            tables.list.word()
        };
        let seed = inner.hasher.seed();
        let doubt = inner.doubt.load(Acquire);
        let roots = Roots { list, epoch: inner.epoch, clean: true, doubt, seed };
        lists.sync().map_err(failed("sync"))?;
        lists.set_roots(roots.words()).map_err(failed("note the closing"))?;
        lists.close().map_err(failed("close the block allocator"))
    }
}
