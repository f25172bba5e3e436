//! Iteration over keys, by one pass over the volumes (`pass.rs`), or as a layout of another crate lists them; with
//! progress.

use std::{sync::Arc, vec};

use bytes::Bytes;
use picaflor_format::frame::{Header, Kind};

use super::pass::Pass;
use crate::{handle::Store, layout::Listing};

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
    /// The metadata, where they were asked for ([`Store::keys_with_metadata`]); else empty.
    #[cfg_attr(feature = "serde", serde(skip))]
    pub metadata: Bytes,
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(key: &Bytes, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&String::from_utf8_lossy(key))
}

/// What a frame is told as.
type Tell = fn(&Header, &[u8]) -> Option<Entry>;

/// The keys of a store; see [`Store::keys`].
pub struct Keys {
    store: Store,
    pass: Pass<Entry>,
    tell: Tell,
    ready: vec::IntoIter<Entry>,
    /// Where the layout keeps its own index.
    listing: Option<Box<dyn Listing>>,
    unreadable: u64,
}

impl Store {
    /// All objects, in the order in which they lie on the device; those in memory, and what moved meanwhile, last. One
    /// that is there from this call on until the end of the listing is listed: once, or twice if it was moved to make
    /// room for others meanwhile. Reads the device from end to end.
    pub fn keys(&self) -> Keys {
        self.list(entry)
    }

    /// As [`Store::keys`], with the metadata of each.
    pub fn keys_with_metadata(&self) -> Keys {
        self.list(|header, frame| {
            let metadata = Bytes::copy_from_slice(frame.get(header.meta_start()..header.body_start())?);
            Some(Entry { metadata, ..entry(header, frame)? })
        })
    }

    fn list(&self, tell: Tell) -> Keys {
        let listing = self.layout().map(|layout| Arc::clone(layout).list());
        let (pass, ready) = (Pass::new(self.clone(), tell), Vec::new().into_iter());
        Keys { store: self.clone(), pass, tell, ready, listing, unreadable: 0 }
    }
}

impl Keys {
    /// Places met so far, clusters or objects, that could not be read, or whose bytes do not verify: what lies there is
    /// not listed. Once the listing has come to its end, 0 says that it is whole.
    pub fn unreadable(&self) -> u64 {
        self.unreadable + self.pass.unreadable()
    }

    /// As [`Iterator::next`], for any executor: the blocking pool reads. A future that is dropped halfway ends the
    /// listing, and then [`Keys::unreadable`] is not 0.
    pub async fn next_async(&mut self) -> Option<Entry> {
        if let Some(entry) = self.ready.next() {
            return Some(entry);
        }
        let store = self.store.clone();
        let (pass, ready) = (Pass::ended(store.clone(), self.tell), Vec::new().into_iter());
        let ended = Self { store: store.clone(), pass, tell: self.tell, ready, listing: None, unreadable: 0 };
        store.lend(self, ended, Self::next).await
    }

    /// Places looked at, and places in all, for a progress bar.
    pub fn progress(&self) -> (u64, u64) {
        self.listing.as_ref().map_or_else(|| self.pass.progress(), |listing| listing.progress())
    }
}

impl std::fmt::Debug for Keys {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Keys").field("unreadable", &self.unreadable()).finish_non_exhaustive()
    }
}

impl Iterator for Keys {
    type Item = Entry;

    fn next(&mut self) -> Option<Entry> {
        loop {
            if let Some(entry) = self.ready.next() {
                return Some(entry);
            }
            let found = if let Some(listing) = &mut self.listing {
                let found = listing.next()?;
                self.unreadable += u64::from(found.is_err());
                found.iter().filter_map(|(header, frame)| (self.tell)(header, frame)).collect()
            } else {
                self.pass.next_place()?
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
        metadata: Bytes::new(),
    })
}
