//! Checkpoints: images of index segments in clusters of their own, and the directory that names them.
//!
//! ```text
//! part:       cluster header | payload len 4 | payload crc 4 | piece | piece | ...
//! piece:      segment 4 | words in all 4 | first word 4 | words here 4 | words, 8 bytes each
//! directory:  cluster header | payload len 4 | payload crc 4 | Directory
//! ```
//!
//! Invariants: parts are written before the directory, the directory before the superblock that names
//! it; a part or directory is believed only with the sequence number by which it was named.

use crate::{
    Corrupt, cluster,
    codec::{crc, put, u32_at, u64_at},
    journal::Group,
};

const PAYLOAD: usize = cluster::HEADER + 8;

/// Most payload bytes in one cluster of `cluster` bytes.
pub const fn room(cluster: usize) -> usize {
    cluster - PAYLOAD
}

/// Writes header and payload into a cluster's bytes; what follows is zeroed.
///
/// # Panics
/// If the payload is longer than [`room`].
pub fn encode_cluster(out: &mut [u8], header: &cluster::Header, payload: &[u8]) {
    header.encode(out);
    put(out, cluster::HEADER, (payload.len() as u32).to_le_bytes());
    put(out, cluster::HEADER + 4, crc(payload).to_le_bytes());
    out[PAYLOAD..PAYLOAD + payload.len()].copy_from_slice(payload);
    out[PAYLOAD + payload.len()..].fill(0);
}

/// Reads header and payload from a cluster's bytes.
///
/// # Errors
/// [`Corrupt`] for anything but an intact header and payload.
pub fn decode_cluster(bytes: &[u8]) -> Result<(cluster::Header, &[u8]), Corrupt> {
    let header = cluster::Header::decode(bytes)?;
    if bytes.len() < PAYLOAD {
        return Err(Corrupt::Short);
    }
    let len = u32_at(bytes, cluster::HEADER) as usize;
    let payload = bytes[PAYLOAD..].get(..len).ok_or(Corrupt::Short)?;
    if crc(payload) != u32_at(bytes, cluster::HEADER + 4) {
        return Err(Corrupt::Checksum);
    }
    Ok((header, payload))
}

/// A run of words of one segment's image; an image longer than a part is cut into several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Piece {
    /// The segment's number.
    pub segment: u32,
    /// Words in the whole image.
    pub total: u32,
    /// Index of the first word in the image.
    pub first: u32,
    /// The words.
    pub words: Vec<u64>,
}

/// The number of no segment: the image is of the pages that clusters are divided into, a byte for each cluster: log2 of
/// the bytes of its pages, 0 where it is not divided. Only if any is.
pub const PAGES: u32 = u32::MAX;

/// The number of no segment: the image is of the records that the application pinned, if there are any. Of each: the
/// low and the high half of its name, its generation, its length in bytes, its bytes up to a whole word, zeros behind.
pub const PINNED: u32 = u32::MAX - 1;

/// The number of no segment: the image is [`Begun`]. Only where objects share clusters.
pub const BEGUN: u32 = u32::MAX - 2;

/// What was so at the moment at which a checkpoint began. Uses of clusters that were whole on the device then are in
/// its images, and need no look; the others are looked at, for what is in them may be in no image.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Begun {
    /// The number of the next use of a cluster: every smaller one was given out.
    pub below: u64,
    /// The smaller ones of those that were not whole on the device.
    pub unfinished: Vec<u64>,
    /// Keys of which an older version lies in one of these, by the hash of their rows, with the generation of the
    /// version that replaced it: every smaller one of the key is gone, whatever became of that one.
    pub replaced: Vec<(u64, u64)>,
}

impl Begun {
    /// Words before the lists.
    const HEAD: usize = 2;

    /// About how many bytes it may have, where clusters have so many: what is more is worth sealing buffers for.
    pub const fn room(cluster: usize) -> usize {
        room(cluster) / 32
    }

    /// Whether all that was written by this use of a cluster is in the images.
    pub fn covers(&self, seq: u64) -> bool {
        seq < self.below && !self.unfinished.contains(&seq)
    }

    /// The image.
    pub fn words(&self) -> Vec<u64> {
        let mut words = vec![self.below, self.unfinished.len() as u64];
        words.extend(&self.unfinished);
        words.extend(self.replaced.iter().flat_map(|(hash, generation)| [*hash, *generation]));
        words
    }

    /// Reads an image; its cluster's checksum has vouched for the words.
    ///
    /// # Errors
    /// [`Corrupt::Short`] if the lists are cut off.
    pub fn from_words(words: &[u64]) -> Result<Self, Corrupt> {
        let [below, count, ..] = *words else { return Err(Corrupt::Short) };
        let count = usize::try_from(count).map_err(|_| Corrupt::Short)?;
        let (unfinished, pairs) = words[Self::HEAD..].split_at_checked(count).ok_or(Corrupt::Short)?;
        let (pairs, rest) = pairs.as_chunks::<2>();
        if !rest.is_empty() {
            return Err(Corrupt::Short);
        }
        let replaced = pairs.iter().map(|[hash, generation]| (*hash, *generation)).collect();
        Ok(Self { below, unfinished: unfinished.to_vec(), replaced })
    }
}

/// A record that the application pinned, as it was when the checkpoint was taken.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinnedRow {
    /// Its name.
    pub name: u128,
    /// Generation of the change that set it.
    pub generation: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl PinnedRow {
    /// Words of a row with so many bytes.
    pub const fn words(len: usize) -> usize {
        4 + len.div_ceil(8)
    }

    /// Appends the row to the words of an image.
    pub fn push(&self, words: &mut Vec<u64>) {
        words.extend([self.name as u64, (self.name >> 64) as u64, self.generation, self.bytes.len() as u64]);
        words.extend(self.bytes.chunks(8).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        }));
    }

    /// Takes the first row off the words of an image and returns it with the rest.
    ///
    /// # Errors
    /// [`Corrupt::Short`] if it is cut off.
    pub fn next(words: &[u64]) -> Result<(Self, &[u64]), Corrupt> {
        let [low, high, generation, len, rest @ ..] = words else { return Err(Corrupt::Short) };
        let len = usize::try_from(*len).map_err(|_| Corrupt::Short)?;
        let (own, rest) = rest.split_at_checked(len.div_ceil(8)).ok_or(Corrupt::Short)?;
        let mut bytes: Vec<u8> = own.iter().flat_map(|word| word.to_le_bytes()).collect();
        bytes.truncate(len);
        let name = u128::from(*high) << 64 | u128::from(*low);
        Ok((Self { name, generation: *generation, bytes }, rest))
    }
}

/// Bytes before the words of a piece.
pub const PIECE_HEADER: usize = 16;

/// Appends a piece to a part's payload.
pub fn push_piece(payload: &mut Vec<u8>, segment: u32, total: u32, first: u32, words: &[u64]) {
    for field in [segment, total, first, words.len() as u32] {
        payload.extend_from_slice(&field.to_le_bytes());
    }
    for word in words {
        payload.extend_from_slice(&word.to_le_bytes());
    }
}

/// Takes the first piece off a payload and returns it with the rest.
///
/// # Errors
/// [`Corrupt::Short`] if it is cut off.
pub fn next_piece(payload: &[u8]) -> Result<(Piece, &[u8]), Corrupt> {
    if payload.len() < PIECE_HEADER {
        return Err(Corrupt::Short);
    }
    let end = PIECE_HEADER + u32_at(payload, 12) as usize * 8;
    let words = payload.get(PIECE_HEADER..end).ok_or(Corrupt::Short)?;
    let piece = Piece {
        segment: u32_at(payload, 0),
        total: u32_at(payload, 4),
        first: u32_at(payload, 8),
        words: words.chunks_exact(8).map(|word| u64_at(word, 0)).collect(),
    };
    Ok((piece, &payload[end..]))
}

/// A row of the table of a volume whose objects lie in place: its checkpoint's words are such rows, not index words.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlaceRow {
    /// 128-bit hash of the key.
    pub hash: u128,
    /// First slot, counted from the start of the device.
    pub slot: u32,
    /// Slots it takes; 0 is a row of nothing.
    pub slots: u32,
    /// When it was used last: the larger, the later.
    pub used: u64,
}

impl PlaceRow {
    /// Words of a row.
    pub const WORDS: usize = 4;

    /// The row as it lies in a piece.
    pub fn words(&self) -> [u64; Self::WORDS] {
        let place = u64::from(self.slots) << 32 | u64::from(self.slot);
        [self.hash as u64, (self.hash >> 64) as u64, place, self.used]
    }

    /// Reads a row; its cluster's checksum has vouched for the words.
    pub fn from_words(words: [u64; Self::WORDS]) -> Self {
        let [low, high, place, used] = words;
        let hash = u128::from(high) << 64 | u128::from(low);
        Self { hash, slot: place as u32, slots: (place >> 32) as u32, used }
    }
}

/// What a checkpoint consists of.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Directory {
    /// Next place of the writing cursor, a cluster number.
    pub cursor: u32,
    /// Clusters that were open, sealed or in flight when the checkpoint began: recovery looks at them.
    pub open: Vec<u32>,
    /// The parts: cluster number and sequence number.
    pub parts: Vec<(u32, u64)>,
    /// Settings of all groups.
    pub groups: Vec<Group>,
}

impl Directory {
    /// Encoded bytes.
    pub fn len(&self) -> usize {
        16 + self.open.len() * 4 + self.parts.len() * 12 + self.groups.len() * 12
    }

    /// Whether it names nothing.
    pub fn is_empty(&self) -> bool {
        self.parts.is_empty()
    }

    /// The encoded directory.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = vec![0; self.len()];
        put(&mut out, 0, self.cursor.to_le_bytes());
        put(&mut out, 4, (self.open.len() as u32).to_le_bytes());
        put(&mut out, 8, (self.parts.len() as u32).to_le_bytes());
        put(&mut out, 12, (self.groups.len() as u32).to_le_bytes());
        let mut at = 16;
        for id in &self.open {
            put(&mut out, at, id.to_le_bytes());
            at += 4;
        }
        for (id, seq) in &self.parts {
            put(&mut out, at, id.to_le_bytes());
            put(&mut out, at + 4, seq.to_le_bytes());
            at += 12;
        }
        for group in &self.groups {
            put(&mut out, at, group.id.to_le_bytes());
            put(&mut out, at + 4, group.interval.to_le_bytes());
            out[at + 8] = group.priority;
            out[at + 9] = group.page;
            at += 12;
        }
        out
    }

    /// Reads a directory; its cluster's checksum has vouched for the bytes.
    ///
    /// # Errors
    /// [`Corrupt::Short`] if the counts do not fit the bytes.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        if bytes.len() < 16 {
            return Err(Corrupt::Short);
        }
        let count = |at| u32_at(bytes, at) as usize;
        let (open, parts, groups) = (count(4), count(8), count(12));
        if bytes.len() != 16 + open * 4 + parts * 12 + groups * 12 {
            return Err(Corrupt::Short);
        }
        let (rows, rest) = bytes[16..].split_at(open * 4);
        let (part_rows, group_rows) = rest.split_at(parts * 12);
        Ok(Self {
            cursor: u32_at(bytes, 0),
            open: rows.chunks_exact(4).map(|r| u32_at(r, 0)).collect(),
            parts: part_rows.chunks_exact(12).map(|r| (u32_at(r, 0), u64_at(r, 4))).collect(),
            groups: group_rows
                .chunks_exact(12)
                .map(|r| Group { id: u32_at(r, 0), interval: u32_at(r, 4), priority: r[8], page: r[9] })
                .collect(),
        })
    }
}
