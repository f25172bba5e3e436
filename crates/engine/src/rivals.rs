//! One key, several volumes: after a crash, or after a volume failed, two of them may hold a version each.
//!
//! A delete is logged on every volume, and a put on one; a crash may keep the put and lose the delete elsewhere.
//! Whoever asks for the key next compares the generations, and only the newest stays.
//!
//! Invariants: a store of one volume never gets here; what is dropped is logged as deleted on its volume. A put looks
//! for its rivals, which may fail, before its object is framed, and drops them after it, which does not fail. A store
//! puts an object where its newest version lies: else that volume's log might say that it is gone, durably, before the
//! other volume has what replaced it.

use std::sync::{Arc, atomic::Ordering::Relaxed};

use picaflor_format::{frame::Kind, journal::Record};

use crate::{Mode, Result, delete::Own, hash::KeyHash, store::Store, volume::Volume};

impl Store {
    /// How many volumes may hold this key.
    fn holding(&self, hash: KeyHash) -> usize {
        let has = |volume: &&Arc<Volume>| !volume.index.candidates(hash.short()).is_empty();
        self.volumes().iter().filter(has).count()
    }

    /// Where a store has the newest version of a key, if the index alone cannot tell: on another volume there may be
    /// another key of the same place.
    pub(crate) fn home_of(&self, hash: KeyHash, key: &[u8]) -> Result<Option<&Arc<Volume>>> {
        let mut newest: Option<(u64, &Arc<Volume>)> = None;
        if self.mode() == Mode::Cache || self.holding(hash) < 2 {
            return Ok(None);
        }
        for volume in self.volumes() {
            if let Some(own) = self.verified(volume, hash, key, Kind::Whole)?
                && newest.is_none_or(|(generation, _)| own.generation > generation)
            {
                newest = Some((own.generation, volume));
            }
        }
        Ok(newest.map(|(_, volume)| volume))
    }

    /// What other volumes than this have of a key that is about to be put here; by who holds the key's lock. All of it
    /// is older.
    pub(crate) fn rivals_of(&self, home: &Volume, hash: KeyHash, key: &[u8]) -> Result<Vec<(Arc<Volume>, Own)>> {
        let mut rivals = Vec::new();
        for volume in self.volumes().iter().filter(|volume| volume.number != home.number) {
            if let Some(own) = self.verified(volume, hash, key, Kind::Whole)? {
                rivals.push((Arc::clone(volume), own));
            }
        }
        Ok(rivals)
    }

    /// Whether there may be something to settle, as far as that can be told at once: nobody knows before the opening
    /// is over.
    pub(crate) fn has_rivals(&self, hash: KeyHash) -> bool {
        self.volumes_early().len() > 1
            && !self.shared().options.read_only
            && (!self.late().is_over() || self.holding(hash) > 1)
    }

    /// Makes sure that at most one volume holds this key. `held`: the caller holds the key's lock.
    pub(crate) fn settle_rivals(&self, hash: KeyHash, key: &[u8], held: bool) -> Result<()> {
        if self.volumes_early().len() < 2 || self.holding(hash) < 2 || self.shared().options.read_only {
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
        // Before a delete it does not matter.
        let doubtful = !held && self.mode() == Mode::Cache && versions.iter().any(|(generation, ..)| *generation == 0);
        // What cannot be read has a generation all the same, and must not come back as the only version.
        let all = if doubtful { self.shared().generation.load(Relaxed) } else { 0 };
        for (generation, volume, own) in versions {
            if doubtful || Some(generation) != newest {
                volume.drop_version(hash, &own, generation.max(all));
            }
        }
        Ok(())
    }
}

impl Volume {
    /// Drops one version of a key, so that no crash brings it back here.
    pub(crate) fn drop_version(&self, hash: KeyHash, own: &Own, generation: u64) {
        self.drop_entry(hash.short(), own.word);
        self.record(Record::Delete { hash: hash.0, generation, everywhere: false });
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
mod tests {
    use std::{
        collections::HashMap,
        future::Future,
        task::{Context, Poll, Waker},
    };

    use picaflor_device::{Clock, Device, Fault, FaultyDevice, MemoryDevice, Rule};

    use super::*;
    use crate::{
        Daemons, Durability, Options, Place, PutOptions, TryGet, append::Purpose, framing::Parts, placement::Class,
    };

    const KEPT: &[u8] = b"the version before";
    const LARGE: usize = 200_000;

    struct Two {
        devices: [Arc<FaultyDevice>; 2],
        store: Store,
        /// On the second device; the index cannot tell it from a key on the first.
        key: Vec<u8>,
    }

    fn options(devices: &[Arc<FaultyDevice>; 2]) -> Options {
        let places = devices.iter().map(|device| Place::Device(Arc::clone(device) as Arc<dyn Device>)).collect();
        Options::on(Arc::new(MemoryDevice::new(0))).memory(8 << 20).mode(Mode::Store).with(|options| {
            (options.places, options.cluster, options.seed) = (places, 64 << 10, Some(7));
            (options.daemons, options.durability) = (Daemons::Manual, Durability::None);
            options.clock = Clock::virtual_at(1_000_000);
        })
    }

    fn two() -> Two {
        let device = |seed| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 << 20)), seed));
        let devices = [device(1), device(2)];
        let store = Store::open(options(&devices)).unwrap();
        let mut seen = HashMap::new();
        let key_of = |i: u32| format!("key {i}").into_bytes();
        let twins = (0..).find_map(|i| {
            let hash = store.hasher().key(&key_of(i)).short();
            Some([seen.insert((hash >> 58, hash & 0xff_ffff), i)?, i])
        });
        let twins = twins.unwrap().map(key_of);
        for (volume, key) in store.volumes().iter().zip(&twins) {
            let options = PutOptions::default();
            let parts = Parts {
                kind: Kind::Whole,
                key,
                metadata: &[],
                body: KEPT,
                expires: 0,
                volume: Some(volume),
                options: &options,
            };
            store.frame_in(store.hasher().key(key), &parts).unwrap();
        }
        store.flush().unwrap();
        // A checkpoint, so that nothing of it is in memory.
        store.close().unwrap();
        let store = Store::open(options(&devices)).unwrap();
        assert!(twins.iter().all(|key| body(&store, key) == KEPT), "two entries that are the same");
        let [_, key] = twins;
        Two { devices, store, key }
    }

    fn body(store: &Store, key: &[u8]) -> Vec<u8> {
        store.get(key).unwrap().unwrap().bytes().unwrap().to_vec()
    }

    fn after_a_power_failure(Two { devices, store, .. }: &Two) -> Store {
        devices.iter().for_each(|device| assert!(device.crash().is_ok()));
        std::mem::forget(store.clone());
        devices.iter().for_each(|device| device.revive().unwrap());
        Store::open(options(devices)).unwrap()
    }

    #[test]
    fn a_replacement_that_fails_leaves_the_version_before() {
        for len in [10, LARGE] {
            let mut failed = 0;
            for n in 1..20 {
                let two = two();
                two.devices[1].add(Rule::nth(Fault::ReadError, n));
                let put = two.store.put(&two.key, &vec![7; len], &PutOptions::default());
                two.devices[1].clear_rules();
                let expected = if put.is_ok() { vec![7; len] } else { KEPT.to_vec() };
                assert!(body(&two.store, &two.key) == expected, "{len} bytes, read {n}: {put:?}");
                two.store.flush().unwrap();
                assert!(body(&after_a_power_failure(&two), &two.key) == expected, "{len} bytes, read {n}: {put:?}");
                if put.is_ok() {
                    break;
                }
                failed += 1;
            }
            assert!(failed > 1, "{failed}");
        }
    }

    /// A key with a version on each volume, the older one on the first, as a crash may leave it.
    fn torn(daemons: Daemons) -> (Store, Vec<u8>) {
        let device = |seed| Arc::new(FaultyDevice::new(Arc::new(MemoryDevice::new(32 << 20)), seed));
        let options = options(&[device(1), device(2)]).with(|options| options.daemons = daemons);
        let (store, key) = (Store::open(options).unwrap(), b"a key".to_vec());
        let hash = store.hasher().key(&key);
        for (volume, body) in store.volumes().iter().zip([&b"old"[..], b"new"]) {
            let (kind, metadata, options) = (Kind::Whole, &[][..], &PutOptions::default());
            let parts = Parts { kind, key: &key, metadata, body, expires: 0, volume: Some(volume), options };
            let crc = picaflor_format::frame::payload_crc(&key, metadata, body);
            let draft = parts.draft(hash, (store.shared().next_generation(), 0), crc);
            let framed = volume.append(&draft, Class::Rest, None, None, Purpose::Put).unwrap();
            assert!(framed.is_ok());
        }
        (store, key)
    }

    #[test]
    fn a_task_gets_the_newest_of_two_versions_too() {
        for daemons in [Daemons::Manual, Daemons::Threads] {
            let (store, key) = torn(daemons);
            let found = futures_executor::block_on(store.get_async(&key)).unwrap().unwrap();
            assert_eq!(found.bytes().unwrap(), &b"new"[..]);
            assert_eq!(store.holding(store.hasher().key(&key)), 1);
        }
    }

    #[test]
    fn a_task_does_not_wait_for_who_settles_rivals() {
        let (store, key) = torn(Daemons::Threads);
        let settling = store.lock_key(store.hasher().key(&key));
        let mut context = Context::from_waker(Waker::noop());
        assert!(matches!(store.try_get(&key), TryGet::OnDevice));
        let mut get = Box::pin(store.get_async(&key));
        assert!(get.as_mut().poll(&mut context).is_pending());
        let mut delete = Box::pin(store.delete_async(b"another"));
        assert!(matches!(delete.as_mut().poll(&mut context), Poll::Ready(Ok(false))));
        drop(settling);
        let found = futures_executor::block_on(get).unwrap().unwrap();
        assert_eq!(found.bytes().unwrap(), &b"new"[..]);
        assert!(futures_executor::block_on(store.delete_async(&key)).unwrap());
        assert!(store.get(&key).unwrap().is_none());
    }

    #[test]
    fn no_volume_says_that_a_version_is_gone_before_another_has_the_next() {
        for len in [10, LARGE] {
            for first in 0..2 {
                let two = two();
                two.store.put(&two.key, &vec![7; len], &PutOptions::default()).unwrap();
                // The power fails when one of them has committed.
                two.store.volumes()[first].commit_now().unwrap();
                let store = after_a_power_failure(&two);
                let found = body(&store, &two.key);
                assert!(found == KEPT || found == vec![7; len], "{len} bytes, volume {first} first");
            }
        }
    }
}
