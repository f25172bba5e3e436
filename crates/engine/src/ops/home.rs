//! The home of a key: which of a store's devices has it.
//!
//! Invariants: the home follows from the key alone, by a rule that is fixed when the store is made, so each device is a
//! store of one device and there is never a version to look for on another; the chunks of a large object lie where its
//! manifest does; neighbours, servers and groups choose lanes within a device, never the device.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use crate::{Mode, Result, handle::Store, volume::Volume};
use picaflor_common::KeyHash;

impl Store {
    /// The number of a key's home, whether the opening is over or not.
    pub(crate) fn home_number(&self, hash: KeyHash, key: &[u8]) -> usize {
        self.shared().options.spread.home(self.hasher(), hash, key, self.volumes().len())
    }

    /// A key's home; where objects are entries of tables there is none. Waits for the end of the opening.
    pub(crate) fn home(&self, hash: KeyHash, key: &[u8]) -> &Arc<Volume> {
        &self.recovered_volumes()[self.home_number(hash, key)]
    }

    /// Whether a device of a cache failed while others go on: its objects are misses, and what is put there is refused,
    /// until the next opening, which empties it. A device that is alone, and any of a store, is read as long as it can
    /// be.
    pub(crate) fn is_lost(&self, volume: &Volume) -> bool {
        self.volumes().len() > 1 && self.mode() == Mode::Cache && volume.log.commits.is_broken()
    }

    /// Whether a healthy device knows durably that this one failed.
    pub(crate) fn is_loss_noted(&self, lost: &Volume) -> bool {
        lost.loss_noted.load(Relaxed)
    }

    /// Whether each device that a cache gave up is durably known to be lost: the next opening shows nothing of it then.
    /// A commit of a healthy device says so; where none is left, old versions may come back.
    ///
    /// # Errors
    /// The failure of a device of which no other one says so.
    pub(crate) fn losses_are_noted(&self) -> Result<()> {
        let mut lost = self.recovered_volumes().iter().filter(|volume| self.is_lost(volume));
        lost.find(|volume| !self.is_loss_noted(volume))
            .and_then(|volume| volume.log.commits.failure())
            .map_or(Ok(()), Err)
    }

    /// Has the healthy devices say durably that this one failed, so that the next opening empties it: before a delete
    /// of what lies there is acknowledged, for the device itself takes no note of it any more.
    ///
    /// # Errors
    /// The failure of the device, if there is none left to say so.
    pub(crate) fn note_loss(&self, lost: &Volume) -> Result<()> {
        if self.is_loss_noted(lost) {
            return Ok(());
        }
        for healthy in self.volumes().iter().filter(|volume| volume.log.commits.failure().is_none()) {
            healthy.log.note_losses()?;
        }
        match (self.is_loss_noted(lost), lost.log.commits.failure()) {
            (false, Some(failure)) => Err(failure),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
mod tests {
    use picaflor_device::{Device, MemoryDevice};

    use super::*;
    use crate::{Daemons, Options, Place, PutOptions};

    #[test]
    fn a_copy_is_laid_beside_a_neighbour_of_the_same_home_only() {
        let device = || Arc::new(MemoryDevice::new(32 << 20)) as Arc<dyn Device>;
        let devices = [device(), device()];
        let options = || {
            Options::on(device()).memory(8 << 20).with(|options| {
                options.places = devices.iter().map(|device| Place::Device(Arc::clone(device))).collect();
                (options.cluster, options.seed, options.daemons) = (64 << 10, Some(7), Daemons::Manual);
            })
        };
        let key = |i: u32| format!("key {i}").into_bytes();
        let copies = |same: bool| {
            let store = Store::open(options()).unwrap();
            (0..50).for_each(|i| store.put(&key(i), &[1; 500]).unwrap());
            store.close().unwrap();
            let store = Store::open(options()).unwrap();
            let home = |i: u32| store.home_number(store.hasher().key(&key(i)), &key(i));
            for i in 0..50 {
                // Memory has it from now on.
                assert!(store.get(&key(i)).unwrap().is_some());
                let beside = (100..).find(|other| (home(*other) == home(i)) == same).unwrap();
                let options = PutOptions::new().neighbour(key(i));
                store.put_with(&key(beside), &[2; 500], &options).unwrap();
            }
            let closed = store.clone();
            store.close().unwrap();
            closed.stats().counts.copies_placed
        };
        assert_eq!(copies(false), 0);
        assert!(copies(true) > 0);
    }
}
