//! URLs whose last response could not be shared: for some seconds no request queues for the next one. A table of fixed
//! size, in which one key may put out another.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Instant,
};

use xxhash_rust::xxh3::xxh3_64;

use crate::reason::{Bypass, NotStored};

/// How long no request waits for a response of a URL whose last response was private.
const PRIVATE_SECONDS: u64 = 10;

/// Of what is remembered of a key, below its tag: the second until which it counts, and whether it was for one client.
const UNTIL: u64 = 0x7fff_ffff;
const IS_PRIVATE: u64 = 0x8000_0000;

/// See the head of this file.
pub(crate) struct Unshared {
    started: Instant,
    slots: Vec<AtomicU64>,
}

impl Unshared {
    pub(crate) fn new() -> Self {
        Self { started: Instant::now(), slots: (0..4096).map(|_| AtomicU64::new(0)).collect() }
    }

    /// Remembers that the response of a key could not be shared, so that requests need not queue for the next one.
    pub(crate) fn remember(&self, key: &[u8], why: NotStored) {
        let lasting = matches!(
            why,
            NotStored::NoStore
                | NotStored::Private
                | NotStored::VaryStar
                | NotStored::SetCookie
                | NotStored::NoFreshness
                | NotStored::TooLarge
                | NotStored::Off
        );
        if lasting {
            let (slot, tag) = self.slot(key);
            let until = (self.started.elapsed().as_secs() + PRIVATE_SECONDS) & UNTIL;
            let is_private = if Bypass::like(why) == Bypass::RecentlyPrivate { IS_PRIVATE } else { 0 };
            slot.store(tag | is_private | until, Relaxed);
        }
    }

    /// A response of the key is stored: it is to be shared after all.
    pub(crate) fn forget(&self, key: &[u8]) {
        let (slot, tag) = self.slot(key);
        if slot.load(Relaxed) & !0xffff_ffff == tag {
            slot.store(0, Relaxed);
        }
    }

    /// Whether it was so within the last seconds, and what that is called.
    pub(crate) fn recently(&self, key: &[u8]) -> Option<Bypass> {
        let (slot, tag) = self.slot(key);
        let found = slot.load(Relaxed);
        let is_so = found & !0xffff_ffff == tag && found & UNTIL > self.started.elapsed().as_secs();
        is_so.then_some(if found & IS_PRIVATE == 0 { Bypass::RecentlyNotStored } else { Bypass::RecentlyPrivate })
    }

    fn slot(&self, key: &[u8]) -> (&AtomicU64, u64) {
        let hash = xxh3_64(key);
        (&self.slots[hash as usize % self.slots.len()], hash & !0xffff_ffff)
    }
}
