//! What a volume asks of its places: each verb leads to the file that has it.

use std::io;

use bytes::Bytes;
use parking_lot::MutexGuard;
use picaflor::{
    CheckReport, Result, VolumeReceipt,
    layout::{Blocked, Draft, Fill, IndexEntry, Overlay, Placement, Places, RoomEnv, VolumeEnv},
};
use picaflor_common::KeyHash;
use picaflor_format::{frame::Header, journal::Page, zone::SLOT};

use super::place::{InPlace, slot_of};

impl Places for InPlace {
    fn payload_max(&self) -> usize {
        self.payload_max
    }

    fn lanes(&self) -> u64 {
        self.lanes.len() as u64
    }

    fn fill(&self) -> Fill {
        let (free, _, live) = self.extents.slots();
        Fill { live: live * SLOT, free: free * SLOT, room: u64::from(self.extents.count()) * SLOT }
    }

    fn is_loaded(&self) -> bool {
        self.extents.is_loaded()
    }

    fn cut_for(&self, payload: usize, tries: u32) -> Option<usize> {
        self.cut_for(payload, tries)
    }

    fn cut_of_long(&self, body: usize) -> Option<usize> {
        self.piece_of_long(body)
    }

    fn parts(&self) -> u32 {
        self.extents.slices()
    }

    fn image(&self, part: u32) -> Vec<u64> {
        self.extents.image(part)
    }

    fn image_bytes(&self) -> u64 {
        self.extents.image_bytes()
    }

    fn cursor(&self) -> u32 {
        self.extents.cursor()
    }

    fn restore(
        &self,
        volume: &dyn VolumeEnv,
        image: (Vec<u64>, u32),
        log: &[Page],
        receipt: &mut VolumeReceipt,
    ) -> Result<bool> {
        self.restore_all(volume, image, log, receipt)
    }

    fn put(
        &self,
        volume: &dyn VolumeEnv,
        draft: &Draft<'_>,
        stays: bool,
        old: Option<IndexEntry>,
    ) -> Result<Result<(), Blocked>> {
        match self.env.placement() {
            Placement::PerServer => self.gather(volume, draft, stays, old),
            _ => self.place(volume, draft, stays, old),
        }
    }

    fn release(&self, grain: u64) {
        self.extents.release(slot_of(grain));
        self.remove_if_careless();
    }

    fn is_known_whole(&self, grain: u64, hash: KeyHash) -> bool {
        self.extents.is_known_whole(slot_of(grain), hash.0)
    }

    fn is_of_another(&self, grain: u64, hash: KeyHash) -> bool {
        self.extents.is_of_another(slot_of(grain), hash.0)
    }

    fn note_use(&self, grain: u64) {
        self.extents.touch(slot_of(grain));
    }

    fn step(&self, volume: &dyn VolumeEnv, room: &dyn RoomEnv) -> Result<bool> {
        self.make_room_ahead(volume, room)
    }

    fn make_room(&self, volume: &dyn VolumeEnv, room: &dyn RoomEnv) -> Result<bool> {
        self.make_some_room(volume, room)
    }

    fn range_of(&self, grain: u64, grains: u32) -> (u64, u64) {
        self.blocks_of(grain, grains)
    }

    fn is_of_place(&self, grain: u64, header: &Header) -> bool {
        self.is_of_slot(slot_of(grain), header)
    }

    fn overlay(&self, start: u64, len: usize) -> Option<Overlay> {
        self.overlay(start, len)
    }

    fn are_files(&self) -> bool {
        self.all_files().is_some()
    }

    fn is_file(&self, grain: u64) -> bool {
        self.file_of(slot_of(grain)).is_some()
    }

    fn read_file(&self, grain: u64) -> Option<io::Result<Vec<u8>>> {
        self.file_of(slot_of(grain)).map(|files| files.read(slot_of(grain)))
    }

    fn turn(&self) -> MutexGuard<'_, ()> {
        self.turn()
    }

    fn begin_commit(&self, volume: &dyn VolumeEnv) -> Result<Box<dyn FnOnce() + '_>> {
        // Before the records are taken: whatever these leave behind is told by them.
        let ready = self.ready();
        self.empty_lanes(volume)?;
        Ok(Box::new(move || self.settle(ready)))
    }

    fn write_held(&self) -> Result<()> {
        self.flush_packet()?;
        self.sync_long_files()
    }

    fn commit_untold(&self) -> Result<()> {
        self.commit_untold()
    }

    fn close(&self) -> Result<()> {
        let Some(files) = self.all_files() else { return Ok(()) };
        files.close().map_err(|error| self.medium.io("closing", error))
    }

    fn verify(&self, volume: &dyn VolumeEnv, part: u32) {
        self.verify_part(volume, part);
    }

    fn list(&self, volume: &dyn VolumeEnv, part: u32, see: &mut dyn FnMut(Result<(Header, Bytes)>)) {
        self.list_part(volume, part, see);
    }

    fn check(&self, volume: &dyn VolumeEnv, report: &mut CheckReport, part_done: &mut dyn FnMut(&mut CheckReport)) {
        self.check_all(volume, report, part_done);
    }
}
