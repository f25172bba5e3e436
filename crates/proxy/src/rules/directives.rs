//! Reading `Cache-Control` (RFC 9111 5.2) and `CDN-Cache-Control` (RFC 9213). Several lines are one list; names are
//! case-insensitive; an argument may be a token or a quoted string; of two lifetimes the shorter counts; a lifetime
//! that is no number counts as zero; one that is too large counts as 2^31 seconds (1.2.2).

use http::{HeaderMap, HeaderName, header};

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

/// Calls `each` with every directive of every line: its name in lower case and its argument without quotes.
fn walk(headers: &HeaderMap, name: &HeaderName, mut each: impl FnMut(&str, Option<&str>)) {
    for line in headers.get_all(name) {
        let Ok(line) = std::str::from_utf8(line.as_bytes()) else { continue };
        for part in split_list(line) {
            let (name, argument) = match part.split_once('=') {
                Some((name, argument)) => (name, Some(argument.trim().trim_matches('"'))),
                None => (part, None),
            };
            each(&name.trim().to_ascii_lowercase(), argument);
        }
    }
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
    pub(crate) fn parse(headers: &HeaderMap) -> Self {
        let mut found = Self::default();
        walk(headers, &header::CACHE_CONTROL, |name, argument| match name {
            "no-store" => found.no_store = true,
            "no-cache" => found.no_cache = true,
            "only-if-cached" => found.only_if_cached = true,
            "max-age" => shorter(&mut found.max_age, argument),
            "min-fresh" => found.min_fresh = Some(millis(argument)),
            "max-stale" => found.max_stale = Some(argument.map_or(u64::MAX, |a| millis(Some(a)))),
            "stale-if-error" => shorter(&mut found.stale_if_error, argument),
            _ => {}
        });
        found
    }
}

impl ResponseDirectives {
    /// Reads all lines; `CDN-Cache-Control`, where `targeted` allows it and it is there, instead of `Cache-Control`.
    pub(crate) fn parse(headers: &HeaderMap, targeted: bool) -> Self {
        let targeted = targeted && headers.contains_key(&CDN_CACHE_CONTROL);
        let mut found = Self { targeted, ..Self::default() };
        let name = if targeted { &CDN_CACHE_CONTROL } else { &header::CACHE_CONTROL };
        walk(headers, name, |name, argument| match name {
            "no-store" => found.no_store = true,
            "no-cache" => found.no_cache = true,
            "private" => found.private = true,
            "public" => found.public = true,
            "must-revalidate" => found.must_revalidate = true,
            "proxy-revalidate" => found.proxy_revalidate = true,
            "must-understand" => found.must_understand = true,
            "s-maxage" => shorter(&mut found.s_maxage, argument),
            "max-age" => shorter(&mut found.max_age, argument),
            "stale-while-revalidate" => shorter(&mut found.stale_while_revalidate, argument),
            "stale-if-error" => shorter(&mut found.stale_if_error, argument),
            _ => {}
        });
        found
    }
}
