//! Making room in a store, which loses nothing: clusters are emptied by half, so what moves is cut and packed tightly
//! where that gains room.
//!
//! Invariant: as many moves as a full store is worth are made before it says that it is full.

use std::sync::atomic::Ordering::Relaxed;

use crate::{Result, background::reclaim::Reclaimer, space::Fill};

/// Part by which objects become less before a store that packed tightly below that stops it: more than what is known
/// of the length of objects that were not weighed.
const LOOSER: u64 = 4;
/// Checkpoints that are taken, at most, to make room once: one that seals slow buffers, two until no recovery reads
/// what the journal told of young clusters, and as many again where puts went on meanwhile.
pub(super) const CHECKPOINTS: u32 = 6;
/// Clusters that are made free at once, at most, and their part of the device, at most: one put waits for them, but
/// their victims are read side by side.
const AT_ONCE: u32 = 4;
const SHARE: u32 = 512;
/// Clusters that are emptied, at most, before one more is free.
const MOVES: u32 = 64;

impl Reclaimer {
    /// Makes a cluster free that puts may take. False if nothing would: the store is full. So many clusters are emptied
    /// at most before one more is free, and none while no more can be gained than when that was in vain.
    pub(crate) fn make_space_in_store(&self) -> Result<bool> {
        let _turn = self.state.turn.lock();
        self.parts.frames.drop_released();
        self.drop_residents_if_tight();
        if self.has_room_for_puts() {
            return Ok(true);
        }
        let was_in_vain = self.state.in_vain.load(Relaxed);
        if was_in_vain < u64::MAX
            && self.parts.space.leaving() == 0
            && self.parts.space.fill().live.saturating_add(self.parts.space.live.least_gain()) > was_in_vain
        {
            return Ok(false);
        }
        let mut has_room = self.empty_for_puts()?;
        if !has_room && !self.parts.catalog.packs_tightly() {
            // Objects just longer than half a cluster fill all clusters by half.
            self.parts.catalog.tight.store(0, Relaxed);
            self.drop_residents_if_tight();
            has_room = self.empty_for_puts()?;
            let live = self.parts.space.fill().live;
            self.parts.catalog.tight.store(live - live / LOOSER, Relaxed);
        }
        self.state.in_vain.store(if has_room { u64::MAX } else { self.parts.space.fill().live }, Relaxed);
        Ok(has_room)
    }

    pub(super) fn drop_residents_if_tight(&self) {
        if !self.parts.shared.memory.retention.holds_clusters() && self.parts.catalog.packs_tightly() {
            self.parts.shared.release(self.parts.shared.memory.release_clusters(self.parts.medium.number, 0));
        }
    }

    fn has_room_for_puts(&self) -> bool {
        self.parts.space.available() > self.appender.kept_from_puts()
    }

    fn empty_for_puts(&self) -> Result<bool> {
        let space = &self.parts.space;
        let wanted = self.appender.kept_from_puts() + (space.count() / SHARE).clamp(1, AT_ONCE);
        let least = space.live.least_gain();
        let (mut checkpoints, mut retired, mut moves, mut most) = (0, 0, 0, 0);
        while moves < MOVES && !self.has_room_for_puts() {
            let leaving = space.leaving();
            let coming = space.available() + leaving;
            if coming > most {
                (most, moves) = (coming, 0);
            }
            // A checkpoint makes victims of those that were written since the one before the last.
            let ages = |fill: Fill| fill.young >= least && checkpoints < CHECKPOINTS / 2 && fill.young > 2 * fill.old;
            let mut fill = space.fill_about();
            if fill.old < least || ages(fill) {
                fill = space.fill();
            }
            let Fill { old, young, .. } = fill;
            let lacking = wanted.saturating_sub(coming);
            let is_enough = leaving > 0 && lacking == 0;
            let more = || u64::from(lacking) * space.live.room / old.max(least);
            if !is_enough && old >= least && !ages(fill) && self.reclaim_one_of_store(more() as u32)? {
                moves += 1;
            } else if leaving > 0 {
                self.checkpointer.commit_now()?;
            } else if young >= least && checkpoints < CHECKPOINTS {
                checkpoints += 1;
                self.checkpointer.take()?;
            } else if retired < self.parts.space.count() {
                retired += 4;
                self.parts.residents.retire_a_resident();
            } else {
                break;
            }
        }
        if self.parts.space.leaving() > 0 {
            self.checkpointer.commit_now()?;
        }
        Ok(self.has_room_for_puts())
    }
}
