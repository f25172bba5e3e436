//! The object frame: one object as it lies in a cluster, in memory and on the wire of a read.
//!
//! ```text
//! 0      4    8            16          24       32        36        40       42    43     44     48      52           56     64
//! magic  crc  mark         generation  expires  body len  meta len  key len  kind  zero  group  server  payload crc  zero   key, metadata, body, zeros
//! ```
//!
//! Invariants: the header's checksum covers the header, hence the payload's checksum, hence every byte
//! of key, metadata and body; a frame starts at a [`GRAIN`] and is padded with zeros to one; the mark
//! ties it to one use of its place, so a frame of an earlier use is never taken for new, and neither is a body that
//! looks like one.

use crate::{
    Corrupt,
    codec::{check, crc, crc_of, put, seal, u16_at, u32_at, u64_at},
};

/// Alignment of frames, and the unit in which the index counts addresses, in bytes.
pub const GRAIN: usize = 64;
/// Bytes of a frame's header.
pub const HEADER: usize = 64;
/// Longest key in bytes. URLs beyond this are refused, as HTTP servers do.
pub const KEY_MAX: usize = 8 << 10;
/// Longest metadata in bytes.
pub const META_MAX: usize = 64 << 10;

const MAGIC: u32 = u32::from_le_bytes(*b"PFfr");

/// What a frame holds. Numbers are frozen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Kind {
    /// A whole object.
    Whole = 1,
    /// The head of a large object: its metadata, and as body a [`Manifest`].
    Manifest = 2,
    /// One piece of a large object; its key is a [`ChunkKey`].
    Chunk = 3,
    /// A further copy of an object that was asked to lie beside another one. Never indexed by recovery.
    Copy = 4,
}

impl Kind {
    pub(crate) fn from_u8(value: u8) -> Result<Self, Corrupt> {
        Ok(match value {
            1 => Self::Whole,
            2 => Self::Manifest,
            3 => Self::Chunk,
            4 => Self::Copy,
            _ => return Err(Corrupt::Field("kind")),
        })
    }
}

/// The fixed part of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Header {
    /// Mark of the cluster use this frame belongs to: a keyed hash of its sequence number.
    pub mark: u64,
    /// Grows with every put and delete of the store; the larger of two versions is the newer.
    pub generation: u64,
    /// Milliseconds since the Unix epoch; 0 is never.
    pub expires: u64,
    /// Bytes of body in this frame.
    pub body_len: u32,
    /// Bytes of metadata.
    pub meta_len: u32,
    /// Bytes of key.
    pub key_len: u16,
    /// What it holds.
    pub kind: Kind,
    /// Group, 0 for none.
    pub group: u32,
    /// Hash of the origin server, 0 for unknown.
    pub server: u32,
    /// CRC-32C of key, metadata and body.
    pub payload_crc: u32,
}

impl Header {
    /// Bytes of key, metadata and body.
    pub fn payload_len(&self) -> usize {
        usize::from(self.key_len) + self.meta_len as usize + self.body_len as usize
    }

    /// Bytes of the frame on the device, padding included.
    pub fn frame_len(&self) -> usize {
        frame_len(self.payload_len())
    }

    /// Writes the header's [`HEADER`] bytes.
    pub fn encode(&self, out: &mut [u8]) {
        let out = &mut out[..HEADER];
        out.fill(0);
        put(out, 8, self.mark.to_le_bytes());
        put(out, 16, self.generation.to_le_bytes());
        put(out, 24, self.expires.to_le_bytes());
        put(out, 32, self.body_len.to_le_bytes());
        put(out, 36, self.meta_len.to_le_bytes());
        put(out, 40, self.key_len.to_le_bytes());
        out[42] = self.kind as u8;
        put(out, 44, self.group.to_le_bytes());
        put(out, 48, self.server.to_le_bytes());
        put(out, 52, self.payload_crc.to_le_bytes());
        seal(out, MAGIC);
    }

    /// Reads and verifies a header; says nothing of the payload.
    ///
    /// # Errors
    /// [`Corrupt`] for anything but an intact header.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let bytes = bytes.get(..HEADER).ok_or(Corrupt::Short)?;
        check(bytes, MAGIC)?;
        let header = Self {
            mark: u64_at(bytes, 8),
            generation: u64_at(bytes, 16),
            expires: u64_at(bytes, 24),
            body_len: u32_at(bytes, 32),
            meta_len: u32_at(bytes, 36),
            key_len: u16_at(bytes, 40),
            kind: Kind::from_u8(bytes[42])?,
            group: u32_at(bytes, 44),
            server: u32_at(bytes, 48),
            payload_crc: u32_at(bytes, 52),
        };
        if usize::from(header.key_len) > KEY_MAX || header.meta_len as usize > META_MAX {
            return Err(Corrupt::Field("key or metadata length"));
        }
        Ok(header)
    }

    /// The header of a frame of which nothing else is known to be intact, if its key is within `bytes`: then
    /// [`Header::key`] may be asked.
    #[must_use]
    pub fn of_damaged(bytes: &[u8]) -> Option<Self> {
        Self::decode(bytes).ok().filter(|header| header.meta_start() <= bytes.len())
    }

    /// Decodes the frame at the start of `bytes` and verifies all of it.
    ///
    /// # Errors
    /// [`Corrupt`] for anything but an intact frame that lies wholly inside `bytes`.
    pub fn verify(bytes: &[u8]) -> Result<Self, Corrupt> {
        let header = Self::decode(bytes)?;
        let payload = bytes.get(HEADER..HEADER + header.payload_len()).ok_or(Corrupt::Short)?;
        if crc(payload) != header.payload_crc {
            return Err(Corrupt::Checksum);
        }
        Ok(header)
    }

    /// The key inside the frame's bytes.
    pub fn key<'a>(&self, frame: &'a [u8]) -> &'a [u8] {
        &frame[HEADER..HEADER + usize::from(self.key_len)]
    }

    /// How the large object is cut whose head this frame is; `None` if it is none, or makes no sense. `frame` begins
    /// with this header.
    pub fn manifest(&self, frame: &[u8]) -> Option<Manifest> {
        let body = frame.get(self.body_start()..self.body_start() + self.body_len as usize)?;
        Manifest::decode(body).ok().filter(|_| self.kind == Kind::Manifest)
    }

    /// First byte of the metadata inside the frame.
    pub fn meta_start(&self) -> usize {
        HEADER + usize::from(self.key_len)
    }

    /// First byte of the body inside the frame.
    pub fn body_start(&self) -> usize {
        self.meta_start() + self.meta_len as usize
    }
}

/// Bytes of a frame with this much payload, padding included.
pub fn frame_len(payload: usize) -> usize {
    (HEADER + payload).next_multiple_of(GRAIN)
}

/// Checksum of a payload given in its three parts.
pub fn payload_crc(key: &[u8], metadata: &[u8], body: &[u8]) -> u32 {
    crc_of(&[key, metadata, body])
}

/// Body of a [`Kind::Manifest`] frame: how a large object is cut. The end of the object may follow in the same frame,
/// which every reader of the object has read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Manifest {
    /// Generation under which the chunks were written.
    pub id: u64,
    /// Body bytes of the whole object.
    pub total: u64,
    /// Body bytes of each chunk but the last.
    pub chunk: u32,
    /// Body bytes that follow the manifest: the last of the object, in no chunk.
    pub tail: u32,
}

impl Manifest {
    /// Encoded bytes.
    pub const LEN: usize = 20;
    /// Most bytes of [`Manifest::tail`]: a block, so that to read the head is one small read still.
    pub const TAIL_MAX: usize = crate::BLOCK;

    /// Number of chunks.
    pub fn chunks(&self) -> u32 {
        self.in_chunks().div_ceil(u64::from(self.chunk.max(1))) as u32
    }

    /// Body bytes that chunks have.
    pub fn in_chunks(&self) -> u64 {
        self.total - u64::from(self.tail)
    }

    /// The encoded manifest, without what follows it.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, self.id.to_le_bytes());
        put(&mut out, 8, self.total.to_le_bytes());
        put(&mut out, 16, self.chunk.to_le_bytes());
        out
    }

    /// Reads a manifest from the body of its frame, whose checksum has vouched for the bytes.
    ///
    /// # Errors
    /// [`Corrupt`] for another length or a cut that makes no sense.
    pub fn decode(body: &[u8]) -> Result<Self, Corrupt> {
        let tail = body.len().checked_sub(Self::LEN).filter(|tail| *tail <= Self::TAIL_MAX).ok_or(Corrupt::Short)?;
        let manifest = Self { id: u64_at(body, 0), total: u64_at(body, 8), chunk: u32_at(body, 16), tail: tail as u32 };
        if tail as u64 > manifest.total {
            return Err(Corrupt::Field("tail"));
        }
        if manifest.chunk == 0 || manifest.in_chunks().div_ceil(u64::from(manifest.chunk)) > u64::from(u32::MAX) {
            return Err(Corrupt::Field("chunk"));
        }
        Ok(manifest)
    }
}

/// Key of a [`Kind::Chunk`] frame: the parent's 128-bit hash, the manifest's id, the chunk's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChunkKey {
    /// Hash of the large object's key.
    pub parent: u128,
    /// The manifest's id.
    pub id: u64,
    /// Number of the chunk, from 0.
    pub number: u32,
}

impl ChunkKey {
    /// Encoded bytes.
    pub const LEN: usize = 28;

    /// The encoded key.
    pub fn encode(&self) -> [u8; Self::LEN] {
        let mut out = [0; Self::LEN];
        put(&mut out, 0, self.parent.to_le_bytes());
        put(&mut out, 16, self.id.to_le_bytes());
        put(&mut out, 24, self.number.to_le_bytes());
        out
    }

    /// Reads a chunk's key.
    ///
    /// # Errors
    /// [`Corrupt::Short`] for another length.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        if bytes.len() != Self::LEN {
            return Err(Corrupt::Short);
        }
        Ok(Self { parent: crate::codec::u128_at(bytes, 0), id: u64_at(bytes, 16), number: u32_at(bytes, 24) })
    }
}
