//! The block allocator's bytes: the header of a block, the two homes, the image of a clean shutdown.
//!
//! A header fits in the first 64 bytes of a sector, and a sector is written at once, so a header is old or new and
//! never half. Places and sizes are in grains; grain 0 begins at byte 0 of the device. Layout and the argument for
//! recovery: `docs/FORMAT.md`, "Blocks".

use crate::{
    BLOCK, Corrupt,
    codec::{check, crc, put, seal, u16_at, u32_at, u64_at},
};

const HEADER_MAGIC: u32 = u32::from_le_bytes(*b"PFbh");
const HOME_MAGIC: u32 = u32::from_le_bytes(*b"PFbs");
const IMAGE_MAGIC: u32 = u32::from_le_bytes(*b"PFbi");

/// Version of these records.
pub const VERSION: u32 = 1;
/// Bytes of a header.
pub const HEADER: usize = 64;
/// Bytes of a home; the device holds two, a slot each.
pub const HOME: usize = BLOCK;
/// Words that the layer above may keep in the home.
pub const ROOTS: usize = 8;
/// Most grains of a block with a list of its own size.
pub const QUICK_MAX: u32 = 1 << 16;
/// Most lists whose heads a home can hold.
pub const HEADS_MAX: usize = 440;
/// Runs of sequence numbers that a home remembers as void.
pub const VOIDS: usize = 12;
/// Bytes before the entries of an image.
pub const IMAGE_HEADER: usize = 64;
/// Bytes of a free block in an image.
pub const IMAGE_ENTRY: usize = 32;

/// CRC-32C of a block's bytes.
#[must_use]
pub fn checksum(bytes: &[u8]) -> u32 {
    crc(bytes)
}

/// Whether a block is in use: the paper's allocation status.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Status {
    /// Allocated.
    Allocated,
    /// To be had.
    Free,
    /// Part of a larger free block that begins before it.
    Dead,
}

/// The code bytes of a header: they depend on the allocator's salt, the place and the status, so that what another
/// program, another allocator or another place left there is not taken for a header.
fn code(salt: u64, at: u64, status: Status) -> u64 {
    let number = match status {
        Status::Allocated => 1,
        Status::Free => 2,
        Status::Dead => 3,
    };
    let mut z = salt ^ at.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (number << 62);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// What a header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Whether the block is in use.
    pub status: Status,
    /// Grain at which the block begins.
    pub at: u64,
    /// Grains of the block, not 0.
    pub size: u32,
    /// Grows with every header written.
    pub seq: u64,
    /// Grains behind this block that are free, unless a header newer than `rest_seq` stands there.
    pub rest: u32,
    /// When that was said.
    pub rest_seq: u64,
    /// Bytes asked for.
    pub len: u32,
    /// CRC-32C of them.
    pub sum: u32,
    /// [`Header::AREA`], [`Header::UNWRITTEN`].
    pub flags: u16,
    /// The persistent list on which the block stands; [`Header::NO_LIST`] for none.
    pub list: u16,
    /// The next block of that list, in grains; 0 for none.
    pub next: u64,
}

impl Header {
    /// Flag: the bytes are the layer above's own affair, written in parts, without a checksum here.
    pub const AREA: u16 = 1;
    /// Flag: allocated, and never written.
    pub const UNWRITTEN: u16 = 2;
    /// On no list.
    pub const NO_LIST: u16 = u16::MAX;

    /// Writes [`HEADER`] bytes.
    pub fn encode(&self, out: &mut [u8], salt: u64) {
        let out = &mut out[..HEADER];
        let tag = if self.status == Status::Allocated { i64::from(self.size) } else { -i64::from(self.size) };
        put(out, 8, code(salt, self.at, self.status).to_le_bytes());
        put(out, 16, tag.to_le_bytes());
        put(out, 24, self.seq.to_le_bytes());
        put(out, 32, self.rest_seq.to_le_bytes());
        put(out, 40, self.rest.to_le_bytes());
        put(out, 44, self.sum.to_le_bytes());
        put(out, 48, self.len.to_le_bytes());
        put(out, 52, self.flags.to_le_bytes());
        put(out, 54, self.list.to_le_bytes());
        put(out, 56, self.next.to_le_bytes());
        seal(out, HEADER_MAGIC);
    }

    /// Whether these bytes are, or were before they were damaged, a header of the block at grain `at`.
    #[must_use]
    pub fn claims(bytes: &[u8], salt: u64, at: u64) -> bool {
        if bytes.len() < HEADER {
            return false;
        }
        let found = u64_at(bytes, 8);
        let codes = [Status::Allocated, Status::Free, Status::Dead].map(|status| code(salt, at, status));
        u32_at(bytes, 0) == HEADER_MAGIC || codes.contains(&found)
    }

    /// Reads the header of the block at grain `at`.
    ///
    /// # Errors
    /// [`Corrupt`] if magic, checksum, code bytes, status and size do not agree.
    pub fn decode(bytes: &[u8], salt: u64, at: u64) -> Result<Self, Corrupt> {
        let bytes = bytes.get(..HEADER).ok_or(Corrupt::Short)?;
        check(bytes, HEADER_MAGIC)?;
        let tag = u64_at(bytes, 16).cast_signed();
        let size = u32::try_from(tag.unsigned_abs()).ok().filter(|&size| size > 0).ok_or(Corrupt::Field("size"))?;
        let found = u64_at(bytes, 8);
        let status = [Status::Allocated, Status::Free, Status::Dead]
            .into_iter()
            .find(|&status| code(salt, at, status) == found)
            .ok_or(Corrupt::Field("code bytes"))?;
        if (status == Status::Allocated) != (tag > 0) {
            return Err(Corrupt::Field("allocation status"));
        }
        Ok(Self {
            status,
            at,
            size,
            seq: u64_at(bytes, 24),
            rest: u32_at(bytes, 40),
            rest_seq: u64_at(bytes, 32),
            len: u32_at(bytes, 48),
            sum: u32_at(bytes, 44),
            flags: u16_at(bytes, 52),
            list: u16_at(bytes, 54),
            next: u64_at(bytes, 56),
        })
    }
}

/// Where the image of a clean shutdown lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageRef {
    /// Grain at which it begins.
    pub at: u64,
    /// Its bytes.
    pub bytes: u64,
}

/// What the allocator knows of itself. Two copies, in two slots; the intact one of the larger generation counts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Home {
    /// Grows with every home written.
    pub generation: u64,
    /// Random: see the code bytes.
    pub salt: u64,
    /// Number of opens; the high bits of every sequence number.
    pub epoch: u64,
    /// Bytes of the device in use.
    pub capacity: u64,
    /// Bytes of a grain.
    pub grain: u32,
    /// 0 TS, 1 PL, 2 PFL.
    pub method: u8,
    /// Shortest and longest quick list, in grains.
    pub quick: (u32, u32),
    /// Grain at which the tail began, and the sequence number then: newer blocks may stand behind it.
    pub tail: (u64, u64),
    /// Every header up to this sequence number was durable when this was written.
    pub durable: u64,
    /// The image of a clean shutdown, if this is one.
    pub image: Option<ImageRef>,
    /// Words of the layer above.
    pub roots: [u64; ROOTS],
    /// Runs of sequence numbers that a crash may have left half done: (from, to), both within.
    pub voids: Vec<(u64, u64)>,
    /// First block of each persistent list, in grains; 0 for none.
    pub heads: Vec<u64>,
}

const VOIDS_AT: usize = 256;
const HEADS_AT: usize = VOIDS_AT + VOIDS * 16;

impl Home {
    /// Writes [`HOME`] bytes. Voids beyond [`VOIDS`] and heads beyond [`HEADS_MAX`] are the caller's to avoid: they are
    /// left out.
    pub fn encode(&self, out: &mut [u8]) {
        let out = &mut out[..HOME];
        out.fill(0);
        put(out, 8, VERSION.to_le_bytes());
        put(out, 12, self.grain.to_le_bytes());
        put(out, 16, self.generation.to_le_bytes());
        put(out, 24, self.salt.to_le_bytes());
        put(out, 32, self.epoch.to_le_bytes());
        put(out, 40, self.capacity.to_le_bytes());
        put(out, 48, [self.method]);
        put(out, 52, self.quick.0.to_le_bytes());
        put(out, 56, self.quick.1.to_le_bytes());
        put(out, 64, self.tail.0.to_le_bytes());
        put(out, 72, self.tail.1.to_le_bytes());
        put(out, 80, self.durable.to_le_bytes());
        let image = self.image.unwrap_or(ImageRef { at: 0, bytes: 0 });
        put(out, 88, image.at.to_le_bytes());
        put(out, 96, image.bytes.to_le_bytes());
        let voids = self.voids.len().min(VOIDS);
        let heads = self.heads.len().min(HEADS_MAX);
        put(out, 112, (voids as u32).to_le_bytes());
        put(out, 116, (heads as u32).to_le_bytes());
        for (index, root) in self.roots.iter().enumerate() {
            put(out, 128 + index * 8, root.to_le_bytes());
        }
        for (index, &(from, to)) in self.voids.iter().take(voids).enumerate() {
            put(out, VOIDS_AT + index * 16, from.to_le_bytes());
            put(out, VOIDS_AT + index * 16 + 8, to.to_le_bytes());
        }
        for (index, head) in self.heads.iter().take(heads).enumerate() {
            put(out, HEADS_AT + index * 8, head.to_le_bytes());
        }
        seal(out, HOME_MAGIC);
    }

    /// Whether these bytes are a home, intact or not.
    #[must_use]
    pub fn claims(bytes: &[u8]) -> bool {
        bytes.len() >= 4 && u32_at(bytes, 0) == HOME_MAGIC
    }

    /// Reads and verifies one home.
    ///
    /// # Errors
    /// [`Corrupt::Version`] if another version wrote it, before the checksum is judged. [`Corrupt`] for damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let bytes = bytes.get(..HOME).ok_or(Corrupt::Short)?;
        if Self::claims(bytes) && u32_at(bytes, 8) != VERSION {
            return Err(Corrupt::Version(u32_at(bytes, 8)));
        }
        check(bytes, HOME_MAGIC)?;
        let voids = u32_at(bytes, 112) as usize;
        let heads = u32_at(bytes, 116) as usize;
        let grain = u32_at(bytes, 12);
        if voids > VOIDS || heads > HEADS_MAX {
            return Err(Corrupt::Field("lists"));
        }
        if !grain.is_power_of_two() || grain < 512 {
            return Err(Corrupt::Field("grain"));
        }
        let quick = (u32_at(bytes, 52), u32_at(bytes, 56));
        if quick.0 == 0 || quick.0 > quick.1 || quick.1 > QUICK_MAX {
            return Err(Corrupt::Field("quick lists"));
        }
        if bytes[48] > 2 || bytes[49] != 0 {
            return Err(Corrupt::Field("method"));
        }
        let image = ImageRef { at: u64_at(bytes, 88), bytes: u64_at(bytes, 96) };
        let mut roots = [0; ROOTS];
        roots.iter_mut().enumerate().for_each(|(index, root)| *root = u64_at(bytes, 128 + index * 8));
        Ok(Self {
            generation: u64_at(bytes, 16),
            salt: u64_at(bytes, 24),
            epoch: u64_at(bytes, 32),
            capacity: u64_at(bytes, 40),
            grain,
            method: bytes[48],
            quick,
            tail: (u64_at(bytes, 64), u64_at(bytes, 72)),
            durable: u64_at(bytes, 80),
            image: (image.at != 0).then_some(image),
            roots,
            voids: (0..voids)
                .map(|index| (u64_at(bytes, VOIDS_AT + index * 16), u64_at(bytes, VOIDS_AT + index * 16 + 8)))
                .collect(),
            heads: (0..heads).map(|index| u64_at(bytes, HEADS_AT + index * 8)).collect(),
        })
    }
}

/// A free block of an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageFree {
    /// Grain at which it begins.
    pub at: u64,
    /// Its grains.
    pub size: u32,
    /// Whether a header stands there.
    pub explicit: bool,
    /// What that header says of lists: which, and the next block on it.
    pub link: (u16, u64),
}

/// What is in memory at a clean shutdown and not in the home.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Image {
    /// The generation of the home that names it.
    pub generation: u64,
    /// Allocated blocks, their grains, and the bytes asked for.
    pub allocated: (u64, u64, u64),
    /// Most grains that were in use or between them at any time.
    pub most: u64,
    /// Free blocks, oldest of their lists first.
    pub free: Vec<ImageFree>,
    /// Places that are left alone, being damaged: place, grains.
    pub alone: Vec<(u64, u32)>,
}

impl Image {
    /// All of it, as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; IMAGE_HEADER + (self.free.len() + self.alone.len()) * IMAGE_ENTRY];
        put(&mut out, 8, self.generation.to_le_bytes());
        put(&mut out, 16, (self.free.len() as u64).to_le_bytes());
        put(&mut out, 24, (self.alone.len() as u64).to_le_bytes());
        put(&mut out, 32, self.allocated.0.to_le_bytes());
        put(&mut out, 40, self.allocated.1.to_le_bytes());
        put(&mut out, 48, self.allocated.2.to_le_bytes());
        put(&mut out, 56, self.most.to_le_bytes());
        let link = (Header::NO_LIST, 0);
        let alone = self.alone.iter().map(|&(at, size)| ImageFree { at, size, explicit: true, link });
        for (index, free) in self.free.iter().copied().chain(alone).enumerate() {
            let entry = &mut out[IMAGE_HEADER + index * IMAGE_ENTRY..][..IMAGE_ENTRY];
            put(entry, 0, free.at.to_le_bytes());
            put(entry, 8, free.size.to_le_bytes());
            put(entry, 12, u16::from(free.explicit).to_le_bytes());
            put(entry, 14, free.link.0.to_le_bytes());
            put(entry, 16, free.link.1.to_le_bytes());
        }
        seal(&mut out, IMAGE_MAGIC);
        out
    }

    /// Reads what [`Image::encode`] wrote.
    ///
    /// # Errors
    /// [`Corrupt`] for any damage.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        check(bytes, IMAGE_MAGIC)?;
        if bytes.len() < IMAGE_HEADER {
            return Err(Corrupt::Short);
        }
        let entries = (bytes.len() - IMAGE_HEADER) / IMAGE_ENTRY;
        let (free, alone) = (u64_at(bytes, 16), u64_at(bytes, 24));
        if free.checked_add(alone) != Some(entries as u64) || !(bytes.len() - IMAGE_HEADER).is_multiple_of(IMAGE_ENTRY)
        {
            return Err(Corrupt::Field("entries"));
        }
        let entry = |index: usize| {
            let entry = &bytes[IMAGE_HEADER + index * IMAGE_ENTRY..][..IMAGE_ENTRY];
            ImageFree {
                at: u64_at(entry, 0),
                size: u32_at(entry, 8),
                explicit: u16_at(entry, 12) != 0,
                link: (u16_at(entry, 14), u64_at(entry, 16)),
            }
        };
        Ok(Self {
            generation: u64_at(bytes, 8),
            allocated: (u64_at(bytes, 32), u64_at(bytes, 40), u64_at(bytes, 48)),
            most: u64_at(bytes, 56),
            free: (0..free as usize).map(entry).collect(),
            alone: (free as usize..entries).map(entry).map(|entry| (entry.at, entry.size)).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(status: Status) -> Header {
        Header {
            status,
            at: 77,
            size: 9,
            seq: 5 << 40,
            rest: 3,
            rest_seq: (5 << 40) - 1,
            len: 4000,
            sum: 0xabcd,
            flags: Header::AREA,
            list: 4,
            next: 1234,
        }
    }

    #[test]
    fn a_header_counts_only_at_its_place_with_its_salt_and_whole() {
        for status in [Status::Allocated, Status::Free, Status::Dead] {
            let mut bytes = [0; HEADER];
            let header = header(status);
            header.encode(&mut bytes, 42);
            assert_eq!(Header::decode(&bytes, 42, 77), Ok(header));
            assert_eq!(Header::decode(&bytes, 42, 78), Err(Corrupt::Field("code bytes")));
            assert_eq!(Header::decode(&bytes, 43, 77), Err(Corrupt::Field("code bytes")));
            for byte in 0..HEADER {
                let mut bad = bytes;
                bad[byte] ^= 0x10;
                assert!(Header::decode(&bad, 42, 77).is_err(), "{byte}");
            }
        }
    }

    #[test]
    fn homes_and_images_come_back() {
        let home = Home {
            generation: 3,
            salt: 9,
            epoch: 2,
            capacity: 1 << 30,
            grain: 512,
            method: 2,
            quick: (1, 75),
            tail: (100, 7),
            durable: 6,
            image: Some(ImageRef { at: 100, bytes: 96 }),
            roots: [1, 2, 3, 4, 5, 6, 7, 8],
            voids: vec![(1, 2), (5, 9)],
            heads: (0..HEADS_MAX as u64).collect(),
        };
        let mut bytes = vec![1; HOME];
        home.encode(&mut bytes);
        assert_eq!(Home::decode(&bytes), Ok(home));
        bytes[4095] ^= 1;
        assert!(Home::claims(&bytes) && Home::decode(&bytes) == Err(Corrupt::Checksum));
        bytes[49] = 1;
        seal(&mut bytes, HOME_MAGIC);
        assert_eq!(Home::decode(&bytes), Err(Corrupt::Field("method")), "of a later build");
        let image = Image {
            generation: 3,
            allocated: (1, 2, 3),
            most: 99,
            free: vec![
                ImageFree { at: 20, size: 1, explicit: true, link: (3, 99) },
                ImageFree { at: 30, size: 2, explicit: false, link: (Header::NO_LIST, 0) },
            ],
            alone: vec![(40, 3)],
        };
        let mut bytes = image.encode();
        assert_eq!(Image::decode(&bytes), Ok(image));
        bytes.truncate(bytes.len() - 1);
        assert!(Image::decode(&bytes).is_err());
    }
}
