//! What concerns a whole store: opening, closing, durability, groups, what it holds and did.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use parking_lot::Mutex;
use picaflor_format::{frame::GRAIN, journal::Record};

use crate::{
    Error, Options, Priority, Receipt, Result, Stats,
    background::daemons::Threads,
    base::blocking::later,
    base::group::CheckpointInterval,
    handle::{Inner, Store},
    ops::fetches::Fetches,
    recovery,
    volume::Volume,
};

impl Store {
    /// Opens a store, making it first if its place is empty.
    ///
    /// # Errors
    /// [`Error::Option`] for options that cannot work, [`Error::Version`] and [`Error::Damaged`] for a place that
    /// holds something else, [`Error::Io`] for what the device says, and where the system gives no threads.
    ///
    /// [`Error::Option`]: crate::Error::Option
    /// [`Error::Version`]: crate::Error::Version
    /// [`Error::Damaged`]: crate::Error::Damaged
    /// [`Error::Io`]: crate::Error::Io
    pub fn open(options: Options) -> Result<Self> {
        Self::open_after(options, None)
    }

    fn open_after(options: Options, before: Option<Box<Receipt>>) -> Result<Self> {
        let opened = recovery::open(options.clone(), before)?;
        if !opened.fewer.is_empty() {
            opened.deferred.end();
            recovery::shrink(&opened.volumes, &opened.fewer)?;
            let before = Box::new(opened.deferred.receipt().clone());
            drop(opened);
            return Self::open_after(options, Some(before));
        }
        if opened.volumes.iter().any(|volume| volume.scrubber.recovers_in_steps()) {
            opened.deferred.end();
            for volume in &opened.volumes {
                while volume.scrubber.is_warming() {
                    volume.scrubber.step();
                }
            }
        }
        let threads = Threads::start(&opened.shared, &opened.volumes, opened.layout.as_ref(), &opened.deferred)?;
        let inner = Inner {
            shared: opened.shared,
            volumes: opened.volumes,
            layout: opened.layout,
            hasher: opened.hasher,
            deferred: opened.deferred,
            threads,
            blocking: Arc::default(),
            fetches: Fetches::default(),
            resizing: Mutex::new(()),
        };
        opened.created.keep();
        Ok(Self { inner: Arc::new(inner) })
    }

    /// As [`Store::open`] for tasks: a thread reads what an opening reads, from the first poll on. With
    /// [`crate::Daemons::Manual`] that poll does it.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub async fn open_async(options: Options) -> Result<Self> {
        later(options.daemons, &Arc::default(), move || Self::open(options)).await
    }

    /// Gives the store so many bytes in all, as [`Options::capacity`] does at an opening, while it is at work: its
    /// files are made longer, and what comes next has the new room. Nothing is done where it has as many; one that is
    /// to have fewer gives the rest back where it is opened.
    ///
    /// Returns when that is durable. A crash before leaves the store as large as it was, or as it is to be.
    ///
    /// # Errors
    /// [`Error::Option`] for a capacity that an opening would refuse, or that is less than the store has;
    /// [`Error::Io`] where there is no room for the bytes that are new. The store goes on as it was.
    ///
    /// [`Error::Option`]: crate::Error::Option
    /// [`Error::Io`]: crate::Error::Io
    pub fn grow(&self, capacity: u64) -> Result<()> {
        let _one = self.inner.resizing.lock();
        recovery::grow_at_work(self.shared(), self.recovered_volumes(), capacity)
    }

    /// Longest body that a put may have: a quarter of the smallest volume.
    pub fn object_max(&self) -> u64 {
        let each = self.recovered_volumes().iter().map(|volume| volume.medium.map().clusters.len / 4);
        each.chain(self.layout().map(|layout| layout.object_max())).min().unwrap_or(0)
    }

    /// What opening found, kept and dropped, and why. Waits until that is known: a cache gives gets their answers
    /// before.
    pub fn receipt(&self) -> &Receipt {
        self.deferred().receipt()
    }

    /// Whether a get would find the key now. May read the device to tell this key from another one.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn contains(&self, key: &[u8]) -> Result<bool> {
        Ok(self.whole(key)?.is_some())
    }

    /// As [`Store::contains`], for any executor.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn contains_async(&self, key: &[u8]) -> impl Future<Output = Result<bool>> + Send + 'static + use<> {
        let whole = self.whole_async(key);
        async move { Ok(whole.await?.is_some()) }
    }

    /// The group that the object with this key was put into (Dámelo §3, `lookup`); 0 is none. `None` if a get would not
    /// find the key. May read the device, and what it reads stays in memory as it would after a get.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn group_of(&self, key: &[u8]) -> Result<Option<u32>> {
        Ok(self.whole(key)?.map(|object| object.group()))
    }

    /// As [`Store::group_of`], for any executor.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub fn group_of_async(&self, key: &[u8]) -> impl Future<Output = Result<Option<u32>>> + Send + 'static + use<> {
        let whole = self.whole_async(key);
        async move { Ok(whole.await?.map(|object| object.group())) }
    }

    /// Asks that two objects lie side by side on the device. A hint: it is honoured when they are
    /// written next, or when one of them is written while the other is in memory.
    pub fn collocate(&self, a: &[u8], b: &[u8]) {
        let hashes = [self.hasher().key(a), self.hasher().key(b)];
        let homes = [self.home_number(hashes[0], a), self.home_number(hashes[1], b)];
        let [a, b] = hashes.map(|hash| hash.short());
        // Of two objects on different devices each remembers whose set it is of.
        for volume in self.recovered_volumes().iter().filter(|volume| homes.contains(&volume.medium.number)) {
            volume.catalog.placer.note_named(true);
            volume.catalog.waiting().hint(a, b);
        }
    }

    /// A handle to the settings of a group; 1 and up.
    pub fn group(&self, id: u32) -> Group {
        Group { store: self.clone(), id }
    }

    /// Memory of the application's own, none at first, that counts in [`Options::memory`]: objects in memory make room
    /// for it. For what is on its way into the store or out of it.
    pub fn reserve(&self) -> Reserved {
        Reserved { store: self.clone(), bytes: 0 }
    }

    /// Returns when everything put and deleted before is durable.
    ///
    /// # Errors
    /// The failure that stopped a volume.
    pub fn flush(&self) -> Result<()> {
        if self.shared().options.read_only {
            return Ok(());
        }
        self.layout().map_or(Ok(()), |layout| layout.flush())?;
        // One that failed keeps nothing on the others from being durable.
        let mut result = Ok(());
        for volume in self.working() {
            result = result.and(volume.room.promise_waiting().and_then(|()| volume.room.commit_now()));
        }
        result.and(self.losses_are_noted())
    }

    /// The volumes but for those that a cache has given up.
    pub(crate) fn working(&self) -> impl Iterator<Item = &Arc<Volume>> {
        self.recovered_volumes().iter().filter(|volume| !self.is_lost(volume))
    }

    /// As [`Store::flush`] for tasks.
    ///
    /// # Errors
    /// As [`Store::flush`].
    pub async fn flush_async(&self) -> Result<()> {
        if self.layout().is_some() {
            return self.spawn_blocking(Self::flush).await;
        }
        if !self.shared().options.read_only {
            if self.working().any(|volume| volume.catalog.waiting().count() > 0) {
                return self.spawn_blocking(Self::flush).await;
            }
            let mut result = Ok(());
            for volume in self.working() {
                let number = volume.log.commits.next();
                result = result.and(Arc::clone(&volume.room).commit_async(number).await);
            }
            return result.and(self.losses_are_noted());
        }
        Ok(())
    }

    /// Returns when no crash can bring back what has left before: makes everything durable that was put and deleted,
    /// and takes checkpoints until none that an opening could use knows what was evicted, or had expired.
    ///
    /// # Errors
    /// The failure that stopped a volume, or [`Error::Io`] where there is no room for a checkpoint.
    ///
    /// [`Error::Io`]: crate::Error::Io
    pub fn checkpoint(&self) -> Result<()> {
        self.flush()?;
        if self.shared().options.read_only {
            return Ok(());
        }
        for volume in self.working() {
            if volume.checkpointer.is_running() {
                volume.room.checkpoint_now()?;
            }
            // Two are kept; the first may have found buffers open that it only has sealed.
            for _ in 0..3 {
                volume.room.checkpoint_now()?;
            }
        }
        Ok(())
    }

    /// As [`Store::checkpoint`], for any executor, in the blocking pool.
    ///
    /// # Errors
    /// As [`Store::checkpoint`].
    pub async fn checkpoint_async(&self) -> Result<()> {
        self.spawn_blocking(Self::checkpoint).await
    }

    /// Makes everything durable, writes a checkpoint and the hot log, stops the daemons, and lets others open the file.
    /// Handles that are left, on this store and on its objects, then answer from memory; where they would have to
    /// read a file that is not theirs any more, [`Error::Closed`] says so. A folder of files, and what was opened
    /// read-only, stay locked until the last handle goes.
    ///
    /// # Errors
    /// The failure that stopped a volume; the store is closed all the same.
    pub fn close(self) -> Result<()> {
        self.inner.close()
    }

    /// As [`Store::close`], for any executor, in the blocking pool. A future that is never polled drops this handle;
    /// after that the store is closed, whatever becomes of the future.
    ///
    /// # Errors
    /// As [`Store::close`].
    pub async fn close_async(self) -> Result<()> {
        self.spawn_blocking(|store| store.inner.close()).await
    }

    /// Runs one step of every daemon on this thread; for stores opened with
    /// [`Daemons::Manual`](crate::Daemons::Manual). Returns whether there was anything to do.
    ///
    /// # Errors
    /// The failure that stopped a volume.
    pub fn step(&self) -> Result<bool> {
        let mut any = self.layout().map_or(Ok(false), |layout| layout.step());
        for volume in self.working() {
            let more = volume.step_all();
            any = any.and_then(|any| Ok(any | more?));
        }
        self.losses_are_noted().and(any)
    }

    /// Returns when the device has taken everything that is sealed, hot objects are warm again after an
    /// opening, and one pass of verification is over, or when the time is up. For tests and tools.
    pub fn settle(&self, time: Duration) -> bool {
        let deadline = std::time::Instant::now() + time;
        while std::time::Instant::now() < deadline {
            let is_settled = self.layout().is_none_or(|layout| layout.is_settled());
            if is_settled && self.recovered_volumes().iter().all(|volume| volume.scrubber.is_done()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        false
    }

    /// Why volumes take no more writes, of those that do not: a device that failed, or a daemon that ended. Asking
    /// costs nothing.
    pub fn failures(&self) -> Vec<Error> {
        let volumes = self.volumes().iter().filter_map(|volume| volume.log.commits.failure());
        volumes.chain(self.layout().and_then(|layout| layout.failure())).collect()
    }

    /// What the store holds and did.
    pub fn stats(&self) -> Stats {
        let shared = self.shared();
        let (misses, refusals) = shared.counters.by_name();
        let mut volumes: Vec<_> = self.recovered_volumes().iter().map(|volume| volume.stats()).collect();
        let mut counts = shared.counters.counts();
        counts.leases_refused = shared.leases.refused();
        if let Some(layout) = self.layout() {
            volumes.push(layout.stats());
            layout.count(&mut counts);
        }
        let index_bytes = shared.index_bytes.load(Relaxed);
        let objects: u64 = self.recovered_volumes().iter().map(|volume| volume.catalog.index.objects()).sum();
        let grains: u64 = self.recovered_volumes().iter().map(|volume| volume.catalog.index.grains()).sum();
        let in_tables: u64 = volumes.iter().filter(|_| self.layout().is_some()).map(|volume| volume.live_bytes).sum();
        let capacity: u64 = self.recovered_volumes().iter().map(|volume| volume.log.superblock().capacity).sum();
        Stats {
            objects: objects + self.layout().map_or(0, |layout| layout.objects()),
            counting: self.layout().is_some_and(|layout| layout.is_counting()),
            live_bytes: grains * GRAIN as u64 + in_tables,
            index_bytes,
            memory_objects: shared.memory.len() as u64
                + self.recovered_volumes().iter().map(|volume| volume.catalog.waiting().count()).sum::<u64>(),
            memory_used: shared.memory_used(),
            memory_limit: shared.options.memory,
            capacity: capacity + self.layout().map_or(0, |layout| layout.capacity()),
            volumes,
            counts,
            misses,
            refusals,
        }
    }
}

/// Memory outside the store that counts in its cap, until this is dropped; see [`Store::reserve`].
pub struct Reserved {
    store: Store,
    bytes: u64,
}

impl Reserved {
    /// So many bytes it is now.
    pub fn set(&mut self, bytes: u64) {
        let shared = self.store.shared();
        if bytes > self.bytes {
            let more = bytes - self.bytes;
            shared.reserve_memory(more, || shared.buffer_bytes.fetch_add(more, Relaxed));
        } else {
            shared.buffer_bytes.fetch_sub(self.bytes - bytes, Relaxed);
        }
        self.bytes = bytes;
    }
}

impl Drop for Reserved {
    fn drop(&mut self) {
        self.set(0);
    }
}

/// Settings of one group. A change is noted in memory and made durable by the daemons; where objects are entries of
/// tables (`pmflf-ts` and the others of the kind) it is written at once, on the caller's thread.
pub struct Group {
    store: Store,
    id: u32,
}

impl Group {
    /// Keeps the group's objects in memory longest, and reinserts them before others. Settings are durable
    /// when deletes would be: see [`Options::delete_time`].
    pub fn love(&self) {
        self.set(Priority::Loved);
    }

    /// Lets the group's objects leave memory first, and does not reinsert them.
    pub fn hate(&self) {
        self.set(Priority::Hated);
    }

    /// Treats the group's objects as any, loved or hated ones, those that are in memory already too: a change goes over
    /// all of these.
    pub fn set(&self, priority: Priority) {
        let shared = self.store.shared();
        let before = shared.groups.priority(self.id);
        self.record(shared.groups.set_priority(self.id, priority));
        if self.id != 0 && priority != before {
            shared.memory.set_priority(self.id, priority);
        }
    }

    /// How long the group's puts may stay volatile, whatever the store's own bound, from the next one on; `None`, or a
    /// time of zero as in the thesis (Dámelo §3), turns syncs for their sake off.
    pub fn set_checkpoint_interval(&self, interval: Option<Duration>) {
        let interval = interval.filter(|time| !time.is_zero());
        self.record(self.store.shared().groups.set_interval(self.id, interval));
    }

    /// Divides the clusters that the group fills from now on into pages of so many bytes, for presets that give each
    /// group clusters of its own (`damelo`): a page is what one get reads, and what memory holds and lets go as one.
    /// A power of two from 16 KiB, and a 64th of a cluster, up to [`Options::cluster`], which is one page. What is on
    /// the device stays as it is.
    ///
    /// # Errors
    /// [`Error::Option`] where there can be no such pages, and with group 0, which is none.
    pub fn set_page(&self, bytes: u32) -> Result<()> {
        let volumes = self.store.recovered_volumes();
        let Some(first) = volumes.first().filter(|_| self.id != 0) else {
            let why = "only groups of a preset with clusters have pages, and group 0 is none".into();
            return Err(Error::Option { name: "page", why });
        };
        first.residents.pages.check_page(bytes)?;
        let page = Some(bytes).filter(|bytes| *bytes < first.medium.map().cluster);
        self.record(self.store.shared().groups.set_page(self.id, page));
        Ok(())
    }

    /// Bytes of the pages that the group's clusters are divided into: what a get of one of its objects reads. None
    /// where groups have no clusters of their own.
    pub fn page(&self) -> Option<u32> {
        let volumes = self.store.recovered_volumes();
        volumes
            .first()
            .filter(|volume| volume.residents.pages.has_pages())
            .map(|volume| volume.residents.pages.page_of_group(self.id))
    }

    /// How memory treats the group.
    pub fn priority(&self) -> Priority {
        self.store.shared().groups.priority(self.id)
    }

    /// The group's own interval, as [`Group::set_checkpoint_interval`] was given it.
    pub fn checkpoint_interval(&self) -> CheckpointInterval {
        self.store.shared().groups.interval(self.id)
    }

    fn record(&self, group: picaflor_format::journal::Group) {
        if let Some(layout) = self.store.layout() {
            // A device that failed has stopped, and the next write is told; a full one forgets with the next
            // restart.
            let _ = layout.record_group(&group);
        }
        for volume in self.store.recovered_volumes() {
            volume.log.record(Record::Group(group));
            volume.log.due_within(self.store.shared().options.delete_time);
            if volume.log.journal.lock().is_long() {
                // A device that failed, or a log that is full, is told to the next write.
                let _ = volume.room.commit_now();
            }
        }
    }
}

impl std::fmt::Debug for Group {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Group").field("id", &self.id).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for Reserved {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Reserved").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}
