//! A walk over all objects that misses none, while others are put, moved, read in and evicted: one pass over the
//! volumes (`pass.rs`), and then the memory tier, which may have an object whose entry went to another key of its
//! place.

use bytes::Bytes;
use picaflor_format::frame::{Header, Kind};

use super::pass::Pass;
use crate::{Error, Result, cache::memory::SHARDS, handle::Store};

/// Places in which nothing is that a task goes through at once.
const IN_A_ROW: usize = 32;

/// An object, as a walk finds it.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Found {
    /// The key.
    pub key: Bytes,
    /// The metadata.
    pub metadata: Bytes,
}

/// See [`Store::walk`].
pub struct Walk {
    store: Store,
    pass: Pass<Found>,
    shard: usize,
}

impl Store {
    /// All that is stored, with its metadata: an object that is there from this call on until the end of the walk is
    /// told, whatever moves meanwhile; one that comes or goes may be. Some are told twice, and some in a version that
    /// was replaced: a get says what there is. Reads the device from end to end.
    ///
    /// # Errors
    /// [`Error::Option`] where objects do not lie in clusters.
    pub fn walk(&self) -> Result<Walk> {
        if !self.has_pins() {
            let why = format!("{} keeps objects outside of clusters", self.shared().preset.name);
            return Err(Error::Option { name: "preset", why });
        }
        Ok(Walk { store: self.clone(), pass: Pass::new(self.clone(), found), shard: 0 })
    }
}

fn found(header: &Header, frame: &[u8]) -> Option<Found> {
    let metadata = frame.get(header.meta_start()..header.body_start()).filter(|_| header.kind != Kind::Chunk)?;
    Some(Found { key: Bytes::copy_from_slice(header.key(frame)), metadata: Bytes::copy_from_slice(metadata) })
}

impl Walk {
    /// Places that could not be read: once the walk has come to its end, 0 says that it missed nothing.
    pub fn unreadable(&self) -> u64 {
        self.pass.unreadable()
    }

    /// What lies in the next place, a cluster mostly: often nothing. `None` at the end. Reads the device.
    pub fn next_place(&mut self) -> Option<Vec<Found>> {
        if self.pass.volume().is_some_and(|volume| self.store.is_lost(volume)) {
            // All of its objects are misses.
            self.pass.skip_volume();
            return Some(Vec::new());
        }
        self.pass.next_place().or_else(|| {
            let shard = self.shard;
            self.shard += 1;
            let frames = (shard < SHARDS).then(|| self.store.shared().memory.frames(shard))?;
            Some(frames.iter().filter_map(|frame| found(&frame.header, frame.bytes())).collect())
        })
    }

    /// As [`Walk::next_place`], for any executor: the blocking pool reads. A future that is dropped halfway ends the
    /// walk, and then [`Walk::unreadable`] is not 0.
    pub async fn next_place_async(&mut self) -> Option<Vec<Found>> {
        let store = self.store.clone();
        let ended = Self { store: store.clone(), pass: Pass::ended(store.clone(), found), shard: SHARDS };
        // Where nothing is, it goes on: a hop from thread to thread takes longer.
        let next = |own: &mut Self| {
            let mut places = own.next_place();
            for _ in 0..IN_A_ROW {
                if !places.as_ref().is_some_and(Vec::is_empty) {
                    break;
                }
                places = own.next_place();
            }
            places
        };
        store.lend(self, ended, next).await
    }
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("unreadable", &self.unreadable()).finish_non_exhaustive()
    }
}
