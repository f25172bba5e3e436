//! Messages of HTTP/1 as they go over the wire: how heads are written, and what is taken out of parsed ones.

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use httparse::Header;
use memchr::memchr;

/// The reason phrase of a status that has none of its own.
pub(crate) const NO_REASON: &str = "Status";

/// As many fields as we add to most messages.
const OURS: usize = 6;

/// Appends the first line of an answer, to a client of HTTP/1.0 if it `is_old`.
pub(crate) fn push_status(out: &mut Vec<u8>, is_old: bool, status: StatusCode, reason: Option<&[u8]>) {
    let version: &[u8] = if is_old { b"HTTP/1.0 " } else { b"HTTP/1.1 " };
    let reason = reason.unwrap_or_else(|| status.canonical_reason().unwrap_or(NO_REASON).as_bytes());
    for part in [version, status.as_str().as_bytes(), b" ", reason, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends a field as it is sent.
pub(crate) fn push_line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    for part in [name.as_bytes(), b": ", value, b"\r\n"] {
        out.extend_from_slice(part);
    }
}

/// Appends a field that ends in a number, and what stands before that.
pub(crate) fn push_field(out: &mut Vec<u8>, before: &[u8], number: u64) {
    out.extend_from_slice(before);
    push_number(out, number);
    out.extend_from_slice(b"\r\n");
}

/// Appends a number in decimal digits.
pub(crate) fn push_number(out: &mut Vec<u8>, mut n: u64) {
    let mut digits = [0u8; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (n % 10) as u8;
        n /= 10;
        if n == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

/// Bytes that were parsed, and one copy of them, which all that is taken from them shares.
pub(crate) struct Parsed<'a> {
    bytes: &'a [u8],
    copy: Bytes,
}

impl<'a> Parsed<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self { bytes, copy: Bytes::copy_from_slice(bytes) }
    }

    /// A part of the bytes.
    ///
    /// # Panics
    /// If it is none.
    pub(crate) fn part(&self, part: &[u8]) -> Bytes {
        if part.is_empty() {
            return Bytes::new();
        }
        let start = part.as_ptr().addr() - self.bytes.as_ptr().addr();
        self.copy.slice(start..start + part.len())
    }

    /// Fields that were found in the bytes, with room for those that we add.
    pub(crate) fn fields(&self, lines: &[Header<'_>]) -> Option<HeaderMap> {
        let mut fields = HeaderMap::with_capacity(lines.len() + OURS);
        for line in lines {
            let value = match memchr(b'\n', line.value) {
                None => self.part(line.value),
                Some(_) => unfolded(line.value),
            };
            let name = HeaderName::from_bytes(line.name.as_bytes()).ok()?;
            fields.append(name, HeaderValue::from_maybe_shared(value).ok()?);
        }
        Some(fields)
    }
}

/// The lines of a value in one, with a space between.
fn unfolded(value: &[u8]) -> Bytes {
    let lines: Vec<_> = value.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii).collect();
    Bytes::from(lines.join(&b' '))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers() {
        for n in [0, 9, 10, 12_345, u64::MAX] {
            let mut out = Vec::new();
            push_number(&mut out, n);
            assert_eq!(out, n.to_string().as_bytes());
        }
    }

    #[test]
    fn fields_are_those_that_were_parsed_whatever_becomes_of_the_bytes() {
        let mut bytes = b"a: 1\r\nempty:\r\nB:  two words \r\na: 2\r\n\r\n".to_vec();
        let fields = {
            let mut lines = [httparse::EMPTY_HEADER; 4];
            let httparse::Status::Complete((_, lines)) = httparse::parse_headers(&bytes, &mut lines).unwrap() else {
                panic!("it is complete")
            };
            Parsed::new(&bytes).fields(lines).unwrap()
        };
        bytes.fill(0);
        let found: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        assert_eq!(found, [("a", &b"1"[..]), ("a", b"2"), ("empty", b""), ("b", b"two words")]);
    }
}
