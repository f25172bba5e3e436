//! Making room in place: the objects that were not used for longest leave, one by one.
//!
//! Invariants: an object that leaves is told in the journal as deleted, so that no older version of it comes back; its
//! slots are free after the next commit. So objects leave ahead of need, and many for one commit; but no more of them
//! than a commit is worth, for a cache is to be as full as it is asked to be.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use picaflor_common::KeyHash;
use picaflor_format::frame::Kind;

use crate::{
    Departure, Mode, Result,
    base::stats::add,
    in_place::place::{InPlace, Placing},
    space::Place,
    volume::Volume,
};

/// Part of all slots that is kept clean ahead of puts.
const AHEAD: u32 = 256;
/// Part of all slots that may wait for a commit.
const LEAVING: u32 = 64;

impl Volume {
    /// Whether the index, or what checkpoints of the table need, has come near to what it may take.
    fn is_crowded(&self, eighths: u64) -> bool {
        let index = self.shared.index_is_above(eighths) && self.catalog.is_loaded();
        index || self.checkpoints_are_above(eighths)
    }

    /// Whether three checkpoints of the table would take more than this part of the clusters kept for them. Where
    /// objects lie in clusters, whether the directory of one, two thirds of it for the parts, would not fit in its own.
    pub(crate) fn checkpoints_are_above(&self, eighths: u64) -> bool {
        let parts = || u64::from(self.residents.checkpoint_clusters());
        match self.catalog.in_place {
            Some(_) => 3 * parts() * 8 > u64::from(self.space.count()) * eighths,
            None => {
                let room = self.medium.cluster_len() as u64;
                // Far from it nobody has to count.
                self.shared.index_bytes.load(Relaxed) > room * room / 32 && parts() * 12 * 3 / 2 * 8 > room * eighths
            }
        }
    }

    /// One step of the reclaimer in place.
    pub(crate) fn evict_step(self: &Arc<Self>, placing: &Placing) -> Result<bool> {
        if self.shared.options.mode == Mode::Store {
            return Ok(false);
        }
        let ahead = placing.slots_ahead();
        let (free, leaving, _) = placing.in_place.extents.slots();
        let stuck = placing.in_place.extents.wanted() > 0;
        if !stuck && !self.is_crowded(7) && free + leaving >= ahead {
            // One commit frees many slots, so it waits for them, or for one that is made anyway.
            let much = u64::from((placing.in_place.extents.count() / LEAVING).max(16));
            let due = leaving > 0 && (free < ahead / 2 || leaving > much);
            if due {
                self.commit_now()?;
            }
            return Ok(due);
        }
        if stuck { self.make_room_in_place(placing) } else { Ok(placing.evict_lru(ahead / 2) > 0) }
    }

    /// Makes slots free, by whatever it takes. False if nothing would.
    pub(crate) fn make_room_in_place(self: &Arc<Self>, placing: &Placing) -> Result<bool> {
        let (free, leaving, _) = placing.in_place.extents.slots();
        if leaving == 0 && self.shared.options.mode == Mode::Cache {
            let wanted = u64::from(placing.in_place.extents.wanted());
            placing.evict_lru(wanted.max(placing.slots_ahead() / 2));
        }
        let (free_now, leaving, _) = placing.in_place.extents.slots();
        if leaving == 0 && !placing.in_place.extents.has_promised() {
            // Files that nobody asks to be durable are gone at once.
            return Ok(free_now > free);
        }
        self.commit_now()?;
        Ok(placing.in_place.extents.slots().0 > free)
    }
}

impl Placing {
    /// Slots kept clean ahead of puts: a 256th of all, at most 4 MiB. Half of it is made room for by one commit, which
    /// on a disk costs about what writing a fifth of that does.
    pub(crate) fn slots_ahead(&self) -> u64 {
        u64::from((self.in_place.extents.count() / AHEAD).clamp(16, 8192))
    }

    /// Lets the least recently used objects leave until they took so many slots. Returns how many they took.
    pub(crate) fn evict_lru(&self, slots: u64) -> u64 {
        let mut left = 0;
        while left < slots {
            let Some(oldest) = self.in_place.extents.oldest() else { break };
            left += self.leave(oldest);
        }
        self.in_place.account();
        left
    }

    /// Lets an object leave. Returns how many slots it took.
    pub(crate) fn leave(&self, place: Place) -> u64 {
        let hash = place.hash as u64;
        // Hits in memory do not touch the table: what had some since it was last looked at was used.
        if let Some(frame) = self.shared.memory.peek(hash)
            && frame.uses() > 0
        {
            frame.set_uses(0);
            self.in_place.extents.touch(place.slot);
            return 0;
        }
        if self.shared.leases.none().is_none()
            && let Ok((header, frame)) = self.frames.read_placed(&place)
            && header.kind == Kind::Chunk
            && self.shared.leases.keep(header.key(&frame), self.frames.lease_max()).is_none()
        {
            self.in_place.extents.touch(place.slot);
            return 0;
        }
        let told = self.shared.options.eviction_listener.is_some().then(|| self.departing(place)).flatten();
        let _stripe = self.shared.lock_key(hash);
        if self.in_place.extents.oldest() != Some(place) {
            return 0;
        }
        let Some(entry) = self.catalog.index.find(hash, InPlace::location(place.slot)) else {
            // Not while it is being placed: then the index is about to have it.
            let _turn = self.in_place.turn();
            if self.catalog.index.find(hash, InPlace::location(place.slot)).is_none() {
                self.in_place.extents.release(place.slot);
            }
            return place.slots.into();
        };
        if !self.catalog.drop_entry(hash, entry) {
            return 0;
        }
        let generation = self.shared.next_generation();
        self.log.forget(KeyHash(place.hash), generation);
        let why = told.as_ref().map_or(Departure::Evicted, |(why, _)| *why);
        let counters = &self.shared.counters;
        add(if why == Departure::Expired { &counters.expired } else { &counters.evicted }, 1);
        if let Some((why, key)) = told.filter(|(_, key)| !key.is_empty()) {
            self.shared.note_departure(&key, why);
        }
        place.slots.into()
    }

    /// The key of who is to leave, and why; no key for a piece of a large object.
    pub(crate) fn departing(&self, place: Place) -> Option<(Departure, Vec<u8>)> {
        let (header, frame) = self.frames.read_placed(&place).ok()?;
        let expired = header.expires != 0 && header.expires <= self.shared.clock.now_millis();
        let why = if expired { Departure::Expired } else { Departure::Evicted };
        let key = if header.kind == Kind::Chunk { Vec::new() } else { header.key(&frame).to_vec() };
        Some((why, key))
    }
}
