//! The key of a response in the store: the effective request URL, as text that `ls` can show.
//!
//! * forward: `http://host/path?query` for clients on this machine, `remote://host/path?query` for others: these may
//!   reach less, so they must not read what was fetched for those
//! * reverse: `origin://host/path?query`, where `host` is what the client asked for; a client that can choose any
//!   `Host` in front of a catch-all origin can therefore never fill what forward clients will read.
//!   `origin+https://…` where the client came by https, to us or to a front of ours: the origin may answer by that
//! * a variant (`Vary`): the key of the URL, a line feed, and a hash of the selecting fields (see `variant`)
//! * newer head fields of a large object: the key, a line feed, `head`
//! * a slice of an object (see `slices`): the key, a line feed, the number of its version, a point, its own
//!
//! The fast path and the slow path build keys with the same function, so they cannot disagree. Host names are
//! lower-cased, `:80` is dropped, and by https `:443`; paths and queries are kept byte by byte.

use std::fmt::Write as _;

use bytes::Bytes;
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

/// How the client addressed the resource.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// Absolute-form: the client knows it talks to a proxy, and is on this machine.
    Forward,
    /// The same from another machine.
    Remote,
    /// Origin-form: for the client we are the server.
    Reverse,
    /// The same by https, which ended here or in front of us.
    Encrypted,
}

impl Side {
    /// Whether we act for the origin.
    pub(crate) fn is_for_origin(self) -> bool {
        matches!(self, Self::Reverse | Self::Encrypted)
    }
}

const REVERSE: &[u8] = b"origin://";
const ENCRYPTED: &[u8] = b"origin+https://";

/// Not a host, a port or a path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BadKey;

/// Longest key of a URL: the store takes 8 KiB, and a variant or a newer head adds to it.
pub(crate) const MAX: usize = (8 << 10) - 64;

/// Appends `authority` in its normal form, or says that it is none.
pub(crate) fn host(out: &mut Vec<u8>, authority: &[u8]) -> Result<(), BadKey> {
    let literal = authority.first() == Some(&b'[');
    let (name, port) = if literal {
        let end = authority.iter().position(|b| *b == b']').ok_or(BadKey)? + 1;
        (&authority[..end], &authority[end..])
    } else {
        let end = authority.iter().position(|b| *b == b':').unwrap_or(authority.len());
        authority.split_at(end)
    };
    if name.is_empty() || name.len() > 255 {
        return Err(BadKey);
    }
    if literal {
        let inner = std::str::from_utf8(&name[1..name.len() - 1]).map_err(|_| BadKey)?;
        inner.parse::<std::net::Ipv6Addr>().map_err(|_| BadKey)?;
    }
    for &byte in name {
        let fits = byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_') || literal;
        if !fits {
            return Err(BadKey);
        }
        out.push(byte.to_ascii_lowercase());
    }
    match port {
        [] | b":" | b":80" => Ok(()),
        [b':', digits @ ..] if digits.len() <= 5 && digits.iter().all(u8::is_ascii_digit) => {
            let number = digits.iter().fold(0u32, |n, d| n * 10 + u32::from(d - b'0'));
            match number {
                80 => Ok(()),
                1..=65535 => {
                    out.extend_from_slice(port);
                    Ok(())
                }
                _ => Err(BadKey),
            }
        }
        _ => Err(BadKey),
    }
}

/// Without the port that `https` has of itself.
pub(crate) fn without_https_port(authority: &[u8]) -> &[u8] {
    authority.strip_suffix(b":443").unwrap_or(authority)
}

/// Writes the key of a URL into `out`; returns where the normal form of the host lies in it.
pub(crate) fn url(
    out: &mut Vec<u8>,
    side: Side,
    authority: &[u8],
    path: &[u8],
) -> Result<std::ops::Range<usize>, BadKey> {
    out.clear();
    out.extend_from_slice(match side {
        Side::Forward => b"http://",
        Side::Remote => b"remote://",
        Side::Reverse => REVERSE,
        Side::Encrypted => ENCRYPTED,
    });
    let start = out.len();
    host(out, if side == Side::Encrypted { without_https_port(authority) } else { authority })?;
    let end = out.len();
    match path.first() {
        Some(b'/') => {}
        None | Some(b'?') => out.push(b'/'),
        Some(_) => return Err(BadKey),
    }
    out.extend_from_slice(path);
    if out.len() > MAX || path.iter().any(|b| *b <= b' ' || *b == b'#' || *b == 0x7f) {
        return Err(BadKey);
    }
    Ok(start..end)
}

/// The key of the same URL by the other scheme, where there is one: a change of one is a change of both.
pub(crate) fn by_the_other_scheme(key: &[u8]) -> Option<Vec<u8>> {
    let other = |from: &[u8], to: &[u8]| key.strip_prefix(from).map(|rest| [to, rest].concat());
    other(REVERSE, ENCRYPTED).or_else(|| other(ENCRYPTED, REVERSE))
}

/// Host, path and query of a URL's key: what is behind its scheme.
pub(crate) fn without_scheme(key: &[u8]) -> Option<&[u8]> {
    key.windows(3).position(|three| three == b"://").map(|at| &key[at + 3..])
}

/// The keys that `text`, a URL, may be stored under.
pub(crate) fn of_url(text: &str) -> Result<[Vec<u8>; 4], BadKey> {
    let (scheme, rest) = text.split_once("://").ok_or(BadKey)?;
    if !matches!(scheme, "http" | "https" | "remote" | "origin" | "origin+https") {
        return Err(BadKey);
    }
    let rest = rest.split('#').next().unwrap_or(rest);
    let at = rest.find(['/', '?']).unwrap_or(rest.len());
    let mut keys = [const { Vec::new() }; 4];
    for (key, side) in keys.iter_mut().zip([Side::Forward, Side::Remote, Side::Reverse, Side::Encrypted]) {
        url(key, side, &rest.as_bytes()[..at], &rest.as_bytes()[at..])?;
    }
    Ok(keys)
}

/// Which variant `values` select. `nonce` belongs to one index of variants, so that variants whose index was
/// dropped can never be found through a newer one.
pub(crate) fn variant_hash<'a>(nonce: u64, values: impl Iterator<Item = &'a [u8]>) -> u128 {
    let mut text = Vec::new();
    for value in values {
        text.extend_from_slice(&(value.len() as u64).to_le_bytes());
        text.extend_from_slice(value);
    }
    xxh3_128_with_seed(&text, nonce)
}

/// The key of a variant.
pub(crate) fn variant(key: &[u8], hash: u128) -> Vec<u8> {
    let mut suffix = String::with_capacity(33);
    let _ = write!(suffix, "\n{hash:032x}");
    [key, suffix.as_bytes()].concat()
}

/// With which a key of newer head fields ends.
pub(crate) const NEWER: &[u8] = b"\nhead";

/// The key of the newer head fields of a large object.
pub(crate) fn newer_head(key: &[u8]) -> Vec<u8> {
    [key, NEWER].concat()
}

/// The key of a slice of the object at `key`, of the version with this number.
pub(crate) fn slice(key: &[u8], nonce: u64, n: u64) -> Vec<u8> {
    let mut suffix = String::with_capacity(26);
    let _ = write!(suffix, "\n{nonce:016x}.{n:06x}");
    [key, suffix.as_bytes()].concat()
}

/// The key of the URL that a response under this key is of.
pub(crate) fn url_of(key: &[u8]) -> &[u8] {
    key.split(|byte| *byte == b'\n').next().unwrap_or(key)
}

/// Whether it is the key of a slice.
pub(crate) fn is_slice(key: &[u8]) -> bool {
    key.get(url_of(key).len()..).is_some_and(|end| end.contains(&b'.'))
}

/// The host in the key of a URL.
pub(crate) fn host_of(key: &[u8]) -> &[u8] {
    let rest = without_scheme(key).unwrap_or(key);
    rest.split(|byte| matches!(byte, b'/' | b'?' | b'\n')).next().unwrap_or(rest)
}

/// Placement: objects of one server are laid together.
pub(crate) fn server(host: &[u8]) -> u32 {
    (xxh3_64(host) as u32).max(1)
}

/// Placement: the key of the page that a `Referer` names, if it is on the same host.
pub(crate) fn neighbour(side: Side, own_host: &[u8], referer: &[u8]) -> Option<Bytes> {
    let rest = referer.strip_prefix(b"http://").or_else(|| referer.strip_prefix(b"https://"))?;
    let rest = rest.split(|b| *b == b'#').next().unwrap_or(rest);
    let at = rest.iter().position(|b| matches!(b, b'/' | b'?')).unwrap_or(rest.len());
    let mut key = Vec::new();
    let range = url(&mut key, side, &rest[..at], &rest[at..]).ok()?;
    (&key[range] == own_host).then(|| Bytes::from(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn built(side: Side, authority: &str, path: &str) -> Result<String, BadKey> {
        let mut out = Vec::new();
        url(&mut out, side, authority.as_bytes(), path.as_bytes())?;
        Ok(String::from_utf8(out).unwrap())
    }

    #[test]
    fn equal_urls_have_equal_keys() {
        let forms = ["http://A.example:80/x?y", "http://a.EXAMPLE/x?y", "http://a.example:/x?y#z"];
        let keys: Vec<_> = forms.iter().map(|form| of_url(form).unwrap()).collect();
        assert!(keys.iter().all(|key| *key == keys[0]));
        assert_eq!(keys[0][0], b"http://a.example/x?y");
        assert_eq!(keys[0][1], b"remote://a.example/x?y");
        assert_eq!(keys[0][2], b"origin://a.example/x?y");
        assert_eq!(keys[0][3], b"origin+https://a.example/x?y");
        assert_eq!(of_url("https://a.example/x?y").as_ref(), Ok(&keys[0]), "one that ended in front of us");
        for (one, other) in [(2, 3), (3, 2)] {
            assert_eq!(by_the_other_scheme(&keys[0][one]).as_ref(), Some(&keys[0][other]));
        }
        assert_eq!(by_the_other_scheme(&keys[0][0]), None);
        assert_eq!(built(Side::Forward, "a", "?q"), Ok("http://a/?q".into()));
        assert_eq!(built(Side::Forward, "[::1]:8080", ""), Ok("http://[::1]:8080/".into()));
        assert_eq!(built(Side::Encrypted, "A:443", "/"), Ok("origin+https://a/".into()));
        assert_eq!(built(Side::Reverse, "a:443", "/"), Ok("origin://a:443/".into()), "by http it is another port");
    }

    #[test]
    fn what_is_no_host_is_refused() {
        for bad in
            ["", ":80", "a b", "a/b", "u@a", "a:x", "a:0", "a:65536", "a:999999", "[::1", "[zz]", "[::1]x", "a%20"]
        {
            assert_eq!(built(Side::Reverse, bad, "/"), Err(BadKey), "{bad}");
        }
        assert_eq!(built(Side::Reverse, "a", "/x y"), Err(BadKey));
        assert_eq!(built(Side::Reverse, "a", "x"), Err(BadKey));
    }

    #[test]
    fn variants_differ_by_values_and_by_index() {
        let hash = |nonce, values: [&'static [u8]; 2]| variant_hash(nonce, values.into_iter());
        let one = hash(1, [b"gzip", b""]);
        assert_ne!(one, hash(1, [b"", b"gzip"]));
        assert_ne!(one, hash(2, [b"gzip", b""]));
        assert!(variant(b"k", one).starts_with(b"k\n"));
    }

    #[test]
    fn a_neighbour_is_on_the_same_host() {
        assert_eq!(neighbour(Side::Forward, b"a", b"http://A/page#top").as_deref(), Some(&b"http://a/page"[..]));
        assert_eq!(neighbour(Side::Forward, b"b", b"http://a/page"), None);
        assert_eq!(neighbour(Side::Forward, b"a", b"about:blank"), None);
    }
}
