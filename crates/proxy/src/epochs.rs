//! What an invalidation leaves for fetches that began before it.
//!
//! A purge or an unsafe request during a fetch must win over that fetch. Each URL belongs to one of [`STRIPES`]
//! epochs; a fetch notes its epoch before it asks the origin, and stores its response, under the epoch's lock, only
//! if the epoch is still the same. Invalidation moves the epoch on under the same lock and then deletes. A store that
//! stopped writing deletes nothing: then the stripe notes the time, and what was received before it is not served.

use std::sync::{
    Arc,
    atomic::{
        AtomicBool, AtomicU64, AtomicUsize,
        Ordering::{Acquire, Relaxed, Release},
    },
};

use parking_lot::{Mutex, MutexGuard};
use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::clock::unix_millis;

/// Many, because an invalidation costs the fetches of its whole stripe their place in the store.
const STRIPES: usize = 16 << 10;

/// Locks of the indexes of variants.
const INDEXES: usize = 256;

/// See the head of this file.
pub(crate) struct Epochs {
    seed: u64,
    stripes: Vec<Mutex<u64>>,
    /// Of a stripe, when something of it was invalidated that the store could not delete; and whether any was.
    gone: Vec<AtomicU64>,
    any_gone: AtomicBool,
    /// Invalidations that are under way, and requests that may end in one.
    invalidating: AtomicUsize,
    indexes: Vec<tokio::sync::Mutex<()>>,
}

impl Epochs {
    pub(crate) fn new() -> Self {
        Self {
            seed: rand::random(),
            stripes: (0..STRIPES).map(|_| Mutex::new(0)).collect(),
            gone: (0..STRIPES).map(|_| AtomicU64::new(0)).collect(),
            any_gone: AtomicBool::new(false),
            invalidating: AtomicUsize::new(0),
            indexes: (0..INDEXES).map(|_| tokio::sync::Mutex::new(())).collect(),
        }
    }

    fn stripe(url_key: &[u8]) -> usize {
        xxh3_64(url_key) as usize % STRIPES
    }

    /// The epoch of a URL now.
    pub(crate) fn now(&self, url_key: &[u8]) -> u64 {
        *self.stripes[Self::stripe(url_key)].lock()
    }

    /// The nonce of a new index of variants: the same for all fetches of a URL within an epoch, so that two that run
    /// at one time agree, and never one that was in use before an invalidation or a restart.
    pub(crate) fn nonce(&self, url_key: &[u8], epoch: u64, names: &[String]) -> u64 {
        let text = [url_key, b"\n", names.join(",").as_bytes(), b"\n", &epoch.to_le_bytes()].concat();
        xxh3_64_with_seed(&text, self.seed)
    }

    /// Whether a response of the URL that was received then is invalid, though the store still has it.
    #[inline]
    pub(crate) fn is_gone(&self, url_key: &[u8], received: u64) -> bool {
        self.any_gone.load(Acquire) && received <= self.gone[Self::stripe(url_key)].load(Acquire)
    }

    /// Whether something is being taken out that is not to be left half done.
    pub(crate) fn invalidating(&self) -> bool {
        self.invalidating.load(Relaxed) > 0
    }

    /// Something that ends in an invalidation is under way until this is dropped.
    pub(crate) fn begin_invalidating(self: &Arc<Self>) -> Invalidating {
        self.invalidating.fetch_add(1, Relaxed);
        Invalidating(self.clone())
    }

    /// The lock of the index of a URL's variants.
    pub(crate) fn index_of(&self, url_key: &[u8]) -> &tokio::sync::Mutex<()> {
        &self.indexes[Self::stripe(url_key) % INDEXES]
    }

    /// What fetches bring that began before this is not stored.
    pub(crate) fn move_on(&self, url_key: &[u8]) {
        *self.stripes[Self::stripe(url_key)].lock() += 1;
    }

    /// The store could not delete it.
    pub(crate) fn note_gone(&self, url_key: &[u8]) {
        self.gone[Self::stripe(url_key)].fetch_max(unix_millis(), Release);
        self.any_gone.store(true, Release);
    }

    /// Holds the epoch still, if it is still `epoch`.
    pub(crate) fn hold(&self, url_key: &[u8], epoch: u64) -> Option<MutexGuard<'_, u64>> {
        let guard = self.stripes[Self::stripe(url_key)].lock();
        (*guard == epoch).then_some(guard)
    }
}

/// See [`Epochs::begin_invalidating`].
pub(crate) struct Invalidating(Arc<Epochs>);

impl Drop for Invalidating {
    fn drop(&mut self) {
        self.0.invalidating.fetch_sub(1, Relaxed);
    }
}
