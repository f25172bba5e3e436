//! The records of a dependence graph, as values of hash tables.
//!
//! ```text
//! group:  magic 4 | items 4 | end of each item 4 | items
//! node:   flags 1 | expiry 8 | name length 4 | name | dependencies, ids
//! edges:  0 | dependents, ids            or  1 | log2 of chunks 1 | dependents in all 4
//! ids:    count, then each as its distance from the one before: varints, ascending
//! image:  whether it is believed 1 | version 4 | its parts 4; a part is the length of a group of copies 4,
//!         and that group, deflated
//! copy:   kind 1 | number 4 | log2 of chunks 1 | which 4 | the record
//! ```
//!
//! Invariants: an empty item is a free place; what holds a record has a checksum of its own, so these have none.

use crate::{
    Corrupt,
    codec::{u32_at, u64_at},
};

const GROUP_MAGIC: u32 = u32::from_le_bytes(*b"PFgg");
const GROUP_HEADER: usize = 8;
const NODE_HEADER: usize = 13;
const PAGE: u8 = 1;

/// Puts items together.
#[must_use]
pub fn encode_group(items: &[Vec<u8>]) -> Vec<u8> {
    let mut out = Vec::with_capacity(GROUP_HEADER + items.iter().map(|item| item.len() + 4).sum::<usize>());
    out.extend_from_slice(&GROUP_MAGIC.to_le_bytes());
    out.extend_from_slice(&(items.len() as u32).to_le_bytes());
    let mut end = 0u32;
    for item in items {
        end += item.len() as u32;
        out.extend_from_slice(&end.to_le_bytes());
    }
    items.iter().for_each(|item| out.extend_from_slice(item));
    out
}

/// How many items a group has.
///
/// # Errors
/// [`Corrupt`] if it is none.
pub fn items(group: &[u8]) -> Result<usize, Corrupt> {
    if group.len() < GROUP_HEADER {
        return Err(Corrupt::Short);
    }
    if u32_at(group, 0) != GROUP_MAGIC {
        return Err(Corrupt::Magic);
    }
    let count = u32_at(group, 4) as usize;
    if group.len() < GROUP_HEADER + count * 4 { Err(Corrupt::Short) } else { Ok(count) }
}

/// An item of a group; empty if there is none at that place.
///
/// # Errors
/// [`Corrupt`] if it is no group.
pub fn item(group: &[u8], index: usize) -> Result<&[u8], Corrupt> {
    let count = items(group)?;
    if index >= count {
        return Ok(&[]);
    }
    let end_of = |index: usize| u32_at(group, GROUP_HEADER + index * 4) as usize;
    let from = if index == 0 { 0 } else { end_of(index - 1) };
    let body = &group[GROUP_HEADER + count * 4..];
    body.get(from..end_of(index)).ok_or(Corrupt::Short)
}

/// A fragment or page.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Node {
    /// It is served as it is, not only built into others.
    pub page: bool,
    /// When it is to be rebuilt at the latest, in seconds since 1970; 0 for never.
    pub expiry: u64,
    /// Its name.
    pub name: Vec<u8>,
    /// What it is built from, ascending.
    pub dependencies: Vec<u32>,
}

impl Node {
    /// The item.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(NODE_HEADER + self.name.len() + 1 + self.dependencies.len() * 3);
        out.push(if self.page { PAGE } else { 0 });
        out.extend_from_slice(&self.expiry.to_le_bytes());
        out.extend_from_slice(&(self.name.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.name);
        push_ids(&mut out, &self.dependencies);
        out
    }

    /// Reads an item; `None` if the place is free.
    ///
    /// # Errors
    /// [`Corrupt`] if it is something else.
    pub fn decode(item: &[u8]) -> Result<Option<Self>, Corrupt> {
        if item.is_empty() {
            return Ok(None);
        }
        let rest = item.get(NODE_HEADER..).ok_or(Corrupt::Short)?;
        let (name, ids) = rest.split_at_checked(u32_at(item, 9) as usize).ok_or(Corrupt::Short)?;
        let page = match item[0] {
            0 => false,
            PAGE => true,
            _ => return Err(Corrupt::Field("flags")),
        };
        Ok(Some(Self { page, expiry: u64_at(item, 1), name: name.to_vec(), dependencies: take_ids(ids)? }))
    }
}

/// What is built from a node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edges {
    /// Dependents, ascending.
    Small(Vec<u32>),
    /// They lie apart.
    Large {
        /// log2 of the chunks that they are in.
        bits: u8,
        /// How many they are.
        count: u32,
    },
}

impl Default for Edges {
    fn default() -> Self {
        Self::Small(Vec::new())
    }
}

impl Edges {
    /// The item.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Small(ids) if ids.is_empty() => Vec::new(),
            Self::Small(ids) => {
                let mut out = vec![0];
                push_ids(&mut out, ids);
                out
            }
            Self::Large { bits, count } => [&[1, *bits][..], &count.to_le_bytes()].concat(),
        }
    }

    /// Reads an item.
    ///
    /// # Errors
    /// [`Corrupt`] if it is something else.
    pub fn decode(item: &[u8]) -> Result<Self, Corrupt> {
        match item {
            [] => Ok(Self::default()),
            [0, ids @ ..] => Ok(Self::Small(take_ids(ids)?)),
            [1, bits, count @ ..] if count.len() == 4 && *bits < 24 => {
                Ok(Self::Large { bits: *bits, count: u32_at(count, 0) })
            }
            _ => Err(Corrupt::Field("edges")),
        }
    }
}

/// Which record a copy in an image is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CopyOf {
    /// The nodes of a group.
    Nodes(u32),
    /// The dependents of the nodes of a group.
    Edges(u32),
    /// A chunk: id, log2 of the chunks, which.
    Chunk(u32, u8, u32),
}

const COPY_HEADER: usize = 10;

/// A copy of a record, as an item of an image's part.
#[must_use]
pub fn encode_copy(of: CopyOf, record: &[u8]) -> Vec<u8> {
    let (kind, number, bits, which) = match of {
        CopyOf::Nodes(group) => (0, group, 0, 0),
        CopyOf::Edges(group) => (1, group, 0, 0),
        CopyOf::Chunk(id, bits, which) => (2, id, bits, which),
    };
    [&[kind][..], &u32::to_le_bytes(number), &[bits], &u32::to_le_bytes(which), record].concat()
}

/// Reads a copy: which record, and its bytes.
///
/// # Errors
/// [`Corrupt`] if it is something else.
pub fn decode_copy(item: &[u8]) -> Result<(CopyOf, &[u8]), Corrupt> {
    let (header, record) = item.split_at_checked(COPY_HEADER).ok_or(Corrupt::Short)?;
    let (number, bits, which) = (u32_at(header, 1), header[5], u32_at(header, 6));
    let of = match header[0] {
        0 => CopyOf::Nodes(number),
        1 => CopyOf::Edges(number),
        2 => CopyOf::Chunk(number, bits, which),
        _ => return Err(Corrupt::Field("kind")),
    };
    Ok((of, record))
}

/// Version of an image: of what the settings say of it, of its parts, and of the records that they copy. Parts of the
/// first were not deflated.
pub const IMAGE: u32 = 2;

/// What the settings say of an image. In every version the first byte is whether it is believed, so that a program of
/// another one can take it back before it changes what the image copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ImageSaid {
    /// Nothing was changed since it was made.
    pub is_believed: bool,
    /// [`IMAGE`] if this program can read it; 0 for those from before there were versions.
    pub version: u32,
    /// Parts of an image that this program can read; else 0.
    pub parts: u32,
}

impl ImageSaid {
    /// Of an image of this version.
    #[must_use]
    pub fn new(is_believed: bool, parts: u32) -> Self {
        Self { is_believed, version: IMAGE, parts }
    }

    /// The bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        [&[u8::from(self.is_believed)][..], &self.version.to_le_bytes(), &self.parts.to_le_bytes()].concat()
    }

    /// Reads what they say. Another version is no error: what it says besides is not looked at.
    ///
    /// # Errors
    /// [`Corrupt`] if it is something else.
    pub fn decode(bytes: &[u8]) -> Result<Self, Corrupt> {
        let [is_believed @ (0 | 1), rest @ ..] = bytes else { return Err(Corrupt::Field("image")) };
        let is_believed = *is_believed == 1;
        match rest.len() {
            4 => Ok(Self { is_believed, version: 0, parts: 0 }),
            8 if u32_at(rest, 0) == IMAGE => Ok(Self::new(is_believed, u32_at(rest, 4))),
            8.. if u32_at(rest, 0) != IMAGE => Ok(Self { is_believed, version: u32_at(rest, 0), parts: 0 }),
            _ => Err(Corrupt::Field("image")),
        }
    }
}

/// Ascending ids, for a chunk.
#[must_use]
pub fn encode_ids(ids: &[u32]) -> Vec<u8> {
    let mut out = Vec::with_capacity(ids.len() * 2 + 5);
    push_ids(&mut out, ids);
    out
}

fn push_ids(out: &mut Vec<u8>, ids: &[u32]) {
    push_varint(out, ids.len() as u32);
    let mut last = 0;
    for &id in ids {
        push_varint(out, id.wrapping_sub(last));
        last = id;
    }
}

fn push_varint(out: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Reads ids.
///
/// # Errors
/// [`Corrupt`] if they are cut off or do not ascend.
pub fn take_ids(mut bytes: &[u8]) -> Result<Vec<u32>, Corrupt> {
    let count = take_varint(&mut bytes)? as usize;
    if count > bytes.len() {
        return Err(Corrupt::Short);
    }
    let mut ids: Vec<u32> = Vec::with_capacity(count);
    for index in 0..count {
        let step = take_varint(&mut bytes)?;
        let last = ids.last().copied().unwrap_or(0);
        let id = last.checked_add(step).filter(|_| index == 0 || step > 0).ok_or(Corrupt::Field("ids"))?;
        ids.push(id);
    }
    Ok(ids)
}

fn take_varint(bytes: &mut &[u8]) -> Result<u32, Corrupt> {
    let mut value = 0u64;
    for shift in (0..35).step_by(7) {
        let (&byte, rest) = bytes.split_first().ok_or(Corrupt::Short)?;
        *bytes = rest;
        value |= u64::from(byte & 0x7f) << shift;
        if byte < 0x80 {
            return u32::try_from(value).map_err(|_| Corrupt::Field("varint"));
        }
    }
    Err(Corrupt::Field("varint"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_come_back() {
        let node = Node { page: true, expiry: 9, name: b"/a".to_vec(), dependencies: vec![0, 1, 500, u32::MAX] };
        let edges = [Edges::Small(vec![3, 4]), Edges::default(), Edges::Large { bits: 4, count: 9000 }];
        let mut items_in = vec![node.encode(), Vec::new()];
        items_in.extend(edges.iter().map(Edges::encode));
        let group = encode_group(&items_in);
        assert_eq!(items(&group), Ok(5));
        assert_eq!(Node::decode(item(&group, 0).unwrap()), Ok(Some(node)));
        assert_eq!(Node::decode(item(&group, 1).unwrap()), Ok(None));
        for (index, expected) in edges.iter().enumerate() {
            assert_eq!(Edges::decode(item(&group, 2 + index).unwrap()).as_ref(), Ok(expected));
        }
        assert_eq!(item(&group, 5), Ok(&[][..]));
        for of in [CopyOf::Nodes(7), CopyOf::Edges(8), CopyOf::Chunk(9, 3, 5)] {
            assert_eq!(decode_copy(&encode_copy(of, b"record")), Ok((of, &b"record"[..])));
        }
        let said = ImageSaid::new(true, 12);
        assert_eq!(ImageSaid::decode(&said.encode()), Ok(said));
        let other = ImageSaid { version: 3, ..said };
        let longer = [&other.encode()[..], &[7; 5]].concat();
        assert_eq!(
            ImageSaid::decode(&longer),
            Ok(ImageSaid { parts: 0, ..other }),
            "another version, and no more of it"
        );
        let first = ImageSaid { is_believed: true, version: 0, parts: 0 };
        assert_eq!(ImageSaid::decode(&[1, 9, 0, 0, 0]), Ok(first), "before there were versions");
    }

    #[test]
    fn what_is_none_is_refused() {
        assert_eq!(items(b"PFgg"), Err(Corrupt::Short));
        assert_eq!(take_ids(&[2, 5]), Err(Corrupt::Short));
        assert_eq!(take_ids(&[2, 5, 0]), Err(Corrupt::Field("ids")));
        assert_eq!(take_ids(&[1, 0xff, 0xff, 0xff, 0xff, 0xff]), Err(Corrupt::Field("varint")));
        assert_eq!(decode_copy(&[0; 9]), Err(Corrupt::Short));
        assert_eq!(decode_copy(&[3; 10]), Err(Corrupt::Field("kind")));
        assert_eq!(ImageSaid::decode(&[2, 0, 0, 0, 0]), Err(Corrupt::Field("image")));
        assert_eq!(ImageSaid::decode(&[1, 1, 0, 0, 0, 9]), Err(Corrupt::Field("image")));
        assert_eq!(Edges::decode(&[7]), Err(Corrupt::Field("edges")));
        assert_eq!(Node::decode(&[9; 40]), Err(Corrupt::Short));
    }
}
