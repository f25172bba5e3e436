//! The protocol: what goes over the socket, in both directions. Numbers are little-endian.
//!
//! ```text
//! hello    client: "picaflor" | version u32          server: "picaflor" | version u32 | welcome u8
//! frame    length of what follows u32 | kind u8 | fields;  bytes are length u32 | bytes
//!
//! asked                                                          answered
//! Get       key, from u64, to u64                                Object, Data..., End  |  Answer(0)
//! Put       key, what goes with it; then Data..., End            Done
//!           (or Abandon in place of End: it was never there)     Done
//! Delete    key                                                  Answer(was it there)
//! Contains  key                                                  Answer(is it there)
//! GroupOf   key                                                  Group(group u32)  |  Answer(0)
//! Invalidate  key                                                Done
//! Collocate a, b                                                 Done
//! Priority    group u32, priority u8                                 Done
//! Interval  group u32, milliseconds u64 (all ones: off)          Done
//! Page        group u32, bytes u32                               Done
//! Flush, Ping                                                    Done
//! Keys                                                           Entry..., End
//! ```
//!
//! Any answer may be `Failed` in its place, in the middle of an object too; the connection then goes on, unless the
//! kind is [`Kind::BadFrame`]. A frame is at most [`FRAME_MAX`] bytes, a body comes in as many `Data` as it takes.

use std::io::{self, Read};

use picaflor::{Expiry, Priority};

use crate::kind::Kind;

/// Version of the protocol; both sides have the same.
pub const VERSION: u32 = 2;

pub(crate) const MAGIC: &[u8; 8] = b"picaflor";
/// Length of both hellos.
pub(crate) const HELLO: usize = 12;
/// Most bytes of a frame behind its length: a key, its neighbour's key and all the metadata there may be.
pub(crate) const FRAME_MAX: usize = 128 << 10;
/// Most bytes of a body in one frame.
pub(crate) const DATA_MAX: usize = 64 << 10;

/// The server's answer to a hello.
pub(crate) mod welcome {
    pub(crate) const IN: u8 = 0;
    pub(crate) const TOO_MANY: u8 = 1;
    pub(crate) const NOT_YOU: u8 = 2;
}

/// What is known of an object before its body.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Head {
    /// Bytes of the whole body.
    pub len: u64,
    /// The version.
    pub generation: u64,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires: u64,
    /// The group; 0 is none.
    pub group: u32,
    /// The metadata.
    pub metadata: Vec<u8>,
}

/// One object of a listing.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Entry {
    /// The key.
    pub key: Vec<u8>,
    /// Bytes of the body.
    pub len: u64,
    /// Bytes of the metadata.
    pub metadata_len: u32,
    /// The group; 0 is none.
    pub group: u32,
    /// When it expires, in milliseconds since the Unix epoch; 0 is never.
    pub expires: u64,
    /// The version.
    pub generation: u64,
}

/// What goes with an object that is put.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PutHead<'a> {
    pub(crate) key: &'a [u8],
    pub(crate) len: Option<u64>,
    pub(crate) group: u32,
    pub(crate) server: u32,
    pub(crate) expiry: Expiry,
    pub(crate) bypass_memory: bool,
    pub(crate) no_wait: bool,
    pub(crate) metadata: &'a [u8],
    /// Empty is none.
    pub(crate) neighbour: &'a [u8],
}

/// One frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Frame<'a> {
    Get { key: &'a [u8], from: u64, to: u64 },
    Put(PutHead<'a>),
    Data(&'a [u8]),
    End,
    Abandon,
    Delete(&'a [u8]),
    Contains(&'a [u8]),
    Collocate(&'a [u8], &'a [u8]),
    Priority(u32, Priority),
    Interval(u32, Option<u64>),
    Flush,
    Ping,
    Keys,
    Invalidate(&'a [u8]),
    GroupOf(&'a [u8]),
    Page(u32, u32),
    Done,
    Answer(bool),
    Object(Head),
    Entry(Entry),
    Group(u32),
    Failed(Kind, &'a str),
}

/// Why bytes are no frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Bad {
    #[error("a frame of {0} bytes, more than {FRAME_MAX}")]
    TooLong(usize),
    #[error("a frame without a kind")]
    Empty,
    #[error("no frame has kind {0}")]
    Kind(u8),
    #[error("a frame that is too short for its fields")]
    Short,
    #[error("a frame that is longer than its fields")]
    Long,
    #[error("a field with a value that it cannot have")]
    Value,
}

impl Frame<'_> {
    /// Adds the frame to what is to be written.
    pub(crate) fn encode(&self, to: &mut Vec<u8>) {
        let start = to.len();
        to.extend_from_slice(&[0; 4]);
        let mut out = Writer(to);
        match self {
            Self::Get { key, from, to } => out.kind(1).bytes(key).u64(*from).u64(*to),
            Self::Put(head) => head.encode(out.kind(2)),
            Self::Data(body) => {
                out.kind(3).0.extend_from_slice(body);
                &mut out
            }
            Self::End => out.kind(4),
            Self::Abandon => out.kind(5),
            Self::Delete(key) => out.kind(6).bytes(key),
            Self::Contains(key) => out.kind(7).bytes(key),
            Self::Collocate(a, b) => out.kind(8).bytes(a).bytes(b),
            Self::Priority(group, priority) => out.kind(9).u32(*group).u8(*priority as u8),
            Self::Interval(group, millis) => out.kind(10).u32(*group).u64(millis.unwrap_or(u64::MAX)),
            Self::Flush => out.kind(11),
            Self::Ping => out.kind(12),
            Self::Keys => out.kind(13),
            Self::Invalidate(key) => out.kind(14).bytes(key),
            Self::GroupOf(key) => out.kind(15).bytes(key),
            Self::Page(group, bytes) => out.kind(16).u32(*group).u32(*bytes),
            Self::Done => out.kind(32),
            Self::Answer(yes) => out.kind(33).u8(u8::from(*yes)),
            Self::Object(head) => {
                let numbers = out.kind(34).u64(head.len).u64(head.generation).u64(head.expires);
                numbers.u32(head.group).bytes(&head.metadata)
            }
            Self::Entry(entry) => {
                let numbers = out.kind(35).u64(entry.len).u32(entry.metadata_len).u32(entry.group);
                numbers.u64(entry.expires).u64(entry.generation).bytes(&entry.key)
            }
            Self::Group(group) => out.kind(37).u32(*group),
            Self::Failed(kind, text) => out.kind(36).u8(*kind as u8).bytes(text.as_bytes()),
        };
        let len = (to.len() - start - 4) as u32;
        to[start..start + 4].copy_from_slice(&len.to_le_bytes());
    }
}

impl<'a> Frame<'a> {
    /// The frame that these bytes are, without their length.
    pub(crate) fn decode(bytes: &'a [u8]) -> Result<Self, Bad> {
        let (kind, rest) = bytes.split_first().ok_or(Bad::Empty)?;
        let mut fields = Reader(rest);
        let frame = match kind {
            1 => Self::Get { key: fields.bytes()?, from: fields.u64()?, to: fields.u64()? },
            2 => Self::Put(PutHead::decode(&mut fields)?),
            3 => Self::Data(std::mem::take(&mut fields.0)),
            4 => Self::End,
            5 => Self::Abandon,
            6 => Self::Delete(fields.bytes()?),
            7 => Self::Contains(fields.bytes()?),
            8 => Self::Collocate(fields.bytes()?, fields.bytes()?),
            9 => Self::Priority(fields.u32()?, fields.priority()?),
            10 => Self::Interval(fields.u32()?, Some(fields.u64()?).filter(|millis| *millis != u64::MAX)),
            11 => Self::Flush,
            12 => Self::Ping,
            13 => Self::Keys,
            14 => Self::Invalidate(fields.bytes()?),
            15 => Self::GroupOf(fields.bytes()?),
            16 => Self::Page(fields.u32()?, fields.u32()?),
            32 => Self::Done,
            33 => Self::Answer(fields.flag()?),
            34 => Self::Object(Head {
                len: fields.u64()?,
                generation: fields.u64()?,
                expires: fields.u64()?,
                group: fields.u32()?,
                metadata: fields.bytes()?.to_vec(),
            }),
            35 => Self::Entry(Entry {
                len: fields.u64()?,
                metadata_len: fields.u32()?,
                group: fields.u32()?,
                expires: fields.u64()?,
                generation: fields.u64()?,
                key: fields.bytes()?.to_vec(),
            }),
            36 => Self::Failed(Kind::of(fields.u8()?), std::str::from_utf8(fields.bytes()?).map_err(|_| Bad::Value)?),
            37 => Self::Group(fields.u32()?),
            other => return Err(Bad::Kind(*other)),
        };
        if fields.0.is_empty() { Ok(frame) } else { Err(Bad::Long) }
    }
}

impl PutHead<'_> {
    fn encode<'w, 'v>(&self, out: &'w mut Writer<'v>) -> &'w mut Writer<'v> {
        let (kind, time) = match self.expiry {
            Expiry::Default => (0, 0),
            Expiry::Never => (1, 0),
            Expiry::At(millis) => (2, millis),
            Expiry::After(time) => (3, u64::try_from(time.as_millis()).unwrap_or(u64::MAX)),
        };
        let flags = u8::from(self.bypass_memory) | u8::from(self.no_wait) << 1;
        let numbers = out.bytes(self.key).u64(self.len.unwrap_or(u64::MAX)).u32(self.group).u32(self.server);
        numbers.u8(kind).u64(time).u8(flags).bytes(self.metadata).bytes(self.neighbour)
    }
}

impl<'a> PutHead<'a> {
    fn decode(fields: &mut Reader<'a>) -> Result<Self, Bad> {
        let key = fields.bytes()?;
        let len = Some(fields.u64()?).filter(|len| *len != u64::MAX);
        let (group, server) = (fields.u32()?, fields.u32()?);
        let expiry = match (fields.u8()?, fields.u64()?) {
            (0, _) => Expiry::Default,
            (1, _) => Expiry::Never,
            (2, millis) => Expiry::At(millis),
            (3, millis) => Expiry::After(std::time::Duration::from_millis(millis)),
            _ => return Err(Bad::Value),
        };
        let flags = fields.u8()?;
        if flags > 3 {
            return Err(Bad::Value);
        }
        let (metadata, neighbour) = (fields.bytes()?, fields.bytes()?);
        let (bypass_memory, no_wait) = (flags & 1 != 0, flags & 2 != 0);
        Ok(Self { key, len, group, server, expiry, bypass_memory, no_wait, metadata, neighbour })
    }
}

struct Writer<'v>(&'v mut Vec<u8>);

impl Writer<'_> {
    fn kind(&mut self, kind: u8) -> &mut Self {
        self.u8(kind)
    }

    fn u8(&mut self, number: u8) -> &mut Self {
        self.0.push(number);
        self
    }

    fn u32(&mut self, number: u32) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn u64(&mut self, number: u64) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        self.u32(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Result<&'a [u8], Bad> {
        let (taken, rest) = self.0.split_at_checked(len).ok_or(Bad::Short)?;
        self.0 = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Bad> {
        let (taken, rest) = self.0.split_first_chunk().ok_or(Bad::Short)?;
        self.0 = rest;
        Ok(*taken)
    }

    fn u8(&mut self) -> Result<u8, Bad> {
        Ok(self.array::<1>()?[0])
    }

    fn u32(&mut self) -> Result<u32, Bad> {
        Ok(u32::from_le_bytes(self.array()?))
    }

    fn u64(&mut self) -> Result<u64, Bad> {
        Ok(u64::from_le_bytes(self.array()?))
    }

    fn bytes(&mut self) -> Result<&'a [u8], Bad> {
        let len = self.u32()?;
        self.take(len as usize)
    }

    fn flag(&mut self) -> Result<bool, Bad> {
        match self.u8()? {
            0 => Ok(false),
            1 => Ok(true),
            _ => Err(Bad::Value),
        }
    }

    fn priority(&mut self) -> Result<Priority, Bad> {
        let priorities = [Priority::Neither, Priority::Loved, Priority::Hated];
        let number = self.u8()?;
        priorities.into_iter().find(|priority| *priority as u8 == number).ok_or(Bad::Value)
    }
}

/// Reads the bytes of the next frame into a buffer that is used again; a length that no frame has is not believed.
pub(crate) fn read(input: &mut impl Read, buffer: &mut Vec<u8>) -> io::Result<()> {
    let mut len = [0; 4];
    input.read_exact(&mut len)?;
    let len = u32::from_le_bytes(len) as usize;
    if len > FRAME_MAX {
        return Err(io::Error::new(io::ErrorKind::InvalidData, Bad::TooLong(len).to_string()));
    }
    buffer.resize(len, 0);
    input.read_exact(buffer)
}

/// The first bytes of a client.
pub(crate) fn hello() -> [u8; HELLO] {
    let mut bytes = [0; HELLO];
    bytes[..8].copy_from_slice(MAGIC);
    bytes[8..].copy_from_slice(&VERSION.to_le_bytes());
    bytes
}

/// The version that the other side speaks; `None` if it speaks something else altogether.
pub(crate) fn version(hello: &[u8; HELLO]) -> Option<u32> {
    let [rest @ .., a, b, c, d] = hello;
    (rest == MAGIC).then(|| u32::from_le_bytes([*a, *b, *c, *d]))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use proptest::prelude::*;

    use super::*;

    fn samples() -> Vec<Frame<'static>> {
        let put = PutHead {
            key: b"key",
            len: Some(9),
            group: 1,
            server: 2,
            expiry: Expiry::After(Duration::from_millis(5)),
            bypass_memory: true,
            no_wait: false,
            metadata: b"meta",
            neighbour: b"page",
        };
        let others = [Expiry::Default, Expiry::Never, Expiry::At(7)];
        let others = others.map(|expiry| Frame::Put(PutHead { expiry, len: None, no_wait: true, ..put.clone() }));
        let head = Head { len: 1 << 40, generation: 3, expires: 4, group: 5, metadata: vec![6; 1000] };
        let entry = Entry { key: vec![1; 8192], len: 2, metadata_len: 3, group: 4, expires: 5, generation: 6 };
        let mut all = vec![
            Frame::Get { key: b"", from: 0, to: u64::MAX },
            Frame::Put(put),
            Frame::Data(&[7; DATA_MAX]),
            Frame::Data(b""),
            Frame::Delete(b"a"),
            Frame::Contains(b"b"),
            Frame::Invalidate(b"c"),
            Frame::GroupOf(b"d"),
            Frame::Group(7),
            Frame::Page(7, 16384),
            Frame::Collocate(b"a", b"b"),
            Frame::Priority(3, Priority::Loved),
            Frame::Priority(3, Priority::Hated),
            Frame::Priority(3, Priority::Neither),
            Frame::Interval(1, None),
            Frame::Interval(1, Some(1000)),
            Frame::Answer(true),
            Frame::Answer(false),
            Frame::Object(head),
            Frame::Entry(entry),
            Frame::Failed(Kind::Full, "full"),
        ];
        all.extend(others);
        all.extend([Frame::End, Frame::Abandon, Frame::Flush, Frame::Ping, Frame::Keys, Frame::Done]);
        all
    }

    #[test]
    fn every_frame_comes_back() {
        let (mut bytes, mut buffer) = (Vec::new(), Vec::new());
        samples().iter().for_each(|frame| frame.encode(&mut bytes));
        let mut input = &bytes[..];
        for frame in samples() {
            read(&mut input, &mut buffer).unwrap();
            assert_eq!(Frame::decode(&buffer), Ok(frame));
        }
        assert!(input.is_empty());
    }

    #[test]
    fn a_frame_cut_short_or_drawn_out_is_none() {
        for frame in samples().into_iter().filter(|frame| !matches!(frame, Frame::Data(_))) {
            let mut bytes = Vec::new();
            frame.encode(&mut bytes);
            for len in 1..bytes.len() - 4 {
                assert!(Frame::decode(&bytes[4..4 + len]).is_err(), "{frame:?} cut to {len}");
            }
            bytes.push(0);
            assert_eq!(Frame::decode(&bytes[4..]), Err(Bad::Long), "{frame:?}");
        }
    }

    #[test]
    fn a_length_that_no_frame_has_is_not_believed() {
        let mut buffer = Vec::new();
        let error = read(&mut &[0xff, 0xff, 0xff, 0xff, 1][..], &mut buffer).unwrap_err();
        assert!(error.kind() == io::ErrorKind::InvalidData && buffer.capacity() == 0, "{error}");
    }

    #[test]
    fn the_largest_put_fits_in_a_frame() {
        let (key, metadata) = ([1; 8192], [2; 65536]);
        let head = PutHead {
            key: &key,
            len: None,
            group: 0,
            server: 0,
            expiry: Expiry::Never,
            bypass_memory: false,
            no_wait: false,
            metadata: &metadata,
            neighbour: &key,
        };
        let mut bytes = Vec::new();
        Frame::Put(head).encode(&mut bytes);
        assert!(bytes.len() - 4 <= FRAME_MAX);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_a_frame_or_a_reason(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(frame) = Frame::decode(&bytes) {
                let mut again = Vec::new();
                frame.encode(&mut again);
                // Kinds that this version does not know become `Other`, times of expiries that need none become 0.
                if !matches!(frame, Frame::Failed(..) | Frame::Put(_)) {
                    prop_assert_eq!(&again[4..], &bytes[..]);
                }
            }
        }
    }
}
