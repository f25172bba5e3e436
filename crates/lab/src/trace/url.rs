//! What a URL tells: the object, its server, and whether it is a page.

use xxhash_rust::xxh3::xxh3_64;

use super::Kind;

/// The name by which requests know a key, client or server; 0 is kept for "unknown".
pub(super) fn name(bytes: &[u8]) -> u64 {
    xxh3_64(bytes).max(1)
}

/// As [`name`], but of what logs write for nothing.
pub(super) fn name_or_unknown(bytes: &[u8]) -> u64 {
    if bytes.is_empty() || bytes == b"-" { 0 } else { name(bytes) }
}

/// Host and port of an absolute URL, and the rest from the slash on.
pub(super) fn split(url: &[u8]) -> Option<(&[u8], &[u8])> {
    let at = url.windows(3).take(16).position(|three| three == b"://")?;
    let rest = &url[at + 3..];
    let end = rest.iter().position(|b| matches!(b, b'/' | b'?' | b'#')).unwrap_or(rest.len());
    Some(rest.split_at(end))
}

/// A page by its extension, or by having none; everything else is part of one.
pub(super) fn kind(url: &[u8]) -> Kind {
    let path = split(url).map_or(url, |(_, path)| path);
    let path = path.split(|b| matches!(b, b'?' | b'#')).next().unwrap_or(path);
    let file = path.rsplit(|b| *b == b'/').next().unwrap_or(path);
    let Some(dot) = file.iter().rposition(|b| *b == b'.') else { return Kind::Page };
    const PAGES: [&[u8]; 9] = [b"html", b"htm", b"shtml", b"xhtml", b"php", b"asp", b"aspx", b"jsp", b"cgi"];
    if PAGES.iter().any(|page| file[dot + 1..].eq_ignore_ascii_case(page)) { Kind::Page } else { Kind::Part }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls_are_taken_apart() {
        assert_eq!(split(b"http://a.org:80/b?c"), Some((&b"a.org:80"[..], &b"/b?c"[..])));
        assert_eq!(split(b"http://a.org?c"), Some((&b"a.org"[..], &b"?c"[..])));
        assert_eq!(split(b"/b"), None);
        for page in [&b"/"[..], b"/a/", b"/a.HTML?x=y.gif", b"http://a.org", b"/about", b"http://a.b/c.htm#d"] {
            assert_eq!(kind(page), Kind::Page, "{}", String::from_utf8_lossy(page));
        }
        for part in [&b"/a.gif"[..], b"http://a.org/b.css?v=1", b"/a.tar.gz"] {
            assert_eq!(kind(part), Kind::Part);
        }
        assert_ne!(name(b"a"), name(b"b"));
        assert_eq!(name_or_unknown(b"-"), 0);
    }
}
