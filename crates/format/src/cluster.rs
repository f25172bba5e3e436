//! The cluster: the unit of writing.
//!
//! ```text
//! | header 64 | frame | frame | ...      | free      ... | row n-1 | ... | row 0 | trailer 64 |
//! 0           64                          used                                          cluster size
//! ```
//!
//! A cluster is written whole at its seal, or from the front in block-sized pieces when durability asks
//! for it sooner. Header and frames then stand on their own; the table of rows is written last.
//!
//! Invariants: sequence numbers are never used twice in a store's life; a trailer with the header's
//! sequence number means that the cluster is sealed and its rows name every frame in it.

use crate::{
    Corrupt,
    codec::{check, crc, put, seal, u16_at, u32_at, u64_at},
    frame::{GRAIN, Kind},
};

/// Bytes of the header, and offset of the first frame.
pub const HEADER: usize = 64;
/// Bytes of the trailer.
pub const TRAILER: usize = 64;
/// Bytes of one row of the table.
pub const ROW: usize = 24;

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"PFcl");
const TRAILER_MAGIC: u32 = u32::from_le_bytes(*b"PFtr");

/// What a cluster holds. Numbers are frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Content {
    /// Object frames.
    Objects = 1,
    /// A part of a checkpoint.
    CheckpointPart = 2,
    /// The directory of a checkpoint.
    CheckpointDirectory = 3,
}

/// The first bytes of a cluster.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// The use of this cluster; grows with every cluster opened.
    pub seq: u64,
    /// The store's identity, so that a misdirected write of another store is not taken for ours.
    pub store: u64,
    /// This cluster's number, so that a misdirected write of our own is found out.
    pub id: u32,
    /// What it holds.
    pub content: Content,
    /// Placement class: which server or group filled it. A hint for the reader.
    pub class: u16,
}

impl Header {
    /// Writes the header's [`HEADER`] bytes.
    pub fn encode(&self, out: &mut [u8]) {
        let out = &mut out[..HEADER];
        out.fill(0);
        put(out, 8, self.seq.to_le_bytes());
        put(out, 16, self.store.to_le_bytes());
        put(out, 24, self.id.to_le_bytes());
        out[28] = self.content as u8;
        put(out, 30, self.class.to_le_bytes());
        seal(out, HEADER_MAGIC);
    }

    /// Reads and verifies a header.
    ///
    /// # Errors
    /// [`Corrupt`] for anything but an intact header.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let bytes = bytes.get(..HEADER).ok_or(Corrupt::Short)?;
        check(bytes, HEADER_MAGIC)?;
        Ok(Self {
            seq: u64_at(bytes, 8),
            store: u64_at(bytes, 16),
            id: u32_at(bytes, 24),
            content: match bytes[28] {
                1 => Content::Objects,
                2 => Content::CheckpointPart,
                3 => Content::CheckpointDirectory,
                _ => return Err(Corrupt::Field("content")),
            },
            class: u16_at(bytes, 30),
        })
    }
}

/// One frame's entry in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// 64-bit hash of the key.
    pub hash: u64,
    /// Generation of the frame.
    pub generation: u64,
    /// Offset of the frame in the cluster, in bytes.
    pub offset: u32,
    /// Bytes of the frame.
    pub len: u32,
    /// What it holds.
    pub kind: Kind,
}

impl Row {
    /// Bytes of a cluster that the frame takes, this row among them.
    pub fn taken(&self) -> u64 {
        u64::from(self.len) + ROW as u64
    }

    /// Whether a table that begins with these bytes begins with this row, though part of it may be damaged.
    pub fn is_seen_in(&self, table: &[u8]) -> bool {
        table.len() >= ROW && (u64_at(table, 0) == self.hash || u64_at(table, 8) == self.generation)
    }

    fn encode(&self, out: &mut [u8]) {
        put(out, 0, self.hash.to_le_bytes());
        put(out, 8, self.generation.to_le_bytes());
        put(out, 16, ((self.offset as usize / GRAIN) as u16).to_le_bytes());
        out[18] = self.kind as u8;
        out[19] = 0;
        put(out, 20, self.len.to_le_bytes());
    }

    fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        Ok(Self {
            hash: u64_at(bytes, 0),
            generation: u64_at(bytes, 8),
            offset: u32::from(u16_at(bytes, 16)) * GRAIN as u32,
            len: u32_at(bytes, 20),
            kind: Kind::from_u8(bytes[18])?,
        })
    }
}

/// Bytes that the table of `rows` rows and the trailer take at the end of a cluster.
pub const fn table_len(rows: usize) -> usize {
    rows * ROW + TRAILER
}

/// The last bytes of a sealed cluster, beside the table's own length and checksum.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// The cluster's sequence number, as in its header.
    pub seq: u64,
    /// Grows with every cluster sealed.
    pub seal: u64,
    /// Every cluster with a smaller or equal seal number was durable when this one was sealed:
    /// recovery need not verify those frame by frame.
    pub durable: u64,
    /// Store, low half, as in the header; 0 in trailers that do not say.
    pub store: u64,
    /// Number of the cluster, as in the header.
    pub id: u32,
    /// Log2 of the bytes of the pages it is divided into, 0 if it is not. A hint for the reader.
    pub page: u8,
}

/// Writes the table and trailer at the end of `cluster`, which is a whole cluster's bytes.
pub fn encode_table(cluster: &mut [u8], last: Trailer, rows: &[Row]) {
    let start = cluster.len() - table_len(rows.len());
    let table = &mut cluster[start..];
    let trailer = rows.len() * ROW;
    for (i, row) in rows.iter().rev().enumerate() {
        row.encode(&mut table[i * ROW..(i + 1) * ROW]);
    }
    table[trailer..].fill(0);
    put(table, trailer + 8, last.seq.to_le_bytes());
    put(table, trailer + 24, last.seal.to_le_bytes());
    put(table, trailer + 32, last.durable.to_le_bytes());
    put(table, trailer + 40, last.store.to_le_bytes());
    put(table, trailer + 48, last.id.to_le_bytes());
    table[trailer + 52] = last.page;
    put(table, trailer + 16, (rows.len() as u32).to_le_bytes());
    put(table, trailer + 20, crc(&table[..trailer]).to_le_bytes());
    seal(&mut table[trailer..], TRAILER_MAGIC);
}

/// What the last bytes of a cluster say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Table {
    /// The rows, in the order of their frames.
    Rows(Trailer, Vec<Row>),
    /// The trailer is intact but the table is longer than the bytes given: read this many from the end.
    Longer(usize),
}

/// Reads a table from the last bytes of a cluster.
///
/// # Errors
/// [`Corrupt`] for anything but an intact trailer and table.
pub fn decode_table(tail: &[u8]) -> Result<Table, Corrupt> {
    let (last, count) = decode_trailer(tail)?;
    let trailer_at = tail.len() - TRAILER;
    let trailer = &tail[trailer_at..];
    let need = table_len(count);
    let Some(start) = tail.len().checked_sub(need) else { return Ok(Table::Longer(need)) };
    let rows = &tail[start..trailer_at];
    if crc(rows) != u32_at(trailer, 20) {
        return Err(Corrupt::Checksum);
    }
    let rows = rows.chunks_exact(ROW).rev().map(Row::decode).collect::<Result<_, _>>()?;
    Ok(Table::Rows(last, rows))
}

/// The row of the frame at this offset, in the rows of a table that was verified.
pub fn row_at(rows: &[u8], offset: u32) -> Option<Row> {
    let (rows, _) = rows.as_chunks::<ROW>();
    let start = |row: &[u8; ROW]| u32::from(u16_at(row, 16)) * GRAIN as u32;
    // The last frame's row comes first.
    let at = rows.binary_search_by(|row| offset.cmp(&start(row))).ok()?;
    Row::decode(&rows[at]).ok()
}

/// Reads the trailer at the end of `tail`, and how many rows lie before it.
///
/// # Errors
/// [`Corrupt`] for anything but an intact trailer.
pub fn decode_trailer(tail: &[u8]) -> Result<(Trailer, usize), Corrupt> {
    let trailer_at = tail.len().checked_sub(TRAILER).ok_or(Corrupt::Short)?;
    let trailer = &tail[trailer_at..];
    check(trailer, TRAILER_MAGIC)?;
    let count = u32_at(trailer, 16) as usize;
    if count > crate::zone::CLUSTER_MAX as usize / ROW {
        return Err(Corrupt::Field("rows"));
    }
    let last = Trailer {
        seq: u64_at(trailer, 8),
        seal: u64_at(trailer, 24),
        durable: u64_at(trailer, 32),
        store: u64_at(trailer, 40),
        id: u32_at(trailer, 48),
        page: trailer[52],
    };
    Ok((last, count))
}
