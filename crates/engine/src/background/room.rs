//! Room for what is put and for what is told: clusters are emptied, or objects leave their places, and checkpoints free
//! pages of the journal. Emptying and checkpoints need each other, and meet here: neither calls the other.
//!
//! Lock order: the reclaimer's turn → the checkpointer's state → the writer's turn. A checkpoint for which clusters are
//! to be emptied only tries the turn: its holder may be waiting for that checkpoint.

use std::{
    future::poll_fn,
    sync::{Arc, atomic::Ordering::Relaxed},
    task::Poll,
};

use crate::{
    Daemons, Error, Mode, Result,
    background::ahead::Ahead,
    background::reclaim::{Reclaimed, Reclaimer},
    base::blocked::Blocked,
    base::places::RoomEnv,
    base::policy::Eviction,
    log::checkpoint::Checkpointer,
    read::parts::Parts,
    space::Victim,
    write::flush::Committer,
    write::staging::End,
};

pub(crate) struct Room {
    pub(super) parts: Parts,
    pub(crate) committer: Arc<Committer>,
    pub(crate) checkpointer: Arc<Checkpointer>,
    pub(crate) reclaimer: Reclaimer,
}

impl Room {
    pub(crate) fn new(parts: &Parts, reclaimer: Reclaimer) -> Self {
        let checkpointer = Arc::clone(&reclaimer.checkpointer);
        let committer = Arc::clone(&checkpointer.committer);
        Self { parts: parts.clone(), committer, checkpointer, reclaimer }
    }

    /// One step of the reclaimer: empties a cluster if clean space runs low. Returns whether it did
    /// anything. A store compacts only when a put finds no room.
    pub(crate) fn reclaim_step(&self) -> Result<bool> {
        if let Some(places) = &self.parts.catalog.places {
            return places.step(&self.parts, self);
        }
        let shared = &self.parts.shared;
        let index_high = shared.index_is_above(7) && self.parts.catalog.is_loaded();
        let (clean, leaving, target) =
            (self.parts.space.available(), self.parts.space.leaving(), self.reclaimer.clean_target());
        if shared.options.mode == Mode::Store {
            let ahead = self.parts.shared.eviction() == Eviction::NeverAhead && clean < target;
            return if ahead { self.compact_ahead() } else { Ok(false) };
        }
        if self.empty_aged()? {
            return Ok(true);
        }
        let half = self.reclaimer.clean_ahead() / 2;
        // Puts that wait get half of it at once: with less they are held up more often, with more for longer.
        let is_starved = clean <= self.reclaimer.appender.kept_from_puts() && leaving >= half.max(1);
        if clean + leaving >= target && !index_high || is_starved {
            // One commit frees several clusters, so it waits for them, or for one that is made anyway.
            let due = leaving > 0 && clean < target - half;
            if due {
                self.commit_now()?;
            }
            return Ok(due);
        }
        let emptied = {
            let _turn = self.reclaimer.state.turn.lock();
            self.reclaimer.reclaim_some(target.saturating_sub(clean + leaving))?
        };
        if emptied { Ok(true) } else { self.make_space() }
    }

    /// Empties a cluster that is too old, if there is one.
    pub(crate) fn empty_aged(&self) -> Result<bool> {
        let Some(most) = self.parts.shared.options.cluster_age.limit() else { return Ok(false) };
        let now = self.parts.shared.second();
        let Some(first) = now.checked_sub(most).filter(|_| self.reclaimer.state.looked.load(Relaxed) != now) else {
            return Ok(false);
        };
        let Some(_turn) = self.reclaimer.state.turn.try_lock() else { return Ok(false) };
        let emptied = self.reclaimer.reclaim_this(Victim::Aged(first), &mut Ahead::default())? == Reclaimed::One;
        if !emptied {
            self.reclaimer.state.looked.store(now, Relaxed);
        }
        Ok(emptied)
    }

    /// Compacts a cluster that is half empty, if there is one, and commits for it. A put that waits for room does more.
    pub(crate) fn compact_ahead(&self) -> Result<bool> {
        let Some(_turn) = self.reclaimer.state.turn.try_lock() else { return Ok(false) };
        match self.reclaimer.reclaim_this(Victim::HalfEmpty, &mut Ahead::default()) {
            Ok(Reclaimed::One) => Ok(true),
            // What is to stay finds no room: puts will say so.
            Ok(Reclaimed::Nothing) | Err(Error::Full { .. }) => {
                let due = self.parts.space.leaving() > 0;
                if due {
                    self.commit_now()?;
                }
                Ok(due)
            }
            Err(error) => Err(error),
        }
    }

    /// Makes a cluster free, by whatever it takes. False if nothing would.
    pub(crate) fn make_space(&self) -> Result<bool> {
        if self.parts.catalog.places.is_none() && self.parts.shared.eviction().keeps_all() {
            return self.reclaimer.make_space_in_store();
        }
        let _turn = self.reclaimer.state.turn.lock();
        self.parts.frames.drop_released();
        if let Some(places) = &self.parts.catalog.places {
            return places.make_room(&self.parts, self);
        }
        let before = self.parts.space.available();
        // A few checkpoints make young clusters old enough to be victims: one that seals slow buffers, and two
        // until no recovery reads what the journal told of them.
        for _ in 0..5 {
            if self.reclaimer.reclaim_one()? == Reclaimed::One {
                if self.parts.space.leaving() > 0 && self.parts.space.available() <= before {
                    self.commit_now()?;
                }
                return Ok(true);
            }
            if self.parts.space.leaving() > 0 {
                self.commit_now()?;
                if self.parts.space.available() > before {
                    return Ok(true);
                }
            }
            self.parts.residents.retire_a_resident();
            self.checkpoint_now()?;
        }
        Ok(self.parts.space.available() > before)
    }

    /// The next commit makes all durable that waits. Room for it is made first: a commit makes none, and what finds
    /// none there leaves.
    pub(crate) fn promise_waiting(&self) -> Result<()> {
        let waiting = self.parts.catalog.waiting();
        // A cluster is half full at the least. What comes meanwhile has a promise of its own.
        let clusters = 2 * waiting.bytes() / self.parts.medium.cluster_len() as u64 + 2;
        for _ in 0..4 * clusters {
            if waiting.count() == 0 {
                break;
            }
            if let Err(blocked) = self.committer.packer.pack_cluster(End::First)?
                && !self.unblock(blocked)?
            {
                break;
            }
        }
        waiting.promise_all();
        Ok(())
    }

    /// Does on this thread what something blocked needs. False if there is nothing that would help.
    pub(crate) fn unblock(&self, blocked: Blocked) -> Result<bool> {
        match blocked {
            Blocked::Moved | Blocked::Staging => Ok(true),
            Blocked::Buffers => {
                self.committer.write_queued(true);
                Ok(true)
            }
            Blocked::Space => self.make_space(),
        }
    }

    /// Sees to it that a checkpoint finds clusters. A crash brings back what was evicted, or deleted and not durably
    /// so, and takes clusters that were clean, the reserve included. Called without the checkpointer's lock; where room
    /// is being made already, that is left to go on. Where nothing can be emptied, for recovery would scan it, the
    /// checkpoint before the current one is given up.
    pub(crate) fn make_room_for_checkpoint(&self) -> Result<()> {
        let is_enough = || !self.checkpointer.lacks_room();
        if !is_enough()
            && let Some(_turn) = self.reclaimer.state.turn.try_lock()
        {
            match self.reclaimer.empty_until(is_enough) {
                // What is to stay of the emptiest finds no room either.
                Ok(()) | Err(Error::Full { .. }) => {}
                Err(error) => return Err(error),
            }
        }
        self.checkpointer.give_up_for_room()
    }

    /// Whether the index, or what checkpoints of the table need, has come near to what it may take.
    pub(crate) fn is_crowded(&self, eighths: u64) -> bool {
        let index = self.parts.shared.index_is_above(eighths) && self.parts.catalog.is_loaded();
        index || self.checkpoints_are_above(eighths)
    }

    /// Whether images of the table have this part of the bytes, or more, of which three checkpoints take all clusters
    /// kept for them. Where objects lie in clusters, whether the directory of one, two thirds of it for the parts,
    /// would not fit in its own.
    pub(crate) fn checkpoints_are_above(&self, eighths: u64) -> bool {
        let residents = &self.parts.residents;
        match self.parts.catalog.places {
            // By bytes: where clusters are few, the step from one number of them to the next is all there is.
            Some(_) => 3 * residents.clusters_of(residents.checkpoint_bytes() * 8 / eighths) > self.parts.space.count(),
            None => {
                let room = self.parts.medium.cluster_len() as u64;
                // Far from it there is no need to count.
                self.parts.shared.index_bytes.load(Relaxed) > room * room / 32
                    && u64::from(residents.checkpoint_clusters()) * 12 * 3 / 2 * 8 > room * eighths
            }
        }
    }

    /// One slice of the checkpointer's work. Returns whether it did anything.
    ///
    /// # Errors
    /// As [`Checkpointer::step`].
    pub(crate) fn checkpoint_step(&self) -> Result<bool> {
        if !self.parts.shared.has_checkpoints() {
            return Ok(false);
        }
        if self.checkpointer.is_due() {
            self.make_room_for_checkpoint()?;
        }
        Ok(self.checkpointer.step()? | self.checkpointer.hot_step()?)
    }

    /// A checkpoint from beginning to end, or the rest of the one that is running.
    ///
    /// # Errors
    /// As [`Checkpointer::step`].
    pub(crate) fn checkpoint_now(&self) -> Result<()> {
        if !self.parts.shared.has_checkpoints() {
            return Ok(());
        }
        self.make_room_for_checkpoint()?;
        self.checkpointer.run()
    }

    /// As [`Committer::wait_commit`], after making sure that the journal has room.
    pub(crate) fn wait_commit_in_time(&self, number: u64) -> Result<()> {
        self.checkpointer.relieve_journal(|| self.checkpoint_now())?;
        self.committer.wait_commit(number)
    }

    /// Makes everything durable that was done before this call.
    pub(crate) fn commit_now(&self) -> Result<()> {
        self.wait_commit_in_time(self.parts.log.commits.next())
    }

    /// As [`Room::wait_commit_in_time`] for tasks: the flusher does it. Without one, this thread does.
    pub(crate) async fn commit_async(self: Arc<Self>, number: u64) -> Result<()> {
        if self.parts.shared.options.daemons == Daemons::Manual {
            return self.wait_commit_in_time(number);
        }
        let mut counted = false;
        poll_fn(|context| match self.parts.log.commits.poll(number, &mut counted, context.waker()) {
            Some(result) => Poll::Ready(result),
            None => {
                // Each time anew: a commit that began just before this put clears the deadline.
                self.parts.log.queue.due(0);
                Poll::Pending
            }
        })
        .await
    }

    pub(crate) fn commit_if_due(&self) -> Result<bool> {
        let due = self.parts.log.queue.deadline() <= self.parts.shared.clock.now_nanos();
        if due {
            self.commit_now()?;
        }
        Ok(due)
    }
}

impl RoomEnv for Room {
    fn is_crowded(&self) -> bool {
        self.is_crowded(7)
    }

    fn commit_now(&self) -> Result<()> {
        self.commit_now()
    }
}
