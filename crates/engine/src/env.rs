//! What layouts of other crates are given of their store: [`Env`] over what all volumes have in common.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use parking_lot::MutexGuard;
use picaflor_common::KeyHash;
use picaflor_format::{
    frame::{ChunkKey, Manifest},
    journal::Group,
};

use crate::{
    Departure, Durability, Mode,
    background::daemons::is_quiet,
    base::{frame::Frame, layout::Env, policy::Placement, stats::add},
    cache::leases::{KEPT, Left},
    shared::{STRIPES, Shared},
};

impl Env for Shared {
    fn memory(&self) -> u64 {
        self.options.memory
    }

    fn read_only(&self) -> bool {
        self.options.read_only
    }

    fn placement(&self) -> Placement {
        self.preset.placement
    }

    fn preset_number(&self) -> u32 {
        self.preset.number()
    }

    fn mode(&self) -> Mode {
        self.options.mode
    }

    fn places(&self) -> usize {
        self.options.places.len()
    }

    fn splits_first(&self) -> bool {
        self.options.splits_first
    }

    fn open_buffers(&self) -> usize {
        self.options.open_buffers
    }

    fn is_careless(&self) -> bool {
        self.options.durability == Durability::None
    }

    fn has_checkpoints(&self) -> bool {
        self.has_checkpoints()
    }

    fn now_millis(&self) -> u64 {
        self.clock.now_millis()
    }

    fn next_generation(&self) -> u64 {
        self.next_generation()
    }

    fn see_generation(&self, generation: u64) {
        self.see_generation(generation);
    }

    fn stripes(&self) -> usize {
        STRIPES
    }

    fn lock_key(&self, hash: u64) -> MutexGuard<'_, ()> {
        self.lock_key(hash)
    }

    fn try_lock_key(&self, hash: u64) -> Option<MutexGuard<'_, ()>> {
        self.try_lock_key(hash)
    }

    fn cache_object(&self, frame: &Arc<Frame>) {
        self.cache_object(frame, || true);
    }

    fn forget_object(&self, hash: u64) {
        self.memory.remove(hash);
    }

    fn take_memory(&self, bytes: u64) {
        self.reserve_memory(bytes, || self.buffer_bytes.fetch_add(bytes, Relaxed));
    }

    fn give_memory(&self, bytes: u64) {
        self.buffer_bytes.fetch_sub(bytes, Relaxed);
    }

    fn set_index_bytes(&self, bytes: u64) {
        let before = self.index_bytes.swap(bytes, Relaxed);
        if bytes > before {
            self.shrink_memory();
        }
    }

    fn change_index_bytes(&self, before: u64, now: u64) {
        self.index_bytes.fetch_add(now.wrapping_sub(before), Relaxed);
    }

    fn claim_memory(&self, bytes: u64, take: &mut dyn FnMut()) {
        self.reserve_memory(bytes, take);
    }

    fn shrink_memory(&self) {
        self.shrink_memory();
    }

    fn was_used(&self, hash: u64) -> bool {
        let used = self.memory.peek(hash).filter(|frame| frame.uses() > 0);
        used.inspect(|frame| frame.set_uses(0)).is_some()
    }

    fn note_read(&self) {
        self.last_read.store(self.clock.now_nanos(), Relaxed);
    }

    fn count_read(&self) {
        add(&self.counters.object_reads, 1);
    }

    fn is_quiet(&self) -> bool {
        is_quiet(self)
    }

    fn hears_departures(&self) -> bool {
        self.options.eviction_listener.is_some()
    }

    fn object_left(&self, key: &[u8], why: Departure) {
        let counters = &self.counters;
        add(if why == Departure::Expired { &counters.expired } else { &counters.evicted }, 1);
        if !key.is_empty() {
            self.note_departure(key, why);
        }
    }

    fn restore_group(&self, group: Group) {
        self.groups.restore(group);
    }

    fn drop_or_leave(&self, parent: KeyHash, manifest: Manifest, capacity: u64, drop: &mut dyn FnMut()) {
        self.leases.drop_or_leave(Left { parent, manifest, home: 0 }, capacity / KEPT, drop);
    }

    fn drop_released(&self, drop: &dyn Fn(KeyHash, Manifest)) -> bool {
        self.leases.drop_over(0, |left| drop(left.parent, left.manifest))
    }

    fn is_leased(&self, key: &ChunkKey) -> bool {
        self.leases.is_leased(key)
    }
}
