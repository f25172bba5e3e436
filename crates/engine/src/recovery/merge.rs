//! Merging: what the scan found and what the journal deleted enters the index that the checkpoint left.
//!
//! Steps, for each part of the hashes: of the frames found, the largest generation of each key counts → where the
//! checkpoint has an entry that may be for the same key, its frame is read to know → large objects, which count only
//! with their chunks → deletes are applied to both.
//!
//! Invariants: the parts can be merged in any order, and on several threads, with the same outcome. In a cache nothing
//! fails: an entry that cannot be read is dropped, and with it what it might be an older or a newer version of,
//! whichever of the keys of its place it was for.

use std::{cmp::Reverse, collections::BTreeSet};

use parking_lot::Mutex;
use picaflor_format::{
    checkpoint::Begun,
    cluster::Row,
    frame::{ChunkKey, GRAIN, Header},
};

use super::{
    parallel_read,
    since::{Deletes, Since},
};
use crate::{
    Error, Mode, Result,
    base::receipt::{Dropped, VolumeReceipt},
    index::{Candidates, IndexEntry, Location},
    read::parts::Parts,
    space::State,
};

/// A frame found by the scan.
#[derive(Clone, Copy)]
pub(super) struct Sighting {
    hash: u64,
    generation: u64,
    cluster: u32,
    /// In grains, as the length.
    offset: u16,
    grains: u16,
}

impl Sighting {
    /// `None` for a row that no cluster can have.
    pub(super) fn new(cluster: u32, row: &Row) -> Option<Self> {
        let grains = |bytes: u32| u16::try_from(bytes / GRAIN as u32).ok();
        let (offset, grains) = (grains(row.offset)?, grains(row.len)?);
        Some(Self { hash: row.hash, generation: row.generation, cluster, offset, grains })
    }

    fn order(&self) -> impl Ord + use<> {
        (self.hash, Reverse(self.generation), self.cluster, self.offset)
    }

    fn grain(&self, volume: &Parts) -> u64 {
        volume.medium.grain(self.cluster, u32::from(self.offset) * GRAIN as u32)
    }
}

/// Parts of the hashes at most: one is merged while a get waits.
const PARTS_MAX: usize = 1024;

/// What is to be merged into the index of one volume.
pub(super) struct Merge {
    parts: Vec<Mutex<Part>>,
    /// Parts that a pass of the scan fills.
    each: usize,
    since: Since,
    /// Memory taken, in bytes: what is there, and room for more.
    bytes: u64,
}

/// What is to be merged of one part of the hashes.
#[derive(Default)]
struct Part {
    sightings: Vec<Sighting>,
    /// With whether a sync vouched for them.
    manifests: Vec<(Sighting, bool)>,
    deletes: Vec<(u128, u64)>,
}

impl Merge {
    /// Nothing yet but the deletes. A part is of whole segments of the index, for these grow once.
    pub(super) fn new(
        volume: &Parts,
        passes: usize,
        deletes: &Deletes,
        scanned: BTreeSet<u32>,
        (checkpoint, begun): (u64, &Begun),
    ) -> Self {
        let each = (volume.catalog.index.segment_count() as usize).min(PARTS_MAX);
        let mut parts = Vec::new();
        parts.resize_with(passes * each, Mutex::default);
        let mut merge = Self { parts, each, since: Since::new(deletes, begun, scanned, checkpoint), bytes: 0 };
        for (hash, generation) in deletes.iter() {
            volume.shared.see_generation(generation);
            merge.part(hash as u64).deletes.push((hash, generation));
        }
        merge
    }

    fn number(&self, hash: u64) -> usize {
        ((u128::from(hash) * self.parts.len() as u128) >> 64) as usize
    }

    fn part(&mut self, hash: u64) -> &mut Part {
        let number = self.number(hash);
        self.parts[number].get_mut()
    }

    /// Makes room for about so many sightings of this pass.
    pub(super) fn expect(&mut self, pass: usize, sightings: usize) {
        let room = sightings / self.each * 9 / 8;
        let own = pass * self.each..(pass + 1) * self.each;
        self.parts[own].iter_mut().for_each(|part| part.get_mut().sightings.reserve_exact(room));
        self.bytes = (room * self.each * size_of::<Sighting>()) as u64;
    }

    /// Adds what one pass of the scan found, unless another pass is to enter it.
    pub(super) fn add(&mut self, pass: usize, sighting: Sighting) {
        let number = self.number(sighting.hash);
        if number / self.each == pass {
            self.parts[number].get_mut().sightings.push(sighting);
        }
    }

    pub(super) fn add_manifest(&mut self, manifest: Sighting, vouched: bool) {
        self.part(manifest.hash).manifests.push((manifest, vouched));
    }

    pub(super) fn is_empty(&self) -> bool {
        self.parts.iter().all(|part| part.lock().is_empty())
    }

    /// Bytes that it takes, about.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Merges what one pass of the scan found, but for large objects and deletes.
    pub(super) fn enter(&self, volume: &Parts, pass: usize) -> Result<Entered> {
        let own = &self.parts[pass * self.each..(pass + 1) * self.each];
        each_part(volume, own, |part| part.enter(volume, &self.since))
    }

    /// Merges everything.
    pub(super) fn all(&self, volume: &Parts) -> Result<Entered> {
        let mut entered = each_part(volume, &self.parts, |part| part.enter(volume, &self.since))?;
        entered.join(&each_part(volume, &self.parts, |part| part.finish(volume, &self.since))?);
        Ok(entered)
    }

    /// Merges the part of a hash, if that was not done yet. In a cache only, where large objects count without their
    /// chunks.
    pub(super) fn part_of(&self, volume: &Parts, hash: u64) -> Result<Entered> {
        let mut part = self.parts[self.number(hash)].lock();
        let mut entered = part.enter(volume, &self.since)?;
        entered.join(&part.finish(volume, &self.since)?);
        Ok(entered)
    }
}

fn each_part(
    volume: &Parts,
    parts: &[Mutex<Part>],
    act: impl Fn(&mut Part) -> Result<Entered> + Sync,
) -> Result<Entered> {
    let mut all = Entered::default();
    let act = |part: &Mutex<Part>| act(&mut part.lock());
    let readers = parallel_read::readers(&volume.shared.options);
    parallel_read::in_order(parts, readers, act, |_, entered| entered.map(|entered| all.join(&entered)))?;
    Ok(all)
}

impl Part {
    fn is_empty(&self) -> bool {
        self.sightings.is_empty() && self.manifests.is_empty() && self.deletes.is_empty()
    }

    /// Merges the sightings, in the order of their hashes.
    fn enter(&mut self, volume: &Parts, since: &Since) -> Result<Entered> {
        let mut entered = Entered::default();
        volume.shared.see_generation(self.sightings.iter().map(|sighting| sighting.generation).max().unwrap_or(0));
        self.sightings.sort_unstable_by_key(Sighting::order);
        self.sightings.dedup_by_key(|sighting| sighting.hash);
        let same_segment = |a: &Sighting, b: &Sighting| {
            volume.catalog.index.segment_of(a.hash) == volume.catalog.index.segment_of(b.hash)
        };
        for of_segment in self.sightings.chunk_by(same_segment) {
            volume.catalog.index.reserve(of_segment[0].hash, of_segment.len());
            of_segment.iter().try_for_each(|sighting| entered.enter(volume, sighting, since))?;
        }
        self.sightings = Vec::new();
        Ok(entered)
    }

    /// Merges large objects, the oldest of a key first, and applies the deletes.
    fn finish(&mut self, volume: &Parts, since: &Since) -> Result<Entered> {
        let mut entered = Entered::default();
        self.manifests.sort_unstable_by_key(|(manifest, _)| manifest.generation);
        for (manifest, vouched) in &self.manifests {
            volume.shared.see_generation(manifest.generation);
            // Chunks come before their manifest: a sync that vouches for it vouches for them.
            if *vouched || is_whole(volume, manifest)? {
                entered.enter(volume, manifest, since)?;
            } else {
                entered.dropped.torn += 1;
            }
        }
        for &(hash, generation) in &self.deletes {
            entered.delete(volume, (hash, generation), since)?;
        }
        *self = Self::default();
        Ok(entered)
    }
}

/// Whether all chunks of a large object are there. A store must not give up the version before for one that
/// the crash left incomplete; in a cache the chunks may have been evicted, and then no older version may show.
fn is_whole(volume: &Parts, sighting: &Sighting) -> Result<bool> {
    if volume.shared.options.mode == Mode::Cache {
        return Ok(true);
    }
    let (header, frame) = match volume.frames.read_frame(sighting.grain(volume), sighting.grains.into()) {
        Ok(found) => found,
        Err(Error::Damaged { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let Some(manifest) = header.manifest(&frame) else { return Ok(true) };
    let parent = volume.medium.hasher.key(header.key(&frame)).0;
    Ok((0..manifest.chunks()).all(|number| {
        let chunk = volume.medium.hasher.chunk(&ChunkKey { parent, id: manifest.id, number }.encode()).short();
        !volume.catalog.index.candidates(chunk).is_empty()
    }))
}

/// What became of sightings.
#[derive(Default)]
pub(super) struct Entered {
    kept: u64,
    dropped: Dropped,
}

impl Entered {
    /// Puts one sighting into the index, unless something newer is known of its key.
    fn enter(&mut self, volume: &Parts, sighting: &Sighting, since: &Since) -> Result<()> {
        let hash = sighting.hash;
        if since.is_gone(hash, sighting.generation) {
            self.dropped.deleted += 1;
            return Ok(());
        }
        let index = &volume.catalog.index;
        let (location, grains) = (Location::OnDisk { grain: sighting.grain(volume) }, sighting.grains.into());
        if let Err(known) = index.add(hash, location, grains) {
            let older = match self.resolve(volume, sighting, known, since)? {
                Resolved::Newer => {
                    self.dropped.replaced += 1;
                    return Ok(());
                }
                Resolved::Older(entry) => {
                    self.dropped.replaced += 1;
                    Some(entry)
                }
                Resolved::Unread => {
                    self.pass_over(volume, sighting);
                    return Ok(());
                }
                Resolved::None => None,
            };
            index.put(hash, location, grains, older);
        } else if since.is_unread(index, hash) {
            if let Some(entry) = index.find(hash, location) {
                index.remove(hash, entry);
            }
            self.pass_over(volume, sighting);
            return Ok(());
        }
        self.kept += 1;
        Ok(())
    }

    /// Drops what may be an older version of something that cannot be read, or a newer one.
    fn pass_over(&mut self, volume: &Parts, sighting: &Sighting) {
        self.dropped.unread += 1;
        stays_witness(volume, sighting.cluster);
    }

    /// What the checkpoint has of this key, told from other keys of the same place by reading the frame.
    fn resolve(&mut self, volume: &Parts, sighting: &Sighting, known: Candidates, since: &Since) -> Result<Resolved> {
        let Sighting { hash, generation, .. } = *sighting;
        for entry in known {
            match self.header_of(volume, hash, entry, since, |found| found as u64 == hash)? {
                Known::Rotten(newer) if newer > generation => return Ok(Resolved::Newer),
                Known::CurrentEntry(header) if header.generation > generation => {
                    let Location::OnDisk { grain } = entry.location() else { return Ok(Resolved::Newer) };
                    let is_untold = since.wrote_untold(volume, grain, header.mark)?;
                    return Ok(if is_untold { Resolved::Older(entry) } else { Resolved::Newer });
                }
                Known::CurrentEntry(_) | Known::Rotten(_) => return Ok(Resolved::Older(entry)),
                Known::Other => {}
            }
        }
        let is_unread = since.is_unread(&volume.catalog.index, hash);
        Ok(if is_unread { Resolved::Unread } else { Resolved::None })
    }

    /// The header of an entry's frame, if its key's hash is the one. An entry without an intact frame of a key
    /// that can have it leads nowhere and is dropped: its cluster was written again and the crash took the note. So
    /// does one of another length, though it leads to a later version of the very key. Where the table still names the
    /// key it may be that, or rot: the entry stays, for nothing older is to take its place.
    fn header_of(
        &mut self,
        volume: &Parts,
        hash: u64,
        entry: IndexEntry,
        since: &Since,
        is_it: impl Fn(u128) -> bool,
    ) -> Result<Known> {
        let Location::OnDisk { grain } = entry.location() else { return Ok(Known::Other) };
        let is_of = |hash: u64| volume.catalog.index.find(hash, entry.location()).is_some_and(|of| of.same(entry));
        let read = volume.frames.read_frame(grain, entry.grains());
        if matches!(read, Err(Error::Damaged { .. }))
            && let Some((found, generation)) = since.rotten_at(volume, grain, entry.grains())?
            && (found == hash || is_of(found))
        {
            return Ok(if found == hash { Known::Rotten(generation) } else { Known::Other });
        }
        match read {
            Ok((header, frame)) if entry.is_of_grains((header.frame_len() / GRAIN) as u32) => {
                let found = volume.medium.hasher.frame(header.kind, header.key(&frame)).0;
                if found as u64 != hash && !is_of(found as u64) {
                    self.dropped.overwritten += u64::from(volume.catalog.index.remove(hash, entry).is_some());
                }
                Ok(if is_it(found) { Known::CurrentEntry(header) } else { Known::Other })
            }
            Ok(_) | Err(Error::Damaged { .. }) => {
                self.dropped.overwritten += u64::from(volume.catalog.index.remove(hash, entry).is_some());
                Ok(Known::Other)
            }
            Err(Error::Io { .. }) if volume.shared.options.mode == Mode::Cache => {
                since.note_unread(&volume.catalog.index, hash);
                self.dropped.unread += u64::from(volume.catalog.index.remove(hash, entry).is_some());
                volume.medium.cluster_of(grain).into_iter().for_each(|cluster| stays_witness(volume, cluster));
                Ok(Known::Other)
            }
            Err(error) => Err(error),
        }
    }

    /// Applies a delete to what the index has of the key.
    fn delete(&mut self, volume: &Parts, (hash, generation): (u128, u64), since: &Since) -> Result<()> {
        for entry in volume.catalog.index.candidates(hash as u64) {
            let known = self.header_of(volume, hash as u64, entry, since, |found| found == hash)?;
            if let Known::CurrentEntry(Header { generation: found, .. }) | Known::Rotten(found) = known
                && found <= generation
                && volume.catalog.index.remove(hash as u64, entry).is_some()
            {
                self.dropped.deleted += 1;
            }
        }
        Ok(())
    }

    fn join(&mut self, other: &Self) {
        self.kept += other.kept;
        self.dropped.join(&other.dropped);
    }

    pub(super) fn add_to(&self, receipt: &mut VolumeReceipt) {
        receipt.from_scan += self.kept;
        receipt.dropped.join(&self.dropped);
    }
}

/// What was dropped unread the next opening may be able to read, and then has to know what replaced what: its cluster
/// is not to be written again before there are checkpoints without the one and the other.
fn stays_witness(volume: &Parts, cluster: u32) {
    volume.space.shift(cluster, State::Free, State::Sealed);
    volume.space.told(cluster, volume.log.journal.lock().next_page());
}

/// What an entry that may be of a key leads to.
enum Known {
    /// The key's frame.
    CurrentEntry(Header),
    /// What was the key's frame, of this generation; a get says that it is damaged.
    Rotten(u64),
    /// Another key's frame, or none, or one that the device does not give.
    Other,
}

enum Resolved {
    /// The checkpoint knows nothing of this key.
    None,
    /// It knows this older version, or the same one elsewhere, or leads to one that does not count.
    Older(IndexEntry),
    /// It knows a newer version.
    Newer,
    /// It may have known either.
    Unread,
}
