//! The scan: clusters that the checkpoint does not cover are read. `merge.rs` enters what they hold.
//!
//! Steps: entries of the checkpoint that point into clusters which the journal or the directory names, or into those of
//! checkpoints, are dropped, for these have been written since → the trailers of the newest of these clusters say up to
//! where a sync vouched → their tables are read; if no sync vouched for one, it is read whole and verified frame by
//! frame.
//!
//! A cluster that was sealed when a checkpoint was taken, and has neither a table nor all of its frames, held newer
//! versions of unknown keys: nothing that is older can be trusted, and the scan fails.
//!
//! Invariants: what is found does not depend on how many threads look. What is held of the frames at one time is
//! about [`budget`]; if there are more, the tables are read again, for the next range of hashes.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, HashMap},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use picaflor_format::{
    BLOCK,
    checkpoint::Begun,
    cluster::{Row, Trailer},
    frame::{Header, Kind},
    superblock::Superblock,
};

use super::{
    found::EPOCH_SHIFT,
    image::Unfit,
    merge::{Merge, Sighting},
    parallel_read,
    since::Deletes,
};
use crate::{
    Error, Result,
    base::medium::Medium,
    base::receipt::VolumeReceipt,
    index::{IndexEntry, Location},
    read::cluster_reader::Use,
    read::parts::Parts,
};

/// Clusters to look at, and which use of each the journal named last.
pub(super) type Clusters = BTreeMap<u32, Option<u64>>;

/// Clusters of each epoch that are looked at to learn up to where a sync vouched.
const NEWEST: usize = 64;

/// Bytes of sightings held at one time: half of what memory has left, for nothing else needs it yet.
fn budget(volume: &Parts) -> usize {
    let options = &volume.shared.options;
    let volumes = options.places.len() as u64;
    (volume.shared.tier_budget() / 2 / volumes).max(u64::from(options.cluster)) as usize
}

/// Scans `clusters`, behind a checkpoint: the sequence number of its directory, and what was so when it began. What
/// is there is to be merged into the volume's index; where it was too much for the memory, part of it is by now.
pub(super) fn gather(
    volume: &Parts,
    clusters: &Clusters,
    deletes: &Deletes,
    checkpoint: (u64, &Begun),
    receipt: &mut VolumeReceipt,
) -> Result<Merge, Unfit> {
    let named: Vec<Named> = clusters.iter().map(|(id, seq)| (*id, *seq)).collect();
    let readers = parallel_read::readers(&volume.shared.options);
    let look = Look::begin(volume, &named, readers)?;
    let passes = (look.frames * size_of::<Sighting>()).div_ceil(budget(volume)).max(1);
    let mut merge = Merge::new(volume, passes, deletes, clusters.keys().copied().collect(), checkpoint);
    receipt.deletes = deletes.len() as u64;
    for pass in 0..passes {
        merge.expect(pass, look.frames / passes);
        parallel_read::in_order(
            &named,
            readers,
            |cluster| look.inside(volume, cluster),
            |_, found| {
                let found = found?;
                if pass == 0 {
                    receipt.scanned_clusters += 1;
                    receipt.verified_clusters += u32::from(found.verified);
                    receipt.dropped.torn += found.torn;
                    found.manifests.into_iter().for_each(|(manifest, vouched)| merge.add_manifest(manifest, vouched));
                }
                found.sightings.into_iter().for_each(|sighting| merge.add(pass, sighting));
                Ok::<(), Unfit>(())
            },
        )?;
        if pass + 1 < passes {
            merge.enter(volume, pass)?.add_to(receipt);
        }
    }
    Ok(merge)
}

/// A cluster to look into, and which use.
type Named = (u32, Option<u64>);

/// What one look into clusters needs to know.
struct Look {
    /// The largest seal known to be durable, by epoch: what a later run synced says nothing of what an earlier one left
    /// torn. What lies above it may be durable too; verifying it comes to the same.
    durable: HashMap<u64, u64>,
    /// As in the superblock.
    sealed_below: u64,
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
    fn begin(volume: &Parts, named: &[Named], readers: usize) -> Result<Self> {
        let Superblock { durable: known, sealed_below, .. } = volume.log.superblock();
        let mut look = Self { durable: HashMap::new(), sealed_below, frames: 0, table: AtomicUsize::new(BLOCK) };
        let mut durable = HashMap::from([(known >> EPOCH_SHIFT, known)]);
        let mut newest: Vec<Named> = named.iter().filter(|(_, seq)| seq.is_some()).copied().collect();
        newest.sort_unstable_by_key(|(_, seq)| Reverse(*seq));
        let epoch = |(_, seq): &Named| seq.unwrap_or(0) >> EPOCH_SHIFT;
        let newest: Vec<Named> =
            newest.chunk_by(|a, b| epoch(a) == epoch(b)).flat_map(|run| run.iter().take(NEWEST)).copied().collect();
        let mut frames = 0;
        parallel_read::in_order(
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

    fn last_use(&self, volume: &Parts, cluster: u32, seq: Option<u64>) -> Result<Use> {
        let found = volume.medium.last_use(cluster, seq, self.table.load(Relaxed))?;
        if let Use::Sealed(last, rows) = &found {
            volume.residents.pages.note_division(cluster, last.page);
            self.table.store(volume.medium.tail_len(rows.len()), Relaxed);
        }
        Ok(found)
    }

    fn inside(&self, volume: &Parts, &(cluster, seq): &Named) -> Result<Found, Unfit> {
        let mut found = Found::default();
        let rows = match self.last_use(volume, cluster, seq)? {
            // Not sealed when the crash came: its frames stand on their own.
            Use::Unsealed(seq) => {
                found.verified = true;
                let bytes = volume.medium.read_at(cluster, 0, volume.medium.cluster_len())?;
                let rows = volume.medium.frames_of(&bytes, seq);
                if self.was_sealed(seq) && !Medium::accounts_for(&bytes, &rows) {
                    let start = volume.medium.map().cluster_start(cluster);
                    return Err(format!("the table of the cluster at {start} and objects in it are damaged").into());
                }
                rows
            }
            Use::Other(_) => return Ok(found),
            Use::Sealed(last, rows) if self.vouches_for(&last) => rows,
            Use::Sealed(_, mut rows) => {
                found.verified = true;
                let bytes = volume.medium.read_at(cluster, 0, volume.medium.cluster_len())?;
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

    /// Whether the newest checkpoint found this use sealed.
    fn was_sealed(&self, seq: u64) -> bool {
        seq >> EPOCH_SHIFT == self.sealed_below >> EPOCH_SHIFT && seq < self.sealed_below
    }

    fn vouches_for(&self, last: &Trailer) -> bool {
        self.durable.get(&(last.seal >> EPOCH_SHIFT)).is_some_and(|durable| last.seal <= *durable)
    }
}

fn is_intact(cluster: &[u8], row: &Row) -> bool {
    let frame = cluster.get(row.offset as usize..).unwrap_or_default();
    Header::verify(frame).is_ok_and(|header| header.generation == row.generation)
}

/// Clusters that may have been written since the checkpoint hold nothing that it knows, and those of checkpoints no
/// object: what this one has there left while it was taken.
pub(super) fn drop_overwritten<'a>(
    volume: &Parts,
    clusters: impl Iterator<Item = &'a u32>,
    receipt: &mut VolumeReceipt,
) {
    let mut written = vec![false; volume.space.count() as usize];
    clusters.for_each(|id| written[*id as usize] = true);
    if !written.contains(&true) {
        return;
    }
    volume.catalog.index.update_all(|entry| {
        let Location::OnDisk { grain } = entry.location() else { return IndexEntry::EMPTY };
        match volume.medium.cluster_of(grain) {
            Some(id) if !written[id as usize] => entry,
            _ => {
                receipt.dropped.overwritten += 1;
                IndexEntry::EMPTY
            }
        }
    });
}
