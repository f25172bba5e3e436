//! Daemons at the application's call (Shriver et al. 2001, §3.5): one step of one of them, beside those that the engine
//! runs by itself.

use crate::{Error, Refusal, Result, handle::Store, volume::Volume, write::staging::End};

/// What one of the daemons does in a step; see [`Store::run_daemon`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Daemon {
    /// Packs a cluster of objects that wait in memory, the next ones by
    /// [`Options::pack_order`](field@crate::Options::pack_order) (`pack_files_daemon`).
    Pack,
    /// The same from the other end of that order: by default what was asked for last, so that what is hot lies together
    /// (`pack_files_from_head_daemon`).
    PackFromHead,
    /// Lets objects and clusters leave memory, those that would leave first, until no more than so many bytes of them
    /// are left. What waits to be packed, the index and open buffers stay.
    FreeMemory(u64),
    /// Empties a cluster that is older than [`Options::cluster_age`](field@crate::Options::cluster_age) allows; else,
    /// where few clusters are clean, what the reclaimer would empty next.
    FreeDisk,
}

impl Store {
    /// Runs one step of a daemon on this thread, whatever [`Options::daemons`](field@crate::Options::daemons) says: an
    /// application that knows when it is idle has the work done then. Returns whether there was anything to do; so a
    /// loop of it ends. What is packed is written by the flusher, or by [`Store::step`] where the caller steps it.
    ///
    /// # Errors
    /// [`Error::Refused`] if the store is open for reading only, and the failure that stopped a volume.
    pub fn run_daemon(&self, daemon: Daemon) -> Result<bool> {
        if self.shared().options.read_only {
            return Err(Error::Refused(Refusal::ReadOnly));
        }
        let mut any = false;
        if let Daemon::FreeMemory(most) = daemon {
            let held = self.shared().memory.held();
            self.shared().release(self.shared().memory.shrink(most));
            return Ok(self.shared().memory.held() < held);
        }
        for volume in self.working() {
            any |= match daemon {
                Daemon::Pack => pack(volume, End::First)?,
                Daemon::PackFromHead => pack(volume, End::Last)?,
                Daemon::FreeMemory(_) => false,
                Daemon::FreeDisk => volume.room.reclaim_step()?,
            };
        }
        Ok(any)
    }
}

/// Returns whether anything waited, and a buffer was there for it.
fn pack(volume: &Volume, end: End) -> Result<bool> {
    let waits = volume.catalog.waiting().count() > 0;
    Ok(volume.packer.pack_cluster(end)?.is_ok() && waits)
}
