//! Delete: index, then the delete log.
//!
//! A delete is logged even if the key is not in the index: recovery might know an older version of it
//! that this run has evicted. Durable within the bound that [`Options`](crate::Options) give for deletes.

use std::{future::Future, io, sync::Arc};

use bytes::Bytes;
use picaflor_format::{
    BLOCK,
    frame::{ChunkKey, GRAIN, HEADER, Header, Kind, Manifest},
    journal::Record,
};

use crate::{
    Error, Mode, Refusal, Result,
    hash::KeyHash,
    index::{Location, Word},
    put::{wait, wait_async},
    stats::add,
    store::Store,
    tabled::{Former, Tabled},
    volume::Volume,
};

/// Metadata up to which a cache looks whether what it deletes is a manifest, so that chunks leave with their object.
/// Those of one with more are never asked for again, and age.
const MANIFEST_METADATA: usize = 64;

/// A key's own entry.
pub(crate) struct Own {
    pub(crate) word: Word,
    /// If the object is a large one and that is known.
    pub(crate) manifest: Option<Manifest>,
    /// Its version; 0 where that is not known.
    pub(crate) generation: u64,
}

impl Store {
    /// Deletes an object. Returns whether it was there. No later get returns it, and once durable no crash
    /// brings it back.
    ///
    /// # Errors
    /// [`Error::Io`] after a device failure; [`Error::Refused`] if the store is open for reading only.
    pub fn delete(&self, key: &[u8]) -> Result<bool> {
        let hash = self.begin_delete(key)?;
        let found = {
            let _stripe = self.lock_key(hash);
            self.delete_held(hash, key)?
        };
        self.settle_delete()?.into_iter().try_for_each(|awaited| wait(Some(awaited)))?;
        Ok(found)
    }

    /// As [`Store::delete`], for any executor. Where nobody holds the key's lock, and the device need not be read to
    /// tell the key from others, the object is gone before the future is returned; else that is done aside. Begun by
    /// the call either way, whatever becomes of the future; what is left to it is to wait until the deletes before are
    /// durable, where [`Options::delete_count`](crate::Options::delete_count) asks for that.
    ///
    /// # Errors
    /// As [`Store::delete`].
    pub fn delete_async(&self, key: &[u8]) -> impl Future<Output = Result<bool>> + Send + 'static + use<> {
        let begun = match self.delete_at_once(key) {
            Ok(None) => {
                let key = Bytes::copy_from_slice(key);
                Err(self.aside(move |store| store.delete(&key)))
            }
            at_once => Ok(at_once.and_then(|found| Ok((found.unwrap_or(false), self.settle_delete()?)))),
        };
        async move {
            let (found, commits) = match begun {
                Ok(at_once) => at_once?,
                Err(aside) => return aside.await,
            };
            for awaited in commits {
                wait_async(Some(awaited)).await?;
            }
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
        if let Some(tabled) = self.tabled().filter(|_| !self.shared().options.read_only) {
            tabled.flush()?;
        }
        self.commits_of_deletes().into_iter().try_for_each(|awaited| wait(Some(awaited)))
    }

    /// As [`Store::flush_deletes`] for tasks.
    ///
    /// # Errors
    /// As [`Store::flush_deletes`].
    pub async fn flush_deletes_async(&self) -> Result<()> {
        if self.tabled().is_some() {
            return self.aside(Self::flush_deletes).await;
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
        let volumes = self.volumes().iter().filter(|volume| !self.is_lost(volume));
        volumes.map(|volume| (Arc::clone(volume), volume.commits.next())).collect()
    }

    fn begin_delete(&self, key: &[u8]) -> Result<KeyHash> {
        if self.shared().options.read_only {
            return Err(Error::Refused(Refusal::ReadOnly));
        }
        Ok(self.hasher().key(key))
    }

    /// Deletes it if that takes neither a wait nor a look at the device; else `None`, and nothing was done.
    fn delete_at_once(&self, key: &[u8]) -> Result<Option<bool>> {
        let hash = self.begin_delete(key)?;
        if self.tabled().is_some() || !self.late().is_over() {
            return Ok(None);
        }
        let Some(_stripe) = self.shared().try_lock_key(hash.short()) else { return Ok(None) };
        if self.has_rivals(hash) || !self.volumes().iter().all(|volume| self.leaves_unread(volume, hash, key)) {
            return Ok(None);
        }
        self.delete_held(hash, key).map(Some)
    }

    /// Whether nothing need be read to delete this key here.
    fn leaves_unread(&self, volume: &Arc<Volume>, hash: KeyHash, key: &[u8]) -> bool {
        volume.index.candidates(hash.short()).iter().all(|word| match word.location() {
            Location::OnDisk { .. } => self.drops_unread(*word, key),
            Location::Buffered { slot, offset } => {
                let frame = volume.buffers.read(slot, offset as usize * GRAIN, hash.short(), |_, _| true);
                // The chunks of a large object may be anywhere.
                frame.is_some_and(|frame| frame.header.kind != Kind::Manifest)
            }
        })
    }

    /// By who holds the key's lock.
    fn delete_held(&self, hash: KeyHash, key: &[u8]) -> Result<bool> {
        let shared = self.shared();
        let mut found = false;
        if let Some(tabled) = self.tabled() {
            found = self.delete_from_table(tabled, hash, key)?;
        } else {
            let generation = shared.next_generation();
            let volumes = || self.volumes().iter().filter(|volume| !self.is_lost(volume));
            // Before anything is dropped: half a delete would let an older version be seen.
            if let Some(failure) = volumes().find_map(|volume| volume.commits.failure()) {
                return Err(failure);
            }
            // The newest version goes last.
            self.settle_rivals(hash, key, true)?;
            for volume in volumes() {
                while let Some(own) = self.doomed(volume, hash, key)? {
                    found |= volume.drop_entry(hash.short(), own.word);
                    if let Some(manifest) = own.manifest {
                        self.drop_chunks(hash, manifest);
                    }
                }
                volume.placer.drop_copies(hash.short());
            }
            self.record_delete(hash, generation);
            // In a cache it may be in memory though its entry went to another key of its place.
            shared.memory.remove(hash.short());
        }
        add(&shared.counters.deletes, 1);
        Ok(found)
    }

    /// Sees to it that a delete becomes durable in its time. Returns the commits that its caller has to wait for.
    fn settle_delete(&self) -> Result<Vec<(Arc<Volume>, u64)>> {
        let options = &self.shared().options;
        let mut awaited = Vec::new();
        for volume in self.volumes().iter().filter(|volume| !self.is_lost(volume)) {
            // What a volume that stopped writing is told, it forgets with the next crash.
            if let Some(failure) = volume.commits.failure() {
                return Err(failure);
            }
            // Whether anybody waits for it or not.
            volume.due_within(options.delete_time);
            if volume.journal.lock().volatile_deletes() >= options.delete_count {
                awaited.push((Arc::clone(volume), volume.commits.next()));
            }
        }
        Ok(awaited)
    }

    /// Deletes an object if it is this version still. Returns whether it was.
    pub(crate) fn delete_version(&self, key: &[u8], generation: u64) -> Result<bool> {
        if self.shared().options.read_only {
            return Ok(false);
        }
        let hash = self.hasher().key(key);
        let _stripe = self.lock_key(hash);
        if let Some(tabled) = self.tabled() {
            let is_it = tabled.generation(key)?.is_some_and(|found| found == generation);
            return if is_it { self.delete_from_table(tabled, hash, key) } else { Ok(false) };
        }
        for volume in self.volumes().iter().filter(|volume| !self.is_lost(volume)) {
            let own = self.verified(volume, hash, key, Kind::Whole)?;
            let Some(own) = own.filter(|own| own.generation == generation) else { continue };
            if volume.drop_entry(hash.short(), own.word) {
                self.record_delete(hash, generation);
                volume.due_within(self.shared().options.delete_time);
                own.manifest.into_iter().for_each(|manifest| self.drop_chunks(hash, manifest));
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// By who holds the key's lock.
    fn delete_from_table(&self, tabled: &Tabled, hash: KeyHash, key: &[u8]) -> Result<bool> {
        let former = tabled.take(hash, key)?;
        let found = former.is_some();
        former.into_iter().for_each(|former| self.drop_former(tabled, hash, former));
        Ok(found)
    }

    /// Drops the chunks of a version that a table does not hold any more, if it had any; by who holds the key's lock.
    pub(crate) fn drop_former(&self, tabled: &Tabled, hash: KeyHash, former: Former) {
        former.manifest.into_iter().for_each(|manifest| tabled.drop_chunks(hash, manifest));
    }

    /// Logs a delete on all volumes, as one: a checkpoint of one of them relies on the others knowing of it too.
    pub(crate) fn record_delete(&self, hash: KeyHash, generation: u64) {
        let working = self.volumes().iter().filter(|volume| !self.is_lost(volume));
        let mut journals: Vec<_> = working.map(|volume| volume.journal.lock()).collect();
        let record = Record::Delete { hash: hash.0, generation, everywhere: self.volumes().len() > 1 };
        journals.iter_mut().for_each(|journal| journal.push(record));
    }

    /// The entry that a delete of this key drops.
    fn doomed(&self, volume: &Arc<Volume>, hash: KeyHash, key: &[u8]) -> Result<Option<Own>> {
        let word = volume.index.candidates(hash.short()).pop().filter(|word| self.drops_unread(*word, key));
        match word {
            Some(word) => Ok(Some(Own { word, manifest: None, generation: 0 })),
            None => self.verified(volume, hash, key, Kind::Whole),
        }
    }

    /// Whether a delete of this key drops such an entry without reading. A cache does, by the reasoning of
    /// [`Self::own`], with what is too long for the manifest of a large object; else a delete of a cold object would
    /// cost a read of the device.
    fn drops_unread(&self, word: Word, key: &[u8]) -> bool {
        let longest = (HEADER + key.len() + MANIFEST_METADATA + Manifest::LEN).div_ceil(GRAIN) as u32;
        self.mode() == Mode::Cache && self.shared().options.eviction_listener.is_none() && word.grains() > longest
    }

    /// The entry that a put of this key replaces. A cache takes any that fits: with the rare other key of
    /// the same place it loses an object, as by eviction: one put in ten thousand does; and it drops the others
    /// that recovery may have found there, for one of them may be an older version of this key. A store makes
    /// sure, by reading, and so does a cache whose listener is to hear of each object that leaves.
    pub(crate) fn own(&self, volume: &Arc<Volume>, hash: KeyHash, key: &[u8], kind: Kind) -> Result<Option<Own>> {
        match self.mode() {
            Mode::Cache if self.shared().options.eviction_listener.is_none() => {
                let mut candidates = volume.index.candidates(hash.short());
                let word = candidates.pop();
                for other in candidates {
                    volume.drop_entry(hash.short(), other);
                }
                Ok(word.map(|word| Own { word, manifest: None, generation: 0 }))
            }
            _ => self.verified(volume, hash, key, kind),
        }
    }

    /// The entry whose frame has this key, found by reading frames.
    pub(crate) fn verified(&self, volume: &Arc<Volume>, hash: KeyHash, key: &[u8], kind: Kind) -> Result<Option<Own>> {
        let chunk = kind == Kind::Chunk;
        let mut candidates = volume.index.candidates(hash.short());
        // Whoever's entry it is, it leads nowhere; this key's only if no other is.
        let mut unreadable = None;
        while let Some(word) = candidates.pop() {
            let (mut manifest, mut generation) = (None, 0);
            let mut leads_nowhere = false;
            let accept = |header: &Header, frame: &[u8]| {
                let is_own = (header.kind == Kind::Chunk) == chunk && header.key(frame) == key;
                generation = header.generation;
                manifest = header.manifest(frame).filter(|_| is_own);
                is_own
            };
            let is_own = match volume.look_at(hash.short(), word, accept) {
                Ok(is_own) => is_own.unwrap_or(false),
                Err(error) if matches!(error, Error::Damaged { .. }) || self.mode() == Mode::Cache => {
                    leads_nowhere = true;
                    false
                }
                Err(error) => return Err(error),
            };
            if volume.index.find(hash.short(), word.location()).is_none() {
                // It moved while it was looked at: a buffer was retired, or a cluster read in.
                candidates = volume.index.candidates(hash.short());
                unreadable = None;
            } else if is_own {
                return Ok(Some(Own { word, manifest, generation }));
            } else if leads_nowhere {
                unreadable = Some(Own { word, manifest: None, generation: 0 });
            }
        }
        Ok(unreadable)
    }

    /// Drops the chunks of a large object that is gone.
    pub(crate) fn drop_chunks(&self, parent: KeyHash, manifest: Manifest) {
        self.tabled().iter().for_each(|tabled| tabled.drop_chunks(parent, manifest));
        self.volumes().iter().for_each(|volume| self.drop_chunks_of(volume, parent, manifest));
    }

    fn drop_chunks_of(&self, volume: &Arc<Volume>, parent: KeyHash, manifest: Manifest) {
        for number in 0..manifest.chunks() {
            let key = ChunkKey { parent: parent.0, id: manifest.id, number }.encode();
            let hash = self.hasher().chunk(&key);
            // Until it is gone: an entry may move between the look and the drop.
            while let Ok(Some(own)) = self.own(volume, hash, &key, Kind::Chunk) {
                volume.drop_entry(hash.short(), own.word);
            }
        }
    }
}

impl Volume {
    fn verified_file(&self, grain: u64, read: io::Result<Vec<u8>>) -> Result<(Header, Vec<u8>)> {
        let place = || format!("{}: file {grain}", self.place);
        add(&self.shared.counters.device_reads, 1);
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let damaged = |why: String| Error::Damaged {
            place: place(),
            why,
            mend: "its entry is dropped when it is asked for".into(),
        };
        let frame = match read {
            Err(error) if gone(&error) => return Err(damaged("it is not there".into())),
            read => read.map_err(|error| Error::io(place(), error))?,
        };
        let header = Header::verify(&frame).map_err(|why| damaged(why.to_string()))?;
        Ok((header, frame))
    }

    /// Shows the frame that an entry leads to, its header first; `None` if the entry's buffer is gone.
    ///
    /// # Errors
    /// As [`Volume::read_frame`].
    pub(crate) fn look_at<R>(&self, hash: u64, word: Word, see: impl FnOnce(&Header, &[u8]) -> R) -> Result<Option<R>> {
        match word.location() {
            Location::Buffered { slot, offset } => {
                let frame = self.buffers.read(slot, offset as usize * GRAIN, hash, |_, _| true);
                Ok(frame.map(|frame| see(&frame.header, frame.bytes())))
            }
            Location::OnDisk { grain } => {
                self.read_frame(grain, word.grains()).map(|(header, frame)| Some(see(&header, &frame)))
            }
        }
    }

    /// Reads and verifies the frame at a grain: twice before it is damaged, for its bytes may have been bad on their
    /// way only, and an entry is dropped for it.
    ///
    /// # Errors
    /// [`Error::Io`] from the device, [`Error::Damaged`] if there is no intact frame.
    pub(crate) fn read_frame(&self, grain: u64, grains: u32) -> Result<(Header, Vec<u8>)> {
        match self.read_frame_once(grain, grains) {
            Err(Error::Damaged { .. }) => self.read_frame_once(grain, grains),
            read => read,
        }
    }

    fn read_frame_once(&self, grain: u64, grains: u32) -> Result<(Header, Vec<u8>)> {
        if let Some(read) = self.read_file(grain) {
            return self.verified_file(grain, read);
        }
        let offset = grain * GRAIN as u64;
        let start = offset / BLOCK as u64 * BLOCK as u64;
        let end = (offset + u64::from(grains) * GRAIN as u64).next_multiple_of(BLOCK as u64);
        let end = end.min(self.map.clusters.end());
        let pending = self.pending(start, (end - start) as usize);
        let mut buf = self.shared.pool.take((end - start) as usize);
        add(&self.shared.counters.device_reads, 1);
        add(&self.shared.counters.device_read, buf.len() as u64);
        self.device
            .read(start, &mut buf)
            .map_err(|error| Error::io(format!("{}: reading at {start}", self.place), error))?;
        pending.inspect(|pending| pending.lay_over(start, &mut buf));
        let frame = &buf[(offset - start) as usize..];
        let header = Header::verify(frame).map_err(|why| Error::Damaged {
            place: format!("{}: object at {offset}", self.place),
            why: why.to_string(),
            mend: "its entry is dropped when it is asked for".into(),
        })?;
        Ok((header, frame[..header.frame_len().min(frame.len())].to_vec()))
    }
}
