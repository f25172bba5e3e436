//! Journal pages: deletes, reservations, places and group settings, made durable between checkpoints.
//!
//! ```text
//! 0      4    8         16     24    26     28    32
//! magic  crc  page seq  store  used  batch  zero  records ...
//! ```
//!
//! `batch` is the page's place among the pages written together, from 0. A hole in the sequence that is
//! followed by a page of the same batch is a write that a crash cut short; any other hole is damage.
//!
//! Invariants: a page is written once per turn of the ring and never rewritten in place, so a torn
//! write cannot harm an older record; the page at ring position `seq % pages` is the newest with it.

use crate::{
    BLOCK, Corrupt,
    codec::{check, put, seal, u16_at, u32_at, u64_at, u128_at},
};

/// Bytes of a page's header.
pub const HEADER: usize = 32;

const MAGIC: u32 = u32::from_le_bytes(*b"PFjl");

/// One fact to remember. Tags are frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Record {
    /// Every version of this key up to this generation is gone.
    Delete {
        /// 128-bit hash of the key.
        hash: u128,
        /// Generation of the delete.
        generation: u64,
    },
    /// This cluster may have been written since: recovery looks at it, and believes only this use of it.
    Reserve {
        /// Number of the cluster.
        cluster: u32,
        /// Sequence number of the use it was granted for.
        seq: u64,
    },
    /// Settings of a group changed.
    Group(Group),
    /// An object was written in place.
    Placed(Placed),
    /// A pinned record was set, and its bytes follow, or it was taken out.
    Pinned(Pinned),
    /// Bytes of the pinned record that was named last.
    PinnedBytes(PinnedBytes),
}

/// What a page says of a record that the application pinned. Its bytes are in the [`PinnedBytes`] that follow it
/// without another record between; if not all of them are there, a crash cut the commit short, and it counts for
/// nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pinned {
    /// Its name.
    pub name: u128,
    /// Generation of this change: the larger, the later.
    pub generation: u64,
    /// Bytes of it; `None`: it was taken out.
    pub len: Option<u32>,
}

/// Up to [`PINNED_BYTES`] bytes of a pinned record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PinnedBytes {
    len: u8,
    bytes: [u8; PINNED_BYTES],
}

/// Most bytes of a pinned record in one record of the journal, so that it is no longer than the longest other.
pub const PINNED_BYTES: usize = 31;

/// As the length of a pinned record: it was taken out.
const TAKEN_OUT: u32 = u32::MAX;

impl PinnedBytes {
    /// The records that carry all of `bytes`, in order.
    pub fn all(bytes: &[u8]) -> impl Iterator<Item = Self> {
        bytes.chunks(PINNED_BYTES).map(|chunk| {
            let mut piece = Self { len: chunk.len() as u8, bytes: [0; PINNED_BYTES] };
            piece.bytes[..chunk.len()].copy_from_slice(chunk);
            piece
        })
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes[..usize::from(self.len)]
    }
}

/// Where an object lies that has its place to itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placed {
    /// 128-bit hash of its key.
    pub hash: u128,
    /// Its generation.
    pub generation: u64,
    /// First slot, counted from the start of the device.
    pub slot: u32,
    /// Slots it takes.
    pub slots: u32,
}

/// A group's settings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    /// Its number.
    pub id: u32,
    /// 0 neither, 1 loved, 2 hated.
    pub priority: u8,
    /// Longest time its puts may stay volatile, in milliseconds; 0 is the store's own bound, `u32::MAX` never
    /// synced for its sake.
    pub interval: u32,
    /// Log2 of the bytes of its pages; 0: its clusters are not divided.
    pub page: u8,
}

const TAG_DELETE: u8 = 1;
const TAG_RESERVE: u8 = 2;
const TAG_GROUP: u8 = 3;
const TAG_PLACED: u8 = 4;
/// No longer written; read as a delete.
const TAG_DELETE_EVERYWHERE: u8 = 5;
const TAG_GROUP_OF_PAGES: u8 = 6;
const TAG_PINNED: u8 = 7;
const TAG_PINNED_BYTES: u8 = 8;

/// At least this many records fit in a page, whatever they are.
pub const RECORDS_MIN: usize = (BLOCK - HEADER) / 33;

impl Record {
    fn len(&self) -> usize {
        match self {
            Self::Delete { .. } => 25,
            Self::Reserve { .. } => 13,
            Self::Group(group) => 10 + usize::from(group.page != 0),
            Self::Placed(_) => 33,
            Self::Pinned(_) => 29,
            Self::PinnedBytes(piece) => 2 + usize::from(piece.len),
        }
    }

    fn encode(&self, out: &mut [u8]) {
        match *self {
            Self::Delete { hash, generation } => {
                out[0] = TAG_DELETE;
                put(out, 1, hash.to_le_bytes());
                put(out, 17, generation.to_le_bytes());
            }
            Self::Reserve { cluster, seq } => {
                out[0] = TAG_RESERVE;
                put(out, 1, cluster.to_le_bytes());
                put(out, 5, seq.to_le_bytes());
            }
            Self::Group(group) => {
                out[0] = if group.page == 0 { TAG_GROUP } else { TAG_GROUP_OF_PAGES };
                put(out, 1, group.id.to_le_bytes());
                out[5] = group.priority;
                put(out, 6, group.interval.to_le_bytes());
                if group.page != 0 {
                    out[10] = group.page;
                }
            }
            Self::Placed(placed) => {
                out[0] = TAG_PLACED;
                put(out, 1, placed.hash.to_le_bytes());
                put(out, 17, placed.generation.to_le_bytes());
                put(out, 25, placed.slot.to_le_bytes());
                put(out, 29, placed.slots.to_le_bytes());
            }
            Self::Pinned(pinned) => {
                out[0] = TAG_PINNED;
                put(out, 1, pinned.name.to_le_bytes());
                put(out, 17, pinned.generation.to_le_bytes());
                put(out, 25, pinned.len.unwrap_or(TAKEN_OUT).to_le_bytes());
            }
            Self::PinnedBytes(ref piece) => {
                (out[0], out[1]) = (TAG_PINNED_BYTES, piece.len);
                out[2..][..piece.bytes().len()].copy_from_slice(piece.bytes());
            }
        }
    }

    fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let need = match bytes.first() {
            Some(&(TAG_DELETE | TAG_DELETE_EVERYWHERE)) => 25,
            Some(&TAG_RESERVE) => 13,
            Some(&TAG_GROUP) => 10,
            Some(&TAG_GROUP_OF_PAGES) => 11,
            Some(&TAG_PLACED) => 33,
            Some(&TAG_PINNED) => 29,
            Some(&TAG_PINNED_BYTES) => match bytes.get(1) {
                Some(len) if usize::from(*len) <= PINNED_BYTES => 2 + usize::from(*len),
                Some(_) => return Err(Corrupt::Field("pinned bytes")),
                None => return Err(Corrupt::Short),
            },
            Some(_) => return Err(Corrupt::Field("record tag")),
            None => return Err(Corrupt::Short),
        };
        if bytes.len() < need {
            return Err(Corrupt::Short);
        }
        Ok(match bytes[0] {
            TAG_DELETE | TAG_DELETE_EVERYWHERE => {
                Self::Delete { hash: u128_at(bytes, 1), generation: u64_at(bytes, 17) }
            }
            TAG_RESERVE => Self::Reserve { cluster: u32_at(bytes, 1), seq: u64_at(bytes, 5) },
            TAG_PLACED => Self::Placed(Placed {
                hash: u128_at(bytes, 1),
                generation: u64_at(bytes, 17),
                slot: u32_at(bytes, 25),
                slots: u32_at(bytes, 29),
            }),
            TAG_PINNED => Self::Pinned(Pinned {
                name: u128_at(bytes, 1),
                generation: u64_at(bytes, 17),
                len: Some(u32_at(bytes, 25)).filter(|len| *len != TAKEN_OUT),
            }),
            TAG_PINNED_BYTES => {
                let mut piece = PinnedBytes { len: bytes[1], bytes: [0; PINNED_BYTES] };
                piece.bytes[..need - 2].copy_from_slice(&bytes[2..need]);
                Self::PinnedBytes(piece)
            }
            tag => Self::Group(Group {
                id: u32_at(bytes, 1),
                priority: bytes[5],
                interval: u32_at(bytes, 6),
                page: if tag == TAG_GROUP_OF_PAGES { bytes[10] } else { 0 },
            }),
        })
    }
}

/// Fills one page from the front of `records`; returns how many fitted.
pub fn encode_page(page: &mut [u8], seq: u64, batch: u16, store: u64, records: &[Record]) -> usize {
    let page = &mut page[..BLOCK];
    page.fill(0);
    let mut at = HEADER;
    let mut taken = 0;
    for record in records {
        if at + record.len() > BLOCK {
            break;
        }
        record.encode(&mut page[at..]);
        at += record.len();
        taken += 1;
    }
    put(page, 8, seq.to_le_bytes());
    put(page, 16, store.to_le_bytes());
    put(page, 24, (at as u16).to_le_bytes());
    put(page, 26, batch.to_le_bytes());
    seal(page, MAGIC);
    taken
}

/// A decoded page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// Its sequence number.
    pub seq: u64,
    /// Its place among the pages written together.
    pub batch: u16,
    /// Identity of the store that wrote it.
    pub store: u64,
    /// Its records, in order.
    pub records: Vec<Record>,
}

/// Reads one page.
///
/// # Errors
/// [`Corrupt`] for anything but an intact page.
pub fn decode_page(page: &[u8]) -> Result<Page, Corrupt> {
    let page = page.get(..BLOCK).ok_or(Corrupt::Short)?;
    check(page, MAGIC)?;
    let used = usize::from(u16_at(page, 24));
    let mut rest = page.get(HEADER..used).ok_or(Corrupt::Field("used"))?;
    let mut records = Vec::new();
    while !rest.is_empty() {
        let record = Record::decode(rest)?;
        rest = &rest[record.len()..];
        records.push(record);
    }
    Ok(Page { seq: u64_at(page, 8), batch: u16_at(page, 26), store: u64_at(page, 16), records })
}
