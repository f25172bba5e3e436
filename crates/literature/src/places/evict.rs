//! Making room: the objects that were not used for longest leave, one by one.
//!
//! Invariants: an object that leaves is told in the log as deleted, so that no older version of it comes back; its
//! slots are free after the next commit. So objects leave ahead of need, and many for one commit; but no more of them
//! than a commit is worth, for a cache is to be as full as it is asked to be.

use picaflor::{
    Departure, Mode, Result,
    layout::{RoomEnv, VolumeEnv},
};
use picaflor_format::{frame::Kind, journal::Record};

use super::{place::InPlace, space::Place};

/// Part of all slots that is kept clean ahead of puts.
const AHEAD: u32 = 256;
/// Part of all slots that may wait for a commit.
const LEAVING: u32 = 64;

impl InPlace {
    /// One step of making room ahead of need.
    pub(super) fn make_room_ahead(&self, volume: &dyn VolumeEnv, room: &dyn RoomEnv) -> Result<bool> {
        if self.env.mode() == Mode::Store {
            return Ok(false);
        }
        let ahead = self.slots_ahead();
        let (free, leaving, _) = self.extents.slots();
        let stuck = self.extents.wanted() > 0;
        if !stuck && !room.is_crowded() && free + leaving >= ahead {
            // One commit frees many slots, so it waits for them, or for one that is made anyway.
            let much = u64::from((self.extents.count() / LEAVING).max(16));
            let due = leaving > 0 && (free < ahead / 2 || leaving > much);
            if due {
                room.commit_now()?;
            }
            return Ok(due);
        }
        if stuck { self.make_some_room(volume, room) } else { Ok(self.evict_lru(volume, ahead / 2) > 0) }
    }

    /// Makes slots free, by whatever it takes. False if nothing would.
    pub(super) fn make_some_room(&self, volume: &dyn VolumeEnv, room: &dyn RoomEnv) -> Result<bool> {
        let (free, leaving, _) = self.extents.slots();
        if leaving == 0 && self.env.mode() == Mode::Cache {
            let wanted = u64::from(self.extents.wanted());
            self.evict_lru(volume, wanted.max(self.slots_ahead() / 2));
        }
        let (free_now, leaving, _) = self.extents.slots();
        if leaving == 0 && !self.extents.has_promised() {
            // Files of which no durability is asked are gone at once.
            return Ok(free_now > free);
        }
        room.commit_now()?;
        Ok(self.extents.slots().0 > free)
    }

    /// Slots kept clean ahead of puts: a 256th of all, at most 4 MiB. Half of it is made room for by one commit, which
    /// on a disk costs about what writing a fifth of that does.
    fn slots_ahead(&self) -> u64 {
        u64::from((self.extents.count() / AHEAD).clamp(16, 8192))
    }

    /// Lets the least recently used objects leave until they took so many slots. Returns how many they took.
    fn evict_lru(&self, volume: &dyn VolumeEnv, slots: u64) -> u64 {
        let mut left = 0;
        while left < slots {
            let Some(oldest) = self.extents.oldest() else { break };
            left += self.evict(volume, oldest);
        }
        self.account();
        left
    }

    /// Lets an object leave. Returns how many slots it took.
    fn evict(&self, volume: &dyn VolumeEnv, place: Place) -> u64 {
        let hash = place.hash as u64;
        // Hits in memory do not touch the table: what had some since it was last looked at was used.
        if self.env.was_used(hash) {
            self.extents.touch(place.slot);
            return 0;
        }
        if volume.has_leases()
            && let Ok((header, frame)) = self.read(volume, place)
            && volume.is_kept(&header, &frame)
        {
            self.extents.touch(place.slot);
            return 0;
        }
        let told = self.env.hears_departures().then(|| self.departing(volume, place)).flatten();
        let _stripe = self.env.lock_key(hash);
        if self.extents.oldest() != Some(place) {
            return 0;
        }
        let Some(entry) = volume.find(hash, place.grain()) else {
            // Not while it is being placed: then the index is about to have it.
            let _turn = self.turn();
            if volume.find(hash, place.grain()).is_none() {
                self.extents.release(place.slot);
            }
            return place.slots.into();
        };
        if !volume.drop_entry(hash, entry) {
            return 0;
        }
        self.log.record(Record::Delete { hash: place.hash, generation: self.env.next_generation() });
        let (why, key) = told.unwrap_or((Departure::Evicted, Vec::new()));
        self.env.object_left(&key, why);
        place.slots.into()
    }

    /// The key of the object that is to leave, and why; no key for a piece of a large object.
    fn departing(&self, volume: &dyn VolumeEnv, place: Place) -> Option<(Departure, Vec<u8>)> {
        let (header, frame) = self.read(volume, place).ok()?;
        let expired = header.expires != 0 && header.expires <= self.env.now_millis();
        let why = if expired { Departure::Expired } else { Departure::Evicted };
        let key = if header.kind == Kind::Chunk { Vec::new() } else { header.key(&frame).to_vec() };
        Some((why, key))
    }
}
