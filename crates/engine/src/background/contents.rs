//! What reclaim reads of its victims: a table says what lies in one, the index what is live of that, and then only
//! those frames are read that may be put again; all bytes, by one read, where every header matters.
//!
//! Victims that are known beforehand are read ahead of their turn (`ahead.rs`). What could not be read is looked for
//! again when its turn comes.

use picaflor_device::AlignedBuf;
use picaflor_format::{cluster::Row, frame::Kind};

use crate::{Result, index::IndexEntry, read::parts::Parts};

/// Frames that lie no farther apart are one read: a device moves about as many bytes in the time of one more request.
const GAP: usize = 16 << 10;

/// What was read of one cluster.
#[derive(Default)]
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
    /// What of these places could be read.
    pub(super) fn of(places: Vec<(usize, usize)>, read: &mut impl Iterator<Item = Option<AlignedBuf>>) -> Self {
        Self::Some(places.into_iter().zip(read).filter_map(|((at, _), bytes)| Some((at, bytes?))).collect())
    }

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

/// Reads what reclaim looks at.
pub(crate) struct VictimReader {
    pub(super) parts: Parts,
}

impl VictimReader {
    pub(crate) fn new(parts: &Parts) -> Self {
        Self { parts: parts.clone() }
    }

    /// Whether all of a victim is read: if all may stay, if a listener is told the keys of what goes, or if readers ask
    /// for whole clusters anyway.
    pub(super) fn needs_all(&self, no_leases: bool) -> bool {
        let eviction = self.parts.shared.eviction();
        eviction.keeps_all()
            || !no_leases
            || self.parts.residents.reader.is_by_cluster()
            || self.parts.shared.options.eviction_listener.is_some()
            || eviction.may_reinsert() && self.parts.shared.groups.any_loved()
    }

    /// What is in a victim, with all its bytes or none but those read `ahead`.
    ///
    /// # Errors
    /// Those of the device, where no object is to leave. Elsewhere what can be known without its bytes is.
    pub(super) fn contents(&self, victim: u32, needs_all: bool, ahead: Option<Contents>) -> Result<Contents> {
        if let Some(ahead) = ahead.filter(|ahead| !needs_all || matches!(ahead.bytes, Bytes::All(_))) {
            return Ok(ahead);
        }
        if needs_all {
            match self.parts.medium.contents_and_bytes(victim) {
                Ok((rows, bytes)) => return Ok(Contents { rows, bytes: Bytes::All(bytes) }),
                Err(error) if self.parts.shared.eviction().keeps_all() => return Err(error),
                Err(_) => {}
            }
        }
        Ok(Contents { rows: self.parts.medium.contents(victim)?, bytes: Bytes::None })
    }

    /// Whether it was asked for since it was placed, or is in memory and hot.
    pub(crate) fn is_used(&self, row: &Row, entry: IndexEntry) -> bool {
        entry.uses() > 0 || self.parts.shared.memory.uses(row.hash) > 0
    }

    /// How often it was asked for, as far as that is counted.
    pub(super) fn uses(&self, row: &Row, entry: IndexEntry) -> u32 {
        entry.uses().max(self.parts.shared.memory.uses(row.hash).into())
    }

    /// Reads the frames of a victim that may be put again.
    pub(super) fn read_survivors(&self, victim: u32, live: &[(Row, IndexEntry)]) -> Bytes {
        let wanted = self.survivors(&mut self.budget(), live);
        let read = self.parts.medium.batch(wanted.iter().map(|(at, len)| (victim, *at, *len))).read();
        Bytes::of(wanted, &mut read.into_iter())
    }

    /// Bytes that may be put again.
    pub(super) fn budget(&self) -> i64 {
        if self.parts.shared.eviction().may_reinsert() { self.parts.shared.budget.left() } else { 0 }
    }

    /// Where the frames lie that may be put again, and how much is read there: what was used, as far as the budget
    /// goes; a piece of a large object may follow those before it, whatever that costs.
    pub(super) fn survivors(&self, left: &mut i64, live: &[(Row, IndexEntry)]) -> Vec<(usize, usize)> {
        let follows = self.parts.shared.eviction().has_queues();
        let given = (*left).min(self.parts.shared.budget.most_of(self.parts.space.live.room));
        let mut here = given;
        let is_wanted = |(row, entry): &&(Row, IndexEntry)| {
            let may_stay = here > 0 || follows && row.kind != Kind::Whole;
            let wanted = may_stay && self.is_used(row, *entry);
            here -= if wanted { i64::from(row.len) } else { 0 };
            wanted
        };
        let rows = live.iter().filter(is_wanted).map(|(row, _)| row);
        let pieces = pieces(rows, self.parts.medium.cluster_len(), self.parts.medium.device.read_unit());
        *left -= given - here;
        pieces
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
