//! Writing what waits in the queue, one batch at a time.

use bytes::Bytes;
use parking_lot::{MutexGuard, RwLockWriteGuard};

use super::{BlockError, BlockResult, FreeLists, queue::joined};

impl FreeLists {
    /// Writes what waits, if that is much.
    pub(super) fn relieve(&self) -> BlockResult<()> {
        if !self.queue.is_long() {
            return Ok(());
        }
        let turn = self.queue.turn();
        self.alive()?;
        let writes = self.queue.take(&turn);
        self.write_taken(writes)
    }

    /// The right to write a batch, with every writer of blocks kept out. Refused if a write failed while this
    /// waited: what vouched for what comes after it would vouch for it too.
    pub(super) fn alone(&self) -> BlockResult<(MutexGuard<'_, ()>, RwLockWriteGuard<'_, ()>)> {
        let turn = self.queue.turn();
        let all = self.gate.write();
        self.alive()?;
        Ok((turn, all))
    }

    /// Keeps every writer of blocks out, with nothing waiting that they wrote.
    pub(super) fn quiet(&self) -> BlockResult<RwLockWriteGuard<'_, ()>> {
        let (turn, all) = self.alone()?;
        let writes = self.queue.take(&turn);
        self.write_taken(writes)?;
        Ok(all)
    }

    /// Writes a batch; the caller has the turn. If that fails, nothing may be promised any more: what was granted
    /// behind a block that is not there could not be found.
    pub(super) fn write_taken(&self, writes: Vec<(u64, Bytes)>) -> BlockResult<()> {
        let writes = joined(writes);
        if !writes.is_empty() {
            writes.iter().for_each(|(_, bytes)| self.writes.count(bytes.len()));
            let written = picaflor_device::write_all(self.device.as_ref(), writes);
            let written = written.map_err(BlockError::io("writing a batch"));
            written.inspect_err(|error| self.commits.fail(error.shared()))?;
            self.queue.landed();
        }
        Ok(())
    }
}
