//! The fetches in progress, by key: which one a request joins, and that it begins one where there is none.

use picaflor::Store;
use std::{collections::HashMap, sync::Arc};

use parking_lot::Mutex;
use xxhash_rust::xxh3::xxh3_64;

use crate::{
    config::CacheConfig,
    fill::{Bounds, Budget, Fill},
    verdict::Verdict,
};

/// The fetches in progress, by key.
pub(crate) struct Fills {
    shards: [Mutex<HashMap<Vec<u8>, Arc<Fill>>>; 16],
    bounds: Bounds,
    store: Store,
}

/// What a miss finds.
pub(crate) enum Role<'a> {
    /// No fetch of this is under way yet: run it.
    First(Beginning<'a>),
    /// Another request does.
    Waiter(Arc<Fill>),
}

/// A fetch that others wait for already. If it is not begun after all, because its first client has left or the store
/// has it by now, they look again.
pub(crate) struct Beginning<'a> {
    fills: &'a Fills,
    url_key: &'a [u8],
    fill: Arc<Fill>,
    is_begun: bool,
}

impl Beginning<'_> {
    /// From now on its task sees to it.
    pub(crate) fn begun(mut self) -> Arc<Fill> {
        self.is_begun = true;
        self.fill.clone()
    }
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        if !self.is_begun {
            self.fill.decide(Verdict::Stored);
            self.fills.leave(self.url_key, &self.fill);
            self.fill.abandon();
        }
    }
}

impl Fills {
    /// Of each the whole is kept as long as all keep no more than `max`, in the memory of `store`; else what `cache`
    /// says.
    pub(crate) fn new(cache: &CacheConfig, max: u64, store: Store) -> Self {
        let bounds = Bounds { budget: Budget::new(max), window: cache.collapse_window.0, near: cache.abandoned_max.0 };
        Self { shards: std::array::from_fn(|_| Mutex::default()), bounds, store }
    }

    fn shard(&self, url_key: &[u8]) -> &Mutex<HashMap<Vec<u8>, Arc<Fill>>> {
        &self.shards[xxh3_64(url_key) as usize % self.shards.len()]
    }

    /// Joins the fetch of `key`, or begins it. `url_key` is the key without the variant. One `for_new` joins none whose
    /// head has come: then it begins another, which others join instead.
    pub(crate) fn enter<'a>(&'a self, url_key: &'a [u8], key: &[u8], for_new: bool) -> Role<'a> {
        let mut shard = self.shard(url_key).lock();
        if let Some(fill) = shard.get(key).filter(|fill| !for_new || !fill.is_decided()) {
            return Role::Waiter(fill.clone());
        }
        let fill = self.alone(key);
        shard.insert(key.to_vec(), fill.clone());
        Role::First(Beginning { fills: self, url_key, fill, is_begun: false })
    }

    /// A fetch that no other request can join.
    pub(crate) fn alone(&self, key: &[u8]) -> Arc<Fill> {
        Fill::new(key.to_vec(), &self.bounds, self.store.reserve())
    }

    /// Ends joining of this fetch.
    pub(crate) fn leave(&self, url_key: &[u8], fill: &Arc<Fill>) {
        let mut shard = self.shard(url_key).lock();
        if shard.get(&fill.key).is_some_and(|found| Arc::ptr_eq(found, fill)) {
            shard.remove(&fill.key);
        }
    }

    /// Ends joining of every fetch of a URL: what they bring is out of date.
    pub(crate) fn forget(&self, url_key: &[u8]) {
        let mut shard = self.shard(url_key).lock();
        shard.retain(|key, _| !(key.starts_with(url_key) && matches!(key.get(url_key.len()), None | Some(b'\n'))));
    }

    /// Ends joining of every fetch.
    pub(crate) fn forget_all(&self) {
        self.shards.iter().for_each(|shard| shard.lock().clear());
    }

    /// Bytes held by all fetches.
    pub(crate) fn buffered(&self) -> u64 {
        self.bounds.budget.used()
    }
}
