//! The end of a device is given back: what lies in its last clusters moves to the others, or leaves as it would for
//! want of room, until a store with fewer clusters can be opened there.
//!
//! Steps, until all of those clusters have retired: free ones retire → one is emptied as any victim is; where room for
//! what stays of it is short, others are emptied by the rule of eviction → a commit frees them → a checkpoint makes
//! victims of young ones, and leaves those of earlier checkpoints. At the end as many checkpoints as there may be, so
//! that none that an opening could use leads there. Then the superblock may say how many bytes there are.
//!
//! Invariant: a crash at any time leaves a store that is as large as it was.

use std::ops::Range;

use crate::{
    Error, Mode, Result,
    background::{ahead::Ahead, full_store::CHECKPOINTS, reclaim::Reclaimed, room::Room},
    space::Victim,
};

/// Of the bytes that are left so many percent may be live in a store.
const FULL: u64 = 90;

/// So many clusters are emptied before the next ones: each look goes over no more.
const WINDOW: u32 = 1024;

impl Room {
    /// Empties the clusters from `first` on. Nothing is put meanwhile by others.
    ///
    /// # Errors
    /// [`Error::Option`] for `capacity` if a store has more than fits in the clusters before, and what moved lies
    /// where it is; those of the device.
    pub(crate) fn give_back(&self, first: u32) -> Result<()> {
        let space = &self.parts.space;
        let kept = || self.reclaimer.appender.kept_from_puts();
        let fits = u64::from(first.saturating_sub(kept())) * space.live.room / 100 * FULL;
        if self.parts.shared.options.mode == Mode::Store && space.fill().live > fits {
            return Err(self.holds_more(fits));
        }
        let given: u64 = (first..space.count()).map(|id| space.live.bytes(id)).sum();
        self.parts.shared.budget.allow(given);
        while space.end().retire(first..space.count(), kept()) > 0 {
            for window in (first..space.count()).step_by(WINDOW as usize) {
                self.empty_all(window..space.count().min(window + WINDOW), fits)?;
            }
        }
        (0..CHECKPOINTS / 2).try_for_each(|_| self.checkpoint_now())
    }

    fn empty_all(&self, these: Range<u32>, fits: u64) -> Result<()> {
        let space = &self.parts.space;
        let kept = || self.reclaimer.appender.kept_from_puts();
        let mut idle = 0;
        while space.end().retire(these.clone(), kept()) > 0 {
            let is_short = space.available() <= kept();
            let is_emptied = || self.empty_one(Victim::Within(these.start, these.end));
            if is_short && space.leaving() == 0 && self.make_space()? || !is_short && is_emptied()? {
                idle = 0;
            } else if space.leaving() > 0 {
                self.commit_now()?;
            } else if idle < 2 * CHECKPOINTS {
                idle += 1;
                self.leave_buffers()?;
                self.checkpoint_now()?;
            } else {
                return Err(self.holds_more(fits));
            }
        }
        Ok(())
    }

    fn empty_one(&self, which: Victim) -> Result<bool> {
        let _turn = self.reclaimer.state.turn.lock();
        self.parts.frames.drop_released();
        let emptied = self.reclaimer.reclaim_this(which, &mut Ahead::default())?;
        Ok(emptied == Reclaimed::One)
    }

    /// What moved is sealed and written, and no cluster is in memory.
    fn leave_buffers(&self) -> Result<()> {
        self.reclaimer.appender.seal_all()?;
        self.commit_now()?;
        self.parts.residents.retire_all();
        Ok(())
    }

    fn holds_more(&self, fits: u64) -> Error {
        let (place, live) = (&self.parts.medium.place, self.parts.space.fill().live);
        let why = format!(
            "{place} holds {live} bytes of objects, and in what is given {fits} would fit: delete some, or give more"
        );
        Error::Option { name: "capacity", why }
    }
}
