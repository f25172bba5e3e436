//! References to other URLs, as `Location` and `Content-Location` hold them, and what they come to against the URL that
//! was asked for (RFC 3986 5.2).
//!
//! Bytes, not text: a path is compared with keys, which keep a client's own bytes. Nothing is decoded.

/// The parts of a reference, its fragment left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Reference<'a> {
    pub(crate) scheme: Option<&'a [u8]>,
    pub(crate) authority: Option<&'a [u8]>,
    path: &'a [u8],
    query: Option<&'a [u8]>,
}

/// At the first of these bytes: what is before it, and what is behind it if it is there.
fn cut(text: &[u8], at: u8) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|byte| *byte == at) {
        Some(n) => (&text[..n], Some(&text[n + 1..])),
        None => (text, None),
    }
}

impl<'a> Reference<'a> {
    /// `None` for what begins with a colon.
    pub(crate) fn parse(text: &'a [u8]) -> Option<Self> {
        let (text, _) = cut(text, b'#');
        let before_path = &text[..text.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(text.len())];
        let (scheme, rest) = match before_path.iter().position(|byte| *byte == b':') {
            Some(0) => return None,
            Some(n) => (Some(&text[..n]), &text[n + 1..]),
            None => (None, text),
        };
        let (rest, query) = cut(rest, b'?');
        let (authority, path) = match rest.strip_prefix(b"//") {
            Some(rest) => {
                let (authority, path) = rest.split_at(rest.iter().position(|byte| *byte == b'/').unwrap_or(rest.len()));
                (Some(authority), path)
            }
            None => (None, rest),
        };
        Some(Self { scheme, authority, path, query })
    }

    /// Path and query that it comes to, seen from a URL with this path and this query.
    pub(crate) fn against(&self, (base, base_query): (&[u8], Option<&[u8]>)) -> Vec<u8> {
        let mut query = self.query;
        let mut path = if self.scheme.is_some() || self.authority.is_some() || self.path.starts_with(b"/") {
            without_dots(self.path)
        } else if self.path.is_empty() {
            query = query.or(base_query);
            base.to_vec()
        } else {
            let folder = base.iter().rposition(|byte| *byte == b'/').map_or(&b"/"[..], |n| &base[..=n]);
            without_dots(&[folder, self.path].concat())
        };
        if let Some(query) = query {
            path.push(b'?');
            path.extend_from_slice(query);
        }
        path
    }
}

/// Without `.` and `..` (RFC 3986 5.2.4).
fn without_dots(path: &[u8]) -> Vec<u8> {
    let mut kept: Vec<&[u8]> = Vec::new();
    let mut segments = path.split(|byte| *byte == b'/').peekable();
    while let Some(segment) = segments.next() {
        let is_last = segments.peek().is_none();
        match segment {
            b"." => {}
            // The first is what is before the leading slash.
            b".." => kept.truncate(kept.len().saturating_sub(1).max(1)),
            _ => {
                kept.push(segment);
                continue;
            }
        }
        if is_last {
            kept.push(b"");
        }
    }
    kept.join(&b'/')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_examples_of_rfc_3986() {
        // 5.4, seen from http://a/b/c/d;p?q; those with another scheme or host are told by what is parsed.
        let rows = [
            ("g", "/b/c/g"),
            ("./g", "/b/c/g"),
            ("g/", "/b/c/g/"),
            ("/g", "/g"),
            ("?y", "/b/c/d;p?y"),
            ("g?y", "/b/c/g?y"),
            ("#s", "/b/c/d;p?q"),
            ("g#s", "/b/c/g"),
            ("g?y#s", "/b/c/g?y"),
            (";x", "/b/c/;x"),
            ("g;x", "/b/c/g;x"),
            ("", "/b/c/d;p?q"),
            (".", "/b/c/"),
            ("./", "/b/c/"),
            ("..", "/b/"),
            ("../", "/b/"),
            ("../g", "/b/g"),
            ("../..", "/"),
            ("../../", "/"),
            ("../../g", "/g"),
            ("../../../g", "/g"),
            ("../../../../g", "/g"),
            ("/./g", "/g"),
            ("/../g", "/g"),
            ("g.", "/b/c/g."),
            (".g", "/b/c/.g"),
            ("g..", "/b/c/g.."),
            ("..g", "/b/c/..g"),
            ("./../g", "/b/g"),
            ("./g/.", "/b/c/g/"),
            ("g/./h", "/b/c/g/h"),
            ("g/../h", "/b/c/h"),
            ("g;x=1/./y", "/b/c/g;x=1/y"),
            ("g;x=1/../y", "/b/c/y"),
            ("g?y/./x", "/b/c/g?y/./x"),
            ("g?y/../x", "/b/c/g?y/../x"),
            ("//g", ""),
            ("http://a/x/../y?z", "/y?z"),
            ("http://a?z", "?z"),
        ];
        for (text, expected) in rows {
            let reference = Reference::parse(text.as_bytes()).unwrap();
            let found = reference.against((b"/b/c/d;p", Some(b"q")));
            assert_eq!(String::from_utf8(found).unwrap(), expected, "{text}");
        }
        let parsed = |text: &'static str| Reference::parse(text.as_bytes()).map(|r| (r.scheme, r.authority));
        assert_eq!(parsed("g:h"), Some((Some(&b"g"[..]), None)));
        assert_eq!(parsed("//g/x"), Some((None, Some(&b"g"[..]))));
        assert_eq!(parsed("http://A:80"), Some((Some(&b"http"[..]), Some(&b"A:80"[..]))));
        assert_eq!(parsed("./g:h"), Some((None, None)));
        assert_eq!(parsed(":x"), None);
    }
}
