//! `Range` (RFC 9110 14): which bytes of a body of known length are asked for, and how parts are framed.

use std::{collections::VecDeque, fmt::Write as _, ops::Range};

use bytes::Bytes;
use http::HeaderValue;

/// What to send.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Plan {
    /// All of it, 200: no range, one we do not know, or more parts than are sensible.
    Whole,
    /// One part, 206.
    One(Range<u64>),
    /// Several parts, 206 `multipart/byteranges`.
    Several(Vec<Range<u64>>),
    /// None of the ranges touches the body, 416.
    Nothing,
}

const MOST_PARTS: usize = 16;

/// Reads the field's value against a body of `len` bytes.
pub(crate) fn plan(value: &[u8], len: u64) -> Plan {
    parse(value, len).unwrap_or(Plan::Whole)
}

fn digits(text: &str) -> Option<u64> {
    let fits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    fits.then(|| text.parse().unwrap_or(u64::MAX))
}

/// `None`: not a valid set of byte ranges, to be ignored (14.2).
fn parse(value: &[u8], len: u64) -> Option<Plan> {
    let text = std::str::from_utf8(value).ok()?;
    let (unit, set) = text.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut parts = Vec::new();
    let mut asked = 0;
    for spec in set.split(',').map(str::trim).filter(|spec| !spec.is_empty()) {
        asked += 1;
        if asked > 4 * MOST_PARTS {
            return None;
        }
        let (first, last) = spec.split_once('-')?;
        let range = if first.is_empty() {
            len.saturating_sub(digits(last)?)..len
        } else {
            let first = digits(first)?;
            let last = if last.is_empty() { u64::MAX } else { digits(last)? };
            if last < first {
                return None;
            }
            first..last.saturating_add(1).min(len)
        };
        if range.start < range.end {
            parts.push(range);
        }
    }
    if asked == 0 {
        return None;
    }
    Some(match parts.len() {
        0 => Plan::Nothing,
        1 => Plan::One(parts.remove(0)),
        _ => several(parts, len),
    })
}

/// Overlapping and touching parts become one; a request for more than there is, or for very many, gets the whole.
fn several(parts: Vec<Range<u64>>, len: u64) -> Plan {
    let mut sorted = parts.clone();
    sorted.sort_unstable_by_key(|range| range.start);
    let mut merged: Vec<Range<u64>> = Vec::new();
    for range in sorted {
        match merged.last_mut() {
            Some(last) if range.start <= last.end => last.end = last.end.max(range.end),
            _ => merged.push(range),
        }
    }
    match merged.as_slice() {
        [one] if *one == (0..len) => Plan::Whole,
        [one] => Plan::One(one.clone()),
        many if many.len() > MOST_PARTS => Plan::Whole,
        // Without overlap the order that was asked for is kept (15.3.7.2).
        many if many.len() == parts.len() => Plan::Several(parts),
        _ => Plan::Several(merged),
    }
}

/// Bytes of a body that is put together of these.
pub(crate) fn len(pieces: &VecDeque<Piece>) -> u64 {
    let len = |piece: &Piece| match piece {
        Piece::Text(text) => text.len() as u64,
        Piece::Part(range) => range.end - range.start,
    };
    pieces.iter().map(len).sum()
}

/// `Content-Range` of a part.
pub(crate) fn content_range(range: &Range<u64>, len: u64) -> String {
    format!("bytes {}-{}/{len}", range.start, range.end - 1)
}

/// What a body is put together of.
pub(crate) enum Piece {
    Text(Bytes),
    /// Bytes of the object.
    Part(Range<u64>),
}

/// A multipart body over an object of `len` bytes.
pub(crate) fn multipart(
    len: u64,
    parts: &[Range<u64>],
    boundary: &str,
    content_type: Option<&HeaderValue>,
) -> VecDeque<Piece> {
    let mut pieces = VecDeque::with_capacity(parts.len() * 2 + 1);
    for (n, range) in parts.iter().enumerate() {
        let mut text = String::new();
        let _ = write!(text, "{}--{boundary}\r\n", if n == 0 { "" } else { "\r\n" });
        if let Some(kind) = content_type.and_then(|kind| kind.to_str().ok()) {
            let _ = write!(text, "Content-Type: {kind}\r\n");
        }
        let _ = write!(text, "Content-Range: {}\r\n\r\n", content_range(range, len));
        pieces.push_back(Piece::Text(Bytes::from(text)));
        pieces.push_back(Piece::Part(range.clone()));
    }
    pieces.push_back(Piece::Text(Bytes::from(format!("\r\n--{boundary}--\r\n"))));
    pieces
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn each_form_of_a_range() {
        use Plan::{Nothing, One, Several, Whole};
        let rows = [
            ("bytes=0-0", One(0..1)),
            ("bytes=0-", One(0..100)),
            ("BYTES=90-200", One(90..100)),
            ("bytes=-5", One(95..100)),
            ("bytes=-500", One(0..100)),
            ("bytes=-0", Nothing),
            ("bytes=100-", Nothing),
            ("bytes=200-300,400-", Nothing),
            ("bytes=200-,3-4", One(3..5)),
            ("bytes=5-4", Whole),
            ("bytes=a-b", Whole),
            ("bytes=", Whole),
            ("bytes", Whole),
            ("items=0-1", Whole),
            ("bytes=1-2-3", Whole),
            ("bytes=+1-2", Whole),
            ("bytes=0-1,4-5", Several(vec![0..2, 4..6])),
            ("bytes=4-5 , 0-1", Several(vec![4..6, 0..2])),
            ("bytes=0-4,5-9", One(0..10)),
            ("bytes=0-,0-,0-", Whole),
            ("bytes=0-1,1-2,8-9", Several(vec![0..3, 8..10])),
            ("bytes=99999999999999999999-", Nothing),
            ("bytes=0-99999999999999999999", One(0..100)),
        ];
        for (text, plan) in rows {
            assert_eq!(super::plan(text.as_bytes(), 100), plan, "{text}");
        }
    }

    #[test]
    fn an_empty_body_has_no_ranges() {
        for text in ["bytes=0-", "bytes=-1", "bytes=0-0"] {
            assert_eq!(plan(text.as_bytes(), 0), Plan::Nothing, "{text}");
        }
    }

    #[test]
    fn very_many_parts_get_the_whole() {
        let set: Vec<String> = (0..17).map(|n| format!("{}-{}", n * 4, n * 4)).collect();
        assert_eq!(plan(format!("bytes={}", set.join(",")).as_bytes(), 100), Plan::Whole);
    }

    proptest! {
        #[test]
        fn a_plan_stays_inside_the_body(text in "bytes=[0-9,\\- ]{0,40}", len in 0u64..200) {
            let parts = match plan(text.as_bytes(), len) {
                Plan::One(range) => vec![range],
                Plan::Several(parts) => parts,
                Plan::Whole | Plan::Nothing => vec![],
            };
            for range in parts {
                prop_assert!(range.start < range.end && range.end <= len);
            }
        }
    }
}
