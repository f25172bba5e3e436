//! Delete and invalidate: index, then the delete log. A delete reads what tells its key from others of the same place
//! in the index, for it says whether the object was there; an invalidation says nothing, and in a cache reads nothing.
//!
//! A delete is logged even if the key is not in the index: recovery might know an older version of it
//! that this run has evicted. Durable within the bound that [`Options`](crate::Options) give for deletes.

use std::{future::Future, sync::Arc};

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_format::frame::{GRAIN, Kind};

use crate::{
    Error, Refusal, Result,
    base::layout::Layout,
    base::stats::add,
    handle::Store,
    index::Location,
    ops::awaited::{Awaited, wait, wait_async},
    read::together::{Asked, Together},
    read::verify::Telling,
    volume::Volume,
};

/// What tells a key from others of its place in the index.
#[derive(Clone, Copy)]
enum Tell<'a> {
    /// A look at what the entries lead to; at what was read together, if there is that.
    Looking(Option<&'a Together>),
    /// Nothing, where that is enough: see [`Frames::deleted_unread`](crate::read::verify::Frames::deleted_unread).
    ByIndex,
}

impl<'a> Tell<'a> {
    fn is_by_index(self) -> bool {
        matches!(self, Self::ByIndex)
    }

    fn together(self) -> Option<&'a Together> {
        match self {
            Self::Looking(together) => together,
            Self::ByIndex => None,
        }
    }
}

impl Store {
    /// Deletes an object. Returns whether it was there. No later get returns it, and once durable no crash
    /// brings it back. Reads what tells which key the object has, unless memory knows: the table of its cluster, which
    /// then stays there for the next ones, or its first block; [`Store::invalidate`] does not.
    ///
    /// # Errors
    /// [`Error::Io`] after a device failure; [`Error::Refused`] if the store is open for reading only.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        self.delete_by(key, Tell::Looking(None))
    }

    /// As [`Store::delete`], for a caller that need not know whether the object was there. A cache then reads nothing
    /// but for objects larger than half a cluster: what its index has at the key's place goes. With an absent key that
    /// may be another one's object, which leaves as by an eviction: 1 of some 8,000 times, with objects of 8 KiB. A
    /// store, and a cache with an eviction listener, which is to hear of each object that leaves, delete.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn invalidate(&self, key: &[u8]) -> Result<()> {
        self.delete_by(key, Tell::ByIndex).map(drop)
    }

    fn delete_by(&self, key: &[u8], tell: Tell<'_>) -> Result<bool> {
        let hash = self.hash_to_delete(key)?;
        let found = {
            let _stripe = self.lock_key(hash);
            self.delete_held(hash, key, tell)?
        };
        wait(self.settle_delete(hash, key)?)?;
        Ok(found)
    }

    /// As [`Store::delete`], for any executor. Nothing happens before the future is polled. The first poll does what
    /// [`Store::begin_delete`] does: from then on the object goes, whatever becomes of the future.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub async fn delete_async(&self, key: &[u8]) -> Result<bool> {
        self.begin_delete(key).await
    }

    /// Begins to delete an object, by this call; the future that it returns borrows nothing and waits for the rest.
    /// Where the key's lock is free, and no entry leads to the device, which would have to be read to tell the key
    /// from others, the object is gone when this returns; else that runs in the blocking pool, whatever becomes of the
    /// future. What is left to it is to wait until the deletes before are durable, where
    /// [`Options::delete_count`](crate::Options::delete_count) asks for that.
    ///
    /// # Errors
    /// As [`Store::delete`]: all of them come from the future.
    pub fn begin_delete(&self, key: &[u8]) -> impl Future<Output = Result<bool>> + Send + 'static + use<> {
        self.begin_delete_by(key, Tell::Looking(None))
    }

    /// As [`Store::invalidate`], for any executor; as [`Store::delete_async`] does, it begins with the first poll.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub async fn invalidate_async(&self, key: &[u8]) -> Result<()> {
        self.begin_invalidate(key).await
    }

    /// As [`Store::begin_delete`], but by [`Store::invalidate`]'s rule: nearly always the object is gone when this
    /// returns.
    ///
    /// # Errors
    /// As [`Store::delete`]: all of them come from the future.
    pub fn begin_invalidate(&self, key: &[u8]) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let begun = self.begin_delete_by(key, Tell::ByIndex);
        async move { begun.await.map(drop) }
    }

    fn begin_delete_by(
        &self,
        key: &[u8],
        tell: Tell<'static>,
    ) -> impl Future<Output = Result<bool>> + Send + 'static + use<> {
        let begun = match self.delete_at_once(key, tell) {
            Ok(None) => {
                let key = Bytes::copy_from_slice(key);
                Err(self.spawn_blocking(move |store| store.delete_by(&key, tell)))
            }
            at_once => Ok(at_once
                .and_then(|found| Ok((found.unwrap_or(false), self.settle_delete(self.hasher().key(key), key)?)))),
        };
        async move {
            let (found, awaited) = match begun {
                Ok(at_once) => at_once?,
                Err(aside) => return aside.await,
            };
            wait_async(awaited).await?;
            Ok(found)
        }
    }

    /// Returns when every delete before is durable, whatever [`Options::delete_time`](crate::Options::delete_time) and
    /// [`Options::delete_count`](crate::Options::delete_count) allow. Puts keep their own bound, and objects that wait
    /// for company go on waiting, as they do not with [`Store::flush`].
    ///
    /// # Errors
    /// The failure that stopped a volume.
    pub fn flush_deletes(&self) -> Result<()> {
        if let Some(layout) = self.layout().filter(|_| !self.shared().options.read_only) {
            layout.flush()?;
        }
        self.commits_of_deletes().into_iter().try_for_each(|awaited| wait(Some(awaited)))
    }

    /// As [`Store::flush_deletes`] for tasks.
    ///
    /// # Errors
    /// As [`Store::flush_deletes`].
    pub async fn flush_deletes_async(&self) -> Result<()> {
        if self.layout().is_some() {
            return self.spawn_blocking(Self::flush_deletes).await;
        }
        for awaited in self.commits_of_deletes() {
            wait_async(Some(awaited)).await?;
        }
        Ok(())
    }

    /// The commits that will cover every delete so far.
    fn commits_of_deletes(&self) -> Vec<(Arc<Volume>, u64)> {
        if self.shared().options.read_only {
            return Vec::new();
        }
        let volumes = self.recovered_volumes().iter().filter(|volume| !self.is_lost(volume));
        volumes.map(|volume| (Arc::clone(volume), volume.log.commits.next())).collect()
    }

    pub(crate) fn hash_to_delete(&self, key: &[u8]) -> Result<KeyHash> {
        if self.shared().options.read_only {
            return Err(Error::Refused(Refusal::ReadOnly));
        }
        Ok(self.hasher().key(key))
    }

    /// Deletes it if that takes neither a wait nor a look at the device; else `None`, and nothing was done.
    fn delete_at_once(&self, key: &[u8], tell: Tell<'_>) -> Result<Option<bool>> {
        let hash = self.hash_to_delete(key)?;
        if self.layout().is_some() || !self.deferred().is_over() {
            return Ok(None);
        }
        let Some(_stripe) = self.shared().try_lock_key(hash.short()) else { return Ok(None) };
        let volume = self.home(hash, key);
        let waits = self.is_lost(volume) && !self.is_loss_noted(volume);
        if waits || !Self::leaves_unread(volume, hash, tell) {
            return Ok(None);
        }
        self.delete_held(hash, key, tell).map(Some)
    }

    /// Whether nothing need be read to delete this key here.
    fn leaves_unread(volume: &Volume, hash: KeyHash, tell: Tell<'_>) -> bool {
        if volume.frames.deleted_unread(hash, tell.is_by_index()).is_some() {
            return true;
        }
        volume.catalog.index.candidates(hash.short()).iter().all(|entry| match entry.location() {
            Location::OnDisk { .. } => {
                let tables = &volume.frames.tables;
                tables.tell(*entry, hash, Kind::Whole, |granted| tables.kept(granted)).is_some()
            }
            Location::Buffered { slot, offset } => {
                let frame = volume.catalog.buffers.read(slot, offset as usize * GRAIN, hash.short(), |_, _| true);
                // The chunks of a large object may be anywhere.
                frame.is_some_and(|frame| frame.header.kind != Kind::Manifest)
            }
        })
    }

    /// Deletes keys of this store's volumes, so many together. What tells them from others is read meanwhile.
    pub(crate) fn delete_together(&self, keys: &[(KeyHash, &[u8])], together: usize) -> Result<Vec<bool>> {
        let ask = |keys: &[(KeyHash, &[u8])]| {
            self.recovered_volumes().iter().map(|volume| self.ask_for(volume, keys)).collect()
        };
        let mut were_there = Vec::with_capacity(keys.len());
        let mut parts = keys.chunks(together);
        let mut coming: Option<(_, Vec<Asked>)> = parts.next().map(|keys| (keys, ask(keys)));
        while let Some((keys, asked)) = coming {
            coming = parts.next().map(|keys| (keys, ask(keys)));
            let read: Vec<Together> = asked.into_iter().map(Asked::wait).collect();
            // By device: its last commit covers those before it.
            let mut last: Vec<Awaited> = vec![None; read.len()];
            for &(hash, key) in keys {
                let home = self.home(hash, key).medium.number;
                let stripe = self.lock_key(hash);
                were_there.push(self.delete_held(hash, key, Tell::Looking(Some(&read[home])))?);
                drop(stripe);
                last[home] = self.settle_delete(hash, key)?.or(last[home].take());
            }
            last.into_iter().try_for_each(wait)?;
        }
        Ok(were_there)
    }

    /// Asks a volume for what tells those of these keys from others whose home it is.
    fn ask_for(&self, volume: &Arc<Volume>, keys: &[(KeyHash, &[u8])]) -> Asked {
        let own = keys.iter().filter(|(hash, key)| self.home(*hash, key).medium.number == volume.medium.number);
        let is_read = |hash: &KeyHash| volume.frames.deleted_unread(*hash, false).is_none();
        Together::ask(&volume.frames.tables, own.map(|(hash, _)| *hash).filter(is_read))
    }

    /// By the holder of the key's lock.
    fn delete_held(&self, hash: KeyHash, key: &[u8], tell: Tell<'_>) -> Result<bool> {
        let shared = self.shared();
        let mut found = false;
        if let Some(layout) = self.layout() {
            found = self.remove_from_layout(&**layout, hash, key)?;
        } else {
            let volume = self.home(hash, key);
            if self.is_lost(volume) {
                self.note_loss(volume)?;
            } else {
                found = self.delete_from(volume, hash, key, tell)?;
            }
            // In a cache it may be in memory though its entry went to another key of its place.
            found |= shared.memory.remove(hash.short()).is_some_and(|frame| frame.key() == key);
        }
        add(&shared.counters.deletes, 1);
        Ok(found)
    }

    /// Drops what a volume has of a key, and logs it.
    fn delete_from(&self, volume: &Arc<Volume>, hash: KeyHash, key: &[u8], tell: Tell<'_>) -> Result<bool> {
        // Before anything is dropped: a delete that failed leaves the object.
        if let Some(failure) = volume.log.commits.failure() {
            return Err(failure);
        }
        let generation = self.shared().next_generation();
        let (mut found, mut told) = (false, false);
        while let Some(entry) = volume.frames.deleted_unread(hash, tell.is_by_index()) {
            found |= volume.catalog.drop_entry(hash.short(), entry);
        }
        let by = Telling::Tables(tell.together());
        while let Some(own) = volume.frames.verified_by(by, hash, key, Kind::Whole)? {
            // What could not be read leaves as well; its key is not known.
            found |= volume.catalog.drop_entry(hash.short(), own.entry) && own.is_known;
            if let Some(manifest) = own.manifest {
                // First: a commit meanwhile lets others have the places of chunks, and must take the record too.
                if !std::mem::replace(&mut told, true) {
                    volume.log.forget(hash, generation);
                }
                volume.frames.drop_chunks(hash, manifest);
            }
        }
        volume.catalog.placer.drop_copies(hash.short());
        if !told {
            volume.log.forget(hash, generation);
        }
        Ok(found)
    }

    /// Sees to it that a delete becomes durable in its time. Returns the commit that its caller has to wait for.
    fn settle_delete(&self, hash: KeyHash, key: &[u8]) -> Result<Awaited> {
        if self.layout().is_some() {
            return Ok(None);
        }
        let volume = self.home(hash, key);
        if self.is_lost(volume) {
            // Others have noted that its device failed.
            return Ok(None);
        }
        // What a volume that stopped writing is told, it forgets with the next crash.
        if let Some(failure) = volume.log.commits.failure() {
            return Err(failure);
        }
        // Whether a caller waits for it or not.
        let options = &self.shared().options;
        volume.log.due_within(options.delete_time);
        let journal = volume.log.journal.lock();
        let waits =
            journal.volatile_deletes() >= options.delete_count || journal.is_long() || volume.log.commits.is_refusing();
        drop(journal);
        Ok(waits.then(|| (Arc::clone(volume), volume.log.commits.next())))
    }

    /// Deletes an object if it is this version still. Returns whether it was.
    pub(crate) fn delete_version(&self, key: &[u8], generation: u64) -> Result<bool> {
        if self.shared().options.read_only {
            return Ok(false);
        }
        let hash = self.hasher().key(key);
        let _stripe = self.lock_key(hash);
        if let Some(layout) = self.layout() {
            let is_it = layout.generation(key)?.is_some_and(|found| found == generation);
            return if is_it { self.remove_from_layout(&**layout, hash, key) } else { Ok(false) };
        }
        let volume = self.home(hash, key);
        let own = volume.frames.verified(hash, key, Kind::Whole)?;
        let Some(own) = own.filter(|own| own.header.is_some_and(|header| header.generation == generation)) else {
            return Ok(false);
        };
        let dropped = volume.catalog.drop_entry(hash.short(), own.entry);
        if dropped {
            volume.log.forget(hash, generation);
            volume.log.due_within(self.shared().options.delete_time);
            own.manifest.into_iter().for_each(|manifest| volume.frames.drop_chunks(hash, manifest));
        }
        Ok(dropped)
    }

    /// By the holder of the key's lock.
    fn remove_from_layout(&self, layout: &dyn Layout, hash: KeyHash, key: &[u8]) -> Result<bool> {
        let former = layout.remove(hash, key)?;
        let found = former.is_some();
        former.into_iter().for_each(|former| self.drop_former(layout, hash, former));
        Ok(found)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test that cannot go on says so")]
mod tests {
    use std::collections::HashMap;

    use picaflor_device::MemoryDevice;

    use crate::{Daemons, Options, Store};

    #[test]
    fn a_delete_of_an_absent_key_leaves_another_of_the_same_place_and_says_so() {
        let device = std::sync::Arc::new(MemoryDevice::new(32 << 20));
        let options = || {
            Options::on(device.clone()).memory(8 << 20).with(|options| {
                (options.cluster, options.seed, options.daemons) = (64 << 10, Some(7), Daemons::Manual);
            })
        };
        let store = Store::open(options()).unwrap();
        let key = |i: u32| format!("key {i}").into_bytes();
        // By what the index keeps of a hash, whatever the number of its segments.
        let place = |i: u32| {
            let hash = store.hasher().key(&key(i)).short();
            (hash >> 58, hash & 0xff_ffff)
        };
        let mut seen = HashMap::new();
        let (there, absent) = (0..).find_map(|i| Some((seen.insert(place(i), i)?, i))).unwrap();
        store.put(&key(there), &[7; 9000]).unwrap();
        store.close().unwrap();
        let store = Store::open(options()).unwrap();
        assert!(!store.delete(&key(absent)).unwrap(), "it was never there");
        assert_eq!(store.delete_many(&[&key(absent)]).unwrap(), [false]);
        assert!(store.contains(&key(there)).unwrap(), "nobody deleted it");
        assert!(store.delete(&key(there)).unwrap());
        assert!(!store.contains(&key(there)).unwrap());
    }
}
