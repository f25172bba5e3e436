//! Frames, read and verified: what an entry leads to, which of several entries is a key's, and the chunks of a large
//! object.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering::Relaxed},
    },
};

use bytes::Bytes;
use picaflor_common::KeyHash;
use picaflor_format::{
    BLOCK,
    cluster::Row,
    frame::{ChunkKey, GRAIN, Header, Kind, Manifest},
};

use crate::{
    Error, Mode, Result,
    base::{medium::Medium, stats::add},
    cache::catalog::Catalog,
    cache::leases::{KEPT, Left},
    index::{Candidates, IndexEntry, Location},
    read::tables::Tables,
    read::together::{HEAD, Together, own_header},
    shared::Shared,
};

/// A key's own entry.
pub(crate) struct CurrentEntry {
    pub(crate) entry: IndexEntry,
    /// If the object is a large one and that is known.
    pub(crate) manifest: Option<Manifest>,
    /// What its frame says, if that was read.
    pub(crate) header: Option<Header>,
    /// Whether that it is the key's is known, by its frame or its cluster's table.
    pub(crate) is_known: bool,
    /// Other entries of the place, if none could be read: any of them may be this key's.
    unread: Vec<IndexEntry>,
}

impl CurrentEntry {
    /// An entry of which nothing more is known.
    fn unread(entry: IndexEntry) -> Self {
        Self { entry, manifest: None, header: None, is_known: false, unread: Vec::new() }
    }
}

/// What tells which key a frame has.
#[derive(Clone, Copy)]
pub(crate) enum Telling<'a> {
    /// The frame itself.
    Frames,
    /// The table of its cluster; where that does not, the frame, which may have been read together with others.
    Tables(Option<&'a Together>),
}

pub(crate) struct Frames {
    pub(crate) medium: Arc<Medium>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) tables: Tables,
    /// Large objects being put: their chunks have no manifest yet.
    pub(crate) streams_open: AtomicU32,
}

impl Frames {
    /// Most bytes that leases alone may keep here.
    pub(crate) fn lease_max(&self) -> u64 {
        self.medium.map().clusters.len / KEPT
    }

    /// Drops what was left to handles that are gone. Returns whether there was anything.
    pub(crate) fn drop_released(&self) -> bool {
        self.shared.leases.drop_over(self.medium.number, |left| self.drop_chunks_now(left.parent, left.manifest))
    }

    /// The entries that may be of this key, newest last: those of its place in the index, but for what is known to be
    /// of another key.
    pub(crate) fn candidates(&self, hash: KeyHash) -> Candidates {
        let mut candidates = self.catalog.index.candidates(hash.short());
        candidates.retain(|entry| !self.is_of_another(*entry, hash));
        candidates
    }

    /// Whether what an entry leads to is known to have another key than this: by the table of places, and by
    /// memory where it waits there for a place of its own, or for company, or may leave an open cluster unwritten. An
    /// entry that moved since is not: by now another may be where it was.
    pub(crate) fn is_of_another(&self, entry: IndexEntry, hash: KeyHash) -> bool {
        let Catalog { buffers, places, placer, .. } = &*self.catalog;
        // Asked behind the look, and while a buffer cannot change.
        let leads_there = || self.catalog.index.find(hash.short(), entry.location()).is_some();
        let is_other =
            |header: &Header, key: &[u8]| self.medium.hasher.frame(header.kind, key) != hash && leads_there();
        match entry.location() {
            Location::OnDisk { grain } => {
                places.as_ref().is_some_and(|places| places.is_of_another(grain, hash) && leads_there())
            }
            Location::Buffered { slot, offset } if places.is_some() || placer.keeps_apart() => {
                let mut is_of_another = false;
                buffers.read(slot, offset as usize * GRAIN, hash.short(), |header, key| {
                    is_of_another = is_other(header, key);
                    false
                });
                is_of_another
            }
            Location::Buffered { slot, .. } => {
                let staged = buffers.staging().and_then(|staging| staging.get(slot));
                staged.is_some_and(|staged| is_other(&staged.frame.header, staged.frame.key()))
            }
        }
    }

    /// The entry that a put of this key replaces. A cache takes any that fits: with the rare other key of
    /// the same place it loses an object, as by eviction: 8 puts of 120,000 did; and it drops the others
    /// that recovery may have found there, for one of them may be an older version of this key. Not so what is in no
    /// cluster: no record would tell that the other key's newest version left. A store makes sure, by reading, and so
    /// does a cache whose listener is to hear of each object that leaves; where nothing of the place can be read, they
    /// drop the others too.
    pub(crate) fn own(&self, hash: KeyHash, key: &[u8], kind: Kind) -> Result<Option<CurrentEntry>> {
        match self.shared.options.mode {
            Mode::Cache if self.shared.options.eviction_listener.is_none() => {
                let mut candidates = self.candidates(hash);
                let entry = candidates.pop();
                for other in candidates {
                    self.catalog.drop_entry(hash.short(), other);
                }
                Ok(entry.map(CurrentEntry::unread))
            }
            _ => {
                let own = self.verified_by(Telling::Tables(None), hash, key, kind)?;
                for other in own.iter().flat_map(|own| &own.unread) {
                    self.catalog.drop_entry(hash.short(), *other);
                }
                Ok(own)
            }
        }
    }

    /// The entry of this key that may be dropped without a look at what it leads to. Where objects have places, their
    /// table knows the key of each. Elsewhere, if its caller goes by the index, a cache drops what lies at the key's
    /// place, by the reasoning of [`Frames::own`]; but not where the entry is known to be of a large object: its chunks
    /// go too. Chunks of one that was there before this opening go when their clusters are emptied: no manifest leads
    /// to them.
    pub(crate) fn deleted_unread(&self, hash: KeyHash, by_index: bool) -> Option<IndexEntry> {
        if let Some(places) = &self.catalog.places {
            let is_own = |entry: &IndexEntry| match entry.location() {
                Location::OnDisk { grain } => places.is_known_whole(grain, hash),
                Location::Buffered { .. } => false,
            };
            return self.catalog.index.candidates(hash.short()).into_iter().find(is_own);
        }
        let options = &self.shared.options;
        if !by_index || options.mode == Mode::Store || options.eviction_listener.is_some() {
            return None;
        }
        // In this order: an entry that comes to be in between is not among the candidates.
        match self.candidates(hash)[..] {
            [entry] if !self.catalog.large.may_be(hash.short()) => Some(entry),
            _ => None,
        }
    }

    /// The entry whose frame has this key, found by reading frames.
    pub(crate) fn verified(&self, hash: KeyHash, key: &[u8], kind: Kind) -> Result<Option<CurrentEntry>> {
        self.verified_by(Telling::Frames, hash, key, kind)
    }

    /// The same by what is told in this way.
    pub(crate) fn verified_by(
        &self,
        by: Telling<'_>,
        hash: KeyHash,
        key: &[u8],
        kind: Kind,
    ) -> Result<Option<CurrentEntry>> {
        let chunk = kind == Kind::Chunk;
        let mut candidates = self.candidates(hash);
        // They lead nowhere, whichever key's they are; one is this key's only if no other is.
        let mut unread = Vec::new();
        while let Some(entry) = candidates.pop() {
            let told = match by {
                Telling::Frames => None,
                Telling::Tables(together) => self.tables.tell(entry, hash, kind, |granted| {
                    together.and_then(|together| together.table(granted)).or_else(|| self.tables.get(granted))
                }),
            };
            let known = match entry.location() {
                Location::OnDisk { grain } if !chunk && told.is_none() => match by {
                    Telling::Tables(Some(together)) => together.own(grain, key),
                    _ => self.own_head(grain, entry.grains(), key),
                },
                _ => None,
            };
            let (mut manifest, mut own_header) = (None, known);
            let mut leads_nowhere = false;
            let accept = |header: &Header, frame: &[u8]| {
                let is_own = (header.kind == Kind::Chunk) == chunk && header.key(frame) == key;
                own_header = is_own.then_some(*header);
                manifest = header.manifest(frame).filter(|_| is_own);
                is_own
            };
            let seen = match told.or(known.map(|_| true)) {
                Some(is_own) => Ok(Some(is_own)),
                None => self.look_at(hash.short(), entry, accept),
            };
            let is_own = match seen {
                Ok(is_own) => is_own.unwrap_or(false),
                Err(error) if matches!(error, Error::Damaged { .. }) || self.shared.options.mode == Mode::Cache => {
                    leads_nowhere = true;
                    false
                }
                Err(error) => return Err(error),
            };
            if self.catalog.index.find(hash.short(), entry.location()).is_none() {
                // It moved while it was looked at: a buffer was retired, or a cluster read in.
                candidates = self.candidates(hash);
                unread.clear();
            } else if is_own {
                return Ok(Some(CurrentEntry {
                    manifest,
                    header: own_header,
                    is_known: true,
                    ..CurrentEntry::unread(entry)
                }));
            } else if leads_nowhere {
                unread.push(entry);
            }
        }
        Ok(unread.pop().map(|entry| CurrentEntry { unread, ..CurrentEntry::unread(entry) }))
    }

    /// The header of the frame at a grain, if its beginning tells that it is an object of this key. Only of a frame
    /// that is longer than a block: else all of it is read as quickly.
    fn own_head(&self, grain: u64, grains: u32, key: &[u8]) -> Option<Header> {
        let is_longer = grains as usize * GRAIN > BLOCK && self.catalog.places.is_none();
        let head = is_longer.then(|| self.read_unverified(grain, (HEAD / GRAIN) as u32));
        own_header(&head?.ok()?, key)
    }

    /// Drops the chunks of a large object that is gone, or leaves them to its handles.
    pub(crate) fn drop_chunks(&self, parent: KeyHash, manifest: Manifest) {
        let left = Left { parent, manifest, home: self.medium.number };
        let leases = &self.shared.leases;
        leases.drop_or_leave(left, self.lease_max(), || self.drop_chunks_now(parent, manifest));
    }

    pub(crate) fn drop_chunks_now(&self, parent: KeyHash, manifest: Manifest) {
        for number in 0..manifest.chunks() {
            let key = ChunkKey { parent: parent.0, id: manifest.id, number }.encode();
            let hash = self.medium.hasher.chunk(&key);
            // Until it is gone: an entry may move between the look and the drop.
            while let Ok(Some(own)) = self.own(hash, &key, Kind::Chunk) {
                self.catalog.drop_entry(hash.short(), own.entry);
            }
        }
    }

    pub(crate) fn verified_file(&self, grain: u64, read: io::Result<Vec<u8>>) -> Result<(Header, Bytes)> {
        let place = || format!("{}: file {grain}", self.medium.place);
        add(&self.shared.counters.device_reads, 1);
        let gone = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        let damaged = |why: String| Error::Damaged {
            place: place(),
            why,
            mend: "its entry is dropped when it is asked for".into(),
        };
        let frame = match read {
            Err(error) if gone(&error) => return Err(damaged("it is not there".into())),
            read => read.map_err(|error| Error::io(place(), error))?,
        };
        let header = Header::verify(&frame).map_err(|why| damaged(why.to_string()))?;
        Ok((header, frame.into()))
    }

    /// Shows the frame that an entry leads to, its header first; `None` if the entry's buffer is gone.
    ///
    /// # Errors
    /// As [`Frames::read_frame`].
    pub(crate) fn look_at<R>(
        &self,
        hash: u64,
        entry: IndexEntry,
        see: impl FnOnce(&Header, &[u8]) -> R,
    ) -> Result<Option<R>> {
        match entry.location() {
            Location::Buffered { slot, offset } => {
                let frame = self.catalog.buffers.read(slot, offset as usize * GRAIN, hash, |_, _| true);
                Ok(frame.map(|frame| see(&frame.header, frame.bytes())))
            }
            Location::OnDisk { grain } => {
                self.read_frame(grain, entry.grains()).map(|(header, frame)| Some(see(&header, &frame)))
            }
        }
    }

    /// Reads and verifies the frame at a grain: twice before it is damaged, for its bytes may have been bad on their
    /// way only, and an entry is dropped for it.
    ///
    /// # Errors
    /// [`Error::Io`] from the device, [`Error::Damaged`] if there is no intact frame.
    pub(crate) fn read_frame(&self, grain: u64, grains: u32) -> Result<(Header, Bytes)> {
        match self.read_frame_once(grain, grains) {
            Err(Error::Damaged { .. }) => self.read_frame_once(grain, grains),
            read => read,
        }
    }

    pub(crate) fn read_frame_once(&self, grain: u64, grains: u32) -> Result<(Header, Bytes)> {
        if let Some(read) = self.catalog.places.as_ref().and_then(|places| places.read_file(grain)) {
            return self.verified_file(grain, read);
        }
        let frame = self.read_unverified(grain, grains)?;
        let places = self.catalog.places.as_ref();
        let is_there = |header: &Header| places.is_none_or(|places| places.is_of_place(grain, header));
        let header = match Header::verify(&frame) {
            Ok(header) if is_there(&header) => Ok(header),
            Ok(_) => Err("it was written for another place".to_owned()),
            Err(why) => Err(why.to_string()),
        };
        let header = header.map_err(|why| Error::Damaged {
            place: format!("{}: object at {}", self.medium.place, grain * GRAIN as u64),
            why,
            mend: "its entry is dropped when it is asked for".into(),
        })?;
        let len = header.frame_len().min(frame.len());
        Ok((header, frame.slice(..len)))
    }

    /// The bytes at a grain, and more behind them, whatever they are.
    ///
    /// # Errors
    /// [`Error::Io`] from the device.
    pub(crate) fn read_unverified(&self, grain: u64, grains: u32) -> Result<Bytes> {
        let offset = grain * GRAIN as u64;
        let start = offset / BLOCK as u64 * BLOCK as u64;
        let end = (offset + u64::from(grains) * GRAIN as u64).next_multiple_of(BLOCK as u64);
        let end = end.min(self.medium.map().clusters.end());
        let overlay = self.catalog.places.as_ref().and_then(|places| places.overlay(start, (end - start) as usize));
        let mut buf = self.shared.pool.take((end - start) as usize);
        self.medium.read(start, &mut buf).map_err(|error| self.medium.io(&format!("reading at {start}"), error))?;
        overlay.into_iter().for_each(|lay_over| lay_over(&mut buf));
        Ok(buf.into_bytes().slice((offset - start) as usize..))
    }

    /// Whether the large object that this chunk belongs to is gone. Not while one is being put: its
    /// manifest comes last.
    pub(crate) fn is_orphan(&self, chunk_key: &[u8]) -> bool {
        let Ok(key) = ChunkKey::decode(chunk_key) else { return true };
        if self.shared.leases.is_leased(&key) {
            return false;
        }
        let owns = |header: &Header, frame: &[u8]| header.manifest(frame).is_some_and(|manifest| manifest.id == key.id);
        let parent = key.parent as u64;
        let is_owner = |entry: IndexEntry| {
            let granted = || match entry.location() {
                Location::OnDisk { grain } => self.catalog.grants().last(grain),
                Location::Buffered { .. } => 0,
            };
            let before = granted();
            let leads_there = || self.catalog.index.find(parent, entry.location()).is_some_and(|now| now.same(entry));
            // What moved meanwhile may be an owner: by now others may lie where it was. So may what cannot be read.
            !leads_there()
                || self.look_at(parent, entry, owns).map_or(true, |owns| owns.unwrap_or(true))
                || !leads_there()
                || granted() != before
        };
        let has_owner = || self.catalog.index.candidates(parent).into_iter().any(is_owner);
        self.streams_open.load(Relaxed) == 0 && !has_owner()
    }

    /// Bytes of the large object that a chunk belongs to, if that can be read.
    pub(crate) fn total_of(&self, key: &ChunkKey) -> Option<u64> {
        let parent = key.parent as u64;
        let manifest = |entry| self.look_at(parent, entry, |header, frame| header.manifest(frame)).ok()??;
        let mut manifests = self.catalog.index.candidates(parent).into_iter().filter_map(manifest);
        manifests.find(|manifest| manifest.id == key.id).map(|manifest| manifest.total)
    }

    /// Whether a frame is a chunk whose large object is gone.
    pub(crate) fn is_left_over(&self, header: &Header, frame: &[u8]) -> bool {
        header.kind == Kind::Chunk && self.is_orphan(header.key(frame))
    }

    /// A frame that does not verify is read once more, for its bytes may have been bad on their way only. None if it is
    /// damaged indeed, or was not.
    pub(crate) fn look_again(&self, victim: u32, row: &Row, entry: IndexEntry, frame: &[u8]) -> Result<Option<Bytes>> {
        if Header::verify(frame).is_ok() {
            return Ok(None);
        }
        match self.read_frame(self.medium.grain(victim, row.offset), entry.grains()) {
            Ok((_, again)) => Ok(Some(again)),
            Err(Error::Damaged { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Drops the pieces of what was not cut after all.
    pub(crate) fn drop_pieces(&self, parent: u128, manifest: Manifest) {
        for number in 0..manifest.chunks() {
            let key = ChunkKey { parent, id: manifest.id, number }.encode();
            let hash = self.medium.hasher.chunk(&key).short();
            let is_it = |entry: &IndexEntry| {
                matches!(self.look_at(hash, *entry, |header, frame| header.key(frame) == key), Ok(Some(true)))
            };
            while let Some(entry) = self.catalog.index.candidates(hash).into_iter().find(is_it) {
                self.catalog.drop_entry(hash, entry);
            }
        }
    }
}
