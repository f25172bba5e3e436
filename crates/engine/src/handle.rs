//! The handle that applications hold, and what every verb of it works on.
//!
//! Clones are handles to one store. The last handle dropped closes it as well as it can; call
//! [`Store::close`] to know that it went well.

use std::{future::Future, sync::Arc};

use parking_lot::{Mutex, MutexGuard};
use picaflor_common::{Hasher, KeyHash};

use crate::{
    Mode, Result,
    background::daemons::Threads,
    base::blocking::{BlockingPool, later},
    base::layout::Layout,
    ops::fetches::Fetches,
    recovery::Deferred,
    shared::Shared,
    volume::Volume,
    write::append::payload_max,
};

/// A store of objects. Cheap to clone; all clones are one store.
#[derive(Clone)]
pub struct Store {
    pub(crate) inner: Arc<Inner>,
}

pub(crate) struct Inner {
    pub(crate) shared: Arc<Shared>,
    pub(crate) volumes: Vec<Arc<Volume>>,
    /// Where the layout keeps its own index: then there are no volumes.
    pub(crate) layout: Option<Arc<dyn Layout>>,
    pub(crate) hasher: Hasher,
    pub(crate) deferred: Arc<Deferred>,
    pub(crate) threads: Threads,
    pub(crate) blocking: Arc<BlockingPool>,
    pub(crate) fetches: Fetches,
    /// Held while it is given more bytes.
    pub(crate) resizing: Mutex<()>,
}

impl Store {
    pub(crate) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// The volumes, when the opening is over.
    pub(crate) fn recovered_volumes(&self) -> &[Arc<Volume>] {
        self.inner.deferred.end();
        &self.inner.volumes
    }

    /// The volumes, for a caller that only looks for a key and has asked [`Deferred`] for it.
    pub(crate) fn volumes(&self) -> &[Arc<Volume>] {
        &self.inner.volumes
    }

    pub(crate) fn deferred(&self) -> &Deferred {
        &self.inner.deferred
    }

    /// The layout that is not ours, if that has the objects; then there are no volumes.
    pub(crate) fn layout(&self) -> Option<&Arc<dyn Layout>> {
        self.inner.layout.as_ref()
    }

    pub(crate) fn hasher(&self) -> Hasher {
        self.inner.hasher
    }

    pub(crate) fn mode(&self) -> Mode {
        self.shared().options.mode
    }

    pub(crate) fn lock_key(&self, hash: KeyHash) -> MutexGuard<'_, ()> {
        self.shared().lock_key(hash.short())
    }

    pub(crate) fn payload_max(&self) -> usize {
        let pieces = self.recovered_volumes().iter().filter_map(|volume| volume.catalog.places.as_ref());
        let pieces = pieces.map(|places| places.payload_max());
        let one_by_one = pieces.chain(self.layout().map(|layout| layout.payload_max())).min();
        one_by_one.unwrap_or_else(|| payload_max(self.shared().options.cluster as usize))
    }

    /// Does what may read the device, or wait for a lock over such a read, without the executor's thread.
    pub(crate) fn spawn_blocking<R: Send + 'static, F: FnOnce(&Self) -> R + Send + 'static>(
        &self,
        act: F,
    ) -> impl Future<Output = R> + Send + 'static + use<R, F> {
        let store = self.clone();
        later(self.shared().options.daemons, &self.inner.blocking, move || act(&store))
    }

    /// Lends what the caller has to the blocking pool. `ended` is in its place meanwhile, and stays there if the future
    /// is dropped.
    pub(crate) async fn lend<T: Send + 'static, R: Send + 'static>(
        &self,
        own: &mut T,
        ended: T,
        act: impl FnOnce(&mut T) -> R + Send + 'static,
    ) -> R {
        let mut lent = std::mem::replace(own, ended);
        let result;
        (*own, result) = self
            .spawn_blocking(move |_| {
                let result = act(&mut lent);
                (lent, result)
            })
            .await;
        result
    }
}

impl Inner {
    pub(crate) fn close(&self) -> Result<()> {
        self.threads.stop();
        let closed = self.close_all();
        if !self.shared.options.read_only {
            self.volumes.iter().for_each(|volume| volume.medium.device.release());
            self.layout.iter().for_each(|layout| layout.release());
        }
        closed
    }

    fn close_all(&self) -> Result<()> {
        if self.shared.options.read_only {
            return Ok(());
        }
        self.deferred.end();
        let mut result = self.layout.as_ref().map_or(Ok(()), |layout| layout.close());
        for volume in &self.volumes {
            result = result.and(volume.close());
        }
        result
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.threads.stop() {
            return;
        }
        // No caller is left to tell; `close` is there for those that want to know.
        let _ = self.close_all();
    }
}

impl std::fmt::Debug for Store {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Store").field("volumes", &self.recovered_volumes().len()).finish_non_exhaustive()
    }
}
