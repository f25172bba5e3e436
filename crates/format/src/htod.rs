//! The hash table on disk: table headers, index pages and entries.
//!
//! ```text
//! header:  seal 8 | seq 8 | table 4 | epoch 4 | pages 8 | keys 8 | next table 4 | extents 4 | extent words, 8 bytes each
//! page:    8 sectors of 512 bytes
//! sector:  seal 8 | table 4 | number 4 | epoch 4 | zero 12 | 30 slots
//! slot:    place of the block 8 | hash and flag 5 | check 3
//! entry:   magic 4 | table 4 | generation 8 | key length 4 | key | value
//! ```
//!
//! Invariants: a sector is whole by itself, and a key lives in one sector at a time with all of its versions, so no
//! tear between sectors separates them; a slot whose place is 0 is empty; blocks carry checksums of their own, so an
//! entry has none.

use crate::{
    BLOCK, Corrupt,
    codec::{check, put, seal, u32_at, u64_at},
};

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"PFht");
const SECTOR_MAGIC: u32 = u32::from_le_bytes(*b"PFhs");
const ENTRY_MAGIC: u32 = u32::from_le_bytes(*b"PFhe");

/// What the first root of a block allocator holds where hash tables live on it: `PFhtod` and the version 1.
pub const ROOT: u64 = u64::from_le_bytes(*b"PFhtod\x01\0");

/// Bytes that are written at once or not at all.
pub const SECTOR: usize = 512;
/// Sectors of an index page.
pub const SECTORS: usize = BLOCK / SECTOR;
/// Slots of a sector.
pub const SLOTS: usize = (SECTOR - SECTOR_HEADER) / SLOT;
/// Slots of a page.
pub const PAGE_SLOTS: usize = SLOTS * SECTORS;

const SECTOR_HEADER: usize = 32;
const SLOT: usize = 16;
const EXTENTS_AT: usize = 48;

/// Bits of a key's hash that a slot keeps.
pub const HASH_BITS: u32 = 39;
const HASH_MASK: u64 = (1 << HASH_BITS) - 1;
/// Most extents that a header has room for.
pub const EXTENTS: usize = 256;
/// Bytes before the key of an entry.
pub const ENTRY_HEADER: usize = 20;

/// Where a key's entry lies, as an index page says it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Slot {
    /// The block's place as one word; never 0.
    pub place: u64,
    /// The low [`HASH_BITS`] bits of the key's hash.
    pub hash: u64,
    /// Another slot of the sector replaces this one, which counts only if that one's block did not reach the device.
    pub superseded: bool,
    /// 24 bits made of the entry's generation.
    pub check: u32,
}

impl Slot {
    /// A slot for the entry of this generation at `place`.
    #[must_use]
    pub const fn new(place: u64, hash: u64, generation: u64) -> Self {
        Self { place, hash: hash & HASH_MASK, superseded: false, check: check_of(generation) }
    }

    /// Whether an entry of this generation may be the one that is meant.
    #[must_use]
    pub const fn is_of(&self, generation: u64) -> bool {
        self.check == check_of(generation)
    }
}

/// All bits of a generation have a part in it: those of the epoch, too.
const fn check_of(generation: u64) -> u32 {
    (generation.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u32
}

/// The part of a hash that slots keep.
#[must_use]
pub const fn slot_hash(hash: u64) -> u64 {
    hash & HASH_MASK
}

fn slot_at(sector: usize, index: usize) -> usize {
    sector * SECTOR + SECTOR_HEADER + index * SLOT
}

/// The slot at `index` of a sector of a page; `None` if it is empty.
///
/// # Panics
/// If `page` is shorter than a page, or `sector` or `index` out of range.
#[must_use]
pub fn slot(page: &[u8], sector: usize, index: usize) -> Option<Slot> {
    let at = slot_at(sector, index);
    let place = u64_at(page, at);
    let rest = u64_at(page, at + 8);
    let flagged = rest & (HASH_MASK << 1 | 1);
    let check = (rest >> 40) as u32;
    (place != 0).then_some(Slot { place, hash: flagged >> 1, superseded: flagged & 1 == 1, check })
}

/// Writes the slot at `index` of a sector of a page, or empties it. The sector wants sealing afterwards.
///
/// # Panics
/// As [`slot`].
pub fn set_slot(page: &mut [u8], sector: usize, index: usize, slot: Option<Slot>) {
    let at = slot_at(sector, index);
    let (place, rest) = slot.map_or((0, 0), |slot| {
        let flagged = (slot.hash & HASH_MASK) << 1 | u64::from(slot.superseded);
        (slot.place, flagged | u64::from(slot.check) << 40)
    });
    put(page, at, place.to_le_bytes());
    put(page, at + 8, rest.to_le_bytes());
}

fn sector_number(page: u64, sector: usize) -> u32 {
    // Index pages are numbered below 2^29.
    (page * SECTORS as u64 + sector as u64) as u32
}

/// Makes a sector of a page whole: whose it is, when it was written, its checksum.
///
/// # Panics
/// As [`slot`].
pub fn seal_sector(bytes: &mut [u8], table: u32, page: u64, sector: usize, epoch: u32) {
    let record = &mut bytes[sector * SECTOR..][..SECTOR];
    put(record, 8, table.to_le_bytes());
    put(record, 12, sector_number(page, sector).to_le_bytes());
    put(record, 16, epoch.to_le_bytes());
    seal(record, SECTOR_MAGIC);
}

/// The epoch in which a sector of a page was written.
///
/// # Errors
/// [`Corrupt`] for anything but that sector of that page of that table, intact.
pub fn check_sector(bytes: &[u8], table: u32, page: u64, sector: usize) -> Result<u32, Corrupt> {
    let record = bytes.get(sector * SECTOR..(sector + 1) * SECTOR).ok_or(Corrupt::Short)?;
    check(record, SECTOR_MAGIC)?;
    if u32_at(record, 8) != table {
        return Err(Corrupt::Field("table"));
    }
    if u32_at(record, 12) != sector_number(page, sector) {
        return Err(Corrupt::Field("number"));
    }
    Ok(u32_at(record, 16))
}

/// What is known of a table when it is opened.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Header {
    /// One more with every header written; of two copies the intact one with the larger counts.
    pub seq: u64,
    /// The table's number, never used for another.
    pub table: u32,
    /// The epoch in which pages from `pages` on were made, if there are any.
    pub epoch: u32,
    /// Index pages that are certainly there.
    pub pages: u64,
    /// Keys, when this was written.
    pub keys: u64,
    /// In the header of the list of tables: the number of the next table.
    pub next_table: u32,
    /// The areas of the index, by extent number.
    pub extents: Vec<u64>,
}

impl Header {
    /// The copy that this header is written to.
    #[must_use]
    pub fn copy(&self) -> u64 {
        self.seq % 2
    }

    /// One copy, [`BLOCK`] bytes.
    ///
    /// # Panics
    /// If there are more than [`EXTENTS`] extents.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.extents.len() <= EXTENTS, "{} extents", self.extents.len());
        let mut out = vec![0; BLOCK];
        put(&mut out, 8, self.seq.to_le_bytes());
        put(&mut out, 16, self.table.to_le_bytes());
        put(&mut out, 20, self.epoch.to_le_bytes());
        put(&mut out, 24, self.pages.to_le_bytes());
        put(&mut out, 32, self.keys.to_le_bytes());
        put(&mut out, 40, self.next_table.to_le_bytes());
        put(&mut out, 44, (self.extents.len() as u32).to_le_bytes());
        for (index, word) in self.extents.iter().enumerate() {
            put(&mut out, EXTENTS_AT + index * 8, word.to_le_bytes());
        }
        seal(&mut out, HEADER_MAGIC);
        out
    }

    /// Reads a copy.
    ///
    /// # Errors
    /// [`Corrupt`] for anything but an intact header.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let bytes = bytes.get(..BLOCK).ok_or(Corrupt::Short)?;
        check(bytes, HEADER_MAGIC)?;
        let count = u32_at(bytes, 44) as usize;
        if count > EXTENTS {
            return Err(Corrupt::Field("extents"));
        }
        Ok(Self {
            seq: u64_at(bytes, 8),
            table: u32_at(bytes, 16),
            epoch: u32_at(bytes, 20),
            pages: u64_at(bytes, 24),
            keys: u64_at(bytes, 32),
            next_table: u32_at(bytes, 40),
            extents: (0..count).map(|index| u64_at(bytes, EXTENTS_AT + index * 8)).collect(),
        })
    }
}

/// A key and its value as they lie in a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The table's number.
    pub table: u32,
    /// The number of the put; the larger is the newer.
    pub generation: u64,
    /// The key.
    pub key: &'a [u8],
    /// The value.
    pub value: &'a [u8],
}

impl<'a> Entry<'a> {
    /// The entry's bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ENTRY_HEADER + self.key.len() + self.value.len());
        out.extend_from_slice(&ENTRY_MAGIC.to_le_bytes());
        out.extend_from_slice(&self.table.to_le_bytes());
        out.extend_from_slice(&self.generation.to_le_bytes());
        out.extend_from_slice(&(self.key.len() as u32).to_le_bytes());
        out.extend_from_slice(self.key);
        out.extend_from_slice(self.value);
        out
    }

    /// Reads an entry; its block's checksum has vouched for the bytes.
    ///
    /// # Errors
    /// [`Corrupt`] if the block holds something else.
    pub fn decode(bytes: &'a [u8]) -> Result<Self, Corrupt> {
        if bytes.len() < ENTRY_HEADER {
            return Err(Corrupt::Short);
        }
        if u32_at(bytes, 0) != ENTRY_MAGIC {
            return Err(Corrupt::Magic);
        }
        let rest = &bytes[ENTRY_HEADER..];
        let (key, value) = rest.split_at_checked(u32_at(bytes, 16) as usize).ok_or(Corrupt::Short)?;
        Ok(Self { table: u32_at(bytes, 4), generation: u64_at(bytes, 8), key, value })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_keep_what_they_are_given() {
        let mut page = vec![0; BLOCK];
        assert_eq!((SLOTS, PAGE_SLOTS), (30, 240));
        let mut slot_in = Slot::new(u64::MAX, u64::MAX, u64::MAX);
        slot_in.superseded = true;
        set_slot(&mut page, 7, SLOTS - 1, Some(slot_in));
        assert_eq!(slot(&page, 7, SLOTS - 1), Some(slot_in));
        assert_eq!(slot(&page, 7, SLOTS - 2), None);
        assert!(page[..BLOCK - SLOT].iter().all(|&byte| byte == 0), "nothing but the last slot");
        let other = Slot::new(5, 0x12_3456_789a, 0x0100_0007);
        set_slot(&mut page, 0, 0, Some(other));
        assert_eq!(slot(&page, 0, 0), Some(other));
        assert!(other.is_of(0x0100_0007) && !other.is_of(7) && !other.is_of(0x0200_0007));
        set_slot(&mut page, 0, 0, None);
        assert_eq!(slot(&page, 0, 0), None);
    }

    #[test]
    fn a_sector_is_believed_in_its_own_place_only() {
        let mut page = vec![0; BLOCK];
        seal_sector(&mut page, 3, 9, 2, 77);
        assert_eq!(check_sector(&page, 3, 9, 2), Ok(77));
        assert_eq!(check_sector(&page, 4, 9, 2), Err(Corrupt::Field("table")));
        assert_eq!(check_sector(&page, 3, 8, 2), Err(Corrupt::Field("number")));
        assert_eq!(check_sector(&page, 3, 9, 1), Err(Corrupt::Magic));
        page[2 * SECTOR + 100] ^= 1;
        assert_eq!(check_sector(&page, 3, 9, 2), Err(Corrupt::Checksum));
        assert_eq!(check_sector(&page[..1024], 3, 9, 2), Err(Corrupt::Short));
    }

    #[test]
    fn headers_and_entries_come_back() {
        let header =
            Header { seq: 5, table: 1, epoch: 2, pages: 3, keys: 4, next_table: 9, extents: (1..=256).collect() };
        let mut bytes = header.encode();
        assert_eq!(Header::decode(&bytes).as_ref(), Ok(&header));
        bytes[4000] ^= 1;
        assert_eq!(Header::decode(&bytes), Err(Corrupt::Checksum));
        let entry = Entry { table: 1, generation: 7, key: b"key", value: b"value" };
        let mut bytes = entry.encode();
        assert_eq!(Entry::decode(&bytes), Ok(entry));
        bytes[17] = 200;
        assert_eq!(Entry::decode(&bytes), Err(Corrupt::Short));
        assert_eq!(Entry::decode(b"PFhe"), Err(Corrupt::Short));
    }
}
