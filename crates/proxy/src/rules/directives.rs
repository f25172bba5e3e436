//! Reading `Cache-Control` (RFC 9111 5.2) and `CDN-Cache-Control` (RFC 9213). Several lines are one list; names are
//! case-insensitive; an argument may be a token or a quoted string; of two lifetimes the shorter counts; a lifetime
//! that is no number counts as zero; one that is too large counts as 2^31 seconds (1.2.2).
//!
//! What forbids fails closed: in a line that is not well formed it counts wherever it may be meant ([`forbids`]).

use http::{HeaderMap, HeaderName, HeaderValue, header};

/// RFC 9213: directives for caches that act for the origin.
pub(crate) static CDN_CACHE_CONTROL: HeaderName = HeaderName::from_static("cdn-cache-control");

/// Of a request (5.2.1). Times in milliseconds.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct RequestDirectives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) only_if_cached: bool,
    pub(crate) max_age: Option<u64>,
    pub(crate) min_fresh: Option<u64>,
    pub(crate) max_stale: Option<u64>,
    pub(crate) stale_if_error: Option<u64>,
}

/// Of a response (5.2.2). Times in milliseconds. A qualified `private` or `no-cache` counts as the unqualified one,
/// which both sections allow.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct ResponseDirectives {
    pub(crate) no_store: bool,
    pub(crate) no_cache: bool,
    pub(crate) private: bool,
    pub(crate) public: bool,
    pub(crate) must_revalidate: bool,
    pub(crate) proxy_revalidate: bool,
    pub(crate) must_understand: bool,
    pub(crate) s_maxage: Option<u64>,
    pub(crate) max_age: Option<u64>,
    pub(crate) stale_while_revalidate: Option<u64>,
    pub(crate) stale_if_error: Option<u64>,
    /// They came in `CDN-Cache-Control`, so `Expires` does not count either.
    pub(crate) targeted: bool,
}

const LONGEST: u64 = (1 << 31) * 1000;

/// A number of digits alone, if it is not too large.
pub(crate) fn number(digits: &str) -> Option<u64> {
    digits.bytes().all(|b| b.is_ascii_digit()).then(|| digits.parse().ok())?
}

/// Seconds as text, in milliseconds.
fn millis(argument: Option<&str>) -> u64 {
    let text = argument.unwrap_or("").trim();
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return 0;
    }
    text.parse::<u64>().map_or(LONGEST, |n| n.saturating_mul(1000).min(LONGEST))
}

fn shorter(field: &mut Option<u64>, argument: Option<&str>) {
    let value = millis(argument);
    *field = Some(field.map_or(value, |old| old.min(value)));
}

/// The lines of a field.
pub(crate) fn lines<'a>(headers: &'a HeaderMap, name: &HeaderName) -> impl Iterator<Item = &'a [u8]> {
    headers.get_all(name).iter().map(HeaderValue::as_bytes)
}

/// Calls `each` with every directive of every line: its name in lower case and its argument without quotes.
fn walk<'a>(lines: impl Iterator<Item = &'a [u8]>, mut each: impl FnMut(&str, Option<&str>)) {
    for line in lines {
        // Bytes that are no text spoil the directive that they are in, not those beside it.
        let line = String::from_utf8_lossy(line);
        for part in split_list(&line) {
            let (name, argument) = match part.split_once('=') {
                Some((name, argument)) => (name, Some(argument.trim().trim_matches('"'))),
                None => (part, None),
            };
            each(&name.trim().to_ascii_lowercase(), argument);
        }
    }
}

/// Whether the field has one of these directives, read as loosely as may be: between any bytes that no name has, with
/// or without an argument; only within a quoted string that ends, and as an argument, it is none.
fn forbids<'a>(mut lines: impl Iterator<Item = &'a [u8]>, names: &[&str]) -> bool {
    lines.any(|line| {
        let text = without_quoted(line);
        let is_of_name = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~=".contains(&b);
        let mut words = text.split(|b| !is_of_name(*b)).map(|word| word.split(|b| *b == b'=').next().unwrap_or(word));
        words.any(|word| names.iter().any(|name| word.eq_ignore_ascii_case(name.as_bytes())))
    })
}

/// The bytes outside quoted strings; a quote that does not end opens none.
fn without_quoted(line: &[u8]) -> Vec<u8> {
    let (mut kept, mut rest) = (Vec::with_capacity(line.len()), line);
    while let Some((&first, after)) = rest.split_first() {
        let end = if first == b'"' { end_of_quoted(after) } else { None };
        match end {
            Some(end) => {
                // Something was there: `private="x"no-store` is no one word.
                kept.push(b'"');
                rest = &after[end..];
            }
            None => {
                kept.push(first);
                rest = after;
            }
        }
    }
    kept
}

/// Where the quoted string ends whose first quote was before `text`.
fn end_of_quoted(text: &[u8]) -> Option<usize> {
    let mut escaped = false;
    for (n, &byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return Some(n + 1),
            _ => {}
        }
    }
    None
}

/// A value as text, where all of it is printable ASCII or tabs.
pub(crate) fn text(value: &[u8]) -> Option<&str> {
    let is_text = value.iter().all(|b| matches!(b, b' '..=b'~' | b'\t'));
    if is_text { std::str::from_utf8(value).ok() } else { None }
}

/// Splits at commas outside quoted strings.
pub(crate) fn split_list(line: &str) -> impl Iterator<Item = &str> {
    let mut quoted = false;
    let mut escaped = false;
    line.split(move |c: char| {
        if escaped {
            escaped = false;
            return false;
        }
        match c {
            '\\' if quoted => escaped = true,
            '"' => quoted = !quoted,
            ',' => return !quoted,
            _ => {}
        }
        false
    })
    .map(str::trim)
    .filter(|part| !part.is_empty())
}

impl RequestDirectives {
    /// Reads all lines.
    pub(crate) fn parse<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut found = Self::default();
        for line in lines {
            walk([line].into_iter(), |name, argument| match name {
                "no-store" => found.no_store = true,
                "no-cache" => found.no_cache = true,
                "only-if-cached" => found.only_if_cached = true,
                "max-age" => shorter(&mut found.max_age, argument),
                "min-fresh" => found.min_fresh = Some(millis(argument)),
                "max-stale" => found.max_stale = Some(argument.map_or(u64::MAX, |a| millis(Some(a)))),
                "stale-if-error" => shorter(&mut found.stale_if_error, argument),
                _ => {}
            });
            found.no_store |= forbids([line].into_iter(), &["no-store"]);
        }
        found
    }
}

impl ResponseDirectives {
    /// Reads all lines; `CDN-Cache-Control`, where `targeted` allows it and it is valid, instead of `Cache-Control`.
    pub(crate) fn parse(headers: &HeaderMap, targeted: bool) -> Self {
        if targeted && let Some(found) = Self::parse_targeted(headers) {
            return found;
        }
        let mut found = Self::default();
        walk(lines(headers, &header::CACHE_CONTROL), |name, argument| found.note(name, argument));
        found.note_forbidden(headers, &header::CACHE_CONTROL);
        if targeted {
            // It is not valid, or there would be no need of the other one.
            found.note_forbidden(headers, &CDN_CACHE_CONTROL);
        }
        found
    }

    fn note_forbidden(&mut self, headers: &HeaderMap, field: &HeaderName) {
        self.no_store |= forbids(lines(headers, field), &["no-store"]);
        self.private |= forbids(lines(headers, field), &["private"]);
        self.no_cache |= forbids(lines(headers, field), &["no-cache"]);
        self.must_revalidate |= forbids(lines(headers, field), &["must-revalidate", "proxy-revalidate"]);
    }

    fn note(&mut self, name: &str, argument: Option<&str>) {
        match name {
            "no-store" => self.no_store = true,
            "no-cache" => self.no_cache = true,
            "private" => self.private = true,
            "public" => self.public = true,
            "must-revalidate" => self.must_revalidate = true,
            "proxy-revalidate" => self.proxy_revalidate = true,
            "must-understand" => self.must_understand = true,
            "s-maxage" => shorter(&mut self.s_maxage, argument),
            "max-age" => shorter(&mut self.max_age, argument),
            "stale-while-revalidate" => shorter(&mut self.stale_while_revalidate, argument),
            "stale-if-error" => shorter(&mut self.stale_if_error, argument),
            _ => {}
        }
    }

    /// RFC 9213 2.1: a structured dictionary; the last of equal names counts; anything invalid, or a lifetime that is
    /// no number, makes the whole field count for nothing.
    fn parse_targeted(headers: &HeaderMap) -> Option<Self> {
        let mut lines = headers.get_all(&CDN_CACHE_CONTROL).iter().peekable();
        lines.peek()?;
        let mut members = Vec::new();
        for line in lines {
            for part in split_list(line.to_str().ok()?) {
                let (name, value) = member(part)?;
                members.retain(|(known, _)| *known != name);
                members.push((name, value));
            }
        }
        let mut found = Self { targeted: true, ..Self::default() };
        for (name, value) in members {
            let is_time = matches!(name, "max-age" | "s-maxage" | "stale-while-revalidate" | "stale-if-error");
            match value {
                Item::Integer(n) if is_time => found.note(name, Some(n)),
                _ if is_time => return None,
                Item::False => {}
                _ => found.note(name, None),
            }
        }
        Some(found)
    }
}

/// A value in a structured dictionary, as far as it matters here.
enum Item<'a> {
    Integer(&'a str),
    False,
    Other,
}

/// `name`, `name=value`, either with parameters that are not looked at (RFC 8941 3.2).
fn member(text: &str) -> Option<(&str, Item<'_>)> {
    let end = text.find(['=', ';']).unwrap_or(text.len());
    let (name, rest) = text.split_at(end);
    let sound = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || matches!(b, b'_' | b'-' | b'.' | b'*');
    if !name.starts_with(|c: char| c.is_ascii_lowercase() || c == '*') || !name.bytes().all(sound) {
        return None;
    }
    let Some(value) = rest.strip_prefix('=') else { return Some((name, Item::Other)) };
    let value = if value.starts_with('"') { value } else { value.split(';').next()? };
    let digits = value.strip_prefix('-').unwrap_or(value);
    let item = match value {
        "?0" => Item::False,
        "?1" => Item::Other,
        _ if !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()) => Item::Integer(value),
        _ if value.len() > 1 && value.starts_with('"') && value.contains('"') => Item::Other,
        _ if value.starts_with(|c: char| c.is_ascii_alphabetic() || c == '*') => Item::Other,
        _ => return None,
    };
    Some((name, item))
}
