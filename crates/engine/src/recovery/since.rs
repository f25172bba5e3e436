//! What is known to have happened since the checkpoint, and what its entries lead to now.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::OnceLock,
};

use parking_lot::Mutex;
use picaflor_common::HashKeyed;
use picaflor_format::{BLOCK, checkpoint::Begun, frame::Header};

use crate::{Mode, Result, index::Index, read::cluster_reader::Use, read::parts::Parts};

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

pub(super) struct Since {
    /// The largest generation of each key that is gone, by the short hash, as rows have it: it was deleted, or replaced
    /// before the checkpoint began.
    gone: HashKeyed<u64>,
    /// Clusters that were scanned.
    scanned: BTreeSet<u32>,
    /// The sequence number of the checkpoint's directory; 0 without one.
    checkpoint: u64,
    /// Places in the index of which an entry was dropped because the device did not give what it leads to.
    /// Made with the first: where the device gives everything, no sighting takes a lock for it.
    unread: OnceLock<Mutex<BTreeSet<u64>>>,
}

impl Since {
    pub(super) fn new(deletes: &Deletes, begun: &Begun, scanned: BTreeSet<u32>, checkpoint: u64) -> Self {
        let replaced = begun.replaced.iter().map(|(hash, generation)| (*hash, generation.saturating_sub(1)));
        let mut gone = HashKeyed::default();
        for (hash, generation) in deletes.iter().map(|(hash, generation)| (hash as u64, generation)).chain(replaced) {
            let last = gone.entry(hash).or_insert(generation);
            *last = generation.max(*last);
        }
        Self { gone, scanned, checkpoint, unread: OnceLock::new() }
    }

    /// An entry that may be of this hash, or of any other that has its place, leads to what the device does not give.
    /// To be told before the entry is dropped.
    pub(super) fn note_unread(&self, index: &Index, hash: u64) {
        self.unread.get_or_init(Mutex::default).lock().insert(hash & index.told_apart_by());
    }

    /// Whether it is not known which version of such a key is the newest, unless the index has another entry of it.
    pub(super) fn is_unread(&self, index: &Index, hash: u64) -> bool {
        self.unread.get().is_some_and(|unread| unread.lock().contains(&(hash & index.told_apart_by())))
    }

    /// Whether this version was deleted or replaced.
    pub(super) fn is_gone(&self, hash: u64, generation: u64) -> bool {
        self.gone.get(&hash).is_some_and(|last| *last >= generation)
    }

    /// The last use of a cluster; none of one that a cache cannot read.
    fn last_use(volume: &Parts, cluster: u32) -> Result<Option<Use>> {
        match volume.medium.last_use(cluster, None, BLOCK) {
            Ok(found) => Ok(Some(found)),
            Err(_) if volume.shared.options.mode == Mode::Cache => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Whether the frame with this mark, to which an entry of the checkpoint leads, was written after the checkpoint
    /// and nothing vouches for it: a crash kept its cluster and took the note of the grant. What is shown of it could
    /// be gone after the next one.
    pub(super) fn wrote_untold(&self, volume: &Parts, grain: u64, mark: u64) -> Result<bool> {
        let of_checkpoint = volume.medium.cluster_of(grain).filter(|cluster| !self.scanned.contains(cluster));
        let Some(cluster) = of_checkpoint else { return Ok(false) };
        let seq = match Self::last_use(volume, cluster)? {
            Some(Use::Sealed(last, _)) => last.seq,
            Some(Use::Unsealed(seq)) => seq,
            Some(Use::Other(_)) | None => return Ok(false),
        };
        // Where the cluster's front was lost it still says the use before, which the frame is not of.
        Ok((seq > self.checkpoint) == (volume.medium.hasher.mark(seq) == mark))
    }

    /// Hash and generation of the frame to which an entry leads, and which is not intact: by the table of its cluster,
    /// or, where that was never sealed, by the frame's own header. None where the cluster was written after the
    /// checkpoint, but if it was scanned: then the entry is of the scan, which took it from the table.
    pub(super) fn rotten_at(&self, volume: &Parts, grain: u64, grains: u32) -> Result<Option<(u64, u64)>> {
        let Some(cluster) = volume.medium.cluster_of(grain) else { return Ok(None) };
        Ok(match Self::last_use(volume, cluster)? {
            Some(Use::Sealed(last, rows)) if last.seq <= self.checkpoint || self.scanned.contains(&cluster) => {
                let row = rows.iter().find(|row| volume.medium.grain(cluster, row.offset) == grain);
                row.map(|row| (row.hash, row.generation))
            }
            Some(Use::Unsealed(seq)) if seq <= self.checkpoint && !self.scanned.contains(&cluster) => {
                let bytes = volume.frames.read_unverified(grain, grains)?;
                let header = Header::of_damaged(&bytes).filter(|header| header.mark == volume.medium.hasher.mark(seq));
                let hash = |header: &Header| volume.medium.hasher.frame(header.kind, header.key(&bytes)).short();
                header.map(|header| (hash(&header), header.generation))
            }
            _ => None,
        })
    }
}
