//! What is in a cluster on the device: by its table if it was sealed, frame by frame if a crash came first.

use picaflor_device::AlignedBuf;
use picaflor_format::{
    BLOCK,
    cluster::{self, Content, Row, Table, Trailer, decode_table},
    frame::Header,
};

use crate::{Error, Result, stats::add, volume::Volume};

/// The contents of one use of a cluster.
pub(crate) enum Contents {
    /// Its table, which vouches for places and generations, not for the frames' bytes.
    Sealed(Trailer, Vec<Row>),
    /// The frames that verify, from the front: it has no table.
    Unsealed(Vec<Row>),
    /// No objects of this store.
    Other,
}

impl Volume {
    /// Reads part of a cluster.
    ///
    /// # Errors
    /// [`Error::Io`] with the place.
    pub(crate) fn read_at(&self, cluster: u32, offset: usize, len: usize) -> Result<AlignedBuf> {
        let start = self.map.cluster_start(cluster) + offset as u64;
        let mut buf = self.shared.pool.take(len);
        add(&self.shared.counters.device_reads, 1);
        add(&self.shared.counters.device_read, len as u64);
        self.device
            .read(start, &mut buf)
            .map_err(|error| Error::io(format!("{}: reading {len} bytes at {start}", self.place), error))?;
        Ok(buf)
    }

    /// All of a cluster, if it can be read.
    pub(crate) fn read_cluster(&self, cluster: u32) -> Option<AlignedBuf> {
        self.read_at(cluster, 0, self.cluster_len()).ok()
    }

    /// The rows of a cluster, whichever way they are found; none if it cannot be read, and then its
    /// entries are found out one by one.
    pub(crate) fn read_rows(&self, cluster: u32) -> Vec<Row> {
        match self.contents(cluster, None) {
            Ok(Contents::Sealed(_, rows) | Contents::Unsealed(rows)) => rows,
            Ok(Contents::Other) | Err(_) => Vec::new(),
        }
    }

    /// What a cluster holds: two small reads if it is sealed, all of it if not. With `seq`, only that use of it
    /// counts: a write that a crash kept from the device leaves the use before.
    ///
    /// # Errors
    /// [`Error::Io`] with the place.
    pub(crate) fn contents(&self, cluster: u32, seq: Option<u64>) -> Result<Contents> {
        let Ok(header) = cluster::Header::decode(&self.read_at(cluster, 0, BLOCK)?) else {
            return Ok(Contents::Other);
        };
        if header.store != self.store_id() || header.id != cluster || header.content != Content::Objects {
            return Ok(Contents::Other);
        }
        if seq.is_some_and(|seq| seq != header.seq) {
            return Ok(Contents::Other);
        }
        let size = self.cluster_len();
        let mut tail = BLOCK;
        loop {
            match decode_table(&self.read_at(cluster, size - tail, tail)?) {
                // A trailer of an earlier use stays until the cluster is sealed anew.
                Ok(Table::Rows(last, rows)) if last.seq == header.seq => return Ok(Contents::Sealed(last, rows)),
                Ok(Table::Longer(need)) if need > tail && need <= size => {
                    tail = need.next_multiple_of(BLOCK).min(size);
                }
                _ => {
                    let bytes = self.read_at(cluster, 0, size)?;
                    return Ok(Contents::Unsealed(self.frames(&bytes, header.seq)));
                }
            }
        }
    }

    /// The intact frames of one use of an unsealed cluster, in order. A gap up to the next block is where
    /// a commit padded; anything else that is no frame is the end.
    fn frames(&self, bytes: &[u8], seq: u64) -> Vec<Row> {
        let mark = self.hasher.mark(seq);
        let mut rows = Vec::new();
        let mut at = cluster::HEADER;
        while at < bytes.len() {
            match Header::verify(&bytes[at..]) {
                Ok(header) if header.mark == mark => {
                    let len = header.frame_len();
                    rows.push(Row {
                        hash: self.hasher.frame(header.kind, header.key(&bytes[at..])).short(),
                        generation: header.generation,
                        offset: at as u32,
                        len: len as u32,
                        kind: header.kind,
                    });
                    at += len;
                }
                _ if !at.is_multiple_of(BLOCK) => at = at.next_multiple_of(BLOCK),
                _ => break,
            }
        }
        rows
    }
}
