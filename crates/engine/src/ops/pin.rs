//! Pinned records: what the application must find again whatever is evicted, before it answers the first request.
//!
//! Each is in the journal of every volume when the call is over, whatever the durability of puts, and from then on in
//! every checkpoint.

use std::{
    future::Future,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use bytes::Bytes;

use crate::{
    Error, Refusal, Result,
    handle::Store,
    ops::awaited::{wait, wait_async},
    recovery::EPOCH_SHIFT,
    space::LayoutKind,
    volume::Volume,
};

impl Store {
    /// Sets a record of the application's own, in the place of one of this name: 1 to 4,096 bytes, never evicted, and
    /// durable when this returns. For what a program has to know before its first get, not for objects: all of them
    /// together may take as many bytes as one cluster ([`Options::cluster`](field@crate::Options::cluster)), names and
    /// lengths included, and are in memory beside the rest of it. A cache that has to start empty has lost them with
    /// its objects.
    ///
    /// # Errors
    /// [`Error::Option`] where the preset has no pinned records, [`Error::Limit`] for a record that is too long or one
    /// too many, [`Error::Refused`] if the store is open for reading only, and the failure that stopped a volume: then
    /// the record is set, and a crash may take it.
    pub fn pin(&self, name: u128, bytes: &[u8]) -> Result<()> {
        self.change_pin(name, Some(bytes))?.into_iter().try_for_each(|awaited| wait(Some(awaited)))
    }

    /// As [`Store::pin`], for any executor. The record is set by this call; the future waits until it is durable.
    ///
    /// # Errors
    /// As [`Store::pin`]: all of them come from the future.
    pub fn begin_pin(&self, name: u128, bytes: &[u8]) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let begun = self.change_pin(name, Some(bytes));
        async move { all_durable(begun?).await }
    }

    /// Takes out the record of this name, durably when this returns. It is no error if there is none.
    ///
    /// # Errors
    /// As [`Store::pin`].
    pub fn unpin(&self, name: u128) -> Result<()> {
        self.change_pin(name, None)?.into_iter().try_for_each(|awaited| wait(Some(awaited)))
    }

    /// As [`Store::unpin`], for any executor. The record is gone by this call; the future waits until it is so durably,
    /// as it is in the time of deletes if no caller waits.
    ///
    /// # Errors
    /// As [`Store::pin`]: all of them come from the future.
    pub fn begin_unpin(&self, name: u128) -> impl Future<Output = Result<()>> + Send + 'static + use<> {
        let begun = self.change_pin(name, None);
        async move { all_durable(begun?).await }
    }

    /// All pinned records, by name.
    pub fn pinned(&self) -> Vec<(u128, Bytes)> {
        self.shared().pins.all()
    }

    /// Whether the preset has pinned records: where objects lie in clusters.
    pub fn has_pins(&self) -> bool {
        self.shared().preset.layout == LayoutKind::Ring
    }

    /// The number of this opening, larger than that of any opening before that could write, whatever came between: by
    /// it a program can count on where it cannot know how far it had come.
    pub fn opening(&self) -> u64 {
        self.shared().generation.load(Relaxed) >> EPOCH_SHIFT
    }

    /// Returns the commits to wait for.
    fn change_pin(&self, name: u128, bytes: Option<&[u8]>) -> Result<Vec<(Arc<Volume>, u64)>> {
        let shared = self.shared();
        if !self.has_pins() {
            let why = format!("{} keeps objects outside of clusters, and pins no records", shared.preset.name);
            return Err(Error::Option { name: "preset", why });
        }
        if shared.options.read_only {
            return Err(Error::Refused(Refusal::ReadOnly));
        }
        let volumes: Vec<&Arc<Volume>> =
            self.recovered_volumes().iter().filter(|volume| !self.is_lost(volume)).collect();
        if let (true, Some(failure)) = (volumes.is_empty(), self.failures().pop()) {
            return Err(failure);
        }
        let most = u64::from(shared.options.cluster);
        shared.pins.change(
            name,
            bytes,
            most,
            || shared.next_generation(),
            |records| {
                for volume in &volumes {
                    volume.log.record_all(records);
                    volume.log.due_within(shared.options.delete_time);
                }
            },
        )?;
        // One that failed keeps nothing on the others from being durable, but the caller is told.
        let awaited = volumes.into_iter().map(|volume| (Arc::clone(volume), volume.log.commits.next()));
        Ok(awaited.collect())
    }
}

async fn all_durable(awaited: Vec<(Arc<Volume>, u64)>) -> Result<()> {
    let mut result = Ok(());
    for awaited in awaited {
        result = result.and(wait_async(Some(awaited)).await);
    }
    result
}
