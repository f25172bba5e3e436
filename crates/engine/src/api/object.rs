//! What a get returns: a handle that pins an object's bytes.
//!
//! Invariants: a frame was verified (checksum and full key) before it became a handle; its bytes never
//! change; dropping the last handle and the memory tier's own frees them.

use std::{any::Any, ops::Range, sync::Arc};

use bytes::Bytes;
use picaflor_format::frame::{Kind, Manifest};

use crate::{
    Error, Result,
    api::chunks::{ChunkSource, Chunks, Rest},
    base::frame::Frame,
    cache::leases::Lease,
};

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
    Chunks { manifest: Manifest, source: Arc<dyn ChunkSource>, lease: Option<Arc<Lease>> },
    /// In memory: it was fetched, and not stored; or put together from the pieces it was cut into.
    Memory(Bytes),
}

impl Object {
    pub(crate) fn whole(frame: Arc<Frame>) -> Self {
        Self { frame, elsewhere: None }
    }

    /// The object that a verified frame stands for.
    pub(crate) fn from_frame(frame: Arc<Frame>, source: impl FnOnce() -> Arc<dyn ChunkSource>) -> Result<Self> {
        if frame.header.kind != Kind::Manifest {
            return Ok(Self::whole(frame));
        }
        let manifest = Manifest::decode(&frame.body()).map_err(|why| Error::Damaged {
            place: "manifest of a large object".into(),
            why: why.to_string(),
            mend: "put the object again".into(),
        })?;
        let source = source();
        let lease = source.lease(frame.key(), manifest);
        let chunks = Elsewhere::Chunks { manifest, source, lease };
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

    /// How a large object is cut.
    pub(crate) fn manifest(&self) -> Option<Manifest> {
        match self.elsewhere.as_deref() {
            Some(Elsewhere::Chunks { manifest, .. }) => Some(*manifest),
            _ => None,
        }
    }

    /// The chunks of a large object.
    pub(crate) fn rest(&self) -> Option<Rest> {
        match self.elsewhere.as_deref() {
            Some(Elsewhere::Chunks { manifest, source, lease }) => {
                Some(Rest::all(source, (self.frame.clone(), lease.clone()), *manifest))
            }
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

    /// The whole body in one piece, without a copy if the object is one frame, as all are that fit in a cluster. The
    /// chunks of a larger one are read, on this thread, and joined: for such a one there is [`Object::chunks`] too.
    ///
    /// # Errors
    /// Those of reading the pieces of a large object.
    pub fn body(&self) -> Result<Bytes> {
        match self.rest() {
            Some(rest) => rest.body(),
            None => Ok(self.body_in_memory().unwrap_or_default()),
        }
    }

    /// As [`Object::body`], for any executor.
    ///
    /// # Errors
    /// As [`Object::body`].
    pub async fn body_async(&self) -> Result<Bytes> {
        match self.rest() {
            Some(rest) => rest.body_async().await,
            None => Ok(self.body_in_memory().unwrap_or_default()),
        }
    }

    /// As [`Object::body`], if that takes no read: `None` of an object larger than a cluster, whose chunks are on the
    /// device.
    pub fn body_in_memory(&self) -> Option<Bytes> {
        match self.elsewhere.as_deref() {
            None => Some(self.frame.body()),
            Some(Elsewhere::Chunks { .. }) => None,
            Some(Elsewhere::Memory(body)) => Some(body.clone()),
        }
    }

    /// As [`Object::body_in_memory`], for a caller that looks at it and does not keep it.
    pub fn body_slice(&self) -> Option<&[u8]> {
        match self.elsewhere.as_deref() {
            None => Some(&self.frame.bytes()[self.frame.body_range()]),
            Some(Elsewhere::Chunks { .. }) => None,
            Some(Elsewhere::Memory(body)) => Some(body),
        }
    }

    /// The bytes of a range of the body, piece by piece, from memory or from the device. The range is
    /// cut to the body's length.
    pub fn chunks(&self, range: Range<u64>) -> Chunks {
        match self.elsewhere.as_deref() {
            None => Chunks::whole(self.frame.body(), range),
            Some(Elsewhere::Chunks { manifest, source, lease }) => {
                Chunks::large(source, (self.frame.clone(), lease.clone()), *manifest, range)
            }
            Some(Elsewhere::Memory(body)) => Chunks::whole(body.clone(), range),
        }
    }

    /// What `decode` makes of the metadata, made once for as long as the object stays in memory and
    /// shared by all its handles. Asking for a second type decodes anew each time. The store counts 128 bytes for it.
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
