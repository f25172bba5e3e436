//! A verified frame in memory, as the memory tier, open buffers and handles share it.
//!
//! Invariants: it was verified (checksum and full key) before it came to be; its bytes never change; dropping the last
//! handle and the memory tier's own frees them.

use std::{
    any::Any,
    ops::Range,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use picaflor_device::BufPool;
use picaflor_format::frame::{HEADER, Header};

use crate::base::reach::Reach;

/// The parts of a frame that is not yet framed.
#[derive(Clone, Copy)]
pub struct Draft<'a> {
    /// The short hash of its key.
    pub hash: u64,
    /// All but the cluster's sequence number.
    pub header: Header,
    /// The key.
    pub key: &'a [u8],
    /// The metadata.
    pub metadata: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

impl<'a> Draft<'a> {
    /// To frame anew what a frame with this header holds.
    pub(crate) fn of_frame(hash: u64, header: Header, frame: &'a [u8]) -> Self {
        let (meta, body) = (header.meta_start(), header.body_start());
        let end = body + header.body_len as usize;
        Self { hash, header, key: header.key(frame), metadata: &frame[meta..body], body: &frame[body..end] }
    }

    /// Lays the object at the start of `frame`, and zeros behind it; returns its header as it is there.
    pub fn lay(&self, mark: u64, frame: &mut [u8]) -> Header {
        let header = Header { mark, ..self.header };
        let (meta, body, end) = (header.meta_start(), header.body_start(), HEADER + header.payload_len());
        frame[HEADER..meta].copy_from_slice(self.key);
        frame[meta..body].copy_from_slice(self.metadata);
        frame[body..end].copy_from_slice(self.body);
        header.encode(frame);
        frame[end..].fill(0);
        header
    }
}

/// Where objects came from that were not asked for yet.
pub(crate) trait ReadaheadStats: Send + Sync {
    /// One that came with a cluster of this class, and needed this reach, was asked for.
    fn was_used(&self, hash: u64, class: u16, reach: Reach);
}

/// One read that brought others beside the object it was for.
pub(crate) struct Brought {
    pub(crate) by: Weak<dyn ReadaheadStats>,
    /// Of the cluster.
    pub(crate) class: u16,
}

/// One verified frame in memory.
pub struct Frame {
    pub(crate) hash: u64,
    /// What it says of itself.
    pub header: Header,
    bytes: Bytes,
    /// Bytes of memory that `bytes` keep from being freed.
    held: u32,
    /// What the application made of the metadata; see [`Object::decoded`](crate::Object::decoded).
    pub(crate) decoded: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Hits since the memory tier took it in or last looked, up to 3.
    uses: AtomicU8,
    /// When it was asked for last, in hits of the tier: for LRU.
    number: AtomicU64,
    /// The read that brought it before it was asked for.
    brought: OnceLock<Arc<Brought>>,
    /// How far that read had to reach.
    reach: Reach,
}

impl Frame {
    /// A verified frame of a key with this short hash.
    pub fn new(hash: u64, header: Header, bytes: Bytes) -> Self {
        let (uses, number) = (AtomicU8::new(0), AtomicU64::new(0));
        let held = u32::try_from(BufPool::copied(bytes.len())).unwrap_or(u32::MAX);
        let (decoded, brought, reach) = (OnceLock::new(), OnceLock::new(), Reach::default());
        Self { hash, header, bytes, held, decoded, uses, number, brought, reach }
    }

    /// Its bytes are a part of a buffer of this length, of which nothing else is kept.
    pub(crate) fn part_of_buffer(self, len: usize) -> Self {
        Self { held: u32::try_from(BufPool::taken(len)).unwrap_or(u32::MAX), ..self }
    }

    /// Remembers which read brought it before it was asked for, and how far that had to reach.
    pub(crate) fn brought_by(self, brought: &Arc<Brought>, reach: Reach) -> Self {
        Self { brought: OnceLock::from(Arc::clone(brought)), reach, ..self }
    }

    /// It was asked for; the first time, its read learns of it. Where reads bring objects, numbers are not used.
    pub(crate) fn credit(&self) {
        if let Some(brought) = self.brought.get()
            && self.number.swap(1, Relaxed) == 0
        {
            brought.by.upgrade().inspect(|by| by.was_used(self.hash, brought.class, self.reach));
        }
    }

    /// The key.
    pub fn key(&self) -> &[u8] {
        self.header.key(&self.bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All its bytes, without a copy.
    pub(crate) fn shared_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    /// The metadata.
    pub fn metadata(&self) -> &[u8] {
        &self.bytes[self.header.meta_start()..self.header.body_start()]
    }

    /// Where the body lies in [`Frame::bytes`].
    pub(crate) fn body_range(&self) -> Range<usize> {
        let start = self.header.body_start();
        start..start + self.header.body_len as usize
    }

    /// The body, without a copy.
    pub fn body(&self) -> Bytes {
        self.bytes.slice(self.body_range())
    }

    /// Bytes of memory it holds in the memory tier, bookkeeping included.
    pub(crate) fn charge(&self) -> u64 {
        /// Its own allocation, with the two counts of an `Arc` and what the allocator adds; its place in a map whose
        /// load is 7/16 to 7/8, and in a queue that is at least half full.
        const OVERHEAD: usize = size_of::<Frame>() + 2 * size_of::<usize>() + 16 + 64;
        /// What an application makes of metadata, as far as it can be known: see [`crate::Object::decoded`].
        const DECODED: usize = 128;
        let decoded = if self.header.meta_len > 0 { DECODED } else { 0 };
        u64::from(self.held) + (OVERHEAD + decoded) as u64
    }

    pub(crate) fn is_expired(&self, now_millis: u64) -> bool {
        self.header.expires != 0 && self.header.expires <= now_millis
    }

    /// Notes a hit: one atomic, and none once it is known to be hot.
    pub(crate) fn touch(&self) {
        let uses = self.uses.load(Relaxed);
        if uses < 3 {
            self.uses.store(uses + 1, Relaxed);
        }
    }

    pub(crate) fn number(&self) -> u64 {
        self.number.load(Relaxed)
    }

    pub(crate) fn set_number(&self, number: u64) {
        self.number.store(number, Relaxed);
    }

    pub(crate) fn uses(&self) -> u8 {
        self.uses.load(Relaxed)
    }

    pub(crate) fn set_uses(&self, uses: u8) {
        self.uses.store(uses, Relaxed);
    }
}
