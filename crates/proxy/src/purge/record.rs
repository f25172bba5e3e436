//! A purge as the store pins it: version 1.
//!
//! | offset | bytes | |
//! |---|---|---|
//! | 0 | 1 | version |
//! | 1 | 1 | kind of the selector, see [`Kind`] |
//! | 2 | 1 | 1: soft |
//! | 3 | 1 | number of hashes |
//! | 4 | 8 | number in the sequence |
//! | 12 | 8 | when, in milliseconds since 1970 |
//! | 20 | 12 each | hashes: length of a prefix 4, hash 8 |
//! | | rest | the selector's text |
//!
//! Integers are little-endian. A record that does not decode is as a purge of everything: what it selected is
//! not known.

use xxhash_rust::xxh3::xxh3_128;

use super::selector::{Kind, Selector};

const VERSION: u8 = 1;
const HEAD: usize = 20;
const HASH: usize = 12;

/// A purge.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) selector: Selector,
    pub(crate) seq: u64,
    /// When, in milliseconds since 1970.
    pub(crate) at: u64,
    /// What is selected is stale, else it is gone.
    pub(crate) soft: bool,
}

impl Record {
    /// The name that it is pinned by: a later purge of the same takes its place.
    pub(crate) fn name(&self) -> u128 {
        let mut text = vec![self.selector.kind as u8, u8::from(self.soft)];
        for (len, hash) in &self.selector.hashes {
            text.extend_from_slice(&len.to_le_bytes());
            text.extend_from_slice(&hash.to_le_bytes());
        }
        if self.selector.kind == Kind::Pattern {
            text.extend_from_slice(self.selector.text.as_bytes());
        }
        xxh3_128(&text)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Selector { kind, text, hashes } = &self.selector;
        let mut out = vec![VERSION, *kind as u8, u8::from(self.soft), hashes.len() as u8];
        out.extend_from_slice(&self.seq.to_le_bytes());
        out.extend_from_slice(&self.at.to_le_bytes());
        for (len, hash) in hashes {
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(&hash.to_le_bytes());
        }
        out.extend_from_slice(text.as_bytes());
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<Self> {
        let [VERSION, kind, soft, count, ..] = *bytes else { return None };
        let number = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let (seq, at) = (number(4)?, number(12)?);
        let end = HEAD + usize::from(count) * HASH;
        let hashes = bytes.get(HEAD..end)?.chunks_exact(HASH).map(|hash| {
            let (len, hash) = hash.split_at(4);
            Some((u32::from_le_bytes(len.try_into().ok()?), u64::from_le_bytes(hash.try_into().ok()?)))
        });
        let (hashes, text) = (hashes.collect::<Option<_>>()?, String::from_utf8(bytes[end..].to_vec()).ok()?);
        Some(Self { selector: Selector { kind: Kind::of(kind)?, text, hashes }, seq, at, soft: soft == 1 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_comes_back_and_is_named_by_what_it_selects() {
        for kind in Kind::ALL {
            let text = match kind {
                Kind::Url | Kind::Prefix => "http://a.org/x",
                Kind::Pattern => "*.a.org/*",
                _ => "a.org",
            };
            let selector = Selector::parse(kind, text, Some("b.org")).unwrap();
            let record = Record { selector, seq: 7, at: 8, soft: true };
            assert_eq!(Record::decode(&record.encode()).as_ref(), Some(&record));
            assert_eq!(Record { seq: 9, at: 10, ..record.clone() }.name(), record.name());
            assert_ne!(Record { soft: false, ..record.clone() }.name(), record.name());
        }
        assert_eq!(Record::decode(&[2; 40]), None);
        assert_eq!(Record::decode(&[]), None);
    }
}
