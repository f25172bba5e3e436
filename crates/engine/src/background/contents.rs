//! What reclaim reads of its victims: a table says what lies in one, the index what is live of that, and then only
//! those frames are read that may be put again; all bytes where every header matters.
//!
//! Victims that are known beforehand are read together, a few at a time: one after the other each would wait for the
//! device, and puts for each, where a device answers eight reads hardly later than one.
//!
//! Invariant: what was read ahead is used, and given up, within one turn of the reclaimer: as long as that is held no
//! other empties an old cluster, so none is used anew. What could not be read is looked for again when its turn comes.

use std::collections::HashMap;

use picaflor_device::AlignedBuf;
use picaflor_format::cluster::Row;

use crate::{base::policy::Eviction, index::IndexEntry, read::parts::Parts, space::Victim};

/// Most victims that are read together: more would wait in the device rather than in the queue.
const MOST: u64 = 16;
/// What is read of them may take so much of the memory.
const PART: u64 = 8;
/// Frames that lie no farther apart are one read: a device moves about as many bytes in the time of one more request.
const GAP: usize = 16 << 10;

/// What was read of one cluster.
pub(crate) struct Contents {
    pub(crate) rows: Vec<Row>,
    pub(crate) bytes: Bytes,
}

/// Bytes of a cluster.
#[derive(Default)]
pub(crate) enum Bytes {
    #[default]
    None,
    All(AlignedBuf),
    /// Of frames that may be put again: where each piece begins.
    Some(Vec<(usize, AlignedBuf)>),
}

impl Bytes {
    /// The frame of a row and what lies behind it, if it was read.
    pub(crate) fn frame(&self, row: &Row) -> Option<&[u8]> {
        let (start, len) = (row.offset as usize, row.len as usize);
        match self {
            Self::None => None,
            Self::All(bytes) => bytes.get(start..),
            Self::Some(pieces) => pieces.iter().find_map(|(at, bytes)| {
                let start = start.checked_sub(*at)?;
                bytes.get(start..).filter(|frame| frame.len() >= len)
            }),
        }
    }
}

/// What was read of the clusters that are emptied next.
pub(crate) type Ahead = HashMap<u32, Contents>;

/// Reads what reclaim looks at.
pub(crate) struct VictimReader {
    parts: Parts,
}

impl VictimReader {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { parts: parts.clone() }
    }

    /// Reads of the clusters that are emptied next, where it is known which these are, and a table is what is read.
    pub(crate) fn read_ahead(&self, most: u32) -> Ahead {
        let parts = &self.parts;
        let eviction = parts.shared.eviction();
        let is_known = eviction.victim() == Victim::Oldest && !eviction.keeps_all();
        let room = parts.shared.options.memory / PART / parts.medium.cluster_len() as u64;
        let most = u64::from(most).min(room).min(MOST) as usize;
        if !is_known || most < 2 || parts.residents.listed.is_some() || parts.residents.reader.is_by_cluster() {
            return Ahead::new();
        }
        let tables = parts.medium.tables(&parts.space.victims().next(most));
        let bytes: Vec<Bytes> = match self.needs_headers(eviction, parts.shared.leases.none().is_some()) {
            // All of each is read when its turn comes.
            true => tables.iter().map(|_| Bytes::None).collect(),
            false => {
                let live = |(victim, rows): &(u32, Vec<Row>)| parts.catalog.entries_of(*victim, rows.clone());
                let live: Vec<_> = tables.iter().map(live).collect();
                let asked: Vec<_> = tables.iter().zip(&live).map(|((victim, _), live)| (*victim, &live[..])).collect();
                self.read_survivors(&asked, eviction)
            }
        };
        tables.into_iter().zip(bytes).map(|((victim, rows), bytes)| (victim, Contents { rows, bytes })).collect()
    }

    /// Whether every header of a victim is looked at: if all may stay, or if a listener is told the keys of what goes.
    pub(crate) fn needs_headers(&self, eviction: Eviction, no_leases: bool) -> bool {
        eviction.keeps_all()
            || !no_leases
            || self.parts.shared.options.eviction_listener.is_some()
            || eviction.may_reinsert() && self.parts.shared.groups.any_loved()
    }

    /// Whether it was asked for since it was placed, or is in memory and hot.
    pub(crate) fn is_used(&self, row: &Row, entry: IndexEntry) -> bool {
        entry.uses() > 0 || self.parts.shared.memory.is_hot(row.hash)
    }

    /// Reads the frames of these victims that may be put again: what was used, as far as the budget goes. Of each
    /// victim in turn what could be read.
    pub(crate) fn read_survivors(&self, victims: &[(u32, &[(Row, IndexEntry)])], eviction: Eviction) -> Vec<Bytes> {
        let medium = &self.parts.medium;
        let mut left = if eviction.may_reinsert() { self.parts.shared.budget.left() } else { 0 };
        let mut wanted = Vec::new();
        for (_, live) in victims {
            let is_wanted = |(row, entry): &&(Row, IndexEntry)| {
                let wanted = left > 0 && self.is_used(row, *entry);
                left -= if wanted { i64::from(row.len) } else { 0 };
                wanted
            };
            let rows = live.iter().filter(is_wanted).map(|(row, _)| row);
            wanted.push(pieces(rows, medium.cluster_len(), medium.device.read_unit()));
        }
        let places = victims.iter().zip(&wanted);
        let places = places.flat_map(|((victim, _), pieces)| pieces.iter().map(|(at, len)| (*victim, *at, *len)));
        let mut read = medium.read_all_at(places).into_iter();
        let found = |pieces: Vec<(usize, usize)>| {
            pieces.into_iter().zip(read.by_ref()).filter_map(|((at, _), bytes)| Some((at, bytes?))).collect()
        };
        wanted.into_iter().map(found).map(Bytes::Some).collect()
    }
}

/// Where to read, and how much, for these frames of a cluster.
fn pieces<'a>(rows: impl Iterator<Item = &'a Row>, cluster: usize, unit: usize) -> Vec<(usize, usize)> {
    let mut ranges: Vec<_> = rows.map(|row| (row.offset as usize, (row.offset + row.len) as usize)).collect();
    ranges.sort_unstable();
    let mut pieces: Vec<(usize, usize)> = Vec::new();
    for (start, end) in ranges {
        let (start, end) = (start / unit * unit, end.next_multiple_of(unit).min(cluster));
        match pieces.last_mut() {
            Some((at, len)) if start <= *at + *len + GAP => *len = (end - *at).max(*len),
            _ => pieces.push((start, end - start)),
        }
    }
    pieces
}

#[cfg(test)]
mod tests {
    use picaflor_format::frame::Kind;

    use super::*;

    #[test]
    fn frames_that_lie_close_are_one_read() {
        let row = |offset, len| Row { hash: 0, generation: 0, offset, len, kind: Kind::Whole };
        let rows = [row(100_000, 3000), row(64, 1000), row(8192, 512), row(262_000, 144)];
        let wanted = [(0, 8704), (99_840, 3584), (261_632, 512)];
        assert_eq!(pieces(rows.iter(), 262_144, 512), wanted);
        assert!(pieces(rows[..0].iter(), 262_144, 512).is_empty());
        let bytes = wanted.iter().map(|(at, len)| (*at, AlignedBuf::zeroed(*len))).collect();
        let bytes = Bytes::Some(bytes);
        assert!(rows.iter().all(|row| bytes.frame(row).is_some_and(|frame| frame.len() >= row.len as usize)));
        assert!(bytes.frame(&row(8704, 64)).is_none() && bytes.frame(&row(103_000, 1000)).is_none());
    }
}
