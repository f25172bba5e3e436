//! What the fields of a request say to the fast path, found in one pass: may it answer, how long is the body, and does
//! the request leave the framing of the connection as it is.

use httparse::Header;

use crate::reason::Denied;

/// What the fields say that matters here.
pub(super) struct Seen<'a> {
    pub(super) host: Option<&'a [u8]>,
    pub(super) content_length: u64,
    /// No condition, range, directive, or body: the fast path may answer.
    pub(super) plain: bool,
}

/// Why the fast path does not look further.
pub(super) enum NotPlain {
    /// The framing of the connection might change: hyper's for good.
    Framing,
    /// Nobody answers this.
    Refused(Denied),
}

impl<'a> Seen<'a> {
    #[inline]
    pub(super) fn of(fields: &[Header<'a>], version: u8) -> Result<Self, NotPlain> {
        let mut seen = Self { host: None, content_length: 0, plain: true };
        let (mut lengths, mut codings, mut known, mut special) = (0, 0, true, version == 0);
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            match field.name.len() {
                4 if is("host") => {
                    seen.plain &= seen.host.is_none();
                    seen.host = Some(field.value);
                }
                5 if is("range") => seen.plain = false,
                6 if is("expect") => special = true,
                6 if is("pragma") => seen.plain = false,
                7 if is("upgrade") => special = true,
                8 if is("if-match") || is("if-range") => seen.plain = false,
                10 if is("connection") => seen.plain &= field.value.eq_ignore_ascii_case(b"keep-alive"),
                13 if is("cache-control") || is("if-none-match") => seen.plain = false,
                14 if is("content-length") => {
                    lengths += 1;
                    seen.content_length = length(field.value).ok_or(NotPlain::Refused(Denied::AmbiguousLength))?;
                    seen.plain = false;
                }
                17 if is("transfer-encoding") => {
                    codings += 1;
                    known &= field.value.eq_ignore_ascii_case(b"chunked");
                }
                17 if is("if-modified-since") => seen.plain = false,
                19 if is("if-unmodified-since") => seen.plain = false,
                _ => {}
            }
        }
        // Two lengths, or a length and a coding: hyper would take the coding and forget the length.
        if lengths + codings > 1 || (codings > 0 && version == 0) {
            return Err(NotPlain::Refused(Denied::AmbiguousLength));
        }
        if !known {
            return Err(NotPlain::Refused(Denied::TransferCoding));
        }
        if codings > 0 || special { Err(NotPlain::Framing) } else { Ok(seen) }
    }
}

/// Digits only, and not so large that adding a head's length could overflow.
fn length(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?.filter(|n| *n < 1 << 62)
}
