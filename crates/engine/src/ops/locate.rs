//! Where an object's bytes lie. Nothing changes by asking: no object comes into memory, no counter of gets moves.

use std::future::Future;

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_format::frame::{ChunkKey, GRAIN, Header, Kind, Manifest};

use crate::{
    Error, Result, Store,
    index::{IndexEntry, Location},
    volume::Volume,
};

/// Bytes of an object's body that lie together; see [`Store::locate`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Extent {
    /// Number of the volume, as in [`Stats::volumes`](crate::Stats::volumes).
    pub volume: usize,
    /// First byte on its device.
    pub offset: u64,
    /// Bytes.
    pub len: u64,
}

impl Store {
    /// Where the body of an object lies: extents in the order of its bytes, one for each chunk that a large object was
    /// cut into, and one for what of its end is in its head. `None` if a get would not find the object whole.
    ///
    /// Between chunks that lie side by side there are a few hundred bytes of headers and tables. What is in memory only
    /// has no place yet, and its extent is missing: after [`Store::flush`] every put before has one, but for an object
    /// that was put again, moved or deleted meanwhile. Where objects are files or entries of tables (`simple`,
    /// `pmflf-ts` and others of their kind), the list is empty.
    ///
    /// Reads what it locates, to tell the key from others.
    ///
    /// # Errors
    /// [`Error::Io`] if the device of a store fails, [`Error::Closed`] once it was closed.
    pub fn locate(&self, key: &[u8]) -> Result<Option<Vec<Extent>>> {
        if self.layout().is_some() {
            return Ok(self.contains(key)?.then(Vec::new));
        }
        let hash = self.hasher().key(key);
        let home = self.home(hash, key);
        if home.log.is_closed() {
            // Another process may write there.
            return Err(Error::Closed);
        }
        if self.is_lost(home) {
            return Ok(None);
        }
        let Some(head) = locate(home, hash, key, Kind::Whole)? else { return Ok(None) };
        if head.header.expires != 0 && head.header.expires <= self.shared().clock.now_millis() {
            return Ok(None);
        }
        let Some(manifest) = head.manifest else { return Ok(Some(head.extent.into_iter().collect())) };
        let mut extents = Vec::new();
        for number in 0..manifest.chunks() {
            let key = ChunkKey { parent: hash.0, id: manifest.id, number }.encode();
            let Some(chunk) = locate(home, self.hasher().chunk(&key), &key, Kind::Chunk)? else { return Ok(None) };
            extents.extend(chunk.extent);
        }
        let tail = u64::from(manifest.tail);
        let end = head.extent.map(|body| Extent { offset: body.offset + body.len - tail, len: tail, ..body });
        extents.extend(end.filter(|end| end.len > 0));
        Ok(Some(extents))
    }

    /// As [`Store::locate`], for any executor.
    ///
    /// # Errors
    /// As [`Store::locate`].
    pub fn locate_async(
        &self,
        key: &[u8],
    ) -> impl Future<Output = Result<Option<Vec<Extent>>>> + Send + 'static + use<> {
        let key = Bytes::copy_from_slice(key);
        self.spawn_blocking(move |store| store.locate(&key))
    }
}

/// A frame, and where its body lies if it has a place.
struct Located {
    header: Header,
    manifest: Option<Manifest>,
    extent: Option<Extent>,
}

fn locate(volume: &Volume, hash: KeyHash, key: &[u8], kind: Kind) -> Result<Option<Located>> {
    loop {
        let Some(own) = volume.frames.verified(hash, key, kind)? else { return Ok(None) };
        // An entry that leads to nothing that verifies is no object.
        let Some(header) = own.header else { return Ok(None) };
        let extent = grain(volume, own.entry).map(|grain| Extent {
            volume: volume.medium.number,
            offset: grain * GRAIN as u64 + header.body_start() as u64,
            len: header.body_len.into(),
        });
        // As long as the entry is there, its buffer is not another's.
        if volume.catalog.index.find(hash.short(), own.entry.location()).is_some() {
            return Ok(Some(Located { header, manifest: own.manifest, extent }));
        }
    }
}

/// The device's grain at which the frame begins that an entry leads to, if it has a place there.
fn grain(volume: &Volume, entry: IndexEntry) -> Option<u64> {
    let catalog = &volume.catalog;
    match entry.location() {
        Location::OnDisk { grain } => {
            let is_file = catalog.places.as_ref().is_some_and(|places| places.is_file(grain));
            (!is_file).then_some(grain)
        }
        Location::Buffered { slot, offset } => {
            Some(volume.medium.grain(catalog.buffers.cluster(slot)?, offset * GRAIN as u32))
        }
    }
}
