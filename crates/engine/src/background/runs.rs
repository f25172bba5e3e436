//! Runs in a store: room for an object whose length is announced is made side by side.
//!
//! Steps, until there is a hole that is long enough: clusters in which nothing is live leave, and a commit makes them
//! clean → checkpoints, if many of them are too young → one object that lies between two holes is moved to a third,
//! where it fits. Else the new object lies in parts.
//!
//! Invariant: an object that lies in one run is moved as a whole.

use std::ops::Range;

use picaflor_format::{
    BLOCK, cluster,
    frame::{ChunkKey, Header, Kind},
};

use crate::{
    Result,
    background::{full_store::CHECKPOINTS, reclaim::Reclaimer, survivors::Moved},
    base::blocked::Purpose,
    base::frame::Draft,
    base::stats::add,
    index::{IndexEntry, Location},
    read::parts::Parts,
    space::{Promised, State},
};

/// A chunk that has a cluster to itself: its hash and entry.
type Alone = (u64, IndexEntry);

impl Reclaimer {
    /// Promises so many clean clusters to an object whose length is announced: side by side if that can be had, else in
    /// parts. None if there is no room but by compaction.
    pub(crate) fn take_run(&self, clusters: u32) -> Result<Option<Vec<Promised>>> {
        let kept = self.appender.kept_from_puts();
        let take = |parts| self.parts.space.runs().take(clusters, kept, parts);
        if !self.parts.space.runs().may_promise(clusters) {
            return Ok(None);
        }
        let _turn = self.state.turn.lock();
        self.parts.frames.drop_released();
        self.drop_residents_if_tight();
        // Each dead cluster that a checkpoint makes a victim has been written once: it costs a part of that.
        let worth = (2 * self.parts.residents.checkpoint_clusters()).max(clusters.min(self.parts.space.count() / 64));
        for _ in 0..CHECKPOINTS / 2 {
            self.empty_dead()?;
            if let Some(run) = take(false) {
                return Ok(Some(run));
            }
            if self.parts.space.young_dead() < worth || self.checkpointer.lacks_room() {
                break;
            }
            self.checkpointer.take()?;
        }
        let may_move = || self.parts.space.available() >= clusters + kept;
        let mut has_moved = may_move() && self.move_for(clusters)?;
        // What could be moved may be too young: two checkpoints, small beside the object, make a victim of it.
        if !has_moved && may_move() && 4 * self.parts.residents.checkpoint_clusters() <= clusters {
            self.checkpointer.take()?;
            self.checkpointer.take()?;
            has_moved = self.move_for(clusters)?;
        }
        if has_moved {
            self.empty_dead()?;
        }
        Ok(take(true))
    }

    /// All clusters in which nothing is live become clean, but for those that a recovery would scan.
    fn empty_dead(&self) -> Result<()> {
        let dead = self.parts.space.leave_dead();
        dead.iter().for_each(|id| self.parts.space.live.clear(*id));
        add(&self.parts.shared.counters.reclaimed_clusters, dead.len() as u64);
        // Asked for when they are marked: one that is under way may not have the delete of what was in them.
        let next = self.parts.log.commits.next();
        dead.into_iter().for_each(|id| self.parts.space.set(id, State::Leaving(next)));
        if self.parts.space.leaving() > 0 { self.checkpointer.commit_now() } else { Ok(()) }
    }

    /// Moves the smallest object whose clusters and the holes beside them are so many. False if there is none, or no
    /// hole for it.
    fn move_for(&self, wanted: u32) -> Result<bool> {
        let beside = self.parts.space.runs().beside_holes();
        let mut movable: Vec<(Range<u32>, Vec<Alone>)> = beside.into_iter().filter_map(|id| self.run_at(id)).collect();
        movable.sort_by_key(|(run, _)| (run.len(), run.start));
        let keep = self.parts.residents.checkpoint_clusters();
        for (run, chunks) in movable {
            if let Some(promised) = self.parts.space.runs().take_instead(run, wanted, keep) {
                for (chunk, promised) in chunks.into_iter().zip(promised) {
                    if !self.move_chunk(chunk, &promised)? {
                        return Ok(false);
                    }
                }
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The chunks of the object of which one lies in this cluster, if each has a cluster and these lie side by side.
    fn run_at(&self, cluster: u32) -> Option<(Range<u32>, Vec<Alone>)> {
        let Parts { medium, catalog, frames, .. } = &self.parts;
        let bytes = medium.read_at(cluster, 0, BLOCK).ok()?;
        let frame = bytes.get(cluster::HEADER..)?;
        // Whatever it says is looked up, and what is moved is verified.
        let key = ChunkKey::decode(Header::of_damaged(frame)?.key(frame)).ok()?;
        let parent = key.parent as u64;
        let head = |entry: IndexEntry| frames.look_at(parent, entry, |header, frame| header.manifest(frame)).ok()??;
        let mut heads = catalog.index.candidates(parent).into_iter().filter_map(head);
        let chunks = heads.find(|manifest| manifest.id == key.id)?.chunks();
        let first = cluster.checked_sub(key.number)?;
        let run = first..first.checked_add(chunks).filter(|end| *end <= self.parts.space.count())?;
        let alone = |(number, cluster)| {
            let hash = medium.hasher.chunk(&ChunkKey { number, ..key }.encode()).short();
            let grain = medium.grain(cluster, cluster::HEADER as u32);
            Some((hash, catalog.index.find(hash, Location::OnDisk { grain })?))
        };
        let chunks = (0..).zip(run.clone()).map(alone).collect::<Option<_>>()?;
        Some((run, chunks))
    }

    /// Frames a chunk again, in the cluster that is promised to it. False if it is gone.
    fn move_chunk(&self, (hash, entry): Alone, promised: &Promised) -> Result<bool> {
        let Location::OnDisk { grain } = entry.location() else { return Ok(false) };
        // An object that cannot be read is no error of the one that wants its place.
        let Ok((header, frame)) = self.parts.frames.read_frame(grain, entry.grains()) else { return Ok(false) };
        if header.kind != Kind::Chunk || self.parts.medium.hasher.chunk(header.key(&frame)).short() != hash {
            return Ok(false);
        }
        let draft = Draft::of_frame(hash, header, &frame);
        let class = self.parts.catalog.placer.class(Kind::Chunk, header.group, header.server);
        let append = || self.survivors.append(&draft, class, None, Some(entry), Purpose::Run(promised.id));
        let moved = self.survivors.move_in((hash, Some(entry)), header.payload_len(), append)?;
        if matches!(moved, Moved::There) {
            promised.is_filled();
        }
        Ok(matches!(moved, Moved::There))
    }
}
