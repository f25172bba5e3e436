//! The tags of a response: `Surrogate-Key` (between spaces), `Cache-Tag` (between commas), and the groups of
//! `Cache-Groups` (RFC 9875), which are an origin's own.

use http::{HeaderMap, HeaderName, HeaderValue};

use crate::{purge::selector, reason::NotStored};

static SURROGATE_KEY: HeaderName = HeaderName::from_static("surrogate-key");
static CACHE_TAG: HeaderName = HeaderName::from_static("cache-tag");
static CACHE_GROUPS: HeaderName = HeaderName::from_static("cache-groups");
static CACHE_GROUP_INVALIDATION: HeaderName = HeaderName::from_static("cache-group-invalidation");

/// Most tags of a response; one that has more is not stored, for a purge by one of them would miss it.
pub(crate) const MOST: usize = 1024;

/// The hashes of the tags and groups of a response under this key.
pub(crate) fn of(fields: &HeaderMap, url_key: &[u8]) -> Result<Vec<u64>, NotStored> {
    let mut tags = Vec::new();
    let mut add = |name: &HeaderName, between: &[u8]| {
        for value in fields.get_all(name) {
            let words = value.as_bytes().split(|byte| between.contains(byte)).map(<[u8]>::trim_ascii);
            tags.extend(words.filter(|word| !word.is_empty()).map(selector::of_tag));
        }
    };
    add(&SURROGATE_KEY, b" \t");
    add(&CACHE_TAG, b",");
    if fields.contains_key(&CACHE_GROUPS) {
        let origin = selector::origin(url_key);
        tags.extend(groups(fields).iter().map(|name| selector::of_group(origin, name.as_bytes())));
    }
    tags.sort_unstable();
    tags.dedup();
    if tags.len() > MOST { Err(NotStored::TooManyTags) } else { Ok(tags) }
}

/// The groups of a response (RFC 9875 2).
pub(crate) fn groups(fields: &HeaderMap) -> Vec<String> {
    strings(fields, &CACHE_GROUPS)
}

/// The groups that the answer to an unsafe request makes invalid (RFC 9875 3).
pub(crate) fn invalidated(fields: &HeaderMap) -> Vec<String> {
    if fields.contains_key(&CACHE_GROUP_INVALIDATION) { strings(fields, &CACHE_GROUP_INVALIDATION) } else { vec![] }
}

/// A list of strings (RFC 9651 3.1, 3.3.3). One that does not parse has what stands before its fault: to take out too
/// much is allowed, to lose what is said clearly is not.
fn strings(fields: &HeaderMap, name: &HeaderName) -> Vec<String> {
    let mut all = Vec::new();
    for value in fields.get_all(name) {
        let mut rest = value.as_bytes();
        while let Some((text, behind)) = string(rest) {
            all.push(text);
            let Some(comma) = behind.iter().position(|byte| *byte == b',') else { break };
            rest = &behind[comma + 1..];
        }
    }
    all
}

/// A string, and what stands behind it.
fn string(bytes: &[u8]) -> Option<(String, &[u8])> {
    let mut rest = bytes.trim_ascii_start().strip_prefix(b"\"")?;
    let mut text = String::new();
    loop {
        match rest {
            [b'"', behind @ ..] => return Some((text, behind)),
            [b'\\', escaped @ (b'"' | b'\\'), behind @ ..] => {
                text.push(char::from(*escaped));
                rest = behind;
            }
            [plain @ 0x20..=0x7e, behind @ ..] if *plain != b'\\' => {
                text.push(char::from(*plain));
                rest = behind;
            }
            _ => return None,
        }
    }
}

/// The tags of a purge by a client, if it names any.
pub(crate) fn named(fields: &HeaderMap) -> Option<Vec<String>> {
    let words = |name: &HeaderName, between: &[char]| -> Vec<String> {
        let values = fields.get_all(name).iter().filter_map(|value: &HeaderValue| value.to_str().ok());
        values.flat_map(|value| value.split(between)).map(|word| word.trim().to_owned()).collect()
    };
    if !fields.contains_key(&SURROGATE_KEY) && !fields.contains_key(&CACHE_TAG) {
        return None;
    }
    let mut all = [words(&SURROGATE_KEY, &[' ', '\t']), words(&CACHE_TAG, &[','])].concat();
    all.retain(|word| !word.is_empty());
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fields(lines: &[(&'static str, &'static str)]) -> HeaderMap {
        let line = |(name, value): &(&'static str, &'static str)| {
            (HeaderName::from_static(name), HeaderValue::from_static(value))
        };
        lines.iter().map(line).collect()
    }

    #[test]
    fn tags_stand_between_spaces_or_commas_and_groups_in_quotes() {
        let key = b"origin://a/x";
        let found = of(
            &fields(&[
                ("surrogate-key", "one  two"),
                ("cache-tag", "three,two , four"),
                ("cache-groups", "\"a b\", \"c\\\"d\";x=1 , \"e\""),
            ]),
            key,
        )
        .unwrap();
        let mut expected: Vec<u64> = ["one", "two", "three", "four"].map(|tag| selector::of_tag(tag.as_bytes())).into();
        expected.extend(["a b", "c\"d", "e"].map(|name| selector::of_group(b"origin://a", name.as_bytes())));
        expected.sort_unstable();
        assert_eq!(found, expected);
        assert_eq!(strings(&fields(&[("cache-groups", "\"a\", b, \"c\"")]), &CACHE_GROUPS), ["a"]);
    }
}
