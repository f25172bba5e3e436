//! When what left is free: after a commit that tells of it, or, where no log does, that removed it.

use std::io;

use picaflor::Result;

use super::{files::Files, place::InPlace, space::Freed};

impl InPlace {
    /// A commit where objects speak for themselves, in files or in slots: what was replaced is removed once its
    /// replacement is durable. A file system keeps the order of removals; what was removed first is not there where
    /// what was removed later is gone. In slots an older version was removed by an earlier commit.
    pub(super) fn commit_untold(&self) -> Result<()> {
        // Before what it covers is looked at: a delete that comes later waits for the next commit.
        self.log.take_untold();
        let ready = {
            // What is being removed unasked is removed by now, or is not begun.
            let _removing = self.all_files().map(Files::removing);
            self.extents.ready(|_| true)
        };
        let remove = |freed: &Freed| match self.all_files() {
            Some(files) => files.remove(freed.slot),
            None => self.wipe(freed.slot),
        };
        let removed = self.sync().and_then(|()| {
            ready.iter().try_for_each(remove)?;
            if ready.is_empty() { Ok(()) } else { self.sync() }
        });
        removed.map_err(|error| self.medium.io("making puts durable", error))?;
        self.settle(ready);
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        match self.all_files() {
            Some(files) => {
                self.medium.count_sync();
                files.sync()
            }
            None => self.medium.sync(),
        }
    }

    /// Where no durability is asked for, a file goes at once, as the paper's programs have it.
    pub(super) fn remove_if_careless(&self) {
        let Some(files) = self.all_files().filter(|_| self.env.is_careless()) else { return };
        let removed = {
            let _removing = files.removing();
            let ready = self.extents.ready(|_| true);
            ready.iter().try_for_each(|freed| files.remove(freed.slot)).map(|()| self.settle(ready))
        };
        removed.unwrap_or_else(|error| drop(self.log.fail("removing a file", error)));
    }

    /// Makes long objects' files durable: of those whose records a commit has taken, before it is complete.
    pub(super) fn sync_long_files(&self) -> Result<()> {
        let Some(files) = self.long_files() else { return Ok(()) };
        let synced = files.sync_written().map_err(|error| self.medium.io("making files durable", error))?;
        if synced {
            self.medium.count_sync();
        }
        Ok(())
    }

    /// What may be free after the commit that is about to begin: all whose end is told by now.
    pub(super) fn ready(&self) -> Vec<Freed> {
        self.extents.ready(|hash| self.env.try_lock_key(hash).is_some())
    }

    /// The commit is complete: these are free, and long objects' files are removed before others get their numbers.
    pub(super) fn settle(&self, ready: Vec<Freed>) {
        if let Some(files) = self.long_files() {
            let mut long = ready.iter().filter(|freed| self.file_of(freed.slot).is_some());
            let removed = long.try_for_each(|freed| files.remove(freed.slot));
            removed.unwrap_or_else(|error| drop(self.log.fail("removing a file", error)));
        }
        self.extents.settle(ready);
        self.account();
    }
}
