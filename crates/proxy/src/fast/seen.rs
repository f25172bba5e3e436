//! What a request's head says to the fast path before the store is asked: may it answer, how long is the body, and does
//! the request leave the framing of the connection as it is. The fields are gone through once.

use std::mem::MaybeUninit;

use httparse::Header;

use crate::{reason::Denied, rules::directives::number};

/// Longest head; hyper is told the same.
pub(crate) const LONGEST_HEAD: usize = 64 << 10;
/// As many as hyper takes.
pub(crate) const MOST_FIELDS: usize = 100;

/// What becomes of a head.
pub(crate) enum Judged<'h, 'b> {
    /// It is not complete.
    Partial,
    /// What hyper would refuse without a word.
    Refused(Denied),
    /// Hyper is to have the connection from here on.
    ForGood,
    /// A head of so many bytes and a body of so many, those to come included, are one request for hyper.
    One { len: usize, body: u64 },
    /// A GET or HEAD that the fast path may answer. Whether hyper takes its target is not known yet: a hit need not.
    Plain(Plain<'h, 'b>),
}

/// A request without a body that the fast path may answer.
pub(crate) struct Plain<'h, 'b> {
    /// Bytes of the head.
    pub(crate) len: usize,
    pub(crate) head_only: bool,
    /// HTTP/1.0.
    pub(crate) is_old: bool,
    /// The connection ends with the answer.
    pub(crate) is_last: bool,
    pub(crate) target: &'b str,
    pub(crate) host: &'b [u8],
    pub(crate) wishes: Option<Wishes<'b>>,
    pub(crate) fields: &'h [Header<'b>],
}

impl<'b> Plain<'_, 'b> {
    /// The first value of a field, which is named in lower case.
    pub(crate) fn field(&self, name: &str) -> Option<&'b [u8]> {
        let named = self.fields.iter().find(|field| field.name.eq_ignore_ascii_case(name));
        named.map(|field| field.value)
    }
}

/// With what a client begins that knows beforehand that HTTP/2 is spoken (RFC 9113 3.4).
const HTTP2: &[u8] = b"PRI * HTTP/2.0\r\n";

/// What a request says of what it wants, beside its URL; each field in one line.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Wishes<'a> {
    pub(crate) cache_control: Option<&'a [u8]>,
    pub(crate) pragma: Option<&'a [u8]>,
    pub(crate) none_match: Option<&'a [u8]>,
    pub(crate) modified_since: Option<&'a [u8]>,
    pub(crate) range: Option<&'a [u8]>,
    pub(crate) if_range: Option<&'a [u8]>,
}

/// Looks at the head that `bytes` begin with.
pub(crate) fn judge<'h, 'b>(bytes: &'b [u8], fields: &'h mut [MaybeUninit<Header<'b>>; MOST_FIELDS]) -> Judged<'h, 'b> {
    let mut request = httparse::Request::new(&mut []);
    let len = match request.parse_with_uninit_headers(bytes, fields) {
        Ok(httparse::Status::Complete(len)) => len,
        Ok(httparse::Status::Partial) if bytes.len() < LONGEST_HEAD => return Judged::Partial,
        Ok(httparse::Status::Partial) | Err(httparse::Error::TooManyHeaders) => {
            return Judged::Refused(Denied::HeadTooLarge);
        }
        Err(_) if bytes.starts_with(HTTP2) => return Judged::Refused(Denied::PlainHttp2),
        Err(_) => return Judged::Refused(Denied::Malformed),
    };
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Judged::Refused(Denied::Malformed);
    };
    let fields: &'h [Header<'b>] = request.headers;
    let for_hyper = |judged| if hyper_takes(target) { judged } else { Judged::Refused(Denied::BadTarget) };
    let seen = match Seen::of(fields, version) {
        Ok(seen) => seen,
        Err(NotPlain::Framing) => return for_hyper(Judged::ForGood),
        Err(NotPlain::Refused(why)) => return Judged::Refused(why),
    };
    if method == "CONNECT" {
        return for_hyper(Judged::ForGood);
    }
    let (head_only, is_old) = (method == "HEAD", version == 0);
    match seen.host.filter(|_| seen.plain && (head_only || method == "GET")) {
        Some(host) => {
            let (is_last, wishes) = (seen.is_last || is_old, seen.wishes);
            Judged::Plain(Plain { len, head_only, is_old, is_last, target, host, wishes, fields })
        }
        None if is_old => for_hyper(Judged::ForGood),
        None => for_hyper(Judged::One { len, body: seen.content_length }),
    }
}

/// Makes `HTTP/1.1` of a higher minor version in the first line, as which it is to be understood (RFC 9110 2.5); says
/// whether there was one.
pub(crate) fn lower_version(bytes: &mut [u8]) -> bool {
    let is_end = |b: &u8| matches!(b, b'\r' | b'\n');
    let start = bytes.iter().position(|b| !is_end(b)).unwrap_or(bytes.len());
    let line = &mut bytes[start..];
    let end = line.iter().position(is_end).unwrap_or(line.len());
    match line[..end].last_chunk_mut() {
        Some([b' ', b'H', b'T', b'T', b'P', b'/', b'1', b'.', minor @ b'2'..=b'9']) => {
            *minor = b'1';
            true
        }
        _ => false,
    }
}

/// Whether hyper takes this target; it would refuse others without a word.
pub(crate) fn hyper_takes(target: &str) -> bool {
    target.parse::<http::Uri>().is_ok()
}

/// What the fields say that matters here.
struct Seen<'a> {
    host: Option<&'a [u8]>,
    content_length: u64,
    /// No precondition, no body, and nothing said twice: the fast path may answer.
    plain: bool,
    /// `Connection: close`.
    is_last: bool,
    wishes: Option<Wishes<'a>>,
}

/// Why the fast path does not look further.
enum NotPlain {
    /// The framing of the connection might change: hyper's for good.
    Framing,
    /// This is not answered.
    Refused(Denied),
}

impl<'a> Seen<'a> {
    #[inline]
    fn of(fields: &[Header<'a>], version: u8) -> Result<Self, NotPlain> {
        let mut seen = Self { host: None, content_length: 0, plain: true, is_last: false, wishes: None };
        let (mut lengths, mut codings, mut known, mut special) = (0, 0, true, false);
        let mut expected = true;
        for field in fields {
            let is = |name: &str| field.name.eq_ignore_ascii_case(name);
            let mut wish = |of: for<'w> fn(&'w mut Wishes<'a>) -> &'w mut Option<&'a [u8]>| {
                let earlier = of(seen.wishes.get_or_insert_default()).replace(field.value);
                seen.plain &= earlier.is_none();
            };
            match field.name.len() {
                4 if is("host") => {
                    seen.plain &= seen.host.is_none();
                    seen.host = Some(field.value);
                }
                5 if is("range") => wish(|wishes| &mut wishes.range),
                6 if is("expect") => {
                    special = true;
                    expected &= field.value.eq_ignore_ascii_case(b"100-continue");
                }
                6 if is("pragma") => wish(|wishes| &mut wishes.pragma),
                7 if is("upgrade") => special = true,
                8 if is("if-match") => seen.plain = false,
                8 if is("if-range") => wish(|wishes| &mut wishes.if_range),
                10 if is("connection") => {
                    let is_close = field.value.eq_ignore_ascii_case(b"close");
                    seen.is_last |= is_close;
                    seen.plain &= is_close || field.value.eq_ignore_ascii_case(b"keep-alive");
                }
                13 if is("cache-control") => wish(|wishes| &mut wishes.cache_control),
                13 if is("if-none-match") => wish(|wishes| &mut wishes.none_match),
                14 if is("content-length") => {
                    lengths += 1;
                    seen.content_length = length(field.value).ok_or(NotPlain::Refused(Denied::AmbiguousLength))?;
                    seen.plain = false;
                }
                17 if is("transfer-encoding") => {
                    codings += 1;
                    known &= field.value.eq_ignore_ascii_case(b"chunked");
                }
                17 if is("if-modified-since") => wish(|wishes| &mut wishes.modified_since),
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
        if !expected {
            return Err(NotPlain::Refused(Denied::Expectation));
        }
        if codings > 0 || special { Err(NotPlain::Framing) } else { Ok(seen) }
    }
}

/// Digits only, and not so large that adding a head's length could overflow.
fn length(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value).ok()?;
    number(text).filter(|n| *n < 1 << 62)
}
