//! What a checkpoint that begins has to know of buffers that are not wholly on the device: which uses of clusters they
//! are, for these are looked at after a crash, and what in them is replaced, for what replaced it may not be.

use std::sync::atomic::Ordering::Relaxed;

use picaflor_format::{checkpoint::Begun, frame::GRAIN};

use crate::{cache::buffers::Unfinished, index::Location, read::parts::Parts, write::append::Appender};

/// Which buffers are not wholly on the device, all at one moment: a lane that is not free may be about to number
/// one, or to replace an object in another. With their clusters, and the journal page that their story begins with.
pub(crate) fn begin(parts: &Parts, appender: &Appender) -> (Begun, Vec<u32>, Option<u64>) {
    let lanes: Vec<_> = appender.all_lanes().map(|lane| lane.lock()).collect();
    let below = parts.log.next_seq.load(Relaxed);
    let Unfinished { clusters, seqs: unfinished, since, replacing: mut replaced } = parts.catalog.buffers.unfinished();
    drop(lanes);
    // The newest of each key.
    replaced.sort_unstable_by(|a, b| b.cmp(a));
    replaced.dedup_by_key(|(hash, _)| *hash);
    replaced.retain(|(hash, generation)| !is_looked_at(parts, *hash, *generation));
    (Begun { below, unfinished, replaced }, clusters, since)
}

/// Whether a version of this key that is no older lies in a buffer that is not wholly on the device even now: it is
/// looked at beside the older ones.
fn is_looked_at(parts: &Parts, hash: u64, generation: u64) -> bool {
    let buffers = &parts.catalog.buffers;
    parts.catalog.index.candidates(hash).into_iter().any(|entry| {
        let Location::Buffered { slot, offset } = entry.location() else { return false };
        let mut is_it = false;
        // In this order: a buffer that takes its slot in between was opened later, and is looked at too.
        if buffers.is_unfinished(slot) {
            buffers.read(slot, offset as usize * GRAIN, hash, |header, key| {
                let of_key = parts.medium.hasher.frame(header.kind, key).short() == hash;
                is_it = of_key && header.generation >= generation;
                false
            });
        }
        is_it
    })
}
