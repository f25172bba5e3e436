//! What is stored beside a body, in the store's metadata: version 2.
//!
//! | offset | bytes | response (kind 1), newer head (kind 3), head of slices (kind 4) | index of variants (kind 2) |
//! |---|---|---|---|
//! | 0 | 1 | version | version |
//! | 1 | 1 | kind | kind |
//! | 2 | 2 | status | number of field names |
//! | 4 | 4 | flags: 1 no-cache, 2 must-revalidate, 4 stale-if-error given | number of variants |
//! | 8 | 8 | birth, see `rules::Policy` | nonce |
//! | 16 | 8 | lifetime | names: length byte, text; then variants: 16 bytes each |
//! | 24 | 8 | stale-while-revalidate | |
//! | 32 | 8 | stale-if-error | |
//! | 40 | 8 | when the head was received | |
//! | 48 | 8 | kind 3: generation of the object whose head this is; kind 4: number of the version | |
//! | 56 | 8 | the last purge when the fetch began, see `purge::sequence` | |
//! | 64 | 4 | number of tags | |
//! | 68 | 4 | kind 4: KiB of a slice; else zero | |
//! | 72 | 8 each | tags, see `purge::tags` | |
//! | | 8 | kind 4 alone: bytes of the whole body, which is in slices, see `slices` | |
//! | | rest | status line and fields as they go over the wire, without `Content-Length`, `Age`, empty line | |
//!
//! What version 1 stored, which knew no purges, is a miss.
//!
//! Integers are little-endian. The head is kept as it is sent, so a hit copies it and adds three fields.
//! Whatever does not decode is a miss, never an error.

use std::iter;

use http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use memchr::memchr;

use crate::{rules::Policy, slices::Slicing, wire};

const VERSION: u8 = 2;
const RESPONSE: u8 = 1;
const VARY: u8 = 2;
const NEWER: u8 = 3;
const SLICED: u8 = 4;
const TAGS: usize = 72;

/// Longest metadata the store takes.
pub(crate) const MAX: usize = 64 << 10;

/// Metadata, decoded once while an object is in memory.
#[derive(Debug)]
pub(crate) enum Stored {
    /// A response; its fields follow at [`Head::wire`].
    Response(Head),
    /// The variants of a URL.
    Vary(Index),
    /// Of another version, or not ours.
    Unreadable,
}

/// Of a stored response, what every use looks at.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head {
    pub(crate) status: StatusCode,
    pub(crate) policy: Policy,
    pub(crate) received: u64,
    /// The last purge when its fetch began.
    pub(crate) seq: u64,
    /// Of a newer head: the object it belongs to.
    pub(crate) generation: u64,
    /// Its body lies in slices.
    pub(crate) slicing: Option<Slicing>,
    /// `policy.fresh_until()`, and whether the fast path may use the response at all.
    pub(crate) fast_until: u64,
}

/// A field of a stored head.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Field<'a> {
    /// In lower case.
    pub(crate) name: &'a [u8],
    pub(crate) value: &'a [u8],
    /// Both, with what ends the line.
    pub(crate) line: &'a [u8],
}

/// Which variants of a URL are stored.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Index {
    pub(crate) nonce: u64,
    pub(crate) names: Vec<String>,
    pub(crate) variants: Vec<u128>,
}

impl Head {
    /// The head as it is sent, out of the metadata it was decoded from.
    pub(crate) fn wire(metadata: &[u8]) -> &[u8] {
        let total = if metadata.get(1) == Some(&SLICED) { 8 } else { 0 };
        metadata.get(TAGS.saturating_add(Self::tags_len(metadata)).saturating_add(total)..).unwrap_or(&[])
    }

    fn tags_len(metadata: &[u8]) -> usize {
        let count = metadata.get(64..68).and_then(|count| count.try_into().ok()).map_or(0, u32::from_le_bytes);
        (count as usize).saturating_mul(8)
    }

    /// The tags, out of the same.
    pub(crate) fn tags(metadata: &[u8]) -> impl Iterator<Item = u64> {
        let tags = metadata.get(TAGS..TAGS.saturating_add(Self::tags_len(metadata))).unwrap_or(&[]);
        tags.as_chunks().0.iter().map(|tag| u64::from_le_bytes(*tag))
    }

    /// The fields, parsed.
    pub(crate) fn fields(metadata: &[u8]) -> HeaderMap {
        let mut fields = HeaderMap::with_capacity(16);
        for Field { name, value, .. } in Self::lines(metadata) {
            if let (Ok(name), Ok(value)) = (HeaderName::from_bytes(name), HeaderValue::from_bytes(value)) {
                fields.append(name, value);
            }
        }
        fields
    }

    /// The fields, as they were written.
    pub(crate) fn lines(metadata: &[u8]) -> impl Iterator<Item = Field<'_>> {
        let mut rest = Self::wire(metadata);
        let mut next = move || {
            let line;
            (line, rest) = rest.split_at(memchr(b'\n', rest).map_or(rest.len(), |end| end + 1));
            (!line.is_empty()).then_some(line)
        };
        let _status = next();
        iter::from_fn(next).filter_map(|line| {
            let colon = memchr(b':', line)?;
            let value = line[colon + 1..].strip_prefix(b" ").unwrap_or(&line[colon + 1..]);
            let value = value.strip_suffix(b"\n").unwrap_or(value);
            Some(Field { name: &line[..colon], value: value.strip_suffix(b"\r").unwrap_or(value), line })
        })
    }
}

/// What is noted of a response beside its fields.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Note<'a> {
    pub(crate) policy: &'a Policy,
    pub(crate) received: u64,
    pub(crate) seq: u64,
    pub(crate) tags: &'a [u64],
}

/// Where the body is.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Body {
    /// Beside the head.
    Here,
    /// It is that of the object of this generation, whose newer head this is.
    Of(u64),
    Sliced(Slicing),
}

/// The metadata of a response.
pub(crate) fn encode(status: StatusCode, fields: &HeaderMap, note: &Note<'_>, body: Body) -> Vec<u8> {
    let Note { policy, received, seq, tags } = *note;
    let mut out = Vec::with_capacity(TAGS + tags.len() * 8 + 72 + fields.len() * 48);
    let (kind, number, slice_kib, total) = match body {
        Body::Here => (RESPONSE, 0, 0, None),
        Body::Of(generation) => (NEWER, generation, 0, None),
        Body::Sliced(Slicing { nonce, size, total }) => (SLICED, nonce, size >> 10, Some(total)),
    };
    out.extend_from_slice(&[VERSION, kind]);
    out.extend_from_slice(&status.as_u16().to_le_bytes());
    let flags = u32::from(policy.no_cache)
        | u32::from(policy.must_revalidate) << 1
        | u32::from(policy.stale_if_error.is_some()) << 2;
    out.extend_from_slice(&flags.to_le_bytes());
    for number in [
        policy.birth,
        policy.lifetime,
        policy.stale_while_revalidate,
        policy.stale_if_error.unwrap_or(0),
        received,
        number,
        seq,
        tags.len() as u64 | slice_kib << 32,
    ]
    .iter()
    .chain(tags)
    .chain(&total)
    {
        out.extend_from_slice(&number.to_le_bytes());
    }
    wire::push_status(&mut out, false, status, None);
    for (name, value) in fields {
        if matches!(*name, header::CONTENT_LENGTH | header::AGE) {
            continue;
        }
        wire::push_line(&mut out, name.as_str(), value.as_bytes());
    }
    out
}

/// The metadata of a response as they are once its policy has come to this end, under this number of the sequence.
pub(crate) fn ended(metadata: &[u8], policy: &Policy, seq: u64) -> Vec<u8> {
    let mut out = metadata.to_vec();
    for (at, number) in [(16, policy.lifetime), (56, seq)] {
        if let Some(place) = out.get_mut(at..at + 8) {
            place.copy_from_slice(&number.to_le_bytes());
        }
    }
    out
}

/// The metadata of an index; `None` when it has too many or too long names.
pub(crate) fn encode_index(index: &Index) -> Option<Vec<u8>> {
    let mut out = vec![VERSION, VARY];
    out.extend_from_slice(&u16::try_from(index.names.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&u32::try_from(index.variants.len()).ok()?.to_le_bytes());
    out.extend_from_slice(&index.nonce.to_le_bytes());
    for name in &index.names {
        out.push(u8::try_from(name.len()).ok()?);
        out.extend_from_slice(name.as_bytes());
    }
    for variant in &index.variants {
        out.extend_from_slice(&variant.to_le_bytes());
    }
    (out.len() <= MAX).then_some(out)
}

fn number(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?))
}

/// Decodes metadata of any kind.
pub(crate) fn decode(metadata: &[u8]) -> Stored {
    let decoded = match metadata {
        [VERSION, RESPONSE | NEWER | SLICED, ..] => decode_response(metadata).map(Stored::Response),
        [VERSION, VARY, ..] => decode_index(metadata).map(Stored::Vary),
        _ => None,
    };
    decoded.unwrap_or(Stored::Unreadable)
}

fn decode_response(bytes: &[u8]) -> Option<Head> {
    let status = StatusCode::from_u16(u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?)).ok()?;
    let flags = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?);
    let policy = Policy {
        birth: number(bytes, 8)?,
        lifetime: number(bytes, 16)?,
        no_cache: flags & 1 != 0,
        must_revalidate: flags & 2 != 0,
        stale_while_revalidate: number(bytes, 24)?,
        stale_if_error: if flags & 4 != 0 { Some(number(bytes, 32)?) } else { None },
    };
    let kind = bytes.get(1);
    let slicing = if kind == Some(&SLICED) {
        let kib = u32::from_le_bytes(bytes.get(68..72)?.try_into().ok()?);
        let total = number(bytes, TAGS.checked_add(Head::tags_len(bytes))?)?;
        Some(Slicing { nonce: number(bytes, 48)?, size: u64::from(kib.max(1)) << 10, total })
    } else {
        None
    };
    let wire = Head::wire(bytes);
    if !wire.starts_with(b"HTTP/1.1 ") || !wire.ends_with(b"\r\n") {
        return None;
    }
    let bodiless = matches!(status.as_u16(), 204 | 304);
    Some(Head {
        status,
        policy,
        received: number(bytes, 40)?,
        generation: number(bytes, 48)?,
        seq: number(bytes, 56)?,
        slicing,
        fast_until: if kind != Some(&RESPONSE) || bodiless { 0 } else { policy.fresh_until() },
    })
}

fn decode_index(bytes: &[u8]) -> Option<Index> {
    let names = u16::from_le_bytes(bytes.get(2..4)?.try_into().ok()?);
    let variants = u32::from_le_bytes(bytes.get(4..8)?.try_into().ok()?) as usize;
    let mut index = Index { nonce: number(bytes, 8)?, ..Index::default() };
    let mut at = 16;
    for _ in 0..names {
        let len = usize::from(*bytes.get(at)?);
        let name = bytes.get(at + 1..at + 1 + len)?;
        index.names.push(HeaderName::from_bytes(name).ok()?.as_str().to_owned());
        at += 1 + len;
    }
    let rest = bytes.get(at..)?;
    if rest.len() != variants.checked_mul(16)? {
        return None;
    }
    index.variants = rest.chunks_exact(16).map(|c| u128::from_le_bytes(c.try_into().unwrap_or_default())).collect();
    Some(index)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn policy() -> Policy {
        Policy {
            birth: 1_700_000_000_123,
            lifetime: 60_000,
            no_cache: true,
            must_revalidate: false,
            stale_while_revalidate: 7,
            stale_if_error: Some(9),
        }
    }

    #[test]
    fn a_response_comes_back() {
        let mut fields = HeaderMap::new();
        fields.append("content-type", HeaderValue::from_static("text/html"));
        fields.append("content-length", HeaderValue::from_static("12"));
        fields.append("link", HeaderValue::from_static("</a>"));
        fields.append("link", HeaderValue::from_static(""));
        let note = Note { policy: &policy(), received: 42, seq: 43, tags: &[44, 45] };
        let bytes = encode(StatusCode::NOT_FOUND, &fields, &note, Body::Here);
        let Stored::Response(head) = decode(&bytes) else { panic!("not a response") };
        assert_eq!((head.seq, Head::tags(&bytes).collect::<Vec<_>>()), (43, vec![44, 45]));
        assert_eq!((head.status, head.policy, head.received), (StatusCode::NOT_FOUND, policy(), 42));
        assert_eq!(head.fast_until, 0, "no-cache is not for the fast path");
        fields.remove("content-length");
        assert_eq!(Head::fields(&bytes), fields);
        assert!(Head::wire(&bytes).starts_with(b"HTTP/1.1 404 Not Found\r\ncontent-type: text/html\r\n"));
    }

    #[test]
    fn a_head_of_slices_comes_back_and_is_not_for_the_fast_path() {
        let fields = HeaderMap::from_iter([(header::ETAG, HeaderValue::from_static("\"e\""))]);
        let slicing = Slicing { nonce: u64::MAX, size: 8 << 20, total: 10 << 30 };
        let note = Note { policy: &Policy::of(0, 1), received: 42, seq: 43, tags: &[44, 45] };
        let bytes = encode(StatusCode::OK, &fields, &note, Body::Sliced(slicing));
        let Stored::Response(head) = decode(&bytes) else { panic!("not a response") };
        assert_eq!((head.slicing, head.fast_until), (Some(slicing), 0));
        assert_eq!((Head::tags(&bytes).collect::<Vec<_>>(), Head::fields(&bytes)), (vec![44, 45], fields));
    }

    #[test]
    fn an_index_comes_back() {
        let index = Index { nonce: 5, names: vec!["accept".into(), "cookie".into()], variants: vec![1, u128::MAX] };
        let bytes = encode_index(&index).unwrap();
        let Stored::Vary(back) = decode(&bytes) else { panic!("not an index") };
        assert_eq!(back, index);
        assert!(matches!(decode(&bytes[..bytes.len() - 1]), Stored::Unreadable));
    }

    proptest! {
        #[test]
        fn any_bytes_decode_to_something(bytes in proptest::collection::vec(any::<u8>(), 0..200), kind in 0u8..5) {
            let mut bytes = bytes;
            if bytes.len() > 1 { bytes[0] = VERSION; bytes[1] = kind; }
            let _ = decode(&bytes);
            let _ = Head::fields(&bytes);
        }
    }
}
