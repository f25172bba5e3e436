//! The scan: clusters that the checkpoint does not cover, read and merged with it.
//!
//! Steps: each cluster that the journal or the directory names is read, its table only if a sync vouched
//! for it, else whole and verified frame by frame → entries of the checkpoint that point into them are
//! dropped, for those clusters have been written since → of the frames found, the largest generation of
//! each key counts → where the checkpoint has an entry that may be for the same key, its frame is read to
//! know → deletes are applied to both.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use picaflor_format::{
    cluster::Row,
    frame::{ChunkKey, GRAIN, Header, Kind, Manifest},
};

use super::{EPOCH_SHIFT, ahead, receipt::VolumeReceipt};
use crate::{
    Error, Mode, Result,
    hash::HashKeyed,
    index::{Location, Word},
    rows::Contents,
    volume::Volume,
};

/// A frame found by the scan.
#[derive(Clone, Copy)]
struct Sighting {
    generation: u64,
    cluster: u32,
    row: Row,
}

/// Deletes since the checkpoint: the largest generation of each key's hash.
pub(super) type Deletes = BTreeMap<u128, u64>;

/// Clusters to look at, and which use of each the journal named last.
pub(super) type Clusters = BTreeMap<u32, Option<u64>>;

/// A scanned cluster whose table is intact but whose frames no sync vouched for.
struct Doubtful {
    id: u32,
    seal: u64,
    rows: Vec<Row>,
}

/// Scans `clusters` and merges what is there into the volume's index.
pub(super) fn merge(
    volume: &Arc<Volume>,
    clusters: &Clusters,
    deletes: &Deletes,
    receipt: &mut VolumeReceipt,
) -> Result<()> {
    drop_overwritten(volume, clusters, receipt);
    let sightings = sight(volume, clusters, receipt)?;
    // By the short hash, as rows have it.
    let short: HashKeyed<u64> = deletes.iter().map(|(hash, generation)| (*hash as u64, *generation)).collect();
    for (hash, sighting) in &sightings {
        volume.shared.see_generation(sighting.generation);
        if short.get(hash).is_some_and(|deleted| *deleted >= sighting.generation) {
            receipt.dropped.deleted += 1;
            continue;
        }
        let older = match resolve(volume, *hash, sighting.generation, receipt)? {
            Resolved::Newer => {
                receipt.dropped.replaced += 1;
                continue;
            }
            Resolved::Older(word) => {
                receipt.dropped.replaced += 1;
                Some(word)
            }
            Resolved::None => None,
        };
        let location = Location::OnDisk { grain: volume.grain(sighting.cluster, sighting.row.offset) };
        volume.index.put(*hash, location, sighting.row.len / GRAIN as u32, older);
        receipt.from_scan += 1;
    }
    for (hash, generation) in deletes {
        volume.shared.see_generation(*generation);
        delete_from_checkpoint(volume, *hash, *generation, receipt)?;
    }
    receipt.deletes = deletes.len() as u64;
    Ok(())
}

/// The newest frame of every key in these clusters.
fn sight(volume: &Arc<Volume>, clusters: &Clusters, receipt: &mut VolumeReceipt) -> Result<HashKeyed<Sighting>> {
    let mut newest: HashKeyed<Sighting> = HashKeyed::default();
    let mut doubtful = Vec::new();
    // By epoch: what a later run synced says nothing of what an earlier one left torn.
    let known = volume.superblock.lock().durable;
    let mut durable: HashMap<u64, u64> = HashMap::from([(known >> EPOCH_SHIFT, known)]);
    let mut manifests = Vec::new();
    let mut note = |cluster: u32, row: Row| {
        if row.kind == Kind::Manifest {
            manifests.push((cluster, row));
            return;
        }
        let sighting = Sighting { generation: row.generation, cluster, row };
        let known = newest.entry(row.hash).or_insert(sighting);
        if known.generation < row.generation {
            *known = sighting;
        }
    };
    let readers = ahead::readers(&volume.shared.options);
    let named: Vec<(u32, Option<u64>)> = clusters.iter().map(|(id, seq)| (*id, *seq)).collect();
    ahead::in_order(
        &named,
        readers,
        |(id, seq)| volume.contents(*id, *seq),
        |&(id, _), contents| {
            receipt.scanned_clusters += 1;
            match contents? {
                Contents::Sealed(last, rows) => {
                    let known = durable.entry(last.durable >> EPOCH_SHIFT).or_default();
                    *known = last.durable.max(*known);
                    doubtful.push(Doubtful { id, seal: last.seal, rows });
                }
                // Not sealed when the crash came: its frames stood on their own.
                Contents::Unsealed(rows) => {
                    receipt.verified_clusters += 1;
                    rows.into_iter().for_each(|row| note(id, row));
                }
                Contents::Other => {}
            }
            Ok::<(), Error>(())
        },
    )?;
    let judge = |doubtful: &Doubtful| -> Result<Option<Vec<bool>>> {
        let Doubtful { id, seal, rows } = doubtful;
        if durable.get(&(seal >> EPOCH_SHIFT)).is_some_and(|durable| seal <= durable) {
            return Ok(None);
        }
        let bytes = volume.read_at(*id, 0, volume.cluster_len())?;
        Ok(Some(rows.iter().map(|row| is_intact(&bytes, row)).collect()))
    };
    ahead::in_order(&doubtful, readers, judge, |Doubtful { id, rows, .. }, intact| {
        let Some(intact) = intact? else {
            rows.iter().for_each(|row| note(*id, *row));
            return Ok::<(), Error>(());
        };
        receipt.verified_clusters += 1;
        let kept = rows.iter().zip(&intact).filter(|(_, intact)| **intact).map(|(row, _)| *row);
        receipt.dropped.torn += intact.iter().filter(|intact| !**intact).count() as u64;
        kept.for_each(|row| note(*id, row));
        Ok(())
    })?;
    for (cluster, row) in manifests {
        let sighting = Sighting { generation: row.generation, cluster, row };
        if !is_whole(volume, &sighting, &newest)? {
            receipt.dropped.torn += 1;
            continue;
        }
        let known = newest.entry(row.hash).or_insert(sighting);
        if known.generation < row.generation {
            *known = sighting;
        }
    }
    Ok(newest)
}

/// Whether all chunks of a large object are there. A store must not give up the version before for one that
/// the crash left incomplete; in a cache the chunks may have been evicted, and then no older version may show.
fn is_whole(volume: &Arc<Volume>, sighting: &Sighting, newest: &HashKeyed<Sighting>) -> Result<bool> {
    let row = &sighting.row;
    if volume.shared.options.mode == Mode::Cache {
        return Ok(true);
    }
    let grain = volume.grain(sighting.cluster, row.offset);
    let (header, frame) = match volume.read_frame(grain, row.len / GRAIN as u32) {
        Ok(found) => found,
        Err(Error::Damaged { .. }) => return Ok(true),
        Err(error) => return Err(error),
    };
    let body = header.body_start();
    let body = frame.get(body..body + header.body_len as usize).unwrap_or_default();
    let Ok(manifest) = Manifest::decode(body) else { return Ok(true) };
    let parent = volume.hasher.key(header.key(&frame)).0;
    Ok((0..manifest.chunks()).all(|number| {
        let chunk = volume.hasher.chunk(&ChunkKey { parent, id: manifest.id, number }.encode()).short();
        newest.contains_key(&chunk) || !volume.index.candidates(chunk).is_empty()
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

enum Resolved {
    /// The checkpoint knows nothing of this key.
    None,
    /// It knows this older version, or the same one elsewhere.
    Older(Word),
    /// It knows a newer version.
    Newer,
}

/// What the checkpoint has of this key, told from other keys of the same place by reading the frame.
fn resolve(volume: &Arc<Volume>, hash: u64, generation: u64, receipt: &mut VolumeReceipt) -> Result<Resolved> {
    for word in volume.index.candidates(hash) {
        let Some(header) = header_of(volume, hash, word, |found| found as u64 == hash, receipt)? else { continue };
        return Ok(if header.generation > generation { Resolved::Newer } else { Resolved::Older(word) });
    }
    Ok(Resolved::None)
}

fn delete_from_checkpoint(
    volume: &Arc<Volume>,
    hash: u128,
    generation: u64,
    receipt: &mut VolumeReceipt,
) -> Result<()> {
    for word in volume.index.candidates(hash as u64) {
        if let Some(header) = header_of(volume, hash as u64, word, |found| found == hash, receipt)?
            && header.generation <= generation
            && volume.index.remove(hash as u64, word).is_some()
        {
            receipt.dropped.deleted += 1;
        }
    }
    Ok(())
}

/// The header of an entry's frame, if its key's hash is the one. An entry without an intact frame of a key
/// that can have it leads nowhere and is dropped: its cluster was written again and the crash took the note.
fn header_of(
    volume: &Arc<Volume>,
    hash: u64,
    word: Word,
    is_it: impl Fn(u128) -> bool,
    receipt: &mut VolumeReceipt,
) -> Result<Option<Header>> {
    let Location::OnDisk { grain } = word.location() else { return Ok(None) };
    match volume.read_frame(grain, word.grains()) {
        Ok((header, frame)) => {
            let found = volume.hasher.frame(header.kind, header.key(&frame)).0;
            let is_entry_of =
                |word: Word| volume.index.find(found as u64, word.location()).is_some_and(|entry| entry.same(word));
            if found as u64 != hash && !is_entry_of(word) {
                receipt.dropped.overwritten += u64::from(volume.index.remove(hash, word).is_some());
            }
            Ok(is_it(found).then_some(header))
        }
        Err(Error::Damaged { .. }) => {
            receipt.dropped.overwritten += u64::from(volume.index.remove(hash, word).is_some());
            Ok(None)
        }
        Err(error) => Err(error),
    }
}
