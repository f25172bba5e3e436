//! One key, several volumes: after a crash, or after a volume failed, two of them may hold a version each.
//!
//! A delete is logged on every volume, and a put on one; a crash may keep the put and lose the delete elsewhere.
//! Whoever asks for the key next compares the generations, and only the newest stays.
//!
//! Invariants: a store of one volume never gets here; what is dropped is logged as deleted on its volume.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use picaflor_format::{frame::Kind, journal::Record};

use crate::{Mode, Result, hash::KeyHash, store::Store, volume::Volume};

impl Store {
    /// Makes sure that at most one volume holds this key. `held`: the caller holds the key's lock.
    pub(crate) fn settle_rivals(&self, hash: KeyHash, key: &[u8], held: bool) -> Result<()> {
        let holding = |hash: KeyHash| {
            let has = |volume: &&Arc<Volume>| !volume.index.candidates(hash.short()).is_empty();
            self.volumes().iter().filter(has).count()
        };
        if self.volumes_early().len() < 2 || holding(hash) < 2 || self.shared().options.read_only {
            return Ok(());
        }
        let _stripe = (!held).then(|| self.lock_key(hash));
        let mut versions = Vec::new();
        for volume in self.volumes() {
            if let Some(own) = self.verified(volume, hash, key, Kind::Whole)? {
                versions.push((own.generation, volume, own));
            }
        }
        let newest = versions.iter().map(|(generation, ..)| *generation).max();
        // One that cannot be read now may be the newest: a cache does without any, or it would give out an older one.
        // Behind a put it is older.
        let doubtful = !held && self.mode() == Mode::Cache && versions.iter().any(|(generation, ..)| *generation == 0);
        // What cannot be read has a generation all the same, and must not come back as the only version.
        let all = if doubtful { self.shared().generation.load(Relaxed) } else { 0 };
        for (generation, volume, own) in versions {
            if doubtful || Some(generation) != newest {
                let generation = generation.max(all);
                volume.drop_entry(hash.short(), own.word);
                volume.record(Record::Delete { hash: hash.0, generation, everywhere: false });
            }
        }
        Ok(())
    }
}
