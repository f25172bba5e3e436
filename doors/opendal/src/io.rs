//! Reading, writing, deleting and listing.
//!
//! Invariants: a reader reads one version of its object, however many ranges it asks for and whatever is written
//! meanwhile; a writer that is not closed was never there; a lister that met what cannot be read ends with an error.

use std::collections::{BTreeMap, btree_map};

use opendal_core::{
    Buffer, BytesRange, Error, ErrorKind, Metadata, MetadataBuilder, Result,
    raw::{OpDelete, OpWrite, RpRead, build_rel_path, oio},
};
use picaflor::{Chunks, Object, PutOptions, PutStream, Store};
use tokio::sync::OnceCell;

use crate::{Backend, failed, record};

pub(crate) async fn found(store: &Store, key: &str) -> Result<Object> {
    let object = store.get_async(key.as_bytes()).await.map_err(failed)?;
    object.ok_or_else(|| Error::new(ErrorKind::NotFound, "picaflor has no object of this path"))
}

/// Reads of one object.
pub(crate) struct Reader {
    store: Store,
    key: String,
    object: OnceCell<Object>,
}

impl Reader {
    pub(crate) fn new(store: Store, key: String) -> Self {
        Self { store, key, object: OnceCell::new() }
    }
}

impl oio::StreamRead for Reader {
    async fn open(&self, range: BytesRange) -> Result<(RpRead, Box<dyn oio::ReadStreamDyn>)> {
        let object = self.object.get_or_try_init(|| found(&self.store, &self.key)).await?;
        let part = range.to_content_range(object.len() as usize)?;
        let said = RpRead::new(record::described(&self.key, object.len(), object.metadata()));
        Ok((said, Box::new(Pieces(object.chunks(part.start as u64..part.end as u64)))))
    }
}

/// A range on its way, a chunk at a time.
struct Pieces(Chunks);

impl oio::ReadStream for Pieces {
    async fn read(&mut self) -> Result<Buffer> {
        while let Some(piece) = self.0.next_async().await {
            let piece = piece.map_err(failed)?;
            // An empty one means the end to OpenDAL.
            if !piece.is_empty() {
                return Ok(Buffer::from(piece));
            }
        }
        Ok(Buffer::new())
    }
}

/// An object on its way into the store.
pub(crate) struct Writer {
    path: String,
    /// None once it is closed.
    stream: Option<PutStream>,
    len: u64,
    metadata: Vec<u8>,
}

impl Writer {
    pub(crate) fn begin(store: &Store, path: &str, key: &str, args: &OpWrite) -> Result<Self> {
        let metadata = record::written(args)?;
        let stream = store.put_stream(key.as_bytes(), None, PutOptions::new().metadata(metadata.clone()));
        Ok(Self { path: path.into(), stream: Some(stream.map_err(failed)?), len: 0, metadata })
    }
}

fn closed() -> Error {
    Error::new(ErrorKind::Unexpected, "this writer was closed")
}

impl oio::Write for Writer {
    async fn write(&mut self, pieces: Buffer) -> Result<()> {
        let stream = self.stream.as_mut().ok_or_else(closed)?;
        self.len += pieces.len() as u64;
        for piece in pieces {
            stream.write_async(piece).await.map_err(failed)?;
        }
        Ok(())
    }

    async fn close(&mut self) -> Result<Metadata> {
        let stream = self.stream.take().ok_or_else(closed)?;
        stream.finish_async().await.map_err(failed)?;
        Ok(record::described(&self.path, self.len, &self.metadata))
    }

    async fn abort(&mut self) -> Result<()> {
        self.stream = None;
        Ok(())
    }
}

/// Deletes, many at a time: those of one call share a sync where every delete is durable.
pub(crate) struct Deleter {
    backend: Backend,
    keys: Vec<String>,
}

/// Deletes that wait for each other; more go before `close`.
const TOGETHER: usize = 1000;

impl Deleter {
    pub(crate) fn new(backend: Backend) -> Self {
        Self { backend, keys: Vec::new() }
    }
}

impl oio::Delete for Deleter {
    async fn delete<'a>(&'a mut self, path: &'a str, _: OpDelete) -> Result<()> {
        self.keys.push(self.backend.key(path));
        if self.keys.len() < TOGETHER { Ok(()) } else { self.close().await }
    }

    async fn close(&mut self) -> Result<()> {
        let keys: Vec<_> = self.keys.iter().map(String::as_bytes).collect();
        self.backend.store.delete_many_async(&keys).await.map_err(failed)?;
        self.keys.clear();
        Ok(())
    }
}

/// The paths below a prefix, in their order. The first call reads the whole store, which has no order of keys.
pub(crate) struct Lister {
    store: Store,
    root: String,
    prefix: String,
    found: Option<btree_map::IntoIter<String, u64>>,
    unreadable: u64,
}

impl Lister {
    pub(crate) fn new(store: Store, root: String, prefix: String) -> Self {
        Self { store, root, prefix, found: None, unreadable: 0 }
    }

    async fn look(&mut self) -> btree_map::IntoIter<String, u64> {
        let (mut keys, mut found) = (self.store.keys(), BTreeMap::new());
        while let Some(entry) = keys.next_async().await {
            // A key that is no text is another program's: no path leads to it.
            let Ok(key) = std::str::from_utf8(&entry.key) else { continue };
            if key.starts_with(&self.prefix) {
                found.insert(key.to_owned(), entry.len);
            }
        }
        self.unreadable = keys.unreadable();
        found.into_iter()
    }
}

impl oio::List for Lister {
    async fn next(&mut self) -> Result<Option<oio::Entry>> {
        if self.found.is_none() {
            self.found = Some(self.look().await);
        }
        if let Some((key, len)) = self.found.as_mut().and_then(Iterator::next) {
            let said = if key.ends_with('/') { MetadataBuilder::dir() } else { MetadataBuilder::file(len) };
            let path = match build_rel_path(&self.root, &key) {
                path if path.is_empty() => "/".into(),
                path => path,
            };
            return Ok(Some(oio::Entry::with(path, said.build())));
        }
        match std::mem::take(&mut self.unreadable) {
            0 => Ok(None),
            places => {
                let why = format!("picaflor: the list is not whole: {places} places of the store cannot be read");
                Err(Error::new(ErrorKind::Unexpected, why))
            }
        }
    }
}
