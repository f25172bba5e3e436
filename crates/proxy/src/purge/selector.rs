//! What a purge selects, and by which numbers a stored response is found to be selected.
//!
//! All but patterns is a comparison of hashes of 64 bits, so a purge of a million responses is as large as one of none.
//! Two that hash alike cost the wrong one a fetch, and never show anything that was purged.

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed};

use crate::{
    key::{self, BadKey},
    wild,
};

/// Longest text of a selector.
pub(crate) const LONGEST: usize = 2048;

/// Most `*` in a pattern.
const STARS: usize = 16;

/// How responses are selected. The numbers are persistent.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub(crate) enum Kind {
    /// One URL, all its variants.
    Url = 1,
    /// URLs that begin so.
    Prefix = 2,
    /// URLs that match a pattern.
    Pattern = 3,
    /// All of a host.
    Host = 4,
    /// `Surrogate-Key`, `Cache-Tag`.
    Tag = 5,
    /// `Cache-Groups` of one origin (RFC 9875).
    Group = 6,
    /// Everything.
    All = 7,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] =
        [Self::Url, Self::Prefix, Self::Pattern, Self::Host, Self::Tag, Self::Group, Self::All];

    /// As parameters, metrics and answers call it.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Url => "url",
            Self::Prefix => "prefix",
            Self::Pattern => "pattern",
            Self::Host => "host",
            Self::Tag => "tag",
            Self::Group => "group",
            Self::All => "all",
        }
    }

    pub(crate) fn of(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| *kind as u8 == number)
    }
}

/// What a purge selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Selector {
    pub(crate) kind: Kind,
    /// As it was asked for; of a pattern, what counts.
    pub(crate) text: String,
    /// What it is found by, but for patterns. Of prefixes, with their lengths; else with 0.
    pub(crate) hashes: Vec<(u32, u64)>,
}

/// Why something selects nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum BadSelector {
    #[error("it is not a URL; it should look like http://host/path")]
    Url,
    #[error("it is not the beginning of a URL, with a whole host and the first `/` of a path, like http://host/img/")]
    Prefix,
    #[error(
        "a pattern is matched with host, path and query, without a scheme, like *.example.org/img/*; `*` is any text"
    )]
    Pattern,
    #[error("a pattern has at most 16 `*`")]
    Stars,
    #[error("it is not a host, or a host and a port, like example.org or example.org:8080")]
    Host,
    #[error("a tag is not empty, and has no spaces and commas")]
    Tag,
    #[error("a group is not empty, and goes with the host that it is of: group=NAME&host=example.org")]
    Group,
    #[error("it is longer than 2,048 bytes")]
    TooLong,
}

impl Selector {
    /// Of a URL, by whatever side and scheme it is stored.
    pub(crate) fn url(text: &str) -> Result<(Self, [Vec<u8>; 4]), BadSelector> {
        let keys = key::of_url(text).map_err(|BadKey| BadSelector::Url)?;
        let text = text.chars().filter(|_| text.len() <= LONGEST).collect();
        let hashes = keys.iter().map(|key| (0, of_url_key(key))).collect();
        Ok((Self { kind: Kind::Url, text, hashes }, keys))
    }

    /// Of the keys of URLs.
    pub(crate) fn keys<'a>(keys: impl Iterator<Item = &'a [u8]>) -> Self {
        Self { kind: Kind::Url, text: String::new(), hashes: keys.map(|key| (0, of_url_key(key))).collect() }
    }

    /// Of any kind but one URL; `host` is of a group.
    pub(crate) fn parse(kind: Kind, text: &str, host: Option<&str>) -> Result<Self, BadSelector> {
        if text.len() > LONGEST || host.is_some_and(|host| host.len() > 300) {
            return Err(BadSelector::TooLong);
        }
        let mut whole = text.to_owned();
        let hashes = match kind {
            Kind::Url => return Self::url(text).map(|(selector, _)| selector),
            Kind::All => vec![],
            Kind::Prefix => prefix(text)?,
            Kind::Pattern => {
                whole = text.split_once("://").map_or(text, |(_, rest)| rest).to_owned();
                if whole.is_empty() || whole.starts_with('/') || !whole.contains(['*', '/']) {
                    return Err(BadSelector::Pattern);
                }
                if whole.matches('*').count() > STARS {
                    return Err(BadSelector::Stars);
                }
                vec![]
            }
            Kind::Host => origins(text)?.iter().map(|origin| (0, of_host(origin))).collect(),
            Kind::Tag if text.is_empty() || text.contains([' ', ',', '\t']) => return Err(BadSelector::Tag),
            Kind::Tag => vec![(0, of_tag(text.as_bytes()))],
            Kind::Group => {
                let host = host.filter(|_| !text.is_empty()).ok_or(BadSelector::Group)?;
                whole = format!("{host} {text}");
                origins(host)?.iter().map(|origin| (0, of_group(origin, text.as_bytes()))).collect()
            }
        };
        Ok(Self { kind, text: whole, hashes })
    }

    /// Of a group of one origin, as a response of it says (RFC 9875 3).
    pub(crate) fn group_of(url_key: &[u8], name: &str) -> Self {
        let origin = origin(url_key);
        let text = format!("{} {name}", String::from_utf8_lossy(origin));
        Self { kind: Kind::Group, text, hashes: vec![(0, of_group(origin, name.as_bytes()))] }
    }

    /// All of the origin of a URL.
    pub(crate) fn origin_of(url_key: &[u8]) -> Self {
        let origin = origin(url_key);
        let text = String::from_utf8_lossy(origin).into_owned();
        Self { kind: Kind::Host, text, hashes: vec![(0, of_host(origin))] }
    }

    /// Everything.
    pub(crate) fn all() -> Self {
        Self { kind: Kind::All, text: String::new(), hashes: vec![] }
    }
}

/// The beginnings of keys that a beginning of a URL comes to.
fn prefix(text: &str) -> Result<Vec<(u32, u64)>, BadSelector> {
    let rest = text.split_once("://").ok_or(BadSelector::Prefix)?.1;
    if !rest.contains('/') {
        return Err(BadSelector::Prefix);
    }
    let keys = key::of_url(text).map_err(|BadKey| BadSelector::Prefix)?;
    Ok(keys.iter().map(|key| (key.len() as u32, of_prefix(key))).collect())
}

/// The origins, as keys begin with them, of a host.
fn origins(host: &str) -> Result<[Vec<u8>; 4], BadSelector> {
    let host = host.strip_prefix("http://").or_else(|| host.strip_prefix("https://")).unwrap_or(host);
    if host.contains(['/', '?', '#']) {
        return Err(BadSelector::Host);
    }
    let keys = key::of_url(&format!("http://{host}/")).map_err(|BadKey| BadSelector::Host)?;
    Ok(keys.map(|mut key| {
        key.pop();
        key
    }))
}

/// The part of a key that says whose it is: scheme and host.
pub(crate) fn origin(url_key: &[u8]) -> &[u8] {
    let mut slashes = url_key.iter().enumerate().filter(|(_, byte)| **byte == b'/');
    slashes.nth(2).map_or(url_key, |(at, _)| &url_key[..at])
}

/// Kinds hash differently.
fn hashed(kind: Kind, text: &[u8]) -> u64 {
    xxh3_64_with_seed(text, kind as u64)
}

pub(crate) fn of_url_key(key: &[u8]) -> u64 {
    hashed(Kind::Url, key)
}

pub(crate) fn of_prefix(beginning: &[u8]) -> u64 {
    hashed(Kind::Prefix, beginning)
}

pub(crate) fn of_host(origin: &[u8]) -> u64 {
    hashed(Kind::Host, origin)
}

pub(crate) fn of_tag(tag: &[u8]) -> u64 {
    hashed(Kind::Tag, tag)
}

pub(crate) fn of_group(origin: &[u8], name: &[u8]) -> u64 {
    xxh3_64_with_seed(name, xxh3_64(origin) ^ Kind::Group as u64)
}

/// Whether what stands behind the scheme of a key matches a pattern.
pub(crate) fn matches(pattern: &str, url_key: &[u8]) -> bool {
    key::without_scheme(url_key).is_some_and(|rest| wild::matches(pattern, rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_matched_with_host_path_and_query() {
        for (pattern, key, is_match) in [
            ("a.org/*", "http://a.org/", true),
            ("a.org/*", "origin://a.org/x?y", true),
            ("a.org/*", "origin://b.a.org/x", false),
            ("*.a.org/*", "origin+https://b.a.org/x", true),
            ("*.png", "http://a.org/x.png", true),
            ("*.png", "http://a.org/x.png?v=1", false),
            ("*/img/*.png*", "remote://a.org/y/img/z/x.png?v=1", true),
            ("*ab*b", "http://a/ab", false),
            ("*ab*b", "http://a/abb", true),
            ("a.org/x", "http://a.org/x", true),
            ("a.org/x", "http://a.org/xy", false),
            ("**", "http://a.org/xy", true),
        ] {
            assert_eq!(matches(pattern, key.as_bytes()), is_match, "{pattern} {key}");
        }
    }

    #[test]
    fn what_selects_nothing_is_refused() {
        let bad = |kind, text: &str| Selector::parse(kind, text, None).unwrap_err();
        assert_eq!(bad(Kind::Url, "a.org/x"), BadSelector::Url);
        assert_eq!(bad(Kind::Prefix, "http://a.org"), BadSelector::Prefix);
        assert_eq!(bad(Kind::Prefix, "a.org/x"), BadSelector::Prefix);
        assert_eq!(bad(Kind::Pattern, "/img/*"), BadSelector::Pattern);
        assert_eq!(bad(Kind::Pattern, &"*a".repeat(17)), BadSelector::Stars);
        assert_eq!(bad(Kind::Host, "a.org/x"), BadSelector::Host);
        assert_eq!(bad(Kind::Tag, "a b"), BadSelector::Tag);
        assert_eq!(bad(Kind::Group, "a"), BadSelector::Group);
        assert_eq!(bad(Kind::Tag, &"a".repeat(3000)), BadSelector::TooLong);
    }

    #[test]
    fn an_origin_is_scheme_and_host() {
        assert_eq!(origin(b"origin+https://a.org:8080/x/y"), b"origin+https://a.org:8080");
        let [.., encrypted] = origins("A.org:443").unwrap();
        assert_eq!(encrypted, b"origin+https://a.org");
    }
}
