//! Pieces of large objects. They have entries of their own, so a crash may leave some without an owner.
//!
//! Steps of a put: the id is noted in the table `large` with the object's key → chunks, each durable → the manifest.
//! Of a drop: the chunks, the last first → the note. So whatever a crash leaves has a note, and its chunks have numbers
//! from 0 on without a gap: the keeper looks whether the object that the note names has this very manifest, and drops
//! the chunks if it has not.

use picaflor_common::KeyHash;
use picaflor_format::{
    frame::{ChunkKey, Header, Manifest},
    tabled::{large_id, large_key},
};

use picaflor::{Error, Result, layout::Layout};

use super::{TableLayout, error::of_table};

impl TableLayout {
    /// Notes that chunks under this id are about to be put.
    ///
    /// # Errors
    /// As [`TableLayout::insert_one`].
    pub(super) fn note_large(&self, id: u64, key: &[u8]) -> Result<()> {
        self.under_way.lock().insert(id);
        self.large.put(&large_key(id), key).inspect_err(|_| self.end_large(id)).map_err(of_table)
    }

    /// A verb failed that was to replace or delete: the chunks of the version before may belong to none.
    pub(super) fn note_failed(&self, error: &Error) {
        if self.doubts(error) {
            self.look_for_orphans();
        }
    }

    /// Drops the chunks of a large object that is gone, by who holds its key's lock, or put them himself. What a
    /// failure leaves of them, the keeper finds.
    pub(super) fn drop_or_leave(&self, parent: KeyHash, manifest: Manifest) {
        let mut drop = || self.drop_chunks_now(parent, manifest);
        self.env.drop_or_leave(parent, manifest, self.capacity(), &mut drop);
    }

    /// Drops what was left to handles that are gone. Returns whether there was anything.
    pub(super) fn drop_released(&self) -> bool {
        self.env.drop_released(&|parent, manifest| self.drop_chunks_now(parent, manifest))
    }

    fn drop_chunks_now(&self, parent: KeyHash, manifest: Manifest) {
        if self.drop_chunks_below(parent, manifest.id, manifest.chunks()).is_err() {
            self.look_for_orphans();
        }
    }

    fn drop_chunks_below(&self, parent: KeyHash, id: u64, count: u32) -> Result<()> {
        for number in (0..count).rev() {
            let key = ChunkKey { parent: parent.0, id, number }.encode();
            let hash = self.hasher.chunk(&key).short();
            self.chunks.remove(&key).map_err(of_table)?;
            self.env.forget_object(hash);
        }
        self.large.remove(&large_key(id)).map(drop).map_err(of_table)
    }

    /// Whether the object with this key has the manifest of this id.
    pub(super) fn has_manifest(&self, key: &[u8], id: u64) -> Result<bool> {
        let Some(value) = self.objects.get(key).map_err(of_table)? else { return Ok(false) };
        let manifest = Header::verify(&value).ok().and_then(|header| header.manifest(&value));
        Ok(manifest.is_some_and(|manifest| manifest.id == id))
    }

    /// Drops the pieces of large objects that a crash left without an owner. Returns whether it came to the end.
    pub(super) fn drop_orphans(&self, go_on: &dyn Fn() -> bool) -> Result<bool> {
        for pair in self.large.pairs() {
            if !go_on() {
                return Ok(false);
            }
            let (id, key) = pair.map_err(of_table)?;
            let Ok(id) = large_id(&id) else { continue };
            let hash = self.hasher.key(&key);
            // No other call puts or drops this object meanwhile.
            let _stripe = self.env.lock_key(hash.short());
            let is_leased = self.env.is_leased(&ChunkKey { parent: hash.0, id, number: 0 });
            if is_leased || self.under_way.lock().contains(&id) || self.has_manifest(&key, id)? {
                continue;
            }
            let mut count = 0;
            while self.chunks.contains(&ChunkKey { parent: hash.0, id, number: count }.encode()).map_err(of_table)? {
                count += 1;
            }
            self.drop_chunks_below(hash, id, count)?;
        }
        Ok(true)
    }
}
