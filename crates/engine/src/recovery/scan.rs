//! The scan: clusters that the checkpoint does not cover, read and merged with it.
//!
//! Steps: entries of the checkpoint that point into clusters which the journal or the directory names are dropped, for
//! those have been written since → the trailers of the newest of these clusters say up to where a sync vouched →
//! their tables are read; if no sync vouched for one, it is read whole and verified frame by frame → of the frames
//! found, in the order of their hashes, the largest generation of each key counts → where the checkpoint has an entry
//! that may be for the same key, its frame is read to know → deletes are applied to both.
//!
//! Invariants: what is found does not depend on how many threads look. What is held of the frames at one time is
//! about [`budget`]; if there are more, the tables are read again, for the next range of hashes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use parking_lot::Mutex;
use picaflor_format::{
    BLOCK,
    cluster::{Row, Trailer},
    frame::{ChunkKey, GRAIN, Header, Kind},
};

use super::{
    EPOCH_SHIFT, ahead,
    receipt::{Dropped, VolumeReceipt},
};
use crate::{
    Error, Mode, Result,
    hash::HashKeyed,
    index::{Candidates, Location, Word},
    rows::Use,
    volume::Volume,
};

/// A frame found by the scan.
#[derive(Clone, Copy)]
struct Sighting {
    hash: u64,
    generation: u64,
    cluster: u32,
    /// In grains, as the length.
    offset: u16,
    grains: u16,
}

impl Sighting {
    /// `None` for a row that no cluster can have.
    fn new(cluster: u32, row: &Row) -> Option<Self> {
        let grains = |bytes: u32| u16::try_from(bytes / GRAIN as u32).ok();
        let (offset, grains) = (grains(row.offset)?, grains(row.len)?);
        Some(Self { hash: row.hash, generation: row.generation, cluster, offset, grains })
    }

    fn grain(&self, volume: &Volume) -> u64 {
        volume.grain(self.cluster, u32::from(self.offset) * GRAIN as u32)
    }
}

/// Deletes since the checkpoint: the largest generation of each key's hash.
#[derive(Default)]
pub(super) struct Deletes(BTreeMap<u128, u64>);

impl Deletes {
    /// Returns whether that was not known.
    pub(super) fn note(&mut self, hash: u128, generation: u64) -> bool {
        let is_news = self.of(hash) < Some(generation);
        if is_news {
            self.0.insert(hash, generation);
        }
        is_news
    }

    pub(super) fn of(&self, hash: u128) -> Option<u64> {
        self.0.get(&hash).copied()
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// All of them, by hash.
    pub(super) fn iter(&self) -> impl Iterator<Item = (u128, u64)> {
        self.0.iter().map(|(hash, generation)| (*hash, *generation))
    }
}

/// Clusters to look at, and which use of each the journal named last.
pub(super) type Clusters = BTreeMap<u32, Option<u64>>;

/// Parts of the hashes that are sorted and merged on their own: so many that each fits in a processor's cache.
const PARTS: usize = 64;

/// Clusters of each epoch that are looked at to learn up to where a sync vouched.
const NEWEST: usize = 64;

/// Bytes of sightings held at one time: half of what memory has left, for nothing else needs it yet.
fn budget(volume: &Volume) -> usize {
    let options = &volume.shared.options;
    let volumes = options.places.len() as u64;
    (volume.shared.tier_budget() / 2 / volumes).max(u64::from(options.cluster)) as usize
}

/// Scans `clusters` and merges what is there into the volume's index.
pub(super) fn merge(
    volume: &Arc<Volume>,
    clusters: &Clusters,
    deletes: &Deletes,
    receipt: &mut VolumeReceipt,
) -> Result<()> {
    drop_overwritten(volume, clusters, receipt);
    let named: Vec<Named> = clusters.iter().map(|(id, seq)| (*id, *seq)).collect();
    let readers = ahead::readers(&volume.shared.options);
    let look = Look::begin(volume, &named, readers)?;
    // By the short hash, as rows have it.
    let short: HashKeyed<u64> = deletes.iter().map(|(hash, generation)| (hash as u64, generation)).collect();
    let passes = (look.frames * size_of::<Sighting>()).div_ceil(budget(volume)).max(1);
    let each = look.frames / passes / PARTS;
    let mut parts: Vec<Mutex<Vec<Sighting>>> = Vec::new();
    parts.resize_with(PARTS, || Mutex::new(Vec::with_capacity(each + each / 8)));
    let mut manifests = Vec::new();
    for pass in 0..passes {
        ahead::in_order(
            &named,
            readers,
            |cluster| look.inside(volume, cluster),
            |_, found| {
                let found = found?;
                if pass == 0 {
                    receipt.scanned_clusters += 1;
                    receipt.verified_clusters += u32::from(found.verified);
                    receipt.dropped.torn += found.torn;
                    manifests.extend(found.manifests);
                }
                for sighting in found.sightings {
                    let part = ((u128::from(sighting.hash) * (passes * PARTS) as u128) >> 64) as usize;
                    if part / PARTS == pass {
                        parts[part % PARTS].get_mut().push(sighting);
                    }
                }
                Ok::<(), Error>(())
            },
        )?;
        let enter = |part: &Mutex<Vec<Sighting>>| enter_all(volume, &mut part.lock(), &short);
        ahead::in_order(&parts, readers, enter, |_, entered| entered.map(|entered| entered.add_to(receipt)))?;
    }
    // After all others, for they count only with their chunks; the oldest of a key first.
    manifests.sort_unstable_by_key(|(manifest, _): &(Sighting, bool)| manifest.generation);
    for (manifest, vouched) in &manifests {
        volume.shared.see_generation(manifest.generation);
        // Chunks come before their manifest: a sync that vouches for it vouches for them.
        if !vouched && !is_whole(volume, manifest)? {
            receipt.dropped.torn += 1;
            continue;
        }
        let mut entered = Entered::default();
        entered.enter(volume, manifest, &short)?;
        entered.add_to(receipt);
    }
    let all: Vec<(u128, u64)> = deletes.iter().collect();
    let apply = |&(hash, generation): &(u128, u64)| delete_from_checkpoint(volume, hash, generation);
    ahead::in_order(&all, readers, apply, |(_, generation), entered| {
        volume.shared.see_generation(*generation);
        entered.map(|entered| entered.add_to(receipt))
    })?;
    receipt.deletes = deletes.len() as u64;
    Ok(())
}

/// A cluster to look into, and which use.
type Named = (u32, Option<u64>);

/// What one look into clusters needs to know.
struct Look {
    /// The largest seal known to be durable, by epoch: what a later run synced says nothing of what an earlier one left
    /// torn. What lies above it may be durable too; verifying it comes to the same.
    durable: HashMap<u64, u64>,
    /// About how many frames there are.
    frames: usize,
    /// How long the last table was that was read: the next one is likely to be as long.
    table: AtomicUsize,
}

/// What is in one cluster.
#[derive(Default)]
struct Found {
    sightings: Vec<Sighting>,
    /// With whether a sync vouched for them.
    manifests: Vec<(Sighting, bool)>,
    verified: bool,
    /// Frames that a table names and that do not verify.
    torn: u64,
}

impl Look {
    fn begin(volume: &Volume, named: &[Named], readers: usize) -> Result<Self> {
        let mut look = Self { durable: HashMap::new(), frames: 0, table: AtomicUsize::new(BLOCK) };
        let known = volume.superblock.lock().durable;
        let mut durable = HashMap::from([(known >> EPOCH_SHIFT, known)]);
        let mut newest: Vec<Named> = named.iter().filter(|(_, seq)| seq.is_some()).copied().collect();
        newest.sort_unstable_by_key(|(_, seq)| Reverse(*seq));
        let epoch = |(_, seq): &Named| seq.unwrap_or(0) >> EPOCH_SHIFT;
        let newest: Vec<Named> =
            newest.chunk_by(|a, b| epoch(a) == epoch(b)).flat_map(|run| run.iter().take(NEWEST)).copied().collect();
        let mut frames = 0;
        ahead::in_order(
            &newest,
            readers,
            |&(id, seq)| look.last_use(volume, id, seq),
            |_, found| {
                if let Use::Sealed(last, rows) = found? {
                    let known = durable.entry(last.durable >> EPOCH_SHIFT).or_default();
                    *known = last.durable.max(*known);
                    frames += rows.len();
                }
                Ok::<(), Error>(())
            },
        )?;
        (look.durable, look.frames) = (durable, frames * named.len() / newest.len().max(1));
        Ok(look)
    }

    fn last_use(&self, volume: &Volume, cluster: u32, seq: Option<u64>) -> Result<Use> {
        let found = volume.last_use(cluster, seq, self.table.load(Relaxed))?;
        if let Use::Sealed(_, rows) = &found {
            self.table.store(volume.tail_len(rows.len()), Relaxed);
        }
        Ok(found)
    }

    fn inside(&self, volume: &Volume, &(cluster, seq): &Named) -> Result<Found> {
        let mut found = Found::default();
        let rows = match self.last_use(volume, cluster, seq)? {
            // Not sealed when the crash came: its frames stand on their own.
            Use::Unsealed(seq) => {
                found.verified = true;
                volume.frames(cluster, seq)?
            }
            Use::Other => return Ok(found),
            Use::Sealed(last, rows) if self.vouches_for(&last) => rows,
            Use::Sealed(_, mut rows) => {
                found.verified = true;
                let bytes = volume.read_at(cluster, 0, volume.cluster_len())?;
                let all = rows.len();
                rows.retain(|row| is_intact(&bytes, row));
                found.torn = (all - rows.len()) as u64;
                rows
            }
        };
        found.sightings.reserve_exact(rows.len());
        for row in &rows {
            let Some(sighting) = Sighting::new(cluster, row) else { continue };
            match row.kind {
                Kind::Manifest => found.manifests.push((sighting, !found.verified)),
                _ => found.sightings.push(sighting),
            }
        }
        Ok(found)
    }

    fn vouches_for(&self, last: &Trailer) -> bool {
        self.durable.get(&(last.seal >> EPOCH_SHIFT)).is_some_and(|durable| last.seal <= *durable)
    }
}

/// Whether all chunks of a large object are there. A store must not give up the version before for one that
/// the crash left incomplete; in a cache the chunks may have been evicted, and then no older version may show.
fn is_whole(volume: &Arc<Volume>, sighting: &Sighting) -> Result<bool> {
    if volume.shared.options.mode == Mode::Cache {
        return Ok(true);
    }
    let (header, frame) = match volume.read_frame(sighting.grain(volume), sighting.grains.into()) {
        Ok(found) => found,
        Err(Error::Damaged { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let Some(manifest) = header.manifest(&frame) else { return Ok(true) };
    let parent = volume.hasher.key(header.key(&frame)).0;
    Ok((0..manifest.chunks()).all(|number| {
        let chunk = volume.hasher.chunk(&ChunkKey { parent, id: manifest.id, number }.encode()).short();
        !volume.index.candidates(chunk).is_empty()
    }))
}

fn is_intact(cluster: &[u8], row: &Row) -> bool {
    let frame = cluster.get(row.offset as usize..).unwrap_or_default();
    Header::verify(frame).is_ok_and(|header| header.generation == row.generation)
}

/// Clusters that may have been written since the checkpoint hold nothing that it knows.
fn drop_overwritten(volume: &Volume, clusters: &Clusters, receipt: &mut VolumeReceipt) {
    if clusters.is_empty() {
        return;
    }
    let mut written = vec![false; volume.space.count() as usize];
    clusters.keys().for_each(|id| written[*id as usize] = true);
    volume.index.update_all(|word| {
        let Location::OnDisk { grain } = word.location() else { return Word::EMPTY };
        match volume.cluster_of(grain) {
            Some(id) if !written[id as usize] => word,
            _ => {
                receipt.dropped.overwritten += 1;
                Word::EMPTY
            }
        }
    });
}

/// What became of sightings.
#[derive(Default)]
struct Entered {
    kept: u64,
    dropped: Dropped,
}

/// Merges the sightings of one part into the index, in the order of their hashes, and leaves none.
fn enter_all(volume: &Arc<Volume>, sightings: &mut Vec<Sighting>, deletes: &HashKeyed<u64>) -> Result<Entered> {
    let mut entered = Entered::default();
    volume.shared.see_generation(sightings.iter().map(|sighting| sighting.generation).max().unwrap_or(0));
    let order = |it: &Sighting| (it.hash, Reverse(it.generation), it.cluster, it.offset);
    sightings.sort_unstable_by_key(order);
    sightings.dedup_by_key(|sighting| sighting.hash);
    for of_segment in sightings.chunk_by(|a, b| volume.index.segment_of(a.hash) == volume.index.segment_of(b.hash)) {
        volume.index.reserve(of_segment[0].hash, of_segment.len());
        of_segment.iter().try_for_each(|sighting| entered.enter(volume, sighting, deletes))?;
    }
    sightings.clear();
    Ok(entered)
}

impl Entered {
    /// Puts one sighting into the index, unless something newer is known of its key.
    fn enter(&mut self, volume: &Arc<Volume>, sighting: &Sighting, deletes: &HashKeyed<u64>) -> Result<()> {
        let hash = sighting.hash;
        if deletes.get(&hash).is_some_and(|deleted| *deleted >= sighting.generation) {
            self.dropped.deleted += 1;
            return Ok(());
        }
        let (location, grains) = (Location::OnDisk { grain: sighting.grain(volume) }, sighting.grains.into());
        if let Err(known) = volume.index.add(hash, location, grains) {
            let older = match self.resolve(volume, hash, sighting.generation, known)? {
                Resolved::Newer => {
                    self.dropped.replaced += 1;
                    return Ok(());
                }
                Resolved::Older(word) => {
                    self.dropped.replaced += 1;
                    Some(word)
                }
                Resolved::None => None,
            };
            volume.index.put(hash, location, grains, older);
        }
        self.kept += 1;
        Ok(())
    }

    /// What the checkpoint has of this key, told from other keys of the same place by reading the frame.
    fn resolve(&mut self, volume: &Arc<Volume>, hash: u64, generation: u64, known: Candidates) -> Result<Resolved> {
        for word in known {
            let Some(header) = self.header_of(volume, hash, word, |found| found as u64 == hash)? else { continue };
            return Ok(if header.generation > generation { Resolved::Newer } else { Resolved::Older(word) });
        }
        Ok(Resolved::None)
    }

    /// The header of an entry's frame, if its key's hash is the one. An entry without an intact frame of a key
    /// that can have it leads nowhere and is dropped: its cluster was written again and the crash took the note. So
    /// does one of another length, though it leads to a later version of the very key.
    fn header_of(
        &mut self,
        volume: &Arc<Volume>,
        hash: u64,
        word: Word,
        is_it: impl Fn(u128) -> bool,
    ) -> Result<Option<Header>> {
        let Location::OnDisk { grain } = word.location() else { return Ok(None) };
        match volume.read_frame(grain, word.grains()) {
            Ok((header, frame)) if word.is_of_grains((header.frame_len() / GRAIN) as u32) => {
                let found = volume.hasher.frame(header.kind, header.key(&frame)).0;
                let is_entry_of =
                    |word: Word| volume.index.find(found as u64, word.location()).is_some_and(|entry| entry.same(word));
                if found as u64 != hash && !is_entry_of(word) {
                    self.dropped.overwritten += u64::from(volume.index.remove(hash, word).is_some());
                }
                Ok(is_it(found).then_some(header))
            }
            Ok(_) | Err(Error::Damaged { .. }) => {
                self.dropped.overwritten += u64::from(volume.index.remove(hash, word).is_some());
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    fn add_to(self, receipt: &mut VolumeReceipt) {
        receipt.from_scan += self.kept;
        receipt.dropped.replaced += self.dropped.replaced;
        receipt.dropped.deleted += self.dropped.deleted;
        receipt.dropped.overwritten += self.dropped.overwritten;
    }
}

enum Resolved {
    /// The checkpoint knows nothing of this key.
    None,
    /// It knows this older version, or the same one elsewhere.
    Older(Word),
    /// It knows a newer version.
    Newer,
}

fn delete_from_checkpoint(volume: &Arc<Volume>, hash: u128, generation: u64) -> Result<Entered> {
    let mut entered = Entered::default();
    for word in volume.index.candidates(hash as u64) {
        if let Some(header) = entered.header_of(volume, hash as u64, word, |found| found == hash)?
            && header.generation <= generation
            && volume.index.remove(hash as u64, word).is_some()
        {
            entered.dropped.deleted += 1;
        }
    }
    Ok(entered)
}
