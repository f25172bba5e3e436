//! Other texts in place of some in a body (`rule.replace`), as it comes: so that an index which names the hosts of its
//! origin names ours.
//!
//! * The leftmost text counts, and of several that begin there the longest; what is put in is not looked at again. What
//!   comes does not depend on where the pieces of the body end.
//! * As much is held back as the longest text has, but one byte.
//! * The body is another one than the origin's: it has no length that is known before it has come, no digest, and no
//!   strong validator. A weak one is left, by which the origin can still confirm it.

use std::{collections::BTreeMap, sync::Arc};

use aho_corasick::{AhoCorasick, Input, MatchKind};
use bytes::{Bytes, BytesMut};
use http::{HeaderMap, HeaderValue, StatusCode, header};

/// Fields that say something of each byte of a body.
pub(crate) const OF_BODY: [&str; 6] =
    ["content-length", "accept-ranges", "content-md5", "digest", "content-digest", "repr-digest"];

/// Longest text that is looked for.
const LONGEST: usize = 256;

/// Texts, and what is there instead.
#[derive(Debug, Clone)]
pub(crate) struct Replace(Arc<Texts>);

#[derive(Debug)]
struct Texts {
    find: AhoCorasick,
    instead: Vec<String>,
    longest: usize,
}

impl Replace {
    /// # Errors
    /// Says which text will not do.
    pub(crate) fn new(texts: &BTreeMap<String, String>) -> Result<Self, String> {
        if let Some(bad) = texts.keys().find(|text| text.is_empty() || text.len() > LONGEST) {
            return Err(format!("`{bad}` has {} bytes; 1 to {LONGEST} are looked for", bad.len()));
        }
        let longest = texts.keys().map(String::len).max().ok_or("nothing is given, such as { \"a\" = \"b\" }")?;
        let find = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(texts.keys());
        let find = find.map_err(|e| format!("too many texts: {e}"))?;
        Ok(Self(Arc::new(Texts { find, instead: texts.values().cloned().collect(), longest })))
    }

    /// Takes from the fields what does not hold of the changed body; `None` if the body stays as it is.
    pub(crate) fn begin(&self, status: StatusCode, headers: &mut HeaderMap) -> Option<Replacing> {
        if is_coded(headers) || !matches!(status.as_u16(), 200 | 203 | 304) {
            return None;
        }
        for name in OF_BODY {
            headers.remove(name);
        }
        if let Some(etag) = headers.get(header::ETAG).filter(|etag| !etag.as_bytes().starts_with(b"W/"))
            && let Ok(weak) = HeaderValue::from_bytes(&[b"W/", etag.as_bytes()].concat())
        {
            headers.insert(header::ETAG, weak);
        }
        (status != StatusCode::NOT_MODIFIED).then(|| Replacing { texts: self.0.clone(), held: BytesMut::new() })
    }
}

/// Whether a body is compressed, and so not to be read.
pub(crate) fn is_coded(headers: &HeaderMap) -> bool {
    headers.get(header::CONTENT_ENCODING).is_some_and(|coding| coding != "identity")
}

/// A body in which texts are replaced.
#[derive(Debug)]
pub(crate) struct Replacing {
    texts: Arc<Texts>,
    held: BytesMut,
}

impl Replacing {
    /// Takes a piece; gives what is certain, which may be nothing.
    pub(crate) fn add(&mut self, piece: &[u8]) -> Bytes {
        self.held.extend_from_slice(piece);
        // A text that begins before this is here as a whole, whichever it is.
        self.until((self.held.len() + 1).saturating_sub(self.texts.longest))
    }

    /// What is left at the end.
    pub(crate) fn end(&mut self) -> Bytes {
        self.until(self.held.len())
    }

    fn until(&mut self, certain: usize) -> Bytes {
        let (mut out, mut at) = (BytesMut::with_capacity(certain), 0);
        while let Some(found) = self.texts.find.find(Input::new(&self.held[..]).range(at..)) {
            if found.start() >= certain {
                break;
            }
            out.extend_from_slice(&self.held[at..found.start()]);
            out.extend_from_slice(self.texts.instead[found.pattern().as_usize()].as_bytes());
            at = found.end();
        }
        if at < certain {
            out.extend_from_slice(&self.held[at..certain]);
            at = certain;
        }
        let _ = self.held.split_to(at);
        out.freeze()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, prelude::*};

    use super::*;

    fn texts(texts: &[(&str, &str)]) -> Replace {
        let texts = texts.iter().map(|(from, to)| ((*from).to_owned(), (*to).to_owned())).collect();
        Replace::new(&texts).unwrap()
    }

    fn through<'a>(replace: &Replace, pieces: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
        let mut replacing = replace.begin(StatusCode::OK, &mut HeaderMap::new()).unwrap();
        let mut out: Vec<u8> = pieces.into_iter().flat_map(|piece| replacing.add(piece)).collect();
        out.extend(replacing.end());
        out
    }

    /// The same, the slow way: of the whole.
    fn slowly(texts: &[(&str, &str)], body: &[u8]) -> Vec<u8> {
        let (mut out, mut rest) = (Vec::new(), body);
        while let [first, after @ ..] = rest {
            let here = texts.iter().filter(|(from, _)| rest.starts_with(from.as_bytes()));
            match here.max_by_key(|(from, _)| from.len()) {
                Some((from, to)) => {
                    out.extend_from_slice(to.as_bytes());
                    rest = &rest[from.len()..];
                }
                None => {
                    out.push(*first);
                    rest = after;
                }
            }
        }
        out
    }

    proptest! {
        #[test]
        fn it_does_not_matter_where_pieces_end(body in "[abc]{0,40}", cuts in vec(0usize..40, 0..6)) {
            let rows = [("ab", "X"), ("abc", "a"), ("cab", ""), ("b", "ab")];
            let mut cuts: Vec<_> = cuts.into_iter().map(|cut| cut.min(body.len())).chain([0, body.len()]).collect();
            cuts.sort_unstable();
            let pieces = cuts.windows(2).map(|two| &body.as_bytes()[two[0]..two[1]]);
            let found = through(&texts(&rows), pieces);
            let expected = slowly(&rows, body.as_bytes());
            prop_assert_eq!(String::from_utf8(found).unwrap(), String::from_utf8(expected).unwrap());
        }
    }

    #[test]
    fn fields_say_no_more_than_what_holds() {
        let replace = texts(&[("a", "b")]);
        let fields = |etag: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ETAG, HeaderValue::from_static(etag));
            headers.insert(header::CONTENT_LENGTH, HeaderValue::from(3));
            headers
        };
        for (status, is_changed, etag) in [(200, true, "W/\"1\""), (304, false, "W/\"1\""), (404, false, "\"1\"")] {
            let mut headers = fields("\"1\"");
            let begun = replace.begin(StatusCode::from_u16(status).unwrap(), &mut headers);
            assert_eq!((begun.is_some(), headers[header::ETAG].to_str().unwrap()), (is_changed, etag), "{status}");
            assert_eq!(headers.contains_key(header::CONTENT_LENGTH), status == 404);
        }
        let mut coded = fields("W/\"1\"");
        coded.insert(header::CONTENT_ENCODING, HeaderValue::from_static("gzip"));
        assert!(replace.begin(StatusCode::OK, &mut coded).is_none() && coded.contains_key(header::CONTENT_LENGTH));
        for bad in ["".to_owned(), "x".repeat(257)] {
            assert!(Replace::new(&[(bad, String::new())].into()).is_err());
        }
        assert!(Replace::new(&BTreeMap::new()).is_err());
    }
}
