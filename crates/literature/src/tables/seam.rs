//! What the store asks of tables: each verb leads to the file that has it.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use picaflor::{
    CheckReport, Counts, Error, Result, VolumeStats,
    layout::{Draft, Former, Frame, Layout, Listing},
};
use picaflor_common::KeyHash;
use picaflor_format::{frame::Manifest, journal::Group, zone::BLOCKS_START};

use super::{TableLayout, audit::Objects, error::of_table};

impl Layout for TableLayout {
    fn payload_max(&self) -> usize {
        self.payload_max
    }

    fn object_max(&self) -> u64 {
        self.room / 4
    }

    fn capacity(&self) -> u64 {
        BLOCKS_START + self.room
    }

    fn objects(&self) -> u64 {
        self.objects.len() + self.chunks.len()
    }

    fn is_counting(&self) -> bool {
        self.tables.is_counting()
    }

    fn insert(&self, draft: &Draft<'_>, stays: bool) -> Result<Option<Former>> {
        self.insert_one(draft, stays)
    }

    fn insert_batch(&self, drafts: &[(Draft<'_>, bool)], replaced: &mut dyn FnMut(usize, Former)) -> Result<()> {
        self.insert_many(drafts, replaced)
    }

    fn remove(&self, hash: KeyHash, key: &[u8]) -> Result<Option<Former>> {
        self.remove_one(hash, key)
    }

    fn remove_batch(&self, keys: &[(KeyHash, &[u8])], removed: &mut dyn FnMut(usize, Former)) -> Result<()> {
        self.remove_many(keys, removed)
    }

    fn find(&self, hash: KeyHash, key: &[u8], is_chunk: bool) -> Result<Option<Arc<Frame>>> {
        self.read(hash, key, is_chunk)
    }

    fn generation(&self, key: &[u8]) -> Result<Option<u64>> {
        self.generation_of(key)
    }

    fn begin_large(&self, id: u64, key: &[u8]) -> Result<()> {
        self.note_large(id, key)
    }

    fn end_large(&self, id: u64) {
        self.under_way.lock().remove(&id);
    }

    fn doubts(&self, error: &Error) -> bool {
        !matches!(error, Error::Full { .. })
    }

    fn look_for_orphans(&self) {
        self.may_have_orphans.store(true, Relaxed);
    }

    fn owns(&self, key: &[u8], id: u64) -> Result<bool> {
        self.has_manifest(key, id)
    }

    fn drop_chunks(&self, parent: KeyHash, manifest: Manifest) {
        self.drop_or_leave(parent, manifest);
    }

    fn list(self: Arc<Self>) -> Box<dyn Listing> {
        Box::new(Objects::of(self))
    }

    fn check(&self, report: &mut CheckReport, progress: &mut dyn FnMut(u64, u64)) {
        self.audit(report, progress);
    }

    fn record_group(&self, group: &Group) -> Result<()> {
        self.keep_group(group)
    }

    /// The verbs left nothing volatile; but the caller is told of a failure.
    fn flush(&self) -> Result<()> {
        match self.tables.failure() {
            Some(failure) => Err(of_table(failure)),
            None => self.tables.commit().map_err(of_table),
        }
    }

    /// Other handles are then told that it is closed.
    fn close(&self) -> Result<()> {
        match self.tables.failure() {
            Some(failure) => Err(of_table(failure)),
            None => self.tables.close().map_err(of_table),
        }
    }

    fn release(&self) {
        self.device.release();
    }

    fn failure(&self) -> Option<Error> {
        self.tables.failure().map(of_table)
    }

    fn stats(&self) -> VolumeStats {
        self.account();
        let mut stats = VolumeStats::default();
        (stats.place, stats.backend) = (self.place.clone(), self.device.backend());
        stats.live_bytes = self.tables.space().map_or(0, |space| space.allocated);
        stats.room_bytes = self.room;
        stats.failed = self.tables.failure().map(|why| why.to_string());
        stats
    }

    fn count(&self, counts: &mut Counts) {
        let asked = self.counted.counts();
        counts.device_reads += asked.reads;
        counts.device_read += asked.read_bytes;
        counts.device_writes += asked.writes;
        counts.device_written += asked.write_bytes;
        counts.device_syncs += asked.syncs;
        counts.pages_rebuilt += self.tables.stats().rebuilt;
    }

    fn step(&self) -> Result<bool> {
        self.keep(&|| true)
    }

    fn is_settled(&self) -> bool {
        self.env.read_only() || !self.tables.wants_mending() && !self.may_have_orphans.load(Relaxed)
    }

    fn run_keeper(&self) {
        self.keep_until_stopped();
    }

    fn lost_keeper(&self, why: String) {
        self.tables.stop(picaflor_table::Error::Daemon { place: self.place.clone(), daemon: "keeper", why });
    }

    fn stop(&self) {
        self.rest.lock().stopped = true;
        self.stirred.notify_all();
    }
}
