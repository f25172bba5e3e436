//! Slices of a large object: parts of one size, each fetched when it is asked for and stored as an object of its own.
//!
//! * Under the URL's key, or the variant's, lies the head that every answer has: a response without a body, which says
//!   how long the whole is and how long a slice ([`Slicing`]).
//! * The key of a slice has a number in it that is of one version of the object: of its strong validator, its coding,
//!   its length, and of the last purge when that head was fetched. So no head ever finds a slice of another body, nor
//!   one from before a purge.
//! * What an origin answers to the request for a slice is judged here, by what it says of itself.

use std::ops::Range;

use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};

use crate::{
    key,
    rules::{
        directives::number,
        validate::{self, text},
    },
};

/// Shortest slice: what is longer than this is stored as a stream.
pub(crate) const SMALLEST: u64 = 64 << 10;

/// A range that begins behind this was asked for from the end: the length is not known yet.
const END: u64 = 1 << 60;

/// How an object is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Slicing {
    /// Of this version of it.
    pub(crate) nonce: u64,
    /// Bytes of each slice but the last.
    pub(crate) size: u64,
    /// Bytes of the whole.
    pub(crate) total: u64,
}

impl Slicing {
    /// How many slices there are.
    pub(crate) fn count(&self) -> u64 {
        self.total.div_ceil(self.size.max(1))
    }

    /// Which slice has this byte.
    pub(crate) fn at(&self, byte: u64) -> u64 {
        byte / self.size.max(1)
    }

    /// The bytes of a slice.
    pub(crate) fn range(&self, n: u64) -> Range<u64> {
        let start = n.saturating_mul(self.size).min(self.total);
        start..start.saturating_add(self.size).min(self.total)
    }

    /// The keys of all slices of the response at `key`.
    pub(crate) fn keys<'a>(&self, key: &'a [u8]) -> impl Iterator<Item = Vec<u8>> + 'a {
        let nonce = self.nonce;
        (0..self.count()).map(move |n| key::slice(key, nonce, n))
    }
}

/// `Range` for these bytes.
pub(crate) fn field(range: &Range<u64>) -> HeaderValue {
    text(format!("bytes={}-{}", range.start, range.end.saturating_sub(1)))
}

/// What is known of an object whose slices are wanted.
#[derive(Debug, Clone)]
pub(crate) struct Manifest {
    /// Under which its head lies.
    pub(crate) key: Vec<u8>,
    pub(crate) slicing: Slicing,
    /// Its strong validator, and the field that has it.
    pub(crate) validator: (HeaderName, HeaderValue),
    encoding: Option<HeaderValue>,
}

impl Manifest {
    /// Of the head at `key`; `None` if it has no strong validator.
    pub(crate) fn of(key: &[u8], slicing: Slicing, fields: &HeaderMap) -> Option<Self> {
        let encoding = fields.get(header::CONTENT_ENCODING).cloned();
        Some(Self { key: key.to_vec(), slicing, validator: validate::strong(fields)?, encoding })
    }

    /// Whether a response is this slice of this version, and nothing else.
    pub(crate) fn has<B: http_body::Body>(&self, n: u64, response: &Response<B>) -> bool {
        let (fields, (name, value)) = (response.headers(), &self.validator);
        response.status() == StatusCode::PARTIAL_CONTENT
            && part(response) == Some((self.slicing.range(n), self.slicing.total))
            && fields.get(name) == Some(value)
            && fields.get(header::CONTENT_ENCODING) == self.encoding.as_ref()
    }
}

/// What the first request for an object asks for, of which nothing is known.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct First {
    /// Bytes of a slice.
    pub(crate) size: u64,
    /// A slice; or the first byte alone, to see how long the whole is.
    pub(crate) range: Range<u64>,
}

/// What came of that.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Came {
    /// Those bytes of a whole of this length.
    Part(u64),
    /// All there is.
    Whole,
    /// There is less than was asked for.
    Less,
    /// A part that cannot be told from one of another version, or another part. It is to be asked for whole.
    Unfit,
    /// No part.
    Other,
}

impl First {
    /// For what `range`, a client's field, begins with.
    pub(crate) fn new(size: u64, range: Option<&HeaderValue>) -> Self {
        use crate::range::{Plan, plan};
        let start = match range.map(|range| plan(range.as_bytes(), u64::MAX)) {
            Some(Plan::One(range)) => range.start,
            Some(Plan::Several(ranges)) => ranges.first().map_or(0, |range| range.start),
            _ => 0,
        };
        if start >= END {
            return Self::look(size);
        }
        let start = start - start % size;
        Self { size, range: start..start + size }
    }

    /// Only to see how long the whole is.
    pub(crate) fn look(size: u64) -> Self {
        Self { size, range: 0..1 }
    }

    pub(crate) fn came<B: http_body::Body>(&self, response: &Response<B>) -> Came {
        match response.status() {
            StatusCode::PARTIAL_CONTENT => {}
            StatusCode::RANGE_NOT_SATISFIABLE if self.range.start > 0 => return Came::Less,
            StatusCode::RANGE_NOT_SATISFIABLE => return Came::Unfit,
            _ => return Came::Other,
        }
        let Some((part, total)) = part(response) else { return Came::Unfit };
        if part == (0..total) {
            return Came::Whole;
        }
        let is_asked = part == (self.range.start..self.range.end.min(total));
        let is_worth_it = total > self.size && total.div_ceil(self.size) <= u64::from(u32::MAX);
        if is_asked && is_worth_it && validate::strong(response.headers()).is_some() {
            Came::Part(total)
        } else {
            Came::Unfit
        }
    }
}

/// The part that a response says it is, and the length of the whole; `None` if it does not, or its body has another
/// length.
fn part<B: http_body::Body>(response: &Response<B>) -> Option<(Range<u64>, u64)> {
    let value = response.headers().get(header::CONTENT_RANGE)?.to_str().ok()?;
    let (range, total) = value.strip_prefix("bytes ")?.split_once('/')?;
    let (first, last) = range.split_once('-')?;
    let (first, last, total) = (number(first)?, number(last)?, number(total)?);
    let len = response.body().size_hint().exact();
    let fits = first <= last && last < total && len.is_none_or(|len| len == last - first + 1);
    fits.then_some((first..last + 1, total))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SIZE: u64 = 1000;

    fn response(status: u16, fields: &[(&'static str, &str)], len: usize) -> Response<String> {
        let mut response = Response::new("x".repeat(len));
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        for (name, value) in fields {
            response.headers_mut().insert(*name, HeaderValue::from_str(value).unwrap());
        }
        response
    }

    #[test]
    fn the_slice_that_a_range_begins_in() {
        for (range, start, len) in [
            ("bytes=0-5", 0, SIZE),
            ("bytes=999-", 0, SIZE),
            ("bytes=1000-3000", 1000, SIZE),
            ("bytes=5500-5600,0-1", 5000, SIZE),
            ("bytes=-10", 0, 1),
            ("bytes=x", 0, SIZE),
            ("lines=7000-", 0, SIZE),
        ] {
            let first = First::new(SIZE, Some(&HeaderValue::from_static(range)));
            assert_eq!(first.range, start..start + len, "{range}");
        }
    }

    #[test]
    fn what_an_origin_says_of_a_part_is_what_counts() {
        let first = First { size: SIZE, range: 2000..3000 };
        let strong = ("etag", "\"v\"");
        for (status, fields, len, came) in [
            (206, &[("content-range", "bytes 2000-2999/10000"), strong][..], 1000, Came::Part(10_000)),
            (206, &[("content-range", "bytes 2000-2499/2500"), strong], 500, Came::Part(2500)),
            (206, &[("content-range", "bytes 0-99/100")], 100, Came::Whole),
            (206, &[("content-range", "bytes 2000-2999/10000")], 1000, Came::Unfit),
            (206, &[("content-range", "bytes 2000-2999/10000"), ("etag", "W/\"v\"")], 1000, Came::Unfit),
            (206, &[("content-range", "bytes 2000-2998/10000"), strong], 999, Came::Unfit),
            (206, &[("content-range", "bytes 2000-2999/10000"), strong], 999, Came::Unfit),
            (206, &[("content-range", "bytes 2000-2999/*"), strong], 1000, Came::Unfit),
            (206, &[("content-range", "bytes 2000-2999/2500"), strong], 1000, Came::Unfit),
            (206, &[("content-type", "multipart/byteranges; boundary=x"), strong], 1000, Came::Unfit),
            (200, &[strong], 10_000, Came::Other),
            (404, &[], 3, Came::Other),
            (416, &[("content-range", "bytes */100")], 0, Came::Less),
        ] {
            assert_eq!(first.came(&response(status, fields, len)), came, "{status} {fields:?}");
        }
        assert_eq!(First::look(SIZE).came(&response(416, &[], 0)), Came::Unfit);
        let small = response(206, &[("content-range", "bytes 0-0/1000"), strong], 1);
        assert_eq!(First::look(SIZE).came(&small), Came::Unfit, "one slice is no slices");
    }

    #[test]
    fn a_slice_is_of_one_version() {
        let slicing = Slicing { nonce: 1, size: SIZE, total: 2500 };
        assert_eq!((slicing.count(), slicing.range(2), slicing.at(2499)), (3, 2000..2500, 2));
        let fields = response(200, &[("etag", "\"v\""), ("content-encoding", "br")], 0).headers().clone();
        let manifest = Manifest::of(b"k", slicing, &fields).unwrap();
        let range = ("content-range", "bytes 2000-2499/2500");
        assert!(manifest.has(2, &response(206, &[range, ("etag", "\"v\""), ("content-encoding", "br")], 500)));
        assert!(!manifest.has(1, &response(206, &[range, ("etag", "\"v\""), ("content-encoding", "br")], 500)));
        assert!(!manifest.has(2, &response(206, &[range, ("etag", "\"w\""), ("content-encoding", "br")], 500)));
        assert!(!manifest.has(2, &response(206, &[range, ("etag", "\"v\"")], 500)));
        assert!(!manifest.has(2, &response(200, &[range, ("etag", "\"v\""), ("content-encoding", "br")], 500)));
    }
}
