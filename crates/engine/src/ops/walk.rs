//! A walk over all objects that misses none, while others are put, moved, read in and evicted.
//!
//! 1. Of each volume its clusters, by one read each: every frame whose key has an entry, be that the present version or
//!    not.
//! 2. Its index, segment by segment. An object may move from place to place, but its entry stays in its segment. What
//!    leads to a cluster that the first step went through, and that was not granted anew since, was told; the rest,
//!    mostly in memory, is looked at where it lies. What moved meanwhile is looked at again.
//! 3. The memory tier, which may have an object whose entry went to another key of its place.
//!
//! Invariant: each object that is there from the call to the end is told, if nothing was unreadable. Some are told
//! twice, and of some an older version too.

use std::collections::HashSet;

use bytes::Bytes;
use picaflor_format::frame::{Header, Kind};

use crate::{
    Error, Mode, Result, cache::memory::SHARDS, handle::Store, index::IndexEntry, index::Location, volume::Volume,
};

/// How often a segment is looked at again for what moved.
const ROUNDS: usize = 64;
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
    volume: usize,
    place: u32,
    /// The walk's number in the volume.
    number: u64,
    unreadable: u64,
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
        Ok(Walk { store: self.clone(), volume: 0, place: 0, number: 0, unreadable: 0 })
    }
}

/// What an entry leads to.
enum Seen {
    Object(Found),
    Chunk,
    /// Not what it should.
    Nothing,
    Unreadable,
}

fn found(header: &Header, frame: &[u8]) -> Seen {
    let metadata = frame.get(header.meta_start()..header.body_start()).unwrap_or_default();
    match header.kind {
        Kind::Chunk => Seen::Chunk,
        Kind::Whole | Kind::Copy | Kind::Manifest => Seen::Object(Found {
            key: Bytes::copy_from_slice(header.key(frame)),
            metadata: Bytes::copy_from_slice(metadata),
        }),
    }
}

impl Walk {
    /// Places that could not be read: once the walk has come to its end, 0 says that it missed nothing.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// What lies in the next place, a cluster mostly: often nothing. `None` at the end. Reads the device.
    pub fn next_place(&mut self) -> Option<Vec<Found>> {
        let Some(volume) = self.store.recovered_volumes().get(self.volume).cloned() else {
            let shard = self.place as usize;
            self.place += 1;
            let frames = (shard < SHARDS).then(|| self.store.shared().memory.frames(shard))?;
            let object = |seen| if let Seen::Object(found) = seen { Some(found) } else { None };
            return Some(frames.iter().filter_map(|frame| object(found(&frame.header, frame.bytes()))).collect());
        };
        if self.store.is_lost(&volume) {
            // All of its objects are misses.
            (self.volume, self.place) = (self.volume + 1, 0);
            return Some(Vec::new());
        }
        if self.place == 0 {
            self.number = volume.space.walked.begin(volume.space.count());
        }
        let (clusters, segments) = (volume.space.count(), volume.catalog.index.segment_count());
        let place = self.place;
        self.place += 1;
        if self.place == clusters + segments {
            (self.volume, self.place) = (self.volume + 1, 0);
        }
        Some(if place < clusters { self.cluster(&volume, place) } else { self.segment(&volume, place - clusters) })
    }

    /// As [`Walk::next_place`], for any executor: the blocking pool reads. A future that is dropped halfway leaves the
    /// walk where it was.
    pub async fn next_place_async(&mut self) -> Option<Vec<Found>> {
        let store = self.store.clone();
        let mut own = Self { store: store.clone(), ..*self };
        let places;
        (own, places) = store
            .spawn_blocking(move |_| {
                // Where nothing is, it goes on: a hop from thread to thread takes longer.
                let mut places = own.next_place();
                for _ in 0..IN_A_ROW {
                    if !places.as_ref().is_some_and(Vec::is_empty) {
                        break;
                    }
                    places = own.next_place();
                }
                (own, places)
            })
            .await;
        *self = own;
        places
    }

    fn cluster(&self, volume: &Volume, cluster: u32) -> Vec<Found> {
        let space = &volume.space;
        // Before it is looked at: what is granted anew meanwhile does not count as gone through.
        space.walked.set(self.number, cluster, true);
        let mut all = Vec::new();
        let mut is_whole = false;
        if space.live.grains(cluster) > 0
            && space.state(cluster).is_read()
            // Only a table vouches for all that lies there.
            && let Ok(Some((rows, bytes))) = volume.medium.sealed(cluster)
        {
            is_whole = true;
            for row in rows {
                if row.kind == Kind::Chunk || volume.catalog.index.candidates(row.hash).is_empty() {
                    continue;
                }
                let frame = bytes.get(row.offset as usize..).unwrap_or_default();
                match Header::verify(frame).map(|header| found(&header, frame)) {
                    Ok(Seen::Object(object)) => all.push(object),
                    _ => is_whole = false,
                }
            }
        }
        if !is_whole {
            space.walked.set(self.number, cluster, false);
        }
        all
    }

    fn segment(&mut self, volume: &Volume, segment: u32) -> Vec<Found> {
        let (mut all, mut known) = (Vec::new(), HashSet::new());
        let index = &volume.catalog.index;
        for _ in 0..ROUNDS {
            let mut has_moved = false;
            for (spot, entry) in index.entries_in(segment) {
                if !known.insert((spot, entry.location())) || self.is_told(volume, entry) {
                    continue;
                }
                let seen = look(volume, spot, entry);
                let is_there = || index.find(spot, entry.location()).is_some();
                match seen {
                    Seen::Object(object) => all.push(object),
                    Seen::Chunk => {}
                    _ if !is_there() => has_moved = true,
                    // As a get that finds nothing intact: no get will find it.
                    Seen::Nothing if self.store.mode() == Mode::Cache => volume.catalog.drop_damaged(spot, entry),
                    Seen::Nothing | Seen::Unreadable => self.unreadable += 1,
                }
            }
            if !has_moved {
                return all;
            }
        }
        self.unreadable += 1;
        all
    }

    fn is_told(&self, volume: &Volume, entry: IndexEntry) -> bool {
        let Location::OnDisk { grain } = entry.location() else { return false };
        volume.medium.cluster_of(grain).is_some_and(|cluster| volume.space.walked.has(self.number, cluster))
    }
}

/// Looks at what an entry of this spot leads to.
fn look(volume: &Volume, spot: u64, entry: IndexEntry) -> Seen {
    let apart = volume.catalog.index.told_apart_by();
    let see = |header: &Header, frame: &[u8]| {
        let hash = volume.medium.hasher.frame(header.kind, header.key(frame)).short();
        if hash & apart == spot { found(header, frame) } else { Seen::Nothing }
    };
    // The spot is not all of the hash by which an object that waits is found.
    if let Location::Buffered { slot, .. } = entry.location()
        && let Some(staged) = volume.catalog.buffers.staging().and_then(|staging| staging.get(slot))
    {
        return see(&staged.frame.header, staged.frame.bytes());
    }
    match volume.frames.look_at(spot, entry, see) {
        Ok(seen) => seen.unwrap_or(Seen::Nothing),
        Err(Error::Damaged { .. }) => Seen::Nothing,
        Err(_) => Seen::Unreadable,
    }
}

impl std::fmt::Debug for Walk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Walk").field("unreadable", &self.unreadable).finish_non_exhaustive()
    }
}
