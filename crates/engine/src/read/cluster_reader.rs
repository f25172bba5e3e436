//! What is in a cluster on the device: by its table if it was sealed, frame by frame if a crash came first.

use std::ops::Range;

use picaflor_device::AlignedBuf;
use picaflor_format::{
    BLOCK,
    cluster::{self, Content, Row, Table, Trailer, decode_table, decode_trailer, table_len},
    frame::{GRAIN, Header},
};

use crate::{Result, base::medium::Medium};

/// What one use of a cluster is.
pub(crate) enum Use {
    /// It was sealed, and this is its table, which vouches for places and generations, not for the frames' bytes.
    Sealed(Trailer, Vec<Row>),
    /// It has no table. The use's number.
    Unsealed(u64),
    /// None for objects of this store; the use's number, or 0.
    Other(u64),
}

impl Use {
    /// The use's number.
    pub(crate) fn seq(&self) -> u64 {
        match self {
            Self::Sealed(last, _) => last.seq,
            Self::Unsealed(seq) | Self::Other(seq) => *seq,
        }
    }
}

impl Medium {
    /// Bytes to read from the end of a cluster so that a table of so many rows is among them.
    pub(crate) fn tail_len(&self, rows: usize) -> usize {
        table_len(rows).next_multiple_of(BLOCK).min(self.cluster_len())
    }

    /// What a cluster holds, by its table or, if it has none, by the frames that verify.
    ///
    /// # Errors
    /// [`Error::Io`] with the place.
    pub(crate) fn contents(&self, cluster: u32) -> Result<Vec<Row>> {
        match self.last_use(cluster, None, BLOCK)? {
            Use::Sealed(_, rows) => Ok(rows),
            Use::Unsealed(seq) => self.frames(cluster, seq),
            Use::Other(_) => Ok(Vec::new()),
        }
    }

    /// What is read of these clusters for their tables.
    pub(crate) fn table_places(&self, clusters: &[u32]) -> impl Iterator<Item = (u32, usize, usize)> {
        let end = self.cluster_len() - BLOCK;
        clusters.iter().flat_map(move |cluster| [(*cluster, end, BLOCK), (*cluster, 0, BLOCK)])
    }

    /// What each of these clusters holds by its table, of what was read of [these places](Self::table_places); without
    /// those that could not be read, or have no table.
    pub(crate) fn tables(&self, clusters: &[u32], read: Vec<Option<AlignedBuf>>) -> Vec<(u32, Vec<Row>)> {
        let mut read = read.into_iter();
        let rows = |cluster: &u32| {
            let (tail, front) = (read.next()?, read.next()?);
            match self.use_in(*cluster, None, &tail?, front.as_deref()) {
                Ok(Use::Sealed(_, rows)) => Some((*cluster, rows)),
                _ => None,
            }
        };
        clusters.iter().filter_map(rows).collect()
    }

    /// As [`Medium::contents`], with all bytes of the cluster, by one read.
    ///
    /// # Errors
    /// As [`Medium::contents`].
    pub(crate) fn contents_and_bytes(&self, cluster: u32) -> Result<(Vec<Row>, AlignedBuf)> {
        let bytes = self.read_at(cluster, 0, self.cluster_len())?;
        Ok((self.rows_in(cluster, &bytes)?, bytes))
    }

    /// The same of a cluster of which all bytes were read.
    pub(crate) fn rows_in(&self, cluster: u32, bytes: &[u8]) -> Result<Vec<Row>> {
        Ok(self.rows_of(self.use_in(cluster, None, bytes, None)?, bytes))
    }

    /// What a cluster holds by its table, if it has one, and all its bytes.
    ///
    /// # Errors
    /// As [`Medium::contents`].
    pub(crate) fn sealed(&self, cluster: u32) -> Result<Option<(Vec<Row>, AlignedBuf)>> {
        let (found, bytes) = self.last_use_and_end(cluster, None, self.cluster_len())?;
        Ok(if let Use::Sealed(_, rows) = found { Some((rows, bytes)) } else { None })
    }

    /// What one use of a cluster of these bytes holds.
    pub(crate) fn rows_of(&self, found: Use, bytes: &[u8]) -> Vec<Row> {
        match found {
            Use::Sealed(_, rows) => rows,
            Use::Unsealed(seq) => self.frames_of(bytes, seq),
            Use::Other(_) => Vec::new(),
        }
    }

    /// The last use of a cluster. With `seq`, only that use counts: a write that a crash kept from the device leaves
    /// the use before. One read if the use is as expected and its table no longer than `guess` bytes.
    ///
    /// # Errors
    /// [`Error::Io`] with the place.
    pub(crate) fn last_use(&self, cluster: u32, seq: Option<u64>, guess: usize) -> Result<Use> {
        self.last_use_and_end(cluster, seq, guess).map(|(found, _)| found)
    }

    /// The same, with what was read from the cluster's end.
    fn last_use_and_end(&self, cluster: u32, seq: Option<u64>, guess: usize) -> Result<(Use, AlignedBuf)> {
        let tail = self.read_at(cluster, self.cluster_len() - guess, guess)?;
        Ok((self.use_in(cluster, seq, &tail, None)?, tail))
    }

    /// The last use of a cluster, of whose end these bytes are, and its front, if that was read too.
    fn use_in(&self, cluster: u32, seq: Option<u64>, tail: &[u8], front: Option<&[u8]>) -> Result<Use> {
        let size = self.cluster_len();
        let last = decode_trailer(tail).ok().filter(|(_, count)| table_len(*count) <= size);
        let mine = last.as_ref().filter(|(last, _)| last.store == self.store_id && last.id == cluster);
        let told = mine.map(|(last, _)| last.seq);
        let (newest, objects) = match told {
            Some(told) if Some(told) == seq => (told, true),
            _ => {
                let read = front.is_none() && tail.len() < size;
                let read = read.then(|| self.read_at(cluster, 0, BLOCK)).transpose()?;
                match cluster::Header::decode(front.or(read.as_deref()).unwrap_or(tail)) {
                    Ok(header)
                        if header.store == self.store_id
                            && header.id == cluster
                            // A crash may have kept the front of the last use from the device, and not its end.
                            && told.is_none_or(|told| told <= header.seq) =>
                    {
                        (header.seq, header.content == Content::Objects)
                    }
                    _ => (told.unwrap_or(0), told.is_some()),
                }
            }
        };
        if !objects || seq.is_some_and(|seq| seq != newest) {
            return Ok(Use::Other(newest));
        }
        // A trailer of an earlier use stays until the cluster is sealed anew.
        let Some((last, count)) = last.filter(|(last, _)| last.seq == newest) else { return Ok(Use::Unsealed(newest)) };
        let table = match decode_table(tail) {
            Ok(Table::Longer(_)) => {
                let len = self.tail_len(count);
                decode_table(&self.read_at(cluster, size - len, len)?)
            }
            table => table,
        };
        Ok(match table {
            Ok(Table::Rows(_, rows)) => Use::Sealed(last, rows),
            _ => Use::Unsealed(newest),
        })
    }

    /// The intact frames of one use of a cluster whose table does not count, in order. Between them is where a commit
    /// padded, or what damage or a crash took.
    ///
    /// # Errors
    /// [`Error::Io`] with the place.
    pub(crate) fn frames(&self, cluster: u32, seq: u64) -> Result<Vec<Row>> {
        Ok(self.frames_of(&self.read_at(cluster, 0, self.cluster_len())?, seq))
    }

    /// The same in a cluster that was read.
    pub(crate) fn frames_of(&self, bytes: &[u8], seq: u64) -> Vec<Row> {
        self.frames_in(bytes, cluster::HEADER..bytes.len(), 0, Some(self.hasher.mark(seq)))
    }

    /// Whether these intact frames are all that was ever in a sealed cluster of these bytes, of which the table is
    /// lost: between them, and in front of a table of as many rows, it has zeros. Damage leaves zeros too, so the row
    /// of the last frame, with which that table begins, is to be seen there.
    pub(crate) fn accounts_for(bytes: &[u8], rows: &[Row]) -> bool {
        let table = bytes.len().saturating_sub(table_len(rows.len()));
        let mut at = cluster::HEADER;
        let mut is_zero = |until: usize, next: usize| {
            // The padding of the only frame may be cut where its row begins.
            let from = std::mem::replace(&mut at, next).min(until);
            let between = bytes.get(from..until).unwrap_or(&[1]);
            between.iter().all(|byte| *byte == 0)
        };
        rows.iter().all(|row| is_zero(row.offset as usize, (row.offset + row.len) as usize))
            && is_zero(table, table)
            && rows.last().is_some_and(|last| last.is_seen_in(&bytes[table..]))
    }

    /// The intact frames, with this mark if one is given, that begin in a range of these bytes; they begin at `base` in
    /// their cluster.
    pub(crate) fn frames_in(&self, bytes: &[u8], range: Range<usize>, base: usize, mark: Option<u64>) -> Vec<Row> {
        let mut rows = Vec::new();
        let mut at = range.start;
        while at < range.end {
            match Header::verify(&bytes[at..]) {
                Ok(header) if mark.is_none_or(|mark| header.mark == mark) => {
                    let len = header.frame_len();
                    rows.push(Row {
                        hash: self.hasher.frame(header.kind, header.key(&bytes[at..])).short(),
                        generation: header.generation,
                        offset: (base + at) as u32,
                        len: len as u32,
                        kind: header.kind,
                    });
                    at += len;
                }
                _ => at += GRAIN,
            }
        }
        rows
    }
}
