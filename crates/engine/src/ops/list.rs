//! Iteration over keys: from the device, cluster by cluster in address order, with progress.
//!
//! Objects that move while the iteration runs may be seen twice or not at all; those that stay are seen
//! once.

use std::{sync::Arc, vec};

use bytes::Bytes;
use picaflor_format::{
    cluster::Row,
    frame::{GRAIN, Header, Kind},
};

use crate::{cache::buffers::Slot, handle::Store, index::IndexEntry, layout::Listing, volume::Volume};

/// One object, as a listing shows it.
#[derive(Debug, Clone)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub key: Bytes,
    /// Length of the body in bytes.
    pub len: u64,
    /// Length of the metadata in bytes.
    pub metadata_len: u32,
    /// Its group, 0 for none.
    pub group: u32,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires: u64,
    /// The version.
    pub generation: u64,
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(key: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(key))
}

/// The keys of a store; see [`Store::keys`].
pub struct Keys {
    store: Store,
    volume: usize,
    place: u32,
    ready: vec::IntoIter<Entry>,
    /// Where the layout keeps its own index.
    listing: Option<Box<dyn Listing>>,
    unreadable: u64,
}

impl Store {
    /// All objects, in the order in which they lie on the device; those in open buffers, or that wait to
    /// be packed, last. Reads the
    /// device from end to end.
    pub fn keys(&self) -> Keys {
        let listing = self.layout().map(|layout| Arc::clone(layout).list());
        Keys { store: self.clone(), volume: 0, place: 0, ready: Vec::new().into_iter(), listing, unreadable: 0 }
    }
}

impl Keys {
    /// Places met so far, clusters or objects, that could not be read, or whose bytes do not verify: what lies there is
    /// not listed. Once the listing has come to its end, 0 says that it is whole.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// As [`Iterator::next`], for any executor: the blocking pool reads. A future that is dropped halfway ends the
    /// listing, and then [`Keys::unreadable`] is not 0.
    pub async fn next_async(&mut self) -> Option<Entry> {
        if let Some(entry) = self.ready.next() {
            return Some(entry);
        }
        let store = self.store.clone();
        let ended = Self {
            store: store.clone(),
            volume: usize::MAX,
            place: 0,
            ready: Vec::new().into_iter(),
            listing: None,
            unreadable: 1,
        };
        let mut own = std::mem::replace(self, ended);
        let entry;
        (*self, entry) = store
            .spawn_blocking(move |_| {
                let entry = own.next();
                (own, entry)
            })
            .await;
        entry
    }

    /// Places looked at, and places in all, for a progress bar.
    pub fn progress(&self) -> (u64, u64) {
        if let Some(listing) = &self.listing {
            return listing.progress();
        }
        let places = |volume: &Arc<Volume>| u64::from(volume.catalog.parts() + volume.catalog.buffers.count() + 1);
        let volumes = self.store.recovered_volumes();
        let before: u64 = volumes.iter().take(self.volume).map(places).sum();
        (before + u64::from(self.place), volumes.iter().map(places).sum())
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("unreadable", &self.unreadable).finish_non_exhaustive()
    }
}

impl Iterator for Keys {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(entry);
            }
            if let Some(listing) = &mut self.listing {
                let found = listing.next()?;
                self.unreadable += u64::from(found.is_err());
                self.ready =
                    found.iter().filter_map(|(header, frame)| entry(header, frame)).collect::<Vec<_>>().into_iter();
                continue;
            }
            let volume = Arc::clone(self.store.recovered_volumes().get(self.volume)?);
            let clusters = volume.catalog.parts();
            let place = self.place;
            self.place += 1;
            let found = if place < clusters {
                entries_on_device(&volume, place, &mut self.unreadable)
            } else if place < clusters + volume.catalog.buffers.count() {
                entries_in_buffer(&volume, place - clusters)
            } else if place == clusters + volume.catalog.buffers.count() {
                let waiting = volume.catalog.waiting().all();
                waiting.iter().filter_map(|staged| entry(&staged.frame.header, staged.frame.bytes())).collect()
            } else {
                (self.volume, self.place) = (self.volume + 1, 0);
                Vec::new()
            };
            self.ready = found.into_iter();
        }
    }
}

fn entry(header: &Header, frame: &[u8]) -> Option<Entry> {
    let len = match header.kind {
        Kind::Chunk => return None,
        Kind::Manifest => header.manifest(frame)?.total,
        Kind::Whole | Kind::Copy => header.body_len.into(),
    };
    Some(Entry {
        key: Bytes::copy_from_slice(header.key(frame)),
        len,
        metadata_len: header.meta_len,
        group: header.group,
        expires: header.expires,
        generation: header.generation,
    })
}

fn entries_on_device(volume: &Volume, cluster: u32, unreadable: &mut u64) -> Vec<Entry> {
    if let Some(places) = &volume.catalog.places {
        let mut found = Vec::new();
        places.list(volume.parts(), cluster, &mut |read| {
            *unreadable += u64::from(read.is_err());
            found.extend(read.ok().and_then(|(header, frame)| entry(&header, &frame)));
        });
        return found;
    }
    if !volume.space.state(cluster).is_read() {
        return Vec::new();
    }
    let mut live = volume.catalog.entries_of(cluster, volume.medium.read_rows(cluster));
    let Some(bytes) = volume.medium.read_cluster(cluster) else {
        *unreadable += 1;
        return Vec::new();
    };
    volume.catalog.add_unlisted(cluster, &bytes, &mut live);
    let read = |(row, _): &(Row, IndexEntry)| {
        let frame = bytes.get(row.offset as usize..)?;
        let header = Header::verify(frame).ok();
        // Unless it left while it was read.
        let is_there = || !volume.catalog.entries_of(cluster, vec![*row]).is_empty();
        *unreadable += u64::from(header.is_none() && is_there());
        entry(&header?, frame)
    };
    live.iter().filter_map(read).collect()
}

fn entries_in_buffer(volume: &Volume, slot: u32) -> Vec<Entry> {
    let rows = match &*volume.catalog.buffers.slot(slot).read() {
        Slot::Free => return Vec::new(),
        Slot::Open(open) => open.rows().to_vec(),
        Slot::Filled(filled) => filled.rows.clone(),
    };
    let read = |row: &Row| {
        volume.catalog.entry_in_slot(slot, row)?;
        let at = row.offset as usize / GRAIN * GRAIN;
        let frame = volume.catalog.buffers.read(slot, at, row.hash, |_, _| true)?;
        entry(&frame.header, frame.bytes())
    };
    rows.iter().filter_map(read).collect()
}
