//! What a get returns: a handle that pins an object's bytes.
//!
//! Invariants: a frame was verified (checksum and full key) before it became a handle; its bytes never
//! change; dropping the last handle and the memory tier's own frees them.

use std::{
    any::Any,
    ops::Range,
    sync::{
        Arc, OnceLock, Weak,
        atomic::{AtomicU8, AtomicU64, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use picaflor_format::frame::{Header, Kind, Manifest};

use crate::{Error, Result, cache::leases::Lease, ops::chunks::Chunks, store::Store};

/// Where objects came from that nobody had asked for yet.
pub(crate) trait Bringer: Send + Sync {
    /// One that came with a cluster of this class was asked for.
    fn was_used(&self, hash: u64, class: u16);
}

/// One read that brought others beside the object it was for.
pub(crate) struct Brought {
    pub(crate) by: Weak<dyn Bringer>,
    /// Of the cluster.
    pub(crate) class: u16,
}

/// One verified frame in memory.
pub(crate) struct Frame {
    pub(crate) hash: u64,
    pub(crate) header: Header,
    bytes: Bytes,
    /// What the application made of the metadata; see [`Object::decoded`].
    decoded: OnceLock<Arc<dyn Any + Send + Sync>>,
    /// Hits since the memory tier took it in or last looked, up to 3.
    uses: AtomicU8,
    /// When it was asked for last, in hits of the tier: for LRU.
    number: AtomicU64,
    /// The read that brought it before it was asked for.
    brought: OnceLock<Arc<Brought>>,
}

impl Frame {
    pub(crate) fn new(hash: u64, header: Header, bytes: Bytes) -> Self {
        let (uses, number) = (AtomicU8::new(0), AtomicU64::new(0));
        Self { hash, header, bytes, decoded: OnceLock::new(), uses, number, brought: OnceLock::new() }
    }

    /// Remembers which read brought it before anybody asked.
    pub(crate) fn brought_by(self, brought: &Arc<Brought>) -> Self {
        // A new frame has none.
        let _ = self.brought.set(Arc::clone(brought));
        self
    }

    /// It was asked for; the first time, its read learns of it. Where reads bring objects, nobody needs numbers.
    pub(crate) fn credit(&self) {
        if let Some(brought) = self.brought.get()
            && self.number.swap(1, Relaxed) == 0
        {
            brought.by.upgrade().inspect(|by| by.was_used(self.hash, brought.class));
        }
    }

    pub(crate) fn key(&self) -> &[u8] {
        self.header.key(&self.bytes)
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// All its bytes, without a copy.
    pub(crate) fn shared_bytes(&self) -> Bytes {
        self.bytes.clone()
    }

    pub(crate) fn metadata(&self) -> &[u8] {
        &self.bytes[self.header.meta_start()..self.header.body_start()]
    }

    fn body_range(&self) -> Range<usize> {
        let start = self.header.body_start();
        start..start + self.header.body_len as usize
    }

    pub(crate) fn body(&self) -> Bytes {
        self.bytes.slice(self.body_range())
    }

    /// Bytes of memory it holds, bookkeeping included.
    pub(crate) fn charge(&self) -> u64 {
        const OVERHEAD: usize = 96 + size_of::<Frame>();
        (self.bytes.len() + OVERHEAD) as u64
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

/// An object of the store. Clones share the bytes; the bytes stay as long as a clone does. Those of an object larger
/// than a cluster are on the device: they stay there though it is replaced, deleted, evicted or expires meanwhile, as
/// long as what is kept so is no more than an eighth of its device; beyond that reading says that they are gone.
#[derive(Clone)]
pub struct Object {
    frame: Arc<Frame>,
    elsewhere: Option<Arc<Elsewhere>>,
}

/// Where the body is, if not in the frame.
enum Elsewhere {
    /// In chunks.
    Chunks { manifest: Manifest, store: Store, lease: Option<Arc<Lease>> },
    /// In memory: it was fetched, and not stored; or put together from the pieces it was cut into.
    Memory(Bytes),
}

impl Object {
    pub(crate) fn whole(frame: Arc<Frame>) -> Self {
        Self { frame, elsewhere: None }
    }

    /// The object that a verified frame stands for.
    pub(crate) fn from_frame(frame: Arc<Frame>, store: &Store) -> Result<Self> {
        if frame.header.kind != Kind::Manifest {
            return Ok(Self::whole(frame));
        }
        let manifest = Manifest::decode(&frame.body()).map_err(|why| Error::Damaged {
            place: "manifest of a large object".into(),
            why: why.to_string(),
            mend: "put the object again".into(),
        })?;
        let lease = store.shared().leases.take(store.hasher().key(frame.key()), manifest).map(Arc::new);
        let chunks = Elsewhere::Chunks { manifest, store: store.clone(), lease };
        Ok(Self { frame, elsewhere: Some(Arc::new(chunks)) })
    }

    /// One that is not in the store: a frame without a body, and the body.
    pub(crate) fn detached(frame: Frame, body: Bytes) -> Self {
        Self { frame: Arc::new(frame), elsewhere: Some(Arc::new(Elsewhere::Memory(body))) }
    }

    /// The same object, whose pieces were put together.
    pub(crate) fn with_body(self, body: Bytes) -> Self {
        Self { elsewhere: Some(Arc::new(Elsewhere::Memory(body))), ..self }
    }

    pub(crate) fn frame(&self) -> &Frame {
        &self.frame
    }

    pub(crate) fn shared_frame(&self) -> Arc<Frame> {
        Arc::clone(&self.frame)
    }

    /// How a large object is cut.
    pub(crate) fn manifest(&self) -> Option<Manifest> {
        self.manifest_and_lease().map(|(manifest, _)| manifest)
    }

    /// The same, and what keeps its chunks.
    pub(crate) fn manifest_and_lease(&self) -> Option<(Manifest, Option<Arc<Lease>>)> {
        match self.elsewhere.as_deref() {
            Some(Elsewhere::Chunks { manifest, lease, .. }) => Some((*manifest, lease.clone())),
            _ => None,
        }
    }

    /// Whether its bytes stay as long as this handle does: whole in memory, or in chunks that are not being dropped.
    pub(crate) fn is_held(&self) -> bool {
        !matches!(self.elsewhere.as_deref(), Some(Elsewhere::Chunks { lease: None, .. }))
    }

    /// The key it was put under.
    pub fn key(&self) -> &[u8] {
        self.frame.key()
    }

    /// The application's metadata.
    pub fn metadata(&self) -> &[u8] {
        self.frame.metadata()
    }

    /// Length of the body in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a length in bytes, not a collection")]
    pub fn len(&self) -> u64 {
        match self.elsewhere.as_deref() {
            None => u64::from(self.frame.header.body_len),
            Some(Elsewhere::Chunks { manifest, .. }) => manifest.total,
            Some(Elsewhere::Memory(body)) => body.len() as u64,
        }
    }

    /// The version: grows with every put of the store.
    pub fn generation(&self) -> u64 {
        self.frame.header.generation
    }

    /// When it expires, in milliseconds since the Unix epoch.
    pub fn expires(&self) -> Option<u64> {
        Some(self.frame.header.expires).filter(|at| *at != 0)
    }

    /// The group it was put into; 0 is none.
    pub fn group(&self) -> u32 {
        self.frame.header.group
    }

    /// The body without a copy, if the object is one frame, as all are that fit in a cluster. A larger
    /// one is read through [`Object::chunks`].
    pub fn body(&self) -> Option<Bytes> {
        match self.elsewhere.as_deref() {
            None => Some(self.frame.body()),
            Some(Elsewhere::Chunks { .. }) => None,
            Some(Elsewhere::Memory(body)) => Some(body.clone()),
        }
    }

    /// As [`Object::body`], for who looks at it and does not keep it.
    pub fn body_slice(&self) -> Option<&[u8]> {
        match self.elsewhere.as_deref() {
            None => Some(&self.frame.bytes[self.frame.body_range()]),
            Some(Elsewhere::Chunks { .. }) => None,
            Some(Elsewhere::Memory(body)) => Some(body),
        }
    }

    /// The whole body in one piece; copies only if the object is larger than a cluster.
    ///
    /// # Errors
    /// Those of reading the pieces of a large object.
    pub fn bytes(&self) -> Result<Bytes> {
        match self.body() {
            Some(body) => Ok(body),
            None => {
                let mut all = Vec::new();
                for piece in self.chunks(0..self.len()) {
                    all.extend_from_slice(&piece?);
                }
                Ok(all.into())
            }
        }
    }

    /// The bytes of a range of the body, piece by piece, from memory or from the device. The range is
    /// cut to the body's length.
    pub fn chunks(&self, range: Range<u64>) -> Chunks {
        match self.elsewhere.as_deref() {
            None => Chunks::whole(self.frame.body(), range),
            Some(Elsewhere::Chunks { manifest, store, lease }) => {
                Chunks::large(store, (self.frame.clone(), lease.clone()), *manifest, range)
            }
            Some(Elsewhere::Memory(body)) => Chunks::whole(body.clone(), range),
        }
    }

    /// What `decode` makes of the metadata, made once for as long as the object stays in memory and
    /// shared by all its handles. Asking for a second type decodes anew each time.
    pub fn decoded<T: Any + Send + Sync>(&self, decode: impl FnOnce(&[u8]) -> T) -> Arc<T> {
        let cached = self.frame.decoded.get().map(|any| Arc::clone(any).downcast::<T>());
        if let Some(Ok(cached)) = cached {
            return cached;
        }
        let made = Arc::new(decode(self.metadata()));
        let _ = self.frame.decoded.set(made.clone());
        made
    }
}

impl std::fmt::Debug for Object {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Object")
            .field("key", &String::from_utf8_lossy(self.key()))
            .field("len", &self.len())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}
