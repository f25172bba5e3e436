//! Making things durable, and what may happen only then.
//!
//! A commit, step by step: wait until no write is under way, note the tail and what was freed up to here, and take what
//! waits to be written; write that in one batch; sync the device; put what was freed on the free lists; free what was
//! retired; write the home, if many changes are not in it. Waiting for the writes under way keeps the blocks before the
//! noted tail without a gap: a block behind one that is still being written must not be promised, for after
//! a crash it could not be found.

use picaflor_common::{Turn, panics};
use std::time::Instant;

use super::{BlockError, BlockResult, FreeLists, error::PLACE, home::HomeState, space::Space};
use crate::Error;

impl FreeLists {
    /// Makes everything durable that was done before the call: returns after a device sync that began after it. Threads
    /// that come together share one.
    ///
    /// # Errors
    /// [`BlockError::Stopped`] if this or an earlier sync failed: then nothing is known of what was done since the one
    /// before, and the allocator must be opened again.
    pub fn sync(&self) -> BlockResult<()> {
        match self.commits.wait(self.commits.next()).map_err(BlockError::Stopped)? {
            Turn::Durable => Ok(()),
            Turn::Lead(number) => {
                let began = Instant::now();
                let outcome = panics::for_others(
                    "commit",
                    || self.commit(),
                    |daemon, why| {
                        self.commits.fail(Error::Daemon { place: PLACE.to_owned(), daemon, why });
                    },
                );
                let shared = outcome.as_ref().map(|&()| ()).map_err(BlockError::shared);
                self.commits.complete(number, shared, began.elapsed());
                outcome.map_err(|error| BlockError::Stopped(error.shared()))
            }
        }
    }

    fn commit(&self) -> BlockResult<()> {
        let mut home = self.home.lock();
        let (turn, all) = self.alone()?;
        let (freed, held, retired, synced, writes) = {
            let mut space = self.space.lock();
            let freed: Vec<_> = space.pending.iter().map(|(&at, &freed)| (at, freed)).collect();
            let held: Vec<u64> = space.held.iter().copied().collect();
            let synced = (space.lists.tail, space.seq);
            (freed, held, std::mem::take(&mut space.retired), synced, self.queue.take(&turn))
        };
        drop(all);
        self.write_taken(writes)?;
        drop(turn);
        self.sync_device(&mut home)?;
        let due = {
            let mut space = self.space.lock();
            for (at, it) in freed {
                // Unless it became part of what was freed in front of it meanwhile.
                if space.pending.get(&at) == Some(&it) {
                    space.pending.remove(&at);
                    space.lists.insert(at, it.size, it.explicit, it.link);
                }
            }
            for at in held {
                space.held.remove(&at);
            }
            space.synced = synced;
            space.since_home >= self.options.checkpoint_every
        };
        for block in retired.values() {
            let _gate = self.gate.read();
            self.release(block, false)?;
        }
        if due { self.write_home(&mut home) } else { Ok(()) }
    }

    /// A sync; if it fails, nothing may be promised any more.
    pub(super) fn sync_device(&self, home: &mut HomeState) -> BlockResult<()> {
        self.writes.synced();
        let synced = self.device.sync().map_err(BlockError::io("syncing the device"));
        synced.inspect_err(|error| self.commits.fail(error.shared()))?;
        home.synced();
        Ok(())
    }

    /// Writes the home with the tail of the last sync.
    pub(super) fn write_home(&self, home: &mut HomeState) -> BlockResult<()> {
        self.write_home_of(home, &mut self.space.lock())
    }

    pub(super) fn write_home_of(&self, home: &mut HomeState, space: &mut Space) -> BlockResult<()> {
        home.home.tail = space.synced;
        home.home.durable = space.synced.1;
        home.home.heads.clone_from(&space.links.heads);
        space.since_home = 0;
        self.writes.home(self.shape.slot as usize);
        home.write(self.device.as_ref(), &self.shape).inspect_err(|error| self.commits.fail(error.shared()))
    }
}
