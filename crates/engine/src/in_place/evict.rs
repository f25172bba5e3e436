//! Making room in place: the objects that were not used for longest leave, one by one.
//!
//! Invariants: an object that leaves is told in the journal as deleted, so that no older version of it comes back; its
//! slots are free after the next commit. So objects leave ahead of need, and many for one commit; but no more of them
//! than a commit is worth, for a cache is to be as full as it is asked to be.

use picaflor_common::KeyHash;
use picaflor_format::frame::Kind;

use crate::{
    Departure,
    base::stats::add,
    in_place::{place::InPlace, placing::Placing},
    space::Place,
};

/// Part of all slots that is kept clean ahead of puts.
const AHEAD: u32 = 256;

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
        if let Some(frame) = self.parts.shared.memory.peek(hash)
            && frame.uses() > 0
        {
            frame.set_uses(0);
            self.in_place.extents.touch(place.slot);
            return 0;
        }
        if self.parts.shared.leases.none().is_none()
            && let Ok((header, frame)) = self.parts.frames.read_placed(&place)
            && header.kind == Kind::Chunk
            && self.parts.shared.leases.keep(header.key(&frame), self.parts.frames.lease_max()).is_none()
        {
            self.in_place.extents.touch(place.slot);
            return 0;
        }
        let told = self.parts.shared.options.eviction_listener.is_some().then(|| self.departing(place)).flatten();
        let _stripe = self.parts.shared.lock_key(hash);
        if self.in_place.extents.oldest() != Some(place) {
            return 0;
        }
        let Some(entry) = self.parts.catalog.index.find(hash, InPlace::location(place.slot)) else {
            // Not while it is being placed: then the index is about to have it.
            let _turn = self.in_place.turn();
            if self.parts.catalog.index.find(hash, InPlace::location(place.slot)).is_none() {
                self.in_place.extents.release(place.slot);
            }
            return place.slots.into();
        };
        if !self.parts.catalog.drop_entry(hash, entry) {
            return 0;
        }
        let generation = self.parts.shared.next_generation();
        self.parts.log.forget(KeyHash(place.hash), generation);
        let why = told.as_ref().map_or(Departure::Evicted, |(why, _)| *why);
        let counters = &self.parts.shared.counters;
        add(if why == Departure::Expired { &counters.expired } else { &counters.evicted }, 1);
        if let Some((why, key)) = told.filter(|(_, key)| !key.is_empty()) {
            self.parts.shared.note_departure(&key, why);
        }
        place.slots.into()
    }

    /// The key of who is to leave, and why; no key for a piece of a large object.
    pub(crate) fn departing(&self, place: Place) -> Option<(Departure, Vec<u8>)> {
        let (header, frame) = self.parts.frames.read_placed(&place).ok()?;
        let expired = header.expires != 0 && header.expires <= self.parts.shared.clock.now_millis();
        let why = if expired { Departure::Expired } else { Departure::Evicted };
        let key = if header.kind == Kind::Chunk { Vec::new() } else { header.key(&frame).to_vec() };
        Some((why, key))
    }
}
